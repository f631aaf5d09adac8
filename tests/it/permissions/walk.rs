//! A walk through all that an operator does with claims: whatever needs a permission is done here once. A new flow that
//! needs another one belongs here, too; until then its permission counts as one that nothing needs.

use bucket_provisioner::api::ObjectBucket;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::stage::Stage;
use crate::support::operator::Binary;
use crate::support::owner_policy::{BOUNDED, GO_PROVISIONER, GROUPS, SETTINGS};
use crate::support::proxy::Verdict;
use crate::support::{PATIENCE, World, bucket_of, condition, seen};
use crate::takeover::legacy::{Legacy, Spelling};
use crate::upkeep::{date, wait_deactivated};

const NO_SUCH_CALL: &str = "<Error><Code>NotImplemented</Code><Message>not here</Message></Error>";
const DENIED: &str = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";

/// A claim that is bound and used.
struct Used {
    name: &'static str,
    bucket: String,
    user: String,
}

impl Used {
    async fn new(stage: &Stage, name: &'static str, class: &str) -> Self {
        let world = &stage.world;
        let uid = world.claim(name, class).await.uid().unwrap();
        let bucket = bucket_of(&world.wait_bound(name).await);
        world.app(name).await.put(&bucket, "folder/a").await.unwrap();
        let user = world.account.users_with(&uid).await.pop().expect("a user");
        Self { name, bucket, user }
    }
}

async fn annotate(world: &World, claim: &str, key: &str, value: &str) {
    let patch = json!({ "metadata": { "annotations": { format!("objectbucket.io/{key}"): value } } });
    world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn key_of(world: &World, claim: &str) -> String {
    world.environment(claim).await["AWS_ACCESS_KEY_ID"].clone()
}

/// Serves claims of every kind, first with one operator and then with its standby; returns what the Go
/// provisioner had made.
pub(super) async fn serve(stage: &Stage, policy: &str) -> Legacy {
    let world = &stage.world;
    let class = stage.class("created", &[]).await;
    let legacy = Legacy::install(world, &class, Spelling::Lower).await;
    let for_legacy = GO_PROVISIONER.replace("NAME-OF-THE-USER", &legacy.user);
    stage.owner.allow(world, &[policy, GROUPS, SETTINGS, &for_legacy]).await;
    let mut first = stage.start();
    let leader = stage.wait_leader(None).await;
    let mut second = stage.start();
    second.wait_log("on standby").await;

    // Each has its own claim, because repeated requests for the same claim have to wait.
    let photos = Used::new(stage, "photos", &class).await;
    let drifting = Used::new(stage, "drifting", &class).await;
    let rotating = Used::new(stage, "rotating", &class).await;
    repair_outputs(world, &photos).await;
    repair_store(world, &drifting).await;
    find_account(world, &drifting).await;
    rotate(world, &rotating).await;
    recall(world, rotating.name).await;
    wait_for_class(stage).await;
    share(stage).await;
    limit(stage).await;
    manage(stage).await;
    delete_later(stage).await;
    take_over(world, &legacy, policy == BOUNDED).await;

    end(&mut first).await;
    assert!(first.log().contains("released the lease"), "{}", first.log());
    stage.wait_leader(Some(&leader)).await;
    remove_crowded(stage, photos).await;
    end(&mut second).await;
    legacy
}

/// Ends it as a rollout does; Kubernetes refused it nothing.
async fn end(operator: &mut Binary) {
    operator.terminate();
    operator.ended(PATIENCE).await;
    assert!(!operator.log().contains("forbidden"), "{}", operator.log());
}

/// What was deleted or edited in the cluster is restored.
async fn repair_outputs(world: &World, photos: &Used) {
    world.secrets().delete(photos.name, &DeleteParams::default()).await.unwrap();
    world.wait_secret(photos.name, |secret| secret.contains_key("AWS_ACCESS_KEY_ID")).await;
    world.wait_reason(photos.name, "Bound").await;
    let edit = Patch::Merge(json!({ "data": { "BUCKET_NAME": "another" } }));
    world.config_maps().patch(photos.name, &PatchParams::default(), &edit).await.unwrap();
    world.wait_config_map(photos.name, |map| map["BUCKET_NAME"] == photos.bucket).await;
    world.config_maps().delete(photos.name, &DeleteParams::default()).await.unwrap();
    world.wait_config_map(photos.name, |map| map["BUCKET_NAME"] == photos.bucket).await;
    let unlabel = Patch::Merge(json!({ "metadata": { "labels": { "bucket-provisioner": null } } }));
    world.secrets().patch(photos.name, &PatchParams::default(), &unlabel).await.unwrap();
    let is_labelled = |secret: Option<&Secret>| secret.is_some_and(|s| s.labels().contains_key("bucket-provisioner"));
    seen(&world.secrets(), photos.name, is_labelled).await.expect("the label comes back");
    world.wait_reason(photos.name, "Bound").await;
}

/// What was removed in AWS is restored by the next check.
async fn repair_store(world: &World, photos: &Used) {
    let iam = &world.account.iam;
    iam.delete_user_policy().user_name(&photos.user).policy_name("bucket-access").send().await.unwrap();
    iam.untag_user().user_name(&photos.user).tag_keys("objectbucket.io/claim-uid").send().await.unwrap();
    world.account.tag_bucket(&photos.bucket, &[("team", "a")]).await;
    annotate(world, photos.name, "retry", "repair").await;
    for part in ["bucket-access", "had lost the tags", &photos.bucket] {
        world.wait_event_with(photos.name, "Repaired", part).await;
    }
}

async fn rotate(world: &World, photos: &Used) {
    let before = key_of(world, photos.name).await;
    annotate(world, photos.name, "rotate-keys", "now").await;
    world.wait_secret(photos.name, |secret| secret["AWS_ACCESS_KEY_ID"] != before).await;
    date(world, photos.name, "objectbucket.io/retire-key-at").await;
    wait_deactivated(world, photos.name).await;
    date(world, photos.name, "objectbucket.io/retire-key-at").await;
    let after = key_of(world, photos.name).await;
    world.wait_keys(&photos.user, &[&after]).await;
}

/// A bucket whose tags are denied to the provisioning credentials may be of another account, or of their own.
async fn find_account(world: &World, photos: &Used) {
    let bucket = photos.bucket.clone();
    world.aws.inject(move |call| match call.name.as_str() {
        "GetBucketTagging" if call.target.contains(&bucket) => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    annotate(world, photos.name, "retry", "account").await;
    world.aws.wait_until("ListBuckets", |calls| calls.iter().any(|call| call.name == "ListBuckets")).await;
    world.wait_event(photos.name, "CheckFailed").await;
    world.aws.leave_alone();
}

/// An admin prints the ObjectBucket that a claim would have if it was lost.
async fn recall(world: &World, name: &str) {
    let user = world.account.users_with(&world.claims().get(name).await.unwrap().uid().unwrap()).await.pop().unwrap();
    let claim = format!("{}/{name}", world.namespace);
    let printed = Binary::run(world, &["record", &claim]).await.unwrap();
    assert!(printed.contains(&user), "{printed}");
}

/// A claim that is there before its class.
async fn wait_for_class(stage: &Stage) {
    let world = &stage.world;
    world.claim("early", &world.unique("later")).await;
    world.wait_reason("early", "StorageClassNotFound").await;
    stage.class("later", &[]).await;
    world.wait_bound("early").await;
}

/// Access to a bucket that exists.
async fn share(stage: &Stage) {
    let world = &stage.world;
    let existing = world.unique("existing");
    world.account.create_bucket(&existing).await;
    let class = stage.class("granted", &[("bucketName", &existing)]).await;
    world.claim_with("archive", json!({ "storageClassName": class })).await;
    world.wait_bound("archive").await;
    recall(world, "archive").await;
    let checks = || world.aws.names().iter().filter(|name| *name == "GetUserPolicy").count();
    let before = checks();
    annotate(world, "archive", "retry", "check").await;
    world.aws.wait_until("a check", |_| checks() > before).await;
    world.delete_claim("archive").await;
    world.wait_gone("archive").await;
    assert!(world.account.bucket_exists(&existing).await);
}

/// Keys that only write are tried by an upload; where the bucket's own policy denies that, they are asked where the bucket is.
async fn limit(stage: &Stage) {
    let world = &stage.world;
    let existing = world.unique("written");
    world.account.create_bucket(&existing).await;
    let class = stage.class("written", &[("bucketName", &existing)]).await;
    let spec = json!({ "storageClassName": class, "additionalConfig": { "accessMode": "WriteOnly" } });
    world.claim_with("writer", spec.clone()).await;
    world.wait_bound("writer").await;
    let bucket = existing.clone();
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateMultipartUpload" if call.target.contains(&bucket) => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    world.claim_with("denied-writer", spec).await;
    world.wait_bound("denied-writer").await;
    world.aws.leave_alone();
    for claim in ["writer", "denied-writer"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
}

/// A bucket with settings: one is changed by hand, and the claim no longer sets others.
async fn manage(stage: &Stage) {
    let world = &stage.world;
    let logs = world.unique("logs");
    world.account.create_bucket(&logs).await;
    let logs = format!("{logs}/photos/");
    let settings = [
        ("tags", "team=a"),
        ("bucketVersioning", "Enabled"),
        ("objectLock", "GOVERNANCE:1d"),
        ("eventBridge", "true"),
        ("encryption", "aws:kms"),
        ("kmsKey", "arn:aws:kms:eu-central-1:123456789012:key/0123"),
        ("publicAccess", "blocked"),
        ("objectOwnership", "BucketOwnerPreferred"),
        ("accessLogs", &logs),
        ("claimsMaySet", "bucketCors,expireAfter,tags.*"),
    ];
    let class = stage.class("managed", &settings).await;
    let cors = r#"{"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}"#;
    let asked = json!({ "bucketCors": cors, "expireAfter": "30d", "tags.owner": "me" });
    let spec = json!({ "storageClassName": class, "generateBucketName": "managed", "additionalConfig": asked });
    world.claim_with("managed", spec).await;
    let bucket = bucket_of(&world.wait_bound("managed").await);
    world.account.s3.delete_public_access_block().bucket(&bucket).send().await.unwrap();
    annotate(world, "managed", "retry", "check").await;
    world.wait_event_with("managed", "Repaired", "the public access block").await;
    let released =
        json!({ "spec": { "additionalConfig": { "bucketCors": null, "expireAfter": null, "tags.owner": null } } });
    world.claims().patch("managed", &PatchParams::default(), &Patch::Merge(released)).await.unwrap();
    world.wait_event("managed", "SettingsApplied").await;
    world.app("managed").await.put(&bucket, "locked").await.unwrap();
    world.delete_claim("managed").await;
    world.wait_reason("managed", "ObjectsLocked").await;
    let versions = world.account.s3.list_object_versions().bucket(&bucket).send().await.unwrap();
    for version in versions.versions() {
        let delete = world.account.s3.delete_object().bucket(&bucket).key(version.key().unwrap());
        let delete = delete.set_version_id(version.version_id.clone()).bypass_governance_retention(true);
        delete.send().await.unwrap();
    }
    annotate(world, "managed", "retry", "now").await;
    world.wait_gone("managed").await;
}

/// A claim whose bucket is deleted later, and can be requested again from its namespace.
async fn delete_later(stage: &Stage) {
    let world = &stage.world;
    let class = stage.class("later-deleted", &[("onDelete", "after:7d")]).await;
    let used = Used::new(stage, "temporary", &class).await;
    world.delete_claim(used.name).await;
    world.wait_gone(used.name).await;
    let record = world.record_name(used.name);
    world.set_action(&record, "remove").await;
    world.wait_record_gone(&record).await;
    assert!(!world.account.bucket_exists(&used.bucket).await);
}

/// What the Go provisioner bound gets a new key, and is removed. Where a boundary is demanded, its users can be removed
/// only.
async fn take_over(world: &World, legacy: &Legacy, only_removed: bool) {
    let (name, old) = ("c2", key_of(world, "c2").await);
    world.app(name).await.put(&legacy.bucket, "a").await.unwrap();
    if !only_removed {
        world.strip_finalizers(&world.secrets(), name).await;
        world.secrets().delete(name, &DeleteParams::default()).await.unwrap();
        world.wait_secret(name, |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
        world.app(name).await.put(&legacy.bucket, "b").await.unwrap();
        rotate(world, &Used { name, bucket: legacy.bucket.clone(), user: legacy.user.clone() }).await;
    }
    let version = json!({ "Version": "2012-10-17", "Statement": [{
        "Effect": "Allow", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{}/*", legacy.bucket),
    }]});
    let iam = &world.account.iam;
    let more = iam.put_user_policy().user_name(&legacy.user).policy_name("more");
    more.policy_document(version.to_string()).send().await.unwrap();
    let version = iam.create_policy_version().policy_arn(&legacy.policy).policy_document(version.to_string());
    version.set_as_default(true).send().await.unwrap();
    give_credentials(world, &legacy.user).await;
    world.delete_claim(name).await;
    world.wait_gone(name).await;
    legacy.assert_gone(world).await;
}

/// Gives a user what people sign in with, beside a password.
async fn give_credentials(world: &World, user: &str) {
    let iam = &world.account.iam;
    let device = iam.create_virtual_mfa_device().virtual_mfa_device_name(user).send().await.unwrap();
    let serial = device.virtual_mfa_device.unwrap().serial_number;
    let enable = iam.enable_mfa_device().user_name(user).serial_number(&serial);
    enable.authentication_code1("123456").authentication_code2("654321").send().await.unwrap();
    world.aws.upstream().give_credentials(user);
}

/// A claim is deleted to whose user somebody added all kinds of things, and whose bucket is in a store that deletes one
/// object at a time.
async fn remove_crowded(stage: &Stage, photos: Used) {
    let (world, iam) = (&stage.world, &stage.world.account.iam);
    let all = json!({ "Version": "2012-10-17", "Statement": [{ "Effect": "Allow", "Action": "*", "Resource": "*" }] });
    iam.put_user_policy()
        .user_name(&photos.user)
        .policy_name("more")
        .policy_document(all.to_string())
        .send()
        .await
        .unwrap();
    iam.attach_user_policy().user_name(&photos.user).policy_arn(&stage.owner.boundary).send().await.unwrap();
    iam.create_login_profile().user_name(&photos.user).password("c0rrect-Horse").send().await.unwrap();
    give_credentials(world, &photos.user).await;
    let group = world.unique("group");
    iam.create_group().group_name(&group).send().await.unwrap();
    iam.add_user_to_group().group_name(&group).user_name(&photos.user).send().await.unwrap();
    let upload = world.account.s3.create_multipart_upload().bucket(&photos.bucket).key("unfinished");
    upload.send().await.unwrap();
    let bucket = photos.bucket.clone();
    world.aws.inject(move |call| match call.name.as_str() {
        "DeleteObjects" if call.target.contains(&bucket) => Verdict::Answer(501, NO_SUCH_CALL.to_owned()),
        _ => Verdict::Pass,
    });
    world.delete_claim(photos.name).await;
    world.wait_gone(photos.name).await;
    world.aws.leave_alone();
    world.assert_no_objects(photos.name).await;
    assert!(!world.account.bucket_exists(&photos.bucket).await && !world.account.user_exists(&photos.user).await);
}

/// What disasters leave: a claim that comes back from a backup, one that was forced out, and one that lost its
/// ObjectBucket.
pub(super) async fn recover(stage: &Stage) {
    let world = &stage.world;
    let class = world.unique("created");
    stage.killed_another_installation().await;
    let mut operator = stage.start();
    let lost = Used::new(stage, "lost", &class).await;
    let orphan = Used::new(stage, "orphan", &class).await;
    let unrecorded = Used::new(stage, "unrecorded", &class).await;
    world.account.keep_versions(&orphan.bucket).await;
    world.app(orphan.name).await.put(&orphan.bucket, "folder/a").await.unwrap();
    end(&mut operator).await;

    let backup = world.back_up(lost.name).await;
    world.lose(lost.name).await;
    world.restore(&backup.record).await;
    world.restore(&backup.secret).await;
    world.restore(&backup.claim).await;
    world.forget_object(&world.claims(), orphan.name).await;
    let record = world.record_name(unrecorded.name);
    world.forget_object(&world.records(), &record).await;

    let mut operator = stage.start();
    adopt(world, &lost).await;
    let of_orphan = world.record_name(orphan.name);
    world.wait_orphaned(&of_orphan, "ClaimGone").await;
    world.set_action(&of_orphan, "remove").await;
    world.wait_record_gone(&of_orphan).await;
    assert!(!world.account.bucket_exists(&orphan.bucket).await && !world.account.user_exists(&orphan.user).await);
    let is_back = |record: Option<&ObjectBucket>| record.is_some();
    seen(&world.records(), &record, is_back).await.expect("the record comes back");
    world.wait_event(unrecorded.name, "Repaired").await;
    for used in [lost, unrecorded] {
        world
            .wait_claim(used.name, "ready", |claim| condition(claim, "Ready").is_some_and(|c| c.reason == "Bound"))
            .await;
        world.delete_claim(used.name).await;
        world.wait_gone(used.name).await;
        assert!(!world.account.bucket_exists(&used.bucket).await && !world.account.user_exists(&used.user).await);
    }
    end(&mut operator).await;
}

async fn adopt(world: &World, lost: &Used) {
    let record = world.record_name(lost.name);
    world.wait_orphaned(&record, "ClaimReplaced").await;
    world.wait_reason(lost.name, "AdoptionNeeded").await;
    world.set_action(&record, "adopt").await;
    world.wait_event(lost.name, "Adopted").await;
    world.wait_reason(lost.name, "Bound").await;
    assert_eq!(bucket_of(&world.wait_bound(lost.name).await), lost.bucket);
}
