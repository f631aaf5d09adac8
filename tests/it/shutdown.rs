//! SIGTERM, and what a crash leaves.

use std::time::Duration;

use kube::ResourceExt as _;

use crate::support::World;
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::proxy::Verdict;

/// Within ten seconds.
#[tokio::test]
async fn sigterm_ends_the_operator_while_a_call_hangs() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateUser" => Verdict::Hang,
        _ => Verdict::Pass,
    });
    let mut operator = Binary::start(&world, &[], &[]);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.aws.wait_until("CreateUser", |calls| calls.iter().any(|call| call.name == "CreateUser")).await;
    operator.terminate();
    operator.ended(Duration::from_secs(10)).await;

    world.aws.leave_alone();
    let _operator = Operator::start(&world, Kind::Binary).await;
    world.wait_bound("photos").await;
    assert_eq!(world.account.users_with(&uid).await.len(), 1);
    assert_eq!(world.account.buckets_with(&uid).await.len(), 1);
}

/// At once.
#[tokio::test]
async fn sigterm_ends_an_operator_whose_caches_are_not_synced() {
    let world = World::new().await;
    world.kubernetes.inject(|call| match call.name.as_str() {
        "list objectbuckets" => Verdict::Hang,
        _ => Verdict::Pass,
    });
    let mut operator = Binary::start(&world, &[], &[]);
    world.kubernetes.wait_until("a list", |calls| calls.iter().any(|call| call.name == "list objectbuckets")).await;
    operator.wait_log("serving claims").await;
    operator.terminate();
    // Less than what running work is given.
    operator.ended(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn nothing_of_deleted_claims_stays_in_memory() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let mut operator = Binary::start(&world, &[], &[]);
    for claim in ["one", "two", "three"] {
        world.claim(claim, &class).await;
        world.wait_bound(claim).await;
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
    // When another one is bound, the result of the previous one has been seen.
    world.claim("last", &class).await;
    world.wait_bound("last").await;
    operator.terminate();
    operator.ended(Duration::from_secs(10)).await;
    assert!(operator.log().contains("stopped remembered=1"), "{}", operator.log());
}

#[tokio::test]
async fn a_kill_after_a_key_was_issued_leaves_one_working_key() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    // The answer with the secret is lost: the key exists, and nobody knows it.
    world.aws.inject(|call| match call.name.as_str() {
        "CreateAccessKey" => Verdict::LoseAnswer,
        _ => Verdict::Pass,
    });
    let operator = Binary::start(&world, &[], &[]);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.aws.wait_until("CreateAccessKey done", |calls| calls.iter().any(|call| call.answer_lost)).await;
    operator.kill().await;

    world.aws.leave_alone();
    let _operator = Operator::start(&world, Kind::Binary).await;
    world.wait_bound("photos").await;
    let users = world.account.users_with(&uid).await;
    assert_eq!(users.len(), 1);
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    assert_eq!(world.account.keys(&users[0]).await, [key]);
}

#[tokio::test]
async fn claims_deleted_without_an_operator_are_removed_at_its_start() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::Binary).await;
    let claims = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for claim in claims {
        world.claim(claim, &class).await;
    }
    for claim in claims {
        world.wait_bound(claim).await;
    }
    operator.stop().await;
    for claim in claims {
        world.delete_claim(claim).await;
    }
    let _operator = Operator::start(&world, Kind::Binary).await;
    for claim in claims {
        world.wait_gone(claim).await;
        world.wait_event(claim, "Removed").await;
        let removals = world.events(claim).await.into_iter().filter(|(_, reason, _)| reason == "Removed").count();
        assert_eq!(removals, 1, "it is reported once");
    }
}

#[tokio::test]
async fn one_sigterm_is_enough_while_nothing_runs() {
    let world = World::new().await;
    let mut operator = Binary::start(&world, &[], &[]);
    world
        .kubernetes
        .wait_until("watches", |calls| calls.iter().filter(|c| c.name.starts_with("watch")).count() >= 5)
        .await;
    operator.terminate();
    operator.ended(Duration::from_secs(10)).await;
    assert!(operator.log().contains("stopped"), "{}", operator.log());
}
