//! Removal, from the record alone: store, outputs, record, and last the claim's finalizer. Reads, then takes the steps
//! that `decide/teardown.rs` gives, one after the other.

use std::pin::pin;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::next::Next;
use super::orphans::released;
use super::{step, takeover};
use crate::api::wire;
use crate::decide::action::{self, Action};
use crate::decide::claim::{self, Claim};
use crate::decide::class::ClassLookup;
use crate::decide::lookup::Found;
use crate::decide::output_data::PreviousOwner;
use crate::decide::plan::{self, Surroundings};
use crate::decide::record::{self, Stored};
use crate::decide::release::{Release, Retained};
use crate::decide::report::{Report, Severity};
use crate::decide::request::Labels;
use crate::decide::teardown::{self, Purpose, StoreProgress, TeardownState, TeardownStep, Undo, closing_message};
use crate::decide::{backoff, codec, legacy};
use crate::error::{Error, RecordProblem};
use crate::objects::{claims, crds, events, outputs, record_lookup, records, status};
use crate::reasons;
use crate::state::context::Context;
use crate::state::memory::RemovalProgress;
use crate::store::{AccessRemoval, BucketRemoval, FailureClass, Provisioner, Removal};
use operator_runtime::observe::spans;

pub(super) const NOTHING_TO_UNDO: Error = Error::OutOfStep("there is no ObjectBucket to undo");

/// Removes everything that was created for a deleted claim, then its finalizer.
///
/// # Errors
/// Anything that could not be removed; the finalizer stays and the removal is retried.
pub(crate) async fn remove<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let progress = ctx.memory.get(&claim.id, |m| m.removal.as_deref().cloned());
    // Before anything is read: there can be thousands of claims that wait for an admin's decision.
    if progress.is_none() && !is_forgotten(ctx, claim) {
        crds::may_remove(ctx).await?;
    }
    let teardown = match progress {
        // The cache still shows the claim, but it no longer exists.
        Some(RemovalProgress::Everything) => return Ok(Next::Done),
        // Only the finalizer is left.
        Some(RemovalProgress::AllButFinalizer(note)) => Teardown::finalizer_only(ctx, claim, note),
        None => match step::traced(spans::step(&step::Look), pin!(Teardown::begin(ctx, claim, class))).await? {
            Some(teardown) => teardown,
            // The cache still shows the claim, but it no longer exists.
            None => return Ok(Next::Done),
        },
    };
    teardown.run().await
}

/// Removes what an outdated plan created, so that the claim can be planned again.
///
/// # Errors
/// As [`remove`].
pub(crate) async fn undo_first<P: Provisioner>(ctx: &Context<P>, claim: &Claim, stored: Stored) -> Result<Next, Error> {
    Teardown::of_record(ctx, claim, stored, Purpose::Replan).run().await
}

/// Removes what was created for a deleted claim, as an admin requested or as it is due. `retain`: why the ObjectBucket
/// stays.
///
/// # Errors
/// As [`remove`].
pub(crate) async fn remove_orphan<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    stored: Stored,
    undo: Undo,
    retain: Option<Retained>,
) -> Result<Next, Error> {
    let mut teardown = Teardown::undoing(ctx, claim, stored, undo, Purpose::Orphan);
    teardown.retain = retain;
    teardown.run().await
}

/// Whether an admin has requested that everything in the store is kept.
fn is_forgotten<P>(ctx: &Context<P>, claim: &Claim) -> bool {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster);
    stored.is_some_and(|stored| stored.action == Some(Action::Forget))
}

/// The state of one attempt at a removal.
pub(super) struct Teardown<'a, P> {
    pub(super) ctx: &'a Context<P>,
    pub(super) claim: &'a Claim,
    pub(super) stored: Option<Stored>,
    pub(super) seen: TeardownState,
    /// The closing message.
    pub(super) note: String,
    /// What was left in place, and why.
    pub(super) left: Vec<String>,
    /// The store did not show everything that is recorded.
    pub(super) missing: bool,
    /// Why the ObjectBucket outlives its claim.
    pub(super) retain: Option<Retained>,
}

impl<'a, P: Provisioner> Teardown<'a, P> {
    /// `None` if the claim no longer exists, so there is nothing to remove.
    async fn begin(ctx: &'a Context<P>, claim: &'a Claim, class: &ClassLookup) -> Result<Option<Self>, Error> {
        let provisioner_name = ctx.options.provisioner_name.as_str();
        let (cluster, labels, provisioner) = (&ctx.cluster, &Labels::new(), ctx.provisioner.as_ref());
        let creators = &|name: &str| ctx.creator(&claim.id.namespace, name);
        let surroundings = Surroundings { provisioner, provisioner_name, cluster, class, labels, creators };
        let mut left = Vec::new();
        let stored = match record_lookup::find(ctx, claim).await? {
            Found::Owned(stored) if stored.action == Some(Action::Forget) => {
                return Ok(Some(Self::forgetting(ctx, claim, &stored.name)));
            }
            Found::Owned(stored) => {
                let stored = takeover::complete(ctx, claim, *stored).await?;
                left.extend(legacy::unknown_origin_note(&stored, class, provisioner_name));
                // An earlier attempt has undone it; perhaps the cache does not show yet that the claim no longer exists.
                if let Some(release) = stored.release.clone() {
                    if claims::is_gone(ctx, claim).await? {
                        return Ok(None);
                    }
                    return Ok(Some(Self::released(ctx, claim, &stored, &release)));
                }
                Some(stored)
            }
            Found::Damaged { object, .. } if action::action(&object) == Ok(Some(Action::Forget)) => {
                return Ok(Some(Self::forgetting(ctx, claim, &record::name(&object))));
            }
            Found::Damaged { object, error } => {
                let record = plan::whole(&surroundings, claim, &object, &error)?;
                Some(codec::stored(&object, record))
            }
            // If there is no record, an earlier attempt has mostly removed everything, and the cache does not show yet
            // that the claim no longer exists.
            _ if claims::is_gone(ctx, claim).await? => return Ok(None),
            Found::ToAdopt(previous) => {
                left.push(legacy::not_adopted_note(&previous.name));
                None
            }
            found => {
                let (name, previous) = match found {
                    Found::None { free_name } => (free_name, None),
                    Found::Restored(RecordProblem::Predecessor { record }) => {
                        (record::names(&claim.id).1, Some(record))
                    }
                    _ => (record::names(&claim.id).1, None),
                };
                left.extend(previous.as_deref().map(legacy::not_adopted_note));
                let lost = claim.was_bound().then(|| legacy::reconstruct(&surroundings, claim, name)).flatten();
                // Nothing was created for a restored claim.
                left.extend(lost.as_ref().filter(|_| left.is_empty()).and_then(legacy::not_recorded_note));
                match (&lost, claim.was_bound()) {
                    (None, true) if left.is_empty() => left.push(legacy::lost_note(claim)),
                    (None, false) => report_unfinished_bucket(ctx, claim).await?,
                    _ => {}
                }
                lost
            }
        };
        let mut teardown = match stored {
            Some(stored) => Self::of_record(ctx, claim, stored, Purpose::Release),
            None => {
                for note in &left {
                    events::left_in_place(ctx, &claim.id, note).await;
                }
                let nothing = "the claim has no ObjectBucket, so there was nothing to delete".to_owned();
                return Ok(Some(Self::new(ctx, claim, nothing)));
            }
        };
        teardown.left = left;
        Ok(Some(teardown))
    }

    fn of_record(ctx: &'a Context<P>, claim: &'a Claim, stored: Stored, purpose: Purpose) -> Self {
        let undo = teardown::undo(&stored);
        // If a claim and its ObjectBucket differ, only the label proves which bucket is the claim's. An empty one harms
        // nobody.
        let differs = stored.published() && !stored.labelled && claim::other_bucket(claim, &stored.record).is_some();
        if differs && undo != Undo::Revoke {
            let mut teardown = Self::undoing(ctx, claim, stored, Undo::Revoke, purpose);
            teardown.retain = Some(Retained::BucketConflict);
            return teardown;
        }
        Self::undoing(ctx, claim, stored, undo, purpose)
    }

    /// Everything is undone, and the ObjectBucket stays.
    fn released(ctx: &'a Context<P>, claim: &'a Claim, stored: &Stored, release: &Release) -> Self {
        let bucket = if release.why == Retained::NotEmpty { BucketRemoval::NotEmpty } else { BucketRemoval::Kept };
        let removed = Removal { access: AccessRemoval::Deleted, bucket };
        let note = closing_message(stored, teardown::undo(stored), &removed, Some(&release.why));
        Self::new(ctx, claim, note)
    }

    /// An admin wants to keep everything in the store. The record is deleted as an orphan after the claim: if it were
    /// deleted first and the operator crashed, the next attempt would not know what the admin wants.
    fn forgetting(ctx: &'a Context<P>, claim: &'a Claim, record: &str) -> Self {
        let note =
            format!("the bucket and the access to it are kept, as the annotation of ObjectBucket {record:?} requests");
        Self::new(ctx, claim, note)
    }

    fn undoing(ctx: &'a Context<P>, claim: &'a Claim, stored: Stored, undo: Undo, purpose: Purpose) -> Self {
        let mut teardown = Self::new(ctx, claim, String::new());
        teardown.seen.recorded = Some(undo);
        teardown.seen.purpose = purpose;
        teardown.stored = Some(stored);
        teardown
    }

    fn finalizer_only(ctx: &'a Context<P>, claim: &'a Claim, note: String) -> Self {
        let mut teardown = Self::new(ctx, claim, note);
        teardown.seen.outputs_gone = true;
        teardown
    }

    fn new(ctx: &'a Context<P>, claim: &'a Claim, note: String) -> Self {
        let seen = TeardownState {
            recorded: None,
            store: StoreProgress::NotAsked,
            settled: false,
            retained: false,
            outputs_gone: false,
            purpose: Purpose::Release,
        };
        Self { ctx, claim, stored: None, seen, note, left: Vec::new(), missing: false, retain: None }
    }

    async fn run(mut self) -> Result<Next, Error> {
        loop {
            let step = teardown::next_teardown_step(&self.seen);
            if let Some(next) = step::traced(spans::step(&step), pin!(self.take(step))).await? {
                return Ok(next);
            }
        }
    }

    /// Takes one step. `Some`: the attempt is over for now.
    async fn take(&mut self, step: TeardownStep) -> Result<Option<Next>, Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        match step {
            TeardownStep::Undo(undo) => self.undo(undo).await?,
            TeardownStep::Yield => return Ok(Some(Next::Now)),
            TeardownStep::Settle => {
                status::update_status(ctx, claim, &Report::settling(claim)).await?;
                return Ok(Some(Next::After(self.settles_in().unwrap_or_default())));
            }
            TeardownStep::DeleteOutputs => {
                self.delete_outputs().await?;
                self.seen.outputs_gone = true;
            }
            TeardownStep::Retain => {
                let why = self.retain.clone().ok_or(Error::OutOfStep("there is no reason to keep the ObjectBucket"))?;
                let stored = self.stored.as_mut().ok_or(NOTHING_TO_UNDO)?;
                let release = Release { at: Timestamp::now(), why, deleting: false };
                records::release(ctx, stored, release.clone()).await?;
                // Known while the claim still exists, however long that is.
                ctx.orphans.scheduled(&stored.name, release.delete_at());
                released::report(ctx, stored, &release).await?;
                self.seen.recorded = None;
            }
            TeardownStep::DeleteRecord => {
                let stored = self.stored()?;
                if self.seen.purpose != Purpose::Orphan {
                    records::delete(ctx, &stored.name, stored.uid.as_deref()).await?;
                } else if !records::delete_orphan(ctx, stored).await? {
                    return Ok(Some(Next::Now));
                }
                self.seen.recorded = None;
            }
            TeardownStep::Release => return self.release().await.map(Some),
            TeardownStep::Done => {
                self.report_removal().await;
                ctx.memory.forget(&claim.id.uid);
                return Ok(Some(Next::Done));
            }
            // Not at once, because another finalizer may still hold the record.
            TeardownStep::Replan => {
                let wait = ctx.memory.entry(&claim.id, |m| m.waits.failed(FailureClass::Retryable));
                return Ok(Some(Next::After(wait)));
            }
        }
        Ok(None)
    }

    pub(super) fn stored(&self) -> Result<&Stored, Error> {
        self.stored.as_ref().ok_or(NOTHING_TO_UNDO)
    }

    pub(super) fn settles_in(&self) -> Option<Duration> {
        let lag = self.stored.as_ref().map(|stored| self.ctx.provisioner.consistency_lag(&stored.record));
        backoff::settles_in(self.missing, self.ctx.memory.since_last_change(&self.claim.id), lag.unwrap_or_default())
    }

    async fn delete_outputs(&self) -> Result<(), Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        let (secrets, config_maps) = (ctx.secrets_in(&claim.id.namespace), ctx.config_maps_in(&claim.id.namespace));
        let (secret, config_map) = ctx.caches.output_uids(&claim.id);
        // Restored outputs of an orphan belong to nobody, and another claim may adopt them.
        let previous_owner = self.stored.as_ref().filter(|_| !claim.is_gone());
        let previous_owner =
            previous_owner.and_then(|stored| PreviousOwner::of(&stored.record, stored.is_being_adopted(), &ctx.label));
        tokio::try_join!(
            outputs::delete(&secrets, &ctx.field_manager, &claim.id, secret, previous_owner),
            outputs::delete(&config_maps, &ctx.field_manager, &claim.id, config_map, previous_owner),
        )?;
        Ok(())
    }

    async fn release(&self) -> Result<Next, Error> {
        let Self { ctx, claim, note, .. } = self;
        ctx.memory.entry(&claim.id, |m| m.removal = Some(Box::new(RemovalProgress::AllButFinalizer(note.clone()))));
        // Others' finalizers keep it, and its status reports the result.
        if claim.finalizers.iter().any(|finalizer| finalizer != wire::FINALIZER) {
            status::update_status(ctx, claim, &Report::removed(claim, note)).await?;
        }
        claims::remove_finalizer(ctx, claim).await?;
        ctx.memory.entry(&claim.id, |m| m.removal = Some(Box::new(RemovalProgress::Everything)));
        self.report_removal().await;
        Ok(Next::Done)
    }

    async fn report_removal(&self) {
        tracing::info!(reason = reasons::REMOVED, claim = %self.claim.id, "{}", self.note);
        events::event(self.ctx, &self.claim.id, Severity::Normal, reasons::REMOVED, &self.note).await;
    }
}

/// Reports a bucket that is named only in a ConfigMap, because the ConfigMap is deleted with the claim.
async fn report_unfinished_bucket<P>(ctx: &Context<P>, claim: &Claim) -> Result<(), Error> {
    let config_map = outputs::read_own(&ctx.config_maps_in(&claim.id.namespace), &claim.id).await?;
    if let Some(bucket) = config_map.as_ref().and_then(legacy::unfinished_bucket) {
        events::left_in_place(ctx, &claim.id, &legacy::unfinished_note(bucket)).await;
    }
    Ok(())
}
