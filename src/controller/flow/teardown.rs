//! Removal, from the record alone: store, outputs, record; the claim's finalizer goes last. Reads, then takes the steps
//! that `decide/teardown.rs` gives, one after the other.

use std::pin::pin;
use std::time::Duration;

use super::next::Next;
use super::{owner, step};
use crate::controller::decide::claim::Claim;
use crate::controller::decide::class::ClassLookup;
use crate::controller::decide::lookup::Found;
use crate::controller::decide::orphan::{self, Action};
use crate::controller::decide::output_data::{self, Heir};
use crate::controller::decide::plan::{self, Surroundings};
use crate::controller::decide::record::{self, Stored};
use crate::controller::decide::report::{Report, Severity};
use crate::controller::decide::teardown::{
    self, Purpose, StoreProgress, TeardownState, TeardownStep, Undo, closing_message, shares_bucket,
};
use crate::controller::decide::{backoff, codec, legacy};
use crate::controller::error::{Error, RecordProblem};
use crate::controller::objects::{claims, events, outputs, records, status};
use crate::controller::reasons;
use crate::controller::state::context::Context;
use crate::controller::state::memory::{ClaimMemory, RemovalProgress};
use crate::observe::spans;
use crate::provisioner::{AppCredentials, FailureClass, Fate, Provisioner, Removal, Removed};

/// How long a large removal waits while too many others run.
const TURN: Duration = Duration::from_secs(1);

/// Removes everything that was created for a deleted claim, then its finalizer.
///
/// # Errors
/// Anything that could not be removed; the finalizer stays and the removal is retried.
pub(crate) async fn remove<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    class: &ClassLookup,
) -> Result<Next, Error> {
    let teardown = match ctx.memory.if_known(&claim.id, |m| m.removal.as_deref().cloned()) {
        // The cache still shows the claim, but it is gone.
        Some(RemovalProgress::Everything) => return Ok(Next::Done),
        // Only the finalizer is left.
        Some(RemovalProgress::AllButFinalizer(note)) => Teardown::finalizer_only(ctx, claim, note),
        None => match step::traced(spans::step(&step::Look), pin!(Teardown::begin(ctx, claim, class))).await? {
            Some(teardown) => teardown,
            // The cache still shows the claim, but it is gone.
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
    Teardown::of_record(ctx, claim, stored, Purpose::Replan).await?.run().await
}

/// Removes what was created for a claim that is gone, as an admin requested.
///
/// # Errors
/// As [`remove`].
pub(crate) async fn remove_orphan<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    stored: Stored,
    undo: Undo,
) -> Result<Next, Error> {
    Teardown::undoing(ctx, claim, stored, undo, Purpose::Orphan).run().await
}

/// The state of one attempt at a removal.
struct Teardown<'a, P> {
    ctx: &'a Context<P>,
    claim: &'a Claim,
    stored: Option<Stored>,
    seen: TeardownState,
    /// The closing message.
    note: String,
    /// What was left in place, and why.
    left: Vec<String>,
    /// The store did not show everything that is recorded.
    missing: bool,
}

impl<'a, P: Provisioner> Teardown<'a, P> {
    /// `None` if the claim is gone, so there is nothing to remove.
    async fn begin(ctx: &'a Context<P>, claim: &'a Claim, class: &ClassLookup) -> Result<Option<Self>, Error> {
        let provisioner_name = ctx.options.provisioner_name.as_str();
        let surroundings =
            Surroundings { provisioner: &ctx.provisioner, provisioner_name, cluster: &ctx.cluster, class };
        let mut left = Vec::new();
        let stored = match records::find(ctx, claim).await? {
            Found::Mine(stored) if stored.action == Some(Action::Forget) => {
                return Ok(Some(Self::forgetting(ctx, claim, &stored.name)));
            }
            Found::Mine(stored) => {
                let stored = legacy::complete(&ctx.provisioner, provisioner_name, class, claim, *stored)?;
                left.extend(legacy::unknown_origin_note(&stored, class, provisioner_name));
                Some(stored)
            }
            Found::Damaged { object, .. } if orphan::action(&object) == Ok(Some(Action::Forget)) => {
                return Ok(Some(Self::forgetting(ctx, claim, &record::name(&object))));
            }
            Found::Damaged { object, error } => {
                let record = plan::whole(&surroundings, claim, &object, &error)?;
                Some(codec::stored(&object, record))
            }
            // If there is no record, an earlier attempt has mostly removed everything, and the cache does not show yet
            // that the claim is gone.
            _ if claims::is_gone(ctx, claim).await? => return Ok(None),
            Found::ToAdopt(former) => {
                left.push(legacy::not_adopted_note(&former.name));
                None
            }
            found => {
                let (name, former) = match found {
                    Found::None { free_name } => (free_name, None),
                    Found::Restored(RecordProblem::Former { record }) => (record::names(&claim.id).1, Some(record)),
                    _ => (record::names(&claim.id).1, None),
                };
                left.extend(former.as_deref().map(legacy::not_adopted_note));
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
            Some(stored) => Self::of_record(ctx, claim, stored, Purpose::Release).await?,
            None => {
                for note in &left {
                    events::left_in_place(ctx, &claim.id, note).await;
                }
                let nothing = "the claim has no ObjectBucket, so there was nothing to remove".to_owned();
                return Ok(Some(Self::new(ctx, claim, nothing)));
            }
        };
        teardown.left = left;
        Ok(Some(teardown))
    }

    async fn of_record(ctx: &'a Context<P>, claim: &'a Claim, stored: Stored, purpose: Purpose) -> Result<Self, Error> {
        if stored.is_reconstructed() {
            return Ok(Self::undoing(ctx, claim, stored, Undo::Revoke, purpose));
        }
        let handed_over = stored.bound() || keys_were_out(ctx, claim).await?;
        let undo = teardown::undo(&stored.record, handed_over);
        Ok(Self::undoing(ctx, claim, stored, undo, purpose))
    }

    /// An admin wants to keep everything in the store. The record is deleted as an orphan after the claim is gone: if it
    /// went first and the operator crashed, the next attempt would not know what the admin wants.
    fn forgetting(ctx: &'a Context<P>, claim: &'a Claim, record: &str) -> Self {
        let note = format!(
            "the bucket and the access to it are left as they are, as the annotation of ObjectBucket {record:?} requests"
        );
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
            outputs_gone: false,
            purpose: Purpose::Release,
        };
        Self { ctx, claim, stored: None, seen, note, left: Vec::new(), missing: false }
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
            TeardownStep::Undo(undo) => return self.undo(undo).await,
            TeardownStep::Yield => return Ok(Some(Next::Now)),
            TeardownStep::Settle => {
                status::update_status(ctx, claim, &Report::settling(claim)).await?;
                return Ok(Some(Next::After(self.settles_in().unwrap_or_default())));
            }
            TeardownStep::DeleteOutputs => {
                self.delete_outputs().await?;
                self.seen.outputs_gone = true;
            }
            TeardownStep::DeleteRecord => {
                let Stored { name, uid, .. } = self.stored()?;
                records::delete(&ctx.records(), name, uid.as_deref()).await?;
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
                let wait = ctx.memory.with(&claim.id, |m| m.waits.failed(FailureClass::Retryable));
                return Ok(Some(Next::After(wait)));
            }
        }
        Ok(None)
    }

    fn stored(&self) -> Result<&Stored, Error> {
        self.stored.as_ref().ok_or(Error::OutOfStep("there is no record to undo"))
    }

    fn settles_in(&self) -> Option<Duration> {
        let bound = self.stored.as_ref().is_some_and(Stored::bound);
        backoff::settles_in(bound, self.missing, self.ctx.memory.quiet(&self.claim.id))
    }

    /// Has the store undo the record. `Some`: other removals go first.
    async fn undo(&mut self, undo: Undo) -> Result<Option<Next>, Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        let record = &self.stored()?.record;
        // Only a few workers empty large buckets at the same time.
        let _turn = match ctx.memory.with(&claim.id, |m| m.removed_objects(0)) {
            0 => None,
            _ => match ctx.large_removals.try_acquire() {
                Ok(turn) => Some(turn),
                Err(_all_taken) => {
                    ctx.memory.with(&claim.id, ClaimMemory::waits_for_turn);
                    return Ok(Some(Next::After(TURN)));
                }
            },
        };
        let in_use = undo == Undo::Delete && self.is_in_use().await?;
        let (owner, present) =
            tokio::try_join!(owner::of_record(ctx, record), present_keys(ctx, claim)).map_err(|error| match error {
                Error::OwnerSecretNotFound(secret) => {
                    Error::OwnerSecretNeeded { secret, bucket: record.plan.bucket.clone() }
                }
                error => error,
            })?;
        let removal = match undo {
            // The access is removed even if the bucket is in use.
            Undo::Delete if !in_use => {
                ctx.asking(record, Box::pin(ctx.provisioner.delete(record, &owner.credentials, present.as_ref()))).await
            }
            Undo::Delete | Undo::Revoke => {
                ctx.asking(record, Box::pin(ctx.provisioner.revoke(record, &owner.credentials, present.as_ref()))).await
            }
        };
        match removal? {
            Removal::Partial { removed } => {
                // The store removes the access before the bucket.
                ctx.memory.with(&claim.id, |m| m.access_gone = true);
                let so_far = ctx.memory.with(&claim.id, |m| m.purges(removed));
                status::update_status(ctx, claim, &Report::purging(claim, &record.plan.bucket, so_far)).await?;
                self.seen.store = StoreProgress::Partly;
            }
            Removal::Done(removed) => {
                let gone_before = ctx.memory.if_known(&claim.id, |m| m.access_gone);
                if in_use {
                    if removed.access == Fate::Removed {
                        ctx.memory.with(&claim.id, |m| m.access_gone = true);
                    }
                    return Err(Error::BucketInUse { bucket: record.plan.bucket.clone() });
                }
                let note = closing_message(self.stored()?, undo, &removed, gone_before);
                self.conclude(removed, note).await;
            }
        }
        Ok(None)
    }

    /// Whether another record names the bucket, which may then be in use.
    async fn is_in_use(&self) -> Result<bool, Error> {
        let (ctx, stored) = (self.ctx, self.stored()?);
        // Before the caches are read, so that a record that goes from now on wakes the claim.
        ctx.memory.wait_for_bucket(&self.claim.id, Some(&stored.record.plan.bucket));
        for name in ctx.caches.records.others_with_bucket(&stored.record.plan.bucket, &stored.name) {
            let Some(object) = records::read_candidate(ctx, name.clone()).await?.object else { continue };
            match object.and_then(|object| codec::read(&object).map_err(|problem| problem.to_string())) {
                Ok(other) if shares_bucket(stored, &other) => {
                    tracing::warn!(record = name, claim = %other.record.claim, "another record names the same bucket");
                }
                Ok(_) => continue,
                // It does not say which store it means.
                Err(problem) => {
                    tracing::warn!(record = name, "another record names a bucket of the same name: {problem}")
                }
            }
            return Ok(true);
        }
        ctx.memory.wait_for_bucket(&self.claim.id, None);
        Ok(false)
    }

    /// The store has finished. If it did not show everything yet, it is asked once more.
    async fn conclude(&mut self, removed: Removed, note: String) {
        self.seen.store = StoreProgress::Fully;
        self.missing = removed.missed_something();
        self.seen.settled = self.settles_in().is_none();
        self.note = note;
        if self.seen.settled {
            for note in removed.left().chain(self.left.iter().map(String::as_str)) {
                events::left_in_place(self.ctx, &self.claim.id, note).await;
            }
        }
    }

    async fn delete_outputs(&self) -> Result<(), Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        let (secrets, config_maps) = (ctx.secrets_in(&claim.id.namespace), ctx.config_maps_in(&claim.id.namespace));
        let (secret, config_map) = ctx.caches.output_uids(&claim.id);
        // Restored outputs of an orphan belong to nobody, and another claim may adopt them.
        let heir = self.stored.as_ref().filter(|_| !claim.is_gone());
        let heir = heir.and_then(|stored| Heir::of(&stored.record, stored.is_being_adopted(), &ctx.label));
        tokio::try_join!(
            outputs::delete(&secrets, &claim.id, secret, heir),
            outputs::delete(&config_maps, &claim.id, config_map, heir),
        )?;
        Ok(())
    }

    async fn release(&self) -> Result<Next, Error> {
        let Self { ctx, claim, note, .. } = self;
        ctx.memory.with(&claim.id, |m| m.removal = Some(Box::new(RemovalProgress::AllButFinalizer(note.clone()))));
        claims::remove_finalizer(ctx, claim).await?;
        ctx.memory.with(&claim.id, |m| m.removal = Some(Box::new(RemovalProgress::Everything)));
        self.report_removal().await;
        Ok(Next::Done)
    }

    async fn report_removal(&self) {
        tracing::info!(reason = reasons::REMOVED, claim = %self.claim.id, "{}", self.note);
        events::event(self.ctx, &self.claim.id, Severity::Normal, reasons::REMOVED, &self.note).await;
    }
}

/// Reports a bucket that is named only in a ConfigMap, because the ConfigMap goes with the claim.
async fn report_unfinished_bucket<P>(ctx: &Context<P>, claim: &Claim) -> Result<(), Error> {
    let config_map = outputs::read_own(&ctx.config_maps_in(&claim.id.namespace), &claim.id).await?;
    if let Some(bucket) = config_map.as_ref().and_then(legacy::unfinished_bucket) {
        events::left_in_place(ctx, &claim.id, &legacy::unfinished_note(bucket)).await;
    }
    Ok(())
}

/// Whether somebody may have used the bucket of an unbound claim, because its keys are in its Secret.
async fn keys_were_out<P>(ctx: &Context<P>, claim: &Claim) -> Result<bool, Error> {
    Ok(outputs::read_own(&ctx.secrets_in(&claim.id.namespace), &claim.id).await?.is_some())
}

/// The keys in the claim's Secret, as long as they may still work.
async fn present_keys<P>(ctx: &Context<P>, claim: &Claim) -> Result<Option<AppCredentials>, Error> {
    if ctx.memory.if_known(&claim.id, |m| m.access_gone) {
        return Ok(None);
    }
    let secret = outputs::read_own(&ctx.secrets_in(&claim.id.namespace), &claim.id).await?;
    Ok(secret.as_ref().and_then(output_data::credentials))
}
