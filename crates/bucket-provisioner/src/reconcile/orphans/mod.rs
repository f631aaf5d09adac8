//! ObjectBuckets whose claims no longer exist, and those of other clusters: they are reported, and wait for an admin's
//! annotation or for the time at which their bucket is deleted.
//!
//! The caches only show which ObjectBuckets may be orphans. Decisions rest on fresh reads of ObjectBucket and claim.

mod due;
mod present;
pub(super) mod released;
mod removal;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::scheduler::scheduler;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) use self::due::{OrphanCheck, is_suspect, of_claim};
use self::removal::Queued;
use crate::api::ObjectBucket;
use crate::decide::action::{self, Action};
use crate::decide::claim::Claim;
use crate::decide::notice::{self, Notice};
use crate::decide::orphan::{self, Due};
use crate::decide::record;
use crate::decide::release::Release;
use crate::decide::{backoff, codec};
use crate::error::Error;
use crate::objects::{claims, records};
use crate::reasons;
use crate::reconcile::next::{BUSY, Next};
use crate::state::context::Context;
use crate::store::{ClaimId, Failure as _, Provisioner};
use operator_runtime::engine::clock::AttemptClock;
use operator_runtime::engine::{self, Inputs, Interrupted, Reconcile, Remembered, Schedule, Table, Worker};

/// Longest time that one check may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// How many records are checked at the same time.
const AT_ONCE: usize = 4;

/// Processes `checks`, and puts later ones into `again`. Ends after `shutdown`, and what runs before that.
pub(crate) async fn run<P: Provisioner>(
    ctx: &Arc<Context<P>>,
    checks: UnboundedReceiver<OrphanCheck>,
    again: UnboundedSender<OrphanCheck>,
    shutdown: impl Future<Output = ()>,
) {
    // Without the claims every record looks orphaned.
    ctx.caches.filled().await;
    let (queue, queued) = unbounded_channel();
    let controller = Arc::new(OrphanController {
        ctx: Arc::clone(ctx),
        records: Table::default(),
        again,
        queue,
        checks: Semaphore::new(AT_ONCE),
    });
    let checks = scheduler(due::requests(ctx, checks).boxed()).map(Task::Check);
    let triggers = stream::select(checks, engine::received(queued).map(Task::Remove));
    let reconcile = |task: &Task, _: &_| match task {
        Task::Check(name) if !controller.is_due(name) => Reconcile::Later(None),
        task => Reconcile::Now(Box::pin(Arc::clone(&controller).reconcile(task.clone()))),
    };
    engine::run(triggers, shutdown, reconcile).await;
}

/// What is done with a record. The check of one whose removal waits for a worker still answers its admin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    /// Of the record of this name.
    Check(String),
    Remove(Queued),
}

/// Checks records.
struct OrphanController<P> {
    ctx: Arc<Context<P>>,
    /// By name.
    records: Table<Checked>,
    /// For later checks.
    again: UnboundedSender<OrphanCheck>,
    /// For removals.
    queue: UnboundedSender<Queued>,
    /// Limits how many records are checked at the same time.
    checks: Semaphore,
}

/// What is remembered of a record.
#[derive(Default)]
struct Checked {
    schedule: Schedule,
    /// The last report, with the record's uid. A CRD may prune the condition that contains it.
    reported: Option<(Option<String>, Notice)>,
    /// Its removal waits for a worker, or has one.
    is_queued: bool,
}

impl Remembered for Checked {
    fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }
}

/// The result of a check.
enum Outcome {
    Next(Next),
    /// What is recorded is to be removed, which needs a worker.
    Removal(Queued),
}

impl From<Next> for Outcome {
    fn from(next: Next) -> Self {
        Self::Next(next)
    }
}

/// Everything in a record that a check depends on, so without its status: our own reports are no changes.
fn inputs(object: &ObjectBucket) -> Inputs {
    let (action, spec) = (format!("{:?}", action::action(object)), serde_json::to_string(&object.spec));
    Inputs::of(&(&object.metadata.uid, action, spec.unwrap_or_default()), &())
}

impl<P: Provisioner> OrphanController<P> {
    async fn reconcile(self: Arc<Self>, task: Task) -> Option<Duration> {
        match task {
            Task::Check(name) => {
                // Nobody closes it.
                let _permit = self.checks.acquire().await.ok()?;
                // Boxed, so that a record that waits for its check needs little memory.
                Box::pin(self.check_or_queue(name)).await;
            }
            Task::Remove(removal) => self.remove(removal).await,
        }
        // Later checks come with the others, which may say that they are not needed.
        None
    }

    /// Whether the caches still show that the record may be an orphan. A new claim asks for its record before that exists.
    fn is_due(&self, name: &str) -> bool {
        let exists = self.ctx.caches.records.has(name);
        if !exists {
            self.forget(name);
        }
        exists && is_suspect(&self.ctx, name)
    }

    async fn check_or_queue(&self, name: String) {
        match self.process(&name, None).await {
            Outcome::Next(next) => self.check_again(name, next.wait()),
            // The receiver lives as long as this.
            Outcome::Removal(removal) => drop(self.queue.send(removal)),
        }
    }

    fn check_again(&self, name: String, wait: Option<Duration>) {
        if let Some(wait) = wait {
            // The receiver is dropped only when the operator ends.
            let _ = self.again.send(OrphanCheck::At { name, wait });
        }
    }

    /// Does what is due for a record. Only with a worker is anything removed.
    async fn process(&self, name: &str, worker: Option<&Worker>) -> Outcome {
        let Some(_claimed) = self.records.begin(name) else { return Next::After(BUSY).into() };
        match self.process_claimed(name, worker).await {
            // It is in the queue already.
            Outcome::Removal(removal)
                if self.records.entry(&removal.name, |known| std::mem::replace(&mut known.is_queued, true)) =>
            {
                Next::Done.into()
            }
            outcome => outcome,
        }
    }

    async fn process_claimed(&self, name: &str, worker: Option<&Worker>) -> Outcome {
        let object = match within_limit(None, records::read(&self.ctx, name)).await {
            // Another provisioner may have created one of that name meanwhile.
            Ok(Some(object)) if due::is_served(&self.ctx, &object) => object,
            Ok(_) => {
                self.forget(name);
                return Next::Done.into();
            }
            Err(problem) => {
                // That does not concern the record as it was checked before.
                self.records.entry(name, |known| known.schedule.begin(Inputs::default()));
                return self.failed(name, &problem).into();
            }
        };
        let inputs = inputs(&object);
        if let Some(left) = self.records.get(name, |known| known.schedule.remaining(inputs, || ())) {
            return Next::After(left).into();
        }
        let attempt = self.records.entry(name, |known| known.schedule.begin(inputs));
        // Boxed, because the futures of removals are large.
        match within_limit(worker, Box::pin(self.check(&object, attempt > 1, worker))).await {
            // Nothing was tried yet.
            Ok(queued @ Outcome::Removal(_)) => queued,
            Ok(outcome) => {
                self.records.get(name, |known| known.schedule.succeeded());
                self.forget_if_idle(name, |known| known.reported.is_none());
                outcome
            }
            Err(problem) => self.failed(name, &problem).into(),
        }
    }

    /// Forgets a record that no longer exists.
    fn forget(&self, name: &str) {
        self.records.forget(name);
        self.ctx.orphans.gone(name);
    }

    /// Forgets a record of which there is nothing to remember.
    fn forget_if_idle(&self, name: &str, is_idle: impl Fn(&Checked) -> bool) {
        if self.records.get(name, |known| !known.is_queued && is_idle(known)) {
            self.records.forget(name);
        }
    }

    fn failed(&self, name: &str, problem: &Error) -> Next {
        if problem.is_race() {
            tracing::debug!(record = name, %problem, "somebody else wrote at the same time");
            return Next::After(BUSY);
        }
        let (wait, failures) = self.records.entry(name, |known| {
            let wait = known.schedule.failed(|n| backoff::delay(problem.class(), n, &mut rand::rng()));
            let longer = problem.retry_after().filter(|longer| *longer > wait);
            let wait = longer.map_or(wait, |longer| known.schedule.set_wait(longer));
            (wait, known.schedule.failures())
        });
        tracing::warn!(
            reason = problem.reason(),
            record = name,
            failures,
            "checking the ObjectBucket failed; retrying: {problem}"
        );
        Next::After(wait)
    }

    async fn check(&self, object: &ObjectBucket, again: bool, worker: Option<&Worker>) -> Result<Outcome, Error> {
        let ctx = &*self.ctx;
        let action = action::action(object);
        let mut stored = match codec::read(object) {
            Ok(stored) => stored,
            Err(problem) => {
                let forget = action == Ok(Some(Action::Forget));
                return self.check_damaged(object, &problem, forget).await.map(Outcome::from);
            }
        };
        let (claim, now) = (stored.record.claim.clone(), Timestamp::now());
        let present = self.present(&stored, action == Ok(Some(Action::Adopt))).await?;
        let facts = orphan::OrphanFacts {
            stored: &stored,
            action: &action,
            cluster: &ctx.cluster,
            present: present.as_ref(),
            refused: notice::is_refused(object),
            vanished: ctx.orphans.has_vanished(&claim.uid, stored.created),
            awaited: ctx.orphans.is_scheduled(&stored.name),
            now,
        };
        let due = orphan::due(&facts);
        let delete_at = match due {
            Due::Wait { until, .. } => Some(until),
            // One that is to be postponed counts as known only once that is written: until then it must not be deleted.
            Due::DeleteBucket => stored.release.as_ref().and_then(Release::delete_at),
            _ => None,
        };
        ctx.orphans.scheduled(&stored.name, delete_at);
        match due {
            Due::Nothing => {
                let refused = facts.refused.then_some(reasons::orphaned::ACTION_REFUSED);
                ctx.orphans.found(&stored.name, refused);
            }
            Due::Report(notice) if stored.deleted => {
                // The claim's own attempt may be deleting it.
                let Some(_busy) = ctx.memory.try_lock(&claim) else { return Ok(Next::After(BUSY).into()) };
                if let Some(object) = records::read(ctx, &stored.name).await? {
                    self.report(&object, notice).await?;
                }
            }
            Due::Report(notice) => drop(self.report(object, notice).await?),
            Due::Wait { notice, until } => {
                ctx.orphans.found(&stored.name, None);
                if let Some(notice) = notice {
                    self.report(object, notice).await?;
                }
                return Ok(Next::After(released::time_until(until, now)).into());
            }
            Due::Postpone { until, because } => {
                records::postpone(ctx, &mut stored, until).await?;
                tracing::warn!(
                    record = stored.name,
                    bucket = stored.record.plan.bucket,
                    "the deletion of the bucket is postponed to {until}, because {because}"
                );
                return Ok(Next::Now.into());
            }
            Due::Refuse(notice) => {
                self.report(object, notice).await?;
                records::remove_annotation(ctx, &mut stored).await?;
            }
            // The claim does that; every change of the record wakes it.
            Due::Adopt => {}
            Due::Forget => {
                records::delete(ctx, &stored.name, stored.uid.as_deref()).await?;
                tracing::info!(
                    record = stored.name,
                    bucket = stored.record.plan.bucket,
                    "deleted only this ObjectBucket, as its annotation requests; bucket and user are kept"
                );
            }
            due @ (Due::Remove | Due::DeleteBucket | Due::Revoke | Due::RevokeVanished) => match worker {
                Some(_) => return self.remove_orphan(object, stored, &due, again).await.map(Outcome::from),
                None => return Ok(Outcome::Removal(Queued::of(&stored, &due))),
            },
        }
        Ok(Next::Done.into())
    }

    /// The same for a damaged record. If its claim exists, the claim reports it.
    async fn check_damaged(&self, object: &ObjectBucket, problem: &Error, forget: bool) -> Result<Next, Error> {
        let (Some(uid), Some((namespace, name))) = (record::claim_uid(object), record::claim_name(object)) else {
            return Ok(Next::Done);
        };
        let id = ClaimId { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        if !claims::is_gone(&self.ctx, &Claim::gone(id)).await? {
            return Ok(Next::Done);
        }
        if forget {
            let metadata = &object.metadata;
            records::delete(&self.ctx, &record::name(object), metadata.uid.as_deref()).await?;
            tracing::info!(
                record = record::name(object),
                "deleted only this damaged ObjectBucket, as its annotation requests"
            );
        } else {
            self.report(object, notice::damaged(&problem.to_string())).await?;
        }
        Ok(Next::Done)
    }

    /// Returns the version of the ObjectBucket, if it was written.
    async fn report(&self, object: &ObjectBucket, notice: Notice) -> Result<Option<String>, Error> {
        let reason = notice.is_orphan().then_some(notice.reason);
        self.ctx.orphans.found(&record::name(object), reason);
        let (name, reported) = (record::name(object), (object.uid(), notice));
        if self.records.get(&name, |known| known.reported.as_ref() == Some(&reported)) {
            return Ok(None);
        }
        let version = records::report(&self.ctx, object, &reported.1).await?;
        self.records.entry(&name, |known| known.reported = Some(reported));
        Ok(version)
    }
}

/// While a call waits in the store's queue, other stores have the worker.
async fn within_limit<T>(worker: Option<&Worker>, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let limited = match worker {
        Some(worker) => AttemptClock::new(false, worker.throttled_counter()),
        None => AttemptClock::new(false, |_| {}),
    };
    engine::guarded(limited, TIME_LIMIT, work).await.unwrap_or_else(|interrupted| {
        Err(match interrupted {
            Interrupted::Panicked => Error::Panicked,
            Interrupted::Working | Interrupted::Waiting => Error::TimedOut(TIME_LIMIT.as_secs()),
        })
    })
}
