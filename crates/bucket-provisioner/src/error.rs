//! Why a reconcile stopped: one variant for each reason that a user reads. Those of claims that are refused before the store
//! is called are in `refusal.rs`.

use std::time::Duration;

use super::reasons;
use super::refusal::Refusal;
use crate::api::{object_name, wire};
use crate::store::{Failure, FailureClass, SecretRef};
use operator_runtime::kubernetes::answers::{describe, is_replaced, status_code};

/// Why a reconcile stopped. `Display` is the message on the claim: what is wrong, then the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "StorageClass {class:?} does not exist{}: correct spec.storageClassName, or ask an admin for the class", no_such_name(.class)
    )]
    StorageClassNotFound { class: String },

    #[error(
        "spec.additionalConfig.bucketClaimName: ObjectBucketClaim {name:?} {problem}; this claim continues when that one is Bound: {remedy}"
    )]
    BucketClaimNotFound { name: String, problem: &'static str, remedy: &'static str },

    #[error(transparent)]
    Refused(#[from] Refusal),

    #[error("the claim cannot be read: {error}; correct spec, or delete the claim and create it again")]
    ClaimUnreadable { error: String },

    #[error(
        "Secret {0} with the provisioning credentials does not exist; create it, or recreate the StorageClass with another secretName and secretNamespace"
    )]
    OwnerSecretNotFound(SecretRef),

    #[error(
        "Secret {secret} with the provisioning credentials does not exist; restore it, because bucket {bucket:?} and its user cannot be deleted without it"
    )]
    OwnerSecretNeeded { secret: SecretRef, bucket: String },

    #[error(
        "ServiceAccount {name:?} does not exist in the claim's namespace; this claim continues when it does: create it, or correct spec.additionalConfig.serviceAccountName"
    )]
    ServiceAccountNotFound { name: String },

    #[error(
        "the claim keeps its previous access, because the operator cannot try the new one: it may not request a token of the claim's ServiceAccount ({answer}); grant it create on serviceaccounts/token, as the command `rbac --keyless` prints it"
    )]
    NotTried { answer: String },

    #[error("the store keeps refusing the claim's keys ({answer}); {remedy}")]
    CredentialsUnusable { answer: String, remedy: &'static str },

    #[error(
        "access key {key} of the claim's user is inactive: it was deactivated at the store, not by the operator. For a new key, change the claim's annotation {}; or activate the key at the store, and change the annotation {}",
        wire::annotation::ROTATE_KEYS,
        wire::annotation::RETRY
    )]
    KeysInactive { key: String },

    #[error(
        "{kind} {name:?} in namespace {namespace:?} already exists and does not belong to this claim, so it is not changed; create the claim under another name, or delete that {kind} if no app uses it"
    )]
    OutputExists { kind: &'static str, namespace: String, name: String },

    #[error(
        "ObjectBucket {name:?} cannot be read: {error}; correct the field, or restore the ObjectBucket from a backup"
    )]
    RecordUnreadable { name: String, error: String },

    #[error(
        "ObjectBucket {name:?} already exists and belongs to another claim, so it is not changed; create the claim under another name; or, if that ObjectBucket is an orphan, an admin can annotate it with objectbucket.io/orphan=forget"
    )]
    RecordTaken { name: String },

    #[error(
        "ObjectBucket {name:?} does not name its claim, and more than one claim is possible; an admin must write the uid of the right claim into its spec.additionalState.claimUID"
    )]
    RecordAmbiguous { name: String },

    #[error(
        "ObjectBucket {name:?} of this claim is damaged ({error}) and cannot be repaired: {why}; an admin must correct the field or restore the ObjectBucket from a backup"
    )]
    RecordDamaged { name: String, error: String, why: String },

    #[error("{}", .0.sentence())]
    AdoptionNeeded(RecordProblem),

    #[error(
        "the claim has the annotation {}, but {}; remove the annotation for a new and empty bucket; an admin can give it the bucket of a deleted claim of this name by annotating the ObjectBucket with objectbucket.io/orphan=adopt",
        wire::annotation::UNDO_DELETE,
        cannot_undo(.why)
    )]
    NothingToUndo { why: CannotUndo },

    #[error(
        "bucket {bucket:?}, created for this claim before an edit, is not empty, and its keys were never published, so it is not deleted: undo the edit of the claim or of its StorageClass, empty the bucket, or delete the claim (the bucket is then kept until an admin decides)"
    )]
    BucketNotEmpty { bucket: String },

    #[error(
        "ObjectBucket {record:?} names bucket {recorded:?}, but this claim's bucket is {bucket:?}: an admin must restore spec.endpoint.bucketName of the ObjectBucket, and its label {} if it has one. Do not tag bucket {recorded:?}",
        wire::BUCKET_LABEL
    )]
    BucketConflict { record: String, recorded: String, bucket: String },

    #[error(
        "ObjectBucket {record:?} names bucket {recorded:?} and the claim names {bucket:?}, and nothing proves which of them is the claim's: an admin must find out which object was edited, and undo the edit. Tag neither bucket"
    )]
    BucketsDiffer { record: String, recorded: String, bucket: String },

    #[error(
        "CustomResourceDefinition {crd} is being deleted, or does not exist, so nothing is deleted at the store; if that was a mistake, annotate nothing, and restore the CRD (docs/deleted-claims.md); to delete the claims' buckets with all their content, annotate the CRD with {}=yes (admin); to keep them, annotate the ObjectBuckets with {}={} (admin)",
        wire::annotation::CONFIRM_DELETION,
        wire::annotation::ORPHAN,
        wire::annotation::ORPHAN_FORGET
    )]
    CrdDeleting { crd: &'static str },

    #[error(
        "the provisioning credentials belong to another account than this claim's bucket and user, so nothing is done for this claim; an admin must change {place} back to the previous account, whose id is in the ObjectBucket"
    )]
    AccountChanged { place: String },

    #[error("{}", in_use(.bucket, *.unreadable))]
    BucketInUse {
        bucket: String,
        /// An ObjectBucket that cannot be read names it, and perhaps no claim uses it.
        unreadable: bool,
    },

    #[error(
        "the store at {store} did not answer, or refused the provisioning credentials, several times in a row; only one claim at a time retries, and this claim waits in the queue; see other claims of the class and the operator's log"
    )]
    StoreSilent { store: String },

    #[error(
        "the store at {store} limits the request rate of this account: this claim waits in the queue and continues by itself"
    )]
    StoreBusy { store: String },

    #[error("{0}")]
    Store(Box<dyn Failure>),

    #[error("the operator cannot {step}: {}", describe(.source))]
    Kubernetes { step: &'static str, source: Box<kube::Error> },

    #[error("Kubernetes or the store did not finish within {0} s; retrying")]
    TimedOut(u64),

    #[error("internal error; this is a bug, please report it with the operator's log")]
    Panicked,

    #[error("internal error ({0}); this is a bug, please report it with the operator's log")]
    OutOfStep(&'static str),
}

/// Why the ObjectBucket that a claim names in `spec.objectBucketName` is not its own. Only bound claims carry the
/// field, so the claim was restored from a backup, moved from another cluster, or copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordProblem {
    /// It belongs to a previous claim of this namespace and name.
    Predecessor { record: String },
    /// It does not exist.
    Missing { record: String },
    /// No object can have this name.
    NoName { record: String },
    /// It belongs to another claim or provisioner.
    Foreign { record: String },
}

impl RecordProblem {
    fn sentence(&self) -> String {
        let adopt = format!("{}={}", wire::annotation::ORPHAN, wire::annotation::ORPHAN_ADOPT);
        let (problem, remedy) = match self {
            Self::Predecessor { record } => (
                format!("ObjectBucket {record:?}, which belongs to a previous claim of this name"),
                format!(
                    "to continue with its bucket, an admin must run the command `adopt` for this claim, or annotate that ObjectBucket with {adopt}; "
                ),
            ),
            Self::Missing { record } => (
                format!("ObjectBucket {record:?}, which does not exist"),
                format!(
                    "to continue with its bucket, an admin must run the command `adopt` for this claim, or restore that ObjectBucket and annotate it with {adopt}; "
                ),
            ),
            Self::NoName { record } => (format!("{record:?}, which is not a valid object name"), String::new()),
            Self::Foreign { record } => {
                (format!("ObjectBucket {record:?}, which does not belong to this claim"), String::new())
            }
        };
        format!(
            "spec.objectBucketName names {problem}; {remedy}for a new and empty bucket, create the claim without spec.objectBucketName and spec.bucketName"
        )
    }
}

/// Why a claim with [`UNDO_DELETE`](wire::annotation::UNDO_DELETE) does not get a deleted bucket back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CannotUndo {
    /// No deletion is scheduled.
    NotScheduled,
    /// The bucket was deleted, or the time of its deletion has passed.
    TooLate,
    /// The claim was in another namespace of that name.
    OtherNamespace,
    /// The claim named another class.
    OtherClass,
    /// Its ObjectBucket comes from a backup, and may be outdated.
    Restored,
    /// There are several, and the claim names none of them.
    Several { kept: Vec<KeptBucket> },
}

/// The bucket of a deleted claim. Users may not read ObjectBuckets, so a message has what identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptBucket {
    pub(crate) record: String,
    pub(crate) bucket: String,
    /// When the claim was deleted.
    pub(crate) released_at: String,
}

/// How many ObjectBuckets a message names.
const NAMED: usize = 5;

fn cannot_undo(why: &CannotUndo) -> String {
    let why = match why {
        CannotUndo::NotScheduled => "no deletion of a bucket of a claim of this namespace and name is scheduled",
        CannotUndo::TooLate => {
            "the bucket of the deleted claim was deleted, or the time of its scheduled deletion has passed"
        }
        CannotUndo::OtherNamespace => "the deleted claim was in a previous namespace of this name",
        CannotUndo::OtherClass => {
            "the deleted claim named another StorageClass: to get its bucket, write that class into spec.storageClassName"
        }
        CannotUndo::Restored => "the ObjectBucket of the deleted claim was restored from a backup",
        CannotUndo::Several { kept } => {
            let named = kept.iter().take(NAMED).map(|KeptBucket { record, bucket, released_at }| {
                format!("{record} (bucket {bucket:?}, claim deleted at {released_at})")
            });
            let named: Vec<_> = named.collect();
            let others = if kept.len() > NAMED { " and others" } else { "" };
            return format!(
                "the buckets of several deleted claims of this name are kept: write the right one of these ObjectBuckets into spec.objectBucketName: {}{others}",
                named.join(", ")
            );
        }
    };
    why.to_owned()
}

/// A blank at the end of a name is easily overlooked.
fn no_such_name(name: &str) -> &'static str {
    match object_name(name) {
        Some(_) => "",
        None if name.trim() != name => ", and no StorageClass can have this name (with white space around it)",
        None => ", and no StorageClass can have this name",
    }
}

impl Error {
    /// For `map_err`: what the operator was about to do, as in "the operator cannot {step}".
    pub(crate) fn kubernetes(step: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes { step, source: Box::new(source) }
    }

    pub(crate) fn store(failure: impl Failure) -> Self {
        Self::Store(Box::new(failure))
    }

    /// The message where the StorageClass is named already, for an admin.
    pub(crate) fn of_named_class(&self) -> String {
        match self {
            Self::Refused(Refusal::InvalidClassParameter { problem, .. }) => problem.to_string(),
            error => error.to_string(),
        }
    }

    /// Another writer was faster, or the object was deleted or replaced. This is not reported: the watch shows the change.
    pub(crate) fn is_race(&self) -> bool {
        match self {
            Self::Kubernetes { source, .. } => matches!(status_code(source), Some(404 | 409)) || is_replaced(source),
            _ => false,
        }
    }

    /// Whether there is nothing that the claim could share.
    pub(crate) fn is_about_sharing(&self) -> bool {
        matches!(self, Self::BucketClaimNotFound { .. } | Self::Refused(Refusal::BucketClaimNotShareable { .. }))
    }

    /// Name of the ObjectBucket that cannot be read or is damaged, if that is the problem.
    pub(crate) fn damaged_record(&self) -> Option<&str> {
        match self {
            Self::RecordDamaged { name, .. } | Self::RecordUnreadable { name, .. } => Some(name),
            Self::BucketConflict { record, .. } | Self::BucketsDiffer { record, .. } => Some(record),
            _ => None,
        }
    }
}

fn in_use(bucket: &str, unreadable: bool) -> String {
    match unreadable {
        false => format!(
            "another claim also uses bucket {bucket:?}; the bucket and its content are deleted when no other claim uses it"
        ),
        true => format!(
            "an ObjectBucket that cannot be read names bucket {bucket:?}, which another claim may use; the bucket and its content are deleted when an admin has corrected that ObjectBucket, which the command `orphans` names"
        ),
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::StorageClassNotFound { .. } => reasons::STORAGE_CLASS_NOT_FOUND,
            Self::BucketClaimNotFound { .. } => reasons::BUCKET_CLAIM_NOT_FOUND,
            Self::Refused(refusal) => refusal.reason(),
            Self::ClaimUnreadable { .. } => reasons::CLAIM_UNREADABLE,
            Self::OwnerSecretNotFound(_) | Self::OwnerSecretNeeded { .. } => reasons::OWNER_SECRET_NOT_FOUND,
            Self::ServiceAccountNotFound { .. } => reasons::SERVICE_ACCOUNT_NOT_FOUND,
            Self::NotTried { .. } => reasons::NOT_TRIED,
            Self::CredentialsUnusable { .. } => reasons::CREDENTIALS_UNUSABLE,
            Self::KeysInactive { .. } => reasons::KEYS_INACTIVE,
            Self::OutputExists { .. } => reasons::OUTPUT_EXISTS,
            Self::RecordUnreadable { .. } => reasons::OBJECT_BUCKET_UNREADABLE,
            Self::RecordTaken { .. } => reasons::OBJECT_BUCKET_TAKEN,
            Self::RecordAmbiguous { .. } => reasons::OBJECT_BUCKET_AMBIGUOUS,
            Self::RecordDamaged { .. } => reasons::OBJECT_BUCKET_DAMAGED,
            Self::AdoptionNeeded(_) => reasons::ADOPTION_NEEDED,
            Self::NothingToUndo { .. } => reasons::NOTHING_TO_UNDO,
            Self::BucketNotEmpty { .. } => reasons::BUCKET_NOT_EMPTY,
            Self::BucketConflict { .. } | Self::BucketsDiffer { .. } => reasons::BUCKET_CONFLICT,
            Self::CrdDeleting { .. } => reasons::CRD_DELETING,
            Self::AccountChanged { .. } => reasons::ACCOUNT_CHANGED,
            Self::BucketInUse { .. } => reasons::BUCKET_IN_USE,
            Self::StoreSilent { .. } | Self::StoreBusy { .. } => reasons::WAITING_FOR_STORE,
            Self::Store(failure) => failure.reason(),
            Self::Kubernetes { .. } => reasons::KUBERNETES_ERROR,
            Self::TimedOut(_) => reasons::TIMED_OUT,
            Self::Panicked | Self::OutOfStep(_) => reasons::INTERNAL_ERROR,
        }
    }

    fn class(&self) -> FailureClass {
        match self {
            Self::Store(failure) => failure.class(),
            // Somebody must act; a watch wakes the claim when the object appears.
            Self::StorageClassNotFound { .. }
            | Self::BucketClaimNotFound { .. }
            | Self::Refused(_)
            | Self::ClaimUnreadable { .. }
            | Self::OwnerSecretNotFound(_)
            | Self::OwnerSecretNeeded { .. }
            | Self::ServiceAccountNotFound { .. }
            | Self::NotTried { .. }
            | Self::CredentialsUnusable { .. }
            | Self::KeysInactive { .. }
            | Self::RecordUnreadable { .. }
            | Self::RecordAmbiguous { .. }
            | Self::RecordDamaged { .. }
            | Self::AdoptionNeeded(_)
            | Self::NothingToUndo { .. }
            | Self::BucketNotEmpty { .. }
            | Self::BucketConflict { .. }
            | Self::BucketsDiffer { .. }
            | Self::CrdDeleting { .. }
            | Self::AccountChanged { .. }
            | Self::BucketInUse { .. } => FailureClass::Terminal,
            // Nothing watches foreign objects, so these are checked again with backoff.
            Self::OutputExists { .. }
            | Self::RecordTaken { .. }
            | Self::StoreSilent { .. }
            | Self::StoreBusy { .. }
            | Self::Kubernetes { .. }
            | Self::TimedOut(_)
            | Self::Panicked
            | Self::OutOfStep(_) => FailureClass::Retryable,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(failure) => failure.retry_after(),
            _ => None,
        }
    }

    fn affects_all_claims(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.affects_all_claims())
    }

    fn is_lost(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.is_lost())
    }
}
