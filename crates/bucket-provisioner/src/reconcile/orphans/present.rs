//! The claim that has the name of a record's previous claim now.

use super::OrphanController;
use crate::decide::claim::Claim;
use crate::decide::lookup::Found;
use crate::decide::orphan::PresentClaim;
use crate::decide::record::Stored;
use crate::decide::release::UndoRequest;
use crate::error::Error;
use crate::objects::{namespaces, record_lookup};
use crate::store::Provisioner;

impl<P: Provisioner> OrphanController<P> {
    /// The claim that has the recorded name now, read from the cluster. `adopts`: it is to adopt the record.
    pub(super) async fn present(&self, stored: &Stored, adopts: bool) -> Result<Option<PresentClaim>, Error> {
        let (ctx, recorded) = (&*self.ctx, &stored.record.claim);
        let found = ctx.claims_in(&recorded.namespace).get_opt(&recorded.name).await;
        let Some(found) = found.map_err(Error::kubernetes("read the claim"))? else { return Ok(None) };
        let claim = Claim::read(&found, &ctx.label);
        let has_record = match adopts && claim.id.uid != recorded.uid {
            false => None,
            true => match record_lookup::find(ctx, &claim).await {
                Ok(Found::Owned(own)) => Some(own.name).filter(|name| *name != stored.name),
                _ => None,
            },
        };
        let names_it = claim.named_record() == Some(&stored.name);
        let undoes = self.undoes(stored, &claim).await?;
        Ok(Some(PresentClaim { uid: claim.id.uid, deleting: claim.deleting, has_record, names_it, undoes }))
    }

    /// Whether a claim asks in time for the bucket of this record, whose deletion is scheduled.
    async fn undoes(&self, stored: &Stored, claim: &Claim) -> Result<bool, Error> {
        let (Some(release), true) = (&stored.release, claim.undoes_deletion_of(&stored.name) && !claim.deleting) else {
            return Ok(false);
        };
        let namespace = namespaces::uid(&self.ctx, &claim.id.namespace).await?;
        let class = claim.spec().map(|spec| spec.storage_class_name.as_str()).unwrap_or_default();
        let request = UndoRequest { namespace_uid: namespace.as_deref(), class, asked_at: claim.asked_at() };
        Ok(release.undo(&request, &stored.record.class_name).is_ok())
    }
}
