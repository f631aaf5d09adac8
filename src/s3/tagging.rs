//! Reading and writing the tags of a bucket.

use std::time::Duration;

use aws_sdk_s3::types::{Tag, Tagging};
use aws_sdk_s3control::types::Tag as ControlTag;

use crate::class::region::partition;
use crate::class::target::{BucketRef, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;
use crate::s3::tags::{self, Tags};

/// How long TagResource may take. From a private network, its endpoint often cannot be reached.
const TIME: Duration = Duration::from_secs(5);

/// The tags of an existing bucket; none in a store without tags.
pub(crate) async fn read(store: &Store, bucket: BucketRef<'_>) -> Result<Tags, CallError> {
    let call = store.s3.get_bucket_tagging().bucket(bucket.name).set_expected_bucket_owner(bucket.account());
    match store.call(Operation::GetBucketTagging, Resource::bucket(bucket.name), || call.clone().send()).await {
        Ok(answer) => Ok(answer.tag_set.into_iter().map(|tag| (tag.key, tag.value)).collect()),
        Err(error) if matches!(error.code(), "NoSuchTagSet" | "NoSuchTagSetError") || error.lacks_operation() => {
            Ok(Tags::new())
        }
        Err(error) => Err(error),
    }
}

/// Replaces all tags of a bucket, in stores that have tags.
pub(crate) async fn replace(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), CallError> {
    let tagging = Tagging::builder().set_tag_set(Some(sdk_tags(tags))).build().ok();
    let BucketRef { name, .. } = target.bucket_ref();
    let call = store.s3.put_bucket_tagging().bucket(name).set_tagging(tagging);
    let call = call.set_expected_bucket_owner(target.bucket_ref().account());
    store.call(Operation::PutBucketTagging, Resource::bucket(name), || call.clone().send()).await.map(drop)
}

/// Adds tags to a bucket, of which these were just found, and keeps those that others wrote.
///
/// TagResource does that, also where ABAC is enabled ("Enabling ABAC in general purpose buckets", Amazon S3 user guide). Not
/// every region has it, and its endpoint may be out of reach. PutBucketTagging replaces all tags.
pub(crate) async fn add(store: &Store, target: &Target<'_>, found: &Tags, wanted: &Tags) -> Result<(), CallError> {
    let found = match tag_resource(store, target, wanted).await {
        Some(true) => return Ok(()),
        // Others may have written some meanwhile.
        Some(false) => read(store, target.bucket_ref()).await?,
        None => found.clone(),
    };
    match tags::completed(&found, wanted) {
        Some(all) => replace(store, target, &all).await,
        None => Ok(()),
    }
}

/// Whether TagResource has added the tags; `None` if it cannot be called.
async fn tag_resource(store: &Store, target: &Target<'_>, wanted: &Tags) -> Option<bool> {
    let BucketRef { name, account } = target.bucket_ref();
    let (control, account) = (store.control.as_ref()?, account?);
    let arn = format!("arn:{}:s3:::{name}", partition(&target.endpoints.region).id);
    // Building a tag fails only without a key or value, and these have both.
    let tag = |(key, value): &(String, String)| ControlTag::builder().key(key).value(value).build().ok();
    let tags = wanted.iter().filter_map(tag).collect();
    let call = control.tag_resource().account_id(account).resource_arn(arn).set_tags(Some(tags));
    let answer = store.call(Operation::TagResource, Resource::bucket(name), || call.clone().send());
    // A refusal is logged with its call.
    Some(matches!(tokio::time::timeout(TIME, answer).await, Ok(Ok(_))))
}

/// Building a tag fails only without a key or value, and these have both.
pub(super) fn sdk_tags(tags: &Tags) -> Vec<Tag> {
    tags.iter().filter_map(|(key, value)| Tag::builder().key(key).value(value).build().ok()).collect()
}
