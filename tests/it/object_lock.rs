//! Object locks: buckets that have one from the beginning, and what becomes of a deleted claim while its objects are locked.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::primitives::{ByteStream, DateTime};
use aws_sdk_s3::types::{
    BucketVersioningStatus, DefaultRetention, ObjectLockConfiguration, ObjectLockEnabled, ObjectLockLegalHold,
    ObjectLockLegalHoldStatus, ObjectLockMode, ObjectLockRetentionMode, ObjectLockRule,
};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::owner_policy::{PLAIN, PolicedOwner, SETTINGS};
use crate::support::proxy::Verdict;
use crate::support::{World, bucket_of};

const KEY: &str = "ledger";

async fn bound(world: &World, parameters: &[(&str, &str)]) -> String {
    let class = world.class_with("locked", "Delete", parameters).await;
    world.claim("photos", &class).await;
    bucket_of(&world.wait_bound("photos").await)
}

/// Mode and days of the default retention; `None` if there is no lock.
pub(crate) async fn lock(world: &World, bucket: &str) -> Option<(Option<ObjectLockRetentionMode>, Option<i32>)> {
    let found = world.account.s3.get_object_lock_configuration().bucket(bucket).send().await;
    let found = found.ok()?.object_lock_configuration?;
    assert_eq!(found.object_lock_enabled, Some(ObjectLockEnabled::Enabled));
    let retention = found.rule.and_then(|rule| rule.default_retention);
    Some((retention.as_ref().and_then(|found| found.mode.clone()), retention.and_then(|found| found.days)))
}

pub(crate) async fn set_lock(world: &World, bucket: &str, days: i32) {
    let retention = DefaultRetention::builder().mode(ObjectLockRetentionMode::Governance).days(days).build();
    let rule = ObjectLockRule::builder().default_retention(retention).build();
    let lock = ObjectLockConfiguration::builder().object_lock_enabled(ObjectLockEnabled::Enabled).rule(rule).build();
    let s3 = &world.account.s3;
    s3.put_object_lock_configuration().bucket(bucket).object_lock_configuration(lock).send().await.unwrap();
}

/// Writes an object that is locked for so long; returns its version.
async fn put_locked(world: &World, bucket: &str, mode: ObjectLockMode, time: Duration) -> String {
    let until = DateTime::from(SystemTime::now() + time);
    let put = world.account.s3.put_object().bucket(bucket).key(KEY).body(ByteStream::from_static(b"content"));
    let put = put.object_lock_mode(mode).object_lock_retain_until_date(until).send().await.unwrap();
    put.version_id.unwrap()
}

async fn edit(world: &World, config: Value) {
    let patch = json!({ "spec": { "additionalConfig": config } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn retry(world: &World) {
    let ask = json!({ "metadata": { "annotations": { "objectbucket.io/retry": "now" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
}

#[tokio::test]
async fn a_bucket_has_its_lock_before_its_keys_exist() {
    let world = World::new().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "GOVERNANCE:30d")]).await;
    assert_eq!(lock(&world, &bucket).await, Some((Some(ObjectLockRetentionMode::Governance), Some(30))));
    let versioning = world.account.s3.get_bucket_versioning().bucket(&bucket).send().await.unwrap();
    assert_eq!(versioning.status, Some(BucketVersioningStatus::Enabled));
    let calls = world.aws.names();
    let position = |name: &str| calls.iter().position(|call| call == name).unwrap();
    assert!(position("PutObjectLockConfiguration") < position("CreateUser"), "{calls:?}");
    // An app writes, and cannot delete the version that it wrote.
    let app = world.app("photos").await;
    app.put(&bucket, KEY).await.unwrap();
    let versions = world.account.s3.list_object_versions().bucket(&bucket).send().await.unwrap();
    let version = versions.versions()[0].version_id().unwrap();
    let deleted = app.s3.delete_object().bucket(&bucket).key(KEY).version_id(version).send().await;
    assert_eq!(deleted.unwrap_err().code(), Some("AccessDenied"));
    operator.stop().await;
}

/// The claim reports until when, and nothing is asked before.
#[tokio::test]
async fn a_locked_bucket_is_deleted_when_the_lock_ends() {
    let world = World::new().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "Enabled")]).await;
    put_locked(&world, &bucket, ObjectLockMode::Governance, Duration::from_secs(15)).await;
    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "ObjectsLocked").await;
    assert!(message.contains(KEY) && message.contains("is locked until 20"), "{message}");
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    let tries = world.aws.names().iter().filter(|name| *name == "GetObjectRetention").count();
    assert_eq!(tries, 1, "{:?}", world.aws.names());
    operator.stop().await;
}

#[tokio::test]
async fn a_class_can_bypass_governance() {
    let world = World::new().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "GOVERNANCE:30d"), ("bypassGovernance", "yes")]).await;
    world.app("photos").await.put(&bucket, KEY).await.unwrap();
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// Requires that the object is there as it was written, and nothing was put over it.
async fn assert_kept(world: &World, bucket: &str) {
    let s3 = &world.account.s3;
    let listed = s3.list_object_versions().bucket(bucket).send().await.unwrap();
    assert_eq!((listed.versions().len(), listed.delete_markers().len()), (1, 0), "{listed:?}");
    let found = s3.get_object().bucket(bucket).key(KEY).send().await.unwrap();
    assert_eq!(found.body.collect().await.unwrap().into_bytes(), "content");
    world.records().get(&world.record_name("photos")).await.unwrap();
}

/// S3 answers for each object.
#[tokio::test]
async fn a_denied_bypass_is_reported_and_nothing_is_lost() {
    let world = World::new().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "GOVERNANCE:30d"), ("bypassGovernance", "yes")]).await;
    world.app("photos").await.put(&bucket, KEY).await.unwrap();
    let versions = world.account.s3.list_object_versions().bucket(&bucket).send().await.unwrap();
    let version = versions.versions()[0].version_id().unwrap();
    let denied = format!(
        "<DeleteResult><Error><Key>{KEY}</Key><VersionId>{version}</VersionId><Code>AccessDenied</Code>\
         <Message>Access Denied</Message></Error></DeleteResult>"
    );
    world.aws.inject(move |call| match call.name.as_str() {
        "DeleteObjects" => Verdict::Answer(200, denied.clone()),
        _ => Verdict::Pass,
    });
    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "ObjectsNotDeleted").await;
    for part in [KEY, "GOVERNANCE", "bypassGovernance", "allow s3:BypassGovernanceRetention"] {
        assert!(message.contains(part), "{message}");
    }
    assert_kept(&world, &bucket).await;
    world.aws.leave_alone();
    retry(&world).await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

const BYPASS: &str = r#"{"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "s3:BypassGovernanceRetention", "Resource": "arn:aws:s3:::*"}]}"#;

/// The class alone does not bypass it, and the shipped documents do not allow it. (The emulator denies the whole call.)
#[tokio::test]
async fn a_bypass_needs_the_permission_of_the_owner() {
    let world = World::new().await;
    let owner = PolicedOwner::new(&world, &[PLAIN, SETTINGS]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "GOVERNANCE:30d"), ("bypassGovernance", "yes")]).await;
    world.app("photos").await.put(&bucket, KEY).await.unwrap();
    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "AccessDenied").await;
    assert!(message.contains("s3:BypassGovernanceRetention"), "{message}");
    assert_kept(&world, &bucket).await;
    owner.allow(&world, &[PLAIN, SETTINGS, BYPASS]).await;
    retry(&world).await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn a_legal_hold_keeps_the_bucket_until_it_is_removed() {
    let world = World::new().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "Enabled")]).await;
    let app = world.app("photos").await;
    app.put(&bucket, KEY).await.unwrap();
    let hold = async |status: ObjectLockLegalHoldStatus| {
        let hold = ObjectLockLegalHold::builder().status(status).build();
        let versions = world.account.s3.list_object_versions().bucket(&bucket).send().await.unwrap();
        let version = versions.versions()[0].version_id().unwrap();
        let put = world.account.s3.put_object_legal_hold().bucket(&bucket).key(KEY).version_id(version);
        put.legal_hold(hold).send().await.unwrap();
    };
    hold(ObjectLockLegalHoldStatus::On).await;
    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "ObjectsNotDeleted").await;
    assert!(message.contains(KEY) && message.contains("has a legal hold"), "{message}");
    hold(ObjectLockLegalHoldStatus::Off).await;
    retry(&world).await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// Nobody can delete it, so an admin lets it go.
#[tokio::test]
async fn a_bucket_under_compliance_can_be_forgotten() {
    let world = World::new().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bound(&world, &[("objectLock", "Enabled"), ("bypassGovernance", "yes")]).await;
    put_locked(&world, &bucket, ObjectLockMode::Compliance, Duration::from_secs(600)).await;
    world.delete_claim("photos").await;
    let message = world.wait_reason("photos", "ObjectsLocked").await;
    assert!(message.contains("nobody can end that before") && message.contains("orphan=forget"), "{message}");
    world.set_action(&world.record_name("photos"), "forget").await;
    world.wait_gone("photos").await;
    assert!(world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn a_lock_can_be_lengthened_and_is_never_made_weaker() {
    let world = World::new().await;
    let class = world.class_with("locked", "Delete", &[("claimsMaySet", "objectLock")]).await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    let config = json!({ "objectLock": "GOVERNANCE:7d" });
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": config });
    world.claim_with("photos", spec.clone()).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let days = async || lock(&world, &bucket).await.and_then(|(_, days)| days);

    edit(&world, json!({ "objectLock": "GOVERNANCE:30d" })).await;
    world.wait_event_with("photos", "SettingsApplied", "30d").await;
    assert_eq!(days().await, Some(30));
    // By hand: what is shorter is restored, and what is longer stays.
    set_lock(&world, &bucket, 1).await;
    world.wait_event_with("photos", "Repaired", "the object lock").await;
    assert_eq!(days().await, Some(30));
    set_lock(&world, &bucket, 90).await;
    edit(&world, json!({ "objectLock": "GOVERNANCE:1d" })).await;
    world.wait_event_with("photos", "SettingReleased", "stays GOVERNANCE:90d").await;
    edit(&world, json!({ "objectLock": null })).await;
    world.wait_event_with("photos", "SettingReleased", "cannot be removed").await;
    assert_eq!(days().await, Some(90));
    edit(&world, json!({ "objectLock": "COMPLIANCE:1d" })).await;
    let (_, note) = world.wait_event("photos", "EditIgnored").await;
    assert!(note.contains("which only admins decide"), "{note}");
    operator.stop().await;
}
