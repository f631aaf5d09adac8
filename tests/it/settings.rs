//! Settings of buckets: by class, by claim, edited after Bound, changed by hand, and refused.
//!
//! Long, because the cases share what reads and edits settings.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_s3::error::ProvideErrorMetadata as _;
use aws_sdk_s3::types::{
    BucketVersioningStatus, Event, NotificationConfiguration, QueueConfiguration, VersioningConfiguration,
};
use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::settings::with_key_and_logs;
use crate::support::{World, bucket_of, phase, ready, seen};

const KEY: &str = "arn:aws:kms:eu-central-1:123456789012:key/0123-abcd";

const CORS: &str = r#"{"CORSRules": [{"AllowedMethods": ["PUT", "GET"], "AllowedOrigins": ["https://example.com"]}]}"#;

/// Everything that a class can set for a new bucket of a store with http; `logs`: the bucket for logs.
fn all_settings(logs: &str) -> BTreeMap<&'static str, String> {
    let logs = format!("{logs}/${{namespace}}/");
    let others = [
        ("tags", "team=${namespace},env=prod"),
        ("bucketVersioning", "Enabled"),
        ("objectLock", "Enabled"),
        ("bucketCors", CORS),
        ("eventBridge", "true"),
    ];
    let all = with_key_and_logs(KEY, &logs).into_iter().chain(others);
    all.map(|(key, value)| (key, value.to_owned())).collect()
}

async fn class(world: &World, settings: &BTreeMap<&str, String>) -> String {
    let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    world.class_with("set", "Delete", &settings).await
}

fn claim(class: &str, settings: &[(&str, &str)]) -> Value {
    let settings: BTreeMap<_, _> = settings.iter().copied().collect();
    json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": settings })
}

async fn edit(world: &World, settings: Value) {
    let patch = json!({ "spec": { "additionalConfig": settings } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn versioning(world: &World, bucket: &str) -> Option<BucketVersioningStatus> {
    world.account.s3.get_bucket_versioning().bucket(bucket).send().await.unwrap().status
}

/// The days after which objects expire; none without a lifecycle.
async fn expires_after(world: &World, bucket: &str) -> Vec<i32> {
    match world.account.s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await {
        Ok(found) => found.rules().iter().filter_map(|rule| rule.expiration()?.days()).collect(),
        Err(error) if error.code() == Some("NoSuchLifecycleConfiguration") => Vec::new(),
        Err(error) => panic!("{error:?}"),
    }
}

async fn user_tags(world: &World, claim: &str) -> BTreeMap<String, String> {
    let uid = world.claims().get(claim).await.unwrap().uid().unwrap();
    let user = world.account.users_with(&uid).await.pop().unwrap();
    let found = world.account.iam.get_user().user_name(user).send().await.unwrap();
    let tags = found.user().unwrap().tags().iter();
    tags.map(|tag| (tag.key().to_owned(), tag.value().to_owned())).collect()
}

fn puts(names: &[String]) -> Vec<&str> {
    let others = ["PutPublicAccessBlock", "PutObjectLockConfiguration"];
    let is_setting = |name: &&str| name.starts_with("PutBucket") || others.contains(name);
    names.iter().map(String::as_str).filter(is_setting).collect()
}

#[tokio::test]
async fn a_bucket_has_all_settings_before_its_keys_exist() {
    let world = World::new().await;
    let logs = world.unique("logs");
    world.account.create_bucket(&logs).await;
    let class = class(&world, &all_settings(&logs)).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let calls = world.aws.names();
    assert_eq!(
        puts(&calls),
        [
            "PutBucketOwnershipControls",
            "PutBucketEncryption",
            "PutBucketVersioning",
            "PutObjectLockConfiguration",
            "PutBucketLifecycleConfiguration",
            "PutBucketCors",
            "PutBucketNotificationConfiguration",
            "PutBucketLogging"
        ],
        "new buckets block public access already"
    );
    let last = calls.iter().rposition(|name| name.starts_with("Put") && name != "PutUserPolicy").unwrap();
    assert!(calls.iter().position(|name| name == "CreateUser").unwrap() > last, "{calls:?}");

    let s3 = &world.account.s3;
    let tags = world.account.bucket_tags(&bucket).await;
    assert_eq!((tags["team"].as_str(), tags["env"].as_str()), (world.namespace.as_str(), "prod"));
    assert_eq!(user_tags(&world, "photos").await["team"], world.namespace);
    assert_eq!(versioning(&world, &bucket).await, Some(BucketVersioningStatus::Enabled));
    assert_eq!(expires_after(&world, &bucket).await, [30]);
    let blocked = s3.get_public_access_block().bucket(&bucket).send().await.unwrap();
    assert_eq!(blocked.public_access_block_configuration().unwrap().restrict_public_buckets(), Some(true));
    let logging = s3.get_bucket_logging().bucket(&bucket).send().await.unwrap();
    let logging = logging.logging_enabled().unwrap();
    assert_eq!(logging.target_prefix(), format!("{}/", world.namespace));
    let owned = s3.get_bucket_ownership_controls().bucket(&bucket).send().await.unwrap();
    let rules = owned.ownership_controls().unwrap().rules();
    assert_eq!(rules[0].object_ownership().as_str(), "BucketOwnerPreferred");
    let cors = s3.get_bucket_cors().bucket(&bucket).send().await.unwrap();
    assert_eq!(cors.cors_rules()[0].allowed_origins(), ["https://example.com"]);
    let notifications = s3.get_bucket_notification_configuration().bucket(&bucket).send().await.unwrap();
    assert!(notifications.event_bridge_configuration().is_some());
    let lock = s3.get_object_lock_configuration().bucket(&bucket).send().await.unwrap();
    assert!(lock.object_lock_configuration().unwrap().object_lock_enabled().is_some());

    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[rstest]
#[case::admins_only("bucketVersioning", ("encryption", "AES256"), "SettingNotAllowed", "only admins set it")]
#[case::not_listed("expireAfter", ("bucketVersioning", "Enabled"), "SettingNotAllowed", "claimsMaySet")]
#[case::unlisted_class("", ("expireAfter", "1d"), "SettingNotAllowed", "claimsMaySet")]
#[case::unknown("expireAfter", ("expiresAfter", "1d"), "InvalidSetting", "lets claims set: expireAfter")]
#[case::zero_days("expireAfter", ("expireAfter", "0d"), "InvalidSetting", "a number of days, such as 30d")]
#[case::no_rules("bucketLifecycle", ("bucketLifecycle", r#"{"Rules":[]}"#), "InvalidSetting", "has 0 rules")]
#[case::no_cors("bucketCors", ("bucketCors", "*"), "InvalidSetting", "is not a CORS configuration")]
#[case::compliance("objectLock", ("objectLock", "COMPLIANCE:1y"), "InvalidSetting", "which only admins decide")]
#[case::no_json("bucketLifecycle", ("bucketLifecycle", "30d"), "InvalidSetting", "is not a lifecycle configuration")]
#[case::reserved_tag("tags.*", ("tags.aws:x", "1"), "InvalidSetting", "only AWS can set")]
#[tokio::test]
async fn a_setting_that_a_claim_cannot_have_fails_it(
    #[case] may_set: &str,
    #[case] asked: (&str, &str),
    #[case] reason: &str,
    #[case] part: &str,
) {
    let world = World::new().await;
    let class = world.class_with("set", "Delete", &[("claimsMaySet", may_set)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", claim(&class, &[asked])).await;
    let message = world.wait_reason("photos", reason).await;
    assert!(message.contains(part) && message.contains(asked.0), "{message}");
    assert_eq!(phase(&world.claims().get("photos").await.unwrap()), Some(ClaimPhase::Failed));
    assert_eq!(world.aws.writes(), [""; 0]);
    // Corrected, it gets its bucket.
    edit(&world, json!({ asked.0: null })).await;
    world.wait_bound("photos").await;
    operator.stop().await;
}

#[tokio::test]
async fn an_unknown_setting_is_only_reported_without_a_list() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", claim(&class, &[("maxObjects", "1000")])).await;
    world.wait_bound("photos").await;
    let (_, note) = world.wait_event("photos", "ConfigIgnored").await;
    assert!(note.contains("maxObjects"), "{note}");
    operator.stop().await;
}

#[tokio::test]
async fn edited_settings_apply_to_a_bound_claim() {
    let world = World::new().await;
    let parameters = [("claimsMaySet", "bucketVersioning,expireAfter,tags.*"), ("tags", "env=prod")];
    let class = world.class_with("set", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let asked = [("bucketVersioning", "Enabled"), ("expireAfter", "30d"), ("tags.team", "a")];
    world.claim_with("photos", claim(&class, &asked)).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    assert_eq!(versioning(&world, &bucket).await, Some(BucketVersioningStatus::Enabled));
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();

    edit(&world, json!({ "bucketVersioning": "Suspended", "expireAfter": "7d", "tags.team": "b" })).await;
    let (_, note) = world.wait_event("photos", "SettingsApplied").await;
    for part in ["bucketVersioning from Enabled to Suspended", "expireAfter from 30d to 7d", "tags.team from a to b"] {
        assert!(note.contains(part), "{note}");
    }
    assert_eq!(versioning(&world, &bucket).await, Some(BucketVersioningStatus::Suspended));
    assert_eq!(expires_after(&world, &bucket).await, [7]);
    assert_eq!(world.account.bucket_tags(&bucket).await["team"], "b");
    assert_eq!(user_tags(&world, "photos").await["team"], "b");

    // While no operator runs.
    operator.stop().await;
    edit(&world, json!({ "bucketVersioning": null, "expireAfter": null, "tags.team": null })).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_event_with("photos", "SettingsApplied", "expireAfter from 7d to none").await;
    let (_, note) = world.wait_event("photos", "SettingReleased").await;
    assert!(note.contains("bucketVersioning"), "{note}");
    assert_eq!(versioning(&world, &bucket).await, Some(BucketVersioningStatus::Suspended));
    assert_eq!(expires_after(&world, &bucket).await, [0; 0]);
    for tags in [world.account.bucket_tags(&bucket).await, user_tags(&world, "photos").await] {
        assert!(!tags.contains_key("team") && tags["env"] == "prod", "{tags:?}");
    }
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], key);
    operator.stop().await;
}

#[tokio::test]
async fn an_edit_that_is_not_allowed_changes_nothing() {
    let world = World::new().await;
    let class = world.class_with("set", "Delete", &[("claimsMaySet", "expireAfter")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", claim(&class, &[("expireAfter", "30d")])).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    for (asked, part) in [
        (json!({ "bucketVersioning": "Enabled", "expireAfter": "1d" }), "bucketVersioning"),
        (json!({ "bucketVersioning": null, "expireAfter": "soon" }), "a number of days"),
    ] {
        edit(&world, asked).await;
        world.wait_event_with("photos", "EditIgnored", part).await;
        assert_eq!(expires_after(&world, &bucket).await, [30]);
    }
    operator.stop().await;
}

/// And what is right already is not written again.
#[tokio::test]
async fn what_is_changed_by_hand_is_restored() {
    let world = World::new().await;
    let rules = r#"{"Rules": [
        {"ID": "b", "Status": "Enabled", "Filter": {"Prefix": "b/"}, "Expiration": {"Days": 2}},
        {"ID": "a", "Status": "Enabled", "Prefix": "a/", "Expiration": {"Days": 1}}]}"#;
    let parameters = [
        ("bucketVersioning", "Enabled"),
        ("bucketLifecycle", rules),
        ("publicAccess", "blocked"),
        ("tags", "env=prod"),
        ("bucketCors", CORS),
        ("eventBridge", "true"),
    ];
    let class = world.class_with("set", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    operator.stop().await;

    world.aws.clear();
    let often = || Operator::options(&world).with_resync(Duration::from_millis(300));
    let operator = Operator::with(&world, often());
    let checks = async || world.aws.names().iter().filter(|name| *name == "GetBucketVersioning").count();
    let twice = async {
        while checks().await < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), twice).await.expect("it is checked from time to time");
    assert_eq!(puts(&world.aws.names()), [""; 0], "nothing has changed");
    operator.stop().await;

    let s3 = &world.account.s3;
    let suspended = VersioningConfiguration::builder().status(BucketVersioningStatus::Suspended).build();
    s3.put_bucket_versioning().bucket(&bucket).versioning_configuration(suspended).send().await.unwrap();
    s3.delete_bucket_lifecycle().bucket(&bucket).send().await.unwrap();
    s3.delete_public_access_block().bucket(&bucket).send().await.unwrap();
    s3.delete_bucket_cors().bucket(&bucket).send().await.unwrap();
    let queue = QueueConfiguration::builder().queue_arn("arn:aws:sqs:us-west-1:000000000000:theirs");
    let queue = queue.events(Event::S3ObjectCreated).build().unwrap();
    let theirs = NotificationConfiguration::builder().queue_configurations(queue).build();
    let put = s3.put_bucket_notification_configuration().bucket(&bucket).notification_configuration(theirs);
    put.skip_destination_validation(true).send().await.unwrap();
    let mut tags = world.account.bucket_tags(&bucket).await;
    tags.insert("env".into(), "test".into());
    tags.insert("theirs".into(), "kept".into());
    let tags: Vec<_> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    world.account.tag_bucket(&bucket, &tags).await;
    let operator = Operator::with(&world, often());
    for what in
        ["the versioning", "the lifecycle", "the public access block", "tags of bucket", "the CORS", "EventBridge"]
    {
        world.wait_event_with("photos", "Repaired", what).await;
    }
    assert_eq!(versioning(&world, &bucket).await, Some(BucketVersioningStatus::Enabled));
    assert_eq!(expires_after(&world, &bucket).await.len(), 2);
    let tags = world.account.bucket_tags(&bucket).await;
    assert_eq!((tags["env"].as_str(), tags["theirs"].as_str()), ("prod", "kept"));
    let notifications = s3.get_bucket_notification_configuration().bucket(&bucket).send().await.unwrap();
    assert!(notifications.event_bridge_configuration().is_some());
    assert_eq!(notifications.queue_configurations().len(), 1, "that of others stays");
    operator.stop().await;
}

/// It names what is to be allowed, and others go on.
#[tokio::test]
async fn a_denied_setting_names_the_permission_and_the_setting() {
    let world = World::new().await;
    let (set, plain_class) =
        (world.class_with("set", "Delete", &[("bucketVersioning", "Enabled")]).await, world.class("greenfield").await);
    world.aws.inject(|call| match call.name.as_str() {
        "PutBucketVersioning" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &set).await;
    world.claim("others", &plain_class).await;
    let message = world.wait_reason("photos", "AccessDenied").await;
    assert!(message.contains("s3:PutBucketVersioning") && message.contains("bucketVersioning"), "{message}");
    world.wait_bound("others").await;
    let uid = world.claims().get("photos").await.unwrap().uid().unwrap();
    assert_eq!(world.account.buckets_with(&uid).await.len(), 1, "the setting was refused after CreateBucket");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(world.account.buckets_with(&uid).await.is_empty());
    operator.stop().await;
}

const DENIED: &str = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";

/// No emulator has keys that do not work. A denial is reported after a minute: KMS may not know the user before.
#[rstest]
#[case::disabled("KMS.DisabledException", "is disabled")]
#[case::denied("AccessDenied", "is not authorized to perform: kms:GenerateDataKey")]
#[tokio::test]
async fn a_kms_key_that_does_not_work_is_not_bound(#[case] code: &'static str, #[case] message: &str) {
    let world = World::new().await;
    let class = world.class_with("set", "Delete", &[("encryption", "aws:kms"), ("kmsKey", KEY)]).await;
    let answer = format!("<Error><Code>{code}</Code><Message>{message}</Message></Error>");
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateMultipartUpload" => Verdict::Answer(if code == "AccessDenied" { 403 } else { 400 }, answer.clone()),
        _ => Verdict::Pass,
    });
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    if code == "AccessDenied" {
        world.wait_reason("photos", "WaitingForCredentials").await;
    }
    let is_unusable = |claim: &ObjectBucketClaim| ready(claim).is_some_and(|ready| ready.reason == "KeyUnusable");
    // A denial takes longer than other waits.
    let _ = seen(&world.claims(), "photos", |claim| claim.is_some_and(is_unusable)).await;
    let message = world.wait_reason("photos", "KeyUnusable").await;
    assert!(message.contains(code) && message.contains("kmsKey"), "{message}");
    assert_ne!(phase(&world.claims().get("photos").await.unwrap()), Some(ClaimPhase::Bound));
    world.aws.leave_alone();
    world.retry("photos", "now").await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let uid = world.claims().get("photos").await.unwrap().uid().unwrap();
    let user = world.account.users_with(&uid).await.pop().unwrap();
    let policy = world.account.iam.get_user_policy().user_name(user).policy_name("bucket-access").send().await.unwrap();
    assert!(
        policy.policy_document().contains("kms%3AGenerateDataKey")
            || policy.policy_document().contains("kms:GenerateDataKey")
    );
    let uploads = world.account.s3.list_multipart_uploads().bucket(&bucket).send().await.unwrap();
    assert!(uploads.uploads().is_empty() && world.account.list(&bucket).await.unwrap().is_empty());
    operator.stop().await;
}

/// A class that has other settings than the bucket of this bound claim, under the same name; with its operator stopped.
async fn bound_before_the_class_changed(world: &World, settings: &[(&str, &str)]) -> String {
    let class = world.class_with("set", "Delete", settings).await;
    let operator = Operator::start(world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    operator.stop().await;
    world.delete_class(&class).await;
    world.class_with("set", "Delete", &[("expireAfter", "1d")]).await;
    bucket
}

#[tokio::test]
async fn an_adopted_bucket_keeps_the_settings_of_its_record() {
    let world = World::new().await;
    let settings = [("expireAfter", "30d"), ("bucketVersioning", "Enabled")];
    let bucket = bound_before_the_class_changed(&world, &settings).await;
    let (backup, record) = (world.back_up("photos").await, world.record_name("photos"));
    world.lose("photos").await;
    world.account.s3.delete_bucket_lifecycle().bucket(&bucket).send().await.unwrap();
    for object in [&backup.secret, &backup.config_map, &backup.record, &backup.claim] {
        world.restore(object).await;
    }
    world.set_action(&record, "adopt").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_event("photos", "Adopted").await;
    assert_eq!(expires_after(&world, &bucket).await, [30]);
    assert_eq!(versioning(&world, &bucket).await, Some(BucketVersioningStatus::Enabled));
    operator.stop().await;
}

/// Nobody knows what was set for it: what the class sets now could delete what is in it.
#[tokio::test]
async fn a_recreated_object_bucket_gets_no_settings_of_its_class() {
    let world = World::new().await;
    let bucket = bound_before_the_class_changed(&world, &[]).await;
    let record = world.record_name("photos");
    world.forget_object(&world.records(), &record).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let (_, note) = world.wait_event("photos", "Repaired").await;
    assert!(note.contains("did not exist"), "{note}");
    let state = world.records().get(&record).await.unwrap().spec.additional_state.unwrap();
    assert!(!state.keys().any(|key| key.starts_with("setting.")), "{state:?}");
    assert_eq!(expires_after(&world, &bucket).await, [0; 0]);
    operator.stop().await;
}

/// A claim without anything to do makes no call after a restart.
#[tokio::test]
async fn a_restart_asks_about_no_setting() {
    let world = World::new().await;
    let class = world.class_with("set", "Delete", &[("bucketVersioning", "Enabled")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    operator.stop().await;
    world.aws.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("later", &class).await;
    world.wait_bound("later").await;
    let calls: Vec<_> = world.aws.calls().into_iter().filter(|call| call.target.contains(&bucket)).collect();
    assert!(calls.is_empty(), "{calls:?}");
    operator.stop().await;
}

/// It is longer than what is cached, so the claim is read again. Nothing else waits for that.
#[tokio::test]
async fn a_long_value_is_applied_or_refused_once() {
    let world = World::new().await;
    let class = world.class_with("set", "Delete", &[("claimsMaySet", "bucketLifecycle")]).await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    let rules = |days: u32| {
        let rule =
            json!({ "ID": "a", "Status": "Enabled", "Filter": { "Prefix": "" }, "Expiration": { "Days": days } });
        json!({ "Rules": [rule] }).to_string()
    };
    world.claim_with("photos", claim(&class, &[("bucketLifecycle", &rules(30))])).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    assert_eq!(expires_after(&world, &bucket).await, [30]);
    edit(&world, json!({ "bucketLifecycle": rules(7) })).await;
    world.wait_event("photos", "SettingsApplied").await;
    assert_eq!(expires_after(&world, &bucket).await, [7]);
    edit(&world, json!({ "bucketLifecycle": rules(7).replace("Enabled", "Sometimes") })).await;
    world.wait_event_with("photos", "EditIgnored", "Sometimes").await;
    // It is still checked from time to time.
    world.account.s3.delete_bucket_lifecycle().bucket(&bucket).send().await.unwrap();
    world.wait_event_with("photos", "Repaired", "the lifecycle").await;
    assert_eq!(expires_after(&world, &bucket).await, [7]);
    let ignored = world.events("photos").await.into_iter().filter(|(_, reason, _)| reason == "EditIgnored").count();
    assert_eq!(ignored, 1);
    operator.stop().await;
}
