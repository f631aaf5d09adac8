//! One claim: find out what is due, and do it. This file is the table of contents of the operator: each step has a
//! comment whether it reads, decides or writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tracing::{Instrument as _, Span};

use super::in_sync::due_while_in_sync;
use super::next::{BUSY, Next};
use super::{new_keys, problem, provide, queue, step, takeover, teardown};
use crate::decide::backoff;
use crate::decide::claim::{Claim, Guarded};
use crate::decide::ownership::{self, RequiredAction};
use crate::decide::plan;
use crate::decide::steps::Upkeep;
use crate::error::Error;
use crate::objects::{classes, conditions};
use crate::state::context::Context;
use crate::state::memory::inputs;
use crate::state::stores;
use crate::store::{Failure as _, Provisioner};
use operator_runtime::engine::clock::AttemptClock;
use operator_runtime::engine::{self, Interrupted, Reconcile, Triggered, Urgency};

/// Longest time one attempt may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Does what is due for one claim. A failure is reported on the claim and retried with backoff.
pub(crate) fn reconcile<P: Provisioner>(
    ctx: &Arc<Context<P>>,
    object: &ObjectRef<Guarded>,
    triggered: &Triggered,
) -> Reconcile {
    // One that was deleted needs nothing.
    let Some(guarded) = ctx.caches.claims.get(object) else { return Reconcile::Later(None) };
    match ctx.caches.are_filled().then(|| answer_from_caches(ctx, &guarded, true)).flatten() {
        Some(next) => Reconcile::Later(next.wait()),
        None => Reconcile::Now(Box::pin(work(guarded, Arc::clone(ctx), triggered.clone()).map(Next::wait))),
    }
}

/// What the caches alone can answer. `Some`: nothing is due now. `may_learn`: a claim that would tell whether the CRD
/// keeps conditions is reconciled.
fn answer_from_caches<P>(ctx: &Context<P>, guarded: &Guarded, may_learn: bool) -> Option<Next> {
    // 1. The claim from the cache, unless the operator has written a newer version. (reads)
    let claim = Claim::read(guarded, &ctx.label);
    if ctx.memory.is_stale(&claim.id, claim.resource_version.as_deref()) {
        return Some(Next::Done);
    }
    // 2. A bound claim that has not changed needs nothing until upkeep is due. (decides)
    if is_in_sync(ctx, &claim, may_learn) {
        return Some(Next::Done);
    }
    // 3. A claim that waits continues to wait, unless its inputs have changed. (decides)
    let remaining = ctx.memory.get(&claim.id, |m| m.waits.remaining(inputs(&claim)))?;
    Some(Next::After(remaining))
}

/// Whether a bound claim needs nothing; then it is checked again when upkeep is due.
pub(crate) fn is_in_sync<P>(ctx: &Context<P>, claim: &Claim, may_learn: bool) -> bool {
    match due_while_in_sync(ctx, claim) {
        Some((Upkeep::Nothing, wait)) if !(may_learn && conditions::would_tell(ctx, claim)) => {
            ctx.memory.recheck_in(&claim.id, wait);
            true
        }
        _ => false,
    }
}

async fn work<P: Provisioner>(guarded: Arc<Guarded>, ctx: Arc<Context<P>>, triggered: Triggered) -> Next {
    // 4. What all decisions depend on, and then once more what the caches show. (reads)
    ctx.caches.filled().await;
    let claim = Claim::read(&guarded, &ctx.label);
    conditions::learn(&ctx, &claim).await;
    if let Some(next) = answer_from_caches(&ctx, &guarded, false) {
        return next;
    }

    // 5. A worker, and the claim as it is by then. (reads)
    let Some((claim, worker)) = queue::worker(&ctx, claim, &guarded, &triggered).await else { return Next::Done };

    // 6. One attempt at what is due. (writes)
    let attempt = ctx.memory.entry(&claim.id, |m| m.waits.attempt(inputs(&claim)));
    let span = tracing::info_span!("claim", claim = %claim.id, attempt);
    // Boxed, so that a claim that waits for a worker needs little memory.
    let clock = AttemptClock::new(worker.urgency() == Urgency::Check, worker.throttled_counter());
    let class = claim.spec().map(|spec| spec.storage_class_name.as_str()).unwrap_or_default();
    let traced = step::attempt("attempt", &claim.id, class);
    traced.record("attempt", attempt);
    let store = stores::host_of(worker.store()).to_owned();
    let next = Box::pin(run_guarded(&ctx, claim.clone(), clock, store, &traced));
    // The inner one is that of which the client of Kubernetes knows.
    let next = next.instrument(traced.clone()).instrument(span).await;
    drop(worker);
    forget_if_gone(&ctx, &claim, &guarded);

    // 7. New keys are tried until they work. (reads)
    let next = Box::pin(new_keys::wait(&ctx, &claim, &guarded, next)).await;

    // 8. When to reconcile again. If nothing was written, no watch event wakes the claim. (decides)
    if next != Next::Done {
        return next;
    }
    match due_while_in_sync(&ctx, &claim) {
        None => {
            // Nothing is remembered of a deleted claim.
            if let Some(wait) = takeover::upkeep_in(&ctx, &claim) {
                ctx.memory.recheck_in(&claim.id, Some(wait));
            }
            Next::Done
        }
        Some((Upkeep::Nothing, wait)) => {
            ctx.memory.recheck_in(&claim.id, wait);
            Next::Done
        }
        // Not at once, because the caches may be older than the attempt.
        Some(_) => Next::After(Duration::from_secs(1)),
    }
}

/// Runs one attempt, one at a time for each claim, and handles its timeout, panic or failure.
/// `store`: the store that it calls. `traced`: the attempt's span.
async fn run_guarded<P: Provisioner>(
    ctx: &Context<P>,
    claim: Claim,
    clock: AttemptClock,
    store: String,
    traced: &Span,
) -> Next {
    let Some(_guard) = ctx.memory.try_lock(&claim.id) else { return Next::After(BUSY) };
    let began = Instant::now();
    let outcome = match engine::guarded(clock, TIME_LIMIT, dispatch(ctx, claim.clone())).await {
        Ok(outcome) => outcome,
        Err(Interrupted::Panicked) => Err(Error::Panicked),
        Err(Interrupted::Working) => Err(Error::TimedOut(TIME_LIMIT.as_secs())),
        Err(Interrupted::Waiting) => Err(Error::StoreBusy { store }),
    };
    let result = match &outcome {
        Ok(_) => "done",
        Err(Error::Panicked) => "panic",
        Err(Error::TimedOut(_) | Error::StoreBusy { .. }) => "timeout",
        Err(problem) if problem.is_race() => "race",
        Err(_) => "failed",
    };
    ctx.options.observer.metrics().attempts.with([result]).observe(began.elapsed().as_secs_f64());
    traced.record("result", result);
    let problem = match outcome {
        Ok(next) => return next,
        Err(problem) => problem,
    };
    step::failed(traced, &problem);
    let wait = ctx.memory.entry(&claim.id, |m| match problem {
        Error::KeysInactive { .. } => m.waits.set_wait(backoff::keys_inactive(&mut rand::rng())),
        _ => {
            let wait = m.waits.failed(problem.class());
            // What ends soon may be followed by the next.
            problem.retry_after().filter(|longer| *longer > wait).map_or(wait, |longer| m.waits.set_wait(longer))
        }
    });
    if problem.is_race() {
        tracing::debug!(%problem, ?wait, "somebody else wrote at the same time");
    } else {
        tracing::debug!(reason = problem.reason(), ?wait, "{problem}");
        problem::report(ctx, &claim, &problem).await;
    }
    Next::After(wait)
}

/// Decides what is due, and does it.
async fn dispatch<P: Provisioner>(ctx: &Context<P>, claim: Claim) -> Result<Next, Error> {
    // 1. The claim's class. (reads)
    let class = classes::of_claim(ctx, &claim).await?;
    // 2. Whose the claim is, and what is due. (decides)
    match ownership::required_action(queue::facts(ctx, &claim, &class)) {
        RequiredAction::Nothing => {
            ctx.memory.forget(&claim.id.uid);
            Ok(Next::Done)
        }
        RequiredAction::ReportMissingClass => Err(plan::no_class(&class, &claim)),
        // 3. Provisioning or teardown. (writes) Boxed, because the compiler cannot compute the layout of both in one future.
        RequiredAction::Bucket => Box::pin(provide::provide(ctx, claim, &class)).await,
        RequiredAction::Removal => Box::pin(teardown::remove(ctx, &claim, &class)).await,
    }
}

/// Our last write of a claim may come after the watch has shown that it no longer exists.
fn forget_if_gone<P>(ctx: &Context<P>, claim: &Claim, guarded: &Guarded) {
    let shown = ctx.caches.claims.get(&ObjectRef::from_obj(guarded));
    if shown.is_none_or(|shown| shown.uid().as_ref() != Some(&claim.id.uid)) {
        ctx.memory.forget(&claim.id.uid);
    }
}
