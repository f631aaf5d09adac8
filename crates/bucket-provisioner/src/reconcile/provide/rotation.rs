//! Rotation of keys: new ones are issued beside the present ones, tried and published. The previous ones are deactivated
//! when their grace period is over and no app uses them any more, and deleted some time later.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::attempt::Attempt;
use crate::decide::backoff::{MAX_DENIED, MAX_PROBES};
use crate::decide::keys::{self, KeyNotes, Retiring, text};
use crate::decide::report::Severity;
use crate::decide::steps::{Keys, Upkeep};
use crate::decide::store_outputs;
use crate::error::Error;
use crate::objects::events;
use crate::reasons;
use crate::reconcile::next::Next;
use crate::state::memory::ClaimMemory;
use crate::store::{AppCredentials, Deactivation, Failure as _, FailureClass, Provisioner, Rotation};

impl<P: Provisioner> Attempt<'_, P> {
    /// Has the store issue keys in addition to the present ones. They are tried before they are published.
    pub(super) async fn rotate(&mut self) -> Result<(), Error> {
        self.upkeep = Upkeep::Nothing;
        // The claim's status reports the result.
        self.progress.status_written = false;
        // A request for another attempt is answered by this one, also if it fails: it would end every wait.
        self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.retried(self.claim.retry_request.as_deref()));
        let denied = self.ctx.memory.get(&self.claim.id, |m| m.upkeep.denied_key());
        let is_new = denied.is_none();
        let pending_key = match denied {
            Some(keys) => self.try_secret().await.map(|()| Some(keys)),
            None => self.rotate_at_store().await,
        };
        match pending_key {
            Ok(Some(keys)) => {
                if is_new {
                    self.ctx.memory.entry(&self.claim.id, |m| m.keep_pending_key(Some(keys.clone())));
                }
                self.keys = Keys::Pending { keys, proven: false };
            }
            Ok(None) => {
                let note =
                    "this store cannot rotate keys while they are in use; to get new keys, delete the claim's Secret";
                self.rotation_ended("failed");
                self.upkeep_failed(reasons::ROTATION_FAILED, note, FailureClass::Terminal).await;
            }
            Err(error) => {
                let what = "the keys could not be rotated; the present keys still work";
                if self.upkeep_stopped(Upkeep::Rotate, reasons::ROTATION_FAILED, what, &error).await {
                    self.rotation_ended("failed");
                }
            }
        }
        Ok(())
    }

    async fn rotate_at_store(&mut self) -> Result<Option<AppCredentials>, Error> {
        let (ctx, record) = (self.ctx, self.stored()?.record.clone());
        let present = self.credentials()?.access_key_id.clone();
        self.try_secret().await?;
        let owner = self.owner_for_removal().await?;
        // The store may not show the new keys for a while.
        ctx.memory.entry(&record.claim, ClaimMemory::executes);
        let mut answer =
            ctx.call_store(&record, Box::pin(ctx.provisioner.rotate(&owner.call(&record), &present))).await?;
        ctx.memory.entry(&record.claim, ClaimMemory::executes);
        let keys = answer.as_mut();
        if let Some(note) = keys.and_then(|keys| store_outputs::take_out_refused(&mut keys.outputs, &record.plan)) {
            self.report_refused_outputs(&note).await;
        }
        Ok(answer)
    }

    /// The new keys do not work yet. After some time, the operator gives them up, or keeps them for later if the store knows
    /// them: others would be denied as well.
    pub(super) async fn pending_key_refused(
        &mut self,
        keys: AppCredentials,
        answer: String,
        denied: bool,
        wait: Duration,
    ) -> Result<Next, Error> {
        let (memory, id) = (&self.ctx.memory, &self.claim.id);
        let known = memory.get(id, |m| (m.waits.probes(), m.waits.refused_for(), m.upkeep.denied_key()));
        let (probes, refused_for, denied_before) = known;
        let note = if denied && (denied_before.is_some() || refused_for >= MAX_DENIED) {
            let note = format!(
                "the store denies the new key {} ({answer}); it is kept and tried again; the claim's Secret still holds the present key",
                keys.access_key_id
            );
            memory.entry(id, |m| {
                m.keep_denied_key(keys);
                if denied_before.is_none() {
                    // Perhaps somebody deleted the policy of the claim's user.
                    m.upkeep.check_after(Duration::ZERO);
                }
            });
            note
        } else if probes > MAX_PROBES {
            memory.entry(id, |m| m.keep_pending_key(None));
            format!("the store keeps refusing the new keys ({answer}); the present keys still work; retrying")
        } else {
            if denied_before.is_some() {
                memory.entry(id, |m| m.keep_pending_key(Some(keys)));
            }
            return Ok(Next::After(wait));
        };
        self.rotation_ended("failed");
        self.upkeep_failed(reasons::ROTATION_FAILED, &note, FailureClass::Terminal).await;
        self.update_status().await?;
        Ok(Next::Done)
    }

    pub(super) async fn pending_key_published(&self, previous: &Retiring) {
        self.rotation_ended("done");
        self.ctx.memory.entry(&self.claim.id, |m| m.keep_pending_key(None));
        self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.succeeded());
        self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.key_failure = None);
        let Retiring { id, at, .. } = previous;
        let note = format!(
            "the claim's Secret contains new keys; the previous key {id} works until {}; restart apps that read their keys only once",
            at.strftime("%Y-%m-%dT%H:%M:%SZ")
        );
        tracing::info!(reason = reasons::KEYS_ROTATED, "{note}");
        events::event(self.ctx, &self.claim.id, Severity::Normal, reasons::KEYS_ROTATED, &note).await;
    }

    /// To be called while the notes are still those on the previous keys.
    fn rotation_ended(&self, result: &str) {
        let trigger = match keys::are_requested(&self.claim, &self.notes) {
            true => "request",
            false => "age",
        };
        self.ctx.options.observer.metrics().upkeep.rotations.with([trigger, result]).inc();
    }

    /// Has the store delete the keys that are not in use, then removes the notes on them.
    pub(super) async fn retire(&mut self) -> Result<(), Error> {
        if let Some(previous) = self.notes.expired(Timestamp::now()).map(|key| key.id.clone())
            && self.postpone_deletion(&previous).await?
        {
            self.upkeep = Upkeep::Nothing;
            return Ok(());
        }
        self.check_at_store().await?;
        // Otherwise the check failed, or the present keys are lost.
        if self.upkeep == Upkeep::Retire {
            self.upkeep = Upkeep::Nothing;
            self.write_notes(self.notes.after_review(Timestamp::now())).await?;
        }
        Ok(())
    }

    /// Has the store deactivate a previous key. Returns whether its deletion is postponed.
    async fn postpone_deletion(&mut self, previous: &str) -> Result<bool, Error> {
        let rotation = self.stored()?.record.plan.rotation;
        let (answer, problem) = match self.deactivate_at_store(previous, &rotation).await {
            Ok(answer) => (answer, None),
            // Whether the key is used is not known, so it counts as used: until its last time is over.
            Err(error) if error.class() == FailureClass::Terminal => (Deactivation::InUse(None), Some(error)),
            Err(error) => {
                let what = format!("the previous key {previous} could not be deactivated");
                self.upkeep_stopped(Upkeep::Retire, reasons::CHECK_FAILED, &what, &error).await;
                return Ok(true);
            }
        };
        let now = Timestamp::now();
        let Some(notes) = self.notes.after_deactivation(answer, &rotation, now) else { return Ok(false) };
        self.report_deactivation(previous, answer, &notes, text(self.notes.limit(&rotation, now)), problem).await;
        self.write_notes(notes).await?;
        Ok(true)
    }

    async fn deactivate_at_store(&mut self, previous: &str, rotation: &Rotation) -> Result<Deactivation, Error> {
        let (ctx, record, now) = (self.ctx, self.stored()?.record.clone(), Timestamp::now());
        let since = now.checked_sub(keys::idle_time(rotation)).unwrap_or(Timestamp::MIN);
        let unless_used_since = (now < self.notes.limit(rotation, now)).then(|| since.into());
        let owner = self.owner_for_removal().await?;
        let call = owner.call(&record);
        ctx.call_store(&record, Box::pin(ctx.provisioner.deactivate(&call, previous, unless_used_since))).await
    }

    /// `notes`: what is written now. `limit`: when the key stops working, even if it is used.
    async fn report_deactivation(
        &self,
        previous: &str,
        answer: Deactivation,
        notes: &KeyNotes,
        limit: String,
        problem: Option<Error>,
    ) {
        let until = notes.retiring.as_ref().map(|key| text(key.at)).unwrap_or_default();
        let (severity, reason, note) = match (answer, problem) {
            (Deactivation::InUse(_), Some(problem)) => (
                Severity::Warning,
                reasons::CHECK_FAILED,
                format!(
                    "it is not known whether apps still use the previous key {previous}, so it works until {limit}: {problem}"
                ),
            ),
            (Deactivation::InUse(used), None) => {
                let used = used.and_then(|at| Timestamp::try_from(at).ok()).map(text);
                let when = used.map_or_else(|| "recently".to_owned(), |at| format!("at {at}"));
                let note = format!(
                    "the previous key {previous} was used {when}, so it works until {limit} at the latest: restart the apps that still use it"
                );
                (Severity::Warning, reasons::KEY_IN_USE, note)
            }
            (Deactivation::Done | Deactivation::NotNeeded, _) => (
                Severity::Normal,
                reasons::KEY_DEACTIVATED,
                format!("the previous key {previous} is deactivated, and is deleted at {until}"),
            ),
        };
        match severity {
            Severity::Warning => tracing::warn!(reason, "{note}"),
            _ => tracing::info!(reason, "{note}"),
        }
        events::event(self.ctx, &self.claim.id, severity, reason, &note).await;
    }
}
