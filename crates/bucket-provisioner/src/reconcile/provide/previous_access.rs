//! What follows when a claim was moved to other access: the previous one ends after a grace period.

use k8s_openapi::jiff::Timestamp;

use super::attempt::Attempt;
use crate::decide::keys::text;
use crate::decide::moving;
use crate::decide::report::Severity;
use crate::decide::steps::Upkeep;
use crate::error::Error;
use crate::objects::{crds, events, outputs, records};
use crate::reasons;
use crate::reconcile::previous_access;
use crate::store::Provisioner;

impl<P: Provisioner> Attempt<'_, P> {
    /// Reports that apps have the new access from now on, and when the previous one ends.
    pub(super) async fn report_move(&self, ends_at: Timestamp) -> Result<(), Error> {
        let record = &self.stored()?.record;
        let now = record.plan.identity().unwrap_or_default();
        let before = record.previous_access.last().and_then(|previous| previous.record(record).plan.identity());
        let before = before.map_or_else(
            || "the provisioning credentials, which its Secret contained".to_owned(),
            |identity| format!("{identity}, which works until {}", text(ends_at)),
        );
        let note = format!("the claim's apps have access by {now}; before, they had {before}; restart them");
        tracing::info!(reason = reasons::ACCESS_MOVED, "{note}");
        events::event(self.ctx, &self.claim.id, Severity::Normal, reasons::ACCESS_MOVED, &note).await;
        Ok(())
    }

    /// SDKs may prefer what the ConfigMap named before.
    pub(super) async fn remove_previous_entries(&self) -> Result<(), Error> {
        let record = &self.stored()?.record;
        let Some(found) = self.config_map.existing() else { return Ok(()) };
        let outdated = record.previous_access.iter().flat_map(|previous| &previous.outputs);
        let outdated = outdated.filter(|key| !record.plan.outputs.contains_key(*key));
        let config_maps = self.ctx.config_maps_in(&self.claim.id.namespace);
        outputs::remove_entries(&config_maps, &self.ctx.field_manager, found, outdated).await
    }

    /// Has the store revoke the access whose time is over.
    pub(super) async fn revoke_previous(&mut self) -> Result<(), Error> {
        self.upkeep = Upkeep::Nothing;
        // The claim's status reports the result.
        self.progress.status_written = false;
        let (ctx, id) = (self.ctx, self.claim.id.clone());
        let before = self.stored()?.record.clone();
        let (over, mut record) = moving::ended(&before, Timestamp::now());
        let mut failure = None;
        for previous in over {
            let Some(identity) = previous.record(&before).plan.identity() else { continue };
            let removed = async {
                crds::may_remove(ctx).await?;
                previous_access::revoke(ctx, &before, &previous, None).await
            };
            match removed.await {
                Ok(None) => {
                    let note = format!("the claim's previous access was deleted: {identity}");
                    events::event(ctx, &id, Severity::Normal, reasons::PREVIOUS_ACCESS_DELETED, &note).await;
                }
                Ok(Some(note)) => events::left_in_place(ctx, &id, &note).await,
                Err(error) => {
                    record.previous_access.push(previous);
                    failure = Some((format!("the claim's previous access ({identity}) could not be deleted"), error));
                }
            }
        }
        if record != before {
            records::record_edit(ctx, self.stored_mut()?, record).await?;
        }
        let note = failure.as_ref().map(|(what, error)| format!("{what}; retrying: {error}").into());
        ctx.memory.entry(&id, |m| m.upkeep.key_failure = note);
        match failure {
            Some((what, error)) => {
                self.upkeep_stopped(Upkeep::RevokePrevious, reasons::CHECK_FAILED, &what, &error).await;
                ctx.options.observer.metrics().upkeep.checked("failed");
            }
            None => ctx.memory.entry(&id, |m| m.upkeep.succeeded()),
        }
        Ok(())
    }
}
