//! Settings of buckets, each with all that it consists of: as AWS has them after Bound, after somebody changed them by
//! hand, and after an edit that AWS refused for a while.

use std::time::Duration;

use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::{
    BlockedEncryptionTypes, BucketLifecycleConfiguration, BucketLocationConstraint, BucketLoggingStatus,
    CorsConfiguration, CorsRule, CreateBucketConfiguration, EncryptionType, Event, LifecycleRule, LoggingEnabled,
    NotificationConfiguration, ObjectOwnership, OwnershipControls, OwnershipControlsRule,
    PublicAccessBlockConfiguration, QueueConfiguration, ServerSideEncryption, ServerSideEncryptionByDefault,
    ServerSideEncryptionConfiguration, ServerSideEncryptionRule,
};
use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::account::Account;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::{Call, Verdict};
use crate::support::settings::with_key_and_logs;
use crate::support::{World, assert_contains, bucket_of, condition, phase, ready};

const KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";
const OTHER_KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/4567-ef01";

const CORS: &str = r#"{"CORSRules": [{"ID": "app", "AllowedMethods": ["PUT", "GET"], "AllowedHeaders": ["*"],
    "AllowedOrigins": ["https://example.com"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}]}"#;

/// What S3 has; `None` if it answers with this code.
fn unless<T, E: ProvideErrorMetadata + std::fmt::Debug>(code: &str, answer: Result<T, E>) -> Option<T> {
    match answer {
        Ok(found) => Some(found),
        Err(error) if error.code() == Some(code) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// A rule as `[id, status, prefix, days, delete markers, noncurrent days, days of uploads]`.
fn shown(rule: &LifecycleRule) -> Value {
    let prefix = rule.filter.as_ref().and_then(|filter| filter.prefix.clone()).unwrap_or_default();
    let expiration = rule.expiration.as_ref();
    json!([
        rule.id,
        rule.status.as_str(),
        prefix,
        expiration.and_then(|expiration| expiration.days),
        expiration.and_then(|expiration| expiration.expired_object_delete_marker),
        rule.noncurrent_version_expiration.as_ref().and_then(|expiration| expiration.noncurrent_days),
        rule.abort_incomplete_multipart_upload.as_ref().and_then(|abort| abort.days_after_initiation)
    ])
}

/// All settings of a bucket; of its tags, those that are not the operator's own.
async fn settings(account: &Account, bucket: &str) -> Value {
    let s3 = &account.s3;
    let versioning = s3.get_bucket_versioning().bucket(bucket).send().await.unwrap().status;
    let encryption = s3.get_bucket_encryption().bucket(bucket).send().await.unwrap();
    let encryption = encryption.server_side_encryption_configuration.unwrap().rules;
    let encryption = encryption.iter().map(|rule| {
        let by_default = rule.apply_server_side_encryption_by_default.as_ref().unwrap();
        let blocked = rule.blocked_encryption_types.as_ref().and_then(|blocked| blocked.encryption_type.as_ref());
        let blocked = blocked.map(|all| all.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>());
        json!([by_default.sse_algorithm.as_str(), by_default.kms_master_key_id, rule.bucket_key_enabled, blocked])
    });
    let encryption: Vec<_> = encryption.collect();
    let rules = s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await;
    let rules = unless("NoSuchLifecycleConfiguration", rules).and_then(|found| found.rules);
    let mut rules = rules.unwrap_or_default();
    rules.sort_by(|a, b| a.id.cmp(&b.id));
    let lifecycle: Vec<_> = rules.iter().map(shown).collect();
    let public = s3.get_public_access_block().bucket(bucket).send().await;
    let public = unless("NoSuchPublicAccessBlockConfiguration", public);
    let public = public.and_then(|found| found.public_access_block_configuration).map(|found| {
        let acls = [found.block_public_acls, found.ignore_public_acls];
        [acls, [found.block_public_policy, found.restrict_public_buckets]].concat()
    });
    let owned = s3.get_bucket_ownership_controls().bucket(bucket).send().await;
    let owned = unless("OwnershipControlsNotFoundError", owned).and_then(|found| found.ownership_controls);
    let owned: Option<Vec<_>> =
        owned.map(|controls| controls.rules.iter().map(|rule| rule.object_ownership.as_str().to_owned()).collect());
    let logging = s3.get_bucket_logging().bucket(bucket).send().await.unwrap().logging_enabled;
    let logging = logging.map(|found| [found.target_bucket, found.target_prefix]);
    let mut tags = account.bucket_tags(bucket).await;
    tags.retain(|key, _| !key.starts_with("objectbucket.io/"));
    let cors = s3.get_bucket_cors().bucket(bucket).send().await;
    let cors = unless("NoSuchCORSConfiguration", cors).and_then(|found| found.cors_rules).unwrap_or_default();
    let cors = cors.iter().map(|rule| {
        let (methods, origins) = (&rule.allowed_methods, &rule.allowed_origins);
        json!([rule.id, methods, origins, rule.allowed_headers, rule.expose_headers, rule.max_age_seconds])
    });
    let cors: Vec<_> = cors.collect();
    let notified = s3.get_bucket_notification_configuration().bucket(bucket).send().await.unwrap();
    let lock = s3.get_object_lock_configuration().bucket(bucket).send().await;
    let lock = unless("ObjectLockConfigurationNotFoundError", lock).and_then(|found| found.object_lock_configuration);
    let lock = lock.map(|lock| {
        let enabled = lock.object_lock_enabled.map(|enabled| enabled.as_str().to_owned());
        let retention = lock.rule.and_then(|rule| rule.default_retention);
        let mode = retention.as_ref().and_then(|found| found.mode.as_ref()).map(|mode| mode.as_str().to_owned());
        json!([enabled, mode, retention.as_ref().and_then(|found| found.days)])
    });
    json!({
        "versioning": versioning.map(|status| status.as_str().to_owned()),
        "encryption": encryption,
        "lifecycle": lifecycle,
        "publicAccess": public,
        "ownership": owned,
        "logging": logging,
        "tags": tags,
        "cors": cors,
        "eventBridge": notified.event_bridge_configuration().is_some(),
        "queues": notified.queue_configurations().len(),
        "lock": lock,
    })
}

/// Sets the default encryption by hand. Objects with keys of customers are refused, whatever the algorithm.
async fn encrypt(account: &Account, bucket: &str, algorithm: &str, key: Option<&str>, bucket_key: bool) {
    let by_default = ServerSideEncryptionByDefault::builder()
        .sse_algorithm(ServerSideEncryption::from(algorithm))
        .set_kms_master_key_id(key.map(str::to_owned))
        .build()
        .unwrap();
    let rule = ServerSideEncryptionRule::builder()
        .apply_server_side_encryption_by_default(by_default)
        .bucket_key_enabled(bucket_key)
        .blocked_encryption_types(BlockedEncryptionTypes::builder().encryption_type(EncryptionType::SseC).build())
        .build();
    let all = ServerSideEncryptionConfiguration::builder().rules(rule).build().unwrap();
    let put = account.s3.put_bucket_encryption().bucket(bucket).server_side_encryption_configuration(all);
    put.send().await.unwrap();
}

/// The emulator has the defaults of AWS, so AES256 is first changed by hand.
#[rstest]
#[case::us_east_1("us-east-1")]
#[case::elsewhere("eu-central-1")]
#[tokio::test]
async fn aws_has_each_setting_with_all_its_values(#[case] region: &str) {
    let world = World::new().await;
    let there = Account::at(&world.store.url, region, &world.store.key, &world.store.secret);
    let (logs, key) = (world.unique("logs"), KEY.replace("us-west-1", region));
    let config = (region != "us-east-1").then(|| {
        let constraint = BucketLocationConstraint::from(region);
        CreateBucketConfiguration::builder().location_constraint(constraint).build()
    });
    there.s3.create_bucket().bucket(&logs).set_create_bucket_configuration(config).send().await.unwrap();
    let access_logs = format!("{logs}/${{namespace}}/");
    let others = [
        ("region", region),
        ("tags", "team=${namespace},env=prod"),
        ("bucketVersioning", "Enabled"),
        ("bucketCors", CORS),
        ("eventBridge", "true"),
    ];
    let all: Vec<_> = with_key_and_logs(&key, &access_logs).into_iter().chain(others).collect();
    let set = world.class_with("set", "Delete", &all).await;
    let locked = [("region", region), ("encryption", "AES256"), ("objectLock", "GOVERNANCE:30d")];
    let locked = world.class_with("locked", "Delete", &locked).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &set).await;
    world.claim("ledger", &locked).await;
    let photos = bucket_of(&world.wait_bound("photos").await);
    let wanted = json!({
        "versioning": "Enabled",
        "encryption": [["aws:kms", key, true, null]],
        "lifecycle": [
            ["objectbucket.io/abort-uploads", "Enabled", "", null, null, null, 1],
            ["objectbucket.io/expire", "Enabled", "", 30, null, null, null],
            ["objectbucket.io/expire-noncurrent", "Enabled", "", null, true, 7, null]
        ],
        "publicAccess": [true, true, true, true],
        "ownership": ["BucketOwnerPreferred"],
        "logging": [logs, format!("{}/", world.namespace)],
        "tags": { "team": world.namespace, "env": "prod" },
        "cors": [["app", ["GET", "PUT"], ["https://example.com"], ["*"], ["ETag"], 60]],
        "eventBridge": true,
        "queues": 0,
        "lock": null,
    });
    assert_eq!(settings(&there, &photos).await, wanted);

    let ledger = bucket_of(&world.wait_bound("ledger").await);
    let found = settings(&there, &ledger).await;
    assert_eq!((&found["versioning"], &found["lock"]), (&json!("Enabled"), &json!(["Enabled", "GOVERNANCE", 30])));
    encrypt(&there, &ledger, "aws:kms", Some(&key), true).await;
    world.retry("ledger", "now").await;
    world.wait_event_with("ledger", "Repaired", "the default encryption").await;
    assert_eq!(settings(&there, &ledger).await["encryption"], json!([["AES256", null, null, ["SSE-C"]]]));
    operator.stop().await;
}

/// What the class below does not set.
async fn set_others_by_hand(account: &Account, bucket: &str) {
    account.keep_versions(bucket).await;
    let rule = CorsRule::builder().allowed_methods("GET").allowed_origins("*").build().unwrap();
    let cors = CorsConfiguration::builder().cors_rules(rule).build().unwrap();
    account.s3.put_bucket_cors().bucket(bucket).cors_configuration(cors).send().await.unwrap();
    let queue = QueueConfiguration::builder().queue_arn("arn:aws:sqs:us-west-1:000000000000:theirs");
    let queue = queue.events(Event::S3ObjectCreated).build().unwrap();
    let theirs = NotificationConfiguration::builder().queue_configurations(queue).build();
    let put = account.s3.put_bucket_notification_configuration().bucket(bucket).notification_configuration(theirs);
    put.skip_destination_validation(true).send().await.unwrap();
    let mut tags = account.bucket_tags(bucket).await;
    tags.insert("theirs".into(), "kept".into());
    let tags: Vec<_> = tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    account.tag_bucket(bucket, &tags).await;
    encrypt(account, bucket, "aws:kms", Some(KEY), true).await;
}

/// In how many ways [`change_by_hand`] changes each setting.
const WAYS: usize = 4;

/// Changes or removes all that the class below sets, each in one of several ways.
async fn change_by_hand(account: &Account, (bucket, logs): (&str, &str), way: usize) {
    let s3 = &account.s3;
    let is_on = |field: usize| Some(field != way);
    let public = PublicAccessBlockConfiguration::builder()
        .set_block_public_acls(is_on(0))
        .set_ignore_public_acls(is_on(1))
        .set_block_public_policy(is_on(2))
        .set_restrict_public_buckets(is_on(3))
        .build();
    s3.put_public_access_block().bucket(bucket).public_access_block_configuration(public).send().await.unwrap();

    let ways = [
        ("AES256", None, false),
        ("aws:kms", Some(OTHER_KEY), true),
        ("aws:kms", Some(KEY), false),
        ("aws:kms:dsse", Some(KEY), false),
    ];
    let (algorithm, key, bucket_key) = ways[way];
    encrypt(account, bucket, algorithm, key, bucket_key).await;

    let ownership = ["ObjectWriter", "", "BucketOwnerEnforced", "ObjectWriter"][way];
    if ownership.is_empty() {
        s3.delete_bucket_ownership_controls().bucket(bucket).send().await.unwrap();
    } else {
        let rule = OwnershipControlsRule::builder().object_ownership(ObjectOwnership::from(ownership)).build().unwrap();
        let controls = OwnershipControls::builder().rules(rule).build().unwrap();
        s3.put_bucket_ownership_controls().bucket(bucket).ownership_controls(controls).send().await.unwrap();
    }

    let logged = [Some((logs, "others/")), Some(("others", "app/")), None, Some(("others", ""))][way];
    let enabled = logged
        .map(|(target, prefix)| LoggingEnabled::builder().target_bucket(target).target_prefix(prefix).build().unwrap());
    let status = BucketLoggingStatus::builder().set_logging_enabled(enabled).build();
    s3.put_bucket_logging().bucket(bucket).bucket_logging_status(status).send().await.unwrap();

    let found = s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await.unwrap();
    let mut rules = found.rules.unwrap_or_default();
    for rule in &mut rules {
        let days = match way {
            0 => rule.expiration.as_mut().and_then(|expiration| expiration.days.as_mut()),
            1 => rule.noncurrent_version_expiration.as_mut().and_then(|expiration| expiration.noncurrent_days.as_mut()),
            _ => rule.abort_incomplete_multipart_upload.as_mut().and_then(|abort| abort.days_after_initiation.as_mut()),
        };
        if let Some(days) = days {
            *days += 1;
        }
    }
    if way == 3 {
        s3.delete_bucket_lifecycle().bucket(bucket).send().await.unwrap();
    } else {
        let rules = BucketLifecycleConfiguration::builder().set_rules(Some(rules)).build().unwrap();
        let put = s3.put_bucket_lifecycle_configuration().bucket(bucket).lifecycle_configuration(rules);
        put.send().await.unwrap();
    }
}

/// What restores them, in the order of the alphabet.
const WRITES: [&str; 5] = [
    "PutBucketEncryption",
    "PutBucketLifecycleConfiguration",
    "PutBucketLogging",
    "PutBucketOwnershipControls",
    "PutPublicAccessBlock",
];

/// Whether a check has written it, and a later one has read what was written.
fn is_restored(calls: &[Call], write: &str) -> bool {
    let read = write.replacen("Put", "Get", 1);
    let written = calls.iter().rposition(|call| call.name == write);
    written.is_some_and(|at| calls[at..].iter().any(|call| call.name == read))
}

/// With one call each. What the class does not set stays, also inside of what it sets.
#[tokio::test]
async fn each_setting_is_restored_whatever_was_changed_of_it() {
    let world = World::new().await;
    let logs = world.unique("logs");
    world.account.create_bucket(&logs).await;
    let access_logs = format!("{logs}/app/");
    let class = world.class_with("set", "Delete", &with_key_and_logs(KEY, &access_logs)).await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(300)));
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    set_others_by_hand(&world.account, &bucket).await;
    let before = settings(&world.account, &bucket).await;
    assert_eq!(before["encryption"], json!([["aws:kms", KEY, true, ["SSE-C"]]]));
    for way in 0..WAYS {
        world.aws.clear();
        change_by_hand(&world.account, (&bucket, &logs), way).await;
        let all_are = |calls: &[Call]| WRITES.iter().all(|write| is_restored(calls, write));
        world.aws.wait_until("each setting written, and read again", all_are).await;
        assert_eq!(settings(&world.account, &bucket).await, before, "changed in way {way}");
        let mut writes = world.aws.writes();
        writes.sort_unstable();
        assert_eq!(writes, WRITES, "changed in way {way}");
    }
    for what in ["default encryption", "object ownership", "access logging", "the lifecycle", "public access block"] {
        world.wait_event_with("photos", "Repaired", what).await;
    }
    operator.stop().await;
}

/// The claim keeps the keys and the setting that it has.
#[rstest]
#[case::denied(403, "AccessDenied", "s3:PutLifecycleConfiguration")]
#[case::malformed(400, "MalformedXML", "spec.additionalConfig.expireAfter")]
#[tokio::test]
async fn an_edit_that_aws_refuses_is_applied_when_it_no_longer_does(
    #[case] status: u16,
    #[case] code: &str,
    #[case] part: &str,
) {
    let world = World::new().await;
    let class = world.class_with("set", "Delete", &[("claimsMaySet", "expireAfter")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let config = json!({ "expireAfter": "30d" });
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": config });
    world.claim_with("photos", spec).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let keys = world.secret_entries("photos").await;
    let days = async || settings(&world.account, &bucket).await["lifecycle"][0][3].clone();
    let answer = format!("<Error><Code>{code}</Code><Message>refused</Message></Error>");
    world.aws.inject(move |call| match call.name.as_str() {
        "PutBucketLifecycleConfiguration" => Verdict::Answer(status, answer.clone()),
        _ => Verdict::Pass,
    });
    let edit = Patch::Merge(json!({ "spec": { "additionalConfig": { "expireAfter": "7d" } } }));
    world.claims().patch("photos", &PatchParams::default(), &edit).await.unwrap();
    let (type_, note) = world.wait_event("photos", "CheckFailed").await;
    assert_eq!(type_, "Warning");
    assert_contains(&note, &["the new settings of the bucket could not be applied", "expireAfter", part]);
    let has =
        |claim: &ObjectBucketClaim, reason: &str| condition(claim, "UpToDate").is_some_and(|c| c.reason == reason);
    let claim = world.wait_claim("photos", "waiting to be edited", |claim| has(claim, "EditPending")).await;
    assert_eq!((phase(&claim), ready(&claim).unwrap().reason.as_str()), (Some(ClaimPhase::Bound), "Bound"));
    assert!(!world.events("photos").await.iter().any(|(_, reason, _)| reason == "SettingsApplied"));
    assert_eq!(days().await, 30);
    world.app("photos").await.put(&bucket, "a").await.unwrap();

    world.aws.leave_alone();
    world.retry("photos", "now").await;
    world.wait_event_with("photos", "SettingsApplied", "expireAfter to 7d").await;
    assert_eq!(days().await, 7);
    world.wait_claim("photos", "up to date", |claim| has(claim, "Bound")).await;
    assert_eq!(world.secret_entries("photos").await, keys);
    operator.stop().await;
}
