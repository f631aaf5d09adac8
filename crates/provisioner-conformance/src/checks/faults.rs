//! Calls that fail, once each and in every way; and a store that is away.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;

use super::{block_on, run, run_on_stage};
use crate::backend::{Ability, Backend};
use crate::proxy::{Call, Proxy, Upstream, Verdict};
use crate::stage::Stage;
use crate::world::{phase, ready};
use bucket_provisioner::api::{ClaimPhase, ConditionStatus, ObjectBucketClaim};

/// How a call fails.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    /// The call does not reach the server.
    Reset,
    /// The server does what was asked, and its answer is lost.
    LoseAnswer,
    /// The server answers with this status.
    Status(u16),
    /// The same after a while, so that calls that the operator makes concurrently are done by then.
    SlowStatus(u16),
}

/// Longer than a few calls take. A store that waits as it has to passes with any time.
const SLOW: Duration = Duration::from_secs(2);

impl Fault {
    pub(super) fn verdict(self) -> Verdict {
        match self {
            Self::Reset => Verdict::Reset,
            Self::LoseAnswer => Verdict::LoseAnswer,
            Self::Status(code) | Self::SlowStatus(code) => {
                // Like the servers' own answers, each has an id.
                let message = format!("this call was failed by the kit (request {:016x})", rand::random::<u64>());
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
                    "message": message,
                });
                match self {
                    Self::SlowStatus(_) => Verdict::AnswerLater(SLOW, code, status.to_string()),
                    _ => Verdict::Answer(code, status.to_string()),
                }
            }
        }
    }
}

/// The number of claims over which the failing calls are spread: each failure in a row doubles the wait for the next attempt.
const LIVES: usize = 3;

/// Has every third call that changes something fail when it comes for the first time.
fn fail_some_once(proxy: &Proxy<impl Upstream>, fault: Fault, life: usize, failed: &Arc<AtomicUsize>) {
    let (mut seen, failed) = (BTreeSet::new(), Arc::clone(failed));
    proxy.inject(move |call: &Call| {
        let is_new = call.mutates && !call.name.ends_with(" events") && seen.insert(call.name.clone());
        if !is_new || seen.len() % LIVES != life {
            return Verdict::Pass;
        }
        failed.fetch_add(1, Ordering::SeqCst);
        fault.verdict()
    });
}

/// For each fault, lives on a stage of its own in which calls fail.
fn live_with<B: Backend>(
    make: &impl AsyncFn() -> B,
    needs: &[Ability],
    faults: &[Fault],
    fail: impl Fn(&Stage<B>, Fault, usize, &Arc<AtomicUsize>),
) {
    let fail = &fail;
    let lives = |fault: Fault| async move {
        let failed = Arc::new(AtomicUsize::new(0));
        run_on_stage(make, needs, async |stage: &Stage<B>| {
            let class = stage.greenfield().await;
            let _operator = stage.start();
            for life in 0..LIVES {
                fail(stage, fault, life, &failed);
                live(stage, &class, &format!("claim-{life}")).await;
            }
            assert!(failed.load(Ordering::SeqCst) > 0, "no call came that could fail: do operators use the proxy?");
        })
        .await;
    };
    // Each to its end, so that each clears away what it made.
    let lives = faults.iter().map(|fault| AssertUnwindSafe(lives(*fault)).catch_unwind());
    block_on(async {
        let outcomes = futures::future::join_all(lives).await;
        if let Some(panic) = outcomes.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Binds a claim, uses its bucket, and deletes the claim.
async fn live<B: Backend>(stage: &Stage<B>, class: &str, claim: &str) {
    let world = &stage.world;
    let app = stage.bind(claim, class).await;
    world.wait_reason(claim, "Bound").await;
    stage.assert_usable(&app).await;
    if stage.can(Ability::Inventory) {
        let held = stage.inventory().await;
        assert!(held.buckets.keys().eq([&app["BUCKET_NAME"]]), "one bucket, not {held:?}");
        let keys: Vec<_> = held.users.values().flat_map(|user| &user.keys).collect();
        assert_eq!(keys, [&app["AWS_ACCESS_KEY_ID"]], "one key: {held:?}");
    }
    stage.unbind(claim).await;
    assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
}

/// Each call to Kubernetes that changes something fails once, in every way; the claim is bound, and nothing is created
/// twice or left.
pub fn failed_calls_to_kubernetes_are_retried<B: Backend>(make: &impl AsyncFn() -> B) {
    let faults = [Fault::Reset, Fault::LoseAnswer, Fault::Status(409), Fault::Status(429), Fault::Status(500)];
    live_with(make, &[Ability::Greenfield], &faults, |stage, fault, life, failed| {
        fail_some_once(&stage.world.kubernetes, fault, life, failed);
    });
}

/// The same with the calls to the store.
pub fn failed_calls_to_the_store_are_retried<B: Backend>(make: &impl AsyncFn() -> B) {
    let faults = [Fault::Reset, Fault::LoseAnswer, Fault::Status(429), Fault::Status(500), Fault::Status(503)];
    live_with(make, &[Ability::Greenfield, Ability::Http], &faults, |stage, fault, life, failed| {
        fail_some_once(stage.store(), fault, life, failed);
    });
}

/// If the store cannot be reached, the claim's condition reports it, and the operator retries.
pub fn an_unreachable_store_is_reported_and_retried<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Http], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let store = stage.store();
        store.down().await;
        let _operator = stage.start();
        stage.claim("photos", &class).await;
        let claim = world.wait_claim("photos", "given a Ready condition", |claim| ready(claim).is_some()).await;
        assert_eq!(
            phase(&claim),
            Some(ClaimPhase::Pending),
            "an unreachable store is not a permanent failure: {claim:?}"
        );
        let reason = ready(&claim).map(|ready| ready.reason.clone()).expect("a Ready condition");
        store.up();
        world.wait_bound("photos").await;
        stage.assert_usable(&world.environment("photos").await).await;
        store.down().await;
        world.delete_claim("photos").await;
        let is_reported = |claim: &ObjectBucketClaim| {
            claim.metadata.deletion_timestamp.is_some()
                && ready(claim).is_some_and(|ready| ready.reason == reason && ready.status == ConditionStatus::False)
        };
        world.wait_claim("photos", "reported as waiting for the store", is_reported).await;
        assert!(
            world.records().get_opt(&world.record_name("photos")).await.unwrap().is_some(),
            "the ObjectBucket is deleted before the bucket"
        );
        store.up();
        world.wait_gone("photos").await;
        assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
    });
}
