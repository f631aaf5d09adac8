//! What a claim gets, and whose it is: what an ObjectBucket records.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::parameter::{ParameterError, read};

/// The identity of an ObjectBucketClaim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim, unique in its namespace at any one time.
    pub name: String,
    /// `metadata.uid` of the claim: a UUID of 36 characters, never used twice.
    pub uid: String,
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What happens to a bucket that the operator created when its claim is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// The bucket is deleted, with all its content.
    Delete,
    /// The bucket stays. Only the claim's access is removed.
    Retain,
}

impl ReclaimPolicy {
    /// The name on the wire, as in `StorageClass.reclaimPolicy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
        }
    }
}

/// A Secret by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretRef {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where the bucket comes from, and so what the operator may do to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Greenfield: the operator creates the bucket ([`Provisioner::provision`](super::Provisioner::provision)).
    Created,
    /// Brownfield: the bucket existed and only access is given ([`Provisioner::grant`](super::Provisioner::grant)).
    Granted,
}

impl Mode {
    /// The word recorded in the ObjectBucket.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Granted => "granted",
        }
    }
}

/// The endpoint of the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// DNS name or address, without scheme and port.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Region, as the store names it.
    pub region: String,
    /// Full URL for a store whose endpoint an SDK cannot derive from the region.
    pub url: Option<String>,
}

/// What a claim gets: decided by [`Provisioner::plan`](super::Provisioner::plan), recorded in the ObjectBucket, and all that the verbs know about
/// the claim's class. Contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the bucket.
    pub bucket: String,
    /// Whether the operator creates it.
    pub mode: Mode,
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The Secret with the owner's credentials; `None` is the operator's own (ambient) identity.
    pub owner_secret: Option<SecretRef>,
    /// The user issued to the claim; `None` if the claim shares the owner's credentials.
    pub user: Option<String>,
    /// When its keys are rotated.
    pub rotation: Rotation,
    /// Whatever else the verbs need, in the store's own keys. It is recorded in `spec.additionalState`, beside the keys
    /// of [`wire::state`](crate::api::wire::state), which a store must not use.
    pub state: BTreeMap<String, String>,
}

/// When the keys of a claim are rotated, and how long the former ones still work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The age at which keys are rotated; `None`: only when somebody asks for it.
    pub every: Option<Duration>,
    /// How long the former keys are kept, for apps that have not read the new ones yet.
    pub grace: Duration,
}

impl Rotation {
    /// The default grace period: there is a day to restart apps that read their keys only once.
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
}

impl Default for Rotation {
    fn default() -> Self {
        Self { every: None, grace: Self::DEFAULT_GRACE }
    }
}

/// A [`Plan`] and its claim. This is the content of an ObjectBucket, and all that [`Provisioner::revoke`](super::Provisioner::revoke) and
/// [`Provisioner::delete`](super::Provisioner::delete) need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The claim.
    pub claim: ClaimId,
    /// UIDs of the claims that had this record before, oldest first: it was adopted from a backup or from another
    /// cluster. Tags, and the names in the plan, may still contain one of them.
    pub former_uids: Vec<String>,
    /// UID of the cluster in which it was created or adopted; `None` in records of earlier versions.
    pub cluster: Option<String>,
    /// Account of the owner's credentials at that time; `None` if the store has no accounts, or did not say.
    pub account: Option<String>,
    /// The claim's credentials have worked, so an app may have used the bucket.
    pub handed_over: bool,
    /// Name of the StorageClass from which the plan was made. The class may no longer exist.
    pub class_name: String,
    /// What happens to a created bucket when the claim is deleted.
    pub reclaim_policy: ReclaimPolicy,
    /// The plan.
    pub plan: Plan,
}

/// Begins the keys of [`Plan::state`] that hold class parameters.
pub(super) const PARAMETER: &str = "parameter.";

impl Record {
    /// The parameters of the class, as they were when the plan was made, if the plan is the
    /// [usual one](super::Request::plan).
    ///
    /// # Errors
    /// A parameter that the type does not accept: the record was made by a version with other parameters.
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, ParameterError> {
        let parameter =
            |(key, value): (&String, &String)| Some((key.strip_prefix(PARAMETER)?.to_owned(), value.clone()));
        read(&self.plan.state.iter().filter_map(parameter).collect())
    }

    /// Whether `uid` is that of the claim, or of a claim that had the record before.
    pub fn names_uid(&self, uid: &str) -> bool {
        self.uids().any(|known| known == uid)
    }

    /// The uids of the claim, and of the claims that had the record before.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.claim.uid.as_str()).chain(self.former_uids.iter().map(String::as_str))
    }
}
