//! Having the store undo what an ObjectBucket records, unless something forbids it.

use std::time::Duration;

use super::teardown::{NOTHING_TO_UNDO, Teardown};
use super::{owner, previous_access};
use crate::decide::claim::{self, Claim};
use crate::decide::release::{Release, Retained};
use crate::decide::report::Report;
use crate::decide::teardown::{self, Purpose, StoreProgress, Undo, closing_message, shares_bucket};
use crate::decide::{codec, notice, output_data};
use crate::error::Error;
use crate::objects::{claims, crds, events, namespaces, outputs, record_lookup, records, status};
use crate::state::context::Context;
use crate::state::memory::Awaited;
use crate::store::{AccessRemoval, AppCredentials, BucketRemoval, Content, Provisioner, Removal, compose};

/// After this time, a removal that is still running is reported. Of many claims that are deleted at once, each takes some
/// seconds, and a report costs as much as the removal.
const PATIENCE: Duration = Duration::from_secs(10);

impl<P: Provisioner> Teardown<'_, P> {
    /// Has the store undo the record.
    pub(super) async fn undo(&mut self, undo: Undo) -> Result<(), Error> {
        let (ctx, claim) = (self.ctx, self.claim);
        crds::may_remove(ctx).await?;
        let deletes = matches!(undo, Undo::Delete | Undo::DeleteIfEmpty);
        let used_by = if deletes { self.used_by().await? } else { None };
        let in_use = used_by.is_some();
        if !in_use {
            ctx.orphans.bucket_in_use(&self.stored()?.name, false);
            self.begin_deletion(undo).await?;
        }
        let removal = self.undo_and_report(undo, in_use).await?;
        match removal {
            Removal { bucket: BucketRemoval::Partial { deleted }, .. } => {
                // The access is removed before the bucket.
                ctx.memory.entry(&claim.id, |m| m.access_gone = true);
                let so_far = ctx.memory.entry(&claim.id, |m| m.purges(deleted));
                self.report_purge(so_far).await?;
                self.seen.store = StoreProgress::Partly;
            }
            removed => {
                let bucket = || self.stored().map(|stored| stored.record.plan.bucket.clone());
                if let Some(user) = used_by {
                    if removed.access == AccessRemoval::Deleted {
                        ctx.memory.entry(&claim.id, |m| m.access_gone = true);
                    }
                    return Err(Error::BucketInUse { bucket: bucket()?, unreadable: matches!(user, User::Unreadable) });
                }
                if self.seen.purpose == Purpose::Replan && removed.bucket == BucketRemoval::NotEmpty {
                    return Err(Error::BucketNotEmpty { bucket: bucket()? });
                }
                self.conclude(undo, removed).await?;
            }
        }
        Ok(())
    }

    /// Writes into the record that the scheduled deletion of its bucket begins: no claim can take the bucket from now on. A
    /// deletion that the store would refuse, because of the account, a permission or a wrong clock, has to be refused before.
    async fn begin_deletion(&mut self, undo: Undo) -> Result<(), Error> {
        let release = self.stored()?.release.clone().filter(|release| undo == Undo::Delete && !release.deleting);
        let Some(release) = release.filter(|_| self.seen.purpose == Purpose::Orphan) else { return Ok(()) };
        // The access was deleted, so this changes nothing.
        let removal = self.undo_and_report(Undo::Revoke, false).await?;
        // Then the bucket is kept.
        if matches!(removal.access, AccessRemoval::Unproven(_)) {
            return Ok(());
        }
        let stored = self.stored.as_mut().ok_or(NOTHING_TO_UNDO)?;
        records::release(self.ctx, stored, Release { deleting: true, ..release }).await
    }

    /// Has the store undo the record, and reports it if that takes long: a claim that is being deleted is not Ready.
    async fn undo_and_report(&self, undo: Undo, in_use: bool) -> Result<Removal, Error> {
        let mut removing = std::pin::pin!(self.undo_at_store(undo, in_use));
        if let Ok(removal) = tokio::time::timeout(PATIENCE, removing.as_mut()).await {
            return removal;
        }
        if self.claim.deleting && self.claim.bound() {
            // The removal continues meanwhile, and reports its own problems.
            let report = Report::removing(self.claim);
            let (removal, reported) = tokio::join!(removing, status::update_status(self.ctx, self.claim, &report));
            return reported.and(removal);
        }
        removing.await
    }

    async fn undo_at_store(&self, undo: Undo, in_use: bool) -> Result<Removal, Error> {
        let (ctx, record) = (self.ctx, &self.stored()?.record);
        let (owner, present) = tokio::try_join!(owner::of_record(ctx, record), present_keys(ctx, self.claim))
            .map_err(|error| needed(error, &record.plan.bucket))?;
        let content = match undo {
            Undo::Delete => Some(Content::Delete),
            Undo::DeleteIfEmpty => Some(Content::Keep),
            Undo::Revoke | Undo::DeleteAfter(_) => None,
        };
        // The access is removed even if the bucket is in use.
        let content = content.filter(|_| !in_use);
        let call = owner.call(record).with_present(present.as_ref());
        let was_moved = !record.previous_access.is_empty() && !ctx.memory.get(&self.claim.id, |m| m.access_gone);
        if let Some(content) = content.filter(|_| !was_moved) {
            let delete = Box::pin(compose::delete(ctx.provisioner.as_ref(), &call, content));
            return ctx.call_store(record, delete).await;
        }
        let removal = ctx.call_store(record, Box::pin(compose::revoke(ctx.provisioner.as_ref(), &call))).await?;
        if removal.access.is_unproven() {
            return Ok(removal);
        }
        // All access ends before the bucket is deleted, and the present one first: the previous one may need credentials that
        // no longer exist.
        self.revoke_previous(present.as_ref()).await?;
        match content {
            Some(content) => {
                let call = owner.call(record);
                let delete = Box::pin(compose::delete(ctx.provisioner.as_ref(), &call, content));
                let deleted = ctx.call_store(record, delete).await?;
                Ok(Removal { access: removal.access, ..deleted })
            }
            None => Ok(removal),
        }
    }

    /// Has the store revoke the access that the claim had before it was moved.
    async fn revoke_previous(&self, present: Option<&AppCredentials>) -> Result<(), Error> {
        let record = &self.stored()?.record;
        for previous in &record.previous_access {
            let answer = previous_access::revoke(self.ctx, record, previous, present).await;
            if let Some(note) = answer.map_err(|error| needed(error, &record.plan.bucket))? {
                events::left_in_place(self.ctx, &self.claim.id, &note).await;
            }
        }
        Ok(())
    }

    /// Reports the progress of a large removal, on the claim or, if it no longer exists, on the ObjectBucket.
    async fn report_purge(&self, removed: u64) -> Result<(), Error> {
        let (ctx, claim, stored) = (self.ctx, self.claim, self.stored()?);
        if !claim.is_gone() {
            return status::update_status(ctx, claim, &Report::purging(claim, &stored.record.plan.bucket, removed))
                .await;
        }
        match records::read(ctx, &stored.name).await? {
            Some(object) => records::report(ctx, &object, &notice::purging(stored, removed)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Which other record names the bucket, which may then be in use.
    async fn used_by(&self) -> Result<Option<User>, Error> {
        let (ctx, stored) = (self.ctx, self.stored()?);
        let bucket = &stored.record.plan.bucket;
        // Before they are listed, so that a record that is deleted from now on wakes the claim.
        ctx.memory.wait_for(&self.claim.id, Some(Awaited::Bucket(bucket.clone())));
        let mut unreadable = None;
        for candidate in record_lookup::with_bucket(ctx, bucket, &stored.name).await? {
            let name = candidate.name;
            let Some(object) = candidate.object else { continue };
            match object.and_then(|object| codec::read(&object).map_err(|problem| problem.to_string())) {
                Ok(other) if shares_bucket(stored, &other, false) => {
                    let claim = &other.record.claim;
                    if !shares_bucket(stored, &other, claims::is_leaving(ctx, claim).await) {
                        continue;
                    }
                    tracing::warn!(record = name, %claim, "another ObjectBucket names the same bucket");
                    return Ok(Some(User::Claim));
                }
                Ok(_) => continue,
                // Its store is unknown.
                Err(problem) => {
                    tracing::warn!(record = name, "another ObjectBucket names a bucket of the same name: {problem}");
                    unreadable = Some(User::Unreadable);
                }
            }
        }
        if unreadable.is_none() {
            ctx.memory.wait_for(&self.claim.id, None);
        }
        Ok(unreadable)
    }

    /// The store has finished. If it did not show everything yet, it is asked once more.
    async fn conclude(&mut self, undo: Undo, removed: Removal) -> Result<(), Error> {
        let ctx = self.ctx;
        let removed = ctx.memory.entry(&self.claim.id, |m| m.removed_before(removed));
        self.seen.store = StoreProgress::Fully;
        // An ObjectBucket outlives its claim only after the access was removed.
        let is_known = self.stored()?.release.as_ref().is_some_and(Release::access_is_gone);
        self.missing = removed.missed_something() && (removed.bucket == BucketRemoval::NotFound || !is_known);
        self.seen.settled = self.settles_in().is_none();
        if !self.seen.settled {
            return Ok(());
        }
        let namespace_uid = match undo {
            // The claim exists, and so does its namespace.
            Undo::DeleteAfter(_) => namespaces::uid(ctx, &self.claim.id.namespace).await?,
            _ => None,
        };
        let now = k8s_openapi::jiff::Timestamp::now();
        // A claim that is planned again names another bucket on purpose.
        let conflicts = self.seen.purpose == Purpose::Release
            && matches!(removed.bucket, BucketRemoval::LeftInPlace(_))
            && claim::other_bucket(self.claim, &self.stored()?.record).is_some();
        let retain = teardown::retained(undo, &removed, namespace_uid, now)
            .or(self.retain.take())
            .or(conflicts.then_some(Retained::BucketConflict));
        self.note = closing_message(self.stored()?, undo, &removed, retain.as_ref());
        self.seen.retained = retain.is_some();
        self.retain = retain;
        for note in removed.left().chain(self.left.iter().map(String::as_str)) {
            events::left_in_place(ctx, &self.claim.id, note).await;
        }
        Ok(())
    }
}

/// Who may use the bucket of a claim that is deleted.
#[derive(Debug, Clone, Copy)]
enum User {
    Claim,
    /// That of an ObjectBucket that cannot be read.
    Unreadable,
}

/// A Secret with provisioning credentials must exist as long as something has to be removed with them.
fn needed(error: Error, bucket: &str) -> Error {
    match error {
        Error::OwnerSecretNotFound(secret) => Error::OwnerSecretNeeded { secret, bucket: bucket.to_owned() },
        error => error,
    }
}

/// The keys in the claim's Secret, as long as they may still work.
async fn present_keys<P>(ctx: &Context<P>, claim: &Claim) -> Result<Option<AppCredentials>, Error> {
    if ctx.memory.get(&claim.id, |m| m.access_gone) {
        return Ok(None);
    }
    let secret = outputs::read_own(&ctx.secrets_in(&claim.id.namespace), &claim.id).await?;
    Ok(secret.as_ref().and_then(output_data::credentials))
}
