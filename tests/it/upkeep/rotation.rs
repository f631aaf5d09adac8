//! Keys that are replaced: on request, at their age, or because somebody edited them. What becomes of the previous
//! ones, and of those that were lost on the way.

use std::time::Duration;

use bucket_provisioner::api::{ClaimPhase, ConditionStatus, ObjectBucketClaim};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{Bound, DENIED, date, wait_deactivated};
use crate::support::aws_proxy::Strictness;
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{World, condition, phase, ready, seen};

const REFUSED: &str = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

async fn annotate_claim(world: &World, value: &str) {
    let patch = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": value } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn wait_retired(world: &World) {
    wait_unnoted(world, "objectbucket.io/retiring-key").await;
}

/// Ends the time of the previous key, and then the time until it is deleted.
async fn retire(world: &World) {
    date(world, "photos", "objectbucket.io/retire-key-at").await;
    wait_deactivated(world, "photos").await;
    date(world, "photos", "objectbucket.io/retire-key-at").await;
    wait_retired(world).await;
}

/// Waits until the claim's Secret lacks an annotation.
async fn wait_unnoted(world: &World, annotation: &str) {
    let lacks_it = |secret: Option<&Secret>| {
        let annotations = secret.and_then(|secret| secret.metadata.annotations.as_ref());
        annotations.is_some_and(|all| !all.contains_key(annotation))
    };
    seen(&world.secrets(), "photos", lacks_it).await.unwrap_or_else(|_| panic!("{annotation} is there still"));
}

/// Waits until the claim has this condition; returns the message.
async fn wait_keys_current(world: &World, reason: &str, status: ConditionStatus) -> String {
    let reported = |claim: &ObjectBucketClaim| {
        condition(claim, "KeysCurrent").is_some_and(|c| c.reason == reason && c.status == status)
    };
    let claim = world.wait_claim("photos", reason, reported).await;
    condition(&claim, "KeysCurrent").unwrap().message.clone()
}

/// Keys are replaced on request.
#[tokio::test]
async fn previous_keys_work_until_their_grace_period_is_over() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let before = Bound::new(&world, &class).await;

    annotate_claim(&world, "first").await;
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before.key()).await;
    let after = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    assert_eq!(
        sorted(world.account.keys(&before.user).await),
        sorted(vec![before.key().to_owned(), after.clone()]),
        "never more than two"
    );
    world.account_of(&before.environment).put(&before.bucket, "by a pod that still runs").await.unwrap();
    world.app("photos").await.put(&before.bucket, "by a pod that was restarted").await.unwrap();
    let (type_, note) = world.wait_event("photos", "KeysRotated").await;
    assert!(type_ == "Normal" && note.contains(before.key()), "{note}");
    let message = wait_keys_current(&world, "KeysRotated", ConditionStatus::True).await;
    assert!(message.contains(before.key()) && message.contains("restart pods"), "{message}");

    // A user has two keys at most.
    annotate_claim(&world, "second").await;
    let message = wait_keys_current(&world, "RotationPending", ConditionStatus::False).await;
    assert!(message.contains(before.key()), "{message}");
    world.wait_event("photos", "RotationPending").await;
    annotate_claim(&world, "first").await;
    wait_keys_current(&world, "KeysRotated", ConditionStatus::True).await;

    retire(&world).await;
    assert_eq!(world.account.keys(&before.user).await, [after]);
    world.wait_event("photos", "KeysRetired").await;
    wait_keys_current(&world, "KeysRetired", ConditionStatus::True).await;
    world.app("photos").await.put(&before.bucket, "still").await.unwrap();
    assert!(world.account_of(&before.environment).put(&before.bucket, "too late").await.is_err());
    let claim = world.claims().get("photos").await.unwrap();
    assert_eq!((phase(&claim), ready(&claim).unwrap().reason.as_str()), (Some(ClaimPhase::Bound), "Bound"));
}

#[tokio::test]
async fn keys_are_replaced_at_the_age_that_their_class_sets() {
    let world = World::new().await;
    let class = world.class_with("monthly", "Delete", &[("rotateKeysEvery", "30d"), ("keyGracePeriod", "0s")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let before = Bound::new(&world, &class).await;
    operator.stop().await;
    world.aws.clear();
    date(&world, "photos", "objectbucket.io/keys-issued-at").await;

    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before.key()).await;
    wait_retired(&world).await;
    let after = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    assert_eq!(world.account.keys(&before.user).await, [after], "without grace the previous key is deleted at once");
    let issued = world.aws.names().iter().filter(|name| *name == "CreateAccessKey").count();
    assert_eq!(issued, 1, "once: {:?}", world.aws.names());
}

#[tokio::test]
async fn new_keys_are_published_only_when_they_work() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let before = Bound::new(&world, &class).await;
    world.aws.clear();
    world.aws.inject(|call| match call.name.as_str() {
        "ListObjectsV2" => Verdict::Answer(403, REFUSED.to_owned()),
        _ => Verdict::Pass,
    });
    annotate_claim(&world, "first").await;
    world.aws.wait_until("three probes", |c| c.iter().filter(|c| c.name == "ListObjectsV2").count() >= 3).await;
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], before.key());
    let claim = world.claims().get("photos").await.unwrap();
    assert_eq!(ready(&claim).unwrap().reason, "Bound", "its app lacks nothing");
    world.aws.leave_alone();
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before.key()).await;
    world.app("photos").await.put(&before.bucket, "a").await.unwrap();

    // What comes after the attempt that handed them over.
    retire(&world).await;
    let names = world.aws.names();
    let number = |call: &str| names.iter().filter(|name| *name == call).count();
    assert_eq!((number("CreateAccessKey"), number("DeleteAccessKey")), (1, 1), "{names:?}");
}

/// There are two keys at most.
#[tokio::test]
async fn an_interrupted_rotation_is_finished_by_the_next_run() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Binary::start(&world, &[], &[]);
    let before = Bound::new(&world, &class).await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateAccessKey" => Verdict::LoseAnswer,
        _ => Verdict::Pass,
    });
    annotate_claim(&world, "first").await;
    world.aws.wait_until("a key nobody knows", |calls| calls.iter().any(|call| call.answer_lost)).await;
    operator.kill().await;
    assert_eq!(world.account.keys(&before.user).await.len(), 2);

    world.aws.leave_alone();
    let _operator = Operator::start(&world, Kind::Binary).await;
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before.key()).await;
    let after = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    assert_eq!(
        sorted(world.account.keys(&before.user).await),
        sorted(vec![before.key().to_owned(), after]),
        "the key whose secret was lost is deleted"
    );
    world.account_of(&before.environment).put(&before.bucket, "a").await.unwrap();
    world.app("photos").await.put(&before.bucket, "b").await.unwrap();
}

#[tokio::test]
async fn a_denied_rotation_is_reported_and_removes_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let before = Bound::new(&world, &class).await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateAccessKey" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    annotate_claim(&world, "first").await;
    let (type_, note) = world.wait_event("photos", "RotationFailed").await;
    assert!(type_ == "Warning" && note.contains("iam:CreateAccessKey"), "{note}");
    assert_eq!(world.environment("photos").await, before.environment);
    let claim = world.claims().get("photos").await.unwrap();
    assert_eq!(ready(&claim).unwrap().reason, "Bound");
}

#[tokio::test]
async fn keys_edited_in_the_secret_are_replaced_by_new_ones() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let before = Bound::new(&world, &class).await;
    let edit = json!({
        "metadata": { "annotations": { "team": "a" }, "labels": { "tier": "gold" } },
        "stringData": { "AWS_SECRET_ACCESS_KEY": "mine", "EXTRA": "kept" },
    });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before.key()).await;
    world.app("photos").await.put(&before.bucket, "a").await.unwrap();
    assert_eq!(world.account.keys(&before.user).await.len(), 1);
    assert_eq!(world.environment("photos").await["EXTRA"], "kept");
    let metadata = world.secrets().get("photos").await.unwrap().metadata;
    assert_eq!(metadata.annotations.unwrap()["team"], "a");
    assert_eq!(metadata.labels.unwrap()["tier"], "gold");
}

/// By the operator that runs then.
#[tokio::test]
async fn a_lost_key_is_deleted_once_iam_shows_it() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let before = Bound::new(&world, &class).await;
    operator.stop().await;
    let lag = Duration::from_secs(3);
    world.aws.upstream().strict(Strictness { lag, ..Strictness::PROMPT });
    let mut lost = false;
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateAccessKey" if !std::mem::replace(&mut lost, true) => Verdict::LoseAnswer,
        _ => Verdict::Pass,
    });
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    world.unready("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("photos", "Bound").await;
    operator.stop().await;
    assert_eq!(world.account.keys(&before.user).await.len(), 2);

    let _operator = Operator::start(&world, Kind::InProcess).await;
    let after = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    world.wait_keys(&before.user, &[&after]).await;
    wait_unnoted(&world, "objectbucket.io/review-keys-at").await;
    world.app("photos").await.put(&before.bucket, "a").await.unwrap();
}

/// Without a restart.
#[tokio::test]
async fn shared_provisioning_keys_follow_their_secret() {
    let world = World::new().await;
    let class = world.class_with("shared", "Delete", &[("createBucketUser", "no")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    // A restart in between: nothing is remembered but what is written.
    operator.stop().await;
    world.aws.clear();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    let edited = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "renewed")];
    world.owner_secret("owner", &edited).await;
    for claim in ["photos", "other"] {
        world.wait_secret(claim, |keys| keys["AWS_SECRET_ACCESS_KEY"] == "renewed").await;
    }
}

#[tokio::test]
async fn a_parameter_for_rotation_that_cannot_be_used_is_named() {
    let world = World::new().await;
    let short: Value = json!("10m");
    let class = world.class_with("hasty", "Delete", &[("rotateKeysEvery", short.as_str().unwrap())]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let message = world.wait_reason("photos", "InvalidClassParameter").await;
    assert!(message.contains("rotateKeysEvery") && message.contains("10m") && message.contains("1h"), "{message}");
    world.claims().delete("photos", &DeleteParams::default()).await.unwrap();
    world.wait_gone("photos").await;
}
