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

    /// How the keys of logs are built stays as somebody set it, and who may read them unless that was set for another bucket.
    async fn write(&self, store: &Store, bucket: BucketRef<'_>, found: Option<&Self::Found>) -> Result<(), CallError> {
        let found = found.and_then(Option::as_ref);
        let there = found.filter(|found| found.target_bucket == self.bucket);
        let enabled = LoggingEnabled::builder()
            .target_bucket(&self.bucket)
            .target_prefix(&self.prefix)
            .set_target_grants(there.and_then(|found| found.target_grants.clone()))
            .set_target_object_key_format(found.and_then(|found| found.target_object_key_format.clone()))
            .build()
            .ok();
        let status = BucketLoggingStatus::builder().set_logging_enabled(enabled).build();
        let call = store.s3.put_bucket_logging().bucket(bucket.name).bucket_logging_status(status);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{Stage, bare, record, s3_error};
    use bucket_provisioner::store::{Failure as _, FailureClass};

    #[test]
    fn a_target_is_a_bucket_and_a_prefix_that_can_be_empty() {
        let parsed = |text| AccessLogs::parse(text).map(|logs| (logs.bucket, logs.prefix));
        let target = |bucket: &str, prefix: &str| Some((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(parsed("logs/shop/photos-"), target("logs", "shop/photos-"));
        assert_eq!(parsed("logs/"), target("logs", ""));
        assert_eq!(parsed("logs"), target("logs", ""));
        for text in ["", "/shop/", "Logs/shop/", "s3://logs/shop/"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    /// S3 refuses a bucket that does not exist, is in another region or does not let S3 write.
    #[tokio::test]
    async fn a_target_that_s3_refuses_is_to_be_corrected_in_the_class() {
        let mut record = record();
        record.plan.settings.of_class.insert("accessLogs".into(), "logs/photos/".into());
        let refused = s3_error(400, "InvalidTargetBucketForLogging");
        let stage = Stage::answering([("CreateBucket", bare(200)), ("PutBucketLogging", refused)]);
        let refused = stage.provision(&record).await.unwrap_err();
        assert_eq!((refused.reason(), refused.class()), ("InvalidClassParameter", FailureClass::Terminal));
        let message = refused.to_string();
        for part in ["parameter accessLogs of the StorageClass", "InvalidTargetBucketForLogging"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!refused.changed_nothing, "the bucket exists, so the ObjectBucket stays");
        assert_eq!(stage.calls(), ["CreateBucket", "PutBucketLogging"], "no app gets a bucket without logs");
    }
}
