//! The way back, driven by the record alone: store, outputs, record; the claim's finalizer goes last. Looks,
//! then takes the steps that `steps.rs` gives, one after the other.

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
use super::steps::{self, Emptied, Purpose, Unmake, Unmaking};
use super::{adopt, mark, resolve};
use crate::provisioner::{FailureClass, Mode, Provisioner, Removal};

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
    let removal = match ctx.memory.removed(&claim.id) {
        // The cache is behind: it shows a claim that was let go.
        Some(Removed::Everything) => return Ok(Next::Rest),
        // Only the finalizer could not be taken off.
        Some(Removed::AllButFinalizer(note)) => Removing::finalizer_only(ctx, claim, note),
        None => match Removing::begin(ctx, claim, class).await? {
            Some(removal) => removal,
            // The cache is behind: the claim itself is gone.
            None => return Ok(Next::Rest),
        },
    };
    removal.run().await
}

/// Removes what was begun by a plan that does not hold any more, so that the claim can be planned anew.
///
/// # Errors
/// As [`remove`].
pub(crate) async fn undo_first<P: Provisioner>(ctx: &Context<P>, claim: &Claim, stored: Stored) -> Result<Next, Error> {
    Removing::of_record(ctx, claim, stored, Purpose::Replan).await?.run().await
}

/// Removes what was made for a claim that is gone, though its finalizer should have held it.
///
/// # Errors
/// As [`remove`].
pub(crate) async fn remove_orphan<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    stored: Stored,
) -> Result<Next, Error> {
    Removing::of_record(ctx, claim, stored, Purpose::Orphan).await?.run().await
}

/// One attempt at a removal: what was seen, and what was done since.
struct Removing<'a, P> {
    ctx: &'a Context<P>,
    claim: &'a Claim,
    stored: Option<Stored>,
    seen: Unmaking,
    /// What is to be said in the end, of the bucket and of what was left in place.
    note: String,
    left: Vec<String>,
    /// The store did not show all that is recorded.
    missing: bool,
}

impl<'a, P: Provisioner> Removing<'a, P> {
    /// `None` if there is nothing to remove, for the claim itself is gone.
    async fn begin(ctx: &'a Context<P>, claim: &'a Claim, class: &ClassLookup) -> Result<Option<Self>, Error> {
        let provisioner_name = &ctx.options.provisioner_name;
        let stored = match record::find(&ctx.records(), claim).await? {
            Found::Mine(stored) => Some(adopt::adopt(&ctx.provisioner, provisioner_name, class, *stored)?),
            // What is not recorded has mostly been removed: by a run that the cache, and after a restart the
            // memory, knows nothing of.
            Found::None { .. } if is_gone(ctx, claim).await? => return Ok(None),
            Found::None { free_name } if claim.was_bound() => {
                let lost = adopt::reconstruct(&ctx.provisioner, provisioner_name, class, claim, free_name);
                if lost.is_none() {
                    left_in_place(ctx, claim, &adopt::lost(claim)).await;
                }
                lost
            }
            Found::None { .. } => {
                begun_by_go_provisioner(ctx, claim).await?;
                None
            }
        };
        let Some(stored) = stored else {
            let nothing = "nothing is recorded of the claim; there was nothing to remove".to_owned();
            return Ok(Some(Self::new(ctx, claim, nothing)));
        };
        let unknown = adopt::unknown_origin(&stored, class, provisioner_name);
        let mut removing = Self::of_record(ctx, claim, stored, Purpose::Release).await?;
        removing.left.extend(unknown);
        Ok(Some(removing))
    }

    async fn of_record(ctx: &'a Context<P>, claim: &'a Claim, stored: Stored, purpose: Purpose) -> Result<Self, Error> {
        let handed_over = stored.bound || keys_were_out(ctx, claim).await?;
        let undo = plan::undo(&stored.record, handed_over);
        let mut removing = Self::new(ctx, claim, said(&stored, undo));
        removing.seen.recorded = Some(undo);
        removing.seen.purpose = purpose;
        removing.stored = Some(stored);
        Ok(removing)
    }

    fn finalizer_only(ctx: &'a Context<P>, claim: &'a Claim, note: String) -> Self {
        let mut removing = Self::new(ctx, claim, note);
        removing.seen.outputs_gone = true;
        removing
    }

    fn new(ctx: &'a Context<P>, claim: &'a Claim, note: String) -> Self {
        let seen = Unmaking {
            recorded: None,
            store: Emptied::NotAsked,
            settled: false,
            outputs_gone: false,
            purpose: Purpose::Release,
        };
        Self { ctx, claim, stored: None, seen, note, left: Vec::new(), missing: false }
    }

    async fn run(mut self) -> Result<Next, Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        loop {
            match steps::unmake(&self.seen) {
                Unmake::Undo(undo) => {
                    if let Some(next) = self.undo(undo).await? {
                        return Ok(next);
                    }
                }
                Unmake::Yield => return Ok(Next::Now),
                Unmake::Settle => {
                    report::tell(ctx, claim, &Report::settling(claim)).await?;
                    return Ok(Next::After(self.settles_in().unwrap_or_default()));
                }
                Unmake::DeleteOutputs => {
                    delete_outputs(ctx, claim).await?;
                    self.seen.outputs_gone = true;
                }
                Unmake::DeleteRecord => {
                    record::delete(&ctx.records(), self.stored()?).await?;
                    self.seen.recorded = None;
                }
                Unmake::Release => return self.release().await,
                Unmake::Rest => {
                    self.tell_removed().await;
                    ctx.memory.forget(&claim.id.uid);
                    return Ok(Next::Rest);
                }
                // Not at once: somebody else's finalizer may hold the record.
                Unmake::Replan => return Ok(Next::After(ctx.memory.failed(&claim.id, FailureClass::Retryable))),
            }
        }
    }

    fn stored(&self) -> Result<&Stored, Error> {
        self.stored.as_ref().ok_or(Error::OutOfStep("what is undone is recorded"))
    }

    fn settles_in(&self) -> Option<Duration> {
        let bound = self.stored.as_ref().is_some_and(|stored| stored.bound);
        plan::settles_in(bound, self.missing, self.ctx.memory.quiet(&self.claim.id))
    }

    /// Has the store undo the record. `Some`: others go first.
    async fn undo(&mut self, undo: Undo) -> Result<Option<Next>, Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        let record = &self.stored()?.record;
        // Large removals leave most workers to others.
        let _turn = match ctx.memory.removed_objects(&claim.id, 0) {
            0 => None,
            _ => match ctx.large_removals.try_acquire() {
                Ok(turn) => Some(turn),
                Err(_all_taken) => return Ok(Some(Next::After(TURN))),
            },
        };
        let owner = resolve::owner(ctx, record).await.map_err(|error| match error {
            Error::OwnerSecretNotFound(secret) => {
                Error::OwnerSecretNeeded { secret, bucket: record.plan.bucket.clone() }
            }
            error => error,
        })?;
        let removal = match undo {
            Undo::Revoke => ctx.provisioner.revoke(record, &owner.credentials).await,
            Undo::Delete => ctx.provisioner.delete(record, &owner.credentials).await,
        };
        match removal.map_err(Error::store)? {
            Removal::Partial { removed } => {
                let so_far = ctx.memory.removed_objects(&claim.id, removed);
                report::tell(ctx, claim, &Report::purging(claim, &record.plan.bucket, so_far)).await?;
                self.seen.store = Emptied::Partly;
            }
            Removal::Done { left, missing } => {
                self.seen.store = Emptied::Fully;
                self.missing = missing;
                self.seen.settled = self.settles_in().is_none();
                if self.seen.settled {
                    for note in left.iter().chain(&self.left) {
                        left_in_place(ctx, claim, note).await;
                    }
                }
            }
        }
        Ok(None)
    }

    async fn release(self) -> Result<Next, Error> {
        let Self { ctx, claim, ref note, .. } = self;
        ctx.memory.note_removed(&claim.id, Removed::AllButFinalizer(note.clone()));
        mark::release(ctx, claim).await?;
        ctx.memory.note_removed(&claim.id, Removed::Everything);
        self.tell_removed().await;
        Ok(Next::Rest)
    }

    async fn tell_removed(&self) {
        tracing::info!(reason = error::REMOVED, claim = %self.claim.id, "{}", self.note);
        report::event(self.ctx, &self.claim.id, Severity::Normal, error::REMOVED, &self.note).await;
    }
}

/// Whether the claim is gone, be there another of its name or not: asks the cluster itself.
pub(crate) async fn is_gone<P>(ctx: &Context<P>, claim: &Claim) -> Result<bool, Error> {
    let found = ctx.claims_in(&claim.id.namespace).get_metadata_opt(&claim.id.name).await;
    let found = found.map_err(Error::kubernetes("read the claim"))?;
    Ok(found.is_none_or(|found| found.metadata.uid.as_ref() != Some(&claim.id.uid)))
}

/// What was removed, and what was not, in a sentence.
pub(crate) fn said(stored: &Stored, undo: Undo) -> String {
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

/// Tells of a bucket that only a ConfigMap names, which goes with the claim.
async fn begun_by_go_provisioner<P>(ctx: &Context<P>, claim: &Claim) -> Result<(), Error> {
    let config_map = match outputs::read(&ctx.config_maps_in(&claim.id.namespace), &claim.id).await {
        Err(Error::OutputExists { .. }) => return Ok(()),
        answer => answer?,
    };
    if let Some(bucket) = adopt::begun_bucket(&config_map) {
        left_in_place(ctx, claim, &adopt::begun(bucket)).await;
    }
    Ok(())
}

pub(super) async fn left_in_place<P>(ctx: &Context<P>, claim: &Claim, note: &str) {
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
    let (secret, config_map) = ctx.caches.output_uids(&claim.id);
    tokio::try_join!(
        outputs::delete(&secrets, &claim.id, secret),
        outputs::delete(&config_maps, &claim.id, config_map),
    )?;
    Ok(())
}
