//! Settings of a class, and what the calls that get them answer.

use std::collections::BTreeMap;

use super::account::Account;

const KMS_KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";

/// Parameters of a class of new buckets: all settings that need nothing which exists before.
pub(crate) const SETTINGS: [(&str, &str); 11] = [
    ("tags", "team=shop"),
    ("bucketVersioning", "Enabled"),
    ("encryption", "aws:kms"),
    ("kmsKey", KMS_KEY),
    ("expireAfter", "30d"),
    ("abortIncompleteUploadsAfter", "5d"),
    ("publicAccess", "blocked"),
    ("objectOwnership", "BucketOwnerPreferred"),
    ("objectLock", "Enabled"),
    ("bucketCors", r#"{"CORSRules": [{"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}]}"#),
    ("eventBridge", "true"),
];

/// Parameters of a class with a key of KMS, access logs and more; `logs`: bucket and prefix.
pub(crate) fn with_key_and_logs<'a>(key: &'a str, logs: &'a str) -> [(&'static str, &'a str); 8] {
    [
        ("encryption", "aws:kms"),
        ("kmsKey", key),
        ("expireAfter", "30d"),
        ("expireNoncurrentAfter", "7d"),
        ("abortIncompleteUploadsAfter", "1d"),
        ("publicAccess", "blocked"),
        ("objectOwnership", "BucketOwnerPreferred"),
        ("accessLogs", logs),
    ]
}

/// A part of [`Account::settings`] for each of [`SETTINGS`].
pub(crate) const OF_BUCKET: [&str; 10] = [
    r#"key: "team", value: "shop""#,
    "versioning Some(Some(Enabled))",
    "sse_algorithm: AwsKms",
    "days: Some(30)",
    "days_after_initiation: Some(5)",
    "block_public_policy: Some(true)",
    "object_ownership: BucketOwnerPreferred",
    "object_lock_enabled: Some(Enabled)",
    r#"allowed_origins: ["*"]"#,
    "events Some(Some(EventBridgeConfiguration))",
];

/// The same of [`Account::policies`] of the claim's user, as IAM encodes them.
pub(crate) const OF_USER: [&str; 3] = ["kms%3AGenerateDataKey", "key%2F0123-abcd", "s3%3APutObject"];

impl Account {
    /// All that an operator could set for a bucket. What is not set, and what a store lacks, is an error.
    pub(crate) async fn settings(&self, bucket: &str) -> String {
        let s3 = &self.s3;
        let tags = s3.get_bucket_tagging().bucket(bucket).send().await.map(|found| found.tag_set);
        let versioning = s3.get_bucket_versioning().bucket(bucket).send().await.map(|found| found.status);
        let encryption = s3.get_bucket_encryption().bucket(bucket).send().await;
        let encryption = encryption.map(|found| found.server_side_encryption_configuration);
        let rules = s3.get_bucket_lifecycle_configuration().bucket(bucket).send().await.map(|found| found.rules);
        let public = s3.get_public_access_block().bucket(bucket).send().await;
        let public = public.map(|found| found.public_access_block_configuration);
        let owner = s3.get_bucket_ownership_controls().bucket(bucket).send().await;
        let owner = owner.map(|found| found.ownership_controls);
        let lock = s3.get_object_lock_configuration().bucket(bucket).send().await;
        let lock = lock.map(|found| found.object_lock_configuration);
        let cors = s3.get_bucket_cors().bucket(bucket).send().await.map(|found| found.cors_rules);
        let logs = s3.get_bucket_logging().bucket(bucket).send().await.map(|found| found.logging_enabled);
        let policy = s3.get_bucket_policy().bucket(bucket).send().await.map(|found| found.policy);
        let events = s3.get_bucket_notification_configuration().bucket(bucket).send().await;
        let events = events.map(|found| found.event_bridge_configuration);
        let found = [
            format!("tags {:?}", tags.unwrap_or_default()),
            format!("versioning {:?}", versioning.ok()),
            format!("encryption {:?}", encryption.ok()),
            format!("lifecycle {:?}", rules.ok()),
            format!("public access {:?}", public.ok()),
            format!("ownership {:?}", owner.ok()),
            format!("lock {:?}", lock.ok()),
            format!("CORS {:?}", cors.ok()),
            format!("logs {:?}", logs.ok()),
            format!("policy {:?}", policy.ok()),
            format!("events {:?}", events.ok()),
        ];
        found.join("\n")
    }

    /// The policies of a user, each with its document.
    pub(crate) async fn policies(&self, user: &str) -> BTreeMap<String, String> {
        let mut policies = BTreeMap::new();
        for name in self.iam.list_user_policies().user_name(user).send().await.unwrap().policy_names {
            let found = self.iam.get_user_policy().user_name(user).policy_name(&name).send().await.unwrap();
            policies.insert(name, found.policy_document);
        }
        policies
    }
}
