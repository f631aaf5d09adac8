//! Emptying a bucket: objects, versions, delete markers and multipart uploads, a limited number with each call.

use std::collections::HashSet;
use std::time::Duration;

use aws_sdk_s3 as s3;
use aws_sdk_s3::operation::delete_objects::DeleteObjectsOutput;
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use futures::{StreamExt, TryStreamExt, stream};

use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::codes::is_throttling;
use crate::client::limiter::Backoff;
use crate::client::store::Store;
use crate::s3::listing::{Cursor, Limits, Listing, Page, Rest};

/// Objects, versions and delete markers that one call of [`remove_objects`] lists at most.
const OBJECTS_PER_CALL: usize = 50_000;
/// How long after its start a call lists further pages; then other claims get the worker.
const LISTING_TIME: Duration = Duration::from_secs(8);
/// DeleteObjects calls that run at the same time.
const BATCHES_IN_FLIGHT: usize = 4;
/// Folders that are listed at the same time. Each listing holds the memory for a large page, and all buckets together
/// have only four of these.
const FOLDERS_AT_ONCE: usize = 2;
/// Calls about a single object or upload that run at the same time.
const SMALL_CALLS_IN_FLIGHT: usize = 8;

/// A bucket that is emptied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Emptied<'a> {
    pub(crate) of: BucketRef<'a>,
    /// Also objects that are locked in the mode `GOVERNANCE`.
    pub(crate) bypasses_governance: bool,
}

/// What one call of [`remove_objects`] did.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) removed: u64,
    /// What the store did not delete.
    pub(crate) undeleted: Option<Undeleted>,
    pub(crate) reached: Reached,
}

/// How far a listing came.
#[derive(Debug, Default)]
pub(crate) enum Reached {
    /// Nothing was listed, or folders side by side.
    #[default]
    Unknown,
    /// The next page starts here.
    At(Cursor),
    End,
}

impl Progress {
    /// `other`: what was listed behind it.
    fn and(self, other: Self) -> Self {
        Self {
            removed: self.removed + other.removed,
            undeleted: match (self.undeleted, other.undeleted) {
                (Some(a), Some(b)) => Some(a.and(b)),
                (a, b) => a.or(b),
            },
            reached: match other.reached {
                Reached::Unknown => self.reached,
                further => further,
            },
        }
    }
}

/// Objects that the store did not delete: the first one in the order of keys, its error code, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undeleted {
    pub(crate) key: String,
    /// `None` in a store that does not name it.
    pub(crate) version: Option<String>,
    pub(crate) code: String,
    pub(crate) count: u64,
}

impl Undeleted {
    fn of(error: &s3::types::Error) -> Self {
        let (key, version) = (error.key.clone().unwrap_or_default(), error.version_id.clone());
        Self { key, version, code: code_of(error).to_owned(), count: 1 }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        let count = self.count + other.count;
        let first = if other.key < self.key { other } else { self };
        Self { count, ..first }
    }
}

/// Deletes objects page by page from a cursor on, and lists the next pages meanwhile. Where the keys lie in a few
/// folders, these are listed at the same time, unless `in_a_row`. Then the next call lists what is left, because only a
/// listing of the whole bucket proves that nothing is.
pub(crate) async fn remove_objects(
    store: &Store,
    bucket: Emptied<'_>,
    from: Option<Cursor>,
    in_a_row: bool,
) -> Result<Progress, CallError> {
    let limits = Limits::new(OBJECTS_PER_CALL, LISTING_TIME);
    let Some((first, whole)) = Listing::new(store, bucket.of, &limits).from(from).step().await? else {
        return Ok(Progress { reached: Reached::End, ..Progress::default() });
    };
    let rest = async {
        if in_a_row {
            return delete_all(store, bucket, None, whole, BATCHES_IN_FLIGHT).await;
        }
        match whole.clone().by_folder().await? {
            Rest::InARow(page, rest) => delete_all(store, bucket, page, rest, BATCHES_IN_FLIGHT).await,
            Rest::InFolders(page, folders) => {
                let (page, rest) =
                    tokio::try_join!(delete_page(store, bucket, page), in_folders(store, bucket, folders, whole))?;
                Ok(Progress { reached: Reached::Unknown, ..page }.and(rest))
            }
        }
    };
    let (first, rest) = tokio::try_join!(delete_page(store, bucket, first), rest)?;
    Ok(first.and(rest))
}

/// A failure ends only the listing of its own folder. If nothing was done, because a folder could not be listed, the bucket is
/// listed in a row: some policies allow only the listing of whole buckets.
///
/// Each folder is polled as long as another one is, so that no call waits for an answer that nobody reads.
async fn in_folders(
    store: &Store,
    bucket: Emptied<'_>,
    folders: Vec<Listing<'_>>,
    whole: Listing<'_>,
) -> Result<Progress, CallError> {
    let in_flight = BATCHES_IN_FLIGHT / folders.len().clamp(1, FOLDERS_AT_ONCE);
    // Each begins when it is first polled.
    let folders: Vec<_> =
        folders.into_iter().map(|folder| delete_all(store, bucket, None, folder, in_flight)).collect();
    let (sum, failed) = stream::iter(folders)
        .buffer_unordered(FOLDERS_AT_ONCE)
        .fold((Progress::default(), false), async |(sum, failed), part| match part {
            Ok(part) => (sum.and(part), failed),
            // Logged with its call.
            Err(_) => (sum, true),
        })
        .await;
    if failed && sum.removed == 0 {
        return delete_all(store, bucket, None, whole, BATCHES_IN_FLIGHT).await;
    }
    Ok(Progress { reached: Reached::Unknown, ..sum })
}

/// Deletes a page and what is listed then.
async fn delete_all(
    store: &Store,
    bucket: Emptied<'_>,
    page: Option<Page>,
    rest: Listing<'_>,
    in_flight: usize,
) -> Result<Progress, CallError> {
    stream::iter(page.map(Ok))
        .chain(rest.pages())
        .map_ok(|page| delete_page(store, bucket, page))
        .try_buffered(in_flight)
        .try_fold(Progress::default(), |sum, part| std::future::ready(Ok(sum.and(part))))
        .await
}

/// Holds the page's memory until its objects are deleted.
async fn delete_page(store: &Store, bucket: Emptied<'_>, page: Page) -> Result<Progress, CallError> {
    let Page { objects, next, memory: _memory } = page;
    let (removed, undeleted) = delete_objects(store, bucket, objects).await?;
    Ok(Progress { removed, undeleted, reached: next.map_or(Reached::End, Reached::At) })
}

/// Deletes up to 1,000 objects, and returns how many were deleted and which were not: the status is 200 either way.
/// Those that were throttled are deleted by the next call that the rate limit allows.
async fn delete_objects(
    store: &Store,
    bucket: Emptied<'_>,
    mut objects: Vec<ObjectIdentifier>,
) -> Result<(u64, Option<Undeleted>), CallError> {
    let (mut removed, mut undeleted, mut backoff) = (0, None, Backoff::default());
    while !objects.is_empty() {
        let delete = Delete::builder().set_objects(Some(objects.clone())).quiet(true).build().ok();
        let call = store
            .listing_s3
            .delete_objects()
            .bucket(bucket.of.name)
            .set_expected_bucket_owner(bucket.of.account())
            .set_delete(delete)
            .set_bypass_governance_retention(bucket.bypasses_governance.then_some(true));
        let (operation, resource) = (Operation::DeleteObjects, Resource::bucket(bucket.of.name));
        let partly = |answer: &DeleteObjectsOutput| answer.errors().iter().any(is_throttled);
        let answer = match store.call_for_parts(operation, resource, || call.clone().send(), partly).await {
            // A key can contain characters that XML cannot express, and not every store supports this call.
            Err(error) if error.code() == "MalformedXML" || error.lacks_operation() => {
                let (more, others) = delete_one_by_one(store, bucket, objects).await?;
                return Ok((removed + more, undeleted.into_iter().chain(others).reduce(Undeleted::and)));
            }
            result => result?,
        };
        let mut errors = answer.errors.unwrap_or_default();
        errors.retain(|error| !is_gone(code_of(error)));
        let deleted = objects.len().saturating_sub(errors.len()) as u64;
        store.purged(deleted);
        removed += deleted;
        let (refused, kept): (Vec<_>, Vec<_>) = errors.into_iter().partition(is_throttled);
        let gives_up = !refused.is_empty() && !backoff.wait().await;
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
    bucket: Emptied<'_>,
    objects: Vec<ObjectIdentifier>,
) -> Result<(u64, Option<Undeleted>), CallError> {
    let sum = stream::iter(objects)
        .map(|object| delete_object(store, bucket, object))
        .buffer_unordered(SMALL_CALLS_IN_FLIGHT)
        .try_fold(Progress::default(), |sum, undeleted| {
            let removed = u64::from(undeleted.is_none());
            std::future::ready(Ok(sum.and(Progress { removed, undeleted, reached: Reached::Unknown })))
        })
        .await?;
    Ok((sum.removed, sum.undeleted))
}

/// Deletes an object; returns it if the store refuses.
async fn delete_object(
    store: &Store,
    bucket: Emptied<'_>,
    object: ObjectIdentifier,
) -> Result<Option<Undeleted>, CallError> {
    let ObjectIdentifier { key, version_id, .. } = object;
    let call = store
        .listing_s3
        .delete_object()
        .bucket(bucket.of.name)
        .set_expected_bucket_owner(bucket.of.account())
        .key(&key)
        .set_version_id(version_id.clone())
        .set_bypass_governance_retention(bucket.bypasses_governance.then_some(true));
    match store.call(Operation::DeleteObject, Resource::bucket(bucket.of.name), || call.clone().send()).await {
        Ok(_) => {
            store.purged(1);
            Ok(None)
        }
        Err(error) if is_gone(error.code()) => Ok(None),
        Err(error) if error.code() == "AccessDenied" => {
            Ok(Some(Undeleted { key, version: version_id, code: error.code().to_owned(), count: 1 }))
        }
        Err(error) => Err(error),
    }
}

fn is_gone(code: &str) -> bool {
    matches!(code, "NoSuchKey" | "NoSuchVersion")
}

/// Aborts up to 1,000 multipart uploads, and returns how many. A store that cannot list them has none.
pub(crate) async fn abort_uploads(store: &Store, bucket: BucketRef<'_>) -> Result<u64, CallError> {
    let mut reservation = store.budget.reserve_page().await;
    let call =
        store.listing_s3.list_multipart_uploads().bucket(bucket.name).set_expected_bucket_owner(bucket.account());
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
        .listing_s3
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
