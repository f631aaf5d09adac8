//! The bucket: creating it without ever taking over another one, and checking one that a class names.
//!
//! A bucket is the claim's own if its tags contain the claim's uid, or the uid of a claim whose record this claim
//! adopted. A bucket without tags is the claim's own if its generated name contains the uid, and it is in the same
//! account (or in a store other than AWS, where the names are not shared with strangers). CreateBucket itself sets the
//! tags, so the claim's bucket always has them. Stores and regions that refuse tags there get them in a second call. A
//! crash between the two calls leaves an empty bucket. If its name is generated, the next attempt finds it by this name. If
//! the claim chose the name, the bucket could be anybody's, so it is refused and never deleted.
//!
//! A uid in a tag can be copied, so a bucket of a chosen name that is older than the claim is not the claim's, whatever its
//! tags are. S3 is asked for its age only where a bucket is found to exist already.
//!
//! Every call about a created bucket names the account that must own it, if it is known: once a bucket is deleted,
//! anybody can create one with its name and its tags.

use std::time::{Duration, SystemTime};

use aws_sdk_s3::types::{Bucket, BucketLocationConstraint, CreateBucketConfiguration};

use crate::class::target::{BucketRef, Target};
use crate::class::values::ClaimedBucket;
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::{Error, TakenBy};
use crate::client::store::Store;
use crate::s3::tagging::{self, sdk_tags};
use crate::s3::tags::{self, Ownership, Tags, ownership};
use bucket_provisioner::store::Mode;
use bucket_provisioner::store::names::is_generated_for;

/// The region in which CreateBucket answers 200 for a bucket that the caller already owns.
const US_EAST_1: &str = "us-east-1";

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
        let generated = target.record.uids().any(|uid| is_generated_for(target.bucket(), uid));
        let only_ours = target.bucket_account().is_some() || target.endpoints.s3_is_foreign();
        if generated && only_ours { Self::Generated } else { Self::Chosen }
    }
}

/// Whether CreateBucket can succeed although the bucket exists.
pub(crate) fn answer_is_ambiguous(target: &Target<'_>) -> bool {
    target.endpoints.s3_is_foreign() || target.endpoints.region == US_EAST_1
}

/// What to do about a bucket that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Use,
    /// It is the claim's, but lacks its tags.
    TagAndUse,
    Refuse(TakenBy),
}

/// Decides about a bucket that existed before this call.
fn judge(ownership: Ownership, name: NameKind, age: Age) -> Verdict {
    match (ownership, name) {
        (Ownership::Ours | Ownership::PreviousClaim, NameKind::Chosen) if age == Age::Older => {
            Verdict::Refuse(TakenBy::Older)
        }
        (Ownership::Ours, _) => Verdict::Use,
        (Ownership::PreviousClaim, _) | (Ownership::Untagged, NameKind::Generated) => Verdict::TagAndUse,
        (Ownership::OtherClaim, _) => Verdict::Refuse(TakenBy::AnotherClaim),
        (Ownership::Untagged | Ownership::Foreign, _) => Verdict::Refuse(TakenBy::Unknown),
    }
}

/// Creates the bucket, or finds that an earlier call did.
pub(crate) async fn create(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    store.check_quota(Operation::CreateBucket, Resource::bucket(target.bucket()))?;
    match NameKind::of(target) {
        NameKind::Generated => create_generated(store, target, tags).await,
        NameKind::Chosen => create_chosen(store, target, tags).await,
    }
}

async fn create_generated(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    match create_tagged(store, target, tags).await {
        Ok(Created::Tagged) => Ok(()),
        Ok(Created::Untagged) => match tagging::replace(store, target, tags).await {
            // In a store without tags the name is proof enough.
            Err(error) if error.lacks_operation() && target.endpoints.s3_is_foreign() => Ok(()),
            result => Ok(result?),
        },
        Err(error) if error.code() == "BucketAlreadyOwnedByYou" => use_existing(store, target, tags).await,
        Err(error) => Err(Error::from(error).of_first_change()),
    }
}

async fn create_chosen(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    let ambiguous = answer_is_ambiguous(target);
    if ambiguous && let Some(found) = find_tags(store, target).await? {
        return use_found(store, target, tags, &found).await;
    }
    match create_tagged(store, target, tags).await {
        Ok(Created::Tagged) if !ambiguous => Ok(()),
        Ok(Created::Untagged) if !ambiguous => tag_new(store, target, tags).await,
        Ok(_) => confirm(store, target, tags).await,
        Err(error) if error.code() == "BucketAlreadyOwnedByYou" => use_existing(store, target, tags).await,
        Err(error) => Err(Error::from(error).of_first_change()),
    }
}

/// The tags of the bucket, if it exists.
async fn find_tags(store: &Store, target: &Target<'_>) -> Result<Option<Tags>, Error> {
    let bucket = || target.bucket().to_owned();
    match tagging::read(store, target.bucket_ref()).await {
        Ok(tags) => Ok(Some(tags)),
        Err(error) if error.code() == "NoSuchBucket" => Ok(None),
        Err(error) => Err(match Error::from(error) {
            Error::AccessDenied { .. } => Error::BucketTaken { bucket: bucket(), by: TakenBy::Unreadable },
            Error::WrongRegion { .. } => Error::BucketTaken { bucket: bucket(), by: TakenBy::Unknown },
            error => error,
        }
        .without_side_effects()),
    }
}

async fn use_existing(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    // If this fails, the bucket may be the claim's own from an earlier attempt, so the record must stay.
    let found = tagging::read(store, target.bucket_ref()).await.map_err(|error| match Error::from(error) {
        // The claim's own bucket is in the region of its class.
        Error::WrongRegion { .. } => {
            Error::BucketTaken { bucket: target.bucket().to_owned(), by: TakenBy::Unknown }.without_side_effects()
        }
        error => error,
    })?;
    use_found(store, target, tags, &found).await
}

async fn use_found(store: &Store, target: &Target<'_>, tags: &Tags, found: &Tags) -> Result<(), Error> {
    let (ownership, name) = (ownership(found, target.record), NameKind::of(target));
    let age = match name {
        NameKind::Chosen if ownership.is_proven() => age_of(store, target).await?,
        _ => Age::Unknown,
    };
    match judge(ownership, name, age) {
        Verdict::Use => Ok(()),
        Verdict::TagAndUse => Ok(tagging::add(store, target, found, tags).await?),
        Verdict::Refuse(by) => {
            Err(Error::BucketTaken { bucket: target.bucket().to_owned(), by }.without_side_effects())
        }
    }
}

/// Reads the tags back after CreateBucket: somebody else may have created the bucket just before, or the store may have
/// dropped the tags.
async fn confirm(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    let (bucket, is_foreign) = (target.bucket(), target.endpoints.s3_is_foreign());
    let read = async || Ok::<_, Error>(ownership(&tagging::read(store, target.bucket_ref()).await?, target.record));
    let mut found = read().await?;
    if found == Ownership::Untagged {
        // AWS keeps the tags of CreateBucket, but may not show them yet. So they are not written there: a bucket that
        // stays without tags is somebody else's, who created it just before.
        if is_foreign {
            match tagging::replace(store, target, tags).await {
                Err(error) if error.lacks_operation() => return Err(Error::TagsNotKept { bucket: bucket.to_owned() }),
                result => result?,
            }
        }
        found = read().await?;
    }
    let taken = |by| Err(Error::BucketTaken { bucket: bucket.to_owned(), by });
    match found {
        Ownership::Ours | Ownership::PreviousClaim => Ok(()),
        Ownership::Untagged if is_foreign => Err(Error::TagsNotKept { bucket: bucket.to_owned() }),
        Ownership::OtherClaim => taken(TakenBy::AnotherClaim),
        Ownership::Untagged | Ownership::Foreign => taken(TakenBy::Unknown),
    }
}

/// How CreateBucket went.
enum Created {
    Tagged,
    Untagged,
}

/// CreateBucket with tags, or without them where it refuses tags: in some stores, and in regions outside of the commercial
/// partition. Other calls in the same region begin without tags then.
async fn create_tagged(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<Created, CallError> {
    if !store.creates_without_tags() {
        match create_bucket(store, target, tags).await {
            Ok(()) => return Ok(Created::Tagged),
            Err(error) if !refuses_tags(&error, target) => return Err(error),
            Err(_refused) => {}
        }
    }
    create_bucket(store, target, &Tags::new()).await?;
    // So it was about the tags.
    store.note_refused_tags();
    Ok(Created::Untagged)
}

/// Whether an error can mean that the store does not support tags in CreateBucket. `UnsupportedArgument` is what AWS answers
/// in eusc-de-east-1 ("hashicorp/terraform-provider-aws", issues 45566 and 45784).
fn refuses_tags(error: &CallError, target: &Target<'_>) -> bool {
    // There nothing tells the bucket from one that somebody created just before.
    if target.endpoints.region == US_EAST_1 && !target.endpoints.s3_is_foreign() {
        return false;
    }
    let is_unclear = matches!(error.code(), "MalformedXML" | "InvalidArgument" | "InvalidRequest" | "InvalidTag");
    error.code() == "UnsupportedArgument" || error.lacks_operation() || is_unclear && target.endpoints.s3_is_foreign()
}

/// Tags a bucket that was just created with a chosen name. Without tags nothing would prove whose it is, so it is deleted if
/// it cannot be tagged.
async fn tag_new(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    let Err(error) = tagging::replace(store, target, tags).await else { return Ok(()) };
    let BucketRef { name, .. } = target.bucket_ref();
    let call = store.s3.delete_bucket().bucket(name).set_expected_bucket_owner(target.bucket_ref().account());
    let deleted = store.call(Operation::DeleteBucket, Resource::bucket(name), || call.clone().send()).await;
    let error = Error::from(error);
    Err(if deleted.is_ok() { error.without_side_effects() } else { error })
}

async fn create_bucket(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), CallError> {
    let region = target.endpoints.region.as_str();
    let configuration = CreateBucketConfiguration::builder()
        .set_location_constraint((region != US_EAST_1).then(|| BucketLocationConstraint::from(region)))
        .set_tags((!tags.is_empty()).then(|| sdk_tags(tags)))
        .build();
    // Some stores refuse an empty configuration.
    let configuration = (region != US_EAST_1 || !tags.is_empty()).then_some(configuration);
    let call = store.s3.create_bucket().bucket(target.bucket()).set_create_bucket_configuration(configuration);
    let created = store.call(Operation::CreateBucket, Resource::bucket(target.bucket()), || call.clone().send()).await;
    store.note_quota(Operation::CreateBucket, created.as_ref().err());
    created.map(drop)
}

/// Checks that the bucket exists in the recorded region, that the provisioning credentials can use it, and that it is
/// the right one. Writes only the missing tags of a bucket that was created for the claim. Returns a sentence about
/// what had been lost.
pub(crate) async fn check(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<Option<String>, Error> {
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

/// Somebody else may have taken the name of a bucket that was created for the claim.
async fn is_ours(store: &Store, target: &Target<'_>, wanted: &Tags) -> Result<Option<String>, Error> {
    let bucket = target.bucket();
    let found = match tagging::read(store, target.bucket_ref()).await.map_err(|error| not_usable(target, error)) {
        // Either a permission is missing, or the bucket is in another account.
        Err(error) if error.is_denied() && is_in_account(store, bucket).await? == Some(false) => {
            return Err(Error::BucketGone { bucket: bucket.to_owned() }.without_side_effects());
        }
        found => found?,
    };
    let (ownership, name) = (ownership(&found, target.record), NameKind::of(target));
    if !ownership.is_proven() && (name == NameKind::Chosen || matches!(ownership, Ownership::OtherClaim)) {
        let (bucket, uid) = (bucket.to_owned(), target.record.claim.uid.clone());
        // Whoever reads that a tag is missing may tag it.
        let is_older = matches!(age_of(store, target).await, Ok(Age::Older));
        let lost = if is_older { Error::NotTheClaims { bucket } } else { Error::OwnershipLost { bucket, uid } };
        return Err(lost.without_side_effects());
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
    Ok((!ownership.is_proven() && !never_had_any)
        .then(|| format!("bucket {bucket:?} had lost the tags of this claim; they were restored")))
}

/// The error about a bucket that should exist.
pub(crate) fn not_usable(target: &Target<'_>, error: impl Into<Error>) -> Error {
    match error.into() {
        Error::BucketNotFound { bucket, .. } => match target.record.plan.mode {
            Mode::Granted => Error::BucketMissing { bucket },
            Mode::Created => Error::BucketGone { bucket },
        },
        error => error,
    }
    .without_side_effects()
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
