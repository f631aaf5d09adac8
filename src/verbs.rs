//! The verbs of the store: what is created, granted, revoked and deleted, and what is done for bound claims. Read this first.
//!
//! Long, because it implements all verbs of one trait.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::class::environment::Environment;
use crate::class::namespace::AccountRegional;
use crate::class::params::{ClassParameters, DEFAULT_REGION};
use crate::class::target::{self, Target};
use crate::class::{names, plan};
use crate::client::call::{Operation, Resource};
use crate::client::clients::Clients;
use crate::client::http::Http;
use crate::client::owner::StaticKeys;
use crate::client::store::Store;
use crate::client::sts;
use crate::doctor;
use crate::doctor::Asked;
use crate::iam::association::{Association, Associations};
use crate::iam::revoke::Ended;
use crate::iam::user::UserSteps;
use crate::iam::{policy, probe, revoke, role, upkeep, user, web_identity};
use crate::inventory;
use crate::progress::Unfinished;
use crate::reasons;
use crate::recall;
use crate::s3::creation::{self, BucketSteps};
use crate::s3::emptying::Emptyings;
use crate::s3::{bucket, purge, settings, tags};
use crate::{Error, Flags, Owner, PROVISIONER_NAME};
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Capabilities, Checkup, Content, CreateError, Deactivation,
    Endpoint, Failure as _, FailureClass, Finding, Inventory, Mode, ParameterError, Plan, Probe, ProbeCall,
    Provisioner, Reason, Recalled, Record, Request, SettingError, Start, TaggedResource, Usage,
};

/// How long AWS may not show what was created.
const LAG: Duration = Duration::from_secs(120);
/// The same of another store.
const LAG_ELSEWHERE: Duration = Duration::from_secs(10);

/// How long the tags that were read of a bucket prove whose it is.
const PROOF_AGE: Duration = Duration::from_secs(10);

/// Provisions S3 buckets and IAM users.
pub struct AwsProvisioner {
    /// Name of the provisioner, with which every bucket and user is tagged.
    name: String,
    /// The endpoints that the operator's environment sets, or why they cannot be used.
    environment: Result<Environment, ParameterError>,
    clients: Clients,
    /// The buckets that were created, of claims whose users were not, and how far these came.
    buckets: Unfinished<BucketSteps>,
    users: Unfinished<UserSteps>,
    pub(crate) associations: Associations,
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
    pub async fn start(flags: Flags, start: Start) -> Result<Self, Infallible> {
        let flags = if start.serves { flags } else { flags.of_command() };
        let store = Self::new(start);
        Ok(Self { environment: store.environment.map(|environment| environment.with(flags)), ..store })
    }

    /// The store for AWS, and for stores with the same interface.
    ///
    /// Reads the endpoints in the environment (AWS_ENDPOINT_URL and those of S3, IAM and STS) once, now. Makes no call:
    /// ambient credentials are loaded when a class first needs them. Requests to AWS that begin while the process may not
    /// call the store are blocked, also the SDK's own.
    #[must_use]
    pub fn new(start: Start) -> Self {
        let environment = Environment::read(|name| std::env::var(name).ok());
        let clients = Clients::new(Http::new(start.permit)).observed(start.observer);
        Self { name: start.provisioner_name, ..Self::with(environment, clients) }
    }

    pub(crate) fn with(environment: Result<Environment, ParameterError>, clients: Clients) -> Self {
        Self {
            name: PROVISIONER_NAME.to_owned(),
            environment,
            clients,
            buckets: Unfinished::default(),
            users: Unfinished::default(),
            associations: Associations::default(),
            emptyings: Emptyings::default(),
            being_created: Mutex::default(),
            asked: Asked::default(),
        }
    }

    fn environment(&self) -> Result<&Environment, Error> {
        self.environment.as_ref().map_err(|error| Error::InvalidEnvironment(error.clone()))
    }

    fn target<'a>(&self, record: &'a Record) -> Result<Target<'a>, Error> {
        let target = Target::of(record, self.environment()?);
        target.check_access().map(|()| target)
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
        if names.lock().insert(key.clone()) {
            return Ok(Some(NameGuard { names, key }));
        }
        Err(Error::StoreBusy {
            operation: Operation::CreateBucket,
            resource: Resource::Bucket(name),
            code: "another claim is creating it".to_owned(),
            message: None,
        }
        .without_side_effects())
    }

    /// The store of a call, and what its verb needs of the record.
    async fn reach<'a>(&self, call: &Call<'a, Self>) -> Result<(Arc<Store>, Target<'a>), Error> {
        let target = self.target(call.record)?;
        Ok((self.clients.store(call.owner, &target).await, target))
    }

    /// Reads the user of a record. If there is no such user, checks that the app's keys do not work either.
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

    /// The association of the claim's ServiceAccount, if its apps have access by one.
    fn association<'a>(&'a self, store: &'a Store, target: &'a Target<'a>) -> Option<Association<'a>> {
        let spec = target.association.as_ref()?;
        Some(Association { all: &self.associations, store, target, spec, provisioner: &self.name })
    }

    /// What `grant` returns if the access of the claim's ServiceAccount was granted, or could not be.
    fn without_keys(&self, record: &Record, granted: Result<(), Error>) -> Result<AppCredentials, CreateError<Error>> {
        if granted.as_ref().err().is_none_or(|error| error.class() == FailureClass::Terminal) {
            self.buckets.forget(record);
        }
        granted.map(|()| AppCredentials::without_keys()).map_err(create_error)
    }

    /// Another attempt begins from the start.
    fn forget_progress(&self, record: &Record) {
        self.buckets.forget(record);
        self.users.forget(record);
    }
}

/// The access of a claim's apps, as it was found.
enum Access {
    /// There is no user, because the claim shares the provisioning credentials.
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
        self.names.lock().remove(&self.key);
    }
}

impl Provisioner for AwsProvisioner {
    type Parameters = ClassParameters;
    type Owner = Owner;
    type Error = Error;

    const USER_NAME_MAX: usize = names::USER_MAX;
    const KEYS_REFUSED_REMEDY: &'static str = "check whether a permissions boundary, a service control policy or the bucket's policy denies s3:ListBucket, s3:GetObject or s3:PutObject to the claim's user or role, or sts:AssumeRoleWithWebIdentity to its pods, or its key of KMS does; and whether the policies of podRole allow them";
    const CAPABILITIES: Capabilities = Capabilities::ALL.with_settings(settings::SETTINGS);
    const REASONS: &'static [&'static Reason] = reasons::TABLE;

    fn class_warning(&self, parameters: &ClassParameters) -> Option<(&'static Reason, String)> {
        let has_default = plan::has_default_region(parameters, self.environment().ok()?);
        has_default.then(|| reasons::region_not_named(DEFAULT_REGION))?
    }

    fn check_bucket_name(name: &str, mode: Mode) -> Result<(), String> {
        names::check(name, mode)
    }

    fn name_suffix(parameters: &ClassParameters) -> String {
        parameters.namespace.as_ref().map(AccountRegional::suffix).unwrap_or_default()
    }

    fn endpoint(&self, parameters: &ClassParameters) -> Endpoint {
        match &self.environment {
            Ok(environment) => plan::endpoint(parameters, environment),
            Err(_) => plan::endpoint(parameters, &Environment::default()),
        }
    }

    fn plan(&self, request: &Request<'_, ClassParameters>) -> Result<Plan, Error> {
        let plan = plan::plan(request, self.environment()?);
        policy::check_length(request, &plan, self.environment()?).map(|()| plan)
    }

    fn check_settings(plan: &Plan) -> Result<(), SettingError> {
        settings::Wanted::planned(plan).map(drop)
    }

    /// What Terraform's provider waits for, too: "propagation" of IAM and of S3, two minutes each. Other stores are not
    /// spread over regions.
    fn consistency_lag(&self, record: &Record) -> Duration {
        let is_elsewhere = |target: Target<'_>| {
            target.endpoints.s3_is_foreign() && (!target.has_own_access() || target.endpoints.iam_is_foreign())
        };
        if self.target(record).is_ok_and(is_elsewhere) { LAG_ELSEWHERE } else { LAG }
    }

    /// A role is named for its ServiceAccount and the provider; an association belongs to its cluster, whichever role it gives.
    fn is_same_access(&self, one: &Record, other: &Record) -> bool {
        let [(account, cluster, user), others] = [one, other].map(|record| {
            let Plan { service_account, user, state, .. } = &record.plan;
            (service_account.as_ref().map(|account| &account.name), state.get(target::state::EKS_CLUSTER), user)
        });
        (account, cluster) == (others.0, others.1) && (cluster.is_some() || user == others.2)
    }

    async fn account(&self, call: &Call<'_, Self>) -> Result<Option<String>, Error> {
        let (store, _) = self.reach(call).await?;
        sts::account(&store).await
    }

    async fn recall(&self, call: &Call<'_, Self>) -> Result<Option<Recalled>, Error> {
        let (store, target) = self.reach(call).await?;
        recall::recall(&store, &target, self.association(&store, &target).as_ref()).await
    }

    async fn examine(&self, call: &Call<'_, Self>) -> Vec<Finding> {
        // An environment that cannot be used was reported when the class was planned.
        let Ok((store, target)) = self.reach(call).await else { return Vec::new() };
        doctor::examine(&self.asked, &store, &target, call.issuer).await
    }

    async fn usage(&self, call: &Call<'_, Self>) -> Result<Option<Usage>, Error> {
        let (store, target) = self.reach(call).await?;
        let usage = inventory::usage(&store, target.bucket_ref()).await;
        usage.map(Some).map_err(|error| bucket::not_usable(&target, error))
    }

    async fn inventory(
        &self,
        call: &Call<'_, Self>,
        again: Option<&[TaggedResource]>,
    ) -> Result<Option<Inventory>, Error> {
        let (store, target) = self.reach(call).await?;
        let association = self.association(&store, &target);
        inventory::inventory(&store, &target, (&self.name, association.as_ref()), again).await.map(Some)
    }

    /// If nothing speaks against the bucket: a refused one would leave a user behind, until the claim is deleted.
    async fn creates_in_parallel(&self, call: &Call<'_, Self>) -> bool {
        let Ok((store, target)) = self.reach(call).await else { return false };
        let is_generated = bucket::NameKind::of(&target) == bucket::NameKind::Generated;
        target.has_own_access() && is_generated && store.creates_buckets() && !settings::need_calls(&target)
    }

    fn deletes_in_parallel(&self, _: &Call<'_, Self>) -> bool {
        true
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<Error>> {
        let (store, target) = self.reach(call).await.map_err(CreateError::Refused)?;
        let mut attempt = self.buckets.begin(call.record, &store);
        let tags = tags::of_record(&self.name, call.record);
        if !attempt.steps().created {
            let _guard = self.lock_name(&target).map_err(create_error)?;
            let answer = Box::pin(creation::create(&store, &target, &tags, attempt.steps())).await;
            store.note_creation(answer.is_ok());
            answer.map_err(create_error)?;
        }
        let applied = settings::apply(&store, &target, &tags, &mut attempt.steps().settings).await;
        applied.map_err(CreateError::Failed)
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<Error>> {
        let (store, target) = self.reach(call).await.map_err(CreateError::Refused)?;
        let tags = tags::of_record(&self.name, call.record);
        if !call.creates_bucket() {
            bucket::check(&store, &target, &tags).await.map_err(create_error)?;
        }
        if let Some(role) = &target.role {
            let mut tags = tags::of_role(&self.name, call.record, role.service_account);
            tags.extend(settings::tags::of(&call.record.plan.settings));
            let granted = role::grant(&store, &target, role, &tags).await;
            return self.without_keys(call.record, granted);
        }
        if let Some(association) = self.association(&store, &target) {
            let tags = tags::of_role(&self.name, call.record, association.spec.service_account);
            return self.without_keys(call.record, association.grant(&tags).await);
        }
        let Some(user) = target.user else {
            self.forget_progress(call.record);
            return call.owner.share().map_err(create_error);
        };
        let mut attempt = self.users.begin(call.record, &store);
        let issued = Box::pin(user::issue(&store, &target, user, &tags, attempt.steps())).await;
        let has_user = attempt.steps().begun();
        match &issued {
            // If the bucket cannot be created now, the key is still there for the next attempt. `probe` forgets it.
            Ok(_) if call.creates_bucket() => {}
            Err(error) if error.class() == FailureClass::Retryable => {}
            Ok(_) | Err(_) => {
                attempt.end();
                self.buckets.forget(call.record);
            }
        }
        issued.map_err(|error| if has_user { CreateError::Failed(error) } else { create_error(error) })
    }

    async fn probe(&self, call: &ProbeCall<'_, Self>) -> Result<Probe, Error> {
        // The credentials are in the claim's Secret: the creation has ended.
        self.forget_progress(call.record);
        let target = self.target(call.record)?;
        let keys = match (&target.role, &target.association) {
            (None, None) => call.credentials.clone(),
            // Without a token, or credentials to get one of its sessions, nothing is tried, and nothing proven.
            (Some(role), _) => {
                let Some(token) = call.token else { return Ok(Probe::NotYet("no token".to_owned())) };
                match web_identity::assume(&self.clients, &target, role, token).await? {
                    Ok(session) => session,
                    Err(refused) => return Ok(refused),
                }
            }
            (None, Some(_)) => {
                let none = || Probe::NotYet("no session".to_owned());
                let Some(owner) = call.owner else { return Ok(none()) };
                let store = self.clients.store(owner, &target).await;
                let Some(association) = self.association(&store, &target) else { return Ok(none()) };
                match association.session().await? {
                    Ok(session) => session,
                    Err(not_yet) => return Ok(not_yet),
                }
            }
        };
        let app = self.clients.app(&StaticKeys::from(&keys), &target);
        probe::probe(&app, &target, call.is_settled).await
    }

    async fn rotate(&self, call: &Call<'_, Self>, present: &str) -> Result<Option<AppCredentials>, Error> {
        let (store, target) = self.reach(call).await?;
        let Some(user) = target.user else { return Ok(None) };
        self.forget_progress(call.record);
        upkeep::rotate(&store, user, present).await.map(Some)
    }

    async fn deactivate(
        &self,
        call: &Call<'_, Self>,
        key: &str,
        unless_used_since: Option<SystemTime>,
    ) -> Result<Deactivation, Error> {
        let (store, target) = self.reach(call).await?;
        let Some(user) = target.user else { return Ok(Deactivation::NotNeeded) };
        upkeep::deactivate(&store, user, key, unless_used_since).await
    }

    async fn check(&self, call: &Call<'_, Self>, keys: &[&str]) -> Result<Checkup, Error> {
        let (store, target) = self.reach(call).await?;
        self.forget_progress(call.record);
        upkeep::check(&store, &target, (&self.name, self.association(&store, &target).as_ref()), keys).await
    }

    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, Error> {
        let (store, target) = self.reach(call).await?;
        self.forget_progress(call.record);
        if let Some(role) = &target.role {
            return role::revoke(&store, &target, role, || call.end_access()).await;
        }
        if let Some(association) = self.association(&store, &target) {
            return association.revoke(|| call.end_access()).await;
        }
        match (self.find_access(&store, &target, call.present).await?, target.user) {
            (Access::Found(found), Some(user)) => {
                let ended = revoke::end_access(&store, &target, user, found, call.present).await?;
                if !matches!(ended, Ended::Unproven(_)) {
                    call.end_access();
                }
                revoke::delete(&store, &target, user, ended).await
            }
            (Access::Missing, _) => Ok(AccessRemoval::NotFound),
            (Access::Found(_), None) | (Access::Shared, _) => Ok(AccessRemoval::NotIssued),
        }
    }

    /// Where the access cannot be found, this never gets beyond its first read: that would be another account.
    async fn delete_bucket(&self, call: &Call<'_, Self>, content: Content) -> Result<BucketRemoval, Error> {
        let (store, target) = self.reach(call).await?;
        self.forget_progress(call.record);
        let (found, looked) = (purge::find(&store, &target).await, Instant::now());
        call.access_ended().await;
        if let Some(ended) = found? {
            return Ok(ended);
        }
        // Calls may have waited for the rate limit, and somebody else may own the bucket meanwhile.
        let taken_meanwhile = async || match looked.elapsed() > PROOF_AGE {
            true => purge::find(&store, &target).await,
            false => Ok(None),
        };
        if let Some(ended) = taken_meanwhile().await? {
            return Ok(ended);
        }
        let deleted = match content {
            Content::Delete => purge::delete_empty(&store, &target).await?,
            Content::Keep => purge::delete_if_empty(&store, &target).await?,
        };
        match content {
            _ if deleted => return Ok(BucketRemoval::Deleted),
            Content::Keep => return Ok(BucketRemoval::NotEmpty),
            Content::Delete => {}
        }
        call.access_removed().await;
        if let Some(ended) = taken_meanwhile().await? {
            return Ok(ended);
        }
        purge::delete(&store, &target, &self.emptyings).await
    }
}

/// Only a step that has changed nothing marks its error.
fn create_error(error: Error) -> CreateError<Error> {
    match error.changed_nothing() {
        Ok(refused) => CreateError::Refused(refused),
        Err(failed) => CreateError::Failed(failed),
    }
}
