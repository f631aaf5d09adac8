//! `objectOwnership`: who owns the objects of a bucket, and whether they have ACLs.

use aws_sdk_s3::types::{ObjectOwnership, OwnershipControls, OwnershipControlsRule};

use super::sub_resource::SubResource;
use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;

/// The values of `objectOwnership`.
pub(super) const VALUES: [&str; 3] = ["BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter"];

/// The ownership of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ownership(pub(crate) ObjectOwnership);

impl Ownership {
    pub(super) fn parse(text: &str) -> Option<Self> {
        VALUES.contains(&text).then(|| Self(ObjectOwnership::from(text)))
    }
}

impl SubResource for Ownership {
    type Found = Option<ObjectOwnership>;

    const NAME: &'static str = "the object ownership";
    const READ: Operation = Operation::GetBucketOwnershipControls;
    const WRITE: Operation = Operation::PutBucketOwnershipControls;

    async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Self::Found, CallError> {
        let call = store.s3.get_bucket_ownership_controls().bucket(bucket.name);
        let call = call.set_expected_bucket_owner(bucket.account());
        let send = || call.clone().send();
        match store.call(Self::READ, Resource::bucket(bucket.name), send).await {
            Ok(answer) => {
                let rule = answer.ownership_controls.and_then(|controls| controls.rules.into_iter().next());
                Ok(rule.map(|rule| rule.object_ownership))
            }
            Err(error) if error.code() == "OwnershipControlsNotFoundError" => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_in(&self, found: &Self::Found) -> bool {
        found.as_ref() == Some(&self.0)
    }

    async fn write(&self, store: &Store, bucket: BucketRef<'_>, _: Option<&Self::Found>) -> Result<(), CallError> {
        let rule = OwnershipControlsRule::builder().object_ownership(self.0.clone()).build().ok();
        let controls = OwnershipControls::builder().set_rules(rule.map(|rule| vec![rule])).build().ok();
        let call = store.s3.put_bucket_ownership_controls().bucket(bucket.name).set_ownership_controls(controls);
        let call = call.set_expected_bucket_owner(bucket.account());
        store.call(Self::WRITE, Resource::bucket(bucket.name), || call.clone().send()).await.map(drop)
    }
}
