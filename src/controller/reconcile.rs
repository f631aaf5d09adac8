//! One claim, from what is known of it to what is due. This file is the table of contents of the operator:
//! each step is a function in the file of its name.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use tracing::Instrument as _;

use super::claim::{Claim, Guarded, ignored, wanted};
use super::context::Context;
use super::error::Error;
use super::gate::{self, Due, Facts};
use super::memory::Inputs;
use super::objects::conditions;
use super::plan;
use super::report::{self, Report};
use super::resolve::{self, Class, ClassLookup};
use super::state::conditions::Keeps;
use super::state::workers::{self, Lane, Worker};
use super::steps::Upkeep;
use super::{provide, teardown, upkeep};
use crate::provisioner::{Failure as _, Provisioner};

/// Longest time one reconcile may take; kube's client has no read timeout of its own. What is cut off
/// half-way is finished by the next attempt.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Longest time to tell a claim why that did not succeed.
const TELL_LIMIT: Duration = Duration::from_secs(20);

/// Who waits for a worker for so long is looked at again, and told why.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for whoever works on the same claim.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

/// What follows a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something changes.
    Rest,
    /// The next piece of the same work, after others had their turn.
    Now,
    /// Another look after a while.
    After(Duration),
}

impl From<Next> for Action {
    fn from(next: Next) -> Self {
        match next {
            Next::Rest => Self::await_change(),
            Next::Now => Self::requeue(Duration::ZERO),
            Next::After(wait) => Self::requeue(wait),
        }
    }
}

/// Brings one claim to where it should be, or says on it why that is not possible now.
///
/// Never fails: a failure is the claim's own, is told on the claim, and is tried again with backoff.
pub(crate) async fn reconcile<P: Provisioner>(
    guarded: Arc<Guarded>,
    ctx: Arc<Context<P>>,
) -> Result<Action, Infallible> {
    ctx.caches.filled().await;
    let claim = Claim::read(&guarded, &ctx.label);
    if ctx.memory.is_stale(&claim.id, claim.resource_version.as_deref()) {
        return Ok(Action::await_change());
    }
    conditions::learn(&ctx, &claim).await;
    if let Some((Upkeep::Nothing, wait)) = due_while_steady(&ctx, &claim) {
        return Ok(rest(&ctx, &claim, wait));
    }
    let inputs = inputs(&claim);
    if let Some(left) = ctx.memory.wait_left(&claim.id, &inputs) {
        return Ok(Action::requeue(left));
    }
    let Some((claim, worker)) = a_worker(&ctx, claim, &guarded).await else { return Ok(Action::await_change()) };
    let attempt = ctx.memory.attempt(&claim.id, self::inputs(&claim));
    let span = tracing::info_span!("claim", claim = %claim.id, attempt);
    // Boxed: whoever waits for a worker has no room for it.
    let next = Box::pin(attend(&ctx, claim.clone())).instrument(span).await;
    drop(worker);
    // Our own last writes of a claim may come after the watch has shown that it is gone.
    if ctx
        .caches
        .claims
        .get(&ObjectRef::from_obj(&*guarded))
        .is_none_or(|shown| shown.uid().as_ref() != Some(&claim.id.uid))
    {
        ctx.memory.forget(&claim.id.uid);
    }
    if next != Next::Rest {
        return Ok(next.into());
    }
    // If nothing was written, no watch brings the claim back when upkeep is due.
    Ok(match due_while_steady(&ctx, &claim) {
        None => Action::await_change(),
        Some((Upkeep::Nothing, wait)) => rest(&ctx, &claim, wait),
        // Not at once: what the caches show may be older than the attempt.
        Some(_) => Action::requeue(Duration::from_secs(1)),
    })
}

/// Waits for a worker, and reads the claim again, as that may take long. `None` if there is nothing to do any more, or the
/// operator ends.
async fn a_worker<P: Provisioner>(ctx: &Context<P>, claim: Claim, guarded: &Guarded) -> Option<(Claim, Worker)> {
    let key = ObjectRef::from_obj(guarded);
    let mut claim = claim;
    loop {
        let lane = lane(ctx, &claim);
        let mut entering = std::pin::pin!(ctx.workers.enter(&lane));
        // Its turn is lost only if it is to be somewhere else by now.
        let worker = loop {
            if let Ok(worker) = tokio::time::timeout(PATIENCE, entering.as_mut()).await {
                break Some(worker?);
            }
            claim = Claim::read(ctx.caches.claims.get(&key)?.as_ref(), &ctx.label);
            if self::lane(ctx, &claim) != lane {
                break None;
            }
            // A worker that came and was not taken would be missed by all.
            tokio::select! {
                biased;
                worker = entering.as_mut() => break Some(worker?),
                () = Box::pin(explain_wait(ctx, &claim, &lane)) => {}
            }
        };
        if let Some(worker) = worker {
            let claim = Claim::read(ctx.caches.claims.get(&key)?.as_ref(), &ctx.label);
            return (!ctx.memory.is_stale(&claim.id, claim.resource_version.as_deref())).then_some((claim, worker));
        }
    }
}

/// Says on a claim of which nothing was said yet that it waits for a store which does not answer.
async fn explain_wait<P>(ctx: &Context<P>, claim: &Claim, lane: &Lane) {
    let is_news = match claim.bound() {
        true => claim.deleting && report::says_ready(claim, Keeps::No),
        false => claim.status.conditions.is_empty() && !ctx.memory.was_told(&claim.id),
    };
    if !is_news || !ctx.workers.is_struck(&lane.store) {
        return;
    }
    let Some(class) = cached_class(ctx, claim) else { return };
    if matches!(gate::due(facts(ctx, claim, &class)), Due::Nothing | Due::Explanation) {
        return;
    }
    let Ok(_turn) = ctx.tellers.acquire().await else { return };
    let problem = Error::StoreSilent { store: lane.store.split(' ').next().unwrap_or_default().to_owned() };
    match tokio::time::timeout(TELL_LIMIT, tell(ctx, claim, &problem)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, claim = %claim.id, "the claim could not be told: {problem}"),
        Err(_elapsed) => tracing::debug!(claim = %claim.id, "the claim could not be told in time: {problem}"),
    }
}

/// With whom a claim waits for a worker: by its record, or else by what would be recorded.
fn lane<P: Provisioner>(ctx: &Context<P>, claim: &Claim) -> Lane {
    let name = &ctx.options.provisioner_name;
    let recorded = ctx.caches.record(claim, name, &ctx.cluster).map(|stored| stored.record);
    let planned = || match cached_class(ctx, claim)? {
        ClassLookup::Found(class) if class.provisioner == *name => {
            plan::record(&ctx.provisioner, claim, &class, &ctx.cluster, false).ok()
        }
        _ => None,
    };
    let store = recorded.or_else(planned).map_or_else(|| Arc::from(""), |record| workers::store_of(&record));
    Lane { store, namespace: claim.id.namespace.as_str().into() }
}

/// The class of a claim that can be read, as the cache shows it.
fn cached_class<P>(ctx: &Context<P>, claim: &Claim) -> Option<ClassLookup> {
    let name = claim.spec().ok()?.storage_class_name.clone();
    Some(match ctx.caches.classes.get(None, &name) {
        Some(class) => ClassLookup::Found(Class::read(&class)),
        None => ClassLookup::Missing { name },
    })
}

/// Leaves a claim alone until something changes, or upkeep is due. The memory keeps the time: an entry of kube's
/// scheduler takes more of it than all that is remembered of a bound claim.
fn rest<P>(ctx: &Context<P>, claim: &Claim, wait: Option<Duration>) -> Action {
    ctx.memory.look_in(&claim.id, wait);
    Action::await_change()
}

/// What upkeep is due for a bound claim that is as it was left, and how long none is; `None` for any other claim.
/// Answered from the caches, with no call and no write.
fn due_while_steady<P>(ctx: &Context<P>, claim: &Claim) -> Option<(Upkeep, Option<Duration>)> {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster)?;
    let spec = claim.spec().ok()?;
    let keeps = report::keeps(ctx, stored.author);
    let stands = !claim.deleting
        && claim.finalizer
        && stored.says_bound
        && !stored.is_being_adopted()
        && spec.object_bucket_name.as_deref() == Some(&stored.name)
        && report::says_bound(claim, &ignored(spec, &stored.record), keeps)
        && ctx.caches.outputs_stand(&claim.id);
    if !stands {
        return None;
    }
    let notes = ctx.caches.key_notes(&claim.id).believed(&stored.record.plan.rotation, Timestamp::now());
    ctx.shares_present_keys(&stored.record, &notes).then(|| upkeep::due(ctx, claim, &stored, &notes))
}

fn inputs(claim: &Claim) -> Inputs {
    let spec = claim.spec().ok();
    Inputs {
        class_name: spec.map(|spec| spec.storage_class_name.clone()),
        bucket: spec.and_then(|spec| wanted(spec, &claim.id.uid).ok()),
        deleting: claim.deleting,
        retry: claim.retry_request.clone(),
    }
}

/// Runs one attempt within its limits and deals with its failure.
async fn attend<P: Provisioner>(ctx: &Context<P>, claim: Claim) -> Next {
    let Some(_busy) = ctx.memory.occupy(&claim.id) else { return Next::After(BUSY) };
    let attempt = AssertUnwindSafe(drive(ctx, claim.clone())).catch_unwind();
    let outcome = match tokio::time::timeout(TIME_LIMIT, attempt).await {
        Ok(Ok(outcome)) => outcome,
        // One claim's bug must not take the operator, and every other claim, down with it.
        Ok(Err(_panic)) => Err(Error::Panicked(claim.id.clone())),
        Err(_elapsed) => Err(Error::TimedOut(TIME_LIMIT.as_secs())),
    };
    let problem = match outcome {
        Ok(next) => return next,
        Err(problem) => problem,
    };
    let wait = ctx.memory.failed(&claim.id, problem.class());
    if problem.is_race() {
        tracing::debug!(%problem, ?wait, "somebody else wrote at the same time");
        return Next::After(wait);
    }
    tracing::debug!(reason = problem.reason(), ?wait, "{problem}");
    match tokio::time::timeout(TELL_LIMIT, tell(ctx, &claim, &problem)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the claim could not be told: {problem}"),
        Err(_elapsed) => tracing::warn!("the claim could not be told in time: {problem}"),
    }
    Next::After(wait)
}

/// Tells the claim of a problem; as it is now if it is not as it was read.
async fn tell<P>(ctx: &Context<P>, claim: &Claim, problem: &Error) -> Result<(), Error> {
    match report::tell(ctx, claim, &Report::problem(claim, problem)).await {
        Err(error) if error.is_race() => {}
        answer => return answer,
    }
    let found = ctx.claims_in(&claim.id.namespace).get_opt(&claim.id.name).await;
    let found = found.map_err(Error::kubernetes("read the claim"))?;
    match found.map(|found| Claim::read(&found, &ctx.label)).filter(|found| found.id == claim.id) {
        Some(now) => {
            ctx.memory.wrote(&now.id, now.resource_version.as_deref());
            report::tell(ctx, &now, &Report::problem(&now, problem)).await
        }
        None => Ok(()),
    }
}

fn facts<P>(ctx: &Context<P>, claim: &Claim, class: &ClassLookup) -> Facts {
    Facts {
        class: class.owner(&ctx.options.provisioner_name),
        label: claim.label,
        recorded: ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster).is_some(),
        finalizer: claim.finalizer,
        deleting: claim.deleting,
        bound: claim.bound(),
    }
}

/// What is due, and who does it.
async fn drive<P: Provisioner>(ctx: &Context<P>, claim: Claim) -> Result<Next, Error> {
    let class = resolve::class(ctx, &claim).await?;
    match gate::due(facts(ctx, &claim, &class)) {
        Due::Nothing => {
            ctx.memory.forget(&claim.id.uid);
            Ok(Next::Rest)
        }
        Due::Explanation => Err(plan::no_class(&class, &claim)),
        // Boxed: as part of this one, their layout would be too deep for the compiler.
        Due::Removal => Box::pin(teardown::remove(ctx, &claim, &class)).await,
        Due::Bucket => Box::pin(provide::provide(ctx, claim, &class)).await,
    }
}
