//! The bucket: whose it is, and checking one that exists.
//!
//! A bucket is the claim's own if its tags contain the claim's uid, or the uid of a claim whose record this claim
//! adopted. A bucket without tags is the claim's own if its generated name contains the uid, and it is in the same
//! account (or in a store other than AWS, where the names are not shared with strangers).
//!
//! A uid in a tag can be copied, so a bucket of a chosen name that is older than the claim is not the claim's, whatever its
//! tags are. S3 is asked for its age only where a bucket is found to exist already.
//!
//! Every call about a created bucket names the account that must own it, if it is known: once a bucket is deleted,
//! anybody can create one with its name and its tags.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::types::Bucket;

use crate::class::target::Target;
use crate::class::values::ClaimedBucket;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::Error;
use crate::client::store::Store;
use crate::s3::tags::{self, Ownership, Tags, ownership};
use crate::s3::{settings, tagging};
use bucket_provisioner::store::names::is_bucket_for;
use bucket_provisioner::store::{Mode, SharedFrom};

/// The region in which CreateBucket answers 200 for a bucket that the caller already owns.
pub(crate) const US_EAST_1: &str = "us-east-1";

/// How many buckets are listed in one answer. S3 refuses lists without a limit in accounts with a quota of more than 10,000
/// buckets (ListBuckets, Amazon S3 API reference).
pub(crate) const PAGE: i32 = 1000;

/// Where the name of a created bucket comes from, and so what it proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    /// It contains the claim's uid, and nobody else can have created a bucket with this name here.
    Generated,
    /// It proves nothing: anybody can have created a bucket with this name before, or after the claim's own was
    /// deleted.
    Chosen,
}

impl NameKind {
    pub(crate) fn of(target: &Target<'_>) -> Self {
        let suffix = &target.record.plan.name_suffix;
        let generated = target.record.bucket_uids().into_iter().any(|uid| is_bucket_for(target.bucket(), suffix, uid));
        let only_ours = target.bucket_account().is_some() || target.endpoints.s3_is_foreign();
        if generated && only_ours { Self::Generated } else { Self::Chosen }
    }
}

/// Whether CreateBucket can succeed although the bucket exists.
pub(crate) fn answer_is_ambiguous(target: &Target<'_>) -> bool {
    target.endpoints.s3_is_foreign() || target.endpoints.region == US_EAST_1
}

/// Checks that the bucket exists in the recorded region, that the provisioning credentials can use it, and that it is
/// the right one. Writes only the missing tags of a bucket that was created for the claim. Returns a sentence about
/// what had been lost.
pub(crate) async fn check(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<Option<String>, Error> {
    if let Some(from) = &target.record.plan.shared_from {
        return is_creators(store, target, from).await.map(|()| None);
    }
    match target.record.plan.mode {
        Mode::Granted if target.record.credentials_published || target.claimed_bucket == ClaimedBucket::Allowed => {
            exists(store, target).await.map(|()| None)
        }
        Mode::Granted => is_unclaimed(store, target).await.map(|()| None),
        // The Go provisioner tagged nothing.
        Mode::Created if target.go_policy.is_some() => exists(store, target).await.map(|()| None),
        Mode::Created => is_ours(store, target, tags).await,
    }
}

/// HeadBucket needs the same permission, but its answer has no body, so it does not show why it failed.
async fn exists(store: &Store, target: &Target<'_>) -> Result<(), Error> {
    let bucket = target.bucket_ref();
    let call = store.s3.list_objects_v2().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).max_keys(1);
    match store.call(Operation::ListObjectsV2, Resource::bucket(bucket.name), || call.clone().send()).await {
        Ok(_) => Ok(()),
        Err(error) => Err(not_usable(target, error)),
    }
}

/// A tenant may have created the bucket that the class names before the admin did.
async fn is_unclaimed(store: &Store, target: &Target<'_>) -> Result<(), Error> {
    let found = tagging::read(store, target.bucket_ref()).await.map_err(|error| not_usable(target, error))?;
    match ownership(&found, target.record) {
        Ownership::OtherClaim => {
            Err(Error::BucketClaimed { bucket: target.bucket().to_owned() }.without_side_effects())
        }
        Ownership::Ours | Ownership::PreviousClaim | Ownership::Untagged | Ownership::Foreign => Ok(()),
    }
}

/// Somebody else may have taken the name of a bucket that was created for another claim.
async fn is_creators(store: &Store, target: &Target<'_>, from: &SharedFrom) -> Result<(), Error> {
    let found = tags_of(store, target).await?;
    let is_creators = match tags::value(&found, tags::CLAIM_UID) {
        Some(uid) => target.record.bucket_uids().contains(&uid),
        // Some stores keep no tags.
        None => target.endpoints.s3_is_foreign() && NameKind::of(target) == NameKind::Generated,
    };
    if is_creators {
        return Ok(());
    }
    let lost = Error::SharedBucketLost { bucket: target.bucket().to_owned(), claim: from.name.clone() };
    Err(lost.without_side_effects())
}

/// The tags of a bucket that was created for this claim, or for another one.
async fn tags_of(store: &Store, target: &Target<'_>) -> Result<Tags, Error> {
    match tagging::read(store, target.bucket_ref()).await.map_err(|error| not_usable(target, error)) {
        // Either a permission is missing, or the bucket is in another account.
        Err(error) if error.is_denied() && is_in_account(store, target.bucket()).await? == Some(false) => {
            Err(gone(target).without_side_effects())
        }
        found => found,
    }
}

/// Somebody else may have taken the name of a bucket that was created for the claim.
async fn is_ours(store: &Store, target: &Target<'_>, wanted: &Tags) -> Result<Option<String>, Error> {
    let bucket = target.bucket();
    let found = tags_of(store, target).await?;
    let (ownership, name) = (ownership(&found, target.record), NameKind::of(target));
    if !ownership.is_proven() && (name == NameKind::Chosen || matches!(ownership, Ownership::OtherClaim)) {
        let (bucket, uid) = (bucket.to_owned(), target.record.claim.uid.clone());
        // Whoever reads that a tag is missing may tag it.
        let is_older = matches!(age_of(store, target).await, Ok(Age::Older));
        let lost = if is_older { Error::NotTheClaims { bucket } } else { Error::OwnershipLost { bucket, uid } };
        return Err(lost.without_side_effects());
    }
    let settings = &target.record.plan.settings;
    if let Some(left) = tags::without(&found, &settings::tags::released(settings)) {
        tagging::replace(store, target, &tags::completed(&left, wanted).unwrap_or(left)).await?;
        return Ok(None);
    }
    if tags::completed(&found, wanted).is_none() {
        return Ok(None);
    }
    match tagging::add(store, target, &found, wanted).await {
        // A store without tags.
        Err(error) if error.lacks_operation() && target.endpoints.s3_is_foreign() => return Ok(None),
        result => result?,
    }
    // Not reported: tags that change with an adoption or a new version, and tags that the store dropped in
    // CreateBucket.
    let never_had_any = ownership == Ownership::Untagged && target.endpoints.s3_is_foreign();
    if !ownership.is_proven() && !never_had_any {
        return Ok(Some(format!("bucket {bucket:?} had lost the tags of this claim; they were restored")));
    }
    let has_lost_some = settings::tags::of(settings).iter().any(|tag| !found.contains(tag));
    Ok((has_lost_some && !never_had_any && !target.record.plan.changes.settings).then(|| {
        format!(
            "tags of bucket {bucket:?} that class or claim set were missing or had been changed; they were restored"
        )
    }))
}

/// The error about a bucket that should exist.
pub(crate) fn not_usable(target: &Target<'_>, error: impl Into<Error>) -> Error {
    match error.into() {
        Error::BucketNotFound { .. } => gone(target),
        error => error,
    }
    .without_side_effects()
}

fn gone(target: &Target<'_>) -> Error {
    let bucket = target.bucket().to_owned();
    match (&target.record.plan.shared_from, target.record.plan.mode) {
        (Some(from), _) => Error::SharedBucketGone { bucket, claim: from.name.clone() },
        (None, Mode::Granted) => Error::BucketMissing { bucket },
        (None, Mode::Created) => Error::BucketGone { bucket },
    }
}

/// How old a bucket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// It was created before the claim.
    Older,
    /// It was created after the claim.
    Younger,
    /// The store or the record does not have it.
    Unknown,
}

/// How much the clocks of the cluster and of the store may differ.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Whether a bucket is older than the claim for which it should have been created.
///
/// S3 may show a later date than that of the creation ("CreationDate", Amazon S3 API reference: it can change with the
/// bucket's policy), never an earlier one.
///
/// # Errors
/// The provisioning credentials may not list buckets, or the store refused otherwise.
pub(crate) async fn age_of(store: &Store, target: &Target<'_>) -> Result<Age, Error> {
    let Some(claim) = target.record.claim_created_at else { return Ok(Age::Unknown) };
    let found = match list_named(store, target.bucket()).await.map_err(Error::from) {
        Err(Error::NotSupported { .. }) => return Ok(Age::Unknown),
        Err(Error::AccessDenied { .. }) if target.endpoints.s3_is_foreign() => return Ok(Age::Unknown),
        found => found?,
    };
    let created = found.and_then(|found| found.creation_date).and_then(|at| SystemTime::try_from(at).ok());
    Ok(match created {
        // Stores without dates answer 1970.
        Some(created) if created <= SystemTime::UNIX_EPOCH => Age::Unknown,
        Some(created) if created + CLOCK_SKEW < claim => Age::Older,
        Some(_) => Age::Younger,
        None => Age::Unknown,
    })
}

/// Whether the account of the provisioning credentials has a bucket with this name; `None` if they may not list
/// buckets.
pub(crate) async fn is_in_account(store: &Store, bucket: &str) -> Result<Option<bool>, Error> {
    match list_named(store, bucket).await.map_err(Error::from) {
        Ok(found) => Ok(Some(found.is_some())),
        Err(Error::AccessDenied { .. } | Error::NotSupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bucket of this name in the account of the provisioning credentials.
async fn list_named(store: &Store, bucket: &str) -> Result<Option<Bucket>, CallError> {
    let list = || {
        let pages = store.listing_s3.list_buckets().prefix(bucket).into_paginator().page_size(PAGE);
        pages.items().send().collect::<Result<Vec<_>, _>>()
    };
    let buckets = store.call(Operation::ListBuckets, Resource::bucket(bucket), list).await?;
    Ok(buckets.into_iter().find(|found| found.name() == Some(bucket)))
}
