//! ObjectBuckets whose claims are gone, and those of other clusters: they are reported, and wait for an admin's annotation
//! or for the time at which their bucket is deleted.
//!
//! The caches only show which ObjectBuckets may be orphans. Decisions rest on fresh reads of ObjectBucket and claim.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::api::ObjectBucket;
use crate::controller::decide::action::{self, Action};
use crate::controller::decide::claim::Claim;
use crate::controller::decide::lookup::Found;
use crate::controller::decide::notice::{self, Notice};
use crate::controller::decide::orphan::{self, Due, PresentClaim};
use crate::controller::decide::record::{self, Stored};
use crate::controller::decide::release::{Release, Retained};
use crate::controller::decide::teardown::{self as way_back, Undo};
use crate::controller::decide::{backoff, codec, legacy};
use crate::controller::error::Error;
use crate::controller::flow::next::{BUSY, Next};
use crate::controller::flow::{released, step, teardown};
use crate::controller::objects::{claims, classes, crds, records};
use crate::controller::reasons;
use crate::controller::state::context::Context;
use crate::provisioner::turn::Work;
use crate::provisioner::{ClaimId, Failure as _, Provisioner};

/// Longest time that one check may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How many records are checked, or undone, at the same time.
const AT_ONCE: usize = 4;

/// Which records may be orphans.
#[derive(Debug)]
pub(crate) enum OrphanCheck {
    /// All: the claims were listed again, and no event shows which are gone.
    Everywhere,
    /// The record of this name, to be checked after a while.
    At { name: String, wait: Duration },
}

impl OrphanCheck {
    pub(crate) fn now(name: String) -> Self {
        Self::At { name, wait: Duration::ZERO }
    }
}

/// Processes `checks`, and puts later ones into `again`.
pub(crate) async fn run<P: Provisioner>(
    ctx: &Context<P>,
    checks: UnboundedReceiver<OrphanCheck>,
    again: UnboundedSender<OrphanCheck>,
) {
    // Without the claims every record looks orphaned.
    ctx.caches.filled().await;
    let keeper = Keeper::new(ctx);
    let due = scheduler(requests(ctx, checks).boxed());
    due.for_each_concurrent(AT_ONCE, async |name: String| {
        if let Some(wait) = keeper.process(&name).await {
            // The receiver is dropped only when the operator ends.
            let _ = again.send(OrphanCheck::At { name, wait });
        }
    })
    .await;
}

fn requests<P>(
    ctx: &Context<P>,
    checks: UnboundedReceiver<OrphanCheck>,
) -> impl Stream<Item = ScheduleRequest<String>> {
    let checks = stream::unfold(checks, |mut checks| async { Some((checks.recv().await?, checks)) });
    checks.flat_map(|check| {
        let (names, wait) = match check {
            OrphanCheck::Everywhere => (ctx.caches.records.names(), Duration::ZERO),
            OrphanCheck::At { name, wait } => (vec![name], wait),
        };
        let (from, now) = (Instant::now() + wait, Timestamp::now());
        let request = |message: String| {
            let object = ctx.caches.records.object(&message).filter(|_| is_suspect(ctx, &message))?;
            let run_at = from + released::sleeps(&object, now).unwrap_or_default();
            Some(ScheduleRequest { message, run_at })
        };
        stream::iter(names.into_iter().filter_map(request).collect::<Vec<_>>())
    })
}

/// Whether the caches show a record of ours without its claim, with an admin's annotation, or deleted by somebody.
pub(crate) fn is_suspect<P>(ctx: &Context<P>, name: &str) -> bool {
    let Some(object) = ctx.caches.records.object(name) else { return false };
    let (Some(uid), Some((namespace, claim))) = (record::claim_uid(&object), record::claim_name(&object)) else {
        return false;
    };
    let shown = ctx.caches.claims.get(&ObjectRef::new(claim).within(namespace));
    let here = record::cluster_uid(&object).is_none_or(|cluster| cluster == ctx.cluster);
    let is_claims = here && shown.is_some_and(|shown| shown.meta().uid.as_deref() == Some(uid));
    record::is_ours(&object, &ctx.options.provisioner_name)
        && ctx.options.namespace.as_deref().is_none_or(|ours| ours == namespace)
        && (!is_claims || action::action(&object) != Ok(None) || object.metadata.deletion_timestamp.is_some())
}

/// Checks records. The maps are by name of the record.
struct Keeper<'a, P> {
    ctx: &'a Context<P>,
    /// The last report, with the record's uid. A CRD may prune the condition that contains it.
    reported: Mutex<HashMap<String, (Option<String>, Notice)>>,
    failed_checks: Mutex<HashMap<String, FailedCheck>>,
    /// The records that are being checked: two concurrent checks would report twice.
    busy: Mutex<HashSet<String>>,
}

/// A failed check. It is retried after a wait, or when the record changes. Our own reports on the record do not count as
/// changes.
#[derive(Debug, Clone, Copy)]
struct FailedCheck {
    /// Failures in a row.
    failures: u32,
    not_before: Instant,
    /// See [`state_of`].
    state: u64,
}

/// Hash of everything in a record that a check depends on, so without its status.
fn state_of(object: &ObjectBucket) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.metadata.uid.hash(&mut hasher);
    format!("{:?}", action::action(object)).hash(&mut hasher);
    serde_json::to_string(&object.spec).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

impl<P: Provisioner> Keeper<'_, P> {
    fn new(ctx: &Context<P>) -> Keeper<'_, P> {
        Keeper { ctx, reported: Mutex::default(), failed_checks: Mutex::default(), busy: Mutex::default() }
    }

    /// Does what is due for a record. `Some`: check again after this time.
    async fn process(&self, name: &str) -> Option<Duration> {
        if !lock(&self.busy).insert(name.to_owned()) {
            return Some(BUSY);
        }
        let next = self.process_locked(name).await;
        lock(&self.busy).remove(name);
        match next {
            Next::Done => None,
            Next::Now => Some(Duration::ZERO),
            Next::After(wait) => Some(wait),
        }
    }

    async fn process_locked(&self, name: &str) -> Next {
        let object = match within_limit(records::read(self.ctx, name)).await {
            Ok(Some(object)) => object,
            Ok(None) => {
                lock(&self.failed_checks).remove(name);
                lock(&self.reported).remove(name);
                self.ctx.orphans.found(name, None);
                return Next::Done;
            }
            Err(problem) => return self.failed(name, 0, &problem),
        };
        let state = state_of(&object);
        let failed = lock(&self.failed_checks).get(name).copied().filter(|failed| failed.state == state);
        let left = failed.map(|failed| failed.not_before.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            return Next::After(left);
        }
        // Boxed, because the futures of removals are large.
        match within_limit(Box::pin(self.check(&object, failed.is_some()))).await {
            Ok(next) => {
                lock(&self.failed_checks).remove(name);
                next
            }
            Err(problem) => self.failed(name, state, &problem),
        }
    }

    fn failed(&self, name: &str, state: u64, problem: &Error) -> Next {
        if problem.is_race() {
            tracing::debug!(record = name, %problem, "somebody else wrote at the same time");
            return Next::After(BUSY);
        }
        let mut all = lock(&self.failed_checks);
        let before = all.get(name).filter(|failed| failed.state == state).map_or(0, |failed| failed.failures);
        let failures = before.saturating_add(1);
        tracing::warn!(
            reason = problem.reason(),
            record = name,
            failures,
            "checking the ObjectBucket failed; retrying: {problem}"
        );
        let wait = backoff::delay(problem.class(), failures, &mut rand::rng());
        all.insert(name.to_owned(), FailedCheck { failures, not_before: Instant::now() + wait, state });
        Next::After(wait)
    }

    async fn check(&self, object: &ObjectBucket, again: bool) -> Result<Next, Error> {
        let ctx = self.ctx;
        let action = action::action(object);
        let mut stored = match codec::read(object) {
            Ok(stored) => stored,
            Err(problem) => return self.check_damaged(object, &problem, action == Ok(Some(Action::Forget))).await,
        };
        let (claim, now) = (stored.record.claim.clone(), Timestamp::now());
        let present = self.present(&claim, &stored.name).await?;
        let facts = orphan::Facts {
            stored: &stored,
            action: &action,
            cluster: &ctx.cluster,
            present: present.as_ref(),
            refused: notice::is_refused(object),
            vanished: ctx.orphans.has_vanished(&claim.uid, stored.created),
            now,
        };
        match orphan::due(&facts) {
            Due::Nothing => {
                let refused = facts.refused.then_some(reasons::orphaned::ACTION_REFUSED);
                ctx.orphans.found(&stored.name, refused);
            }
            Due::Report(notice) if stored.deleted => {
                // The claim's own attempt may be deleting it.
                let Some(_busy) = ctx.memory.try_lock(&claim) else { return Ok(Next::After(BUSY)) };
                if let Some(object) = records::read(ctx, &stored.name).await? {
                    self.report(&object, notice).await?;
                }
            }
            Due::Report(notice) => self.report(object, notice).await?,
            Due::Wait { notice, until } => {
                ctx.orphans.found(&stored.name, None);
                if let Some(notice) = notice {
                    self.report(object, notice).await?;
                }
                return Ok(Next::After(released::left(until, now)));
            }
            Due::Refuse(notice) => {
                self.report(object, notice).await?;
                records::remove_annotation(ctx, &mut stored).await?;
            }
            // The claim does that; every change of the record wakes it.
            Due::Adopt => {}
            Due::Forget => {
                records::delete(&ctx.records(), &stored.name, stored.uid.as_deref()).await?;
                tracing::info!(
                    record = stored.name,
                    bucket = stored.record.plan.bucket,
                    "deleted only this record, as its annotation requests; bucket and user are kept"
                );
            }
            Due::Remove | Due::DeleteBucket => {
                let stored = self.completed(stored).await?;
                let undo = way_back::undo_now(&stored.record);
                return self.undo(object, stored, undo, None, again).await;
            }
            Due::Revoke => {
                let stored = self.completed(stored).await?;
                return self.undo(object, stored, Undo::Revoke, None, again).await;
            }
            Due::RevokeVanished => {
                // All claims go with their CRD, which says nothing about any of them.
                if let Err(Error::CrdDeleting { .. }) = crds::may_remove(ctx).await {
                    ctx.orphans.handled(&claim.uid);
                    return Ok(Next::Now);
                }
                let stored = self.completed(stored).await?;
                let next = self.undo(object, stored, Undo::Revoke, Some(Retained::ClaimVanished), again).await?;
                if next == Next::Done {
                    ctx.orphans.handled(&claim.uid);
                }
                return Ok(next);
            }
        }
        Ok(Next::Done)
    }

    /// The same for a damaged record. If its claim exists, the claim reports it.
    async fn check_damaged(&self, object: &ObjectBucket, problem: &Error, forget: bool) -> Result<Next, Error> {
        let (Some(uid), Some((namespace, name))) = (record::claim_uid(object), record::claim_name(object)) else {
            return Ok(Next::Done);
        };
        let id = ClaimId { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        if !claims::is_gone(self.ctx, &Claim::gone(id)).await? {
            return Ok(Next::Done);
        }
        if forget {
            let metadata = &object.metadata;
            records::delete(&self.ctx.records(), &record::name(object), metadata.uid.as_deref()).await?;
            tracing::info!(
                record = record::name(object),
                "deleted only this damaged record, as its annotation requests"
            );
        } else {
            self.report(object, notice::damaged(&problem.to_string())).await?;
        }
        Ok(Next::Done)
    }

    /// Completes a record of the Go provisioner from its class.
    async fn completed(&self, stored: Stored) -> Result<Stored, Error> {
        let ctx = self.ctx;
        let class = classes::named(ctx, stored.record.class_name.clone()).await?;
        let claim = Claim::gone(stored.record.claim.clone());
        legacy::complete(&ctx.provisioner, &ctx.options.provisioner_name, &class, &claim, stored)
    }

    /// `retain`: why the record stays. `again`: it failed before, and the record still says so.
    async fn undo(
        &self,
        object: &ObjectBucket,
        mut stored: Stored,
        undo: Undo,
        retain: Option<Retained>,
        again: bool,
    ) -> Result<Next, Error> {
        let ctx = self.ctx;
        let claim = Claim::gone(stored.record.claim.clone());
        let Some(_busy) = ctx.memory.try_lock(&claim.id) else { return Ok(Next::After(BUSY)) };
        let deletes = undo == Undo::Delete;
        if !again && ctx.memory.with(&claim.id, |m| m.removed_objects(0)) == 0 {
            self.report(object, notice::in_progress(&stored, deletes)).await?;
        }
        let before = stored.clone();
        let traced = step::attempt("remove orphan", &claim.id, "");
        let removal = Box::pin(async {
            // The decisive write: no claim can take the bucket from now on.
            if let Some(release) = stored.release.clone().filter(|release| deletes && !release.deleting) {
                crds::may_remove(ctx).await?;
                records::release(ctx, &mut stored, Release { deleting: true, ..release }).await?;
            }
            teardown::remove_orphan(ctx, &claim, stored, undo, retain).await
        });
        let removed = removal.instrument(traced.clone()).await;
        if let Err(problem) = &removed {
            step::failed(&traced, problem);
        }
        match removed {
            Err(problem) if !problem.is_race() => {
                if let Some(object) = records::read(ctx, &before.name).await? {
                    self.report(&object, notice::failed(&before, &problem)).await?;
                }
                Err(problem)
            }
            answer => answer,
        }
    }

    /// The claim that has the recorded name now, read from the cluster.
    async fn present(&self, recorded: &ClaimId, record: &str) -> Result<Option<PresentClaim>, Error> {
        let found = self.ctx.claims_in(&recorded.namespace).get_opt(&recorded.name).await;
        let Some(found) = found.map_err(Error::kubernetes("read the claim"))? else { return Ok(None) };
        let claim = Claim::read(&found, &self.ctx.label);
        let has_record = match claim.id.uid == recorded.uid {
            true => None,
            false => match records::find(self.ctx, &claim).await {
                Ok(Found::Mine(stored)) => Some(stored.name).filter(|name| name != record),
                _ => None,
            },
        };
        let names_it = claim.spec().is_ok_and(|spec| spec.object_bucket_name.as_deref() == Some(record));
        Ok(Some(PresentClaim { uid: claim.id.uid, deleting: claim.deleting, has_record, names_it }))
    }

    async fn report(&self, object: &ObjectBucket, notice: Notice) -> Result<(), Error> {
        let reason = notice.is_orphan().then_some(notice.reason);
        self.ctx.orphans.found(&record::name(object), reason);
        let reported = (object.uid(), notice);
        if lock(&self.reported).get(&record::name(object)) == Some(&reported) {
            return Ok(());
        }
        records::report(self.ctx, object, &reported.1).await?;
        lock(&self.reported).insert(record::name(object), reported);
        Ok(())
    }
}

async fn within_limit<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let outcome = Work::new(false, |_| {}).within(TIME_LIMIT, work).await;
    outcome.unwrap_or_else(|_late| Err(Error::TimedOut(TIME_LIMIT.as_secs())))
}

// Every critical section is one look-up or assignment.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
