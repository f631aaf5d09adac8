//! `publicAccess`.

use aws_sdk_s3::types::PublicAccessBlockConfiguration;

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// All public access is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Blocked;

impl Blocked {
    pub(super) fn parse(text: &str) -> Option<Self> {
        (text == "blocked").then_some(Self)
    }
}

impl SubResource for Blocked {
    type Found = Option<PublicAccessBlockConfiguration>;

    const NAME: &'static str = "the public access block";
    /// New buckets of AWS have it, and many organizations deny changing it.
    const IS_SHARED: bool = true;
    const READ: Operation = Operation::GetPublicAccessBlock;
    const WRITE: Operation = Operation::PutPublicAccessBlock;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_public_access_block().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => Ok(answer.public_access_block_configuration),
            Err(error) if error.code() == "NoSuchPublicAccessBlockConfiguration" => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_in(&self, found: &Self::Found) -> bool {
        found.as_ref().is_some_and(|found| {
            [
                found.block_public_acls,
                found.ignore_public_acls,
                found.block_public_policy,
                found.restrict_public_buckets,
            ]
            .iter()
            .all(|is| *is == Some(true))
        })
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, _: Option<&Self::Found>) -> Result<(), CallError> {
        let all = PublicAccessBlockConfiguration::builder()
            .block_public_acls(true)
            .ignore_public_acls(true)
            .block_public_policy(true)
            .restrict_public_buckets(true)
            .build();
        let call = store.s3.put_public_access_block().bucket(bucket.name).public_access_block_configuration(all);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}
