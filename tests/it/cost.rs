//! What a claim costs: calls are counted, for every one is a round trip.

use std::ops::RangeInclusive;

use serde_json::json;

use crate::support::World;
use crate::support::operator::{Kind, Operator};

/// The Kubernetes writes of the ordinary path, in their order.
const WRITES: [&str; 8] = [
    "patch objectbucketclaims",
    "create objectbuckets",
    "create secrets",
    // That the bucket may be in use from now on, which a lost status must not make forgotten.
    "patch objectbuckets",
    "create configmaps",
    "patch objectbuckets/status",
    "patch objectbucketclaims",
    "patch objectbucketclaims/status",
];

fn without_events(writes: Vec<String>) -> Vec<String> {
    writes.into_iter().filter(|name| !name.ends_with(" events")).collect()
}

/// Of one claim, besides its writes and the [provisioning Secret](besides_owner): is the ConfigMap somebody else's? Whether the
/// Secret could be written is a write. The watches show the rest.
const READS: [&str; 1] = ["get configmaps"];

/// What was done, but for so many reads of the provisioning Secret: claims share one within a second.
fn besides_owner(world: &World, reads: RangeInclusive<usize>) -> Vec<String> {
    let (owner, others): (Vec<_>, Vec<_>) = world
        .kubernetes
        .calls()
        .into_iter()
        .partition(|call| call.name == "get secrets" && call.target.ends_with("/owner"));
    assert!(reads.contains(&owner.len()), "{owner:#?}");
    others.into_iter().map(|call| call.name).collect()
}

/// And nothing after a restart.
#[tokio::test]
async fn a_claim_costs_eight_writes_and_six_aws_calls() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    // A second claim: when it is bound, whatever the first one's own writes woke has been dealt with.
    world.claim("second", &class).await;
    world.wait_bound("second").await;
    operator.stop().await;

    let of_first = |target: &str| target.contains("photos");
    let calls = world.kubernetes.calls();
    let writes = calls.iter().filter(|call| call.mutates && !call.name.ends_with(" events"));
    // Creations name the object in the body only; both claims make the same ones.
    assert_eq!(without_events(world.kubernetes.writes()).len(), 2 * WRITES.len(), "{:#?}", world.kubernetes.writes());
    let patches: Vec<_> = writes.filter(|call| of_first(&call.target)).map(|call| call.name.as_str()).collect();
    let expected: Vec<_> = WRITES.into_iter().filter(|name| name.starts_with("patch")).collect();
    assert_eq!(patches, expected);
    let mut reads = besides_owner(&world, 1..=2);
    // The operator reads kube-system once, as it starts.
    reads.retain(|name| name.starts_with("get ") && name != "get namespaces");
    reads.sort_unstable();
    let expected = READS.into_iter().flat_map(|name| [name; 2]);
    assert_eq!(reads, expected.collect::<Vec<_>>());
    let six = ["CreateBucket", "CreateUser", "PutUserPolicy", "CreateAccessKey", "ListObjectsV2", "GetObject"];
    let aws = world.aws.names();
    for call in six {
        assert_eq!(aws.iter().filter(|name| *name == call).count(), 2, "{call}: {aws:#?}");
    }
    // Asked once for both.
    assert_eq!(aws.iter().filter(|name| *name == "GetCallerIdentity").count(), 1, "{aws:#?}");
    assert_eq!(aws.len(), 13, "{aws:#?}");

    let versions = async || [world.versions("photos").await, world.versions("second").await];
    let before = versions().await;
    world.kubernetes.clear();
    world.aws.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    // When a new claim is bound, the bound ones have been reconciled.
    world.claim("third", &class).await;
    world.wait_bound("third").await;
    operator.stop().await;
    assert_eq!(without_events(world.kubernetes.writes()), WRITES, "only the new claim is written");
    assert_eq!(in_order(world.aws.names()), [&["GetCallerIdentity"], &six[..]].concat(), "only the new claim's calls");
    assert_eq!(versions().await, before);
    let looked_at: Vec<_> =
        world.kubernetes.calls().into_iter().filter(|call| call.target.contains("photos")).collect();
    assert!(looked_at.is_empty(), "a bound claim costs no reads either: {looked_at:#?}");
}

/// The keys are tried by two calls at the same time.
fn in_order(mut names: Vec<String>) -> Vec<String> {
    if names.ends_with(&["GetObject".to_owned(), "ListObjectsV2".to_owned()]) {
        let end = names.len();
        names.swap(end - 2, end - 1);
    }
    names
}

#[tokio::test]
async fn access_to_a_bucket_that_exists_costs_six_aws_calls() {
    let world = World::new().await;
    let bucket = world.unique("archive");
    world.account.create_bucket(&bucket).await;
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("archive", json!({ "storageClassName": class })).await;
    world.wait_bound("archive").await;
    operator.stop().await;
    let six = ["GetBucketTagging", "CreateUser", "PutUserPolicy", "CreateAccessKey", "ListObjectsV2", "GetObject"];
    assert_eq!(in_order(world.aws.names()), [&["GetCallerIdentity"], &six[..]].concat());
    assert_eq!(without_events(world.kubernetes.writes()), WRITES);
}

/// It is not retried in a loop.
#[tokio::test]
async fn a_problem_that_needs_a_fix_costs_few_calls() {
    use crate::support::proxy::Verdict;
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateBucket" if call.target.contains("denied") => Verdict::Answer(403, denied.to_owned()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("denied", &class).await;
    world.wait_reason("denied", "AccessDenied").await;
    // Whatever the failure itself wrote and thereby woke has been dealt with when others were served since.
    for other in ["one", "two", "three"] {
        world.claim(other, &class).await;
        world.wait_bound(other).await;
    }
    let tries = world.aws.calls().into_iter().filter(|call| call.target.contains("denied")).count();
    assert_eq!(tries, 1, "{:#?}", world.aws.names());
    world.wait_event("denied", "AccessDenied").await;
    let warnings = world.events("denied").await;
    assert_eq!(warnings.len(), 1, "one event a problem: {warnings:?}");
}

/// The record is read once, others with its bucket are listed, and the Secret is read for the keys in it.
#[tokio::test]
async fn a_removal_costs_six_writes_and_seven_aws_calls() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    for claim in ["first", "second"] {
        world.claim(claim, &class).await;
        world.wait_bound(claim).await;
    }
    // Some is read once for all removals.
    world.delete_claim("first").await;
    world.wait_event("first", "Removed").await;
    world.kubernetes.clear();
    world.aws.clear();
    world.delete_claim("second").await;
    world.wait_event("second", "Removed").await;
    operator.stop().await;
    let (mut kubernetes, mut aws) = (besides_owner(&world, 0..=1), world.aws.names());
    kubernetes.sort_unstable();
    aws.sort_unstable();
    assert_eq!(
        kubernetes,
        [
            "create events",
            "delete configmaps",
            "delete objectbuckets",
            "delete secrets",
            "get objectbuckets",
            "get secrets",
            "list objectbuckets",
            "patch objectbucketclaims",
            "patch objectbuckets",
        ]
    );
    assert_eq!(
        aws,
        [
            "DeleteAccessKey",
            "DeleteBucket",
            "DeleteUser",
            "DeleteUserPolicy",
            "GetBucketTagging",
            "GetUser",
            "ListAccessKeys"
        ]
    );
}
