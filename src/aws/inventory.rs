//! What an account holds that was created for claims, and how much is in a bucket. Only reads.
//!
//! Neither S3 nor IAM can list by tags, so each bucket of the account and each user under the class's path is looked at.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::time::Instant;

use super::bucket;
use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::recall::claimant;
use super::tags::{self, Tags};
use super::target::{BucketRef, Target};
use super::user;
use crate::provisioner::{Inventory, Stock, StockKind, Usage};

/// How many are looked at side by side.
const AT_ONCE: usize = 8;
/// How much of a bucket is counted: pages of 1,000 versions.
const PAGES: usize = 20;
/// For how long it is counted.
const TIME: Duration = Duration::from_secs(10);

/// How much is in a bucket. Versions count one by one, because each of them is stored; stores without versions list
/// their objects.
pub(crate) async fn usage(store: &Store, bucket: BucketRef<'_>) -> Result<Usage, Error> {
    let end = Instant::now() + TIME;
    let (mut found, mut next) = (Usage::new(0, 0), Some((None, None)));
    for _ in 0..PAGES {
        let Some((key, version)) = next.take().filter(|_| Instant::now() < end) else { break };
        let first = key.is_none();
        let call = store.retrying_s3.list_object_versions().bucket(bucket.name).set_key_marker(key);
        let call = call.set_version_id_marker(version).set_expected_bucket_owner(bucket.account());
        let resource = Resource::bucket(bucket.name);
        let page = match store.call(Operation::ListObjectVersions, resource, || call.clone().send()).await {
            Err(error) if first && error.lacks_operation() => return Ok(usage_of_objects(store, bucket).await?),
            page => page?,
        };
        let sizes = page.versions().iter().map(|version| version.size().unwrap_or_default());
        add(&mut found, sizes);
        // Delete markers are stored, too, and have to go before the bucket can.
        found.objects += u64::try_from(page.delete_markers().len()).unwrap_or_default();
        let more = page.is_truncated.unwrap_or_default();
        next = page.next_key_marker.filter(|_| more).map(|key| (Some(key), page.next_version_id_marker));
    }
    Ok(if next.is_some() { found.and_more() } else { found })
}

async fn usage_of_objects(store: &Store, bucket: BucketRef<'_>) -> Result<Usage, CallError> {
    let end = Instant::now() + TIME;
    let (mut found, mut next) = (Usage::new(0, 0), Some(None));
    for _ in 0..PAGES {
        let Some(token) = next.take().filter(|_| Instant::now() < end) else { break };
        let call = store.retrying_s3.list_objects_v2().bucket(bucket.name).set_continuation_token(token);
        let call = call.set_expected_bucket_owner(bucket.account());
        let page = store.call(Operation::ListObjectsV2, Resource::bucket(bucket.name), || call.clone().send()).await?;
        add(&mut found, page.contents().iter().map(|object| object.size().unwrap_or_default()));
        next = page.next_continuation_token.map(Some);
    }
    Ok(if next.is_some() { found.and_more() } else { found })
}

fn add(usage: &mut Usage, sizes: impl Iterator<Item = i64>) {
    for size in sizes {
        usage.objects += 1;
        usage.bytes += u64::try_from(size).unwrap_or_default();
    }
}

/// What carries the marks of this provisioner; of `again`, what still does.
pub(crate) async fn inventory(
    store: &Store,
    target: &Target<'_>,
    provisioner: &str,
    again: Option<&[Stock]>,
) -> Result<Inventory, Error> {
    let names = |kind| again.map(|all| all.iter().filter(|one| one.kind == kind).map(|one| one.name.clone()).collect());
    let buckets: Vec<String> = match names(StockKind::Bucket) {
        Some(buckets) => buckets,
        None => list_buckets(store).await?,
    };
    let users: Vec<String> = match (names(StockKind::User), target.user) {
        (_, None) => Vec::new(),
        (Some(users), _) => users,
        (None, Some(user)) => list_users(store, user.path).await?,
    };
    let mut found = Inventory::default();
    let mut unread: BTreeMap<&str, u64> = BTreeMap::new();
    let account = target.record.account.as_deref();
    let looks = buckets.into_iter().map(async |name| {
        let tags = bucket::tags_of(store, BucketRef { name: &name, account }).await;
        (StockKind::Bucket, name, tags)
    });
    let mut looked: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
    let looks = users.into_iter().map(async |name| {
        let tags = user::tags_of(store, &name).await;
        (StockKind::User, name, tags)
    });
    looked.extend(stream::iter(looks).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await);
    for (kind, name, answer) in looked {
        match answer {
            Ok(tags) => found.stock.extend(marked(kind, name, &tags, provisioner)),
            Err(error) if matches!(error.code(), "NoSuchBucket" | "NoSuchEntity") => {}
            Err(error) => match Error::from(error) {
                Error::WrongRegion { .. } => *unread.entry(OTHER_REGION).or_default() += 1,
                Error::AccessDenied { .. } if kind == StockKind::Bucket => *unread.entry(DENIED).or_default() += 1,
                error => return Err(error),
            },
        }
    }
    found.stock.sort();
    found.unread = unread.into_iter().map(|(why, count)| format!("buckets that {why}: {count}")).collect();
    Ok(found)
}

const OTHER_REGION: &str = "are in another region than the class, and were not looked at";
const DENIED: &str = "the owner's credentials may not look at (s3:GetBucketTagging)";

/// What the tags say, if this provisioner wrote them.
fn marked(kind: StockKind, name: String, tags: &Tags, provisioner: &str) -> Option<Stock> {
    if tags::value(tags, tags::MANAGED_BY) != Some(provisioner) {
        return None;
    }
    let (claim, cluster) = claimant(tags)?;
    Some(Stock::new(kind, name, claim, cluster))
}

async fn list_buckets(store: &Store) -> Result<Vec<String>, Error> {
    let list = || store.retrying_s3.list_buckets().into_paginator().items().send().collect::<Result<Vec<_>, _>>();
    let buckets = store.call(Operation::ListBuckets, Resource::Account, list).await?;
    Ok(buckets.into_iter().filter_map(|bucket| bucket.name).collect())
}

async fn list_users(store: &Store, path: &str) -> Result<Vec<String>, Error> {
    let list =
        || store.iam.list_users().path_prefix(path).into_paginator().items().send().collect::<Result<Vec<_>, _>>();
    let users = store.call(Operation::ListUsers, Resource::Account, list).await?;
    Ok(users.into_iter().map(|user| user.user_name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::testing::record;

    #[test]
    fn only_what_this_provisioner_has_marked_is_counted() {
        let tags = tags::of_record("aws-s3.io/bucket", &record());
        let found = |provisioner| marked(StockKind::Bucket, "b".into(), &tags, provisioner);
        assert_eq!(found("aws-s3.io/bucket").map(|stock| stock.claim), Some(record().claim));
        assert_eq!(found("example.com/bucket"), None, "another provisioner's");
        let unmarked: Tags = tags.iter().filter(|(key, _)| key != tags::MANAGED_BY).cloned().collect();
        assert_eq!(marked(StockKind::Bucket, "b".into(), &unmarked, "aws-s3.io/bucket"), None);
    }
}
