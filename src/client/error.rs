//! Why a step failed: one [`Error`], whose variants are reasons that a user can read.
//!
//! `Display` is the whole sentence: what is wrong with which value, then the remedy. There is no source chain to add.
//! The message is the same for the same cause, so it contains no request id and no time. `codes` turns AWS's answers
//! into these errors, `remedy` has the remedies, and `failure` maps each error to a reason and a retry.

use crate::client::call::{Call, Identity, Operation, Resource};
use crate::client::lock::Lock;
use crate::client::remedy::{
    abac, access_points, allow, aws_message, expired, in_region, more_room, object_lock, refused, rejected,
    unknown_here, without_accounts,
};
use bucket_provisioner::store::ParameterError;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages show what the fields are")]
pub enum Error {
    /// An environment variable of the operator cannot be used.
    #[error("the operator's environment: {0}")]
    InvalidEnvironment(ParameterError),
    /// The policy of the claim's user would be longer than IAM allows.
    #[error(
        "the prefix {prefix:?} makes the policy of the claim's user {length} characters long, and IAM allows {max}: shorten prefix in the StorageClass, or the names of bucket, namespace or claim"
    )]
    PrefixTooLong { prefix: String, length: usize, max: usize },
    /// The store does not accept the value of a setting.
    #[error(
        "{}: the store does not accept its value ({code}): correct it{}", .place.of(.setting), aws_message(.message)
    )]
    SettingRefused { setting: &'static str, place: SetBy, code: String, message: Option<String> },
    /// A recorded setting cannot be used.
    #[error("setting {key} in the ObjectBucket of the claim {problem} (an admin must correct spec.additionalState)")]
    SettingUnusable { key: String, problem: String },
    /// The account has no such identity provider.
    #[error(
        "AWS knows no identity provider for the issuer of this cluster's tokens: create it in the account of oidcProvider, or correct oidcProvider in a new StorageClass"
    )]
    OidcProviderMissing,
    /// The identity provider does not accept the cluster's tokens.
    #[error(
        "the identity provider of the StorageClass does not accept a token of the claim's ServiceAccount ({code}): compare oidcProvider with the issuer of the cluster, oidcAudience with the client ids of the provider, and check that the issuer's keys can be read from the internet{}", aws_message(.message)
    )]
    OidcProviderMismatch { code: String, message: Option<String> },
    /// The identity provider is in another account than the roles would be.
    #[error(
        "the provisioning credentials do not belong to the account of oidcProvider, and IAM trusts tokens by a provider of the same account: correct oidcProvider, or the credentials, in a new StorageClass"
    )]
    ProviderElsewhere,
    /// The role of the ServiceAccount exists and is not the operator's.
    #[error(
        "role {role:?} already exists, and neither its tags nor its trust policy name this claim's ServiceAccount: restore its tags if it is the operator's, or delete it if nobody needs it"
    )]
    RoleTaken { role: String },
    /// The policies of a role have a limit.
    #[error(
        "the role of ServiceAccount {service_account:?} has no room for the policy of one more claim, because IAM limits the policies of a role to 10,240 characters: use another ServiceAccount for this claim, or delete claims that nobody needs"
    )]
    RoleFull { service_account: String },
    /// The association of the ServiceAccount exists and is not the operator's.
    #[error("ServiceAccount {service_account:?} has a Pod Identity association that {}", .problem.sentence())]
    AssociationTaken { service_account: String, problem: AssociationProblem },
    /// The policy of an association has a limit.
    #[error(
        "the Pod Identity association of ServiceAccount {service_account:?} has no room for one more claim, because AWS limits the length of its policy: use another ServiceAccount for this claim, or delete claims that nobody needs"
    )]
    AssociationFull { service_account: String },
    /// The role of pods cannot be assumed.
    #[error(
        "AWS does not let {identity} assume the role that podRole of the StorageClass names, with which the access of claims is tried: allow it sts:AssumeRole, and let the trust policy of the role name it, beside pods.eks.amazonaws.com{}", aws_message(.message)
    )]
    PodRoleRefused { identity: Identity, message: Option<String> },
    /// The association would be in another account than the role.
    #[error(
        "the provisioning credentials do not belong to the account of eksCluster, and EKS gives pods only roles of the cluster's account: correct eksCluster and podRole, or the credentials, in a new StorageClass"
    )]
    ClusterElsewhere,
    /// The KMS key of the class does not work.
    #[error(
        "the KMS key of the StorageClass cannot be used with the claim's keys ({code}): check kmsKey, that the key is enabled, that its key policy lets IAM policies of its account allow its use, and that no permissions boundary or service control policy denies kms:GenerateDataKey and kms:Decrypt"
    )]
    KeyUnusable { code: String },
    /// The store does not limit listings to a prefix.
    #[error(
        "the store lets the claim's keys list all of bucket {bucket:?}, although their policy allows only the prefix of the StorageClass: use a store that supports the condition s3:prefix, or a bucket for each tenant"
    )]
    PrefixIgnored { bucket: String },
    /// The claim should share the provisioning credentials, but these are the operator's own identity.
    #[error(
        "createBucketUser is \"no\", but the operator's own AWS identity cannot be shared: name a Secret in the class"
    )]
    NothingToShare,
    /// AWS does not accept these credentials. `session`: they have a session token.
    #[error("AWS refused {identity} ({code}) in {operation}: {}{}", refused(.identity, *.operation, *.session, .code), unknown_here(.code))]
    CredentialsRefused { identity: Identity, operation: Operation, code: String, session: bool },
    /// The credentials were temporary, and their time is over.
    #[error("the session of {identity} has expired: {}", expired(.identity))]
    CredentialsExpired { identity: Identity },
    /// The operator has no AWS identity, or cannot load its credentials.
    #[error(
        "the StorageClass names no Secret, and the operator has no AWS identity of its own ({}): name a Secret in the class, or give the operator's pod an AWS identity", without_accounts(.problem)
    )]
    CredentialsUnavailable { problem: String },
    /// The role of the class cannot be assumed.
    #[error(
        "AWS does not let {identity} assume {role}, which the StorageClass names: allow it sts:AssumeRole and sts:TagSession, and check the trust policy of the role, and the external id in it against ownerRoleExternalId{}", aws_message(.message)
    )]
    OwnerRoleRefused { role: Resource, identity: Identity, message: Option<String> },
    /// The credentials are valid, but lack a permission.
    #[error("AWS denied {} on {} to {}: allow {}{}", call.operation, call.resource, call.identity, allow(.call), aws_message(.message))]
    AccessDenied { call: Box<Call>, message: Option<String> },
    /// Too many calls.
    #[error("AWS is throttling {operation}; retrying")]
    Throttled { operation: Operation },
    /// No answer.
    #[error("{}: {problem}{}; retrying", .sent.no_answer(*.operation, .resource), .sent.remedy())]
    StoreUnreachable { operation: Operation, resource: Resource, problem: String, sent: Sent },
    /// The store itself failed. `problem` is an HTTP status or an error code.
    #[error("the store failed in {operation} on {resource} ({problem}); retrying")]
    StoreFailing { operation: Operation, resource: Resource, problem: String },
    /// Something else is changing the same resource.
    #[error("{resource} cannot be changed now ({code} in {operation}); retrying{}", aws_message(.message))]
    StoreBusy { operation: Operation, resource: Resource, code: String, message: Option<String> },
    /// The store does not show a recent write yet.
    #[error("{} does not show {resource} yet ({operation}); retrying", .operation.service().title())]
    NotVisibleYet { operation: Operation, resource: Resource },
    /// The account has reached a quota.
    #[error("the AWS account has reached a quota ({code} in {operation} on {resource}): {}{}", more_room(*.operation), aws_message(.message))]
    QuotaExceeded { operation: Operation, resource: Resource, code: String, message: Option<String> },
    /// The bucket exists and is not the claim's.
    #[error("bucket {bucket:?} {}", .by.sentence())]
    BucketTaken { bucket: String, by: TakenBy },
    /// The bucket is in another region than that of the class. `region` is `None` if the store does not return it.
    #[error(
        "bucket {bucket:?} is in {} that of the StorageClass: use a StorageClass for that region; if the class names this bucket, an admin must correct its region", in_region(.region.as_deref())
    )]
    WrongRegion { bucket: String, region: Option<String> },
    /// The bucket that the class names does not exist.
    #[error(
        "bucket {bucket:?}, which the StorageClass names, does not exist: create it, or correct bucketName in the class"
    )]
    BucketMissing { bucket: String },
    /// The bucket that the class names was created for another claim.
    #[error(
        "bucket {bucket:?}, which the StorageClass names, was created for another claim: the user of that claim can read it, and the bucket may be deleted with that claim. Name another bucket in the class, or set allowClaimedBucket to \"yes\" if this is intended"
    )]
    BucketClaimed { bucket: String },
    /// IAM shows no user, but the key of that user works.
    #[error(
        "IAM user {user:?} was not found, but access key {key} in the claim's Secret still works: the user is in another account, was deleted just now, or the ObjectBucket names the wrong user; retrying"
    )]
    AccessStillWorks { user: String, key: String },
    /// The bucket that was created for the claim was deleted.
    #[error(
        "bucket {bucket:?}, which was created for this claim, no longer exists. It is not recreated, because its content is lost: delete the claim and create a new one"
    )]
    BucketGone { bucket: String },
    /// The class names another account than that of the provisioning credentials.
    #[error(
        "the provisioning credentials do not belong to account {account}, which is in the names of the class's buckets (bucketNamespace): correct accountId, or the credentials, in a new class"
    )]
    OtherNamespace { account: String },
    /// S3 does not take the name for one of the account.
    #[error(
        "the store does not accept {bucket:?} as the name of an account-regional bucket ({code}): check accountId and region of the StorageClass, and whether the region has such buckets (bucketNamespace){}", aws_message(.message)
    )]
    NotInNamespace { bucket: String, code: String, message: Option<String> },
    /// The store refuses names as account-regional buckets have them.
    #[error(
        "the store does not accept the name of bucket {bucket:?} ({code}): it may have no account-regional buckets; use a StorageClass without bucketNamespace for this store{}", aws_message(.message)
    )]
    NamespacesUnknown { bucket: String, code: String, message: Option<String> },
    /// The bucket of another claim was deleted.
    #[error(
        "bucket {bucket:?} of ObjectBucketClaim {claim:?}, which this claim shares, no longer exists: delete both claims, and create new ones"
    )]
    SharedBucketGone { bucket: String, claim: String },
    /// Nothing proves any longer that the bucket is that of the other claim.
    #[error(
        "bucket {bucket:?}, which this claim shares with ObjectBucketClaim {claim:?}, no longer has the tag objectbucket.io/claim-uid of that claim: see the status of that claim"
    )]
    SharedBucketLost { bucket: String, claim: String },
    /// Nothing proves any longer that the bucket is the claim's.
    #[error(
        "bucket {bucket:?}, which was created for this claim, no longer has the tag objectbucket.io/claim-uid={uid} of this claim: an admin may restore the tag if the bucket is still the one that was created for this claim; without it, the bucket stays when the claim is deleted"
    )]
    OwnershipLost { bucket: String, uid: String },
    /// The ObjectBucket names a bucket that was not created for the claim.
    #[error(
        "bucket {bucket:?} is older than this claim, so it was not created for it: an admin must correct spec.endpoint.bucketName of the claim's ObjectBucket"
    )]
    NotTheClaims { bucket: String },
    /// A bucket that existed before was deleted, or is not visible yet.
    #[error("bucket {bucket:?} was not found ({operation}); retrying")]
    BucketNotFound { bucket: String, operation: Operation },
    /// The store cannot mark the bucket as the claim's.
    #[error(
        "the store does not keep the tags of bucket {bucket:?}, so nothing proves that the bucket belongs to this claim: use spec.generateBucketName, and delete this bucket by hand if nobody needs it"
    )]
    TagsNotKept { bucket: String },
    /// The user exists and is not the claim's.
    #[error(
        "IAM user {user:?} already exists, without the tags of this claim: if it belongs to this claim, tag it with objectbucket.io/claim-uid and the claim's uid; otherwise delete it if nobody needs it"
    )]
    UserTaken { user: String },
    /// Some objects cannot be deleted. `count` is their number among the objects listed so far, `key` the first of
    /// them.
    #[error("bucket {bucket:?} cannot be emptied: {count} of its objects cannot be deleted, first {key:?} ({code}){}", object_lock(.code))]
    ObjectsNotDeleted { bucket: String, key: String, code: String, count: u64 },
    /// Some objects are locked. `count` and `key` as before.
    #[error(
        "bucket {bucket:?} cannot be emptied: {count} of its objects cannot be deleted; the first, {key:?}, {lock}"
    )]
    ObjectsLocked { bucket: String, key: String, count: u64, lock: Lock },
    /// After all objects were deleted, others were there again.
    #[error(
        "bucket {bucket:?} is not empty, although everything in it was deleted several times ({removed} objects the last time): stop what writes to it, such as server access logging or a replication rule; retrying"
    )]
    ObjectsKeepArriving { bucket: String, removed: u64 },
    /// S3 does not delete such a bucket.
    #[error(
        "bucket {bucket:?} has {}: delete them, because S3 does not delete such a bucket", access_points(.names)
    )]
    HasAccessPoints { bucket: String, names: Vec<String> },
    /// The store lists no object, but refuses to delete the bucket because it is not empty.
    #[error("bucket {bucket:?} is not empty, but lists nothing that can be deleted; retrying")]
    BucketNotEmpty { bucket: String },
    /// The store does not know an operation.
    #[error("the store does not support {operation} on {resource} ({code}): use a store that does{}{}", abac(*.operation), aws_message(.message))]
    NotSupported { operation: Operation, resource: Resource, code: String, message: Option<String> },
    /// Any other refusal.
    #[error("the store refused {operation} on {resource} ({code}){}{}", rejected(*.operation, .code), aws_message(.message))]
    Rejected { operation: Operation, resource: Resource, code: String, message: Option<String> },
    /// The role could not be assumed, so the call was not sent.
    #[error(transparent)]
    NotAssumed(Box<Error>),
    /// An error of a verb that has changed nothing at the store.
    #[error(transparent)]
    NoSideEffects(Box<Error>),
}

/// Who owns a bucket that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenBy {
    /// Another AWS account.
    AnotherAccount,
    /// Another claim.
    AnotherClaim,
    /// Somebody who created it before the claim, whatever its tags are.
    Older,
    /// Another AWS account, or this one if the provisioning credentials may not read tags.
    Unreadable,
    /// Somebody in the same account.
    Unknown,
}

impl TakenBy {
    fn sentence(&self) -> &'static str {
        match self {
            Self::AnotherAccount => {
                "is taken by another AWS account: choose another name, or use spec.generateBucketName"
            }
            Self::Unreadable => {
                "exists, and its tags cannot be read: it belongs to another AWS account, or the provisioning credentials lack s3:GetBucketTagging; choose another name, or use spec.generateBucketName"
            }
            Self::AnotherClaim => {
                "has the tags of another claim: choose another name; or, if it is the bucket of a deleted claim of this name, see the annotation objectbucket.io/undo-delete"
            }
            Self::Older => {
                "is older than this claim, so it was not created for it: choose another name, or ask an admin for a StorageClass with this bucketName"
            }
            Self::Unknown => {
                "already exists and does not belong to this claim: choose another name, or ask an admin for a StorageClass with this bucketName"
            }
        }
    }
}

/// Why a claim cannot have access by an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssociationProblem {
    /// Nothing proves that the operator has made it.
    NotOurs,
    /// It has statements of claims, but has lost its tags.
    Untagged,
    /// It was made for another Kubernetes cluster.
    OtherCluster,
    /// Other claims have access by it, with another role than that of the claim's class.
    OtherRole,
    /// Somebody has added a target role.
    TargetRole,
    /// Its policy cannot be read.
    Unreadable,
}

impl AssociationProblem {
    fn sentence(self) -> &'static str {
        match self {
            Self::NotOurs => {
                "this operator has not made, and a ServiceAccount can have only one: use another ServiceAccount for this claim, or delete that association if nobody needs it"
            }
            Self::Untagged => {
                "has lost its tags, and other claims have access by it: restore the tags objectbucket.io/managed-by, claim-namespace and service-account, or use another ServiceAccount for this claim"
            }
            Self::OtherCluster => {
                "was made for the pods of another Kubernetes cluster: use a StorageClass whose eksCluster is the cluster of this claim"
            }
            Self::OtherRole => {
                "gives another role than podRole of this claim's StorageClass, and other claims have access by it: use another ServiceAccount for this claim, or a StorageClass with the podRole of those claims; if somebody has changed the role of the association, change it back"
            }
            Self::TargetRole => {
                "has a target role (targetRoleArn), which the operator has not set: remove the target role, or use another ServiceAccount for this claim"
            }
            Self::Unreadable => {
                "has a policy that cannot be read: correct the policy, or use another ServiceAccount for this claim"
            }
        }
    }
}

/// Who has set something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// The StorageClass.
    Class,
    /// The claim.
    Claim,
}

impl SetBy {
    fn of(self, setting: &str) -> String {
        match self {
            Self::Class => format!("parameter {setting} of the StorageClass"),
            Self::Claim => format!("spec.additionalConfig.{setting}"),
        }
    }
}

/// Whether a call without an answer can have taken effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// There was a connection, so the call may have been sent.
    Perhaps,
    /// There was no connection.
    No,
}

impl Sent {
    fn no_answer(self, operation: Operation, resource: &Resource) -> String {
        let service = operation.service().title();
        match self {
            Self::Perhaps => format!("no answer from {service} to {operation} on {resource}"),
            Self::No => format!("cannot connect to {service} for {operation} on {resource}"),
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::Perhaps => "; if this stays, an admin must check the operator's network",
            Self::No => "; an admin must check the endpoints in the StorageClass, and the operator's network",
        }
    }
}
