//! The end of previous keys: they are deactivated when their grace period is over and no app uses them any more, and
//! deleted some time later.

use k8s_openapi::jiff::Timestamp;

use super::attempt::Attempt;
use crate::decide::keys::{self, KeyNotes, text};
use crate::decide::report::Severity;
use crate::decide::steps::Upkeep;
use crate::error::Error;
use crate::objects::events;
use crate::reasons;
use crate::store::{Deactivation, Failure as _, FailureClass, Provisioner, Rotation};

impl<P: Provisioner> Attempt<'_, P> {
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
