//! Restored claims whose buckets have an object lock.

use aws_sdk_s3::types::ObjectLockRetentionMode;
use rstest::rstest;

use super::CLAIM;
use crate::object_lock::{lock, set_lock};
use crate::support::operator::{Kind, Operator};
use crate::support::{World, assert_contains, bucket_of};

/// Its class would let less be locked today, and would have locked objects deleted with the bucket.
#[rstest]
#[case::shortened_by_hand(1, 30)]
#[case::lengthened_by_hand(90, 90)]
#[tokio::test]
async fn an_adopted_bucket_keeps_the_lock_of_its_record(#[case] by_hand: i32, #[case] adopted: i32) {
    let world = World::new().await;
    let class = world.class_with("locked", "Delete", &[("objectLock", "GOVERNANCE:30d")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim(CLAIM, &class).await;
    let bucket = bucket_of(&world.wait_bound(CLAIM).await);
    let key = world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"].clone();
    world.app(CLAIM).await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;
    let (backup, record) = (world.back_up(CLAIM).await, world.record_name(CLAIM));
    world.lose(CLAIM).await;
    set_lock(&world, &bucket, by_hand).await;
    let weaker = [("objectLock", "GOVERNANCE:1d"), ("bypassGovernance", "yes")];
    assert_eq!(world.class_with("locked", "Delete", &weaker).await, class);

    for object in [&backup.secret, &backup.config_map, &backup.record, &backup.claim] {
        world.restore(object).await;
    }
    world.set_action(&record, "adopt").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_event(CLAIM, "Adopted").await;
    world.wait_reason(CLAIM, "Bound").await;
    assert_eq!(lock(&world, &bucket).await, Some((Some(ObjectLockRetentionMode::Governance), Some(adopted))));
    let state = world.records().get(&record).await.unwrap().spec.additional_state.unwrap();
    assert_eq!(state["setting.objectLock"], "GOVERNANCE:30d");
    assert!(!state.contains_key("setting.bypassGovernance"), "{state:?}");
    assert_eq!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], key);

    world.delete_claim(CLAIM).await;
    let message = world.wait_reason(CLAIM, "ObjectsLocked").await;
    assert_contains(&message, &["precious", "is locked until 20"]);
    let versions = world.account.s3.list_object_versions().bucket(&bucket).send().await.unwrap();
    assert_eq!(versions.versions().len(), 1, "what is locked stays");
    operator.stop().await;
}
