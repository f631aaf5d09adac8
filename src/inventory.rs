//! What an account holds that was created for claims, and how much is in a bucket. Only reads.
//!
//! Neither S3 nor IAM can list by tags, so the tags of each bucket of the account and of each user under the class's
//! path are read.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use tokio::time::Instant;

use super::recall::claimant;
use crate::class::target::{BucketRef, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::iam::association::Association;
use crate::iam::{role, user};
use crate::s3::bucket;
use crate::s3::tagging;
use crate::s3::tags::{self, Tags};
use bucket_provisioner::store::names::uid_in;
use bucket_provisioner::store::{Inventory, ResourceKind, TaggedResource, Usage};

/// How many are read at the same time.
const AT_ONCE: usize = 8;
/// How much of a bucket is counted: pages of 1,000 versions.
const PAGES: usize = 20;
/// For how long it is counted.
const TIME: Duration = Duration::from_secs(10);

/// How much is in a bucket. Versions count one by one, because each of them is stored; stores without versions list
/// their objects.
pub(crate) async fn usage(store: &Store, bucket: BucketRef<'_>) -> Result<Usage, Error> {
    let end = Instant::now() + TIME;
    let (mut found, mut next) = (Usage::none(), Some((None, None)));
    for _ in 0..PAGES {
        let Some((key, version)) = next.take().filter(|_| Instant::now() < end) else { break };
        let first = key.is_none();
        let call = store.listing_s3.list_object_versions().bucket(bucket.name).set_key_marker(key);
        let call = call.set_version_id_marker(version).set_expected_bucket_owner(bucket.account());
        let resource = Resource::bucket(bucket.name);
        let page = match store.call(Operation::ListObjectVersions, resource, || call.clone().send()).await {
            Err(error) if first && error.lacks_operation() => return Ok(usage_of_objects(store, bucket).await?),
            page => page?,
        };
        let sizes = page.versions().iter().map(|version| version.size().unwrap_or_default());
        add(&mut found, sizes);
        // Delete markers are stored, too, and have to be deleted before the bucket.
        found.objects += u64::try_from(page.delete_markers().len()).unwrap_or_default();
        let more = page.is_truncated.unwrap_or_default();
        next = page.next_key_marker.filter(|_| more).map(|key| (Some(key), page.next_version_id_marker));
    }
    Ok(if next.is_some() { found.and_more() } else { found })
}

async fn usage_of_objects(store: &Store, bucket: BucketRef<'_>) -> Result<Usage, CallError> {
    let end = Instant::now() + TIME;
    let (mut found, mut next) = (Usage::none(), Some(None));
    for _ in 0..PAGES {
        let Some(token) = next.take().filter(|_| Instant::now() < end) else { break };
        let call = store.listing_s3.list_objects_v2().bucket(bucket.name).set_continuation_token(token);
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
    (provisioner, association): (&str, Option<&Association<'_>>),
    again: Option<&[TaggedResource]>,
) -> Result<Inventory, Error> {
    let names = |kind| again.map(|all| all.iter().filter(|one| one.kind == kind).map(|one| one.name.clone()).collect());
    let buckets: Vec<String> = match names(ResourceKind::Bucket) {
        Some(buckets) => buckets,
        None => list_buckets(store).await?,
    };
    let users: Vec<String> = match (names(ResourceKind::User), target.user) {
        (_, None) => Vec::new(),
        (Some(users), _) => users,
        (None, Some(user)) => {
            let found = user::list(store, user.path).await?.into_iter().map(|user| user.user_name);
            // Each costs a call, and the name of a claim's user ends in its uid.
            found.filter(|name| uid_in(name).is_some()).collect()
        }
    };
    let roles: Vec<String> = match (names(ResourceKind::Role), &target.role) {
        (_, None) => Vec::new(),
        (Some(roles), _) => roles,
        (None, Some(role)) => role::list(store, role.path).await?,
    };
    let of = again.map(|all| {
        let roles = all.iter().filter(|one| one.kind == ResourceKind::Role);
        Vec::from_iter(roles.map(service_account).collect::<BTreeSet<_>>())
    });
    let associations: Vec<String> = match association {
        None => Vec::new(),
        Some(association) => association.ids(of.as_deref()).await?,
    };
    let account = target.record.account.as_deref();
    let mut sorted = Sorted::default();
    let found = |kind, name: &str, tags| {
        let tags = if_it_exists(tags)?;
        Ok::<_, Error>(tags.and_then(|tags| marked(kind, name, &tags, provisioner)).into_iter().collect::<Vec<_>>())
    };
    let read = async |name: String| {
        let tags = tagging::read(store, BucketRef { name: &name, account }).await;
        (found(ResourceKind::Bucket, &name, tags), name)
    };
    sorted.read(ResourceKind::Bucket, buckets.into_iter().map(read)).await?;
    let read = async |name: String| {
        let tags = user::tags_of(store, &name).await;
        (found(ResourceKind::User, &name, tags), name)
    };
    sorted.read(ResourceKind::User, users.into_iter().map(read)).await?;
    let read = async |name: String| {
        let found = role::accesses(store, &name, provisioner).await;
        (found.map_err(Error::from), name)
    };
    sorted.read(ResourceKind::Role, roles.into_iter().map(read)).await?;
    if let Some(association) = association {
        let read = async |id: String| {
            let found = association.accesses(&id).await;
            (found.map_err(Error::from), id)
        };
        sorted.read(ResourceKind::Role, associations.into_iter().map(read)).await?;
    }
    Ok(sorted.end())
}

/// Namespace and name.
fn service_account(of: &TaggedResource) -> [&str; 2] {
    [of.claim.namespace.as_str(), of.service_account.as_deref().unwrap_or_default()]
}

/// The tags; `None` if the bucket or user no longer exists.
fn if_it_exists(answer: Result<Tags, CallError>) -> Result<Option<Tags>, Error> {
    match answer {
        Ok(tags) => Ok(Some(tags)),
        Err(error) if matches!(error.code(), "NoSuchBucket" | "NoSuchEntity") => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// So many reads may fail one after the other; then the inventory fails.
const FAILURES: u32 = 20;
const OTHER_REGION: &str = "in another region than the class";
const DENIED: &str = "denied to the provisioning credentials (s3:GetBucketTagging)";

/// What was read, and how many reads failed.
#[derive(Default)]
struct Sorted {
    stock: Vec<TaggedResource>,
    buckets_read: u64,
    in_other_regions: u64,
    denied: u64,
    first_denied: Option<Error>,
    failed: u64,
    first_failed: Option<Error>,
    failed_in_a_row: u32,
}

/// What reading one of these showed.
type Answer = (Result<Vec<TaggedResource>, Error>, String);

impl Sorted {
    /// Reads some at the same time.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    async fn read(
        &mut self,
        kind: ResourceKind,
        reads: impl Iterator<Item = impl Future<Output = Answer>>,
    ) -> Result<(), Error> {
        let mut answers = pin!(stream::iter(reads).buffer_unordered(AT_ONCE));
        while let Some((answer, name)) = answers.next().await {
            self.add(kind, &name, answer)?;
        }
        Ok(())
    }

    /// Adds an answer: a failed read loses only this one.
    ///
    /// # Errors
    /// It makes no sense to read any further.
    fn add(&mut self, kind: ResourceKind, name: &str, answer: Result<Vec<TaggedResource>, Error>) -> Result<(), Error> {
        let error = match answer {
            Ok(found) => {
                self.failed_in_a_row = 0;
                self.buckets_read += u64::from(kind == ResourceKind::Bucket);
                self.stock.extend(found);
                return Ok(());
            }
            Err(error) => error,
        };
        match error {
            Error::WrongRegion { .. } => self.in_other_regions += 1,
            Error::AccessDenied { .. } if kind == ResourceKind::Bucket => {
                self.denied += 1;
                // Most buckets of an account are not of claims, and the shipped policies do not allow reading them.
                if uid_in(name).is_some() {
                    self.first_denied.get_or_insert(error);
                }
            }
            Error::CredentialsRefused { .. }
            | Error::CredentialsExpired { .. }
            | Error::CredentialsUnavailable { .. } => {
                return Err(error);
            }
            error => {
                (self.failed, self.failed_in_a_row) = (self.failed + 1, self.failed_in_a_row + 1);
                if self.failed_in_a_row >= FAILURES {
                    return Err(error);
                }
                self.first_failed.get_or_insert(error);
            }
        }
        Ok(())
    }

    /// Credentials that may read some buckets but not others see their own; those that may not even read one with the name of
    /// a claim's see nothing.
    fn end(self) -> Inventory {
        let mut found = Inventory::new(self.stock);
        found.stock.sort();
        for (why, count) in [(OTHER_REGION, self.in_other_regions), (DENIED, self.denied)] {
            if count > 0 {
                let (buckets, were) = if count == 1 { ("bucket", "was") } else { ("buckets", "were") };
                found = found.with_unread(format!("{count} {buckets} {were} not read: {why}"));
            }
        }
        if let Some(denied) = self.first_denied.filter(|_| self.buckets_read == 0) {
            found = found.with_problem(format!("no bucket of a claim could be read: {denied}"));
        }
        if let Some(first) = self.first_failed {
            found = found
                .with_problem(format!("{} buckets, users or roles could not be read, the first: {first}", self.failed));
        }
        found
    }
}

/// The claim that the tags name, if this provisioner wrote them.
fn marked(kind: ResourceKind, name: &str, tags: &Tags, provisioner: &str) -> Option<TaggedResource> {
    if tags::value(tags, tags::MANAGED_BY) != Some(provisioner) {
        return None;
    }
    let (claim, cluster) = claimant(tags)?;
    Some(TaggedResource::new(kind, name, claim, cluster))
}

async fn list_buckets(store: &Store) -> Result<Vec<String>, Error> {
    let list = || {
        let pages = store.listing_s3.list_buckets().into_paginator().page_size(bucket::PAGE);
        pages.items().send().collect::<Result<Vec<_>, _>>()
    };
    let buckets = store.call(Operation::ListBuckets, Resource::Account, list).await?;
    Ok(buckets.into_iter().filter_map(|bucket| bucket.name).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::client::call::{Call, Identity};
    use crate::testing::record;

    fn unreachable() -> Error {
        let resource = Resource::bucket("b");
        Error::StoreFailing { operation: Operation::GetBucketTagging, resource, problem: "503".into() }
    }

    #[test]
    fn one_failed_read_is_a_problem_and_many_in_a_row_are_an_error() {
        let marked = TaggedResource::new(ResourceKind::Bucket, "b", record().claim, None);
        let mut sorted = Sorted::default();
        for _ in 0..2 {
            for _ in 1..FAILURES {
                assert!(sorted.add(ResourceKind::User, "u", Err(unreachable())).is_ok());
            }
            assert!(sorted.add(ResourceKind::Bucket, "b", Ok(vec![marked.clone()])).is_ok());
        }
        for _ in 1..FAILURES {
            assert!(sorted.add(ResourceKind::User, "u", Err(unreachable())).is_ok());
        }
        assert!(sorted.add(ResourceKind::User, "u", Err(unreachable())).is_err());
        let found = sorted.end();
        assert_eq!((found.stock.len(), found.problems.len()), (2, 1), "{found:?}");
        let expired = Error::CredentialsExpired { identity: Identity::Ambient };
        assert!(Sorted::default().add(ResourceKind::Bucket, "b", Err(expired)).is_err());
    }

    #[test]
    fn denied_buckets_are_a_note_unless_they_may_be_of_claims() {
        let denied = || {
            let resource = Resource::bucket("b");
            let call =
                Call { operation: Operation::GetBucketTagging, resource, identity: Identity::Ambient, session: false };
            Err(Error::AccessDenied { call: Box::new(call), message: None })
        };
        let mut sorted = Sorted::default();
        sorted.add(ResourceKind::Bucket, "theirs", denied()).unwrap();
        sorted.add(ResourceKind::Bucket, "plain", Ok(Vec::new())).unwrap();
        let some = sorted.end();
        assert_eq!((some.unread.len(), some.problems.len()), (1, 0), "{some:?}");
        let mut sorted = Sorted::default();
        sorted.add(ResourceKind::Bucket, "theirs", denied()).unwrap();
        let none = sorted.end();
        assert_eq!((none.unread.len(), none.problems.len()), (1, 0), "{none:?}");
        let mut sorted = Sorted::default();
        let ours = format!("photos-{}", record().claim.uid);
        sorted.add(ResourceKind::Bucket, &ours, denied()).unwrap();
        let none = sorted.end();
        assert!(none.problems.iter().any(|problem| problem.contains("no bucket of a claim")), "{none:?}");
    }

    #[test]
    fn only_what_this_provisioner_has_marked_is_counted() {
        let tags = tags::of_record("aws-s3.io/bucket", &record());
        let found = |provisioner| marked(ResourceKind::Bucket, "b", &tags, provisioner);
        assert_eq!(found("aws-s3.io/bucket").map(|stock| stock.claim), Some(record().claim));
        assert_eq!(found("example.com/bucket"), None, "another provisioner's");
        let unmarked: Tags = tags.iter().filter(|(key, _)| key != tags::MANAGED_BY).cloned().collect();
        assert_eq!(marked(ResourceKind::Bucket, "b", &unmarked, "aws-s3.io/bucket"), None);
    }
}
