//! Keys that do not work though the operator issued them: deactivated, denied, or not the claim's.

use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Bound;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::{World, condition, phase, ready, seen};

const ROTATE: &str = "objectbucket.io/rotate-keys";

const DENIED: &str =
    "<Error><Code>AccessDenied</Code><Message>with an explicit deny in a service control policy</Message></Error>";

async fn annotate(world: &World, annotation: &str, value: &str) {
    let patch = json!({ "metadata": { "annotations": { annotation: value } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn a_deactivated_key_is_reported_and_never_activated() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let bound = Bound::new(&world, &class).await;
    world.account.set_key_active(&bound.user, bound.key(), false).await;
    annotate(&world, "objectbucket.io/retry", "1").await;
    let message = world.wait_reason("photos", "KeysInactive").await;
    assert!(message.contains(bound.key()) && message.contains("objectbucket.io/rotate-keys"), "{message}");
    let claim = world.claims().get("photos").await.unwrap();
    assert_eq!(phase(&claim), Some(ClaimPhase::Bound));
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], bound.key(), "it is not replaced in silence");

    // Its admin can take that back.
    world.account.set_key_active(&bound.user, bound.key(), true).await;
    annotate(&world, "objectbucket.io/retry", "2").await;
    world.wait_reason("photos", "Bound").await;
    world.app("photos").await.put(&bound.bucket, "a").await.unwrap();

    // Or its user asks for another one.
    world.account.set_key_active(&bound.user, bound.key(), false).await;
    annotate(&world, "objectbucket.io/retry", "3").await;
    world.wait_reason("photos", "KeysInactive").await;
    annotate(&world, "objectbucket.io/rotate-keys", "1").await;
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != bound.key()).await;
    world.wait_reason("photos", "Bound").await;
    world.app("photos").await.put(&bound.bucket, "b").await.unwrap();
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    world.wait_keys(&bound.user, &[&key]).await;
    assert!(!world.aws.names().contains(&"UpdateAccessKey".to_owned()), "the operator activates nothing");
}

/// After a minute.
#[tokio::test]
async fn a_denied_new_key_is_reported_and_not_replaced() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.aws.inject(|call| match call.name.as_str() {
        "ListObjectsV2" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    world.claim("photos", &class).await;
    world.wait_reason("photos", "WaitingForCredentials").await;
    let unusable = |claim: &ObjectBucketClaim| ready(claim).is_some_and(|ready| ready.reason == "CredentialsUnusable");
    // That takes longer than other waits.
    let _ = seen(&world.claims(), "photos", |claim| claim.is_some_and(unusable)).await;
    let claim = world.wait_claim("photos", "reported with unusable keys", unusable).await;
    let message = &ready(&claim).unwrap().message;
    assert!(message.contains("AccessDenied") && message.contains("service control policy"), "{message}");
    world.aws.leave_alone();
    annotate(&world, "objectbucket.io/retry", "1").await;
    world.wait_bound("photos").await;
    let issued = world.aws.names().iter().filter(|name| *name == "CreateAccessKey").count();
    assert_eq!(issued, 1, "{:?}", world.aws.names());
}

#[tokio::test]
async fn a_new_key_denied_during_a_rotation_is_kept_until_it_works() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let bound = Bound::new(&world, &class).await;
    world.aws.inject(|call| match call.name.as_str() {
        "ListObjectsV2" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    annotate(&world, ROTATE, "1").await;
    let failed =
        |claim: &ObjectBucketClaim| condition(claim, "KeysCurrent").is_some_and(|c| c.reason == "RotationFailed");
    // That takes longer than other waits.
    let _ = seen(&world.claims(), "photos", |claim| claim.is_some_and(failed)).await;
    let claim = world.wait_claim("photos", "reported with the failed rotation", failed).await;
    let message = &condition(&claim, "KeysCurrent").unwrap().message;
    assert!(message.contains("AccessDenied") && message.contains("is kept"), "{message}");
    assert_eq!(ready(&claim).unwrap().reason, "Bound");
    let keys = world.account.keys(&bound.user).await;
    assert_eq!(keys.len(), 2, "{keys:?}");

    // A check does not take it for a foreign key.
    world.aws.leave_alone();
    world.aws.clear();
    let patch = json!({ "metadata": { "annotations": { ROTATE: null, "objectbucket.io/retry": "1" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    world.aws.wait_until("a check", |calls| calls.iter().any(|call| call.name == "GetBucketTagging")).await;
    assert_eq!(world.account.keys(&bound.user).await, keys);

    annotate(&world, ROTATE, "2").await;
    world.wait_secret("photos", |secret| secret["AWS_ACCESS_KEY_ID"] != bound.key()).await;
    assert!(keys.contains(&world.environment("photos").await["AWS_ACCESS_KEY_ID"]), "{keys:?}");
    world.app("photos").await.put(&bound.bucket, "a").await.unwrap();
}

/// With the field manager of the operator, so that the edit does not show.
#[tokio::test]
async fn foreign_keys_in_the_secret_are_replaced_though_they_work() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let bound = Bound::new(&world, &class).await;
    let edit = json!({ "stringData": { "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test" } });
    let params = PatchParams { field_manager: Some("aws-s3-provisioner".to_owned()), ..PatchParams::default() };
    world.secrets().patch("photos", &params, &Patch::Merge(edit)).await.unwrap();
    annotate(&world, "objectbucket.io/retry", "1").await;
    // Once the store shows all that was created.
    let replaced = |keys: &std::collections::BTreeMap<String, String>| {
        !["test", bound.key()].contains(&keys["AWS_ACCESS_KEY_ID"].as_str())
    };
    world.wait_secret("photos", replaced).await;
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    world.wait_keys(&bound.user, &[&key]).await;
    world.app("photos").await.put(&bound.bucket, "a").await.unwrap();
}
