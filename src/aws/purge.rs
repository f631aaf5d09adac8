//! Deleting a bucket that is proven to be the claim's, with all that is in it, in bounded slices.

use std::time::Duration;

use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::bucket::{NameKind, is_in_account, tags_of};
use super::call::{CallError, Operation, Resource};
use super::clients::Store;
use super::error::Error;
use super::room::Taken;
use super::tags::{Ownership, ownership};
use super::target::{BucketRef, Target};

/// Keys in one DeleteObjects (Amazon S3 API reference), and in one page of a listing.
const BATCH: i32 = 1000;
/// DeleteObjects calls that run at once.
const DELETES_IN_FLIGHT: usize = 4;
/// Calls about a single object or upload that run at once.
const SMALL_CALLS_IN_FLIGHT: usize = 8;

/// How much one call removes at most, so that other claims get their turn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Objects, versions and delete markers that are listed.
    pub(crate) objects: usize,
    /// After this no further page is listed.
    pub(crate) time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { objects: 10_000, time: Duration::from_secs(8) }
    }
}

/// How far it came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Purged {
    /// The bucket is gone.
    Gone,
    /// There was none.
    Missing,
    /// The bucket is not the claim's; a sentence that says why.
    Left(String),
    /// This much was removed, and more is to be done.
    Partly(u64),
}

/// Decides whether the bucket of a record may be deleted: `Err` says why not.
///
/// The name alone proves a generated one, even if somebody replaced its tags. A record of the Go provisioner,
/// which tagged nothing, is proof as far as there is no tag at all.
fn may_delete(target: &Target<'_>, ownership: Ownership) -> Result<(), String> {
    let left = |why: String| Err(format!("bucket {:?} was left in place: {why}", target.bucket()));
    match ownership {
        Ownership::Ours | Ownership::Inherited => Ok(()),
        Ownership::OtherClaim => left("its tags name another claim".to_owned()),
        Ownership::Untagged if target.go_policy.is_some() => Ok(()),
        Ownership::Untagged | Ownership::Foreign
            if NameKind::of(target) == NameKind::Generated && target.go_policy.is_none() =>
        {
            Ok(())
        }
        Ownership::Untagged | Ownership::Foreign => left("it is not tagged as this claim's".to_owned()),
    }
}

/// Deletes the bucket of a record, or a slice of what is in it.
pub(crate) async fn delete(store: &Store, target: &Target<'_>, limits: Limits) -> Result<Purged, Error> {
    let (bucket, name) = (target.bucket_ref(), target.bucket());
    let tags = match tags_of(store, bucket).await {
        Err(error) if error.code() == "NoSuchBucket" => return Ok(Purged::Missing),
        Err(error) => match Error::from(error) {
            // The claim's own bucket is where the record says.
            error @ Error::WrongRegion { .. } => {
                return Ok(Purged::Left(format!(
                    "bucket {name:?} was left in place, because it is not the claim's: {error}"
                )));
            }
            // Denied may be what the owner is not allowed, and what is not the owner's at all.
            error if error.is_denied() && is_in_account(store, name).await? == Some(false) => {
                return Ok(Purged::Left(format!(
                    "bucket {name:?} was left in place, because it is not in the owner's account: the claim's own is gone, and somebody else has taken its name"
                )));
            }
            error => return Err(error),
        },
        Ok(tags) => tags,
    };
    if let Err(why) = may_delete(target, ownership(&tags, target.record)) {
        return Ok(Purged::Left(why));
    }
    if delete_bucket(store, bucket).await? == Deleted::Gone {
        return Ok(Purged::Gone);
    }

    let Slice { removed, kept, complete } = remove_objects(store, bucket, limits).await?;
    if !complete && removed > 0 {
        return Ok(Purged::Partly(removed));
    }
    if let Some(Kept { key, code, count }) = kept {
        return match removed {
            // These may pass.
            0 if matches!(code.as_str(), "InternalError" | "SlowDown" | "ServiceUnavailable") => {
                let resource = Resource::bucket(name);
                Err(Error::StoreFailing { operation: Operation::DeleteObjects, resource, problem: code })
            }
            0 => Err(Error::ObjectsNotDeleted { bucket: name.to_owned(), key, code, count }),
            removed => Ok(Purged::Partly(removed)),
        };
    }
    let removed = removed + abort_uploads(store, bucket).await?;
    match (delete_bucket(store, bucket).await?, removed) {
        (Deleted::Gone, _) => Ok(Purged::Gone),
        (Deleted::NotEmpty, 0) => Err(Error::BucketNotEmpty { bucket: name.to_owned() }),
        (Deleted::NotEmpty, removed) => Ok(Purged::Partly(removed)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Deleted {
    Gone,
    NotEmpty,
}

async fn delete_bucket(store: &Store, bucket: BucketRef<'_>) -> Result<Deleted, CallError> {
    let sent = store.s3.delete_bucket().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).send();
    match store.call(Operation::DeleteBucket, Resource::bucket(bucket.name), sent).await {
        Ok(_) => Ok(Deleted::Gone),
        Err(error) if error.code() == "NoSuchBucket" || error.status() == 404 => Ok(Deleted::Gone),
        Err(error) if error.code() == "BucketNotEmpty" => Ok(Deleted::NotEmpty),
        Err(error) => Err(error),
    }
}

/// What one slice did.
#[derive(Debug, Default)]
struct Slice {
    removed: u64,
    /// What the store did not delete.
    kept: Option<Kept>,
    /// The listing came to its end.
    complete: bool,
}

impl Slice {
    fn and(self, other: Self) -> Self {
        Self {
            removed: self.removed + other.removed,
            kept: match (self.kept, other.kept) {
                (Some(a), Some(b)) => Some(a.and(b)),
                (a, b) => a.or(b),
            },
            complete: self.complete || other.complete,
        }
    }
}

/// Objects that the store did not delete: the first of them in the order of keys, and how many.
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    key: String,
    code: String,
    count: u64,
}

impl Kept {
    fn and(self, other: Self) -> Self {
        let count = self.count + other.count;
        let first = if other.key < self.key { other } else { self };
        Self { count, ..first }
    }
}

/// Where a listing goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Position {
    /// Versions and delete markers, from a key and version.
    Versions { key: Option<String>, version: Option<String> },
    /// Plain objects, in a store that knows no versions.
    Objects { token: Option<String> },
}

/// A page of a listing, and where the next one begins.
struct Page {
    objects: Vec<ObjectIdentifier>,
    next: Option<Position>,
}

impl Page {
    /// Bytes of its keys and versions.
    fn bytes(&self) -> usize {
        self.objects.iter().map(|object| object.key.len() + object.version_id.as_ref().map_or(0, String::len)).sum()
    }
}

/// Lists pages and deletes what is on them, the next page while earlier ones are being deleted. Deleting
/// what was listed does not move a listing, which goes by key.
async fn remove_objects(store: &Store, bucket: BucketRef<'_>, limits: Limits) -> Result<Slice, CallError> {
    let walk = Walk {
        store,
        bucket,
        left: limits.objects,
        end: Instant::now() + limits.time,
        position: Some(Position::Versions { key: None, version: None }),
    };
    walk.pages()
        .map_ok(|(page, room)| delete_page(store, bucket, page, room))
        .try_buffer_unordered(DELETES_IN_FLIGHT)
        .try_fold(Slice::default(), |sum, part| std::future::ready(Ok(sum.and(part))))
        .await
}

/// A walk through the listing of a bucket.
struct Walk<'a> {
    store: &'a Store,
    bucket: BucketRef<'a>,
    /// So many objects may still be listed.
    left: usize,
    end: Instant,
    /// `None`: the listing is at its end.
    position: Option<Position>,
}

impl<'a> Walk<'a> {
    /// The pages. Boxed, because the compiler cannot name what it would borrow otherwise.
    fn pages(self) -> BoxStream<'a, Result<(Page, Taken), CallError>> {
        stream::try_unfold(self, Self::step).boxed()
    }

    /// The next page, and the walk that goes on from it; `None` at the end and at the limits.
    async fn step(mut self) -> Result<Option<((Page, Taken), Self)>, CallError> {
        let Some(position) = self.position.take().filter(|_| self.left > 0 && Instant::now() < self.end) else {
            return Ok(None);
        };
        let mut room = self.store.room.for_page().await;
        let page = list(self.store, self.bucket, position).await?;
        room.shrink(page.bytes());
        self.left = self.left.saturating_sub(page.objects.len());
        self.position.clone_from(&page.next);
        Ok(Some(((page, room), self)))
    }
}

/// `_room` is what the page takes.
async fn delete_page(
    store: &Store,
    bucket: BucketRef<'_>,
    Page { objects, next }: Page,
    _room: Taken,
) -> Result<Slice, CallError> {
    let (removed, kept) = delete_objects(store, bucket, objects).await?;
    Ok(Slice { removed, kept, complete: next.is_none() })
}

async fn list(store: &Store, bucket: BucketRef<'_>, position: Position) -> Result<Page, CallError> {
    match position {
        Position::Versions { key, version } => {
            let first = key.is_none();
            match list_versions(store, bucket, key, version).await {
                Err(error) if first && error.lacks_operation() => list_objects(store, bucket, None).await,
                result => result,
            }
        }
        Position::Objects { token } => list_objects(store, bucket, token).await,
    }
}

async fn list_versions(
    store: &Store,
    bucket: BucketRef<'_>,
    key: Option<String>,
    version: Option<String>,
) -> Result<Page, CallError> {
    let sent = store
        .patient_s3
        .list_object_versions()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .max_keys(BATCH)
        .set_key_marker(key)
        .set_version_id_marker(version)
        .send();
    let answer = store.call(Operation::ListObjectVersions, Resource::bucket(bucket.name), sent).await?;
    let more = answer.is_truncated.unwrap_or_default();
    let versions = answer.versions.unwrap_or_default().into_iter().map(|v| (v.key, v.version_id));
    let markers = answer.delete_markers.unwrap_or_default().into_iter().map(|m| (m.key, m.version_id));
    Ok(Page {
        objects: versions.chain(markers).filter_map(|(key, version)| identifier(key?, version)).collect(),
        next: answer
            .next_key_marker
            .filter(|_| more)
            .map(|key| Position::Versions { key: Some(key), version: answer.next_version_id_marker }),
    })
}

async fn list_objects(store: &Store, bucket: BucketRef<'_>, token: Option<String>) -> Result<Page, CallError> {
    let sent = store
        .patient_s3
        .list_objects_v2()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .max_keys(BATCH)
        .set_continuation_token(token)
        .send();
    let answer = store.call(Operation::ListObjectsV2, Resource::bucket(bucket.name), sent).await?;
    Ok(Page {
        objects: answer.contents.unwrap_or_default().into_iter().filter_map(|o| identifier(o.key?, None)).collect(),
        next: answer.next_continuation_token.map(|token| Position::Objects { token: Some(token) }),
    })
}

fn identifier(key: String, version: Option<String>) -> Option<ObjectIdentifier> {
    ObjectIdentifier::builder().key(key).set_version_id(version).build().ok()
}

/// Deletes up to 1,000 objects, and says how many went and which did not: the answer is 200 either way.
async fn delete_objects(
    store: &Store,
    bucket: BucketRef<'_>,
    objects: Vec<ObjectIdentifier>,
) -> Result<(u64, Option<Kept>), CallError> {
    if objects.is_empty() {
        return Ok((0, None));
    }
    let asked = objects.len() as u64;
    let delete = Delete::builder().set_objects(Some(objects.clone())).quiet(true).build().ok();
    let sent = store
        .patient_s3
        .delete_objects()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .set_delete(delete)
        .send();
    let answer = match store.call(Operation::DeleteObjects, Resource::bucket(bucket.name), sent).await {
        // A key may hold characters that XML cannot carry, and not every store knows this call.
        Err(error) if error.code() == "MalformedXML" || error.lacks_operation() => {
            return delete_one_by_one(store, bucket, objects).await;
        }
        result => result?,
    };
    let kept = answer
        .errors
        .unwrap_or_default()
        .into_iter()
        .map(|error| Kept { key: error.key.unwrap_or_default(), code: error.code.unwrap_or_default(), count: 1 })
        .filter(|kept| !is_gone(&kept.code))
        .reduce(Kept::and);
    Ok((asked - kept.as_ref().map_or(0, |kept| kept.count.min(asked)), kept))
}

async fn delete_one_by_one(
    store: &Store,
    bucket: BucketRef<'_>,
    objects: Vec<ObjectIdentifier>,
) -> Result<(u64, Option<Kept>), CallError> {
    let sum = stream::iter(objects)
        .map(|object| delete_object(store, bucket, object))
        .buffer_unordered(SMALL_CALLS_IN_FLIGHT)
        .try_fold(Slice::default(), |sum, kept| {
            let removed = if kept.is_none() { 1 } else { 0 };
            std::future::ready(Ok(sum.and(Slice { removed, kept, complete: false })))
        })
        .await?;
    Ok((sum.removed, sum.kept))
}

/// Deletes an object, or says that the store keeps it.
async fn delete_object(
    store: &Store,
    bucket: BucketRef<'_>,
    object: ObjectIdentifier,
) -> Result<Option<Kept>, CallError> {
    let ObjectIdentifier { key, version_id, .. } = object;
    let sent = store
        .patient_s3
        .delete_object()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .key(&key)
        .set_version_id(version_id)
        .send();
    match store.call(Operation::DeleteObject, Resource::bucket(bucket.name), sent).await {
        Ok(_) => Ok(None),
        Err(error) if is_gone(error.code()) => Ok(None),
        Err(error) if error.code() == "AccessDenied" => Ok(Some(Kept { key, code: error.code().to_owned(), count: 1 })),
        Err(error) => Err(error),
    }
}

fn is_gone(code: &str) -> bool {
    matches!(code, "NoSuchKey" | "NoSuchVersion")
}

/// Aborts up to 1,000 multipart uploads, and says how many. A store that cannot list them has none.
async fn abort_uploads(store: &Store, bucket: BucketRef<'_>) -> Result<u64, CallError> {
    let mut room = store.room.for_page().await;
    let sent = store
        .patient_s3
        .list_multipart_uploads()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .send();
    let page = match store.call(Operation::ListMultipartUploads, Resource::bucket(bucket.name), sent).await {
        Err(error) if error.lacks_operation() => return Ok(0),
        result => result?,
    };
    let uploads = page.uploads.unwrap_or_default();
    let aborted = uploads.len() as u64;
    room.shrink(uploads.iter().flat_map(|upload| [&upload.key, &upload.upload_id]).flatten().map(String::len).sum());
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
    let sent = store
        .patient_s3
        .abort_multipart_upload()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .set_key(key)
        .set_upload_id(upload)
        .send();
    match store.call(Operation::AbortMultipartUpload, Resource::bucket(bucket.name), sent).await {
        Err(error) if error.code() != "NoSuchUpload" => Err(error),
        _ => Ok(()),
    }
}
