//! The one trait that a store implements: [`Provisioner`].
//!
//! Everything Kubernetes (claims, bucket records, Secrets, ConfigMaps, conditions, events, retries)
//! is done by [`crate::controller`]; everything about the store is done behind this trait. Neither
//! knows the other.
//!
//! # Flow
//! 1. [`plan`](Provisioner::plan) decides, without any I/O, what a claim will get. The controller
//!    writes the decision into the claim's ObjectBucket *before* it calls the store.
//! 2. [`provision`](Provisioner::provision) or [`grant`](Provisioner::grant) makes it so and returns
//!    the app's credentials, which go into the claim's Secret.
//! 3. [`probe`](Provisioner::probe) says whether these credentials work yet. Only then is the claim Bound.
//! 4. While the claim is bound, [`check`](Provisioner::check) looks from time to time whether all is as it was
//!    made, and [`rotate`](Provisioner::rotate) issues the keys that follow.
//! 5. [`revoke`](Provisioner::revoke) or [`delete`](Provisioner::delete) undoes it, from the record alone.
//!
//! # Guarantees that an implementation may build on
//! - Verbs for one claim never run concurrently in one process.
//! - A verb is only called with a [`Record`] that has been stored; the same record is passed again until
//!   the verb succeeds.
//!
//! # What an implementation must guarantee
//! - Each verb is idempotent and may be dropped at any await: a later call with the same record
//!   finishes (or undoes) what an earlier one began, and never makes a second user or bucket.
//! - What exists already and is not proven to belong to the record's claim is neither used nor removed.
//! - No secret appears in an error or in a Debug output.

mod reason;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

use secrecy::SecretString;

pub use self::reason::{Reason, Topic};
pub(crate) use self::reason::reasons;

/// Who claims: the identity of an ObjectBucketClaim.
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
    /// Neither: only a class that names a bucket can satisfy this.
    Unspecified,
}

/// What happens to a bucket that the operator created when its claim is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// The bucket and all that is in it is deleted.
    Delete,
    /// The bucket stays; only the claim's access is taken away.
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

/// What a claim asks and what its class says: the input of [`Provisioner::plan`].
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
    /// Whether it asks for the first time: what a class allows claims to ask for counts then, and not where what was made
    /// is planned once more.
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

/// Where the bucket comes from, and with it what may be done to it.
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

/// Where the bucket is reached.
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

/// What a claim will get: decided by [`Provisioner::plan`], recorded in the ObjectBucket, and all that
/// the verbs know of the claim's class. Nothing secret belongs in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the bucket.
    pub bucket: String,
    /// Whether the operator creates it.
    pub mode: Mode,
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// Where the owner credentials come from; `None` is the operator's own (ambient) identity.
    pub owner_secret: Option<SecretRef>,
    /// The user issued to the claim; `None` if the claim shares the owner's credentials.
    pub user: Option<String>,
    /// When its keys are replaced.
    pub rotation: Rotation,
    /// Whatever else the verbs need, in the store's own keys.
    pub state: BTreeMap<String, String>,
}

/// When the keys of a claim are replaced, and how long the former ones go on working then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// The age at which keys are replaced; `None`: only when somebody asks for it.
    pub every: Option<Duration>,
    /// How long keys that were replaced are kept for apps that have not read the new ones yet.
    pub grace: Duration,
}

impl Rotation {
    /// How long replaced keys are kept by default: apps that read their keys once have a day to be restarted.
    pub const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 60 * 60);
}

impl Default for Rotation {
    fn default() -> Self {
        Self { every: None, grace: Self::DEFAULT_GRACE }
    }
}

/// The stored intent: a [`Plan`] together with the claim it was made for. This is the content of an
/// ObjectBucket, and the only input of [`Provisioner::revoke`] and [`Provisioner::delete`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The claim.
    pub claim: ClaimId,
    /// UIDs of the claims that had this record before, oldest first: it was adopted from a backup or from another
    /// cluster. The names in the plan, and tags, may still hold one of them.
    pub former_uids: Vec<String>,
    /// UID of the cluster in which it was made or adopted; `None` in records of earlier versions.
    pub cluster: Option<String>,
    /// Account of the owner's credentials it was made with; `None` if the store has none, or did not say.
    pub account: Option<String>,
    /// The claim's credentials were seen to work, so that an app may have used the bucket.
    pub handed_over: bool,
    /// Name of the StorageClass the plan was made from. It may be gone by now.
    pub class_name: String,
    /// What becomes of a created bucket.
    pub reclaim_policy: ReclaimPolicy,
    /// The plan.
    pub plan: Plan,
}

impl Record {
    /// Whether `uid` is the claim's or that of a claim which had the record before it.
    pub fn names_uid(&self, uid: &str) -> bool {
        self.uids().any(|known| known == uid)
    }

    /// The claim's uid and those of the claims which had the record before it.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.claim.uid.as_str()).chain(self.former_uids.iter().map(String::as_str))
    }
}

/// The data of the owner's Secret, or the lack of one; see [`Provisioner::owner`].
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

/// The keys issued to one claim: what goes into its Secret.
#[derive(Debug, Clone)]
pub struct AppCredentials {
    /// Access key id. Not secret by itself.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: SecretString,
    /// Session token, where the owner's credentials are shared and are temporary.
    pub session_token: Option<SecretString>,
}

/// Whether issued credentials work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// They work against the claim's bucket.
    Usable,
    /// The store does not accept them yet; the text says what it answered.
    NotYet(String),
}

/// What [`Provisioner::check`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkup {
    /// What had drifted and was set right, a sentence each, fit for an event.
    pub repaired: Vec<String>,
    /// Ids of keys that were deleted, for they were not among those to be kept.
    pub deleted_keys: Vec<String>,
    /// The present keys, or the user they belong to, are gone, as far as can be seen: they are tried, and if they
    /// are refused, [`Provisioner::grant`] is called for new ones.
    pub keys_lost: bool,
    /// When the present keys were issued, if the store says. What is noted of it elsewhere may have been edited.
    pub issued_at: Option<SystemTime>,
}

/// What a store tells of the claim that a bucket was made for; see [`Provisioner::recall`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recalled {
    /// The claim, as it was then.
    pub claim: ClaimId,
    /// UID of the cluster that it was in.
    pub cluster: Option<String>,
    /// UIDs of claims that had the bucket before that one.
    pub former_uids: Vec<String>,
    /// The user that was issued to it.
    pub user: Option<String>,
}

/// How far [`Provisioner::revoke`] or [`Provisioner::delete`] came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Nothing is left to do.
    Done(Removed),
    /// A bounded piece of a long removal is done; call again, others may go first.
    Partial {
        /// Objects (versions, delete markers, uploads) removed by this call.
        removed: u64,
    },
}

/// What a removal found, and what became of it. The last message about a claim says this and nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The user with its credentials.
    pub access: Fate,
    /// The bucket with its content.
    pub bucket: Fate,
}

/// What became of something that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was not to be removed, or nothing of the kind is recorded.
    Kept,
    /// It was there, and the store has confirmed that it is gone.
    Removed,
    /// It was not there: it is gone already, or the store does not show it yet.
    Missing,
    /// It was left in place, mostly because it is not proven to belong to the claim. A sentence that says why, fit
    /// for an event.
    Left(String),
}

impl Removed {
    /// Whether something that the record names was not there.
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

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// It may pass by itself: retried with backoff.
    Retryable,
    /// Somebody must change something first: rechecked slowly, and at once when an input changes.
    Terminal,
}

/// An error that a user can read and act upon.
///
/// `Display` gives the sentence for conditions and events: it names the field, the value and the
/// remedy, is the same for the same cause (no request ids, no times), and holds no secret.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Machine-readable reason in CamelCase, for conditions and events.
    fn reason(&self) -> &'static str;
    /// Whether trying again can help.
    fn class(&self) -> FailureClass;
    /// True if the store has certainly changed nothing on behalf of the call that failed. A record
    /// that was written just before such a call is withdrawn.
    fn store_untouched(&self) -> bool {
        false
    }
    /// True if every claim on this store and of this owner would fail now in the same way, as the store does not answer,
    /// or refuses the owner. After several of them in a row one claim at a time asks that store.
    fn concerns_all(&self) -> bool {
        false
    }
    /// True if what the claim was given is lost, and not only a call about it has failed. That is said on a
    /// bound claim, too.
    fn lost(&self) -> bool {
        false
    }
}

/// A store that can make buckets and give access to them. See the [module](self) for the contract.
pub trait Provisioner: Send + Sync + 'static {
    /// The owner's credentials, parsed and checked.
    type Owner: Send + Sync;
    /// Why a step failed.
    type Error: Failure;

    /// Decides what the claim gets. Pure: the same request gives the same plan, always.
    ///
    /// # Errors
    /// A class parameter or a name that cannot be used, named together with its value and the remedy.
    fn plan(&self, request: &Request<'_>) -> Result<Plan, Self::Error>;

    /// Parses the owner's credentials. Pure.
    ///
    /// # Errors
    /// A key that is missing, empty or padded with white space; and sources the record cannot use.
    fn owner(&self, record: &Record, source: OwnerSource) -> Result<Self::Owner, Self::Error>;

    /// The account that the owner's credentials belong to. It is recorded with what is made, and whatever is missing
    /// in another account is not taken for gone. Called before every verb: the answer should be kept for as long as
    /// the credentials stay the same.
    ///
    /// `None` by default: this store has no accounts, or does not tell.
    ///
    /// # Errors
    /// A store that could tell and does not answer, or that refuses the credentials.
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
    /// Whatever credentials an earlier call may have issued are replaced: their secret is lost.
    ///
    /// # Errors
    /// Whatever the store refused, or a name that is taken by somebody else.
    fn provision(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<AppCredentials, Self::Error>> + Send;

    /// Creates a user limited to a bucket that exists. A bucket that the record says was created has to be the
    /// claim's still: its name may have been given to somebody else since.
    ///
    /// # Errors
    /// As [`provision`](Self::provision), and a bucket that is missing, forbidden or elsewhere.
    fn grant(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<AppCredentials, Self::Error>> + Send;

    /// Tries the issued credentials against the bucket, once.
    ///
    /// # Errors
    /// A store that cannot be reached, or credentials that can never work.
    fn probe(
        &self,
        record: &Record,
        credentials: &AppCredentials,
    ) -> impl Future<Output = Result<Probe, Self::Error>> + Send;

    /// Issues other keys to the claim's user, beside `present`, the id of those that its apps use. Any further
    /// keys of the user are deleted first: nobody has their secret.
    ///
    /// `None` by default: keys of this store cannot be replaced while they are in use.
    ///
    /// # Errors
    /// Whatever the store refused.
    fn rotate(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: &str,
    ) -> impl Future<Output = Result<Option<AppCredentials>, Self::Error>> + Send {
        let _ = (record, owner, present);
        std::future::ready(Ok(None))
    }

    /// Compares what is there with what was made for a bound claim, sets right what drifted, and deletes all
    /// keys of the claim's user but `keys`, of which the first is in use. Called from time to time.
    ///
    /// Finds all well by default.
    ///
    /// # Errors
    /// Whatever the store refused; and, with [`Failure::lost`], what cannot be set right.
    fn check(
        &self,
        record: &Record,
        owner: &Self::Owner,
        keys: &[&str],
    ) -> impl Future<Output = Result<Checkup, Self::Error>> + Send {
        let _ = (record, owner, keys);
        std::future::ready(Ok(Checkup::default()))
    }

    /// Looks up, from what the store itself knows, for which claim the planned bucket was made: for an admin who has lost
    /// the record. Only reads. `record` is what would be planned for a claim of that namespace and name now.
    ///
    /// `None` by default, and where the store tells nothing.
    ///
    /// # Errors
    /// Whatever the store refused.
    fn recall(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<Option<Recalled>, Self::Error>> + Send {
        let _ = (record, owner);
        std::future::ready(Ok(None))
    }

    /// Takes the access away and leaves the bucket alone. What is gone already counts as removed.
    ///
    /// `present` are the credentials in the claim's Secret, if it has any. A user that holds them is the claim's own,
    /// whatever became of its tags. If the store knows no such user although the record was
    /// [handed over](Record::handed_over), they are tried: access that still works is not gone.
    ///
    /// # Errors
    /// Whatever the store refused.
    fn revoke(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: Option<&AppCredentials>,
    ) -> impl Future<Output = Result<Removal, Self::Error>> + Send;

    /// Takes the access away as [`revoke`](Self::revoke) does, then deletes the bucket with all that is in it, in
    /// bounded pieces.
    ///
    /// # Errors
    /// Whatever the store refused, for the whole or for a single object.
    fn delete(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: Option<&AppCredentials>,
    ) -> impl Future<Output = Result<Removal, Self::Error>> + Send;
}
