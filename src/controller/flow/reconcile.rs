//! One claim, from what is known of it to what is due. This file is the table of contents of the operator: each step
//! says whether it reads, decides or writes, and stands in the file of its name.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kube::ResourceExt as _;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use tracing::Instrument as _;

use super::next::{BUSY, Next};
use super::steady::due_while_steady;
use super::{problem, provide, teardown, turn};
use crate::controller::decide::claim::{Claim, Guarded, wanted};
use crate::controller::decide::gate::{self, Due};
use crate::controller::decide::plan;
use crate::controller::decide::steps::Upkeep;
use crate::controller::error::Error;
use crate::controller::objects::{classes, conditions};
use crate::controller::state::context::Context;
use crate::controller::state::memory::Inputs;
use crate::provisioner::{Failure as _, Provisioner};

/// Longest time one reconcile may take; kube's client has no read timeout of its own. What is cut off
/// half-way is finished by the next attempt.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Brings one claim to where it should be, or says on it why that is not possible now.
///
/// Never fails: a failure is the claim's own, is reported on the claim, and is retried with backoff.
pub(crate) async fn reconcile<P: Provisioner>(
    guarded: Arc<Guarded>,
    ctx: Arc<Context<P>>,
) -> Result<Action, Infallible> {
    ctx.caches.filled().await;

    // 1. The claim as the cache shows it, unless the operator has written it since. (reads)
    let claim = Claim::read(&guarded, &ctx.label);
    if ctx.memory.is_stale(&claim.id, claim.resource_version.as_deref()) {
        return Ok(Action::await_change());
    }
    conditions::learn(&ctx, &claim).await;

    // 2. A bound claim that is as it was left needs nothing until upkeep is due. (decides)
    if let Some((Upkeep::Nothing, wait)) = due_while_steady(&ctx, &claim) {
        return Ok(rest(&ctx, &claim, wait));
    }

    // 3. A claim that waits goes on waiting, unless what it asks for has changed. (decides)
    if let Some(left) = ctx.memory.if_known(&claim.id, |m| m.waits.left(&inputs(&claim))) {
        return Ok(Action::requeue(left));
    }

    // 4. Its turn, and the claim as it is by then. (reads)
    let Some((claim, worker)) = turn::worker(&ctx, claim, &guarded).await else { return Ok(Action::await_change()) };

    // 5. One attempt at what is due. (writes)
    let attempt = ctx.memory.with(&claim.id, |m| m.waits.attempt(inputs(&claim)));
    let span = tracing::info_span!("claim", claim = %claim.id, attempt);
    // Boxed: whoever waits for a worker has no room for it.
    let next = Box::pin(run_guarded(&ctx, claim.clone())).instrument(span).await;
    drop(worker);
    forget_if_gone(&ctx, &claim, &guarded);

    // 6. What follows. If nothing was written, no watch brings the claim back when upkeep is due. (decides)
    if next != Next::Done {
        return Ok(next.into());
    }
    Ok(match due_while_steady(&ctx, &claim) {
        None => Action::await_change(),
        Some((Upkeep::Nothing, wait)) => rest(&ctx, &claim, wait),
        // Not at once: what the caches show may be older than the attempt.
        Some(_) => Action::requeue(Duration::from_secs(1)),
    })
}

/// Runs one attempt within its limits and deals with its failure.
async fn run_guarded<P: Provisioner>(ctx: &Context<P>, claim: Claim) -> Next {
    let Some(_guard) = ctx.memory.try_lock(&claim.id) else { return Next::After(BUSY) };
    let attempt = AssertUnwindSafe(dispatch(ctx, claim.clone())).catch_unwind();
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
    let wait = ctx.memory.with(&claim.id, |m| m.waits.failed(problem.class()));
    if problem.is_race() {
        tracing::debug!(%problem, ?wait, "somebody else wrote at the same time");
    } else {
        tracing::debug!(reason = problem.reason(), ?wait, "{problem}");
        problem::report(ctx, &claim, &problem).await;
    }
    Next::After(wait)
}

/// What is due, and who does it.
async fn dispatch<P: Provisioner>(ctx: &Context<P>, claim: Claim) -> Result<Next, Error> {
    // 1. The claim's class. (reads)
    let class = classes::of_claim(ctx, &claim).await?;
    // 2. Whose the claim is, and what is due. (decides)
    match gate::due(turn::facts(ctx, &claim, &class)) {
        Due::Nothing => {
            ctx.memory.forget(&claim.id.uid);
            Ok(Next::Done)
        }
        Due::ReportMissingClass => Err(plan::no_class(&class, &claim)),
        // 3. The way there, or the way back. (writes) Boxed: in one piece, their layout is too deep for the compiler.
        Due::Bucket => Box::pin(provide::provide(ctx, claim, &class)).await,
        Due::Removal => Box::pin(teardown::remove(ctx, &claim, &class)).await,
    }
}

/// Leaves a claim alone until something changes, or upkeep is due. The memory keeps the time: an entry of kube's
/// scheduler takes more of it than all that is remembered of a bound claim.
fn rest<P>(ctx: &Context<P>, claim: &Claim, wait: Option<Duration>) -> Action {
    ctx.memory.with(&claim.id, |m| m.upkeep.recheck_in(wait));
    Action::await_change()
}

/// Our own last writes of a claim may come after the watch has shown that it is gone.
fn forget_if_gone<P>(ctx: &Context<P>, claim: &Claim, guarded: &Guarded) {
    let shown = ctx.caches.claims.get(&ObjectRef::from_obj(guarded));
    if shown.is_none_or(|shown| shown.uid().as_ref() != Some(&claim.id.uid)) {
        ctx.memory.forget(&claim.id.uid);
    }
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
