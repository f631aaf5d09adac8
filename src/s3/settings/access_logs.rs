//! `accessLogs`.

use aws_sdk_s3::types::{BucketLoggingStatus, LoggingEnabled};

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// The bucket that gets the server access logs, and how their keys begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessLogs {
    bucket: String,
    prefix: String,
}

impl AccessLogs {
    /// Of `bucket/prefix`; the prefix can be empty.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
        let is_name = bucket_provisioner::store::NameRules::S3.check(bucket).is_ok();
        is_name.then(|| Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl SubResource for AccessLogs {
    type Found = Option<LoggingEnabled>;

    const NAME: &'static str = "the server access logging";
    const READ: Operation = Operation::GetBucketLogging;
    const WRITE: Operation = Operation::PutBucketLogging;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_bucket_logging().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        Ok(store.call(Self::READ, Resource::bucket(bucket.name), send).await?.logging_enabled)
    }

    fn is_in(&self, found: &Self::Found) -> bool {
        found.as_ref().is_some_and(|found| found.target_bucket == self.bucket && found.target_prefix == self.prefix)
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, _: Option<&Self::Found>) -> Result<(), CallError> {
        let enabled = LoggingEnabled::builder().target_bucket(&self.bucket).target_prefix(&self.prefix).build().ok();
        let status = BucketLoggingStatus::builder().set_logging_enabled(enabled).build();
        let call = store.s3.put_bucket_logging().bucket(bucket.name).bucket_logging_status(status);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}
