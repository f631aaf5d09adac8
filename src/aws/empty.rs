//! Emptying a bucket: objects, versions, delete markers and multipart uploads, a limited number with each call.

use std::collections::HashSet;
use std::time::Duration;

use aws_sdk_s3 as s3;
use aws_sdk_s3::operation::delete_objects::DeleteObjectsOutput;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::budget::Reservation;
use super::call::{CallError, Operation, Resource};
use super::clients::{Patience, Store};
use super::codes::is_throttling;
use super::target::BucketRef;

/// Objects, versions and delete markers that one call of [`remove_objects`] lists at most, so that other claims get
/// their turn.
const OBJECTS_PER_CALL: usize = 10_000;
/// How long after its start a call lists further pages.
const LISTING_TIME: Duration = Duration::from_secs(8);
/// Keys in one DeleteObjects (Amazon S3 API reference), and in one page of a listing.
const BATCH: i32 = 1000;
/// DeleteObjects calls that run at the same time.
const BATCHES_IN_FLIGHT: usize = 4;
/// Calls about a single object or upload that run at the same time.
const SMALL_CALLS_IN_FLIGHT: usize = 8;

/// What one call of [`remove_objects`] did.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) removed: u64,
    /// What the store did not delete.
    pub(super) undeleted: Option<Undeleted>,
    /// The listing reached its end.
    pub(super) complete: bool,
}

impl Progress {
    fn and(self, other: Self) -> Self {
        Self {
            removed: self.removed + other.removed,
            undeleted: match (self.undeleted, other.undeleted) {
                (Some(a), Some(b)) => Some(a.and(b)),
                (a, b) => a.or(b),
            },
            complete: self.complete || other.complete,
        }
    }
}

/// Objects that the store did not delete: the first one in the order of keys, its error code, and how many there are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undeleted {
    pub(super) key: String,
    pub(super) code: String,
    pub(super) count: u64,
}

impl Undeleted {
    fn of(error: &s3::types::Error) -> Self {
        Self { key: error.key.clone().unwrap_or_default(), code: code_of(error).to_owned(), count: 1 }
    }

    fn and(self, other: Self) -> Self {
        let count = self.count + other.count;
        let first = if other.key < self.key { other } else { self };
        Self { count, ..first }
    }
}

/// Where a listing continues.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cursor {
    /// Versions and delete markers, from a key and version.
    Versions { key: Option<String>, version: Option<String> },
    /// Objects, in a store without versions.
    Objects { token: Option<String> },
}

/// A page of a listing, and where the next one starts.
struct Page {
    objects: Vec<ObjectIdentifier>,
    next: Option<Cursor>,
}

impl Page {
    /// Bytes of its keys and versions.
    fn bytes(&self) -> usize {
        self.objects.iter().map(|object| object.key.len() + object.version_id.as_ref().map_or(0, String::len)).sum()
    }
}

/// Deletes objects page by page, and lists the next page meanwhile. A listing continues by key, so it does not matter
/// that earlier objects were deleted.
pub(super) async fn remove_objects(store: &Store, bucket: BucketRef<'_>) -> Result<Progress, CallError> {
    let listing = Listing {
        store,
        bucket,
        left: OBJECTS_PER_CALL,
        end: Instant::now() + LISTING_TIME,
        cursor: Some(Cursor::Versions { key: None, version: None }),
    };
    listing
        .pages()
        .map_ok(|(page, reservation)| delete_page(store, bucket, page, reservation))
        .try_buffer_unordered(BATCHES_IN_FLIGHT)
        .try_fold(Progress::default(), |sum, part| std::future::ready(Ok(sum.and(part))))
        .await
}

/// The listing of a bucket, in pages.
struct Listing<'a> {
    store: &'a Store,
    bucket: BucketRef<'a>,
    /// How many more objects can be listed.
    left: usize,
    end: Instant,
    /// `None` at the end.
    cursor: Option<Cursor>,
}

impl<'a> Listing<'a> {
    /// Boxed, because otherwise the compiler cannot infer the lifetimes.
    fn pages(self) -> BoxStream<'a, Result<(Page, Reservation), CallError>> {
        stream::try_unfold(self, Self::step).boxed()
    }

    /// The next page, and the rest of the listing; `None` at the end and at the limits.
    async fn step(mut self) -> Result<Option<((Page, Reservation), Self)>, CallError> {
        let Some(cursor) = self.cursor.take().filter(|_| self.left > 0 && Instant::now() < self.end) else {
            return Ok(None);
        };
        let mut reservation = self.store.budget.reserve_page().await;
        let page = list(self.store, self.bucket, cursor).await?;
        reservation.shrink(page.bytes());
        self.left = self.left.saturating_sub(page.objects.len());
        self.cursor.clone_from(&page.next);
        Ok(Some(((page, reservation), self)))
    }
}

/// Holds the page's memory until its objects are deleted.
async fn delete_page(
    store: &Store,
    bucket: BucketRef<'_>,
    Page { objects, next }: Page,
    _memory: Reservation,
) -> Result<Progress, CallError> {
    let (removed, undeleted) = delete_objects(store, bucket, objects).await?;
    Ok(Progress { removed, undeleted, complete: next.is_none() })
}

async fn list(store: &Store, bucket: BucketRef<'_>, cursor: Cursor) -> Result<Page, CallError> {
    match cursor {
        Cursor::Versions { key, version } => {
            let first = key.is_none();
            match list_versions(store, bucket, key, version).await {
                Err(error) if first && error.lacks_operation() => list_objects(store, bucket, None).await,
                result => result,
            }
        }
        Cursor::Objects { token } => list_objects(store, bucket, token).await,
    }
}

async fn list_versions(
    store: &Store,
    bucket: BucketRef<'_>,
    key: Option<String>,
    version: Option<String>,
) -> Result<Page, CallError> {
    let call = store
        .retrying_s3
        .list_object_versions()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .max_keys(BATCH)
        .set_key_marker(key)
        .set_version_id_marker(version);
    let answer =
        store.call(Operation::ListObjectVersions, Resource::bucket(bucket.name), || call.clone().send()).await?;
    let more = answer.is_truncated.unwrap_or_default();
    let versions = answer.versions.unwrap_or_default().into_iter().map(|v| (v.key, v.version_id));
    let markers = answer.delete_markers.unwrap_or_default().into_iter().map(|m| (m.key, m.version_id));
    Ok(Page {
        objects: versions.chain(markers).filter_map(|(key, version)| identifier(key?, version)).collect(),
        next: answer
            .next_key_marker
            .filter(|_| more)
            .map(|key| Cursor::Versions { key: Some(key), version: answer.next_version_id_marker }),
    })
}

async fn list_objects(store: &Store, bucket: BucketRef<'_>, token: Option<String>) -> Result<Page, CallError> {
    let call = store
        .retrying_s3
        .list_objects_v2()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .max_keys(BATCH)
        .set_continuation_token(token);
    let answer = store.call(Operation::ListObjectsV2, Resource::bucket(bucket.name), || call.clone().send()).await?;
    Ok(Page {
        objects: answer.contents.unwrap_or_default().into_iter().filter_map(|o| identifier(o.key?, None)).collect(),
        next: answer.next_continuation_token.map(|token| Cursor::Objects { token: Some(token) }),
    })
}

fn identifier(key: String, version: Option<String>) -> Option<ObjectIdentifier> {
    ObjectIdentifier::builder().key(key).set_version_id(version).build().ok()
}

/// Deletes up to 1,000 objects, and returns how many were deleted and which were not: the status is 200 either way.
/// Those that were refused for the rate are deleted when the next turn comes.
async fn delete_objects(
    store: &Store,
    bucket: BucketRef<'_>,
    mut objects: Vec<ObjectIdentifier>,
) -> Result<(u64, Option<Undeleted>), CallError> {
    let (mut removed, mut undeleted, mut patience) = (0, None, Patience::default());
    while !objects.is_empty() {
        let delete = Delete::builder().set_objects(Some(objects.clone())).quiet(true).build().ok();
        let call = store
            .retrying_s3
            .delete_objects()
            .bucket(bucket.name)
            .set_expected_bucket_owner(bucket.account())
            .set_delete(delete);
        let (operation, resource) = (Operation::DeleteObjects, Resource::bucket(bucket.name));
        let partly = |answer: &DeleteObjectsOutput| answer.errors().iter().any(is_throttled);
        let answer = match store.call_unless(operation, resource, || call.clone().send(), partly).await {
            // A key can contain characters that XML cannot express, and not every store supports this call.
            Err(error) if error.code() == "MalformedXML" || error.lacks_operation() => {
                let (more, others) = delete_one_by_one(store, bucket, objects).await?;
                return Ok((removed + more, undeleted.into_iter().chain(others).reduce(Undeleted::and)));
            }
            result => result?,
        };
        let mut errors = answer.errors.unwrap_or_default();
        errors.retain(|error| !is_gone(code_of(error)));
        removed += objects.len().saturating_sub(errors.len()) as u64;
        let (refused, kept): (Vec<_>, Vec<_>) = errors.into_iter().partition(is_throttled);
        let gives_up = !refused.is_empty() && patience.is_over();
        let reported = if gives_up { refused.iter().chain(&kept) } else { kept.iter().chain(&[]) };
        undeleted = undeleted.into_iter().chain(reported.map(Undeleted::of)).reduce(Undeleted::and);
        if gives_up {
            break;
        }
        // Some stores do not name the version; then all versions of the key are asked for again.
        let refused: HashSet<_> = refused.into_iter().map(|error| (error.key, error.version_id)).collect();
        let is_refused =
            |key: &str, version: Option<&str>| refused.contains(&(Some(key.to_owned()), version.map(str::to_owned)));
        objects.retain(|object| is_refused(&object.key, object.version_id.as_deref()) || is_refused(&object.key, None));
    }
    Ok((removed, undeleted))
}

fn code_of(error: &s3::types::Error) -> &str {
    error.code().unwrap_or_default()
}

fn is_throttled(error: &s3::types::Error) -> bool {
    is_throttling(code_of(error))
}

async fn delete_one_by_one(
    store: &Store,
    bucket: BucketRef<'_>,
    objects: Vec<ObjectIdentifier>,
) -> Result<(u64, Option<Undeleted>), CallError> {
    let sum = stream::iter(objects)
        .map(|object| delete_object(store, bucket, object))
        .buffer_unordered(SMALL_CALLS_IN_FLIGHT)
        .try_fold(Progress::default(), |sum, undeleted| {
            let removed = u64::from(undeleted.is_none());
            std::future::ready(Ok(sum.and(Progress { removed, undeleted, complete: false })))
        })
        .await?;
    Ok((sum.removed, sum.undeleted))
}

/// Deletes an object; returns it if the store refuses.
async fn delete_object(
    store: &Store,
    bucket: BucketRef<'_>,
    object: ObjectIdentifier,
) -> Result<Option<Undeleted>, CallError> {
    let ObjectIdentifier { key, version_id, .. } = object;
    let call = store
        .retrying_s3
        .delete_object()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .key(&key)
        .set_version_id(version_id);
    match store.call(Operation::DeleteObject, Resource::bucket(bucket.name), || call.clone().send()).await {
        Ok(_) => Ok(None),
        Err(error) if is_gone(error.code()) => Ok(None),
        Err(error) if error.code() == "AccessDenied" => {
            Ok(Some(Undeleted { key, code: error.code().to_owned(), count: 1 }))
        }
        Err(error) => Err(error),
    }
}

fn is_gone(code: &str) -> bool {
    matches!(code, "NoSuchKey" | "NoSuchVersion")
}

/// Aborts up to 1,000 multipart uploads, and returns how many. A store that cannot list them has none.
pub(super) async fn abort_uploads(store: &Store, bucket: BucketRef<'_>) -> Result<u64, CallError> {
    let mut reservation = store.budget.reserve_page().await;
    let call =
        store.retrying_s3.list_multipart_uploads().bucket(bucket.name).set_expected_bucket_owner(bucket.account());
    let page = match store
        .call(Operation::ListMultipartUploads, Resource::bucket(bucket.name), || call.clone().send())
        .await
    {
        Err(error) if error.lacks_operation() => return Ok(0),
        result => result?,
    };
    let uploads = page.uploads.unwrap_or_default();
    let aborted = uploads.len() as u64;
    reservation
        .shrink(uploads.iter().flat_map(|upload| [&upload.key, &upload.upload_id]).flatten().map(String::len).sum());
    stream::iter(uploads)
        .map(|upload| abort(store, bucket, upload.key, upload.upload_id))
        .buffer_unordered(SMALL_CALLS_IN_FLIGHT)
        .try_collect::<()>()
        .await?;
    Ok(aborted)
}

async fn abort(
    store: &Store,
    bucket: BucketRef<'_>,
    key: Option<String>,
    upload: Option<String>,
) -> Result<(), CallError> {
    let call = store
        .retrying_s3
        .abort_multipart_upload()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .set_key(key)
        .set_upload_id(upload);
    match store.call(Operation::AbortMultipartUpload, Resource::bucket(bucket.name), || call.clone().send()).await {
        Err(error) if error.code() != "NoSuchUpload" => Err(error),
        _ => Ok(()),
    }
}
