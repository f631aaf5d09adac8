//! The AWS backend: buckets in S3, users in IAM.
//!
//! | file | what it holds |
//! |---|---|
//! | [`params`], [`values`] | what an admin writes into a StorageClass |
//! | [`names`] | names of buckets and users |
//! | [`plan`] | what a claim gets, and where calls for it go |
//! | [`owner`] | whose credentials sign |
//! | `bucket`, `user`, `probe` | provision and grant: create the bucket, make the user, try its key |
//! | `upkeep` | while a claim is bound: other keys, and whether all is as it was made |
//! | `account` | whose account it is, and whether an app's keys still work |
//! | `recall` | what tags say of a claim whose record was lost |
//! | `revoke`, `purge` | the way back: remove the user, empty and delete the bucket |
//! | `tags`, `policy`, `region` | what proves ownership, what an app may do, which partition |
//! | [`call`], `codes`, [`error`] | one call and how it went; what AWS's codes mean; why a step failed |
//! | `clients`, `fence` | SDK clients and the connection pool; what keeps them from calling when they may not |
//!
//! Steps that decide (`plan`, `judge`, `may_delete`, `ownership`, the mapping of errors) are pure; steps
//! that call AWS decide nothing.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use self::call::{Operation, Resource};
use self::clients::Clients;
use self::environment::Environment;
use self::http::Http;
use self::owner::StaticKeys;
use self::purge::{Limits, Purged};
use self::target::Target;
use crate::provisioner::{
    AppCredentials, Checkup, Fate, Mode, OwnerSource, Plan, Probe, Provisioner, Recalled, Record, Removal, Removed,
    Request,
};

mod account;
mod bucket;
pub mod call;
mod clients;
mod codes;
mod environment;
pub mod error;
mod failure;
mod fence;
mod http;
pub mod names;
pub mod owner;
pub mod params;
mod plan;
mod policy;
mod probe;
mod purge;
mod recall;
mod region;
mod remedy;
mod revoke;
mod room;
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

pub use self::error::Error;
pub use self::owner::Owner;

/// Provisions S3 buckets and IAM users.
pub struct AwsProvisioner {
    /// Name of the provisioner, which every bucket and user is tagged with.
    name: String,
    /// The endpoints that the operator's environment names, or why they cannot be used.
    environment: Result<Environment, values::ParameterError>,
    clients: Clients,
    /// Names that users chose and that are being created right now; see [`Self::claim_name`].
    being_created: Mutex<HashSet<NameInStore>>,
}

impl fmt::Debug for AwsProvisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsProvisioner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AwsProvisioner {
    /// A backend that tags what it makes with `provisioner_name`, such as `aws-s3.io/bucket`.
    ///
    /// The endpoints in the environment (AWS_ENDPOINT_URL and those of S3 and IAM) are read now, once.
    /// Nothing is called: ambient credentials are looked for when a class first needs them.
    pub fn new(provisioner_name: &str) -> Self {
        let environment = Environment::read(|name| std::env::var(name).ok());
        Self::with(provisioner_name, environment, Clients::new(Http::new()))
    }

    /// The same, but each request to AWS that begins while `allowed` says no fails in place of being sent: for
    /// a process that may work only at times, such as the holder of a lease
    /// ([`Term::is_over`](crate::runtime::lease::Term::is_over)).
    pub fn only_while(self, allowed: impl Fn() -> bool + Clone + Send + Sync + 'static) -> Self {
        Self { clients: Clients::new(Http::new().only_while(allowed)), ..self }
    }

    fn with(
        provisioner_name: &str,
        environment: Result<Environment, values::ParameterError>,
        clients: Clients,
    ) -> Self {
        Self { name: provisioner_name.to_owned(), environment, clients, being_created: Mutex::default() }
    }

    fn environment(&self) -> Result<&Environment, Error> {
        self.environment.as_ref().map_err(|error| Error::InvalidEnvironment(error.clone()))
    }

    fn target<'a>(&self, record: &'a Record) -> Result<Target<'a>, Error> {
        Ok(Target::of(record, self.environment()?))
    }

    /// Keeps two claims of this process from creating a bucket of the same chosen name at once, where the
    /// store would say yes to both.
    fn claim_name<'a>(&'a self, target: &Target<'_>) -> Result<Option<NameGuard<'a>>, Error> {
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
            code: "another claim asks for the same name".to_owned(),
            message: None,
        }
        .untouched())
    }

    /// Takes the access of a record away; tries the app's keys where there is no user to be seen.
    async fn take_access(
        &self,
        store: &clients::Store,
        target: &Target<'_>,
        present: Option<&AppCredentials>,
    ) -> Result<Fate, Error> {
        let fate = revoke::revoke(store, target, present).await?;
        let tried = present.filter(|_| fate == Fate::Missing);
        let (Some(keys), Some(user)) = (tried, target.user) else { return Ok(fate) };
        if sts::is_alive(&self.clients.app(&StaticKeys::from(keys), target), target).await? {
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

/// Where S3 is, unless that is AWS, and the name of a bucket there.
type NameInStore = (Option<String>, String);

/// Gives a name free again, also if the verb is dropped.
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
    type Owner = Owner;
    type Error = Error;

    fn plan(&self, request: &Request<'_>) -> Result<Plan, Error> {
        plan::plan(request, self.environment()?)
    }

    fn owner(&self, record: &Record, source: OwnerSource) -> Result<Owner, Error> {
        Owner::parse(record, source)
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
            let _guard = self.claim_name(&target)?;
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
        let access = self.take_access(&store, &target, present).await?;
        Ok(Removal::Done(Removed { access, bucket: Fate::Kept }))
    }

    async fn delete(&self, record: &Record, owner: &Owner, present: Option<&AppCredentials>) -> Result<Removal, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        let access = self.take_access(&store, &target, present).await?;
        // Whatever the caller meant: a bucket that was there before is not deleted.
        if record.plan.mode == Mode::Granted {
            return Ok(Removal::Done(Removed { access, bucket: Fate::Kept }));
        }
        let bucket = match purge::delete(&store, &target, Limits::default()).await? {
            Purged::Gone => Fate::Removed,
            Purged::Missing => Fate::Missing,
            Purged::Left(why) => Fate::Left(why),
            Purged::Partly(removed) => return Ok(Removal::Partial { removed }),
        };
        Ok(Removal::Done(Removed { access, bucket }))
    }
}
