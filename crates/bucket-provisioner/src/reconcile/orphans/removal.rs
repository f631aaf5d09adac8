//! Removing what was created for deleted claims, with a worker: in the same queues as claims that are removed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::jiff::Timestamp;
use tracing::Instrument as _;

use super::{OrphanController, Outcome};
use crate::api::ObjectBucket;
use crate::decide::claim::Claim;
use crate::decide::notice;
use crate::decide::orphan::Due;
use crate::decide::record::Stored;
use crate::decide::release::{Release, Retained};
use crate::decide::teardown::{self as way_back, Undo};
use crate::error::Error;
use crate::objects::{crds, records};
use crate::reconcile::next::{BUSY, Next};
use crate::reconcile::{step, takeover, teardown};
use crate::state::stores;
use crate::store::{ClaimId, Provisioner};
use operator_runtime::engine::{QueueKey, Urgency};

/// A record whose content is to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Queued {
    pub(super) name: String,
    claim: ClaimId,
    store: Arc<str>,
    /// Nobody waits for that.
    scheduled: bool,
}

impl Queued {
    pub(super) fn of(stored: &Stored, due: &Due) -> Self {
        let Stored { name, record, .. } = stored;
        Self {
            name: name.clone(),
            claim: record.claim.clone(),
            store: stores::store_of(record),
            scheduled: *due == Due::DeleteBucket,
        }
    }
}

impl<P: Provisioner> OrphanController<P> {
    /// Removes what is recorded. Boxed, because otherwise the compiler does not see that it is Send.
    pub(super) fn remove(&self, removal: Queued) -> BoxFuture<'_, ()> {
        async move {
            let name = removal.name.clone();
            let wait = self.remove_in_parts(removal).await;
            self.check_again(name, wait);
        }
        .boxed()
    }

    /// A part each time that a worker is free. `Some`: check the record again after this time.
    async fn remove_in_parts(&self, removal: Queued) -> Option<Duration> {
        let Queued { name, claim, store, scheduled } = removal;
        let memory = &self.ctx.memory;
        let namespace: Arc<str> = claim.namespace.as_str().into();
        let next = loop {
            let purges = scheduled || memory.get(&claim, |m| m.is_purging());
            let urgency = if purges { Urgency::Purge } else { Urgency::Wanted };
            let key = QueueKey { store: Arc::clone(&store), namespace: Arc::clone(&namespace), urgency };
            memory.get(&claim, |m| m.set_purge_waits(true));
            let worker = self.ctx.workers.enter(&key).await;
            memory.get(&claim, |m| m.set_purge_waits(false));
            // The operator ends.
            let Some(worker) = worker else { break None };
            // Boxed, so that a record that waits for a worker needs little memory.
            match Box::pin(self.process(&name, Some(&worker))).await {
                Outcome::Next(Next::Now) => {}
                Outcome::Next(next) => break next.wait(),
                Outcome::Removal(_) => break None,
            }
        };
        self.records.get(&name, |known| known.is_queued = false);
        if next.is_none() && !self.ctx.caches.records.has(&name) {
            self.forget_if_idle(&name, |_| true);
        }
        next
    }

    /// Does what is due for a record whose claim no longer exists. `again`: it failed before, and the record still
    /// reports that.
    pub(super) async fn remove_orphan(
        &self,
        object: &ObjectBucket,
        stored: Stored,
        due: &Due,
        again: bool,
    ) -> Result<Next, Error> {
        let ctx = &*self.ctx;
        let uid = stored.record.claim.uid.clone();
        let vanished = *due == Due::RevokeVanished;
        // All claims are deleted with their CRD, without a decision about any of them.
        if vanished && stored.release.is_none() && matches!(crds::may_remove(ctx).await, Err(Error::CrdDeleting { .. }))
        {
            ctx.orphans.handled(&uid);
            return Ok(Next::Now);
        }
        let stored = self.completed(stored).await?;
        let undo = match due {
            Due::Remove | Due::DeleteBucket => way_back::undo_now(&stored),
            _ => Undo::Revoke,
        };
        let next = self.undo(object, stored, undo, vanished.then_some(Retained::ClaimVanished), again).await?;
        if vanished && next == Next::Done {
            ctx.orphans.handled(&uid);
        }
        Ok(next)
    }

    /// Completes a record of the Go provisioner from its class.
    async fn completed(&self, stored: Stored) -> Result<Stored, Error> {
        let claim = Claim::gone(stored.record.claim.clone());
        takeover::complete(&self.ctx, &claim, stored).await
    }

    /// `retain`: why the record stays. `again`: it failed before, and the record still reports that.
    async fn undo(
        &self,
        object: &ObjectBucket,
        mut stored: Stored,
        undo: Undo,
        retain: Option<Retained>,
        again: bool,
    ) -> Result<Next, Error> {
        let ctx = &*self.ctx;
        let claim = Claim::gone(stored.record.claim.clone());
        let Some(_busy) = ctx.memory.try_lock(&claim.id) else { return Ok(Next::After(BUSY)) };
        let deletes = undo != Undo::Revoke;
        if !again && ctx.memory.entry(&claim.id, |m| m.removed_objects(0)) == 0 {
            let version = self.report(object, notice::in_progress(&stored, deletes)).await?;
            stored.resource_version = version.or(stored.resource_version);
        }
        let before = stored.clone();
        let traced = step::attempt("remove orphan", &claim.id, "");
        let removal = Box::pin(async {
            // What only this process has seen must not be forgotten with it.
            if let (None, Some(why)) = (&stored.release, &retain) {
                // Nor is known what its last attempt created, and the store may not show that yet.
                ctx.memory.entry(&claim.id, |m| m.executes());
                let release = Release { at: Timestamp::now(), why: why.clone(), deleting: true };
                records::release(ctx, &mut stored, release).await?;
            }
            teardown::remove_orphan(ctx, &claim, stored, undo, retain).await
        });
        let removed = AssertUnwindSafe(removal.instrument(traced.clone())).catch_unwind().await;
        let removed = removed.unwrap_or(Err(Error::Panicked));
        if let Err(problem) = &removed {
            step::failed(&traced, problem);
        }
        match removed {
            // Not before: one that is late, and of which this process does not know, is postponed.
            Ok(next) => {
                ctx.orphans.scheduled(&before.name, None);
                Ok(next)
            }
            Err(problem) if !problem.is_race() => {
                let is_in_use = matches!(problem, Error::BucketInUse { unreadable: false, .. });
                ctx.orphans.bucket_in_use(&before.name, is_in_use);
                if let Some(object) = records::read(ctx, &before.name).await? {
                    self.report(&object, notice::failed(&before, &problem)).await?;
                }
                Err(problem)
            }
            Err(race) => Err(race),
        }
    }
}
