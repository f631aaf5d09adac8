//! Flows in which one call to the store fails: for each of its calls on a stage of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::faults::Fault;
use super::{block_on, run_on_stage};
use crate::backend::{Ability, Backend};
use crate::base::report;
use crate::proxy::{Call, Proxy, Upstream, Verdict};
use crate::stage::Stage;
use crate::world::{phase, ready, seen};
use bucket_provisioner::api::{ClaimPhase, ConditionStatus, ObjectBucketClaim, wire};

/// How many stages there are at the same time.
const AT_ONCE: usize = 6;

/// Which calls to the store fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    Reads,
    Changes,
}

/// How often a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    Always,
}

/// The call that fails: the `at`th of those that differ, from 0.
#[derive(Debug, Clone)]
pub(super) struct Step {
    at: usize,
    calls: Calls,
    failed: Arc<AtomicUsize>,
}

impl Step {
    /// The step that every check can have whose store makes more than one call.
    pub(super) fn second() -> Self {
        Self::new(1, Calls::Changes)
    }

    fn new(at: usize, calls: Calls) -> Self {
        Self { at, calls, failed: Arc::default() }
    }

    /// Has it fail from now on.
    pub(super) fn fail<B: Backend>(&self, stage: &Stage<B>, times: Times, fault: Fault) {
        let (step, mut names) = (self.clone(), Vec::new());
        stage.store().inject(move |call: &Call| {
            if call.mutates != (step.calls == Calls::Changes) {
                return Verdict::Pass;
            }
            let at = names.iter().position(|name| *name == call.name).unwrap_or_else(|| {
                names.push(call.name.clone());
                names.len() - 1
            });
            if at != step.at || (times == Times::Once && step.failed() > 0) {
                return Verdict::Pass;
            }
            step.failed.fetch_add(1, Ordering::SeqCst);
            fault.verdict()
        });
    }

    /// How often it has failed.
    pub(super) fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }
}

/// Runs a flow on a stage of its own for each call that it makes: until one does not come.
pub(super) fn at_each_step<B: Backend>(
    make: &impl AsyncFn() -> B,
    needs: &[Ability],
    calls: Calls,
    flow: impl AsyncFn(&Stage<B>, &Step),
) {
    let flow = &flow;
    let needs = &[needs, &[Ability::Http]].concat();
    block_on(async {
        for first in (0..).step_by(AT_ONCE) {
            let steps: Vec<_> = (first..first + AT_ONCE).map(|at| Step::new(at, calls)).collect();
            let runs = steps.iter().map(|step| {
                let run = run_on_stage(make, needs, async |stage: &Stage<B>| flow(stage, step).await);
                // Each to its end, so that each clears away what it made.
                AssertUnwindSafe(run).catch_unwind()
            });
            let outcomes = futures::future::join_all(runs).await;
            if let Some(panic) = outcomes.into_iter().find_map(Result::err) {
                std::panic::resume_unwind(panic);
            }
            if steps.iter().any(|step| step.failed() == 0) {
                return;
            }
        }
    });
}

/// Reasons of a claim on which the operator works, and which has not failed.
const PROGRESS: [&str; 4] = ["Purging", "Removing", "Settling", "WaitingForCredentials"];

/// Whether the Ready condition of a claim is False because something has failed.
pub(super) fn is_unready(claim: &ObjectBucketClaim) -> bool {
    let has_failed = |reason: &str| !PROGRESS.contains(&reason);
    ready(claim).is_some_and(|ready| ready.status == ConditionStatus::False && has_failed(&ready.reason))
}

impl<B: Backend> Stage<B> {
    /// Waits until a claim is bound, and fails at once if it cannot be.
    pub(super) async fn wait_bound_or_failed(&self, claim: &str) {
        let is_over = |claim: &ObjectBucketClaim| matches!(phase(claim), Some(ClaimPhase::Bound | ClaimPhase::Failed));
        let over = self.world.wait_claim(claim, "bound", is_over).await;
        assert_eq!(phase(&over), Some(ClaimPhase::Bound), "claim {claim} is not bound");
    }

    /// Waits until a deleted claim no longer exists, or has failed; whether it exists. `since`:
    /// what must have happened before the condition counts.
    pub(super) async fn is_kept(&self, claim: &str, since: impl Fn() -> bool) -> bool {
        let is_over = |claim: Option<&ObjectBucketClaim>| {
            claim.is_none_or(|claim| claim.metadata.deletion_timestamp.is_some() && is_unready(claim) && since())
        };
        let waited = seen(&self.world.claims(), claim, is_over).await;
        waited.unwrap_or_else(|_| panic!("claim {claim} still exists, and no condition shows why")).is_some()
    }

    /// Requires that the store holds nothing of this stage.
    pub(super) async fn assert_store_empty(&self, what: &str) {
        let left = self.inventory().await;
        assert!(left.is_empty(), "{what}: {left:#?}");
    }

    /// Has the operator make another attempt for a claim. A value that was not used before.
    pub(super) async fn retry(&self, claim: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { wire::annotation::RETRY: value } } });
        self.world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Has the operator make two more attempts for a claim whose `step` fails: the first is over when the second begins.
    pub(super) async fn attempt_again(&self, claim: &str, step: &Step) {
        for attempt in ["first", "second"] {
            let before = step.failed();
            self.retry(claim, attempt).await;
            self.store().wait_until("another attempt", |_| step.failed() > before).await;
        }
    }

    /// Has the operator check a bound claim in the store twice: the first check is over when the second begins.
    pub(super) async fn check(&self, claim: &str, value: &str) {
        self.forget_store_calls();
        self.retry(claim, &format!("{value}-1")).await;
        self.store().wait_until("a check of the claim", |calls| !calls.is_empty()).await;
        let first = self.store().names().swap_remove(0);
        let begun = |calls: &[Call]| calls.iter().filter(|call| call.name == first).count();
        let before = begun(&self.store().calls());
        self.retry(claim, &format!("{value}-2")).await;
        self.store().wait_until("another check of the claim", |calls| begun(calls) > before).await;
    }

    /// The name of the only user that the store holds of this stage; `None`, which is reported, if claims have none.
    pub(super) async fn only_user(&self) -> Option<String> {
        let user = self.inventory().await.users.into_keys().next();
        if user.is_none() {
            report("skipped, because claims have no user of their own");
        }
        user
    }
}

/// Has all calls to the store fail from now on.
pub(super) fn fail_all(store: &Proxy<Arc<dyn Upstream>>, fault: Fault) {
    store.inject(move |_: &Call| fault.verdict());
}
