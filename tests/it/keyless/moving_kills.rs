//! The operator is killed while a claim moves to access without keys, and when its previous access ends.

use bucket_provisioner::api::ObjectBucket;
use rstest::rstest;

use super::kills::{When, at_each_call, hold};
use super::moving::{CLAIM, Keyed, edit, end_grace, set_back, wait_over};
use super::{keyless, pod, policies, role};
use crate::support::operator::Binary;
use crate::support::proxy::Gate;
use crate::support::{World, condition, seen};

/// Where the operator is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Aws,
    Kubernetes,
}

/// Apps that run have access all the time, and nothing is left. The number: more than the calls that change something.
#[rstest]
#[case::of_aws(At::Aws, 5)]
#[case::of_kubernetes(At::Kubernetes, 16)]
#[tokio::test(flavor = "multi_thread")]
async fn a_move_survives_a_crash_at_each_call(#[case] at: At, #[case] most: usize) {
    at_each_call(&format!("moving {at:?}"), most, |number, when| move_and_kill(at, number, when)).await;
}

/// The same at the calls when the grace period is over.
#[rstest]
#[case::of_aws(At::Aws, 5)]
#[case::of_kubernetes(At::Kubernetes, 4)]
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_grace_period_survives_a_crash(#[case] at: At, #[case] most: usize) {
    at_each_call(&format!("moved {at:?}"), most, |number, when| end_and_kill(at, number, when)).await;
}

/// A claim whose class has changed, and the operator that serves it.
async fn edited() -> (World, Keyed, Binary) {
    let (world, class) = keyless(&["web"]).await;
    let operator = Binary::start(&world, &[], &[]);
    let keyed = Keyed::bind(&world).await;
    edit(&world, &class, "web").await;
    world.wait_claim(CLAIM, "reported", |claim| condition(claim, "UpToDate").is_some()).await;
    (world, keyed, operator)
}

fn hold_at(world: &World, at: At, number: usize, when: When) -> Gate {
    match at {
        At::Aws => hold(&world.aws, number, when),
        At::Kubernetes => hold(&world.kubernetes, number, when),
    }
}

/// Kills the operator at the call that is held, or when all is done, if there is none; and starts another one.
async fn kill(world: &World, operator: Binary, gate: Gate, done: impl Future<Output = ()>) -> (bool, Binary) {
    let was_reached = tokio::select! {
        reached = gate.reached() => reached,
        () = done => false,
    };
    operator.kill().await;
    world.aws.leave_alone();
    world.kubernetes.leave_alone();
    gate.open();
    (was_reached, Binary::start(world, &[], &[]))
}

/// Waits until apps have the new access, and the admin's annotation is removed.
async fn wait_moved(world: &World, record: &str) {
    let is_published = |record: Option<&ObjectBucket>| {
        let state = record.and_then(|record| record.spec.additional_state.as_ref());
        state.and_then(|state| state.get("previousAccess")).is_some_and(|previous| previous.contains("endsAt"))
    };
    seen(&world.records(), record, is_published).await.expect("the claim is moved");
    world.wait_action_removed(record).await;
}

async fn move_and_kill(at: At, number: usize, when: When) -> bool {
    let (world, keyed, operator) = edited().await;
    let gate = hold_at(&world, at, number, when);
    world.set_action(&keyed.record, "adopt").await;
    let (was_reached, operator) = kill(&world, operator, gate, wait_moved(&world, &keyed.record)).await;
    let at = format!("call {number} of {at:?}, {when:?}");
    keyed.app.put(&keyed.bucket, "meanwhile").await.expect(&at);
    wait_moved(&world, &keyed.record).await;
    keyed.app.put(&keyed.bucket, "by a pod that still runs").await.expect(&at);
    end_grace(&world, &keyed.record).await;
    leaves_nothing(&world, &keyed, operator, &at).await;
    was_reached
}

async fn end_and_kill(at: At, number: usize, when: When) -> bool {
    let (world, keyed, operator) = edited().await;
    world.set_action(&keyed.record, "adopt").await;
    wait_moved(&world, &keyed.record).await;
    world.wait_event(CLAIM, "AccessMoved").await;
    let gate = hold_at(&world, at, number, when);
    set_back(&world, &keyed.record).await;
    let (was_reached, operator) = kill(&world, operator, gate, wait_over(&world, &keyed.record)).await;
    wait_over(&world, &keyed.record).await;
    leaves_nothing(&world, &keyed, operator, &format!("call {number} of {at:?}, {when:?}")).await;
    was_reached
}

/// The claim has only its new access, and nothing is left when it is deleted.
async fn leaves_nothing(world: &World, keyed: &Keyed, operator: Binary, at: &str) {
    assert!(world.account.users_with(&keyed.uid).await.is_empty(), "{at}");
    assert!(world.secret_entries(CLAIM).await.is_empty(), "{at}");
    pod(world, CLAIM, "web").await.put(&keyed.bucket, "by a new pod").await.expect(at);
    let role = role(world, CLAIM).await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert_eq!(policies(world, &role).await, None, "{at}");
    assert!(!world.account.bucket_exists(&keyed.bucket).await, "{at}");
    operator.kill().await;
}
