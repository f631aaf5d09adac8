//! `bucketVersioning`.

use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// Whether the bucket keeps versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Versioning(BucketVersioningStatus);

impl Versioning {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "Enabled" => Some(Self(BucketVersioningStatus::Enabled)),
            "Suspended" => Some(Self(BucketVersioningStatus::Suspended)),
            _ => None,
        }
    }
}

impl SubResource for Versioning {
    type Found = Option<BucketVersioningStatus>;

    const NAME: &'static str = "the versioning";
    const READ: Operation = Operation::GetBucketVersioning;
    const WRITE: Operation = Operation::PutBucketVersioning;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_bucket_versioning().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        Ok(store.call(Self::READ, Resource::bucket(bucket.name), send).await?.status)
    }

    fn is_in(&self, found: &Self::Found) -> bool {
        found.as_ref() == Some(&self.0)
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, _: Option<&Self::Found>) -> Result<(), CallError> {
        let configuration = VersioningConfiguration::builder().status(self.0.clone()).build();
        let call = store.s3.put_bucket_versioning().bucket(bucket.name).versioning_configuration(configuration);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}
