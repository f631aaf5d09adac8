//! `encryption` and `kmsKey`: how S3 encrypts new objects whose writer does not say.

use aws_sdk_s3::types::{
    ServerSideEncryption, ServerSideEncryptionByDefault, ServerSideEncryptionConfiguration, ServerSideEncryptionRule,
};

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// The default encryption of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Encryption {
    algorithm: ServerSideEncryption,
    /// ARN of the key; `None`: any, and for a new bucket the one that AWS manages.
    key: Option<String>,
}

/// The values of `encryption`.
pub(super) const ALGORITHMS: [&str; 3] = ["AES256", "aws:kms", "aws:kms:dsse"];

impl Encryption {
    pub(super) fn parse(algorithm: &str, key: Option<&str>) -> Option<Self> {
        let known = ALGORITHMS.contains(&algorithm);
        known.then(|| Self { algorithm: ServerSideEncryption::from(algorithm), key: key.map(str::to_owned) })
    }

    /// Whether objects are encrypted with a key of KMS.
    pub(super) fn uses_kms(&self) -> bool {
        self.algorithm != ServerSideEncryption::Aes256
    }

    /// A bucket key saves calls to KMS. It does not exist for `aws:kms:dsse` ("Using dual-layer server-side encryption",
    /// Amazon S3 user guide).
    fn has_bucket_key(&self) -> bool {
        self.algorithm == ServerSideEncryption::AwsKms
    }
}

impl SubResource for Encryption {
    type Found = Option<ServerSideEncryptionRule>;

    const NAME: &'static str = "the default encryption";
    /// A rule may block kinds of encryption, and it is not documented whether a rule without that unblocks them.
    const IS_SHARED: bool = true;
    const READ: Operation = Operation::GetBucketEncryption;
    const WRITE: Operation = Operation::PutBucketEncryption;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_bucket_encryption().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => Ok(answer.server_side_encryption_configuration.and_then(|all| all.rules.into_iter().next())),
            Err(error) if error.code() == "ServerSideEncryptionConfigurationNotFoundError" => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_in(&self, found: &Self::Found) -> bool {
        let Some(rule) = found else { return false };
        let Some(by_default) = rule.apply_server_side_encryption_by_default() else { return false };
        by_default.sse_algorithm == self.algorithm
            && self.key.as_ref().is_none_or(|key| by_default.kms_master_key_id.as_ref() == Some(key))
            && (!self.has_bucket_key() || rule.bucket_key_enabled == Some(true))
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, found: Option<&Self::Found>) -> Result<(), CallError> {
        let blocked = found.and_then(Option::as_ref).and_then(|rule| rule.blocked_encryption_types.clone());
        let by_default = ServerSideEncryptionByDefault::builder()
            .sse_algorithm(self.algorithm.clone())
            .set_kms_master_key_id(self.key.clone())
            .build()
            .ok();
        let rule = ServerSideEncryptionRule::builder()
            .set_apply_server_side_encryption_by_default(by_default)
            .set_bucket_key_enabled(self.has_bucket_key().then_some(true))
            .set_blocked_encryption_types(blocked)
            .build();
        let configuration = ServerSideEncryptionConfiguration::builder().rules(rule).build().ok();
        let call = store.s3.put_bucket_encryption().bucket(bucket.name);
        let call = call.set_server_side_encryption_configuration(configuration);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}
