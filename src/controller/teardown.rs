//! The way back, driven by the record alone: store, outputs, record; the claim's finalizer goes last.

use super::claim::Claim;
use super::context::Context;
use super::error::{self, Error};
use super::outputs::{self, Current};
use super::plan::{self, Undo};
use super::reconcile::Next;
use super::record::{self, Found, Stored};
use super::report::{self, Report, Severity};
use super::resolve::ClassLookup;
use super::{adopt, mark, resolve};
use crate::provisioner::{Mode, Provisioner, Removal};

/// Removes everything that was made for a deleted claim, then lets it go.
///
/// # Errors
/// Whatever could not be removed; the finalizer stays and the removal is tried again.
pub(crate) async fn remove<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let provisioner_name = &ctx.options.provisioner_name;
    let stored = match record::find(&ctx.records(), &claim.id).await? {
        Found::Mine(stored) => Some(adopt::adopt(&ctx.provisioner, provisioner_name, class, *stored)?),
        Found::None { free_name } if claim.was_bound() => {
            let lost = adopt::reconstruct(&ctx.provisioner, provisioner_name, class, claim, free_name);
            if lost.is_none() {
                left_in_place(ctx, claim, &adopt::lost(claim)).await;
            }
            lost
        }
        Found::None { .. } => None,
    };
    let note = match stored {
        Some(stored) => match undo(ctx, claim, &stored).await? {
            Undone::Partly => return Ok(Next::Now),
            Undone::Fully(undo) => {
                if let Some(note) = adopt::unknown_origin(&stored, class) {
                    left_in_place(ctx, claim, &note).await;
                }
                said(&stored, undo)
            }
        },
        None => {
            delete_outputs(ctx, claim).await?;
            "nothing is recorded of the claim; there was nothing to remove".to_owned()
        }
    };
    mark::release(ctx, claim).await?;
    tracing::info!(reason = error::REMOVED, "{note}");
    report::event(ctx, &claim.id, Severity::Normal, error::REMOVED, &note).await;
    Ok(Next::Rest)
}

fn said(stored: &Stored, undo: Undo) -> String {
    let bucket = &stored.record.plan.bucket;
    match (undo, stored.record.plan.mode) {
        (Undo::Delete, _) => format!("bucket {bucket:?} and the claim's access to it are deleted"),
        (Undo::Revoke, Mode::Created) => {
            format!("the claim's access is deleted; bucket {bucket:?} is kept by reclaimPolicy Retain")
        }
        (Undo::Revoke, Mode::Granted) => {
            format!("the claim's access is deleted; bucket {bucket:?}, which existed before, is kept as it is")
        }
    }
}

/// How far [`undo`] came.
pub(crate) enum Undone {
    /// A piece of a long removal is done.
    Partly,
    /// Nothing is left.
    Fully(Undo),
}

/// Undoes one record: in the store first, then outputs, then the record itself.
///
/// # Errors
/// Whatever could not be removed. Nothing that comes later in the order is touched then.
pub(crate) async fn undo<P: Provisioner>(ctx: &Context<P>, claim: &Claim, stored: &Stored) -> Result<Undone, Error> {
    let record = &stored.record;
    let owner = resolve::owner(ctx, record).await?;
    let handed_over = stored.bound || config_map_exists(ctx, claim).await?;
    let undo = plan::undo(record, handed_over);
    let removal = match undo {
        Undo::Revoke => ctx.provisioner.revoke(record, &owner).await,
        Undo::Delete => ctx.provisioner.delete(record, &owner).await,
    };
    match removal.map_err(Error::store)? {
        Removal::Partial { removed } => {
            let so_far = ctx.memory.removed_objects(&claim.id, removed);
            report::tell(ctx, claim, &Report::purging(claim, &record.plan.bucket, so_far)).await?;
            return Ok(Undone::Partly);
        }
        Removal::Done { left } => {
            for note in left {
                left_in_place(ctx, claim, &note).await;
            }
        }
    }
    delete_outputs(ctx, claim).await?;
    record::delete(&ctx.records(), stored).await?;
    Ok(Undone::Fully(undo))
}

async fn left_in_place<P>(ctx: &Context<P>, claim: &Claim, note: &str) {
    tracing::warn!(reason = error::LEFT_IN_PLACE, "{note}");
    report::event(ctx, &claim.id, Severity::Warning, error::LEFT_IN_PLACE, note).await;
}

/// The ConfigMap is the last output to be written, after the credentials were seen to work.
async fn config_map_exists<P>(ctx: &Context<P>, claim: &Claim) -> Result<bool, Error> {
    match outputs::read(&ctx.config_maps_in(&claim.id.namespace), &claim.id).await {
        Ok(Current::Mine(_)) => Ok(true),
        Ok(Current::Absent) | Err(Error::OutputExists { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn delete_outputs<P>(ctx: &Context<P>, claim: &Claim) -> Result<(), Error> {
    let (secrets, config_maps) = (ctx.secrets_in(&claim.id.namespace), ctx.config_maps_in(&claim.id.namespace));
    tokio::try_join!(outputs::delete(&secrets, &claim.id), outputs::delete(&config_maps, &claim.id))?;
    Ok(())
}
