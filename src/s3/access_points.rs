//! Access points of a bucket. S3 does not delete a bucket that has some, so they are searched for before its content is
//! deleted.

use std::time::Duration;

use crate::class::target::BucketRef;
use crate::client::call::{Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;

/// How long the answer may take. From a private network, this endpoint of S3 often cannot be reached.
const TIME: Duration = Duration::from_secs(5);

/// Requires that a bucket has no access points. If AWS does not list them, DeleteBucket decides.
///
/// # Errors
/// [`Error::HasAccessPoints`].
pub(crate) async fn require_none(store: &Store, bucket: BucketRef<'_>) -> Result<(), Error> {
    let (Some(control), Some(account)) = (&store.control, bucket.account()) else { return Ok(()) };
    let call = control.list_access_points().account_id(account).bucket(bucket.name);
    let answer = store.call(Operation::ListAccessPoints, Resource::bucket(bucket.name), || call.clone().send());
    // Another answer is logged with its call.
    let Ok(Ok(answer)) = tokio::time::timeout(TIME, answer).await else { return Ok(()) };
    let names: Vec<_> = answer.access_point_list().iter().map(|point| point.name.clone()).collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(Error::HasAccessPoints { bucket: bucket.name.to_owned(), names }),
    }
}
