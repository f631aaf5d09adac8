//! The operator is killed while a claim is created and the other one of its ServiceAccount is deleted: both change the same
//! association. (For claims that are alone see `crash`.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{self, StreamExt as _};
use provisioner_conformance::sampled;

use super::kills::{AT_ONCE, When, settled};
use super::pod_identity::{Stage, id_of};
use crate::support::operator::Binary;
use crate::support::proxy::{Gate, Verdict};
use crate::support::{PATIENCE, bucket_of};

/// More than the calls that change something.
const MOST: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_and_no_association_is_lost_or_left() {
    let points: Vec<_> = (0..MOST).flat_map(|number| [(number, When::Before), (number, When::After)]).collect();
    let runs = sampled("pods", points).into_iter().map(|(number, when)| come_and_go(number, when));
    let reached: Vec<bool> = stream::iter(runs).buffer_unordered(AT_ONCE).collect().await;
    assert!(reached.contains(&true), "no call was reached");
}

/// Kills the operator at this call that changes something in AWS; returns whether there was one.
async fn come_and_go(number: usize, when: When) -> bool {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Binary::start(world, &[], &[]);
    stage.claim("gone").await;
    world.wait_bound("gone").await;
    world.wait_event("gone", "Bound").await;

    let (gate, made) = (Gate::closed(), Arc::new(AtomicUsize::new(0)));
    let held = gate.clone();
    world.aws.inject(move |call| match (call.mutates && made.fetch_add(1, Ordering::Relaxed) == number, when) {
        (false, _) => Verdict::Pass,
        (true, When::Before) => Verdict::Hold(held.clone()),
        (true, When::After) => Verdict::HoldAnswer(held.clone()),
    });
    let (uid, ()) = tokio::join!(stage.claim("photos"), world.delete_claim("gone"));
    let was_reached = tokio::select! {
        reached = gate.reached() => reached,
        () = settled(world) => false,
    };
    operator.kill().await;
    world.aws.leave_alone();
    gate.open();

    let operator = Binary::start(world, &[], &[]);
    settled(world).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let at = format!("call {number}, {when:?}");
    let has_access = async {
        while !stage.ids().await.contains(&id_of(&uid)) {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(PATIENCE, has_access).await.expect(&at);
    stage.pod().await.put(&bucket, "precious").await.expect(&at);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(stage.ids().await, [""; 0], "{at}");
    operator.kill().await;
    was_reached
}
