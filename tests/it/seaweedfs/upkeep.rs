//! A bound claim on SeaweedFS over time: keys that are replaced, and what somebody changed or deleted by hand.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use super::{assert_left, bound, end, remove, submit, world};
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Call;
use crate::support::{World, bucket_of};
use crate::upkeep::{date, wait_deactivated};

/// An operator that checks bound claims twice a second.
fn watchful(world: &World) -> Operator {
    Operator::with(world, Operator::options(world).with_resync(Duration::from_millis(500)))
}

#[tokio::test]
async fn previous_keys_are_deleted_after_the_grace_period() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, user) = bound(&world, &class).await;
    let before = world.environment("photos").await;
    let ask = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before["AWS_ACCESS_KEY_ID"]).await;
    let after = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    world.account_of(&before).put(&bucket, "by a pod that still runs").await.unwrap();
    world.app("photos").await.put(&bucket, "by a pod that was restarted").await.unwrap();
    assert_eq!(world.account.keys(&user).await.len(), 2);

    date(&world, "photos", "objectbucket.io/retire-key-at").await;
    wait_deactivated(&world, "photos").await;
    date(&world, "photos", "objectbucket.io/retire-key-at").await;
    world.wait_keys(&user, &[&after]).await;
    world.account_of(&before).put(&bucket, "too late").await.unwrap_err();
    world.app("photos").await.put(&bucket, "still").await.unwrap();
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

/// The previous key is revoked.
#[tokio::test]
async fn a_deleted_secret_is_recreated_with_a_new_key() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (bucket, user) = bound(&world, &class).await;
    let before = world.environment("photos").await;
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != before["AWS_ACCESS_KEY_ID"]).await;
    world.wait_reason("photos", "Bound").await;
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    world.account_of(&before).put(&bucket, "b").await.unwrap_err();
    assert_eq!(world.account.keys(&user).await, [world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone()]);
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

#[tokio::test]
async fn a_deleted_policy_is_set_again() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = watchful(&world);
    let (bucket, user) = bound(&world, &class).await;
    let iam = &world.account.iam;
    iam.delete_user_policy().user_name(&user).policy_name("bucket-access").send().await.unwrap();
    let (type_, _) = world.wait_event_with("photos", "Repaired", "bucket-access").await;
    assert_eq!(type_, "Warning");
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

#[rstest]
#[case::a_key(false)]
#[case::a_user(true)]
#[tokio::test]
async fn a_deleted_key_or_user_is_replaced(#[case] with_its_user: bool) {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = watchful(&world);
    let (bucket, user) = bound(&world, &class).await;
    operator.stop().await;
    let previous = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    // Of keys that were issued just now, one would wait until they are shown.
    date(&world, "photos", "objectbucket.io/keys-issued-at").await;
    let iam = &world.account.iam;
    iam.delete_access_key().user_name(&user).access_key_id(&previous).send().await.unwrap();
    if with_its_user {
        iam.delete_user().user_name(&user).send().await.unwrap();
    }

    let operator = watchful(&world);
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != previous).await;
    world.wait_reason("photos", "Bound").await;
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    assert_eq!(world.account.users_with(&world.id).await, [user]);
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

#[tokio::test]
async fn a_deleted_bucket_is_reported_and_not_recreated() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = watchful(&world);
    let (bucket, _) = bound(&world, &class).await;
    world.account.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    let message = world.wait_reason("photos", "BucketGone").await;
    assert!(message.contains(&bucket), "{message}");
    assert!(!world.account.bucket_exists(&bucket).await);
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}

/// Without an event.
#[tokio::test]
async fn dropped_tags_are_written_once() {
    let world = world().await;
    let class = world.class("greenfield").await;
    let operator = watchful(&world);
    let uid = submit(&world, &class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let checks = |calls: &[Call]| calls.iter().filter(|call| call.name == "GetUserPolicy").count() >= 4;
    world.aws.wait_until("four checks", checks).await;
    let names = world.aws.names();
    let count = |call: &str| names.iter().filter(|name| *name == call).count();
    assert_eq!((count("PutBucketTagging"), count("TagUser"), count("PutUserPolicy")), (1, 0, 1), "{names:?}");
    assert_eq!(world.account.bucket_tags(&bucket).await["objectbucket.io/claim-uid"], uid);
    let reasons: Vec<_> = world.events("photos").await.into_iter().map(|(_, reason, _)| reason).collect();
    assert_eq!(reasons, ["Bound"]);
    remove(&world).await;
    assert_left(&world, &[]).await;
    end(world, operator).await;
}
