//! The one trait that a store implements: [`Provisioner`].
//!
//! [`crate::controller`] does everything about Kubernetes (claims, bucket records, Secrets, ConfigMaps, conditions,
//! events, retries). An implementation of this trait does everything about the store. Neither knows the other.
//!
//! # Flow
//! 1. [`plan`](Provisioner::plan) decides, without any I/O, what a claim gets. The controller writes the decision into
//!    the claim's ObjectBucket *before* it calls the store.
//! 2. [`create_bucket`](Provisioner::create_bucket) and [`grant`](Provisioner::grant) create what was planned. The app's
//!    credentials go into the claim's Secret. For a bucket that existed before there is only `grant`.
//! 3. [`probe`](Provisioner::probe) tries these credentials. Only when they work does the claim become Bound.
//! 4. While the claim is bound, [`check`](Provisioner::check) compares the store with the record from time to time, and
//!    [`rotate`](Provisioner::rotate) issues new keys.
//! 5. [`revoke`](Provisioner::revoke) and [`delete_bucket`](Provisioner::delete_bucket) remove everything, from the record
//!    alone. A bucket that is kept is only revoked.
//!
//! lib-bucket-provisioner has four verbs as well. Its Provision is `create_bucket`, then `grant`; its Delete is `revoke`, then
//! `delete_bucket`. Here the library combines them ([`provision`], [`delete`]), because mistakes in the combination
//! lose or leak something.
//!
//! # Guarantees to an implementation
//! - Verbs for one claim never run concurrently in one process, unless the store [allows
//!   it](Provisioner::creates_in_parallel); those for different claims do. Of several processes only the one that holds
//!   the lease changes the store ([`Permit`]).
//! - [`create_bucket`](Provisioner::create_bucket) and [`grant`](Provisioner::grant) get a [`Record`] that has been stored.
//!   They are called with the same record until they succeed, or until `revoke` and `delete_bucket` have undone what they may
//!   have begun. A record is forgotten without that only if it is new and the store has [refused](CreateError::Refused) it,
//!   or if an admin requests it.
//! - [`revoke`](Provisioner::revoke) and [`delete_bucket`](Provisioner::delete_bucket) are called until they succeed, and
//!   once more later if something was [not found](AccessRemoval::NotFound) that may have been created less than the
//!   [consistency lag](Provisioner::consistency_lag) ago. A record of a bucket that existed before ([`Mode::Granted`]) never
//!   gets to `delete_bucket`, and no bucket is deleted before its access has ended.
//! - A bucket may be emptied ([`Content::Delete`]) only if its credentials were published, or an admin has requested it.
//! - Before a verb gets the provisioning credentials, they are parsed, and their [`account`](Provisioner::account) is
//!   compared with the recorded one.
//! - A verb that takes longer than two minutes is dropped, and called again later; time in [`rate_wait::wait`] does not
//!   count. A verb that panics is called again, too. What still runs some seconds after the process received SIGTERM is
//!   dropped.
//!
//! # Duties of an implementation
//! - **Each verb is idempotent, and can be dropped at any await.** A later call with the same record finishes (or
//!   removes) what an earlier one began, and never creates a second user or bucket: all names are in the record. A
//!   call may follow one that succeeded, because the operator can stop before it has written down the answer.
//! - **What is foreign is neither used nor removed.** A name that a user chose proves nothing. Mark what you create with
//!   the uid of the claim, if possible in the call that creates it, and compare with [`Record::names_uid`]. What exists
//!   without proof is an error of `create_bucket` and `grant`, except the bucket that a class names ([`Mode::Granted`]), as
//!   long as no other claim's mark is on it; `revoke` and `delete_bucket` [leave it in place](BucketRemoval::LeftInPlace).
//! - **Only what is certainly missing counts as removed.** An error is not "not found".
//! - **`revoke` and `delete_bucket` work from the call alone.** The class may have been deleted by then, or have other
//!   parameters.
//! - **[`CreateError::Refused`] is certain.** The store has refused the very first call of the verb that changes something, or
//!   was never reached. After a timeout nothing is certain.
//! - **Messages are the same for the same cause**: without ids of requests, and without times. Reasons are in
//!   [`REASONS`](Provisioner::REASONS).
//! - **No secret** is in an error, a Debug output or a log; nor in a [`Plan`], because all of it can be read in the
//!   cluster. Secrets are in [`AppCredentials`] only. That also holds for the provisioning credentials.
//! - [`endpoint`](Provisioner::endpoint), [`plan`](Provisioner::plan) and
//!   [`check_bucket_name`](Provisioner::check_bucket_name) are pure: no I/O, and always the same answer.
//! - **No verb blocks its thread**, which everything else shares: the lease, the probes, the verbs for other claims. Work
//!   with files or the processor belongs into [`tokio::task::spawn_blocking`].
//! - A verb that takes long returns early, so that other claims in the queue are served: `delete_bucket` with
//!   [`BucketRemoval::Partial`], the other verbs with [`FailureClass::InProgress`].
//!
//! # Present
//! [`Call::present`] is what the claim's apps use now: the credentials in the claim's Secret, which its users can edit. A
//! user with this key and this secret is the claim's own, even if it has lost its marks, but not if it has those of another
//! claim. If `revoke` does not find the user, but the credentials still work, the access is not removed, and the verb fails.
//!
//! # Class parameters
//! `Option` fields can be left out; numbers and booleans are parsed. A value that can be wrong gets a type with
//! `#[serde(try_from = "String")]` and `#[schemars(with = "String")]`. An operator does not start if the struct has
//! `#[serde(flatten)]` or a field that is named like one of the [common parameters](CommonParameters). Do not use
//! `deny_unknown_fields`. What an earlier version has recorded must still be readable, also to delete the claim: a field that
//! comes later is an `Option` or has `#[serde(default)]`.
//!
//! # Outputs
//! A secret, or what belongs to the keys, is an entry of the claim's Secret: [`AppCredentials::with_output`]. Everything else
//! is an entry of its ConfigMap: [`Plan::with_output`]. The ConfigMap is repaired like the standard entries, and a bound
//! claim keeps what was planned for it; the Secret is written with each new pair of keys. A plan with a standard key, with an
//! empty value or with more than 32 entries is refused before a verb is called (reason `InvalidOutput`). Keys are published
//! without an entry that cannot be written, and a Warning event names it.
//!
//! # Example
//! A store in memory, and its verbs called as the library calls them:
//!
//! ```
//! # use std::collections::BTreeMap;
//! # use std::sync::{Mutex, MutexGuard, PoisonError};
//! use bucket_provisioner::Provisioner;
//! use bucket_provisioner::store::{
//!     self, AccessRemoval, AppCredentials, BucketRemoval, Call, ClaimId, Content, CreateError, Endpoint, Mode, Plan,
//!     Reason, ReclaimPolicy, Record, StoreError, Topic,
//! };
//!
//! const NOT_YOURS: Reason =
//!     Reason::new("BucketNotYours", Topic::Claim).meaning("the bucket is not the claim's").remedy("choose another name");
//!
//! #[derive(Default)]
//! struct Shelf {
//!     /// The uid of the claim for which each bucket was created.
//!     buckets: Mutex<BTreeMap<String, String>>,
//!     /// The key of each user.
//!     users: Mutex<BTreeMap<String, String>>,
//! }
//! # fn lock<T>(things: &Mutex<T>) -> MutexGuard<'_, T> {
//! #     things.lock().unwrap_or_else(PoisonError::into_inner)
//! # }
//! # fn new_key() -> String {
//! #     format!("{:032x}", rand::random::<u128>())
//! # }
//!
//! impl Shelf {
//!     fn check(&self, call: &Call<'_, Self>) -> Result<(), StoreError> {
//!         if lock(&self.buckets).get(call.bucket()).is_some_and(|uid| call.record.names_uid(uid)) {
//!             return Ok(());
//!         }
//!         let message = format!("bucket {:?} is not this claim's; choose another name", call.bucket());
//!         Err(StoreError::terminal(&NOT_YOURS, message))
//!     }
//! }
//!
//! impl Provisioner for Shelf {
//!     type Parameters = ();
//!     type Owner = ();
//!     type Error = StoreError;
//!
//!     const REASONS: &'static [&'static Reason] = &[&NOT_YOURS];
//!
//!     fn endpoint(&self, (): &()) -> Endpoint {
//!         Endpoint::new("shelf.example.com", 443)
//!     }
//!
//!     async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
//!         // What an earlier call has created stays as it is; so does what is foreign.
//!         lock(&self.buckets).entry(call.bucket().to_owned()).or_insert_with(|| call.record.claim.uid.clone());
//!         self.check(call).map_err(CreateError::Refused)
//!     }
//!
//!     async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
//!         self.check(call).map_err(CreateError::Refused)?;
//!         // Nobody may have seen the key of an earlier call: it is replaced.
//!         let key = new_key();
//!         lock(&self.users).insert(call.user().to_owned(), key.clone());
//!         Ok(AppCredentials::new(call.user(), key.into()))
//!     }
//!
//!     async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
//!         Ok(match lock(&self.users).remove(call.user()) {
//!             Some(_) => AccessRemoval::Deleted,
//!             None => AccessRemoval::NotFound,
//!         })
//!     }
//!
//!     // The buckets of this store never hold anything, so their content does not matter.
//!     async fn delete_bucket(&self, call: &Call<'_, Self>, _: Content) -> Result<BucketRemoval, StoreError> {
//!         let mut buckets = lock(&self.buckets);
//!         Ok(match buckets.get(call.bucket()) {
//!             Some(uid) if call.record.names_uid(uid) => {
//!                 buckets.remove(call.bucket());
//!                 BucketRemoval::Deleted
//!             }
//!             Some(_) => BucketRemoval::LeftInPlace("the bucket was left in place: it is another claim's".to_owned()),
//!             None => BucketRemoval::NotFound,
//!         })
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), CreateError<StoreError>> {
//! let shelf = Shelf::default();
//! let record = |claim: &str, uid: &str| {
//!     let plan = Plan::new("photos", Mode::Created, shelf.endpoint(&())).with_user(format!("shop-{claim}"));
//!     let claim = ClaimId { namespace: "shop".to_owned(), name: claim.to_owned(), uid: uid.to_owned() };
//!     Record::new(claim, "shelves", ReclaimPolicy::Delete, plan)
//! };
//! let mine = record("photos", "f30e0389-0689-48a2-bfaa-74d1bf1fd950");
//! let foreign = record("pictures", "0e5f3a52-1f0c-4a43-9b8e-6d3c1a7f2b10");
//!
//! // Called again, as after a crash: still one bucket and one user, with a new key.
//! let call = Call::new(&mine, &(), &());
//! store::provision(&shelf, &call).await?;
//! let keys = store::provision(&shelf, &call).await?;
//! assert_eq!(keys.access_key_id, "shop-photos");
//! assert_eq!((lock(&shelf.buckets).len(), lock(&shelf.users).len()), (1, 1));
//!
//! // Another claim gets nothing of it, and takes nothing away.
//! let theirs = Call::new(&foreign, &(), &());
//! assert!(matches!(store::provision(&shelf, &theirs).await, Err(CreateError::Refused(_))));
//! let left = store::delete(&shelf, &theirs, Content::Delete).await?;
//! assert!(matches!(left.bucket, BucketRemoval::LeftInPlace(_)));
//!
//! let removal = store::delete(&shelf, &call.clone().with_present(&keys), Content::Delete).await?;
//! assert_eq!((removal.access, removal.bucket), (AccessRemoval::Deleted, BucketRemoval::Deleted));
//! let again = store::delete(&shelf, &call, Content::Delete).await?;
//! assert_eq!((again.access, again.bucket), (AccessRemoval::NotFound, BucketRemoval::NotFound));
//! # Ok(())
//! # }
//! ```
//!
//! Long, because half of it is the contract of the trait, with an example, and a trait is one item.

pub(crate) mod access;
mod authentication;
pub(crate) mod call;
pub(crate) mod capabilities;
mod changes;
pub(crate) mod common;
pub(crate) mod compose;
mod endpoint;
mod failure;
mod finding;
pub mod names;
pub(crate) mod namespaces;
mod observer;
mod on_delete;
mod outcome;
pub mod owner;
mod owner_ref;
mod parameters;
pub(crate) mod previous_access;
pub mod rate_wait;
mod reason;
mod record;
mod request;
mod rotation;
pub(crate) mod settings;
mod shared_from;
mod start;
mod tagged;
mod variables;

use std::future::Future;
use std::time::{Duration, SystemTime};

pub use self::access::{Access, AccessMode, ClassAccess, InvalidAccessMode, Prefix};
pub(crate) use self::authentication::AUTHENTICATION;
pub use self::authentication::{Authentication, ServiceAccount};
pub use self::call::{Call, ProbeCall};
pub use self::capabilities::Capabilities;
pub use self::changes::Changes;
pub use self::common::{CommonParameters, Naming};
pub use self::compose::{delete, provision};
pub use self::endpoint::Endpoint;
pub use self::failure::{CreateError, Failure, FailureClass, StoreError};
pub use self::finding::{About, Finding, Verdict};
pub use self::names::{NameError, NameRules};
pub use self::namespaces::{NamespaceSelector, Namespaces};
pub use self::observer::{Observer, StoreCall};
pub(crate) use self::on_delete::ON_DELETE;
pub use self::on_delete::{InvalidOnDelete, OnDelete};
pub use self::outcome::{
    AccessRemoval, AppCredentials, BucketRemoval, Checkup, Content, Deactivation, Probe, Problem, Recalled, Removal,
};
pub use self::owner::{Owner, OwnerSource};
pub use self::owner_ref::{OwnerRef, RoleRef, SecretRef};
pub use self::parameters::{Parameters, RawParameters};
pub(crate) use self::previous_access::PreviousAccess;
pub use self::reason::{Reason, Topic};
pub(crate) use self::record::PARAMETER;
pub use self::record::{ClaimId, Mode, Plan, Record};
pub use self::request::Request;
pub use self::rotation::Rotation;
pub use self::settings::{ClassSettings, MaySet, Setting, SettingError, Settings};
pub use self::shared_from::SharedFrom;
pub use self::start::Start;
pub use self::tagged::{Inventory, ResourceKind, TaggedResource, Usage};
pub use operator_runtime::parameters as parameter;
pub use operator_runtime::{Parameter, ParameterError, Permit, ReclaimPolicy};
/// A text that no log shows, and the trait with which its text is read: `expose_secret()`.
pub use secrecy::{ExposeSecret, SecretString};

/// What [`Provisioner::Parameters`] keeps in a record.
pub type Recorded<P> = <<P as Provisioner>::Parameters as Parameters>::Recorded;

/// A store that can create buckets and give access to them. See the [module](self) for the contract.
pub trait Provisioner: Send + Sync + 'static {
    /// The parameters of its classes, beside the [common ones](CommonParameters): a struct, or `()` for none.
    type Parameters: Parameters;
    /// The provisioning credentials: a struct with a field for each key of their Secret, or `()` for none.
    type Owner: Owner;
    /// Why a step failed: mostly [`StoreError`].
    type Error: Failure;

    /// Where the buckets of a class are. Pure.
    fn endpoint(&self, parameters: &Self::Parameters) -> Endpoint;

    /// Creates the bucket, marked as the claim's, or finds that an earlier call has. Not called for a bucket that existed
    /// before, nor once a claim was bound.
    ///
    /// # Errors
    /// Any refusal of the store, and a name that somebody else has taken. [`CreateError::Refused`] if nothing was created.
    fn create_bucket(&self, call: &Call<'_, Self>)
    -> impl Future<Output = Result<(), CreateError<Self::Error>>> + Send;

    /// Issues credentials to the claim's user, which is created if it is missing and limited to the bucket. Credentials that
    /// an earlier call may have issued are replaced, because their secret is lost.
    ///
    /// Unless the [call creates the bucket](Call::creates_bucket), it is checked first: a bucket that was created for the
    /// claim ([`Mode::Created`]) must still be the claim's, because somebody else may have taken its name; one that existed
    /// before ([`Mode::Granted`]) must exist, and must not be what another claim has created.
    ///
    /// # Errors
    /// As [`create_bucket`](Self::create_bucket), and a bucket that is missing, forbidden or in another region.
    fn grant(
        &self,
        call: &Call<'_, Self>,
    ) -> impl Future<Output = Result<AppCredentials, CreateError<Self::Error>>> + Send;

    /// Removes the access and keeps the bucket. What no longer exists counts as removed.
    ///
    /// A user with the [present](Call::present) credentials is the claim's own, even if it has lost its marks. If the store
    /// knows no such user although its credentials were [published](Record::credentials_published), the credentials are
    /// tried: access that still works is not removed.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn revoke(&self, call: &Call<'_, Self>) -> impl Future<Output = Result<AccessRemoval, Self::Error>> + Send;

    /// Deletes the bucket, whose access has ended: with [`Content::Delete`] together with all its content, a limited part
    /// with each call; with [`Content::Keep`] only if it is empty, else the bucket is left as it is
    /// ([`BucketRemoval::NotEmpty`]).
    ///
    /// # Errors
    /// Any refusal of the store, also for a single object.
    fn delete_bucket(
        &self,
        call: &Call<'_, Self>,
        content: Content,
    ) -> impl Future<Output = Result<BucketRemoval, Self::Error>> + Send;

    // From here on everything has a default, which is right for a simple store.

    /// Which names buckets can have.
    const BUCKET_NAMES: NameRules = NameRules::S3;
    /// Longest name of a user, in characters: 37 or more, for the uid of the claim.
    const USER_NAME_MAX: usize = 64;
    /// What to check if the store keeps refusing keys that it has issued, such as policies. A clause for the message on the
    /// claim.
    const KEYS_REFUSED_REMEDY: &'static str = "check whether something at the store denies the claim's user its bucket";
    /// What it can do beyond buckets and keys; nothing by default. Classes and claims cannot ask for the rest.
    const CAPABILITIES: Capabilities = Capabilities::NONE;

    /// The reasons of its errors, for the command `reasons`. An operator checks them when it starts: names in CamelCase,
    /// none twice, none of the library's own. None by default.
    const REASONS: &'static [&'static Reason] = &[];

    /// For how long after a change the store may not show it everywhere. What is missing is looked for again when this time
    /// has passed since something may have been created for the claim; only then does it count as deleted. 10 s by
    /// default.
    fn consistency_lag(&self, record: &Record) -> Duration {
        let _ = record;
        Duration::from_secs(10)
    }

    /// Whether these records of a claim give its apps the same access, so that to revoke the one would end the other. Only
    /// their plans differ. By default, if user and ServiceAccount have the same names. Pure.
    fn is_same_access(&self, one: &Record, other: &Record) -> bool {
        let names = |record: &Record| {
            let Plan { user, service_account, .. } = &record.plan;
            (user.clone(), service_account.as_ref().map(|account| account.name.clone()))
        };
        names(one) == names(other)
    }

    /// Whether [`create_bucket`](Self::create_bucket) and [`grant`](Self::grant) of this call may run at the same time, to
    /// save round trips. `grant` must then work without the bucket. `false` by default.
    fn creates_in_parallel(&self, call: &Call<'_, Self>) -> impl Future<Output = bool> + Send {
        let _ = call;
        std::future::ready(false)
    }

    /// Whether [`revoke`](Self::revoke) and [`delete_bucket`](Self::delete_bucket) of this call may run at the same time, to
    /// save round trips. `delete_bucket` must then await [`Call::access_ended`] before it deletes anything. `false` by
    /// default.
    fn deletes_in_parallel(&self, call: &Call<'_, Self>) -> bool {
        let _ = call;
        false
    }

    /// Rules for names of buckets beyond [`BUCKET_NAMES`](Self::BUCKET_NAMES): such as names that the store reserves. Names of
    /// new buckets are checked without their [suffix](Self::name_suffix). None by default.
    ///
    /// # Errors
    /// The rule that the name breaks.
    fn check_bucket_name(name: &str, mode: Mode) -> Result<(), String> {
        let _ = (name, mode);
        Ok(())
    }

    /// What is appended to the names of all new buckets of a class, such as an account; the store demands it. Pure, and the
    /// same as long as the class exists. Generated names have a short form of the claim's uid then.
    ///
    /// Nothing by default.
    fn name_suffix(parameters: &Self::Parameters) -> String {
        let _ = parameters;
        String::new()
    }

    /// Decides what the claim gets. Pure: the same request always gives the same plan.
    ///
    /// By default what was asked for: a bucket at the [`endpoint`](Self::endpoint) and a user of its own. The class
    /// parameters are recorded, for [`Call::parameters`]: a plan of a store's own begins with [`Request::plan`].
    ///
    /// # Errors
    /// A class parameter that cannot be used; the message has the value and the remedy.
    fn plan(&self, request: &Request<'_, Self::Parameters>) -> Result<Plan, Self::Error> {
        Ok(request.plan(self.endpoint(request.parameters)))
    }

    /// Checks what is [set](Plan::settings) for the bucket of a plan, by class and claim. Pure.
    ///
    /// Everything is accepted by default.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    fn check_settings(plan: &Plan) -> Result<(), SettingError> {
        let _ = plan;
        Ok(())
    }

    /// What an admin should know about a class although it can be used: a reason and a sentence. `doctor` shows it, and so does
    /// an event on the class when its first claim is provisioned. Pure.
    ///
    /// Nothing by default.
    fn class_warning(&self, parameters: &Self::Parameters) -> Option<(&'static Reason, String)> {
        let _ = parameters;
        None
    }

    /// The account of the provisioning credentials. It is recorded with what is created, because what is missing in
    /// another account was not deleted. Called before every verb, so the answer should be cached while the credentials
    /// are the same.
    ///
    /// `None` by default: this store has no accounts, or does not report them.
    ///
    /// # Errors
    /// The store does not answer, or refuses the credentials.
    fn account(&self, call: &Call<'_, Self>) -> impl Future<Output = Result<Option<String>, Self::Error>> + Send {
        let _ = call;
        std::future::ready(Ok(None))
    }

    /// Tries the issued credentials against the bucket, once.
    ///
    /// [`Probe::Usable`] by default: this store accepts keys as soon as they are issued.
    ///
    /// # Errors
    /// The store does not answer, or the credentials can never work.
    fn probe(&self, call: &ProbeCall<'_, Self>) -> impl Future<Output = Result<Probe, Self::Error>> + Send {
        let _ = call;
        std::future::ready(Ok(Probe::Usable))
    }

    /// Needs [`Capabilities::rotation`], and [`check`](Self::check), which deletes the previous keys when their
    /// time is over. Issues new keys to the claim's user and keeps `present`, the id of the keys that its apps use.
    /// Other keys of the user are deleted first, because nobody has their secret.
    ///
    /// `None` by default: this store cannot rotate keys while they are in use.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn rotate(
        &self,
        call: &Call<'_, Self>,
        present: &str,
    ) -> impl Future<Output = Result<Option<AppCredentials>, Self::Error>> + Send {
        let _ = (call, present);
        std::future::ready(Ok(None))
    }

    /// Deactivates keys that were replaced, some time before [`check`](Self::check) deletes them: an app that still has them
    /// fails while somebody can activate them again. `unless_used_since`: keys that were used since this time stay as they
    /// are, and the caller asks again later; `None`: whatever their use.
    ///
    /// By default nothing is deactivated: this store can only delete keys.
    ///
    /// # Errors
    /// Any refusal of the store. The keys are deleted nevertheless, when their last time is over.
    fn deactivate(
        &self,
        call: &Call<'_, Self>,
        key: &str,
        unless_used_since: Option<SystemTime>,
    ) -> impl Future<Output = Result<Deactivation, Self::Error>> + Send {
        let _ = (call, key, unless_used_since);
        std::future::ready(Ok(Deactivation::NotNeeded))
    }

    /// Compares the store with the record of a bound claim, repairs what has changed, and deletes all keys of the
    /// claim's user except `keys`, of which the first is in use. Called from time to time, and when the claim's
    /// [access](Plan::access) or [settings](Plan::settings) have changed.
    ///
    /// Finds nothing by default.
    ///
    /// # Errors
    /// Any refusal of the store; and, with [`Failure::is_lost`], what cannot be repaired.
    fn check(&self, call: &Call<'_, Self>, keys: &[&str]) -> impl Future<Output = Result<Checkup, Self::Error>> + Send {
        let _ = (call, keys);
        std::future::ready(Ok(Checkup::default()))
    }

    /// Finds out from the store for which claim the planned bucket was created, for an admin who has lost the record.
    /// Only reads. The record is what would be planned now for a claim of that namespace and name.
    ///
    /// `None` by default, and if the store does not know.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn recall(&self, call: &Call<'_, Self>) -> impl Future<Output = Result<Option<Recalled>, Self::Error>> + Send {
        let _ = call;
        std::future::ready(Ok(None))
    }

    /// Checks whether claims of a class can work, for the command `doctor`: permissions of the provisioning
    /// credentials, the bucket that the class names, quotas. **Only reads**: nothing at the store changes, not even for
    /// a moment. The record is what would be planned for a new claim, with a random uid: its bucket and its user do not
    /// exist, unless the class names the bucket. [`account`](Self::account) was called before, and if it failed, that
    /// is reported: then only what explains it is worth reporting. The caller gives up after some seconds.
    ///
    /// Finds nothing by default.
    fn examine(&self, call: &Call<'_, Self>) -> impl Future<Output = Vec<Finding>> + Send {
        let _ = call;
        std::future::ready(Vec::new())
    }

    /// The size of the bucket of a record, for commands. Only reads, and stops counting after some seconds.
    ///
    /// `None` by default: this store does not report it.
    ///
    /// # Errors
    /// Any refusal of the store; and that the bucket does not exist, as [`is_lost`](Failure::is_lost).
    fn usage(&self, call: &Call<'_, Self>) -> impl Future<Output = Result<Option<Usage>, Self::Error>> + Send {
        let _ = call;
        std::future::ready(Ok(None))
    }

    /// All buckets and users in the account of the provisioning credentials that have the marks of this provisioner,
    /// for an admin who searches for those without a claim. Only reads. The record is what would be planned now for a
    /// claim of the class: it names the endpoint, and nothing that exists. `again`: only these, to check whether they
    /// still exist.
    ///
    /// `None` by default: this store marks nothing, or cannot list what it holds.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn inventory(
        &self,
        call: &Call<'_, Self>,
        again: Option<&[TaggedResource]>,
    ) -> impl Future<Output = Result<Option<Inventory>, Self::Error>> + Send {
        let _ = (call, again);
        std::future::ready(Ok(None))
    }
}
