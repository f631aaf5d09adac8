//! Flows in which one call to the store fails: for each of its calls on a stage of its own.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::{FutureExt as _, StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::faults::Fault;
use super::{block_on, run_on_stage};
use crate::backend::{Ability, Backend};
use crate::base::report;
use crate::crash::step;
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

/// Which of the calls that differ.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Which {
    /// None: they are noted.
    None,
    /// The second one that comes.
    Second,
    /// The one that does this; calls that run concurrently come in any order.
    Named(String),
}

/// The call that fails.
#[derive(Debug, Clone)]
pub(super) struct Step {
    which: Which,
    calls: Calls,
    failed: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Step {
    /// The second call that changes something: the first one has succeeded.
    pub(super) fn second() -> Self {
        Self::new(Which::Second, Calls::Changes)
    }

    fn new(which: Which, calls: Calls) -> Self {
        Self { which, calls, failed: Arc::default(), seen: Arc::default() }
    }

    /// Has it fail from now on.
    pub(super) fn fail<B: Backend>(&self, stage: &Stage<B>, times: Times, fault: Fault) {
        let (wanted, id) = (self.clone(), stage.world.id.clone());
        stage.store().inject(move |call: &Call| {
            if call.mutates != (wanted.calls == Calls::Changes) {
                return Verdict::Pass;
            }
            let name = step(call, &id);
            let mut seen = wanted.seen.lock().unwrap();
            if !seen.contains(&name) {
                seen.push(name.clone());
            }
            let is_wanted = match &wanted.which {
                Which::None => false,
                Which::Second => seen.get(1) == Some(&name),
                Which::Named(wanted) => *wanted == name,
            };
            if !is_wanted || (times == Times::Once && wanted.failed() > 0) {
                return Verdict::Pass;
            }
            wanted.failed.fetch_add(1, Ordering::SeqCst);
            fault.verdict()
        });
    }

    /// How often it has failed.
    pub(super) fn failed(&self) -> usize {
        self.failed.load(Ordering::SeqCst)
    }
}

/// Runs a flow in which nothing fails, and then on a stage of its own for each call that it has made.
pub(super) fn at_each_step<B: Backend>(
    make: &impl AsyncFn() -> B,
    needs: &[Ability],
    calls: Calls,
    flow: impl AsyncFn(&Stage<B>, &Step),
) {
    let flow = &flow;
    let needs = &[needs, &[Ability::Http]].concat();
    let run = |step: Step| async move {
        let run = run_on_stage(make, needs, async |stage: &Stage<B>| flow(stage, &step).await);
        // Each to its end, so that each clears away what it made.
        let outcome = AssertUnwindSafe(run).catch_unwind().await;
        (step, outcome)
    };
    block_on(async {
        let (undisturbed, mut outcome) = run(Step::new(Which::None, calls)).await;
        if outcome.is_ok() {
            let seen = undisturbed.seen.lock().unwrap().clone();
            let steps = seen.into_iter().map(|name| run(Step::new(Which::Named(name), calls)));
            let outcomes: Vec<_> = stream::iter(steps).buffer_unordered(AT_ONCE).collect().await;
            outcome = outcomes.into_iter().try_for_each(|(_, outcome)| outcome);
        }
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Reasons of a claim on which the operator works, and which has not failed.
const PROGRESS: [&str; 6] = ["Pending", "Provisioning", "Purging", "Removing", "Settling", "WaitingForCredentials"];

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
