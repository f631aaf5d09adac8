//! The verbs of the store: provision, grant, revoke, delete, and what is done for bound claims. Read this first.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::class::environment::Environment;
use crate::class::params::ClassParameters;
use crate::class::target::Target;
use crate::class::{names, plan};
use crate::client::call::{Operation, Resource};
use crate::client::clients::{Clients, Store};
use crate::client::http::Http;
use crate::client::owner::StaticKeys;
use crate::client::sts;
use crate::doctor;
use crate::doctor::Asked;
use crate::iam::revoke::Ended;
use crate::iam::{probe, revoke, upkeep, user};
use crate::inventory;
use crate::progress::{Steps, Unfinished};
use crate::reasons;
use crate::recall;
use crate::s3::emptying::Emptyings;
use crate::s3::purge::Purged;
use crate::s3::{bucket, purge, tags};
use crate::{Error, Owner, PROVISIONER_NAME};
use bucket_provisioner::NoFlags;
use bucket_provisioner::store::{
    AppCredentials, Checkup, Content, Deactivation, Endpoint, Failure as _, Fate, Finding, Inventory, Mode,
    ParameterError, Plan, Probe, Provisioner, Reason, Recalled, Record, Removal, Removed, Request, Start, Stock, Usage,
};

/// How long AWS may not show what was created.
const LAG: Duration = Duration::from_secs(120);
/// The same of another store.
const LAG_ELSEWHERE: Duration = Duration::from_secs(10);

/// How long a look at a bucket proves whose it is.
const PROOF_AGE: Duration = Duration::from_secs(10);

/// Provisions S3 buckets and IAM users.
pub struct AwsProvisioner {
    /// Name of the provisioner, with which every bucket and user is tagged.
    name: String,
    /// The endpoints that the operator's environment sets, or why they cannot be used.
    environment: Result<Environment, ParameterError>,
    clients: Clients,
    unfinished: Unfinished,
    emptyings: Emptyings,
    /// Buckets with chosen names that are being created now; see [`Self::lock_name`].
    being_created: Mutex<HashSet<NameInStore>>,
    asked: Asked,
}

impl fmt::Debug for AwsProvisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsProvisioner").field("name", &self.name).finish_non_exhaustive()
    }
}

impl AwsProvisioner {
    /// The store for [`Operator::run`](bucket_provisioner::Operator::run); see [`new`](Self::new).
    ///
    /// # Errors
    /// None.
    pub async fn start(_: NoFlags, start: Start) -> Result<Self, Infallible> {
        Ok(Self::new(start))
    }

    /// The store for AWS, and for stores with the same interface.
    ///
    /// Reads the endpoints in the environment (AWS_ENDPOINT_URL and those of S3, IAM and STS) once, now. Makes no call:
    /// ambient credentials are loaded when a class first needs them. Requests to AWS that begin while the process may not
    /// call the store are blocked, also the SDK's own.
    #[must_use]
    pub fn new(start: Start) -> Self {
        let environment = Environment::read(|name| std::env::var(name).ok());
        let clients = Clients::new(Http::new().only_while(start.permit)).observed(start.observer);
        Self { name: start.provisioner_name, ..Self::with(environment, clients) }
    }

    pub(crate) fn with(environment: Result<Environment, ParameterError>, clients: Clients) -> Self {
        Self {
            name: PROVISIONER_NAME.to_owned(),
            environment,
            clients,
            unfinished: Unfinished::default(),
            emptyings: Emptyings::default(),
            being_created: Mutex::default(),
            asked: Asked::default(),
        }
    }

    fn environment(&self) -> Result<&Environment, Error> {
        self.environment.as_ref().map_err(|error| Error::InvalidEnvironment(error.clone()))
    }

    fn target<'a>(&self, record: &'a Record) -> Result<Target<'a>, Error> {
        Ok(Target::of(record, self.environment()?))
    }

    /// Keeps two claims of this process from creating a bucket of the same chosen name at the same time, where the
    /// store would accept both.
    pub(crate) fn lock_name<'a>(&'a self, target: &Target<'_>) -> Result<Option<NameGuard<'a>>, Error> {
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

    /// Looks at the user of a record. If there is no such user, checks that the app's keys do not work either.
    async fn find_access(
        &self,
        store: &Store,
        target: &Target<'_>,
        present: Option<&AppCredentials>,
    ) -> Result<Access, Error> {
        let Some(user) = target.user else { return Ok(Access::Shared) };
        if let Some(found) = revoke::find(store, user, present).await? {
            return Ok(Access::Found(found));
        }
        revoke::remove_rest(store, target, user).await?;
        let Some(keys) = present else { return Ok(Access::Missing) };
        if sts::keys_work(&self.clients.app(&StaticKeys::from(keys), target), target).await? {
            return Err(Error::AccessStillWorks { user: user.name.to_owned(), key: keys.access_key_id.clone() });
        }
        Ok(Access::Missing)
    }

    /// Removes the access that was found; `beside` runs when nobody has access any more, beside the rest. It does not run if
    /// nothing proves whose the access is.
    async fn remove_access<T>(
        store: &Store,
        target: &Target<'_>,
        found: Access,
        present: Option<&AppCredentials>,
        beside: impl Future<Output = T>,
    ) -> Result<(Fate, Option<T>), Error> {
        let (fate, beside) = match (found, target.user) {
            (Access::Found(found), Some(user)) => {
                match revoke::end_access(store, target, user, found, present).await? {
                    Ended::Unproven(why) => return Ok((Fate::Unproven(why), None)),
                    ended => tokio::join!(revoke::delete(store, target, user, ended), beside),
                }
            }
            (Access::Missing, _) => (Ok(Fate::Missing), beside.await),
            (Access::Found(_), None) | (Access::Shared, _) => (Ok(Fate::Kept), beside.await),
        };
        Ok((fate?, Some(beside)))
    }

    /// Creates what a record names: bucket and user side by side, if nothing speaks against the bucket.
    async fn create(
        &self,
        store: &Store,
        owner: &Owner,
        target: &Target<'_>,
        Steps { bucket: has_bucket, user: steps }: &mut Steps,
    ) -> Result<AppCredentials, Error> {
        let tags = tags::of_record(&self.name, target.record);
        let side_by_side = store.creates_buckets() && bucket::NameKind::of(target) == bucket::NameKind::Generated;
        let bucket = async {
            if *has_bucket {
                return Ok(());
            }
            let _guard = self.lock_name(target)?;
            let created = bucket::create(store, target, &tags).await;
            store.note_creation(created.is_ok());
            *has_bucket = created.is_ok();
            created
        };
        match target.user {
            // A refused bucket would leave a user behind, until the claim is deleted.
            Some(user) if side_by_side => {
                let (bucket, keys) =
                    tokio::join!(Box::pin(bucket), Box::pin(user::issue(store, target, user, &tags, steps)));
                match (bucket, keys) {
                    (Ok(()), keys) => keys.map_err(Error::after_a_change),
                    (Err(error), Err(other)) if other.store_untouched() && !steps.begun() => Err(error),
                    (Err(error), _) => Err(error.after_a_change()),
                }
            }
            user => {
                bucket.await?;
                let keys = match user {
                    Some(user) => user::issue(store, target, user, &tags, steps).await,
                    None => owner.share(),
                };
                keys.map_err(Error::after_a_change)
            }
        }
    }
}

/// The access of a claim's apps, as it was found.
enum Access {
    /// There is no user, because the claim shares the owner's keys.
    Shared,
    /// There is no user any more.
    Missing,
    Found(revoke::Found),
}

/// The URL of S3, if it is not AWS's default one, and the name of a bucket.
type NameInStore = (Option<String>, String);

/// Unlocks a name, even if the verb is dropped.
pub(crate) struct NameGuard<'a> {
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
    const REASONS: &'static [&'static Reason] = reasons::TABLE;

    fn check_bucket_name(name: &str, mode: Mode) -> Result<(), String> {
        names::check(name, mode)
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

    /// What Terraform's provider waits for, too: "propagation" of IAM and of S3, two minutes each. Other stores are not
    /// spread over regions.
    fn consistency_lag(&self, record: &Record) -> Duration {
        let is_elsewhere = |target: Target<'_>| {
            target.endpoints.s3_is_foreign() && (target.user.is_none() || target.endpoints.iam_is_foreign())
        };
        if self.target(record).is_ok_and(is_elsewhere) { LAG_ELSEWHERE } else { LAG }
    }

    async fn account(&self, record: &Record, owner: &Owner) -> Result<Option<String>, Error> {
        let target = self.target(record)?;
        sts::account(&*self.clients.store(owner, &target).await).await
    }

    async fn recall(&self, record: &Record, owner: &Owner) -> Result<Option<Recalled>, Error> {
        let target = self.target(record)?;
        recall::recall(&*self.clients.store(owner, &target).await, &target).await
    }

    async fn examine(&self, record: &Record, owner: &Owner) -> Vec<Finding> {
        // An environment that cannot be used was reported when the class was planned.
        let Ok(target) = self.target(record) else { return Vec::new() };
        doctor::examine(&self.asked, &self.clients.store(owner, &target).await, &target).await
    }

    async fn usage(&self, record: &Record, owner: &Owner) -> Result<Option<Usage>, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        let usage = inventory::usage(&store, target.bucket_ref()).await;
        usage.map(Some).map_err(|error| bucket::not_usable(&target, error))
    }

    async fn inventory(
        &self,
        record: &Record,
        owner: &Owner,
        again: Option<&[Stock]>,
    ) -> Result<Option<Inventory>, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        inventory::inventory(&store, &target, &self.name, again).await.map(Some)
    }

    async fn provision(&self, record: &Record, owner: &Owner) -> Result<AppCredentials, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        let running = self.unfinished.begin(record, &store);
        running.attempt(async |steps: &mut Steps| self.create(&store, owner, &target, steps).await).await
    }

    async fn grant(&self, record: &Record, owner: &Owner) -> Result<AppCredentials, Error> {
        let target = self.target(record)?;
        let tags = tags::of_record(&self.name, record);
        let store = self.clients.store(owner, &target).await;
        bucket::check(&store, &target, &tags).await?;
        let Some(user) = target.user else { return owner.share() };
        let running = self.unfinished.begin(record, &store);
        let issue = async |steps: &mut Steps| user::issue(&store, &target, user, &tags, &mut steps.user).await;
        running.attempt(issue).await
    }

    async fn probe(&self, record: &Record, credentials: &AppCredentials) -> Result<Probe, Error> {
        let target = self.target(record)?;
        let app = self.clients.app(&StaticKeys::from(credentials), &target);
        probe::probe(&app, &target).await
    }

    async fn rotate(&self, record: &Record, owner: &Owner, present: &str) -> Result<Option<AppCredentials>, Error> {
        let target = self.target(record)?;
        let Some(user) = target.user else { return Ok(None) };
        self.unfinished.forget(record);
        let store = self.clients.store(owner, &target).await;
        upkeep::rotate(&store, user, present).await.map(Some)
    }

    async fn deactivate(
        &self,
        record: &Record,
        owner: &Owner,
        key: &str,
        unless_used_since: Option<SystemTime>,
    ) -> Result<Deactivation, Error> {
        let target = self.target(record)?;
        let Some(user) = target.user else { return Ok(Deactivation::NotNeeded) };
        let store = self.clients.store(owner, &target).await;
        upkeep::deactivate(&store, user, key, unless_used_since).await
    }

    async fn check(&self, record: &Record, owner: &Owner, keys: &[&str]) -> Result<Checkup, Error> {
        let target = self.target(record)?;
        let tags = tags::of_record(&self.name, record);
        self.unfinished.forget(record);
        let store = self.clients.store(owner, &target).await;
        upkeep::check(&store, &target, &tags, keys).await
    }

    async fn revoke(&self, record: &Record, owner: &Owner, present: Option<&AppCredentials>) -> Result<Removal, Error> {
        let target = self.target(record)?;
        let store = self.clients.store(owner, &target).await;
        self.unfinished.forget(record);
        let found = self.find_access(&store, &target, present).await?;
        let (access, _) = Self::remove_access(&store, &target, found, present, async {}).await?;
        Ok(Removal::Done(Removed::new(access, Fate::Kept)))
    }

    async fn delete(
        &self,
        record: &Record,
        owner: &Owner,
        present: Option<&AppCredentials>,
        content: Content,
    ) -> Result<Removal, Error> {
        let target = self.target(record)?;
        // A bucket that existed before is never deleted, whatever the caller asks for.
        if record.plan.mode == Mode::Granted {
            return self.revoke(record, owner, present).await;
        }
        let store = self.clients.store(owner, &target).await;
        self.unfinished.forget(record);
        // Nothing is deleted where the access cannot be found: that would be another account.
        let (user, bucket) = tokio::join!(self.find_access(&store, &target, present), purge::find(&store, &target));
        let (looked, is_ours) = (Instant::now(), matches!(bucket, Ok(None)));
        let delete = async {
            match content {
                _ if !is_ours => Ok(false),
                Content::Delete => purge::delete_empty(&store, &target).await,
                Content::Keep => purge::delete_if_empty(&store, &target).await,
            }
        };
        let (access, deleted) = Self::remove_access(&store, &target, user?, present, delete).await?;
        // Somebody has to decide.
        let Some(deleted) = deleted else { return Ok(Removal::Done(Removed::new(access, Fate::Kept))) };
        let purged = match (bucket?, deleted?) {
            (Some(ended), _) => ended,
            (None, true) => Purged::Gone,
            (None, false) if content == Content::Keep => Purged::NotEmpty,
            // The calls in between may have waited for their turns, and somebody may have taken the bucket over.
            (None, false) if looked.elapsed() > PROOF_AGE => match purge::find(&store, &target).await? {
                Some(ended) => ended,
                None => purge::delete(&store, &target, &self.emptyings).await?,
            },
            (None, false) => purge::delete(&store, &target, &self.emptyings).await?,
        };
        let bucket = match purged {
            Purged::Gone => Fate::Removed,
            Purged::Missing => Fate::Missing,
            Purged::Left(why) => Fate::Left(why),
            Purged::NotEmpty => Fate::NotEmpty,
            Purged::Partly(removed) => return Ok(Removal::partial(removed)),
        };
        Ok(Removal::Done(Removed::new(access, bucket)))
    }
}
