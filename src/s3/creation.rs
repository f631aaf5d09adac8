//! Creating the bucket, without ever taking over another one.
//!
//! CreateBucket itself sets the tags, so the claim's bucket always has them. Stores and regions that refuse tags there get
//! them in a second call. A crash between the two calls leaves an empty bucket. If its name is generated, the next attempt
//! finds it by this name. If the claim chose the name, the bucket could be anybody's, so it is refused and never deleted.

use std::time::Duration;

use aws_sdk_s3::types::{BucketLocationConstraint, BucketNamespace, CreateBucketConfiguration, ObjectOwnership};
use tokio::time::sleep;

use crate::class::namespace;
use crate::class::target::{BucketRef, Target};
use crate::client::call::{CallError, Operation, Resource};
use crate::client::error::{Error, TakenBy};
use crate::client::store::Store;
use crate::s3::bucket::{Age, NameKind, US_EAST_1, age_of, answer_is_ambiguous};
use crate::s3::settings;
use crate::s3::tagging::{self, sdk_tags};
use crate::s3::tags::{Ownership, Tags, ownership};

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

/// How far the creation of a bucket came.
#[derive(Debug, Default)]
pub(crate) struct BucketSteps {
    /// It exists, and has its tags if it can have any.
    pub(crate) created: bool,
    /// It was created without tags, with a chosen name, so that nothing in the store shows whose it is.
    untagged: bool,
    /// How many settings are applied.
    pub(crate) settings: usize,
}

/// Creates the bucket, or finds that an earlier call did.
pub(crate) async fn create(
    store: &Store,
    target: &Target<'_>,
    tags: &Tags,
    steps: &mut BucketSteps,
) -> Result<(), Error> {
    in_namespace(target).map_err(Error::without_side_effects)?;
    store.check_quota(Operation::CreateBucket, Resource::bucket(target.bucket()))?;
    let answer = match NameKind::of(target) {
        _ if steps.untagged => tag_new(store, target, tags, steps).await,
        NameKind::Generated => create_generated(store, target, tags).await,
        NameKind::Chosen => create_chosen(store, target, tags, steps).await,
    };
    steps.created = answer.is_ok();
    answer
}

/// Whether the provisioning credentials belong to the account that the name of the bucket contains.
fn in_namespace(target: &Target<'_>) -> Result<(), Error> {
    let named = namespace::account_of(&target.record.plan.name_suffix);
    match (named, target.record.account.as_deref()) {
        (Some(named), Some(account)) if named != account => Err(Error::OtherNamespace { account: named.to_owned() }),
        _ => Ok(()),
    }
}

async fn create_generated(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), Error> {
    match create_tagged(store, target, tags).await {
        Ok(Created::Tagged) => Ok(()),
        Ok(Created::Untagged) => match tagging::replace(store, target, tags).await {
            // In a store without tags the name is proof enough.
            Err(error)
                if error.lacks_operation()
                    && target.endpoints.s3_is_foreign()
                    && settings::tags::of(&target.record.plan.settings).is_empty() =>
            {
                Ok(())
            }
            result => Ok(result?),
        },
        Err(error) if error.code() == "BucketAlreadyOwnedByYou" => use_existing(store, target, tags).await,
        Err(error) => Err(refused(target, error)),
    }
}

async fn create_chosen(store: &Store, target: &Target<'_>, tags: &Tags, steps: &mut BucketSteps) -> Result<(), Error> {
    let ambiguous = answer_is_ambiguous(target);
    if ambiguous && let Some(found) = find_tags(store, target).await? {
        return use_found(store, target, tags, &found).await;
    }
    match create_tagged(store, target, tags).await {
        Ok(Created::Tagged) if !ambiguous => Ok(()),
        Ok(Created::Untagged) if !ambiguous => tag_new(store, target, tags, steps).await,
        Ok(_) => confirm(store, target, tags).await,
        Err(error) if error.code() == "BucketAlreadyOwnedByYou" => use_existing(store, target, tags).await,
        Err(error) => Err(refused(target, error)),
    }
}

/// The error of a CreateBucket that was refused. Other stores may have no account-regional buckets, and refuse the form of
/// their names.
fn refused(target: &Target<'_>, error: CallError) -> Error {
    let is_regional = !target.record.plan.name_suffix.is_empty();
    let error = match error.code() {
        code @ "InvalidBucketName" if is_regional && target.endpoints.s3_is_foreign() => {
            let (code, message) = (code.to_owned(), error.message().map(str::to_owned));
            Error::NamespacesUnknown { bucket: target.bucket().to_owned(), code, message }
        }
        _ => Error::from(error),
    };
    error.of_first_change()
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

/// How often a new bucket is tagged once more if S3 does not show it to all calls yet, and the pause.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// Tags a bucket that was just created with a chosen name. Without tags nothing would prove whose it is, so it is deleted if
/// it cannot be tagged. If it cannot be deleted either, this process remembers that it is the claim's.
async fn tag_new(store: &Store, target: &Target<'_>, tags: &Tags, steps: &mut BucketSteps) -> Result<(), Error> {
    steps.untagged = true;
    let mut tries = 1..TRIES;
    let error = loop {
        match tagging::replace(store, target, tags).await {
            Ok(()) => return Ok(()),
            Err(error) if is_new(&error) && tries.next().is_some() => sleep(PAUSE).await,
            Err(error) => break error,
        }
    };
    let BucketRef { name, .. } = target.bucket_ref();
    let call = store.s3.delete_bucket().bucket(name).set_expected_bucket_owner(target.bucket_ref().account());
    let deleted = store.call(Operation::DeleteBucket, Resource::bucket(name), || call.clone().send()).await;
    steps.untagged = deleted.is_err();
    let error = Error::from(error);
    Err(if deleted.is_ok() { error.without_side_effects() } else { error })
}

/// Whether S3 does not show a bucket yet ("hashicorp/terraform-provider-aws", issue 12907).
fn is_new(error: &CallError) -> bool {
    matches!(error.code(), "NoSuchBucket" | "OperationAborted")
}

async fn create_bucket(store: &Store, target: &Target<'_>, tags: &Tags) -> Result<(), CallError> {
    if let Some(set) = settings::object_ownership(target) {
        return create_bucket_with(store, target, tags, Some(set)).await;
    }
    if target.endpoints.s3_is_foreign() {
        return create_bucket_with(store, target, tags, None).await;
    }
    // Organizations may demand that a new bucket names it; earlier provisioning policies do not allow that. What worked last
    // is tried first.
    let enforced = || Some(ObjectOwnership::BucketOwnerEnforced);
    let names_it = !store.creates_without_ownership();
    match create_bucket_with(store, target, tags, enforced().filter(|_| names_it)).await {
        Err(error) if error.code() == "AccessDenied" && may_be_about_ownership(&error) => {
            create_bucket_with(store, target, tags, enforced().filter(|_| !names_it)).await?;
            store.note_ownership(!names_it);
            Ok(())
        }
        answer => answer,
    }
}

/// AWS may name the action that it denied.
fn may_be_about_ownership(error: &CallError) -> bool {
    let named = error.message().filter(|message| message.contains("s3:") && !message.contains("explicit deny"));
    named.is_none_or(|message| message.contains("s3:PutBucketOwnershipControls"))
}

async fn create_bucket_with(
    store: &Store,
    target: &Target<'_>,
    tags: &Tags,
    ownership: Option<ObjectOwnership>,
) -> Result<(), CallError> {
    let region = target.endpoints.region.as_str();
    let configuration = CreateBucketConfiguration::builder()
        .set_location_constraint((region != US_EAST_1).then(|| BucketLocationConstraint::from(region)))
        .set_tags((!tags.is_empty()).then(|| sdk_tags(tags)))
        .build();
    // Some stores refuse an empty configuration.
    let configuration = (region != US_EAST_1 || !tags.is_empty()).then_some(configuration);
    let call = store.s3.create_bucket().bucket(target.bucket()).set_create_bucket_configuration(configuration);
    let call = call.set_object_ownership(ownership);
    let is_regional = !target.record.plan.name_suffix.is_empty();
    let call = call.set_bucket_namespace(is_regional.then_some(BucketNamespace::AccountRegional));
    let call = call.set_object_lock_enabled_for_bucket(settings::locks_objects(target).then_some(true));
    let created = store.call(Operation::CreateBucket, Resource::bucket(target.bucket()), || call.clone().send()).await;
    store.note_quota(Operation::CreateBucket, created.as_ref().err());
    created.map(drop)
}
