//! The way back, driven by the record alone: store, outputs, record; the claim's finalizer goes last.

use std::time::Duration;

use super::claim::Claim;
use super::context::Context;
use super::error::{self, Error};
use super::memory::Removed;
use super::outputs::{self, Current};
use super::plan::{self, Undo};
use super::reconcile::Next;
use super::record::{self, Found, Stored};
use super::report::{self, Report, Severity};
use super::resolve::ClassLookup;
use super::{adopt, mark, resolve};
use crate::provisioner::{Mode, Provisioner, Removal};

/// How long a large removal waits for its next turn when others are at theirs.
const TURN: Duration = Duration::from_secs(1);

/// Removes everything that was made for a deleted claim, then lets it go.
///
/// # Errors
/// Whatever could not be removed; the finalizer stays and the removal is tried again.
pub(crate) async fn remove<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let note = match ctx.memory.removed(&claim.id) {
        // The cache is behind: it shows a claim that was let go.
        Some(Removed::Everything) => return Ok(Next::Rest),
        // Only the finalizer could not be taken off.
        Some(Removed::AllButFinalizer(note)) => note,
        None => match remove_all(ctx, claim, class).await? {
            Cleared::All { note } => note,
            Cleared::NotYet(next) => return Ok(next),
        },
    };
    ctx.memory.note_removed(&claim.id, Removed::AllButFinalizer(note.clone()));
    mark::release(ctx, claim).await?;
    ctx.memory.note_removed(&claim.id, Removed::Everything);
    tracing::info!(reason = error::REMOVED, "{note}");
    report::event(ctx, &claim.id, Severity::Normal, error::REMOVED, &note).await;
    Ok(Next::Rest)
}

/// How far [`remove_all`] came.
enum Cleared {
    /// Nothing is left but the claim's finalizer; the note says what there was.
    All { note: String },
    /// There is more to do.
    NotYet(Next),
}

/// Removes everything but the claim's finalizer.
async fn remove_all<P: Provisioner>(ctx: &Context<P>, claim: &Claim, class: &ClassLookup) -> Result<Cleared, Error> {
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
    let Some(stored) = stored else {
        delete_outputs(ctx, claim).await?;
        return Ok(Cleared::All { note: "nothing is recorded of the claim; there was nothing to remove".to_owned() });
    };
    Ok(match undo(ctx, claim, &stored).await? {
        Undone::Partly(next) => Cleared::NotYet(next),
        Undone::Fully(undo) => {
            if let Some(note) = adopt::unknown_origin(&stored, class, provisioner_name) {
                left_in_place(ctx, claim, &note).await;
            }
            Cleared::All { note: said(&stored, undo) }
        }
    })
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
    /// A piece of a long removal is done; this is when the next follows.
    Partly(Next),
    /// Nothing is left.
    Fully(Undo),
}

/// Undoes one record: in the store first, then outputs, then the record itself.
///
/// # Errors
/// Whatever could not be removed. Nothing that comes later in the order is touched then.
pub(crate) async fn undo<P: Provisioner>(ctx: &Context<P>, claim: &Claim, stored: &Stored) -> Result<Undone, Error> {
    let record = &stored.record;
    // Large removals leave most workers to others.
    let _turn = match ctx.memory.removed_objects(&claim.id, 0) {
        0 => None,
        _ => match ctx.large_removals.try_acquire() {
            Ok(turn) => Some(turn),
            Err(_all_taken) => return Ok(Undone::Partly(Next::After(TURN))),
        },
    };
    let owner = resolve::owner(ctx, record).await.map_err(|error| match error {
        Error::OwnerSecretNotFound(secret) => Error::OwnerSecretNeeded { secret, bucket: record.plan.bucket.clone() },
        error => error,
    })?;
    let handed_over = stored.bound || keys_were_out(ctx, claim).await?;
    let undo = plan::undo(record, handed_over);
    let removal = match undo {
        Undo::Revoke => ctx.provisioner.revoke(record, &owner).await,
        Undo::Delete => ctx.provisioner.delete(record, &owner).await,
    };
    match removal.map_err(Error::store)? {
        Removal::Partial { removed } => {
            let so_far = ctx.memory.removed_objects(&claim.id, removed);
            report::tell(ctx, claim, &Report::purging(claim, &record.plan.bucket, so_far)).await?;
            return Ok(Undone::Partly(Next::Now));
        }
        Removal::Done { left } => {
            if let Some(rest) = plan::settles_in(stored.bound, ctx.memory.quiet(&claim.id)) {
                report::tell(ctx, claim, &Report::settling(claim)).await?;
                return Ok(Undone::Partly(Next::After(rest)));
            }
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

/// Whether somebody may have used the bucket of a claim that is not bound yet: its keys were in its Secret.
async fn keys_were_out<P>(ctx: &Context<P>, claim: &Claim) -> Result<bool, Error> {
    match outputs::read(&ctx.secrets_in(&claim.id.namespace), &claim.id).await {
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
