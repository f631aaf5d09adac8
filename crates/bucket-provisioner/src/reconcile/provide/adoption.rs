//! Records that a claim adopts from a previous one, as their annotation requests.

use super::attempt::{Attempt, read_outputs};
use crate::decide::claim::Claim;
use crate::decide::notice;
use crate::decide::output_data::PreviousOwner;
use crate::decide::plan::RecordState;
use crate::decide::record::Stored;
use crate::decide::report::Severity;
use crate::error::Error;
use crate::objects::{events, records};
use crate::reasons;
use crate::reconcile::next::{BUSY, Next};
use crate::reconcile::owner;
use crate::state::context::Context;
use crate::store::{Provisioner, Record};

impl<'a, P: Provisioner> Attempt<'a, P> {
    /// Reads everything before the first write, for a claim that adopts the record of a previous one.
    pub(super) async fn adopt(
        ctx: &'a Context<P>,
        claim: Claim,
        stored: Box<Stored>,
        record: Box<Record>,
    ) -> Result<Self, Error> {
        let previous_owner = PreviousOwner::of(&record, true, &ctx.label);
        let (owner, outputs) =
            tokio::try_join!(owner::of_record(ctx, &record), read_outputs(ctx, &claim, previous_owner))?;
        Ok(Self::new(ctx, claim, RecordState::Predecessor { stored, record }, outputs, Some(owner)))
    }

    /// From here on the record belongs to the claim; any later attempt can finish the adoption.
    pub(super) async fn take_record_over(&mut self) -> Result<Option<Next>, Error> {
        let RecordState::Predecessor { stored, record } = &self.record_state else {
            return Err(Error::OutOfStep("there is no ObjectBucket to adopt"));
        };
        let (mut stored, record) = (Stored::clone(stored), Record::clone(record));
        // A removal that an admin requested before may still be deleting objects; it ends after this part. This claim is
        // locked already.
        let is_mine = stored.record.claim == self.claim.id;
        let not_removed = self.ctx.memory.try_lock(&stored.record.claim);
        if not_removed.is_none() && !is_mine {
            return Ok(Some(Next::After(BUSY)));
        }
        tracing::info!(
            record = stored.name,
            former_uid = stored.record.claim.uid,
            former_cluster = stored.record.cluster,
            "adopting the ObjectBucket, as its annotation requests"
        );
        // Keys that were issued for the previous access, and what was reported about them. Before it is written, because the answer may be lost.
        self.ctx.memory.entry(&self.claim.id, |m| {
            m.keep_pending_key(None);
            m.upkeep.succeeded();
            m.upkeep.key_failure = None;
        });
        records::transfer(self.ctx, &mut stored, record).await?;
        self.record_state = RecordState::Stored { stored: Box::new(stored), is_new: false };
        self.continue_with_upkeep()?;
        Ok(None)
    }

    /// Reports the adoption on record and claim, and removes the admin's annotation.
    ///
    /// # Errors
    /// Kubernetes refused.
    pub(super) async fn finish_adoption(&mut self) -> Result<(), Error> {
        let (ctx, claim) = (self.ctx, &self.claim.id.clone());
        if let Some(note) = &self.not_moved {
            let Stored { name, uid, .. } = self.stored()?;
            let (severity, reason) = (Severity::Warning, reasons::orphaned::ACTION_REFUSED);
            events::record_event(ctx, name, uid.as_deref(), severity, reason, note).await;
        }
        let stored = self.stored_mut()?;
        // Admins may annotate all records at once, also those that belong to their claims already.
        if stored.record.former_uids.is_empty() {
            return records::remove_annotation(ctx, stored).await;
        }
        if let Some(object) = records::read(ctx, &stored.name).await? {
            records::report(ctx, &object, &notice::adopted(claim)).await?;
        }
        records::remove_annotation(ctx, stored).await?;
        let note = format!(
            "the claim has adopted ObjectBucket {:?} and bucket {:?}, which were created for a previous claim",
            stored.name, stored.record.plan.bucket
        );
        tracing::info!(reason = reasons::ADOPTED, "{note}");
        events::event(ctx, claim, Severity::Normal, reasons::ADOPTED, &note).await;
        Ok(())
    }
}
