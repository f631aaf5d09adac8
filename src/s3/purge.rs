//! Deleting a bucket that is proven to be the claim's, with all its content.

use super::{access_points, listing};
use crate::class::target::{BucketRef, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::lock::Lock;
use crate::client::remedy::in_region;
use crate::client::store::Store;
use crate::s3::bucket::{Age, NameKind, age_of, is_in_account};
use crate::s3::empty::{Emptied, Undeleted, abort_uploads, remove_objects};
use crate::s3::emptying::{Emptyings, Pass};
use crate::s3::tagging;
use crate::s3::tags::{Ownership, ownership};
use crate::s3::{locks, settings};
use bucket_provisioner::store::BucketRemoval;

/// Decides whether the bucket of a record may be deleted: `Err` has the reason.
///
/// A generated name is proof, even if somebody replaced the tags. The Go provisioner tagged nothing, so its record is
/// proof for a bucket without tags.
fn may_delete(target: &Target<'_>, ownership: Ownership) -> Result<(), String> {
    let left = |why| Err(format!("bucket {:?} was left in place: {why}", target.bucket()));
    match ownership {
        Ownership::Ours | Ownership::PreviousClaim => Ok(()),
        Ownership::OtherClaim => left("its tags name another claim"),
        Ownership::Untagged if target.go_policy.is_some() => Ok(()),
        _ if target.go_policy.is_none() && NameKind::of(target) == NameKind::Generated => Ok(()),
        Ownership::Untagged | Ownership::Foreign => left("it does not have the tags of this claim"),
    }
}

/// Checks whether the bucket of a record may be deleted. `Some`: how the deletion ended, without one.
pub(crate) async fn find(store: &Store, target: &Target<'_>) -> Result<Option<BucketRemoval>, Error> {
    let (bucket, name) = (target.bucket_ref(), target.bucket());
    let tags = match tagging::read(store, bucket).await {
        Err(error) if error.code() == "NoSuchBucket" => return Ok(Some(BucketRemoval::NotFound)),
        Err(error) => match Error::from(error) {
            // The claim's own bucket is in the region of the record.
            Error::WrongRegion { region, .. } => {
                return Ok(Some(BucketRemoval::LeftInPlace(format!(
                    "bucket {name:?} was left in place: it is in {}, and this claim's bucket was created in region {}",
                    in_region(region.as_deref()),
                    target.endpoints.region
                ))));
            }
            // Either a permission is missing, or the bucket is in another account.
            error if error.is_denied() && is_in_account(store, name).await? == Some(false) => {
                return Ok(Some(BucketRemoval::LeftInPlace(format!(
                    "bucket {name:?} was left in place: it is not in the account of the provisioning credentials; this claim's bucket no longer exists, and somebody else has taken its name"
                ))));
            }
            error => return Err(error),
        },
        Ok(tags) => tags,
    };
    let ownership = ownership(&tags, target.record);
    if let Err(left) = may_delete(target, ownership.clone()) {
        return Ok(Some(BucketRemoval::LeftInPlace(left)));
    }
    // Tags can be copied, and an admin can write any name into a record.
    let is_older = ownership.is_proven()
        && NameKind::of(target) == NameKind::Chosen
        && target.go_policy.is_none()
        && matches!(known_age(store, target).await?, Age::Older);
    Ok(is_older.then(|| {
        BucketRemoval::LeftInPlace(format!(
            "bucket {name:?} was left in place: it is older than this claim, so it was not created for it"
        ))
    }))
}

/// The age of the bucket; unknown if the provisioning credentials may not list buckets.
async fn known_age(store: &Store, target: &Target<'_>) -> Result<Age, Error> {
    match age_of(store, target).await {
        Err(error) if error.is_denied() => Ok(Age::Unknown),
        age => age,
    }
}

/// Deletes the bucket of a record if it is empty; returns whether it was.
pub(crate) async fn delete_empty(store: &Store, target: &Target<'_>) -> Result<bool, Error> {
    Ok(delete_bucket(store, target.bucket_ref()).await? == Deleted::Gone)
}

/// The same, and an unfinished upload counts as content. DeleteBucket ignores uploads, and in some stores even objects.
pub(crate) async fn delete_if_empty(store: &Store, target: &Target<'_>) -> Result<bool, Error> {
    if listing::holds_anything(store, target.bucket_ref()).await? {
        return Ok(false);
    }
    delete_empty(store, target).await
}

/// Deletes the bucket of a record with its content, or a part of the content.
pub(crate) async fn delete(store: &Store, target: &Target<'_>, emptyings: &Emptyings) -> Result<BucketRemoval, Error> {
    let (bucket, record) = (target.bucket_ref(), target.record);
    let mut emptying = emptyings.of(record);
    if emptying.is_new() {
        access_points::require_none(store, bucket).await?;
    }
    let bypasses_governance = settings::bypasses_governance(store, target).await?;
    let emptied = Emptied { of: bucket, bypasses_governance };
    let progress = remove_objects(store, emptied, emptying.from(), emptying.in_a_row()).await?;
    let removed = progress.removed;
    let Some(pass) = emptying.add(progress) else {
        emptyings.keep(record, emptying);
        return Ok(BucketRemoval::partial(removed));
    };
    match after_pass(store, emptied, pass).await {
        Ok(false) => {
            emptyings.keep(record, emptying);
            Ok(BucketRemoval::partial(removed))
        }
        ended => {
            emptyings.forget(record);
            ended.map(|_| BucketRemoval::Deleted)
        }
    }
}

/// Deletes the bucket, which should be empty; returns whether it was deleted. If not, another pass may help.
async fn after_pass(store: &Store, emptied: Emptied<'_>, pass: Pass) -> Result<bool, Error> {
    let bucket = emptied.of;
    let Pass { removed, undeleted, is_last } = pass;
    if let Some(undeleted) = undeleted {
        return if removed > 0 && !is_last { Ok(false) } else { Err(not_deleted(store, emptied, undeleted).await) };
    }
    let removed = removed + abort_uploads(store, bucket).await?;
    match delete_bucket(store, bucket).await? {
        Deleted::Gone => Ok(true),
        Deleted::NotEmpty if removed == 0 => Err(Error::BucketNotEmpty { bucket: bucket.name.to_owned() }),
        Deleted::NotEmpty if is_last => Err(Error::ObjectsKeepArriving { bucket: bucket.name.to_owned(), removed }),
        Deleted::NotEmpty => Ok(false),
    }
}

async fn not_deleted(store: &Store, emptied: Emptied<'_>, undeleted: Undeleted) -> Error {
    let bucket = emptied.of;
    // A retry can help.
    if matches!(undeleted.code.as_str(), "InternalError" | "SlowDown" | "ServiceUnavailable") {
        let resource = Resource::bucket(bucket.name);
        return Error::StoreFailing { operation: Operation::DeleteObjects, resource, problem: undeleted.code };
    }
    let lock = locks::of(store, bucket, &undeleted.key, undeleted.version.as_deref()).await;
    let (bucket, Undeleted { key, code, count, .. }) = (bucket.name.to_owned(), undeleted);
    match lock {
        Some(Lock::Until { is_final: false, .. }) if emptied.bypasses_governance => {
            Error::ObjectsLocked { bucket, key, count, lock: Lock::BypassDenied }
        }
        Some(lock) => Error::ObjectsLocked { bucket, key, count, lock },
        None => Error::ObjectsNotDeleted { bucket, key, code, count },
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Deleted {
    Gone,
    NotEmpty,
}

async fn delete_bucket(store: &Store, bucket: BucketRef<'_>) -> Result<Deleted, CallError> {
    let send = || store.s3.delete_bucket().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).send();
    match store.call(Operation::DeleteBucket, Resource::bucket(bucket.name), send).await {
        Ok(_) => {
            store.freed(Operation::DeleteBucket);
            Ok(Deleted::Gone)
        }
        // Without this code, something before the store may have answered.
        Err(error) if error.code() == "NoSuchBucket" => Ok(Deleted::Gone),
        Err(error) if error.code() == "BucketNotEmpty" => Ok(Deleted::NotEmpty),
        Err(error) => Err(error),
    }
}
