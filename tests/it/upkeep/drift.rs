//! Drift: what somebody changed or deleted by hand in AWS. The operator repairs it, or reports why it does not.

use std::time::Duration;

use bucket_provisioner::api::ClaimPhase;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{Bound, DENIED, date};
use crate::support::aws_proxy::Strictness;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::{Call, Verdict};
use crate::support::{World, phase, ready};

/// An operator that checks bound claims twice a second.
async fn watchful(world: &World) -> Operator {
    Operator::with(world, Operator::options(world).with_resync(Duration::from_millis(500)))
}

/// Tags of others are kept.
#[tokio::test]
async fn drift_of_policy_and_tags_is_repaired() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = watchful(&world).await;
    let claim = Bound::new(&world, &class).await;
    let Bound { user, bucket, .. } = &claim;
    let uid = world.claims().get("photos").await.unwrap().metadata.uid.unwrap();
    let account = &world.account;

    account.iam.delete_user_policy().user_name(user).policy_name("bucket-access").send().await.unwrap();
    wait_repair(&world, "bucket-access").await;
    world.app("photos").await.put(bucket, "a").await.unwrap();

    account.iam.untag_user().user_name(user).tag_keys("objectbucket.io/claim-uid").send().await.unwrap();
    wait_repair(&world, &format!("user \"{user}\" had lost the tags")).await;
    let tags = account.iam.list_user_tags().user_name(user).send().await.unwrap();
    assert!(tags.tags().iter().any(|tag| tag.value() == uid), "{tags:?}");

    account.tag_bucket(bucket, &[("team", "a")]).await;
    wait_repair(&world, &format!("bucket \"{bucket}\" had lost the tags")).await;
    let tags = account.bucket_tags(bucket).await;
    assert_eq!((tags["team"].as_str(), &tags["objectbucket.io/claim-uid"]), ("a", &uid));
}

async fn wait_repair(world: &World, what: &str) {
    world.wait_event_with("photos", "Repaired", what).await;
}

#[tokio::test]
async fn a_key_that_the_operator_did_not_publish_is_deleted() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = watchful(&world).await;
    let claim = Bound::new(&world, &class).await;
    let foreign = world.account.iam.create_access_key().user_name(&claim.user).send().await.unwrap();
    wait_repair(&world, foreign.access_key().unwrap().access_key_id()).await;
    assert_eq!(world.account.keys(&claim.user).await, [claim.key()]);
}

#[tokio::test]
async fn a_deleted_user_is_recreated_with_new_keys() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = watchful(&world).await;
    let claim = Bound::new(&world, &class).await;
    operator.stop().await;
    // Of keys that were issued just now, one would wait until they are shown.
    date(&world, "photos", "objectbucket.io/keys-issued-at").await;
    let iam = &world.account.iam;
    iam.delete_access_key().user_name(&claim.user).access_key_id(claim.key()).send().await.unwrap();
    iam.delete_user_policy().user_name(&claim.user).policy_name("bucket-access").send().await.unwrap();
    iam.delete_user().user_name(&claim.user).send().await.unwrap();
    let key_delay = Duration::from_secs(2);
    world.aws.upstream().strict(Strictness { key_delay, ..Strictness::PROMPT });
    world.aws.clear();

    let _operator = watchful(&world).await;
    world.wait_reason("photos", "WaitingForCredentials").await;
    world.wait_reason("photos", "Bound").await;
    world.app("photos").await.put(&claim.bucket, "a").await.unwrap();
    let names = world.aws.names();
    assert_eq!(names.iter().filter(|name| *name == "CreateAccessKey").count(), 1, "{names:?}");
}

/// The operator does not recreate it.
#[tokio::test]
async fn a_deleted_bucket_is_reported_until_it_is_back() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = watchful(&world).await;
    let claim = Bound::new(&world, &class).await;
    world.account.s3.delete_bucket().bucket(&claim.bucket).send().await.unwrap();
    let message = world.wait_reason("photos", "BucketGone").await;
    assert!(message.contains(&claim.bucket), "{message}");
    let (type_, _) = world.wait_event("photos", "BucketGone").await;
    assert_eq!(type_, "Warning");
    assert_eq!(phase(&world.claims().get("photos").await.unwrap()), Some(ClaimPhase::Bound));
    assert!(!world.account.bucket_exists(&claim.bucket).await);
    operator.stop().await;
    world.account.create_bucket(&claim.bucket).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("photos", "Bound").await;
}

#[tokio::test]
async fn an_untagged_chosen_bucket_is_reported_and_never_deleted() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = watchful(&world).await;
    let bucket = world.unique("chosen");
    world.claim_with("photos", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("photos").await;
    world.account.tag_bucket(&bucket, &[]).await;
    let message = world.wait_reason("photos", "OwnershipLost").await;
    assert!(message.contains("objectbucket.io/claim-uid="), "{message}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(world.account.bucket_exists(&bucket).await);
}

#[tokio::test]
async fn a_denied_check_is_reported_and_removes_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    world.aws.inject(|call| match call.name.as_str() {
        "GetUserPolicy" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    let _operator = watchful(&world).await;
    Bound::new(&world, &class).await;
    let (type_, note) = world.wait_event("photos", "CheckFailed").await;
    assert!(type_ == "Warning" && note.contains("iam:GetUserPolicy"), "{note}");
    let claim = world.claims().get("photos").await.unwrap();
    assert_eq!(ready(&claim).unwrap().reason, "Bound");
    let checks = |calls: &[Call]| calls.iter().filter(|c| c.name == "GetUserPolicy").count() >= 5;
    world.aws.wait_until("more checks", checks).await;
    let reported = world.events("photos").await.into_iter().filter(|(_, reason, _)| reason == "CheckFailed").count();
    assert_eq!(reported, 1, "it is reported once, and not at each check");
}

#[tokio::test]
async fn a_bound_claim_is_checked_once_on_request() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    // By itself it would be checked after hours.
    let _operator = Operator::start(&world, Kind::InProcess).await;
    Bound::new(&world, &class).await;
    world.aws.clear();
    let ask = async |value: String| {
        let asked = json!({ "metadata": { "annotations": { "objectbucket.io/retry": value } } });
        world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(asked)).await.unwrap();
    };
    let checks = |calls: &[Call]| calls.iter().filter(|c| c.name == "GetUserPolicy").count();
    for round in 1..=3 {
        ask(round.to_string()).await;
        world.aws.wait_until("a check", |calls| checks(calls) == round).await;
    }
    for round in 4..=8 {
        ask(round.to_string()).await;
    }
    // What was asked before another claim came has been dealt with when that one is bound.
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    assert!(checks(&world.aws.calls()) <= 4, "from the fourth time in a row each takes half a minute");
}

#[tokio::test]
async fn brownfield_buckets_are_checked_and_never_written() {
    let world = World::new().await;
    let bucket = world.unique("archive");
    world.account.create_bucket(&bucket).await;
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    let _operator = watchful(&world).await;
    world.claim_with("photos", json!({ "storageClassName": class })).await;
    world.wait_bound("photos").await;
    world.aws.clear();
    let checks = |calls: &[Call]| calls.iter().filter(|c| c.name == "GetUserPolicy").count() >= 2;
    world.aws.wait_until("two checks", checks).await;
    assert_eq!(world.aws.writes(), Vec::<String>::new());
}
