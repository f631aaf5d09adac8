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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::s3::settings::SETTINGS;
    use crate::s3::settings::table::{
        ABORT_UPLOADS, ACCESS_LOGS, BYPASS_GOVERNANCE, CORS, ENCRYPTION, EVENT_BRIDGE, EXPIRE, EXPIRE_NONCURRENT,
        KMS_KEY, LIFECYCLE, OBJECT_LOCK, OBJECT_OWNERSHIP, PUBLIC_ACCESS, REQUIRE_TLS, VERSIONING,
    };
    use crate::s3::settings::tags;
    use crate::s3::settings::wanted::{Set, Wanted};
    use crate::testing::{Answer, Stage, bare, elsewhere, ok, record, s3_error};
    use bucket_provisioner::store::{Failure as _, FailureClass, Record};

    const RULES: &str = r#"{"CORSRules":[{"AllowedMethods":["GET"],"AllowedOrigins":["https://example.com"]}]}"#;

    /// A class parameter with a value, the calls that read and write its sub-resource, and what the first one answers where
    /// nothing is set.
    type Row = (&'static str, &'static str, &'static str, &'static str, Answer);

    /// All that have calls of their own, in the order in which they are applied.
    fn all() -> [Row; 10] {
        let none = |code| s3_error(404, code);
        let empty = |name: &str| ok(format!("<{name}></{name}>"));
        [
            (
                OBJECT_OWNERSHIP,
                "ObjectWriter",
                "GetBucketOwnershipControls",
                "PutBucketOwnershipControls",
                none("OwnershipControlsNotFoundError"),
            ),
            (
                ENCRYPTION,
                "AES256",
                "GetBucketEncryption",
                "PutBucketEncryption",
                none("ServerSideEncryptionConfigurationNotFoundError"),
            ),
            (VERSIONING, "Enabled", "GetBucketVersioning", "PutBucketVersioning", empty("VersioningConfiguration")),
            (
                OBJECT_LOCK,
                "GOVERNANCE:1d",
                "GetObjectLockConfiguration",
                "PutObjectLockConfiguration",
                none("ObjectLockConfigurationNotFoundError"),
            ),
            (
                EXPIRE,
                "30d",
                "GetBucketLifecycleConfiguration",
                "PutBucketLifecycleConfiguration",
                none("NoSuchLifecycleConfiguration"),
            ),
            (
                PUBLIC_ACCESS,
                "blocked",
                "GetPublicAccessBlock",
                "PutPublicAccessBlock",
                none("NoSuchPublicAccessBlockConfiguration"),
            ),
            (CORS, RULES, "GetBucketCors", "PutBucketCors", none("NoSuchCORSConfiguration")),
            (
                EVENT_BRIDGE,
                "true",
                "GetBucketNotificationConfiguration",
                "PutBucketNotificationConfiguration",
                empty("NotificationConfiguration"),
            ),
            (ACCESS_LOGS, "logs/photos/", "GetBucketLogging", "PutBucketLogging", empty("BucketLoggingStatus")),
            (REQUIRE_TLS, "true", "GetBucketPolicy", "PutBucketPolicy", none("NoSuchBucketPolicy")),
        ]
    }

    /// What stores answer to a sub-resource that they do not know. Some take the call for CreateBucket.
    fn refusals() -> [Answer; 8] {
        [
            s3_error(501, "NotImplemented"),
            s3_error(400, "NotImplemented"),
            s3_error(405, "MethodNotAllowed"),
            bare(405),
            bare(501),
            s3_error(400, "IllegalLocationConstraintException"),
            s3_error(409, "BucketAlreadyExists"),
            s3_error(409, "BucketAlreadyOwnedByYou"),
        ]
    }

    fn set(record: Record, settings: &[(&str, &str)]) -> Record {
        let mut record = elsewhere(record);
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        record.plan.settings.of_class = settings.collect();
        record
    }

    /// Creates a bucket with one setting, with these answers to the calls about it.
    async fn refused(row: &Row, answers: Vec<(&'static str, Answer)>) -> (String, Vec<String>) {
        let (key, value, ..) = *row;
        let stage = Stage::answering([("CreateBucket", bare(200))].into_iter().chain(answers));
        let refused = stage.provision(&set(record(), &[(key, value)])).await.unwrap_err();
        assert_eq!((refused.reason(), refused.class()), ("NotSupported", FailureClass::Terminal), "{key}: {refused}");
        assert!(!refused.changed_nothing, "{key}: the bucket exists, so the ObjectBucket stays");
        (refused.to_string(), stage.calls())
    }

    /// So that a new one gets its row.
    #[test]
    fn every_sub_resource_is_in_the_table() {
        let rows = all();
        let settings: Vec<_> = rows.iter().map(|(key, value, ..)| (*key, *value)).collect();
        let Wanted(wanted) = Wanted::of(&set(record(), &settings).plan).unwrap();
        let operations = wanted.iter().map(Set::operations).map(|all| all.map(|operation| operation.to_string()));
        let listed = rows.iter().map(|(_, _, read, write, _)| [(*read).to_owned(), (*write).to_owned()]);
        assert_eq!(operations.collect::<Vec<_>>(), listed.collect::<Vec<_>>());
        // These have no calls of their own, or share those of a row.
        let others =
            [tags::TAGS, tags::FAMILY, KMS_KEY, EXPIRE_NONCURRENT, ABORT_UPLOADS, LIFECYCLE, BYPASS_GOVERNANCE];
        let is_listed = |name: &str| rows.iter().any(|(key, ..)| *key == name) || others.contains(&name);
        let left: Vec<_> = SETTINGS.iter().map(|setting| setting.name).filter(|name| !is_listed(name)).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[tokio::test]
    async fn a_store_that_cannot_write_one_does_not_support_it() {
        for row in &all() {
            let (_, _, read, write, none) = row;
            for refusal in refusals() {
                let (message, _) = refused(row, vec![(*read, none.clone()), (*write, refusal.clone())]).await;
                assert!(message.contains(&format!("does not support {write} on bucket")), "{refusal:?}: {message}");
            }
        }
    }

    /// Before it is written, where others share it; otherwise after that.
    #[tokio::test]
    async fn a_store_that_cannot_read_one_does_not_support_it() {
        for row in &all() {
            let (_, _, read, write, _) = row;
            for refusal in refusals() {
                let (message, _) = refused(row, vec![(*write, bare(200)), (*read, refusal.clone())]).await;
                assert!(message.contains(&format!("does not support {read} on bucket")), "{refusal:?}: {message}");
            }
        }
    }

    #[tokio::test]
    async fn a_store_that_does_not_keep_one_does_not_support_it() {
        for row in &all() {
            let (_, _, read, write, none) = row;
            let answers = vec![(*read, none.clone()), (*write, bare(200)), (*read, none.clone())];
            let (message, calls) = refused(row, answers).await;
            assert!(message.contains(&format!("does not support {write} on bucket")), "{message}");
            assert_eq!(calls.last().map(String::as_str), Some(*read), "it is read after it was written");
        }
    }
}
