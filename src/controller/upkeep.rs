//! What keeps a bound claim well over time: keys that follow others, and the look whether all is as it was made.
//!
//! Upkeep that fails takes nothing from the claim: what it was given goes on working, an event says what is
//! wrong, and it is tried again. Only what is lost is said in the claim's condition.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::claim::Claim;
use super::context::Context;
use super::decide::record::{Author, Stored};
use super::error::{self, Error};
use super::keys::{self, KeyNotes, Retiring};
use super::provide::{Attempt, MAX_PROBES};
use super::reconcile::Next;
use super::report::{self, Severity};
use super::steps::{self, Keys, Upkeep};
use crate::provisioner::{AppCredentials, Failure, FailureClass, Provisioner};

/// What is due for a bound claim that is well; or how long nothing is, if that is known.
pub(crate) fn due<P>(ctx: &Context<P>, claim: &Claim, stored: &Stored, notes: &KeyNotes) -> (Upkeep, Option<Duration>) {
    let (memory, id) = (&ctx.memory, &claim.id);
    // Somebody mended what failed, perhaps.
    let asks = memory.asks_again(id, claim.retry_request.as_deref()) && stored.author == Author::Us;
    let looks_in = memory.look_for_keys_in(id);
    let failed = memory.upkeep_in(id);
    if !failed.is_zero() && !asks {
        return (Upkeep::Nothing, Some(failed));
    }
    let plan = &stored.record.plan;
    let (due, wait) = match plan.user {
        Some(_) => keys::due(notes, claim.rotation_request.as_deref(), &plan.rotation, Timestamp::now()),
        None => (Upkeep::Nothing, None),
    };
    let put_off = ctx.memory.replacement_in(&claim.id);
    match due {
        Upkeep::Nothing => {}
        Upkeep::Rotate if !put_off.is_zero() => return (Upkeep::Nothing, Some(put_off)),
        Upkeep::Retire if !looks_in.is_zero() => return (Upkeep::Nothing, Some(looks_in)),
        Upkeep::Rotate | Upkeep::Retire | Upkeep::Check => return (due, None),
    }
    if asks {
        return if looks_in.is_zero() { (Upkeep::Check, None) } else { (Upkeep::Nothing, Some(looks_in)) };
    }
    // What the Go provisioner made is of other shapes, and stays as it is.
    let check_in = match stored.author {
        Author::Us => ctx.memory.check_in(&claim.id, ctx.options.resync),
        Author::GoProvisioner => None,
    };
    match check_in {
        Some(Duration::ZERO) => (Upkeep::Check, None),
        check_in => (Upkeep::Nothing, [wait, check_in].into_iter().flatten().min()),
    }
}

impl<P: Provisioner> Attempt<'_, P> {
    pub(super) fn upkeep_due(&self) -> Result<Upkeep, Error> {
        let stored = self.stored()?;
        Ok(match stored.bound() {
            false => Upkeep::Nothing,
            // What the former claim had is given the tags of this one by that, and its keys are compared.
            true if stored.is_being_adopted() && stored.author == Author::Us => Upkeep::Check,
            // It was told that something is lost, perhaps: that stays so until it is seen to be there again.
            true if !report::says_ready(&self.claim, report::keeps(self.ctx, stored.author))
                && stored.author == Author::Us =>
            {
                // New keys that have to be waited for need no look each time.
                if self.ctx.memory.probes(&self.claim.id) == 0 { Upkeep::Check } else { Upkeep::Nothing }
            }
            true => due(self.ctx, &self.claim, stored, &self.notes).0,
        })
    }

    /// Has the store issue keys beside the present ones. They are tried before they are handed over.
    pub(super) async fn rotate(&mut self) -> Result<(), Error> {
        self.upkeep = Upkeep::Nothing;
        let present = self.credentials()?.access_key_id.clone();
        match self.ask_to_rotate(&present).await {
            Ok(Some(keys)) => {
                self.ctx.memory.keep_successor(&self.claim.id, Some(keys.clone()));
                self.keys = Keys::Successor { keys, proven: false };
            }
            Ok(None) => {
                let note = "this store does not replace keys while they are in use; delete the claim's Secret to have new ones made";
                self.upkeep_failed(error::ROTATION_FAILED, note, FailureClass::Terminal).await;
            }
            Err(failure) => {
                let note = format!("the keys could not be replaced; the present ones go on working: {failure}");
                self.upkeep_failed(error::ROTATION_FAILED, &note, failure.class()).await;
            }
        }
        Ok(())
    }

    async fn ask_to_rotate(&mut self, present: &str) -> Result<Option<AppCredentials>, Error> {
        let (ctx, record) = (self.ctx, self.stored()?.record.clone());
        let owner = self.owner().await?;
        ctx.asking(&record, Box::pin(ctx.provisioner.rotate(&record, &owner.credentials, present))).await
    }

    /// The keys that should follow do not work yet; after long enough they never will.
    pub(super) async fn successor_refused(&mut self, answer: String, wait: Duration) -> Result<Next, Error> {
        if self.ctx.memory.probes(&self.claim.id) <= MAX_PROBES {
            return Ok(Next::After(wait));
        }
        self.ctx.memory.keep_successor(&self.claim.id, None);
        let note = format!("new keys are refused again and again ({answer}); the present ones go on working");
        self.upkeep_failed(error::ROTATION_FAILED, &note, FailureClass::Terminal).await;
        Ok(Next::Rest)
    }

    pub(super) async fn tell_rotated(&self, former: &Retiring) {
        self.ctx.memory.keep_successor(&self.claim.id, None);
        self.ctx.memory.upkeep_succeeded(&self.claim.id);
        let Retiring { id, at } = former;
        let note = format!(
            "the claim's Secret holds new keys, which were seen to work; the former key {id} works until {}: restart apps that read their keys once",
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        tracing::info!(reason = error::KEYS_ROTATED, "{note}");
        report::event(self.ctx, &self.claim.id, Severity::Normal, error::KEYS_ROTATED, &note).await;
    }

    /// Has the store delete the keys that are not to be used, then forgets them.
    pub(super) async fn retire(&mut self) -> Result<(), Error> {
        self.ask_to_check().await?;
        // Had it failed, or had the present keys been lost, there would be something to do first.
        if self.upkeep == Upkeep::Retire {
            self.upkeep = Upkeep::Nothing;
            self.note(self.notes.looked_at(Timestamp::now())).await?;
        }
        Ok(())
    }

    /// Has the store compare what is there with what was made.
    pub(super) async fn check(&mut self) -> Result<(), Error> {
        let noted = self.notes.issued_at;
        self.ask_to_check().await?;
        self.upkeep = Upkeep::Nothing;
        if self.notes.issued_at != noted {
            // At once: what is noted may be edited again by the next attempt.
            let (ctx, now) = (self.ctx, Timestamp::now());
            let rotation = self.stored()?.record.plan.rotation;
            self.notes = self.notes.clone().believed(&rotation, now);
            let (due, _) = keys::due(&self.notes, self.claim.rotation_request.as_deref(), &rotation, now);
            if due != Upkeep::Rotate || ctx.memory.replacement_in(&self.claim.id).is_zero() {
                self.upkeep = steps::upkeep_left(due, &self.keys.whereabouts());
            }
        }
        Ok(())
    }

    /// Leaves `upkeep` as it is if all is well.
    async fn ask_to_check(&mut self) -> Result<(), Error> {
        let ctx = self.ctx;
        let asked = self.claim.retry_request.as_deref();
        if self.upkeep == Upkeep::Retire || ctx.memory.asks_again(&self.claim.id, asked) {
            ctx.memory.looked_for_keys(&self.claim.id);
        }
        ctx.memory.retried(&self.claim.id, asked);
        let record = self.stored()?.record.clone();
        let present = self.credentials()?.access_key_id.clone();
        let retiring = self.notes.retiring.as_ref().filter(|key| key.at > Timestamp::now()).map(|key| key.id.clone());
        let kept: Vec<&str> = [Some(present.as_str()), retiring.as_deref()].into_iter().flatten().collect();
        let answer = match self.owner().await {
            Ok(owner) => ctx.asking(&record, Box::pin(ctx.provisioner.check(&record, &owner.credentials, &kept))).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(checkup) => {
                self.seen_in_account = self.owner().await?.account.clone().filter(|_| !checkup.keys_lost);
                ctx.memory.upkeep_succeeded(&self.claim.id);
                ctx.memory.checked(&self.claim.id, ctx.options.resync);
                let retired = self.notes.retiring.as_ref().map(|key| key.id.as_str());
                let (expected, foreign): (Vec<_>, Vec<_>) =
                    checkup.deleted_keys.iter().partition(|id| Some(id.as_str()) == retired);
                for id in expected {
                    let note = format!("the former key {id} is deleted");
                    report::event(ctx, &self.claim.id, Severity::Normal, error::KEYS_RETIRED, &note).await;
                }
                let foreign = foreign.into_iter().map(|id| {
                    format!("access key {id} of the claim's user is deleted: it was not handed out by the operator")
                });
                for note in checkup.repaired.into_iter().chain(foreign) {
                    tracing::warn!(reason = error::REPAIRED, "{note}");
                    report::event(ctx, &self.claim.id, Severity::Warning, error::REPAIRED, &note).await;
                }
                if checkup.keys_lost {
                    self.upkeep = Upkeep::Nothing;
                    self.doubt_keys();
                }
                let issued_at = checkup.issued_at.and_then(|at| Timestamp::try_from(at).ok());
                if let Some(corrected) = issued_at.and_then(|at| self.notes.corrected(at)) {
                    self.note(corrected).await?;
                }
                Ok(())
            }
            Err(error) if error.lost() => Err(error),
            Err(failure) => {
                let note = format!("it could not be seen whether all is as it was made: {failure}");
                self.upkeep_failed(error::CHECK_FAILED, &note, failure.class()).await;
                if self.upkeep == Upkeep::Check && !self.stored()?.is_being_adopted() {
                    // All claims of an owner that lacks a permission say so once, and not every five minutes.
                    ctx.memory.upkeep_waits(&self.claim.id);
                    ctx.memory.checked(&self.claim.id, ctx.options.resync);
                }
                self.upkeep = Upkeep::Nothing;
                Ok(())
            }
        }
    }

    /// IAM's reads lag: what was seen to work is not replaced for what they do not show. It is tried first; and
    /// keys so new that neither reads nor tries tell anything are waited for.
    fn doubt_keys(&mut self) {
        if let Keys::InSecret { proven, .. } = &mut self.keys {
            *proven = false;
            self.doubted = !self.notes.is_new(Timestamp::now());
        }
    }

    async fn upkeep_failed(&self, reason: &'static str, note: &str, class: FailureClass) {
        tracing::warn!(reason, "{note}");
        if self.ctx.memory.upkeep_failed(&self.claim.id, class, note) {
            report::event(self.ctx, &self.claim.id, Severity::Warning, reason, note).await;
        }
    }
}
