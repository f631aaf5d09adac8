//! What is set on a bucket by one call, and read by another.

use std::future::Future;

use crate::class::target::{BucketRef, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;

/// The code of what a store has accepted, and does not keep.
pub(super) const NOT_KEPT: &str = "accepted, and not kept";

/// A configuration of a bucket, as class and claim set it.
pub(super) trait SubResource: Sync {
    /// What the store has.
    type Found: Send + Sync;

    /// What it is, for messages.
    const NAME: &'static str;
    /// Whether a part of it may be others', so that it is read before it is written.
    const IS_SHARED: bool = false;
    /// The call that reads it.
    const READ: Operation;
    /// The call that writes it.
    const WRITE: Operation;

    /// Reads what the store has.
    fn read(store: &Store, bucket: BucketRef<'_>) -> impl Future<Output = Result<Self::Found, CallError>> + Send;

    /// Whether the store has what is set. What is not set does not matter.
    fn is_in(&self, found: &Self::Found) -> bool;

    /// Writes it; `found`: what was just read of one that is shared.
    fn write(
        &self,
        store: &Store,
        bucket: BucketRef<'_>,
        found: Option<&Self::Found>,
    ) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// Writes what is set.
///
/// # Errors
/// Any refusal of the store; [`Error::NotSupported`] of a store other than AWS that has accepted it, and does not keep it.
pub(super) async fn put<S: SubResource>(store: &Store, target: &Target<'_>, set: &S) -> Result<(), Error> {
    let bucket = target.bucket_ref();
    let found = match S::IS_SHARED {
        true => Some(S::read(store, bucket).await?),
        false => None,
    };
    if found.as_ref().is_some_and(|found| set.is_in(found)) {
        return Ok(());
    }
    set.write(store, bucket, found.as_ref()).await?;
    // Some stores answer 200 to what they do not know.
    if target.endpoints.s3_is_foreign() && !set.is_in(&S::read(store, bucket).await?) {
        let (operation, resource) = (S::WRITE, Resource::bucket(bucket.name));
        return Err(Error::NotSupported { operation, resource, code: NOT_KEPT.to_owned(), message: None });
    }
    Ok(())
}

/// Writes what is set if the store has something else. Returns a sentence about that.
pub(super) async fn repair<S: SubResource>(
    store: &Store,
    target: &Target<'_>,
    set: &S,
) -> Result<Option<String>, Error> {
    let bucket = target.bucket_ref();
    let found = S::read(store, bucket).await?;
    if set.is_in(&found) {
        return Ok(None);
    }
    set.write(store, bucket, Some(&found)).await?;
    Ok(Some(format!("{} of bucket {:?} was missing or had been changed; it was restored", S::NAME, bucket.name)))
}
