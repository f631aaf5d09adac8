//! Why a reconcile stopped: one enum whose variants are the reasons a user reads.

use super::reasons;
use crate::api::wire;
use crate::provisioner::{ClaimId, Failure, FailureClass, SecretRef};

/// Why a claim is not where it should be. `Display` is the sentence on the claim; the remedy is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("StorageClass {class:?} does not exist; create it, or delete the claim and name another class")]
    StorageClassNotFound { class: String },

    #[error("the claim cannot be read: {error}; correct spec, or delete the claim and create it anew")]
    ClaimUnreadable { error: String },

    #[error(
        "Secret {0}, which holds the owner's credentials, does not exist; create it, or correct secretName and secretNamespace of the StorageClass"
    )]
    OwnerSecretNotFound(SecretRef),

    #[error(
        "Secret {secret}, which holds the credentials that the claim was made with, does not exist; restore it, for bucket {bucket:?} and its user cannot be removed without it"
    )]
    OwnerSecretNeeded { secret: SecretRef, bucket: String },

    #[error(
        "the keys issued to the claim are refused again and again ({answer}); see whether a permissions boundary, a service control policy or the bucket's policy denies s3:ListBucket or s3:GetObject to the claim's user"
    )]
    CredentialsUnusable { answer: String },

    #[error(
        "{kind} {name:?} exists in namespace {namespace:?} and does not belong to this claim; it is left untouched. Rename or delete it, or give the claim another name"
    )]
    OutputExists { kind: &'static str, namespace: String, name: String },

    #[error("ObjectBucket {name:?} cannot be read: {error}; restore the field, or ask whoever edited it")]
    RecordUnreadable { name: String, error: String },

    #[error(
        "ObjectBucket {name:?} exists and belongs to another claim; it is left untouched. Delete it if nothing needs it, or give the claim another name"
    )]
    RecordTaken { name: String },

    #[error(
        "ObjectBucket {name:?} does not say for which claim it was made, and more than one claim may be it; an admin writes the uid of the right one into its spec.additionalState.claimUID"
    )]
    RecordAmbiguous { name: String },

    #[error(
        "ObjectBucket {name:?} of this claim is damaged ({error}), and cannot be restored: {why}; an admin restores it from a backup or corrects the field"
    )]
    RecordDamaged { name: String, error: String, why: String },

    #[error("{}", .0.sentence())]
    AdoptionNeeded(RecordProblem),

    #[error(
        "the owner's credentials are those of another account than the one in which this claim's bucket and user were made, and nothing is done there for this claim; an admin puts credentials of the former account, whose id is in the ObjectBucket, back into {place}"
    )]
    AccountChanged { place: String },

    #[error(
        "bucket {bucket:?} is used by another claim as well; it is deleted with its content once no other claim uses it"
    )]
    BucketInUse { bucket: String },

    #[error(
        "the store at {store} did not answer, or refused its owner, several times in a row; one claim at a time asks it now, and this one waits for its turn: see what other claims of the class and the operator's log say"
    )]
    StoreSilent { store: String },

    #[error("{0}")]
    Store(Box<dyn Failure>),

    #[error("Kubernetes refused to {step}: {}", describe(.source))]
    Kubernetes { step: &'static str, source: Box<kube::Error> },

    #[error("no end within {0} s while waiting for Kubernetes or the store; trying again")]
    TimedOut(u64),

    #[error("internal error while reconciling claim {0}: a bug; please report it with the operator's log")]
    Panicked(ClaimId),

    #[error("internal error ({0}): a bug; please report it with the operator's log")]
    OutOfStep(&'static str),
}

/// Why the ObjectBucket that a claim names in `spec.objectBucketName` is not its own. Only bound claims carry the
/// field, so the claim was restored from a backup, moved from another cluster, or copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordProblem {
    /// It was made for a former claim of this namespace and name.
    Former { record: String },
    /// It does not exist.
    Missing { record: String },
    /// It belongs to somebody else.
    Foreign { record: String },
}

impl RecordProblem {
    fn sentence(&self) -> String {
        let anew = "or, for a new and empty bucket, create the claim without spec.objectBucketName and spec.bucketName";
        match self {
            Self::Former { record } => format!(
                "spec.objectBucketName names ObjectBucket {record:?}, which was made for a former claim of this name; to go on with its bucket, an admin annotates that ObjectBucket with {}={}; {anew}",
                wire::annotation::ORPHAN,
                wire::annotation::ORPHAN_ADOPT
            ),
            Self::Missing { record } => format!(
                "spec.objectBucketName names ObjectBucket {record:?}, which does not exist; to go on with its bucket, an admin restores that ObjectBucket, from a backup or with `aws-s3-provisioner record`, and annotates it with {}={}; {anew}",
                wire::annotation::ORPHAN,
                wire::annotation::ORPHAN_ADOPT
            ),
            Self::Foreign { record } => format!(
                "spec.objectBucketName names ObjectBucket {record:?}, which is not this claim's; {}",
                anew.trim_start_matches("or, ")
            ),
        }
    }
}

impl Error {
    /// For `map_err`: what the operator was about to do when Kubernetes refused.
    pub(crate) fn kubernetes(step: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes { step, source: Box::new(source) }
    }

    pub(crate) fn store(failure: impl Failure) -> Self {
        Self::Store(Box::new(failure))
    }

    /// Another writer was faster, or the object is gone: the watch brings the news, there is nothing to
    /// tell.
    pub(crate) fn is_race(&self) -> bool {
        matches!(self, Self::Kubernetes { source, .. } if matches!(status_code(source), Some(404 | 409)))
    }
}

impl Error {
    /// Name of the ObjectBucket that lost something, if that is the problem.
    pub(crate) fn damaged_record(&self) -> Option<&str> {
        match self {
            Self::RecordDamaged { name, .. } | Self::RecordUnreadable { name, .. } => Some(name),
            _ => None,
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::StorageClassNotFound { .. } => reasons::STORAGE_CLASS_NOT_FOUND,
            Self::ClaimUnreadable { .. } => reasons::CLAIM_UNREADABLE,
            Self::OwnerSecretNotFound(_) | Self::OwnerSecretNeeded { .. } => reasons::OWNER_SECRET_NOT_FOUND,
            Self::CredentialsUnusable { .. } => reasons::CREDENTIALS_UNUSABLE,
            Self::OutputExists { .. } => reasons::OUTPUT_EXISTS,
            Self::RecordUnreadable { .. } => reasons::OBJECT_BUCKET_UNREADABLE,
            Self::RecordTaken { .. } => reasons::OBJECT_BUCKET_TAKEN,
            Self::RecordAmbiguous { .. } => reasons::OBJECT_BUCKET_AMBIGUOUS,
            Self::RecordDamaged { .. } => reasons::OBJECT_BUCKET_DAMAGED,
            Self::AdoptionNeeded(_) => reasons::ADOPTION_NEEDED,
            Self::AccountChanged { .. } => reasons::ACCOUNT_CHANGED,
            Self::BucketInUse { .. } => reasons::BUCKET_IN_USE,
            Self::StoreSilent { .. } => reasons::WAITING_FOR_STORE,
            Self::Store(failure) => failure.reason(),
            Self::Kubernetes { .. } => reasons::KUBERNETES_ERROR,
            Self::TimedOut(_) => reasons::TIMED_OUT,
            Self::Panicked(_) | Self::OutOfStep(_) => reasons::INTERNAL_ERROR,
        }
    }

    fn class(&self) -> FailureClass {
        match self {
            Self::Store(failure) => failure.class(),
            // Waits for somebody; a watch wakes the claim when the object appears.
            Self::StorageClassNotFound { .. }
            | Self::ClaimUnreadable { .. }
            | Self::OwnerSecretNotFound(_)
            | Self::OwnerSecretNeeded { .. }
            | Self::CredentialsUnusable { .. }
            | Self::RecordUnreadable { .. }
            | Self::RecordAmbiguous { .. }
            | Self::RecordDamaged { .. }
            | Self::AdoptionNeeded(_)
            | Self::AccountChanged { .. }
            | Self::BucketInUse { .. } => FailureClass::Terminal,
            // Nothing watches foreign objects, so these are looked at again with backoff.
            Self::OutputExists { .. }
            | Self::RecordTaken { .. }
            | Self::StoreSilent { .. }
            | Self::Kubernetes { .. }
            | Self::TimedOut(_)
            | Self::Panicked(_)
            | Self::OutOfStep(_) => FailureClass::Retryable,
        }
    }

    fn store_untouched(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.store_untouched())
    }

    fn concerns_all(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.concerns_all())
    }

    fn lost(&self) -> bool {
        matches!(self, Self::Store(failure) if failure.lost())
    }
}

/// HTTP status of an answer that Kubernetes gave, if it gave one.
pub(crate) fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The API server's own sentence where there is one. Transport errors carry addresses and ports that
/// differ between attempts, so they are named by kind: a message is the same for the same cause.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        kube::Error::SerdeError(error) => format!("the answer cannot be read: {error}"),
        _ => "the API server cannot be reached".to_owned(),
    }
}
