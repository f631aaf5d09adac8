//! How many calls the settings of a bucket take at AWS.

use crate::testing::{
    Answer, OURS, Stage, access_key, access_keys, bare, bucket_tags_of, iam_error, ok, record, s3_error, user_with_tags,
};
use bucket_provisioner::store::Record;

const CREATED: &str = "<CreateUserResponse><CreateUserResult/></CreateUserResponse>";

/// Of a class with all settings but a key of KMS.
fn with_settings() -> Record {
    let mut record = record();
    record.plan.settings.of_class = [
        ("tags", "team=shop"),
        ("bucketVersioning", "Enabled"),
        ("encryption", "AES256"),
        ("expireAfter", "30d"),
        ("expireNoncurrentAfter", "7d"),
        ("abortIncompleteUploadsAfter", "1d"),
        ("requireTLS", "true"),
        ("publicAccess", "blocked"),
        ("objectOwnership", "ObjectWriter"),
        ("accessLogs", "logs/shop/"),
        ("objectLock", "GOVERNANCE:30d"),
        ("bucketCors", r#"{"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}"#),
        ("eventBridge", "true"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    record
}

/// What a new bucket answers.
fn unset() -> Vec<(&'static str, Answer)> {
    let sse =
        "<ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm></ApplyServerSideEncryptionByDefault>";
    vec![
        (
            "GetBucketEncryption",
            ok(format!("<ServerSideEncryptionConfiguration><Rule>{sse}</Rule></ServerSideEncryptionConfiguration>")),
        ),
        ("GetBucketPolicy", s3_error(404, "NoSuchBucketPolicy")),
        ("GetPublicAccessBlock", s3_error(404, "NoSuchPublicAccessBlockConfiguration")),
        ("GetBucketNotificationConfiguration", ok("<NotificationConfiguration/>")),
        ("GetBucketVersioning", ok("<VersioningConfiguration/>")),
        ("GetBucketLifecycleConfiguration", s3_error(404, "NoSuchLifecycleConfiguration")),
        ("GetBucketOwnershipControls", s3_error(404, "OwnershipControlsNotFoundError")),
        ("GetBucketLogging", ok("<BucketLoggingStatus/>")),
        ("GetObjectLockConfiguration", s3_error(404, "ObjectLockConfigurationNotFoundError")),
        ("GetBucketCors", s3_error(404, "NoSuchCORSConfiguration")),
    ]
}

const WRITES: [&str; 10] = [
    "PutBucketOwnershipControls",
    "PutPublicAccessBlock",
    "PutBucketEncryption",
    "PutBucketVersioning",
    "PutObjectLockConfiguration",
    "PutBucketLifecycleConfiguration",
    "PutBucketCors",
    "PutBucketNotificationConfiguration",
    "PutBucketLogging",
    "PutBucketPolicy",
];

/// One call each, or two where a part may be others'. CreateBucket sets tags and ownership.
#[tokio::test]
async fn settings_of_a_new_bucket_take_one_call_or_two() {
    let answers = [
        ("CreateBucket", bare(200)),
        ("CreateUser", ok(CREATED)),
        ("PutUserPolicy", ok("")),
        ("CreateAccessKey", access_key()),
    ];
    let stage = Stage::answering(answers.into_iter().chain(unset()).chain(WRITES.map(|call| (call, bare(200)))));
    stage.provision(&with_settings()).await.unwrap();
    let calls = [
        &["CreateBucket"][..],
        &["GetBucketEncryption", "PutBucketEncryption"],
        &["PutBucketVersioning", "PutObjectLockConfiguration", "PutBucketLifecycleConfiguration"],
        &["GetPublicAccessBlock", "PutPublicAccessBlock"],
        &["PutBucketCors"],
        &["GetBucketNotificationConfiguration", "PutBucketNotificationConfiguration"],
        &["PutBucketLogging"],
        &["GetBucketPolicy", "PutBucketPolicy"],
        &["CreateUser", "PutUserPolicy", "CreateAccessKey"],
    ];
    assert_eq!(stage.calls(), calls.concat());
}

/// Nothing is read twice, and nothing else.
#[tokio::test]
async fn a_check_reads_each_setting_once() {
    let record = with_settings();
    let others = [
        ("GetBucketTagging", bucket_tags_of(&record)),
        ("GetUser", user_with_tags(OURS)),
        ("ListAccessKeys", access_keys(&["AKIAAPP"])),
        ("GetUserPolicy", iam_error(404, "NoSuchEntity")),
        ("PutUserPolicy", ok("")),
        ("TagUser", ok("")),
    ];
    let answers = others.into_iter().chain(unset()).chain(WRITES.map(|call| (call, bare(200))));
    let stage = Stage::answering(answers);
    let others = ["GetBucketTagging", "GetUser", "ListAccessKeys", "TagUser", "GetUserPolicy", "PutUserPolicy"];
    stage.check(&record, &["AKIAAPP"]).await.unwrap();
    let mut calls = stage.calls();
    calls.retain(|call| !WRITES.contains(&call.as_str()) && !others.contains(&call.as_str()));
    calls.sort_unstable();
    let mut reads: Vec<_> = unset().into_iter().map(|(call, _)| call).collect();
    reads.sort_unstable();
    assert_eq!(calls, reads);
}
