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
//! - Verbs for one claim never run concurrently in one process.
//! - A verb is only called with a [`Record`] that has been stored. The same record is passed again until the verb
//!   succeeds.
//!
//! # Guarantees of an implementation
//! - Each verb is idempotent and can be dropped at any await: a later call with the same record finishes (or removes)
//!   what an earlier one began, and never creates a second user or bucket.
//! - What already exists and is not proven to belong to the record's claim is neither used nor removed.
//! - No secret appears in an error or in a Debug output.

pub(crate) mod common;
mod failure;
pub mod names;
mod outcome;
pub mod owner;
pub mod parameter;
mod parameters;
mod reason;
mod record;
mod request;
mod start;
mod written;

use std::future::Future;

pub use self::common::{CommonParameters, Namespaces, Naming};
pub use self::failure::{Failure, FailureClass, StoreError};
pub use self::names::{NameError, NameRules};
pub use self::outcome::{AppCredentials, Checkup, Fate, Probe, Recalled, Removal, Removed};
pub use self::owner::{Owner, OwnerSource};
pub use self::parameter::{Parameter, ParameterError};
pub use self::parameters::{Parameters, Written};
pub(crate) use self::reason::reasons;
pub use self::reason::{Reason, Topic};
pub use self::record::{ClaimId, Endpoint, Mode, Plan, ReclaimPolicy, Record, Rotation, SecretRef};
pub use self::request::Request;
pub use self::start::{Permit, Start};
/// A text that no log shows.
pub use secrecy::SecretString;

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

    // From here on everything has a default, which is right for a simple store.

    /// Which names buckets can have.
    const BUCKET_NAMES: NameRules = NameRules::S3;
    /// Longest name of a user, in characters: 37 or more, for the uid of the claim.
    const USER_NAME_MAX: usize = 64;
    /// Whether [`rotate`](Self::rotate) issues new keys. Otherwise classes cannot ask for it.
    const CAN_ROTATE: bool = false;

    /// Tells the store about its operator, once and before any other call; in a Tokio runtime, and in an operator that has
    /// the lease or needs none. Ignored by default.
    fn start(&mut self, start: Start) {
        let _ = start;
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
}
