//! Settings of buckets: which there are, how they are applied to a new bucket, and how they are repaired.
//!
//! S3 refuses changes of one bucket at the same time (`OperationAborted`), so they are applied one after the other, before the
//! app's keys exist. Only what is set is read and compared.

mod access_logs;
mod cors;
mod encryption;
mod event_bridge;
mod lifecycle;
mod object_lock;
mod ownership;
mod public_access;
mod rule;
mod sub_resource;
mod table;
pub(crate) mod tags;
mod transport;
mod versioning;
mod wanted;

use aws_sdk_s3::types::ObjectOwnership;

use self::cors::Cors;
use self::lifecycle::Lifecycle;
use self::object_lock::ObjectLock;
use self::ownership::Ownership;
use self::sub_resource::{NOT_KEPT, SubResource};
pub(crate) use self::table::SETTINGS;
use self::table::{BYPASS_GOVERNANCE, CORS, OBJECT_LOCK, VERSIONING};
use self::versioning::Versioning;
use self::wanted::{LIFECYCLES, Set};
pub(crate) use self::wanted::{Wanted, kms_key};
use crate::class::target::Target;
use crate::client::call::{Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::s3::tagging;
use crate::s3::tags::{Tags, completed};
use bucket_provisioner::store::{Checkup, Mode, Settings};

/// The ownership of objects that CreateBucket names.
pub(crate) fn object_ownership(target: &Target<'_>) -> Option<ObjectOwnership> {
    Wanted::of_target(target).unwrap_or_default().0.into_iter().find_map(|set| match set {
        Set::Ownership(Ownership(ownership)) => Some(ownership),
        _ => None,
    })
}

/// Whether CreateBucket is to let objects be locked.
pub(crate) fn locks_objects(target: &Target<'_>) -> bool {
    Wanted::of_target(target).unwrap_or_default().0.iter().any(|set| matches!(set, Set::ObjectLock(_)))
}

/// Whether objects that are locked in the mode `GOVERNANCE` are to be deleted with the bucket.
pub(crate) fn may_bypass(target: &Target<'_>) -> bool {
    target.record.plan.settings.get(BYPASS_GOVERNANCE) == Some("yes")
}

/// The same of a bucket that has an object lock: S3 refuses to bypass what is not there.
///
/// # Errors
/// Any refusal of the store.
pub(crate) async fn bypasses_governance(store: &Store, target: &Target<'_>) -> Result<bool, Error> {
    Ok(may_bypass(target) && ObjectLock::read(store, target.bucket_ref()).await?.is_some())
}

/// The operations with which the settings of a class are read and written, and those that its claims may set.
pub(crate) fn needs(target: &Target<'_>) -> Vec<Operation> {
    let may_set = &target.record.plan.settings.claims_may_set;
    let versioning = may_set.contains(VERSIONING).then_some([Versioning::READ, Versioning::WRITE]);
    let lifecycle = LIFECYCLES.iter().any(|key| may_set.contains(key)).then_some([Lifecycle::READ, Lifecycle::WRITE]);
    let cors = may_set.contains(CORS).then_some([Cors::READ, Cors::WRITE]);
    let lock = may_set.contains(OBJECT_LOCK).then_some([ObjectLock::READ, ObjectLock::WRITE]);
    let Wanted(all) = Wanted::of_target(target).unwrap_or_default();
    let mut needs: Vec<_> =
        all.iter().map(Set::operations).chain(versioning).chain(lifecycle).chain(cors).chain(lock).flatten().collect();
    if needs.contains(&ObjectLock::WRITE) {
        // CreateBucket needs it for an object lock ("CreateBucket", Amazon S3 API reference).
        needs.push(Versioning::WRITE);
        needs.extend([Operation::GetObjectRetention, Operation::GetObjectLegalHold]);
    }
    if may_bypass(target) && target.record.plan.mode == Mode::Created {
        // They are read when the bucket is emptied, whoever locked its objects.
        needs.extend([ObjectLock::READ, Operation::GetObjectRetention, Operation::GetObjectLegalHold]);
    }
    needs
}

/// Whether claims may set tags, which a user may lose again.
pub(crate) fn claims_may_tag(target: &Target<'_>) -> bool {
    let may_set = &target.record.plan.settings.claims_may_set;
    // Also if only one is allowed.
    may_set.to_string().split(", ").any(|key| key.starts_with(tags::FAMILY))
}

/// Whether a new bucket needs more calls than CreateBucket.
pub(crate) fn need_calls(target: &Target<'_>) -> bool {
    let wanted = Wanted::of_target(target);
    wanted.map_or(true, |Wanted(all)| all.iter().any(|set| is_applied(set, target))) || must_keep_tags(target)
}

/// CreateBucket of AWS has set the ownership, and has let objects be locked.
fn is_applied(set: &Set, target: &Target<'_>) -> bool {
    target.endpoints.s3_is_foreign()
        || match set {
            Set::Ownership(_) => false,
            Set::ObjectLock(lock) => !lock.is_only_enabled(),
            _ => true,
        }
}

/// Other stores may drop the tags of CreateBucket.
fn must_keep_tags(target: &Target<'_>) -> bool {
    target.endpoints.s3_is_foreign() && !tags::of(&target.record.plan.settings).is_empty()
}

/// Sets what is set for a new bucket. `applied`: how much of it earlier calls have.
pub(crate) async fn apply(store: &Store, target: &Target<'_>, tags: &Tags, applied: &mut usize) -> Result<(), Error> {
    let Wanted(all) = Wanted::of_target(target)?;
    if *applied == 0 && must_keep_tags(target) {
        keep_tags(store, target, tags).await?;
    }
    for set in all.iter().filter(|set| is_applied(set, target)).skip(*applied) {
        set.put(store, target).await?;
        *applied += 1;
    }
    Ok(())
}

/// Writes all tags of a bucket if the store has dropped them.
async fn keep_tags(store: &Store, target: &Target<'_>, wanted: &Tags) -> Result<(), Error> {
    let bucket = target.bucket_ref();
    let found = tagging::read(store, bucket).await?;
    let Some(all) = completed(&found, wanted) else { return Ok(()) };
    tagging::replace(store, target, &all).await?;
    if completed(&tagging::read(store, bucket).await?, wanted).is_none() {
        return Ok(());
    }
    let (operation, resource) = (Operation::PutBucketTagging, Resource::bucket(bucket.name));
    Err(Error::NotSupported { operation, resource, code: NOT_KEPT.to_owned(), message: None })
}

/// Compares the bucket of a bound claim with what is set, and repairs it; or applies what was changed. Tags aside. One that fails
/// does not keep the others from being tried.
pub(crate) async fn check(store: &Store, target: &Target<'_>, mut checkup: Checkup) -> Checkup {
    let Wanted(all) = match Wanted::of_target(target) {
        Ok(wanted) => wanted,
        Err(error) => return checkup.with_problem(&error, true),
    };
    let (mut of_change, mut of_others, is_changed) = (None, None, target.record.plan.changes.settings);
    for set in &all {
        let is_of_change = is_changed && set.keys().iter().any(|key| is_of_claims(key));
        // Reading first could show what it was before an earlier change.
        let answer = match set {
            Set::ObjectLock(lock) if is_of_change => {
                let kept = lock.edit(store, target).await.map_err(|error| set.refused(target, error));
                kept.map(|kept| {
                    checkup.kept.extend(kept);
                    None
                })
            }
            set if is_of_change => set.put(store, target).await.map(|()| None),
            set => set.repair(store, target).await,
        };
        match answer {
            Ok(repaired) => checkup.repaired.extend(repaired),
            Err(error) if is_of_change => of_change = of_change.or(Some(error)),
            Err(error) => of_others = of_others.or(Some(error)),
        }
    }
    let Settings { released, .. } = &target.record.plan.settings;
    let has_lifecycle = all.iter().any(|set| matches!(set, Set::Lifecycle(_)));
    if !has_lifecycle && LIFECYCLES.iter().any(|key| released.contains(*key)) {
        let deleted = lifecycle::delete(store, target.bucket_ref()).await;
        of_change = of_change.or(deleted.err().map(Error::from));
    }
    let has_cors = all.iter().any(|set| matches!(set, Set::Cors(_)));
    if !has_cors && released.contains(CORS) {
        let deleted = cors::delete(store, target.bucket_ref()).await;
        of_change = of_change.or(deleted.err().map(Error::from));
    }
    if released.contains(OBJECT_LOCK) {
        checkup.kept.push(format!(
            "the claim no longer sets {OBJECT_LOCK}; the object lock of bucket {:?} stays, because it cannot be removed",
            target.bucket()
        ));
    }
    if released.contains(VERSIONING) {
        checkup.kept.push(format!(
            "the claim no longer sets {VERSIONING}; the versioning of bucket {:?} stays as it is, and is no longer managed",
            target.bucket()
        ));
    }
    match (of_change, of_others) {
        (Some(error), _) => checkup.with_problem(&error, true),
        (None, Some(error)) => checkup.with_problem(&error, false),
        (None, None) => checkup,
    }
}

fn is_of_claims(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == key && setting.is_of_claims)
}
