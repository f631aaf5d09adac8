//! The operator is killed while a claim is created and the other one of its ServiceAccount is deleted: both change the same
//! association. (For claims that are alone see `crash`.)

use super::kills::{When, at_each_call, hold, kill, settled};
use super::pod_identity::{Stage, id_of};
use crate::support::bucket_of;
use crate::support::operator::Binary;

/// More than the calls that change something.
const MOST: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_and_no_association_is_lost_or_left() {
    at_each_call("pods", MOST, come_and_go).await;
}

/// Kills the operator at this call that changes something in AWS; returns whether there was one.
async fn come_and_go(number: usize, when: When) -> bool {
    let stage = Stage::new().await;
    let world = &stage.world;
    let operator = Binary::start(world, &[], &[]);
    stage.claim("gone").await;
    world.wait_bound("gone").await;
    world.wait_event("gone", "Bound").await;

    let gate = hold(&world.aws, number, when);
    let (uid, ()) = tokio::join!(stage.claim("photos"), world.delete_claim("gone"));
    let was_reached = kill(world, operator, gate).await;

    let operator = Binary::start(world, &[], &[]);
    settled(world).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let at = format!("call {number}, {when:?}");
    assert_eq!(stage.ids().await, [id_of(&uid)], "{at}");
    stage.pod().await.put(&bucket, "precious").await.expect(&at);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(stage.ids().await, [""; 0], "{at}");
    operator.kill().await;
    was_reached
}
