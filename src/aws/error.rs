//! Why a step failed: one [`Error`], whose variants are reasons that a user can read.
//!
//! `Display` is the whole sentence; there is no source chain to add. Messages are the same for the same cause, so they hold no request ids and no times. How an answer of AWS
//! becomes one of these stands in `codes`.

use super::call::{Call, Identity, Operation, Resource};
use super::names::NameError;
use super::values::ParameterError;
use crate::provisioner::{Failure, FailureClass, SecretRef};

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A parameter of the class cannot be used.
    #[error("StorageClass {class}: {problem}")]
    InvalidClassParameter {
        /// Name of the class.
        class: String,
        /// Which parameter, and why.
        problem: ParameterError,
    },
    /// An environment variable of the operator cannot be used.
    #[error("the operator's environment: {0}")]
    InvalidEnvironment(ParameterError),
    /// The bucket name, or the prefix of one, that the claim asks for is against the rules.
    #[error("{field}: {problem}")]
    InvalidBucketName {
        /// The field of the claim.
        field: &'static str,
        /// The name, and the rule that it breaks.
        problem: NameError,
    },
    /// The claim asks for no bucket, and neither does its class.
    #[error(
        "the claim names no bucket: set spec.generateBucketName or spec.bucketName, or use a StorageClass with the parameter bucketName ({class} has none)"
    )]
    BucketNameMissing {
        /// Name of the class.
        class: String,
    },
    /// The claim asks for another bucket than its class gives.
    #[error(
        "spec.bucketName is {asked:?}, but StorageClass {class} gives access to bucket {bucket:?} only: leave spec.bucketName out, or use another class"
    )]
    BucketNotOfClass {
        /// Name of the class.
        class: String,
        /// The bucket of the class.
        bucket: String,
        /// What the claim asks for.
        asked: String,
    },
    /// The class does not serve the claim's namespace.
    #[error(
        "StorageClass {class} does not serve namespace {namespace}: use another class, or have an admin add the namespace to its allowedNamespaces"
    )]
    NamespaceNotAllowed {
        /// Name of the class.
        class: String,
        /// Namespace of the claim.
        namespace: String,
    },
    /// The class does not let claims call a bucket so.
    #[error("{field}: {name:?} is not a name that StorageClass {class} allows: {why}")]
    BucketNameNotAllowed {
        /// Name of the class.
        class: String,
        /// The field of the claim.
        field: &'static str,
        /// The name, or the prefix of one.
        name: String,
        /// What to do instead.
        why: String,
    },
    /// The owner's Secret holds no usable keys.
    #[error("Secret {secret} {problem}")]
    InvalidOwnerSecret {
        /// The Secret.
        secret: SecretRef,
        /// What is wrong with it, and the remedy; never a value.
        problem: String,
    },
    /// The claim should share the owner's keys, but these are the operator's own.
    #[error(
        "createBucketUser is \"no\", but the operator's own AWS identity cannot be shared: name a Secret in the class"
    )]
    NothingToShare,
    /// AWS does not know the owner's keys.
    #[error(
        "AWS refused {identity} ({code}) in {operation}: {}", refused(*.operation, *.session)
    )]
    CredentialsRefused {
        /// Whose keys.
        identity: Identity,
        /// What was tried.
        operation: Operation,
        /// AWS's code.
        code: String,
        /// Whether they have a session token.
        session: bool,
    },
    /// The owner's session is over.
    #[error("{identity} have expired: renew them, or use a key without a session token")]
    CredentialsExpired {
        /// Whose keys.
        identity: Identity,
    },
    /// The operator has no AWS identity, or cannot get at it.
    #[error(
        "the operator has no AWS credentials of its own ({}): give its pod an AWS identity, or name a Secret in the class", without_accounts(.problem)
    )]
    CredentialsUnavailable {
        /// What the last of those said that were asked for credentials.
        problem: String,
    },
    /// AWS does not allow it.
    #[error("AWS denied {} on {} to {}: allow {}{}", call.operation, call.resource, call.identity, allow(.call), says(.message))]
    AccessDenied {
        /// What was denied to whom.
        call: Box<Call>,
        /// What AWS says.
        message: Option<String>,
    },
    /// Too many calls.
    #[error("AWS throttles {operation}; it is tried again")]
    Throttled {
        /// What was tried.
        operation: Operation,
    },
    /// No answer.
    #[error("no answer to {operation} on {resource}: {problem}; it is tried again")]
    StoreUnreachable {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
        /// What happened to the connection.
        problem: String,
        /// Whether the call can have taken effect.
        sent: Sent,
    },
    /// A failure on the store's side.
    #[error("the store failed at {operation} on {resource} ({problem}); it is tried again")]
    StoreFailing {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
        /// Status or code.
        problem: String,
    },
    /// Something else happens to the same thing at the same time.
    #[error("{resource} cannot be changed now ({code} in {operation}); it is tried again{}", says(.message))]
    StoreBusy {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
        /// AWS's code.
        code: String,
        /// What AWS says.
        message: Option<String>,
    },
    /// IAM reads lag behind writes.
    #[error("IAM does not see {resource} yet ({operation}); it is tried again")]
    NotVisibleYet {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
    },
    /// A quota of the account is used up.
    #[error("a quota of the AWS account is used up ({code} in {operation} on {resource}): raise the quota or remove what is not needed{}", says(.message))]
    QuotaExceeded {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
        /// AWS's code.
        code: String,
        /// What AWS says.
        message: Option<String>,
    },
    /// The bucket name belongs to somebody else.
    #[error("bucket {bucket:?} {}", .by.sentence())]
    BucketTaken {
        /// Name of the bucket.
        bucket: String,
        /// Whose it is.
        by: TakenBy,
    },
    /// The bucket is in another region than the class says.
    #[error("bucket {bucket:?} is in {}: use a StorageClass for that region", .region.as_deref().map_or_else(|| "another region".to_owned(), |r| format!("region {r}")))]
    WrongRegion {
        /// Name of the bucket.
        bucket: String,
        /// Where it is, if the store says so.
        region: Option<String>,
    },
    /// The bucket that the class names does not exist.
    #[error(
        "bucket {bucket:?}, which the StorageClass names, does not exist: create it, or correct the class's bucketName"
    )]
    BucketMissing {
        /// Name of the bucket.
        bucket: String,
    },
    /// The bucket that the class names was created for another claim.
    #[error(
        "bucket {bucket:?}, which the StorageClass names, was created for another claim, whose user can read what is written into it and whose deletion may take it along: name another bucket in the class, or add allowClaimedBucket: \"yes\" to it if that is meant"
    )]
    BucketClaimed {
        /// Name of the bucket.
        bucket: String,
    },
    /// The user is not there, and its key works.
    #[error(
        "IAM user {user:?} is not found, but access key {key} in the claim's Secret still works: the user may be in another account, or has just been deleted; it is tried again"
    )]
    AccessStillWorks {
        /// Name of the user.
        user: String,
        /// Id of the key.
        key: String,
    },
    /// The bucket that was made for the claim is gone.
    #[error(
        "bucket {bucket:?}, which was made for this claim, is gone, and is not made anew without what was in it: delete the claim and create a new one"
    )]
    BucketGone {
        /// Name of the bucket.
        bucket: String,
    },
    /// Nothing proves any more that the bucket is the claim's.
    #[error(
        "bucket {bucket:?}, which was made for this claim, does not carry its tags any more: if it is the same bucket, tag it with objectbucket.io/claim-uid={uid}; without that it is left in place when the claim is deleted"
    )]
    OwnershipLost {
        /// Name of the bucket.
        bucket: String,
        /// Uid of the claim.
        uid: String,
    },
    /// A bucket that was there before is gone, or not there yet.
    #[error("bucket {bucket:?} is not found ({operation}); it is tried again")]
    BucketNotFound {
        /// Name of the bucket.
        bucket: String,
        /// What was tried.
        operation: Operation,
    },
    /// The bucket cannot be marked as the claim's own.
    #[error(
        "the store keeps no tags on bucket {bucket:?}, so it cannot be proven to belong to this claim: use spec.generateBucketName, and delete that bucket by hand if nobody needs it"
    )]
    TagsNotKept {
        /// Name of the bucket.
        bucket: String,
    },
    /// The user exists and is not the claim's.
    #[error(
        "IAM user {user:?} exists and is not tagged as this claim's: delete it, or tag it with objectbucket.io/claim-uid if it is this claim's"
    )]
    UserTaken {
        /// Name of the user.
        user: String,
    },
    /// Objects that the store does not delete.
    #[error("bucket {bucket:?} cannot be emptied: {count} objects are not deleted, the first is {key:?} ({code}){}", lock_hint(.code))]
    ObjectsNotDeleted {
        /// Name of the bucket.
        bucket: String,
        /// The first of the keys.
        key: String,
        /// Why, in the store's code.
        code: String,
        /// How many there are in the part of the bucket that was looked at.
        count: u64,
    },
    /// Nothing is found in the bucket, and yet it is not empty.
    #[error("bucket {bucket:?} is not empty, but lists nothing that can be deleted; it is tried again")]
    BucketNotEmpty {
        /// Name of the bucket.
        bucket: String,
    },
    /// The store lacks an operation.
    #[error("the store does not support {operation} on {resource} ({code}): use a store that does{}{}", abac(*.operation), says(.message))]
    NotSupported {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
        /// Its code.
        code: String,
        /// What it says.
        message: Option<String>,
    },
    /// Any other refusal.
    #[error("the store refused {operation} on {resource} ({code}){}{}", abac(*.operation), says(.message))]
    Rejected {
        /// What was tried.
        operation: Operation,
        /// On what.
        resource: Resource,
        /// Its code, or the HTTP status.
        code: String,
        /// What it says.
        message: Option<String>,
    },
    /// The cause, in a verb that changed nothing at the store.
    #[error(transparent)]
    Untouched(Box<Error>),
}

/// Whose a bucket is that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBy {
    /// Another AWS account.
    AnotherAccount,
    /// Another claim.
    AnotherClaim,
    /// Another AWS account, or somebody in an account whose tags the owner may not read.
    Unreadable,
    /// Somebody in the owner's account.
    Unknown,
}

impl TakenBy {
    fn sentence(&self) -> String {
        match self {
            Self::AnotherAccount => {
                "is taken by another AWS account: choose another name, or use spec.generateBucketName".to_owned()
            }
            Self::Unreadable => "exists and its tags cannot be read: it belongs to another AWS account, or the owner \
                                 lacks s3:GetBucketTagging; choose another name, or use spec.generateBucketName"
                .to_owned(),
            Self::AnotherClaim => "is tagged as that of another claim: choose another name".to_owned(),
            Self::Unknown => "exists already and is not this claim's: choose another name, or have an admin write a \
                              StorageClass with that bucketName"
                .to_owned(),
        }
    }
}

/// What to do about credentials that AWS does not know.
fn refused(operation: Operation, session: bool) -> &'static str {
    // "Request temporary security credentials", IAM user guide.
    if session && operation.actions().starts_with("iam:") {
        "IAM takes a session token only from a role or from a session with MFA; put keys without a session token there, or those of a role that was assumed, and check that they have not expired"
    } else {
        "put a valid, active key there, and check the node's clock"
    }
}

/// What a refusal to tag a bucket may come from: with ABAC a bucket takes tags by TagResource alone ("Enabling ABAC in
/// general purpose buckets", S3 user guide).
fn abac(operation: Operation) -> &'static str {
    match operation {
        Operation::PutBucketTagging => {
            "; if ABAC is enabled for the bucket, S3 takes its tags by s3:TagResource alone: turn ABAC off until the operator has set its tags"
        }
        _ => "",
    }
}

/// The permissions to ask for, and what else a denial may mean.
fn allow(call: &Call) -> String {
    let more = match call.operation {
        Operation::GetBucketTagging | Operation::ListObjectsV2 | Operation::GetObject => {
            " (or the bucket belongs to another AWS account)"
        }
        Operation::CreateUser => {
            "; if the owner's policy demands a permissions boundary, the StorageClass has to name it (permissionsBoundary), and so has the ObjectBucket of a claim that was bound before"
        }
        Operation::PutUserPolicy => {
            "; if the owner's policy demands a permissions boundary, this user lacks it, and an admin has to set it"
        }
        Operation::RemoveUserFromGroup => ", or take the user out of its groups by hand; its keys are deleted already",
        operation => abac(operation),
    };
    format!("{}{more}", call.operation.actions())
}

fn says(message: &Option<String>) -> String {
    match message.as_deref() {
        None | Some("" | "Access Denied") => String::new(),
        Some(message) => format!("; AWS says: {}", without_accounts(message)),
    }
}

/// Longest part of a store's message that is passed on.
const MESSAGE_MAX: usize = 500;

/// A store's message without ARNs and account ids, which are none of a claim's business; the log has them.
fn without_accounts(message: &str) -> String {
    const ACCOUNT: usize = 12;
    let ends_arn = |c: char| c.is_whitespace() || "\"'(),;<>[]{}".contains(c);
    let mut said = String::new();
    let mut rest = message;
    while let Some(first) = rest.chars().next().filter(|_| said.len() < MESSAGE_MAX) {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let taken = if rest.starts_with("arn:") {
            said.push_str("(an ARN)");
            rest.find(ends_arn).unwrap_or(rest.len())
        } else if digits == ACCOUNT {
            said.push_str("(an account)");
            ACCOUNT
        } else {
            let taken = digits.max(first.len_utf8());
            said.push_str(rest.get(..taken).unwrap_or_default());
            taken
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    if !rest.is_empty() {
        said.push_str(" ...");
    }
    said
}

fn lock_hint(code: &str) -> &'static str {
    match code {
        "AccessDenied" => ": object lock or a bucket policy holds them, or the owner lacks s3:DeleteObjectVersion",
        _ => "",
    }
}

/// Whether a call without an answer can have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// There was a connection, so it may have been sent.
    Perhaps,
    /// There was no connection.
    No,
}

impl Error {
    /// Marks an error of a step that only read: whatever it is, nothing was changed.
    pub(crate) fn of_reading(self) -> Self {
        match self {
            Self::Untouched(_) => self,
            error => Self::Untouched(Box::new(error)),
        }
    }

    /// Marks an error of the first change of a verb: nothing was changed if the store said no for good.
    /// A busy or silent store may have taken the call, one that was never reached has not.
    pub(crate) fn of_first_change(self) -> Self {
        let never_sent =
            matches!(self, Self::CredentialsUnavailable { .. } | Self::StoreUnreachable { sent: Sent::No, .. });
        match self.class() {
            FailureClass::Terminal => self.of_reading(),
            FailureClass::Retryable if never_sent => self.of_reading(),
            FailureClass::Retryable => self,
        }
    }

    /// Whether the store says that it is not allowed.
    pub(crate) fn is_denied(&self) -> bool {
        match self {
            Self::Untouched(error) => error.is_denied(),
            error => matches!(error, Self::AccessDenied { .. }),
        }
    }

    /// Takes the mark off, in a verb that changed something before.
    pub(crate) fn after_a_change(self) -> Self {
        match self {
            Self::Untouched(error) => *error,
            error => error,
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::InvalidClassParameter { .. } => "InvalidClassParameter",
            Self::InvalidEnvironment(_) => "InvalidEnvironment",
            Self::InvalidBucketName { .. } => "InvalidBucketName",
            Self::BucketNameMissing { .. } => "BucketNameMissing",
            Self::BucketNotOfClass { .. } => "BucketNotOfClass",
            Self::NamespaceNotAllowed { .. } => "NamespaceNotAllowed",
            Self::BucketNameNotAllowed { .. } => "BucketNameNotAllowed",
            Self::InvalidOwnerSecret { .. } => "InvalidOwnerSecret",
            Self::NothingToShare => "NothingToShare",
            Self::CredentialsRefused { .. } => "CredentialsRefused",
            Self::CredentialsExpired { .. } => "CredentialsExpired",
            Self::CredentialsUnavailable { .. } => "CredentialsUnavailable",
            Self::AccessDenied { .. } => "AccessDenied",
            Self::Throttled { .. } => "Throttled",
            Self::StoreUnreachable { .. } => "StoreUnreachable",
            Self::StoreFailing { .. } => "StoreFailing",
            Self::StoreBusy { .. } => "StoreBusy",
            Self::NotVisibleYet { .. } => "NotVisibleYet",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
            Self::BucketTaken { .. } => "BucketTaken",
            Self::WrongRegion { .. } => "WrongRegion",
            Self::BucketMissing { .. } => "BucketMissing",
            Self::BucketClaimed { .. } => "BucketClaimed",
            Self::AccessStillWorks { .. } => "AccessStillWorks",
            Self::BucketGone { .. } => "BucketGone",
            Self::OwnershipLost { .. } => "OwnershipLost",
            Self::BucketNotFound { .. } => "BucketNotFound",
            Self::TagsNotKept { .. } => "TagsNotKept",
            Self::UserTaken { .. } => "UserTaken",
            Self::ObjectsNotDeleted { .. } => "ObjectsNotDeleted",
            Self::BucketNotEmpty { .. } => "BucketNotEmpty",
            Self::NotSupported { .. } => "NotSupported",
            Self::Rejected { .. } => "Rejected",
            Self::Untouched(error) => error.reason(),
        }
    }

    fn class(&self) -> FailureClass {
        match self {
            Self::InvalidClassParameter { .. }
            | Self::InvalidEnvironment(_)
            | Self::InvalidBucketName { .. }
            | Self::BucketNameMissing { .. }
            | Self::BucketNotOfClass { .. }
            | Self::NamespaceNotAllowed { .. }
            | Self::BucketNameNotAllowed { .. }
            | Self::InvalidOwnerSecret { .. }
            | Self::NothingToShare
            | Self::CredentialsRefused { .. }
            | Self::AccessDenied { .. }
            | Self::QuotaExceeded { .. }
            | Self::BucketTaken { .. }
            | Self::WrongRegion { .. }
            | Self::BucketMissing { .. }
            | Self::BucketClaimed { .. }
            | Self::BucketGone { .. }
            | Self::OwnershipLost { .. }
            | Self::TagsNotKept { .. }
            | Self::UserTaken { .. }
            | Self::ObjectsNotDeleted { .. }
            | Self::NotSupported { .. }
            | Self::Rejected { .. } => FailureClass::Terminal,
            // The ambient identity renews itself; a Secret waits for its admin.
            Self::CredentialsExpired { identity: Identity::Secret(_) } => FailureClass::Terminal,
            Self::CredentialsExpired { .. }
            | Self::CredentialsUnavailable { .. }
            | Self::Throttled { .. }
            | Self::StoreUnreachable { .. }
            | Self::StoreFailing { .. }
            | Self::StoreBusy { .. }
            | Self::NotVisibleYet { .. }
            | Self::AccessStillWorks { .. }
            | Self::BucketNotFound { .. }
            | Self::BucketNotEmpty { .. } => FailureClass::Retryable,
            Self::Untouched(error) => error.class(),
        }
    }

    fn lost(&self) -> bool {
        match self {
            Self::Untouched(error) => error.lost(),
            error => {
                matches!(error, Self::BucketMissing { .. } | Self::BucketGone { .. } | Self::OwnershipLost { .. })
            }
        }
    }

    fn concerns_all(&self) -> bool {
        match self {
            Self::Untouched(error) => error.concerns_all(),
            // One bucket may deny it for itself, and a claim's own keys are nobody else's.
            Self::AccessDenied { call, .. } => {
                call.identity != Identity::App && !matches!(call.resource, Resource::Bucket(_))
            }
            Self::CredentialsRefused { identity, .. } => *identity != Identity::App,
            Self::QuotaExceeded { operation, .. } => {
                matches!(operation, Operation::CreateUser | Operation::CreateBucket)
            }
            error => matches!(
                error,
                Self::StoreUnreachable { .. } | Self::CredentialsExpired { .. } | Self::CredentialsUnavailable { .. }
            ),
        }
    }

    fn store_untouched(&self) -> bool {
        matches!(
            self,
            Self::Untouched(_)
                | Self::InvalidClassParameter { .. }
                | Self::InvalidEnvironment(_)
                | Self::InvalidBucketName { .. }
                | Self::BucketNameMissing { .. }
                | Self::BucketNotOfClass { .. }
                | Self::NamespaceNotAllowed { .. }
                | Self::BucketNameNotAllowed { .. }
                | Self::InvalidOwnerSecret { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_left_out_wherever_they_stand() {
        assert_eq!(
            without_accounts(
                "User: arn:aws:iam::123456789012:user/x, account=123456789012\narn:aws:s3:::b (id 1234567890123)"
            ),
            "User: (an ARN), account=(an account)\n(an ARN) (id 1234567890123)"
        );
        let long = without_accounts(&"ä".repeat(2 * MESSAGE_MAX));
        assert!(long.len() <= MESSAGE_MAX + 8 && long.ends_with(" ..."), "{}", long.len());
    }
}
