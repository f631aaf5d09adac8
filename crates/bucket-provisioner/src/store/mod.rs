//! The one trait that a store implements: [`Provisioner`].
//!
//! [`crate::controller`] does everything about Kubernetes (claims, bucket records, Secrets, ConfigMaps, conditions,
//! events, retries). An implementation of this trait does everything about the store. Neither knows the other.
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
//! - Verbs for one claim never run concurrently in one process; those for different claims do. Of several processes
//!   only the one that holds the lease changes the store ([`Permit`]).
//! - [`provision`](Provisioner::provision) and [`grant`](Provisioner::grant) get a [`Record`] that has been stored.
//!   They are called with the same record until they succeed, or until `revoke` or `delete` has undone what they may
//!   have begun. Forgotten without that is only a new record whose call failed [untouched](#untouched), and what an
//!   admin tells the operator to forget.
//! - [`revoke`](Provisioner::revoke) and [`delete`](Provisioner::delete) are called until they return
//!   [`Removal::Done`], and once more later if something was [missing](Fate::Missing) that may have been created less
//!   than the [consistency lag](Provisioner::consistency_lag) ago. A record of a bucket that existed before
//!   ([`Mode::Granted`]) never gets to `delete`.
//! - A bucket may be emptied ([`Content::Delete`]) only if its credentials were published, or an admin has requested it.
//! - Before a verb gets the owner's credentials, they are parsed, and their [`account`](Provisioner::account) is
//!   compared with the recorded one.
//! - A verb that takes longer than two minutes is dropped, and called again later; what it spends in [`turn::wait`] does
//!   not count. One that panics is called again,
//!   too. What still runs some seconds after the process was told to end is dropped.
//!
//! # Duties of an implementation
//! - **Each verb is idempotent, and can be dropped at any await.** A later call with the same record finishes (or
//!   removes) what an earlier one began, and never creates a second user or bucket: all names are in the record. A
//!   call may follow one that succeeded, because the operator can stop before it has written down the answer.
//! - **What is foreign is neither used nor removed.** A name that a user chose proves nothing. Mark what you create with
//!   the uid of the claim, if possible in the call that creates it, and compare with [`Record::names_uid`]. What exists
//!   without proof is an error of `provision` and `grant`, except the bucket that a class names ([`Mode::Granted`]);
//!   `revoke` and `delete` leave it ([`Fate::Left`]).
//! - **Only what is certainly missing counts as removed.** An error is not "missing".
//! - **`revoke` and `delete` work from the record alone.** The class may be gone by then, or say something else.
//! - **No secret** is in an error, a Debug output or a log; nor in a [`Plan`], because all of it can be read in the
//!   cluster. Secrets are in [`AppCredentials`] only.
//! - [`endpoint`](Provisioner::endpoint), [`plan`](Provisioner::plan) and
//!   [`check_bucket_name`](Provisioner::check_bucket_name) are pure: no I/O, and always the same answer.
//! - What takes long ends early, so that other claims have their turn: `delete` with [`Removal::Partial`], the four
//!   verbs, `rotate` and `check` with [`FailureClass::InProgress`].
//!
//! # Present
//! `present` is what the claim's apps use now: for `revoke` and `delete` the credentials in the claim's Secret, for
//! `rotate` the id of the keys in it. A user with these credentials is the claim's own, even if it has lost its marks.
//! If `revoke` or `delete` does not find the user, but the credentials still work, the access is not removed, and the
//! verb fails. They get `None` if the claim has no Secret with keys, or its access was removed before.
//!
//! # Untouched
//! An error is [untouched](Failure::store_untouched) if the verb has certainly changed nothing at the store: it
//! refused before the first call that changes something, or that call was refused. A new record is then withdrawn, and
//! the store is not asked again for what it names. After a timeout nothing is certain: without the mark the record
//! stays, and what may have been created is found or removed later.
//!
//! # Example
//! A store in memory, and its verbs called as the library calls them:
//!
//! ```
//! # use std::collections::BTreeMap;
//! # use std::sync::{Mutex, MutexGuard, PoisonError};
//! use bucket_provisioner::Provisioner;
//! use bucket_provisioner::store::{
//!     AppCredentials, ClaimId, Content, Endpoint, Failure, Fate, Mode, Plan, Reason, ReclaimPolicy, Record, Removal,
//!     Removed, StoreError, Topic,
//! };
//!
//! const NOT_YOURS: Reason =
//!     Reason::new("BucketNotYours", Topic::Claim, "the bucket is not the claim's", "choose another name");
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
//! # fn user(record: &Record) -> String {
//! #     record.plan.user.clone().unwrap_or_default()
//! # }
//! # fn new_key() -> String {
//! #     format!("{:032x}", rand::random::<u128>())
//! # }
//!
//! impl Provisioner for Shelf {
//!     type Parameters = ();
//!     type Owner = ();
//!     type Error = StoreError;
//!
//!     const REASONS: &'static [&'static Reason] = &[&NOT_YOURS];
//!
//!     fn endpoint(&self, (): &()) -> Endpoint {
//!         Endpoint::new("shelf.example.com", 443, "here")
//!     }
//!
//!     async fn provision(&self, record: &Record, owner: &()) -> Result<AppCredentials, StoreError> {
//!         // What an earlier call has created stays as it is; so does what is foreign.
//!         lock(&self.buckets).entry(record.plan.bucket.clone()).or_insert_with(|| record.claim.uid.clone());
//!         self.grant(record, owner).await
//!     }
//!
//!     async fn grant(&self, record: &Record, (): &()) -> Result<AppCredentials, StoreError> {
//!         let bucket = &record.plan.bucket;
//!         if !lock(&self.buckets).get(bucket).is_some_and(|uid| record.names_uid(uid)) {
//!             let message = format!("bucket {bucket:?} is not this claim's; choose another name");
//!             return Err(StoreError::terminal(&NOT_YOURS, message).untouched());
//!         }
//!         // Nobody may have seen the key of an earlier call: it is replaced.
//!         let (user, key) = (user(record), new_key());
//!         lock(&self.users).insert(user.clone(), key.clone());
//!         Ok(AppCredentials::new(user, key))
//!     }
//!
//!     async fn revoke(&self, record: &Record, (): &(), _: Option<&AppCredentials>) -> Result<Removal, StoreError> {
//!         let access = lock(&self.users).remove(&user(record)).map_or(Fate::Missing, |_| Fate::Removed);
//!         Ok(Removal::Done(Removed::new(access, Fate::Kept)))
//!     }
//!
//!     // The buckets of this store never hold anything, so their content does not matter.
//!     async fn delete(
//!         &self,
//!         record: &Record,
//!         (): &(),
//!         _: Option<&AppCredentials>,
//!         _: Content,
//!     ) -> Result<Removal, StoreError> {
//!         let access = lock(&self.users).remove(&user(record)).map_or(Fate::Missing, |_| Fate::Removed);
//!         let mut buckets = lock(&self.buckets);
//!         let bucket = match buckets.get(&record.plan.bucket) {
//!             Some(uid) if record.names_uid(uid) => {
//!                 buckets.remove(&record.plan.bucket);
//!                 Fate::Removed
//!             }
//!             Some(_) => Fate::Left("the bucket was left in place, because it is another claim's".to_owned()),
//!             None => Fate::Missing,
//!         };
//!         Ok(Removal::Done(Removed::new(access, bucket)))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), StoreError> {
//! let shelf = Shelf::default();
//! let record = |claim: &str, uid: &str| {
//!     let plan = Plan::new("photos", Mode::Created, shelf.endpoint(&())).with_user(format!("shop-{claim}"));
//!     Record::new(ClaimId::new("shop", claim, uid), "shelves", ReclaimPolicy::Delete, plan)
//! };
//! let mine = record("photos", "f30e0389-0689-48a2-bfaa-74d1bf1fd950");
//! let foreign = record("pictures", "0e5f3a52-1f0c-4a43-9b8e-6d3c1a7f2b10");
//!
//! // Called again, as after a crash: still one bucket and one user, with a new key.
//! shelf.provision(&mine, &()).await?;
//! let keys = shelf.provision(&mine, &()).await?;
//! assert_eq!(keys.access_key_id, "shop-photos");
//! assert_eq!((lock(&shelf.buckets).len(), lock(&shelf.users).len()), (1, 1));
//!
//! // Another claim gets nothing of it, and takes nothing away.
//! assert!(shelf.provision(&foreign, &()).await.is_err_and(|error| error.store_untouched()));
//! let Removal::Done(left) = shelf.delete(&foreign, &(), None, Content::Delete).await? else { panic!("in one call") };
//! assert!(matches!(left.bucket, Fate::Left(_)));
//!
//! let gone = Removal::Done(Removed::new(Fate::Removed, Fate::Removed));
//! assert_eq!(shelf.delete(&mine, &(), Some(&keys), Content::Delete).await?, gone);
//! let missing = Removal::Done(Removed::new(Fate::Missing, Fate::Missing));
//! assert_eq!(shelf.delete(&mine, &(), None, Content::Delete).await?, missing);
//! # Ok(())
//! # }
//! ```

pub(crate) mod common;
mod failure;
mod finding;
pub mod names;
mod observer;
mod on_delete;
mod outcome;
pub mod owner;
mod parameters;
mod reason;
mod record;
mod request;
mod start;
mod stock;
pub mod turn;

use std::future::Future;
use std::time::{Duration, SystemTime};

pub use self::common::{CommonParameters, Namespaces, Naming};
pub(crate) use self::failure::UNREADABLE_PARAMETERS;
pub use self::failure::{Failure, FailureClass, StoreError};
pub use self::finding::{Finding, Verdict};
pub use self::names::{NameError, NameRules};
pub use self::observer::Observer;
pub(crate) use self::on_delete::ON_DELETE;
pub use self::on_delete::{InvalidOnDelete, OnDelete};
pub use self::outcome::{AppCredentials, Checkup, Content, Deactivation, Fate, Probe, Recalled, Removal, Removed};
pub use self::owner::{Owner, OwnerSource};
pub use self::parameters::{Parameters, Written};
pub use self::reason::{Reason, Topic};
pub(crate) use self::record::PARAMETER;
pub use self::record::{ClaimId, Endpoint, Mode, Plan, Record, Rotation, SecretRef};
pub use self::request::Request;
pub use self::start::Start;
pub use self::stock::{Inventory, Stock, StockKind, Usage};
pub use operator_runtime::parameters as parameter;
pub use operator_runtime::{Parameter, ParameterError, Permit, ReclaimPolicy};
/// A text that no log shows, and the trait with which its text is read: `expose_secret()`.
pub use secrecy::{ExposeSecret, SecretString};

/// A store that can create buckets and give access to them. See the [module](self) for the contract.
pub trait Provisioner: Send + Sync + 'static {
    /// The parameters of its classes, beside the [common ones](CommonParameters): a struct, or `()` for none.
    type Parameters: Parameters;
    /// The owner's credentials: a struct with a field for each key of their Secret, or `()` for none.
    type Owner: Owner;
    /// Why a step failed: mostly [`StoreError`].
    type Error: Failure;

    /// Where the buckets of a class are. Pure.
    fn endpoint(&self, parameters: &Self::Parameters) -> Endpoint;

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

    /// Removes the access like [`revoke`](Self::revoke), then deletes the bucket: with [`Content::Delete`] together with
    /// all its content, a limited part with each call; with [`Content::Keep`] only if it is empty, else the bucket is left
    /// as it is ([`Fate::NotEmpty`]).
    ///
    /// # Errors
    /// Any refusal of the store, also for a single object.
    fn delete(
        &self,
        record: &Record,
        owner: &Self::Owner,
        present: Option<&AppCredentials>,
        content: Content,
    ) -> impl Future<Output = Result<Removal, Self::Error>> + Send;

    // From here on everything has a default, which is right for a simple store.

    /// Which names buckets can have.
    const BUCKET_NAMES: NameRules = NameRules::S3;
    /// Longest name of a user, in characters: 37 or more, for the uid of the claim.
    const USER_NAME_MAX: usize = 64;
    /// Whether [`rotate`](Self::rotate) issues new keys. Otherwise classes cannot ask for it.
    const CAN_ROTATE: bool = false;

    /// The reasons of its errors, for the command `reasons`. An operator checks them when it starts: names in CamelCase,
    /// none twice, none of the library's own. None by default.
    const REASONS: &'static [&'static Reason] = &[];

    /// For how long after a change the store may not show it everywhere. What is missing is looked for again when this time
    /// has passed since something may have been created for the claim; only then is it taken for gone. 10 s by default.
    fn consistency_lag(&self, record: &Record) -> Duration {
        let _ = record;
        Duration::from_secs(10)
    }

    /// Rules for names of buckets beyond [`BUCKET_NAMES`](Self::BUCKET_NAMES): such as names that the store reserves. None
    /// by default.
    ///
    /// # Errors
    /// The rule that the name breaks.
    fn check_bucket_name(name: &str, mode: Mode) -> Result<(), String> {
        let _ = (name, mode);
        Ok(())
    }

    /// Decides what the claim gets. Pure: the same request always gives the same plan.
    ///
    /// By default what was asked for: a bucket at the [`endpoint`](Self::endpoint) and a user of its own. The class
    /// parameters are recorded, for [`Record::parameters`].
    ///
    /// # Errors
    /// A class parameter that cannot be used; the message has the value and the remedy.
    fn plan(&self, request: &Request<'_, Self::Parameters>) -> Result<Plan, Self::Error> {
        Ok(request.plan(self.endpoint(request.parameters)))
    }

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

    /// Tries the issued credentials against the bucket, once.
    ///
    /// [`Probe::Usable`] by default: this store accepts keys as soon as they are issued.
    ///
    /// # Errors
    /// The store does not answer, or the credentials can never work.
    fn probe(
        &self,
        record: &Record,
        credentials: &AppCredentials,
    ) -> impl Future<Output = Result<Probe, Self::Error>> + Send {
        let _ = (record, credentials);
        std::future::ready(Ok(Probe::Usable))
    }

    /// Needs [`CAN_ROTATE`](Self::CAN_ROTATE), and [`check`](Self::check), which deletes the former keys when their time is
    /// over. Issues new keys to the claim's user and keeps `present`, the id of the keys that its apps use. Other keys of the
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
        record: &Record,
        owner: &Self::Owner,
        key: &str,
        unless_used_since: Option<SystemTime>,
    ) -> impl Future<Output = Result<Deactivation, Self::Error>> + Send {
        let _ = (record, owner, key, unless_used_since);
        std::future::ready(Ok(Deactivation::NotNeeded))
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

    /// Looks whether claims of a class can work, for an admin who asks (`doctor`): permissions of the owner, the bucket that
    /// the class names, quotas. **Only reads**: nothing at the store changes, not even for a moment. `record` is what would
    /// be planned for a new claim, with a random uid: its bucket and its user do not exist, unless the class names the
    /// bucket. [`account`](Self::account) was called before, and if it failed, that is reported: then only what explains it
    /// is worth saying. The caller gives up after some seconds.
    ///
    /// Finds nothing by default.
    fn examine(&self, record: &Record, owner: &Self::Owner) -> impl Future<Output = Vec<Finding>> + Send {
        let _ = (record, owner);
        std::future::ready(Vec::new())
    }

    /// How much is in the bucket of a record, for an admin who asks. Only reads, and gives up counting after some seconds.
    ///
    /// `None` by default: this store does not say.
    ///
    /// # Errors
    /// Any refusal of the store; and that the bucket does not exist, as [`lost`](Failure::lost).
    fn usage(
        &self,
        record: &Record,
        owner: &Self::Owner,
    ) -> impl Future<Output = Result<Option<Usage>, Self::Error>> + Send {
        let _ = (record, owner);
        std::future::ready(Ok(None))
    }

    /// All buckets and users of the owner's account that carry the marks of this provisioner, for an admin who looks for
    /// what no claim has. Only reads. `record` is what would be planned now for a claim of the class: it says where to
    /// look, and names nothing that exists. `again`: only these, to see whether they still exist.
    ///
    /// `None` by default: this store marks nothing, or cannot list what it holds.
    ///
    /// # Errors
    /// Any refusal of the store.
    fn inventory(
        &self,
        record: &Record,
        owner: &Self::Owner,
        again: Option<&[Stock]>,
    ) -> impl Future<Output = Result<Option<Inventory>, Self::Error>> + Send {
        let _ = (record, owner, again);
        std::future::ready(Ok(None))
    }
}
