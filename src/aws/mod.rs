//! The AWS backend: buckets in S3, users in IAM.
//!
//! | file | what it holds |
//! |---|---|
//! | [`params`], [`values`], `environment` | what an admin configures: the StorageClass, environment variables |
//! | `names` | names that AWS reserves |
//! | `plan`, `target` | what a claim gets; a record as the verbs read it |
//! | [`owner`] | the credentials of a class |
//! | `bucket`, `user`, `probe` | provision and grant: create the bucket and the user, try the user's key |
//! | `upkeep` | for bound claims: rotate keys, find and repair what has changed |
//! | `account`, `sts` | the owner's AWS account; whether an app's keys still work |
//! | `recall` | what tags say about a claim whose record was lost |
//! | `revoke`, `purge`, `empty` | deletion: remove the user, empty and delete the bucket |
//! | `tags`, `policy`, `region` | what proves ownership; what an app can do; AWS partitions |
//! | [`call`], `codes` | one call and its outcome; what AWS's error codes mean |
//! | [`error`], `remedy`, `failure`, `reasons` | why a step failed; the remedies; what the controller does about it; what users read |
//! | `clients`, `http`, `fence`, `budget` | SDK clients; connections; blocking calls; memory for listings |
//!
//! Functions that decide (`plan`, `judge`, `may_delete`, `ownership`, the mapping of errors) are pure; functions that
//! call AWS decide nothing.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use self::call::{Operation, Resource};
use self::clients::Clients;
use self::environment::Environment;
use self::http::Http;
use self::owner::StaticKeys;
use self::params::ClassParameters;
use self::purge::Purged;
use self::target::Target;
use crate::provisioner::{
    AppCredentials, Checkup, Endpoint, Fate, Mode, ParameterError, Plan, Probe, Provisioner, Recalled, Record, Removal,
    Removed, Request, Start,
};

mod account;
mod bucket;
mod budget;
pub mod call;
mod clients;
mod codes;
mod empty;
mod environment;
pub mod error;
mod failure;
mod fence;
mod http;
mod names;
pub mod owner;
pub mod params;
mod plan;
mod policy;
mod probe;
mod purge;
mod reasons;
mod recall;
mod region;
mod remedy;
mod revoke;

mod sts;
mod tags;
mod target;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upkeep;
mod user;
pub mod values;

/// The reasons that claims give because of AWS.
#[cfg(test)]
pub(crate) fn reasons() -> impl Iterator<Item = &'static crate::provisioner::Reason> {
    reasons::TABLE.iter()
}

pub use self::error::Error;
pub use self::owner::Owner;

/// `StorageClass.provisioner` of the classes for AWS, by default.
pub const PROVISIONER_NAME: &str = "aws-s3.io/bucket";

/// Provisions S3 buckets and IAM users.
pub struct AwsProvisioner {
    /// Name of the provisioner, with which every bucket and user is tagged.
    name: String,
    /// The endpoints that the operator's environment sets, or why they cannot be used.
    environment: Result<Environment, ParameterError>,
    clients: Clients,
    /// Buckets with chosen names that are being created now; see [`Self::lock_name`].
    being_created: Mutex<HashSet<NameInStore>>,
}

impl fmt::Debug for AwsProvisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsProvisioner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Default for AwsProvisioner {
    fn default() -> Self {
        Self::new()
    }
}

impl AwsProvisioner {
    /// A backend for AWS, and for stores with the same interface.
    ///
    /// Reads the endpoints in the environment (AWS_ENDPOINT_URL and those of S3, IAM and STS) once, now. Makes no call:
    /// ambient credentials are loaded when a class first needs them.
    pub fn new() -> Self {
        let environment = Environment::read(|name| std::env::var(name).ok());
        Self::with(environment, Clients::new(Http::new()))
    }

    fn with(environment: Result<Environment, ParameterError>, clients: Clients) -> Self {
        Self { name: PROVISIONER_NAME.to_owned(), environment, clients, being_created: Mutex::default() }
    }

    fn environment(&self) -> Result<&Environment, Error> {
        self.environment.as_ref().map_err(|error| Error::InvalidEnvironment(error.clone()))
    }

    fn target<'a>(&self, record: &'a Record) -> Result<Target<'a>, Error> {
        Ok(Target::of(record, self.environment()?))
    }

    /// Keeps two claims of this process from creating a bucket of the same chosen name at the same time, where the
    /// store would accept both.
    fn lock_name<'a>(&'a self, target: &Target<'_>) -> Result<Option<NameGuard<'a>>, Error> {
        if !bucket::answer_is_ambiguous(target) {
            return Ok(None);
        }
        let name = target.bucket().to_owned();
        let key = (target.endpoints.s3.clone(), name.clone());
        let names = &self.being_created;
        if names.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone()) {
            return Ok(Some(NameGuard { names, key }));
        }
        Err(Error::StoreBusy {
            operation: Operation::CreateBucket,
            resource: Resource::Bucket(name),
            code: "another claim is creating it".to_owned(),
            message: None,
        }
        .untouched())
    }

    /// Removes the user of a record. If there is no such user, checks that the app's keys do not work either.
    async fn remove_access(
        &self,
        store: &clients::Store,
        target: &Target<'_>,
        present: Option<&AppCredentials>,
    ) -> Result<Fate, Error> {
        let fate = revoke::revoke(store, target, present).await?;
        let to_try = present.filter(|_| fate == Fate::Missing);
        let (Some(keys), Some(user)) = (to_try, target.user) else { return Ok(fate) };
        if sts::keys_work(&self.clients.app(&StaticKeys::from(keys), target), target).await? {
            return Err(Error::AccessStillWorks { user: user.name.to_owned(), key: keys.access_key_id.clone() });
        }
        Ok(fate)
    }

    async fn credentials(
        &self,
        store: &clients::Store,
        owner: &Owner,
        target: &Target<'_>,
        tags: &tags::Tags,
    ) -> Result<AppCredentials, Error> {
        match target.user {
            Some(user) => user::issue(store, target, user, tags).await,
            None => owner.share(),
        }
    }
}

/// The URL of S3, if it is not AWS's default one, and the name of a bucket.
type NameInStore = (Option<String>, String);

/// Unlocks a name, even if the verb is dropped.
struct NameGuard<'a> {
    names: &'a Mutex<HashSet<NameInStore>>,
    key: NameInStore,
}

impl Drop for NameGuard<'_> {
    fn drop(&mut self) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl Provisioner for AwsProvisioner {
    type Parameters = ClassParameters;
    type Owner = Owner;
    type Error = Error;

    const USER_NAME_MAX: usize = names::USER_MAX;
    const CAN_ROTATE: bool = true;

    fn check_bucket_name(name: &str, mode: Mode) -> Result<(), String> {
        names::check(name, mode)
    }

    /// Blocks requests to AWS that start while the process may not work, also the SDK's own.
    fn start(&mut self, start: Start) {
        self.name = start.provisioner_name;
        self.clients = Clients::new(Http::new().only_while(start.permit));
    }

    fn endpoint(&self, parameters: &ClassParameters) -> Endpoint {
        match &self.environment {
            Ok(environment) => plan::endpoint(parameters, environment),
            Err(_) => plan::endpoint(parameters, &Environment::default()),
        }
    }

    fn plan(&self, request: &Request<'_, ClassParameters>) -> Result<Plan, Error> {
        Ok(plan::plan(request, self.environment()?))
    }

    async fn account(&self, record: &Record, owner: &Owner) -> Result<Option<String>, Error> {
        let target = self.target(record)?;
        sts::account(&*self.clients.store(owner, &target).await).await
    }

    async fn recall(&self, record: &Record, owner: &Owner) -> Result<Option<Recalled>, Error> {
        let target = self.target(record)?;
        recall::recall(&*self.clients.store(owner, &target).await, &target).await
    }

    async fn provision(&self, record: &Record, owner: &Owner) -> Result<AppCredentials, Error> {
        let target = self.target(record)?;
        let tags = tags::of_record(&self.name, record);
        let store = self.clients.store(owner, &target).await;
        {
            let _guard = self.lock_name(&target)?;
            bucket::create(&store, &target, &tags).await?;
        }
        self.credentials(&store, owner, &target, &tags).await.map_err(Error::after_a_change)
    }

    async fn grant(&self, record: &Record, owner: &Owner) -> Result<AppCredentials, Error> {
        let target = self.target(record)?;
        let tags = tags::of_record(&self.name, record);
        let store = self.clients.store(owner, &target).await;
        bucket::check(&store, &target, &tags).await?;
        self.credentials(&store, owner, &target, &tags).await
    }

    async fn probe(&self, record: &Record, credentials: &AppCredentials) -> Result<Probe, Error> {
        let target = self.target(record)?;
        let app = self.clients.app(&StaticKeys::from(credentials), &target);
        probe::probe(&app.s3, &target).await
    }

    async fn rotate(&self, record: &Record, owner: &Owner, present: &str) -> Result<Option<AppCredentials>, Error> {
        let target = self.target(record)?;
        let Some(user) = target.user else { return Ok(None) };
        let store = self.clients.store(owner, &target).await;
        upkeep::rotate(&store, user, present).await.map(Some)
    }

    async fn check(&self, record: &Record, owner: &Owner, keys: &[&str]) -> Result<Checkup, Error> {
        let target = self.target(record)?;
        let tags = tags::of_record(&self.name, record);
        let store = self.clients.store(owner, &target).await;
        upkeep::check(&store, &target, &tags, keys).await
    }

    async fn revoke(&self, record: &Record, owner: &Owner, present: Option<&AppCredentials>) -> Result<Removal, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        let access = self.remove_access(&store, &target, present).await?;
        Ok(Removal::Done(Removed { access, bucket: Fate::Kept }))
    }

    async fn delete(&self, record: &Record, owner: &Owner, present: Option<&AppCredentials>) -> Result<Removal, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        let access = self.remove_access(&store, &target, present).await?;
        // A bucket that existed before is never deleted, whatever the caller asks for.
        if record.plan.mode == Mode::Granted {
            return Ok(Removal::Done(Removed { access, bucket: Fate::Kept }));
        }
        let bucket = match purge::delete(&store, &target).await? {
            Purged::Gone => Fate::Removed,
            Purged::Missing => Fate::Missing,
            Purged::Left(why) => Fate::Left(why),
            Purged::Partly(removed) => return Ok(Removal::Partial { removed }),
        };
        Ok(Removal::Done(Removed { access, bucket }))
    }
}
