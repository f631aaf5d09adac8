//! What keeps an object of a bucket from being deleted.

use std::time::SystemTime;

use aws_sdk_s3::types::{ObjectLockEventHold, ObjectLockLegalHoldStatus, ObjectLockRetentionMode};

use crate::class::target::BucketRef;
use crate::client::call::{Operation, Resource};
use crate::client::lock::Lock;
use crate::client::store::Store;

/// What keeps an object; `None` if nothing does, or the provisioning credentials may not read it.
pub(crate) async fn of(store: &Store, bucket: BucketRef<'_>, key: &str, version: Option<&str>) -> Option<Lock> {
    let resource = || Resource::bucket(bucket.name);
    let hold = store.s3.get_object_legal_hold().bucket(bucket.name).key(key).set_version_id(version.map(str::to_owned));
    let hold = hold.set_expected_bucket_owner(bucket.account());
    let retention = store.s3.get_object_retention().bucket(bucket.name).key(key);
    let retention = retention.set_version_id(version.map(str::to_owned)).set_expected_bucket_owner(bucket.account());
    let (hold, retention) = tokio::join!(
        store.call(Operation::GetObjectLegalHold, resource(), || hold.clone().send()),
        store.call(Operation::GetObjectRetention, resource(), || retention.clone().send()),
    );
    let hold = hold.ok().and_then(|answer| answer.legal_hold?.status);
    if hold == Some(ObjectLockLegalHoldStatus::On) {
        return Some(Lock::LegalHold);
    }
    let retention = retention.ok()?.retention?;
    if retention.event_hold == Some(ObjectLockEventHold::On) {
        return Some(Lock::EventHold);
    }
    let (at, is_final) = (retention.retain_until_date?, retention.mode == Some(ObjectLockRetentionMode::Compliance));
    let is_over = SystemTime::try_from(at).is_ok_and(|at| at <= SystemTime::now());
    (!is_over).then_some(Lock::Until { at, is_final })
}
