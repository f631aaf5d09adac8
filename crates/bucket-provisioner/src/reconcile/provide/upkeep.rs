//! Upkeep of bound claims: checks of bucket and user.
//!
//! If upkeep fails, bucket and keys still work: an event reports the problem, and the operator retries. Only a lost bucket
//! or lost access is reported in the claim's condition.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::attempt::Attempt;
use crate::decide::backoff;
use crate::decide::keys;
use crate::decide::record::Stored;
use crate::decide::report::Severity;
use crate::decide::steps::{self, Keys, Upkeep};
use crate::decide::{claim, edit, output_data, upkeep};
use crate::error::Error;
use crate::objects::{claims, events, records};
use crate::reasons;
use crate::reconcile::in_sync;
use crate::reconcile::next::Next;
use crate::store::{Changes, Checkup, Failure as _, FailureClass, Problem, Provisioner, Record};

impl<P: Provisioner> Attempt<'_, P> {
    /// The upkeep that is due in this attempt.
    pub(super) fn upkeep_due(&self) -> Result<Upkeep, Error> {
        let (stored, probes) = (self.stored()?, self.ctx.memory.get(&self.claim.id, |m| m.waits.probes()));
        let facts = upkeep::UpkeepFacts {
            bound: stored.bound(),
            by_us: stored.by_us(),
            adopting: stored.is_being_adopted(),
            ready: self.status_is_ready(stored),
            waits_for_keys: probes > 0,
            doubtful: backoff::are_doubtful(probes),
            contradictory: self.contradiction(stored).is_some(),
        };
        Ok(upkeep::due_now(facts, || in_sync::usual_upkeep(self.ctx, &self.claim, stored, &self.notes).0))
    }

    /// Has the store check and repair bucket and user. `Some`: ask it again later.
    pub(super) async fn check(&mut self) -> Result<Option<Next>, Error> {
        let noted = self.notes.issued_at;
        if let Some(wait) = self.check_at_store().await? {
            return Ok(Some(Next::After(wait)));
        }
        self.upkeep = Upkeep::Nothing;
        if self.notes.issued_at != noted {
            // At once, because somebody may edit the note again before the next attempt.
            let (ctx, now) = (self.ctx, Timestamp::now());
            let plan = &self.stored()?.record.plan;
            let notes = self.notes.clone().clamp(Some(plan), now);
            let (due, _) = keys::due_for(&self.claim, &notes, plan, now);
            self.notes = notes;
            if due != Upkeep::Rotate || ctx.memory.get(&self.claim.id, |m| m.upkeep.replacement_in()).is_zero() {
                self.upkeep = steps::upkeep_left(due, &self.keys);
            }
        }
        Ok(None)
    }

    /// Records an edit, and has the store apply it.
    pub(super) async fn record_edit(&mut self) -> Result<(), Error> {
        let ctx = self.ctx;
        // The cache may show the claim as it was before, with wider access, or with objects that expire earlier.
        if !self.claim.has_whole_settings() {
            claims::refresh_settings(ctx, &mut self.claim).await?;
        }
        let stored = self.stored()?;
        let Some(edit) = self.edit(stored) else { return Ok(()) };
        let note = edit.note(&stored.record.plan);
        let record = Record { plan: edit.applied(&stored.record.plan), ..stored.record.clone() };
        records::record_edit(ctx, self.stored_mut()?, record).await?;
        self.edit_note = note;
        ctx.memory.entry(&self.claim.id, |m| m.upkeep.edited());
        self.upkeep = steps::upkeep_left(Upkeep::Check, &self.keys);
        Ok(())
    }

    /// Notes that the store has applied what was edited; settings only if they had no problem.
    async fn note_applied(&mut self, kept: Vec<String>, has_problem: bool) -> Result<(), Error> {
        let (ctx, note) = (self.ctx, self.edit_note.take());
        let stored = self.stored_mut()?;
        let mut record = stored.record.clone();
        let changes = record.plan.changes;
        let settings = changes.settings && !has_problem;
        record.plan.changes = Changes { access: false, settings: changes.settings && has_problem };
        if settings {
            record.plan.settings.released.clear();
        }
        if record.plan.changes == changes {
            return Ok(());
        }
        let access = format!("the access mode of the claim is now {}", record.plan.access.mode);
        let note = note.unwrap_or_else(|| edit::applied(&record.plan.settings));
        records::record_edit(ctx, stored, record).await?;
        let notes = [(changes.access, reasons::ACCESS_CHANGED, access), (settings, reasons::SETTINGS_APPLIED, note)];
        let kept = kept.into_iter().map(|note| (settings, reasons::SETTING_RELEASED, note));
        for (_, reason, note) in notes.into_iter().chain(kept).filter(|(is_done, ..)| *is_done) {
            tracing::info!(reason, "{note}");
            events::event(ctx, &self.claim.id, Severity::Normal, reason, &note).await;
        }
        Ok(())
    }

    /// Does not change `upkeep` if there is no problem. `Some`: the attempt is over for this time.
    pub(super) async fn check_at_store(&mut self) -> Result<Option<Duration>, Error> {
        let (ctx, asked) = (self.ctx, self.claim.retry_request.clone());
        if self.upkeep == Upkeep::Retire
            || ctx.memory.entry(&self.claim.id, |m| m.upkeep.take_retry_request(asked.as_deref()))
        {
            ctx.memory.entry(&self.claim.id, |m| m.upkeep.searches_for_keys());
        }
        ctx.memory.entry(&self.claim.id, |m| m.upkeep.retried(asked.as_deref()));
        let record = self.stored()?.record.clone();
        let present = self.credentials()?.access_key_id.clone();
        // Only `retire` has the previous key deleted, after it was deactivated: the present one may not work.
        let (is_retiring, now) = (self.upkeep == Upkeep::Retire, Timestamp::now());
        let retiring =
            self.notes.retiring.as_ref().filter(|key| !is_retiring || key.at > now).map(|key| key.id.clone());
        let denied = ctx.memory.get(&self.claim.id, |m| m.upkeep.denied_key()).map(|keys| keys.access_key_id);
        let kept = [Some(present.as_str()), retiring.as_deref(), denied.as_deref()];
        let kept: Vec<&str> = kept.into_iter().flatten().filter(|key| !key.is_empty()).collect();
        let answer = match self.owner_for_removal().await {
            Ok(owner) => ctx.call_store(&record, Box::pin(ctx.provisioner.check(&owner.call(&record), &kept))).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(checkup) => self.take_checkup(checkup).await.map(|()| None),
            Err(error) if error.is_lost() => {
                ctx.options.observer.metrics().upkeep.checked("lost");
                Err(self.contradiction(self.stored()?).unwrap_or(error))
            }
            // Nothing is published that may be somebody else's.
            Err(error) if self.contradiction(self.stored()?).is_some() => Err(error),
            Err(error) => self.check_stopped(error).await,
        }
    }

    /// The error about a lost bucket that may never have been the claim's, because claim and record name different ones, and
    /// what was published does not show which is right: an admin who reads that a tag is missing may tag it.
    fn contradiction(&self, stored: &Stored) -> Option<Error> {
        let recorded = stored.record.plan.bucket.clone();
        let bucket = claim::other_bucket(&self.claim, &stored.record)?;
        let is_published = output_data::bucket(self.config_map.existing()) == Some(&recorded);
        (!is_published).then(|| Error::BucketsDiffer { record: stored.name.clone(), recorded, bucket })
    }

    /// Reports what the store found, and notes what is to be done about it.
    async fn take_checkup(&mut self, checkup: Checkup) -> Result<(), Error> {
        let (ctx, id) = (self.ctx, self.claim.id.clone());
        self.seen_in_account = self.owner().await?.account.clone().filter(|_| !checkup.keys_lost);
        if checkup.problem.is_none() {
            ctx.memory.entry(&id, |m| m.upkeep.succeeded());
        }
        ctx.memory.entry(&id, |m| m.upkeep.checked(ctx.options.resync));
        let metrics = &ctx.options.observer.metrics().upkeep;
        metrics.checked(if checkup.problem.is_none() { "done" } else { "failed" });
        let retired = self.notes.retiring.as_ref().map(|key| key.id.as_str());
        let (expected, foreign): (Vec<_>, Vec<_>) =
            checkup.deleted_keys.iter().partition(|id| Some(id.as_str()) == retired);
        for key in expected {
            let note = format!("the previous key {key} was deleted");
            events::event(ctx, &id, Severity::Normal, reasons::KEYS_RETIRED, &note).await;
        }
        metrics.repairs.with(["store"]).inc_by(checkup.repaired.len() as u64);
        metrics.repairs.with(["key"]).inc_by(foreign.len() as u64);
        let foreign = foreign.into_iter().map(|key| {
            format!(
                "access key {key} of the claim's user was deleted, because it is neither the key in the claim's Secret nor the previous one"
            )
        });
        for note in checkup.repaired.into_iter().chain(foreign) {
            tracing::warn!(reason = reasons::REPAIRED, "{note}");
            events::event(ctx, &id, Severity::Warning, reasons::REPAIRED, &note).await;
        }
        if let Some(problem) = &checkup.problem {
            self.report_problem(problem).await?;
        }
        if self.stored()?.record.plan.changes.any() && !checkup.keys_lost {
            let is_refused = checkup.problem.is_some_and(|problem| problem.is_about_change);
            self.note_applied(checkup.kept, is_refused).await?;
        }
        if checkup.keys_lost {
            if self.stored()?.record.plan.changes.any() {
                ctx.memory.entry(&id, |m| m.upkeep.in_progress(Upkeep::Check));
            }
            self.upkeep = Upkeep::Nothing;
            self.doubt_keys();
        }
        if checkup.keys_inactive {
            self.upkeep = Upkeep::Nothing;
            if !keys::are_requested(&self.claim, &self.notes) {
                return Err(Error::KeysInactive { key: self.credentials()?.access_key_id.clone() });
            }
            self.keys = Keys::None;
            return Ok(());
        }
        let issued_at = checkup.issued_at.and_then(|at| Timestamp::try_from(at).ok());
        match issued_at.and_then(|at| self.notes.corrected(at)) {
            Some(corrected) => self.write_notes(corrected).await,
            None => Ok(()),
        }
    }

    /// Reports a setting that could not be checked or applied, although the rest could.
    async fn report_problem(&self, problem: &Problem) -> Result<(), Error> {
        let is_pending = self.stored()?.record.plan.changes.settings && problem.is_about_change;
        let what =
            if is_pending { unapplied(Changes::SETTINGS) } else { "a setting of the bucket could not be checked" };
        let note = format!("{what}; retrying: {}", problem.message);
        self.upkeep_failed(reasons::CHECK_FAILED, &note, problem.class).await;
        if !is_pending {
            self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.wait_for_next());
        }
        Ok(())
    }

    /// The check failed, or the store is still working on it.
    async fn check_stopped(&mut self, error: Error) -> Result<Option<Duration>, Error> {
        let (ctx, id) = (self.ctx, &self.claim.id);
        let what = unapplied(self.stored()?.record.plan.changes);
        let failed = self.upkeep_stopped(self.upkeep, reasons::CHECK_FAILED, what, &error).await;
        if failed {
            ctx.options.observer.metrics().upkeep.checked("failed");
        }
        let is_pending = self.stored()?.is_being_adopted() || self.stored()?.record.plan.changes.any();
        if failed && self.upkeep == Upkeep::Check && !is_pending {
            // If a permission is missing, all claims fail: they report it once, not every five minutes.
            ctx.memory.entry(id, |m| m.upkeep.wait_for_next());
            ctx.memory.entry(id, |m| m.upkeep.checked(ctx.options.resync));
        }
        self.upkeep = Upkeep::Nothing;
        let stored = self.stored()?;
        match upkeep::awaits_check(self.status_is_ready(stored), &error) {
            // Its status still asks for the adoption.
            true if stored.is_being_adopted() => Err(error),
            true => Ok(Some(ctx.memory.entry(id, |m| {
                let wait = m.upkeep.failed_in();
                m.waits.defer(wait);
                wait
            }))),
            false => Ok(None),
        }
    }

    /// The store does not show the present keys. If nothing was created lately, it does not have them, whether they work or
    /// not: somebody else's keys do not keep the claim's from being replaced. Otherwise they are tried before they are
    /// replaced; if very new keys are refused, the operator waits, because they may not work yet either.
    fn doubt_keys(&mut self) {
        if !matches!(self.keys, Keys::InSecret { .. }) {
            return;
        }
        let (lag, since_change) = (self.lag(), self.ctx.memory.since_last_change(&self.claim.id));
        if since_change >= lag {
            self.keys = Keys::None;
            return;
        }
        self.keys.set_proven(false);
        self.must_reprobe_keys = !self.notes.is_new(Timestamp::now(), lag);
        // If they work nevertheless, the store is asked again.
        self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.check_after(lag.saturating_sub(since_change)));
    }

    /// Reports an error of upkeep, unless the store is still working. Returns whether it failed.
    pub(super) async fn upkeep_stopped(&self, upkeep: Upkeep, reason: &'static str, what: &str, error: &Error) -> bool {
        match upkeep::failure_note(what, error) {
            Some(note) => {
                self.upkeep_failed(reason, &note, error.class()).await;
                true
            }
            None => {
                tracing::info!(?upkeep, "the store is still working: {error}");
                self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.in_progress(upkeep));
                false
            }
        }
    }

    pub(super) async fn upkeep_failed(&self, reason: &'static str, note: &str, class: FailureClass) {
        tracing::warn!(reason, "{note}");
        if keys::reports(reason) {
            self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.key_failure = Some(note.into()));
        }
        if self.ctx.memory.entry(&self.claim.id, |m| m.upkeep.failed(class, note)) {
            events::event(self.ctx, &self.claim.id, Severity::Warning, reason, note).await;
        }
    }
}

/// What a check that failed has not done.
fn unapplied(changes: Changes) -> &'static str {
    match changes {
        Changes { settings: true, access: false } => "the new settings of the bucket could not be applied",
        Changes { settings: false, access: true } => "the claim's new access mode could not be applied",
        Changes { settings: true, access: true } => {
            "the claim's new access mode and the new settings of the bucket could not be applied"
        }
        Changes { settings: false, access: false } => "bucket and access could not be checked",
    }
}
