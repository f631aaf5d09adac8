//! The operator is killed while a claim is created and the other one of its ServiceAccount is deleted: the role is deleted with
//! the last policy, and is needed again. (For claims that are alone see `crash`.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, StreamExt as _};
use kube::ResourceExt as _;
use provisioner_conformance::sampled;

use super::{keyless, pod, policies, role, spec, wait_access};
use crate::support::operator::Binary;
use crate::support::proxy::{Call, Gate, Proxy, Upstream, Verdict};
use crate::support::{World, bucket_of};

/// More than the calls that change something.
const MOST: usize = 12;
/// How many operators run at the same time.
const AT_ONCE: usize = 6;

/// Whether the call reaches AWS before the operator is killed.
#[derive(Debug, Clone, Copy)]
pub(super) enum When {
    Before,
    After,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_policy_and_no_role_is_lost_or_left() {
    at_each_call("keyless", MOST, come_and_go).await;
}

/// Does this for each of the first calls that change something, and for both times; it returns whether there was such a call.
pub(super) async fn at_each_call<F>(name: &str, most: usize, run: impl Fn(usize, When) -> F)
where
    F: Future<Output = bool>,
{
    let mut points: Vec<_> = (0..most).flat_map(|number| [(number, When::Before), (number, When::After)]).collect();
    // Always: a sample may have only numbers beyond the last call.
    let first = points.remove(0);
    let runs = std::iter::once(first).chain(sampled(name, points)).map(|(number, when)| run(number, when));
    let reached: Vec<bool> = stream::iter(runs).buffer_unordered(AT_ONCE).collect().await;
    assert!(reached.contains(&true), "no call was reached");
}

/// Holds this call that changes something, or its answer. Leases do not count.
pub(super) fn hold<U: Upstream>(proxy: &Proxy<U>, number: usize, when: When) -> Gate {
    let (gate, made) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let held = gate.clone();
    let counts = |call: &Call| call.mutates && !call.target.contains("/leases");
    proxy.inject(move |call| match (counts(call) && made.fetch_add(1, Ordering::Relaxed) == number, when) {
        (false, _) => Verdict::Pass,
        (true, When::Before) => Verdict::Hold(held.clone()),
        (true, When::After) => Verdict::HoldAnswer(held.clone()),
    });
    gate
}

/// Kills the operator at the call that is held; or when all has settled, if there is none. Returns whether there was one.
pub(super) async fn kill(world: &World, operator: Binary, gate: Gate) -> bool {
    let was_reached = tokio::select! {
        reached = gate.reached() => reached,
        () = settled(world) => false,
    };
    operator.kill().await;
    world.aws.leave_alone();
    gate.open();
    was_reached
}

/// Kills the operator at this call that changes something in AWS; returns whether there was one.
async fn come_and_go(number: usize, when: When) -> bool {
    let (world, class) = keyless(&["web"]).await;
    let operator = Binary::start(&world, &[], &[]);
    world.claim_with("gone", spec(&class, "web")).await;
    world.wait_bound("gone").await;
    world.wait_event("gone", "Bound").await;
    let shared = role(&world, "gone").await;

    let gate = hold(&world.aws, number, when);
    let created = world.claim_with("photos", spec(&class, "web"));
    let (created, ()) = tokio::join!(created, world.delete_claim("gone"));
    let was_reached = kill(&world, operator, gate).await;

    let operator = Binary::start(&world, &[], &[]);
    settled(&world).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let at = format!("call {number}, {when:?}");
    let wanted = vec![format!("photos-{}", created.uid().unwrap())];
    assert_eq!(policies(&world, &shared).await, Some(wanted), "{at}");
    wait_access(&world, &bucket).await;
    pod(&world, "photos", "web").await.put(&bucket, "precious").await.expect(&at);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(policies(&world, &shared).await, None, "{at}");
    operator.kill().await;
    was_reached
}

pub(super) async fn settled(world: &World) {
    world.wait_gone("gone").await;
    world.wait_bound("photos").await;
}
