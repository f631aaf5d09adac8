//! What a bucket holds, page by page: objects, versions and delete markers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_s3::operation::list_object_versions::ListObjectVersionsOutput;
use aws_sdk_s3::operation::list_object_versions::builders::ListObjectVersionsFluentBuilder;
use aws_sdk_s3::types::ObjectIdentifier;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use tokio::time::Instant;

use crate::class::target::BucketRef;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::store::Store;
use crate::s3::budget::Reservation;

/// Keys in one page (Amazon S3 API reference), and in one DeleteObjects.
const PAGE: i32 = 1000;
/// What ends the name of a folder.
const DELIMITER: &str = "/";
/// Folders that are listed one by one; where there are more, one of them may be hardly worth a page.
const FOLDERS: usize = 16;

/// How long a store may take to list the folders. Some stores search the whole bucket for that.
const FOLDERS_TIME: Duration = Duration::from_secs(1);

/// How much is listed in all.
pub(crate) struct Limits {
    /// How many more objects can be listed.
    left: AtomicUsize,
    end: Instant,
}

impl Limits {
    pub(crate) fn new(objects: usize, time: Duration) -> Self {
        Self { left: AtomicUsize::new(objects), end: Instant::now() + time }
    }

    fn are_reached(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0 || Instant::now() >= self.end
    }

    fn count(&self, objects: usize) {
        // Nothing else is read along with it, so any order will do.
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(objects)));
    }
}

/// Where a listing continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// Versions and delete markers, from a key and version.
    Versions { key: Option<String>, version: Option<String> },
    /// Objects, in a store without versions.
    Objects { token: Option<String> },
}

/// A page of a listing, and where the next one starts.
pub(crate) struct Page {
    pub(crate) objects: Vec<ObjectIdentifier>,
    pub(crate) next: Option<Cursor>,
    /// What it takes, until it is dropped.
    pub(crate) memory: Reservation,
}

/// The rest of a bucket, and a page of it.
pub(crate) enum Rest<'a> {
    InARow(Option<Page>, Listing<'a>),
    /// It lies in these folders, but for the objects of the page.
    InFolders(Page, Vec<Listing<'a>>),
}

/// Objects and the next cursor.
type Listed = (Vec<ObjectIdentifier>, Option<Cursor>);

/// The listing of a bucket or of a folder. It continues by key, so it does not matter that earlier objects were deleted.
#[derive(Clone)]
pub(crate) struct Listing<'a> {
    store: &'a Store,
    bucket: BucketRef<'a>,
    limits: &'a Limits,
    /// What all keys start with.
    prefix: Option<String>,
    /// `None` at the end.
    cursor: Option<Cursor>,
}

impl<'a> Listing<'a> {
    /// That of the whole bucket.
    pub(crate) fn new(store: &'a Store, bucket: BucketRef<'a>, limits: &'a Limits) -> Self {
        let cursor = Some(Cursor::Versions { key: None, version: None });
        Self { store, bucket, limits, prefix: None, cursor }
    }

    /// The rest of it, from a cursor on.
    pub(crate) fn from(mut self, cursor: Option<Cursor>) -> Self {
        self.cursor = cursor.or(self.cursor);
        self
    }

    /// Boxed, because otherwise the compiler cannot infer the lifetimes.
    pub(crate) fn pages(self) -> BoxStream<'a, Result<Page, CallError>> {
        stream::try_unfold(self, Self::step).boxed()
    }

    /// The next page, and the rest of the listing; `None` at the end and at the limits.
    pub(crate) async fn step(mut self) -> Result<Option<(Page, Self)>, CallError> {
        let Some(cursor) = self.cursor.take().filter(|_| !self.limits.are_reached()) else {
            return Ok(None);
        };
        let mut memory = self.store.budget.reserve_page().await;
        let (objects, next) = self.list(cursor).await?;
        memory.shrink(bytes(&objects));
        self.limits.count(objects.len());
        self.cursor.clone_from(&next);
        Ok(Some((Page { objects, next, memory }, self)))
    }

    /// The next page, in which a folder represents its content, if the listing can be split by these folders. Without
    /// folders it is a page like any other, so it costs such a bucket nothing.
    pub(crate) async fn by_folder(self) -> Result<Rest<'a>, CallError> {
        let Some(Cursor::Versions { key, version }) = self.cursor.clone().filter(|_| !self.limits.are_reached()) else {
            return Ok(Rest::InARow(None, self));
        };
        let mut memory = self.store.budget.reserve_page().await;
        let call = self.versions(key.clone(), version).delimiter(DELIMITER);
        let answer = self.store.call(Operation::ListObjectVersions, self.resource(), || call.clone().send());
        // If the store does not soon answer that, the call for the next page reports what is wrong.
        let Ok(Ok(mut answer)) = tokio::time::timeout(FOLDERS_TIME, answer).await else {
            return Ok(Rest::InARow(None, self));
        };
        let folders = answer.common_prefixes.take().unwrap_or_default().into_iter().filter_map(|folder| folder.prefix);
        let mut folders: Vec<_> = folders.collect();
        // Some stores continue behind the folder in which a listing begins.
        let begun =
            key.as_deref().and_then(|key| key.split_once(DELIMITER)).map(|(name, _)| format!("{name}{DELIMITER}"));
        folders.extend(begun.filter(|begun| !folders.contains(begun)));
        let (objects, next) = listed(answer);
        if !folders.is_empty() && (next.is_some() || folders.len() > FOLDERS) {
            return Ok(Rest::InARow(None, self));
        }
        memory.shrink(bytes(&objects));
        self.limits.count(objects.len());
        let page = Page { objects, next, memory };
        if folders.is_empty() {
            let rest = Self { cursor: page.next.clone(), ..self };
            return Ok(Rest::InARow(Some(page), rest));
        }
        Ok(Rest::InFolders(page, folders.into_iter().map(|folder| self.within(folder)).collect()))
    }

    /// The rest of a folder.
    fn within(&self, folder: String) -> Self {
        let cursor = match &self.cursor {
            Some(Cursor::Versions { key: Some(key), .. }) if !key.starts_with(&folder) => {
                Some(Cursor::Versions { key: None, version: None })
            }
            cursor => cursor.clone(),
        };
        Self { prefix: Some(folder), cursor, ..self.clone() }
    }

    async fn list(&self, cursor: Cursor) -> Result<Listed, CallError> {
        match cursor {
            Cursor::Versions { key, version } => {
                let first = key.is_none();
                match self.list_versions(key, version).await {
                    // A folder is known from such a listing.
                    Err(error) if first && self.prefix.is_none() && error.lacks_operation() => {
                        self.list_objects(None).await
                    }
                    result => result,
                }
            }
            Cursor::Objects { token } => self.list_objects(token).await,
        }
    }

    async fn list_versions(&self, key: Option<String>, version: Option<String>) -> Result<Listed, CallError> {
        let call = self.versions(key, version);
        let answer = self.store.call(Operation::ListObjectVersions, self.resource(), || call.clone().send()).await?;
        Ok(listed(answer))
    }

    fn versions(&self, key: Option<String>, version: Option<String>) -> ListObjectVersionsFluentBuilder {
        self.store
            .listing_s3
            .list_object_versions()
            .bucket(self.bucket.name)
            .set_expected_bucket_owner(self.bucket.account())
            .max_keys(PAGE)
            .set_prefix(self.prefix.clone())
            .set_key_marker(key)
            .set_version_id_marker(version)
    }

    async fn list_objects(&self, token: Option<String>) -> Result<Listed, CallError> {
        let call = self
            .store
            .listing_s3
            .list_objects_v2()
            .bucket(self.bucket.name)
            .set_expected_bucket_owner(self.bucket.account())
            .max_keys(PAGE)
            .set_continuation_token(token);
        let answer = self.store.call(Operation::ListObjectsV2, self.resource(), || call.clone().send()).await?;
        let objects = answer.contents.unwrap_or_default().into_iter().filter_map(|o| identifier(o.key?, None));
        let next = answer.next_continuation_token.map(|token| Cursor::Objects { token: Some(token) });
        Ok((objects.collect(), next))
    }

    fn resource(&self) -> Resource {
        Resource::bucket(self.bucket.name)
    }
}

fn listed(answer: ListObjectVersionsOutput) -> Listed {
    let more = answer.is_truncated.unwrap_or_default();
    let versions = answer.versions.unwrap_or_default().into_iter().map(|v| (v.key, v.version_id));
    let markers = answer.delete_markers.unwrap_or_default().into_iter().map(|m| (m.key, m.version_id));
    let next = answer
        .next_key_marker
        .filter(|_| more)
        .map(|key| Cursor::Versions { key: Some(key), version: answer.next_version_id_marker });
    (versions.chain(markers).filter_map(|(key, version)| identifier(key?, version)).collect(), next)
}

fn identifier(key: String, version: Option<String>) -> Option<ObjectIdentifier> {
    ObjectIdentifier::builder().key(key).set_version_id(version).build().ok()
}

/// Whether a bucket holds an object, a version, a delete marker or an unfinished upload.
pub(crate) async fn holds_anything(store: &Store, bucket: BucketRef<'_>) -> Result<bool, CallError> {
    let (objects, uploads) = tokio::join!(holds_objects(store, bucket), holds_uploads(store, bucket));
    Ok(objects? || uploads?)
}

async fn holds_objects(store: &Store, bucket: BucketRef<'_>) -> Result<bool, CallError> {
    let resource = || Resource::bucket(bucket.name);
    let owner = bucket.account();
    let call = store
        .listing_s3
        .list_object_versions()
        .bucket(bucket.name)
        .set_expected_bucket_owner(owner.clone())
        .max_keys(1);
    match store.call(Operation::ListObjectVersions, resource(), || call.clone().send()).await {
        Err(error) if error.lacks_operation() => {}
        answer => {
            let (objects, next) = listed(answer?);
            return Ok(!objects.is_empty() || next.is_some());
        }
    }
    let call = store.listing_s3.list_objects_v2().bucket(bucket.name).set_expected_bucket_owner(owner).max_keys(1);
    let answer = store.call(Operation::ListObjectsV2, resource(), || call.clone().send()).await?;
    Ok(!answer.contents().is_empty())
}

/// A store that cannot list them has none.
async fn holds_uploads(store: &Store, bucket: BucketRef<'_>) -> Result<bool, CallError> {
    let call = store
        .listing_s3
        .list_multipart_uploads()
        .bucket(bucket.name)
        .set_expected_bucket_owner(bucket.account())
        .max_uploads(1);
    match store.call(Operation::ListMultipartUploads, Resource::bucket(bucket.name), || call.clone().send()).await {
        Err(error) if error.lacks_operation() => Ok(false),
        answer => Ok(!answer?.uploads().is_empty()),
    }
}

/// Bytes of keys and versions.
fn bytes(objects: &[ObjectIdentifier]) -> usize {
    objects.iter().map(|object| object.key.len() + object.version_id.as_ref().map_or(0, String::len)).sum()
}
