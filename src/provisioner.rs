//! The one trait that a store implements: [`Provisioner`].
//!
//! [`crate::controller`] does everything about Kubernetes (claims, bucket records, Secrets, ConfigMaps, conditions,
//! events, retries). An implementation of this trait does everything about the store. Neither knows the other. The file is
//! long because it is all that an author of a provisioner has to read.
//!
//! # Flow
//! 1. [`plan`](Provisioner::plan) decides, without any I/O, what a claim gets. The controller writes the decision into
//!    the claim's ObjectBucket *before* it calls the store.
//! 2. [`provision`](Provisioner::provision) or [`grant`](Provisioner::grant) creates what was planned and returns the
//!    app's credentials, which go into the claim's Secret.
//! 3. [`probe`](Provisioner::probe) tries these credentials. Only when they work does the claim become Bound.
//! 4. While the claim is bound, [`check`](Provisioner::check) compares the store with the record from time to time, and
//!    [`rotate`](Provisioner::rotate) issues new keys.
//! 5. [`revoke`](Provisioner::revoke) or [`delete`](Provisioner::delete) removes everything, from the record alone.
//!
//! # Guarantees to an implementation
//! - Verbs for one claim never run concurrently in one process.
//! - A verb is only called with a [`Record`] that has been stored. The same record is passed again until the verb
//!   succeeds.
//!
//! # Guarantees of an implementation
//! - Each verb is idempotent and can be dropped at any await: a later call with the same record finishes (or removes)
//!   what an earlier one began, and never creates a second user or bucket.
//! - What already exists and is not proven to belong to the record's claim is neither used nor removed.
//! - No secret appears in an error or in a Debug output.

mod reason;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use secrecy::SecretString;

pub(crate) use self::reason::reasons;
pub use self::reason::{Reason, Topic};

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

/// Which bucket a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedBucket {
    /// `spec.generateBucketName`: a new name that starts with this prefix (as the user wrote it).
    Generated {
        /// Prefix of the name, not yet checked against the store's rules.
        prefix: String,
    },
    /// `spec.bucketName`: exactly this name, not yet checked against the store's rules.
    Named(String),
    /// Neither; only possible with a class that names a bucket.
    Unspecified,
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

/// What a claim asks for, and what its class says: the input of [`Provisioner::plan`].
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The claim.
    pub claim: &'a ClaimId,
    /// The bucket it asks for.
    pub bucket: WantedBucket,
    /// Name of its StorageClass, for messages.
    pub class_name: &'a str,
    /// `parameters` of its StorageClass, as the admin wrote them.
    pub parameters: &'a BTreeMap<String, String>,
    /// Whether the claim is new. Restrictions of the class on what a claim can ask for apply to new claims only, and
    /// not when an existing one is planned again.
    pub is_new: bool,
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
    /// Greenfield: the operator creates the bucket ([`Provisioner::provision`]).
    Created,
    /// Brownfield: the bucket existed and only access is given ([`Provisioner::grant`]).
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

/// What a claim gets: decided by [`Provisioner::plan`], recorded in the ObjectBucket, and all that the verbs know about
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
    /// Whatever else the verbs need, in the store's own keys.
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

/// A [`Plan`] and its claim. This is the content of an ObjectBucket, and all that [`Provisioner::revoke`] and
/// [`Provisioner::delete`] need.
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

impl Record {
    /// Whether `uid` is that of the claim, or of a claim that had the record before.
    pub fn names_uid(&self, uid: &str) -> bool {
        self.uids().any(|known| known == uid)
    }

    /// The uids of the claim, and of the claims that had the record before.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.claim.uid.as_str()).chain(self.former_uids.iter().map(String::as_str))
    }
}

/// The data of the owner's Secret, if the class names one; see [`Provisioner::owner`].
pub enum OwnerSource {
    /// The class names no Secret: the operator's own identity is used.
    Ambient,
    /// The Secret that the class names.
    Secret {
        /// Its name, for messages.
        reference: SecretRef,
        /// Its `data`, decoded from base64.
        data: BTreeMap<String, Vec<u8>>,
    },
}

impl fmt::Debug for OwnerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambient => f.write_str("Ambient"),
            Self::Secret { reference, .. } => write!(f, "Secret({reference})"),
        }
    }
}

/// The keys of a claim, for its Secret.
#[derive(Debug, Clone)]
pub struct AppCredentials {
    /// Access key id. Not secret by itself.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: SecretString,
    /// Session token, if the claim shares the owner's credentials and these are temporary.
    pub session_token: Option<SecretString>,
}

/// Whether issued credentials work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// They work against the claim's bucket.
    Usable,
    /// The store does not accept them yet. The text is its answer.
    NotYet(String),
}

/// What [`Provisioner::check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkup {
    /// What had changed and was repaired, a sentence each, for an event.
    pub repaired: Vec<String>,
    /// Ids of the keys that were deleted, because they were not among those to keep.
    pub deleted_keys: Vec<String>,
    /// The store shows neither the present keys nor, perhaps, their user. The keys are tried, and if the store refuses
    /// them, [`Provisioner::grant`] issues new ones.
    pub keys_lost: bool,
    /// When the present keys were issued, if the store says. Annotations about this can have been edited.
    pub issued_at: Option<SystemTime>,
}

/// What a store knows about the claim for which a bucket was created; see [`Provisioner::recall`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recalled {
    /// The claim at that time.
    pub claim: ClaimId,
    /// UID of its cluster.
    pub cluster: Option<String>,
    /// UIDs of the claims that had the bucket before.
    pub former_uids: Vec<String>,
    /// The claim's user.
    pub user: Option<String>,
}

/// How far [`Provisioner::revoke`] or [`Provisioner::delete`] got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Nothing is left to do.
    Done(Removed),
    /// A part of a long removal is done. Call again; other claims can go first.
    Partial {
        /// Objects (versions, delete markers, uploads) removed by this call.
        removed: u64,
    },
}

/// What a removal found and removed. The last event of a claim says this and nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The user with its credentials.
    pub access: Fate,
    /// The bucket with its content.
    pub bucket: Fate,
}

/// What happened to a user or bucket that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It should not be removed, or the record names none.
    Kept,
    /// It existed, and the store has confirmed the removal.
    Removed,
    /// It was not found: it was removed before, or the store does not show it yet.
    Missing,
    /// It was left in place, mostly because nothing proves that it belongs to the claim. A sentence that says why, for
    /// an event.
    Left(String),
}

impl Removed {
    /// Whether something that the record names was not found.
    pub fn missed_something(&self) -> bool {
        self.access == Fate::Missing || self.bucket == Fate::Missing
    }

    /// Why things were left in place, a sentence each.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        [&self.access, &self.bucket].into_iter().filter_map(|fate| match fate {
            Fate::Left(why) => Some(why.as_str()),
            Fate::Kept | Fate::Removed | Fate::Missing => None,
        })
    }
}

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// It can: retried with backoff.
    Retryable,
    /// Somebody must change something first: rechecked rarely, and at once when an input changes.
    Terminal,
}

/// An error that a user can understand and act on.
///
/// `Display` is the sentence for conditions and events. It names the field, the value and the remedy, is the same for
/// the same cause (no request ids, no times), and contains no secret.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Machine-readable reason in CamelCase, for conditions and events.
    fn reason(&self) -> &'static str;
    /// Whether a retry can help.
    fn class(&self) -> FailureClass;
    /// True if the failed call has certainly changed nothing at the store. A record that was written just before such a
    /// call is withdrawn.
    fn store_untouched(&self) -> bool {
        false
    }
    /// True if all claims with this store and owner would fail in the same way, because the store does not answer or
    /// refuses the owner. After several such errors in a row, only one claim at a time calls that store.
    fn concerns_all(&self) -> bool {
        false
    }
    /// True if the claim has lost its bucket or its access, and not only a call has failed. This is reported on a bound
    /// claim, too.
    fn lost(&self) -> bool {
        false
    }
}

/// What a store is told before it has to work; see [`Provisioner::start`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Start {
    /// `StorageClass.provisioner` of the classes that are served: to mark what is created.
    pub provisioner_name: String,
    /// Whether this process may call the store.
    pub permit: Permit,
}

/// Whether this process may act: of several operators only one works at a time, the one that holds the lease. The
/// controller stops by itself when the lease is lost. A store that makes many calls in one verb, or has its own retries,
/// asks directly before each call.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> bool + Send + Sync>);

impl Permit {
    /// A permit that lasts.
    pub fn always() -> Self {
        Self::new(|| true)
    }

    /// A permit for as long as `holds` returns true.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// Whether it lasts. Cheap enough to be asked before each call.
    pub fn holds(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.holds())
    }
}

/// A store that can create buckets and give access to them. See the [module](self) for the contract.
pub trait Provisioner: Send + Sync + 'static {
    /// The owner's credentials, parsed and checked.
    type Owner: Send + Sync;
    /// Why a step failed.
    type Error: Failure;

    /// Tells the store about its operator, once and before any other call. Ignored by default.
    fn start(&mut self, start: Start) {
        let _ = start;
    }

    /// Decides what the claim gets. Pure: the same request always gives the same plan.
    ///
    /// # Errors
    /// A class parameter or a name that cannot be used; the message has the value and the remedy.
    fn plan(&self, request: &Request<'_>) -> Result<Plan, Self::Error>;

    /// Parses the owner's credentials. Pure.
    ///
    /// # Errors
    /// A key that is missing, empty or contains white space; and a source that does not fit the record.
    fn owner(&self, record: &Record, source: OwnerSource) -> Result<Self::Owner, Self::Error>;

    /// The account of the owner's credentials. It is recorded with what is created, because what is missing in another
    /// account is not gone. Called before every verb, so the answer should be kept while the credentials stay the same.
    ///
    /// `None` by default: this store has no accounts, or does not say.
    ///
    /// # Errors
    /// The store does not answer, or refuses the credentials.
    fn account(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<Option<String>, Self::Error>> + Send {
        let _ = (record, owner);
        std::future::ready(Ok(None))
    }

    /// Creates the bucket, and a user limited to it.
    ///
    /// Credentials that an earlier call may have issued are replaced, because their secret is lost.
    ///
    /// # Errors
    /// Any refusal of the store, and a name that somebody else has taken.
    fn provision(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<AppCredentials, Self::Error>> + Send;

    /// Creates a user limited to an existing bucket. If the record says that the bucket was created, it must still be
    /// the claim's, because somebody else may have taken its name.
    ///
    /// # Errors
    /// As [`provision`](Self::provision), and a bucket that is missing, forbidden or in another region.
    fn grant(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<AppCredentials, Self::Error>> + Send;

    /// Tries the issued credentials against the bucket, once.
    ///
    /// # Errors
    /// The store does not answer, or the credentials can never work.
    fn probe(
        &self,
        record: &Record,
        credentials: &AppCredentials,
    ) -> impl Future<Output = Result<Probe, Self::Error>> + Send;

    /// Issues new keys to the claim's user and keeps `present`, the id of the keys that its apps use. Other keys of the
    /// user are deleted first, because nobody has their secret.
    ///
    /// `None` by default: this store cannot rotate keys while they are in use.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn rotate(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: &str,
    ) -> impl Future<Output = Result<Option<AppCredentials>, Self::Error>> + Send {
        let _ = (record, owner, present);
        std::future::ready(Ok(None))
    }

    /// Compares the store with the record of a bound claim, repairs what has changed, and deletes all keys of the
    /// claim's user except `keys`, of which the first is in use. Called from time to time.
    ///
    /// Finds nothing by default.
    ///
    /// # Errors
    /// Any refusal of the store; and, with [`Failure::lost`], what cannot be repaired.
    fn check(
        &self,
        record: &Record,
        owner: &Self::Owner,
        keys: &[&str],
    ) -> impl Future<Output = Result<Checkup, Self::Error>> + Send {
        let _ = (record, owner, keys);
        std::future::ready(Ok(Checkup::default()))
    }

    /// Finds out from the store for which claim the planned bucket was created, for an admin who has lost the record.
    /// Only reads. `record` is what would be planned now for a claim of that namespace and name.
    ///
    /// `None` by default, and if the store does not know.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn recall(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<Option<Recalled>, Self::Error>> + Send {
        let _ = (record, owner);
        std::future::ready(Ok(None))
    }

    /// Removes the access and keeps the bucket. What no longer exists counts as removed.
    ///
    /// `present` are the credentials in the claim's Secret, if it has any. A user with these credentials is the claim's
    /// own, even if it has lost its tags. If the store knows no such user although the record was [handed
    /// over](Record::handed_over), the credentials are tried: access that still works is not removed.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn revoke(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: Option<&AppCredentials>,
    ) -> impl Future<Output = Result<Removal, Self::Error>> + Send;

    /// Removes the access like [`revoke`](Self::revoke), then deletes the bucket with all its content, a limited part
    /// with each call.
    ///
    /// # Errors
    /// Any refusal of the store, also for a single object.
    fn delete(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: Option<&AppCredentials>,
    ) -> impl Future<Output = Result<Removal, Self::Error>> + Send;
}
