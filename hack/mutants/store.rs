//! The provisioner. The places in which it can be wrong ask [`Lockers::is`].
//!
//! Long, because one store has all mistakes, each beside the right code.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bucket_provisioner::Provisioner;
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Capabilities, Checkup, Content, CreateError, Endpoint, Finding,
    Mode, Plan, Probe, ProbeCall, Reason, Record, Request, SecretString, StoreError,
};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::client::{Account, As, Bucket, Http, Myself, Problem, User};
use super::mutant::Mutant;
use super::reasons::{self, CLAIMED, FAILING, GONE, MISSING, TAKEN, UNAUTHORIZED, UNDOCUMENTED};

/// The parameters of a class.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct Parameters {
    /// URL of the store, such as `http://127.0.0.1:8000`.
    pub(crate) server: String,
}

/// The provisioning credentials.
#[derive(Debug, Deserialize)]
pub(crate) struct Admin {
    #[serde(rename = "TOKEN")]
    pub(crate) token: SecretString,
}

/// A store whose buckets and users have the uid of a claim.
pub(crate) struct Lockers {
    pub(crate) http: Http,
    mutant: Option<Mutant>,
    /// The server of each class as [`Provisioner::plan`] saw it last, for [`Mutant::RemembersClass`].
    servers: Mutex<BTreeMap<String, String>>,
}

impl Lockers {
    pub(crate) fn new(mutant: Option<Mutant>) -> Self {
        Self { http: Http::new(), mutant, servers: Mutex::default() }
    }

    /// Whether this mistake is switched on.
    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(crate) fn failed(&self, call: &Call<'_, Self>, problem: &Problem) -> StoreError {
        let server = &call.parameters.server;
        match problem {
            Problem::Refused(StatusCode::UNAUTHORIZED) if self.is(Mutant::TellsSecret) => {
                use bucket_provisioner::store::ExposeSecret as _;
                let token = call.owner.token.expose_secret();
                StoreError::terminal(&UNAUTHORIZED, format!("store {server} does not accept the token {token:?}"))
            }
            Problem::Refused(StatusCode::UNAUTHORIZED) => {
                let message = format!("store {server} does not accept the owner's token: correct it in the Secret");
                StoreError::terminal(&UNAUTHORIZED, message)
            }
            Problem::Failed(_, body) if self.is(Mutant::Volatile) => {
                StoreError::retryable(&FAILING, format!("store {server} has failed: {body}"))
            }
            problem => {
                let reason = if self.is(Mutant::UnknownReason) { &UNDOCUMENTED } else { &FAILING };
                StoreError::retryable(reason, format!("store {server} {problem}; retrying"))
            }
        }
    }

    /// A call that changes nothing, or of which the verb knows how far it came.
    pub(crate) async fn ask(&self, call: &Call<'_, Self>, method: Method, path: &str) -> Result<(), Problem> {
        self.http.call(As::Owner(&call.owner.token), method, &call.parameters.server, path).await.map(drop)
    }

    async fn bucket(&self, call: &Call<'_, Self>) -> Result<Option<Bucket>, Problem> {
        let path = format!("/buckets/{}", call.bucket());
        self.read(self.http.find(As::Owner(&call.owner.token), &call.parameters.server, &path).await)
    }

    pub(crate) async fn user(&self, call: &Call<'_, Self>) -> Result<Option<User>, Problem> {
        let path = format!("/users/{}", call.user());
        self.read(self.http.find(As::Owner(&call.owner.token), &call.parameters.server, &path).await)
    }

    fn read<T>(&self, found: Result<Option<T>, Problem>) -> Result<Option<T>, Problem> {
        match found {
            Err(Problem::Failed(..)) if self.is(Mutant::ErrorIsMissing) => Ok(None),
            found => found,
        }
    }

    /// Deletes; whether it existed.
    pub(crate) async fn delete(&self, call: &Call<'_, Self>, path: &str) -> Result<bool, StoreError> {
        let deleted = self.http.delete(As::Owner(&call.owner.token), &call.parameters.server, path).await;
        match deleted {
            Err(Problem::Failed(..)) if self.is(Mutant::ErrorIsRemoved) => Ok(true),
            deleted => deleted.map_err(|problem| self.failed(call, &problem)),
        }
    }

    /// Fails if the bucket does not exist, or is foreign.
    async fn check_bucket(&self, call: &Call<'_, Self>) -> Result<(), StoreError> {
        let name = call.bucket();
        let bucket = self.bucket(call).await.map_err(|problem| self.failed(call, &problem))?;
        let uid = bucket.as_ref().and_then(|bucket| bucket.uid.as_deref());
        let is_mine = uid.is_some_and(|uid| call.record.names_uid(uid));
        match call.record.plan.mode {
            Mode::Created if is_mine => Ok(()),
            Mode::Created if bucket.is_some() && self.is(Mutant::GrantsForeign) => Ok(()),
            Mode::Created => {
                let message = format!(
                    "bucket {name:?}, which was created for this claim, no longer exists or is somebody else's: delete the claim and create a new one"
                );
                Err(StoreError::lost(&GONE, message))
            }
            Mode::Granted if bucket.is_none() && !self.is(Mutant::GrantsMissing) => {
                let message = format!("bucket {name:?}, which the StorageClass names, does not exist: create it");
                Err(StoreError::lost(&MISSING, message))
            }
            Mode::Granted if uid.is_some() && !is_mine && !self.is(Mutant::OpensClaimed) => {
                let message = format!(
                    "bucket {name:?}, which the StorageClass names, was created for another claim: name another one"
                );
                Err(StoreError::terminal(&CLAIMED, message))
            }
            Mode::Granted => Ok(()),
        }
    }

    /// Whether [`Mutant::RemembersClass`] does not know where the bucket is.
    fn has_forgotten(&self, call: &Call<'_, Self>) -> bool {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let now = servers.get(&call.record.class_name);
        self.is(Mutant::RemembersClass) && now != Some(&call.parameters.server)
    }
}

impl Provisioner for Lockers {
    type Parameters = Parameters;
    type Owner = Admin;
    type Error = StoreError;

    const CAPABILITIES: Capabilities = Capabilities::NONE.with_rotation();
    const REASONS: &'static [&'static Reason] = reasons::ALL;

    fn endpoint(&self, parameters: &Parameters) -> Endpoint {
        let at = parameters.server.parse::<http::Uri>().unwrap_or_default();
        Endpoint::new(at.host().unwrap_or_default(), at.port_u16().unwrap_or(80)).with_url(&parameters.server)
    }

    /// What the store shows is so.
    fn consistency_lag(&self, _: &Record) -> Duration {
        Duration::ZERO
    }

    fn plan(&self, request: &Request<'_, Parameters>) -> Result<Plan, StoreError> {
        let plan = request.plan(self.endpoint(request.parameters));
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.insert(request.class_name.to_owned(), request.parameters.server.clone());
        Ok(match self.mutant {
            Some(Mutant::PlanVaries) => plan.with_state("attempt", format!("{:08x}", rand::random::<u32>())),
            Some(Mutant::PlansSecret) => plan.with_state("secret", request.claim.uid.chars().rev().collect::<String>()),
            _ => plan,
        })
    }

    async fn account(&self, call: &Call<'_, Self>) -> Result<Option<String>, StoreError> {
        if self.is(Mutant::UnprovenAccount) {
            return Ok(Some("lockers".to_owned()));
        }
        let (owner, server) = (As::Owner(&call.owner.token), &call.parameters.server);
        let found = self.http.find::<Account>(owner, server, "/account").await;
        found.map(|found| found.map(|it| it.account)).map_err(|problem| self.failed(call, &problem))
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        let name = call.bucket();
        match self.ask(call, Method::PUT, &format!("/buckets/{name}?uid={}", call.record.claim.uid)).await {
            Ok(()) => {}
            Err(problem) if problem.is(StatusCode::CONFLICT) => {
                let found =
                    self.bucket(call).await.map_err(|problem| CreateError::Refused(self.failed(call, &problem)))?;
                let uid = found.and_then(|bucket| bucket.uid);
                let is_mine = uid.is_some_and(|uid| call.record.names_uid(&uid)) && !self.is(Mutant::CreatesOnce);
                if !is_mine && !self.is(Mutant::TakesForeign) {
                    let message = format!("bucket {name:?} exists and is not this claim's: choose another name");
                    return Err(CreateError::Refused(StoreError::terminal(&TAKEN, message)));
                }
            }
            Err(problem) if matches!(problem, Problem::Refused(_)) || self.is(Mutant::AlwaysRefused) => {
                return Err(CreateError::Refused(self.failed(call, &problem)));
            }
            Err(problem) => return Err(self.failed(call, &problem).into()),
        }
        match self.ask(call, Method::PUT, &format!("/buckets/{name}/limit")).await {
            Err(problem) if self.is(Mutant::ForgetChange) => Err(CreateError::Refused(self.failed(call, &problem))),
            limited => Ok(limited.map_err(|problem| self.failed(call, &problem))?),
        }
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        if self.is(Mutant::LogsOwner) {
            use bucket_provisioner::store::ExposeSecret as _;
            // As a struct of a plain String would be logged.
            tracing::debug!(owner = ?call.owner.token.expose_secret(), "granting access");
        }
        if !call.creates_bucket() {
            self.check_bucket(call).await.map_err(CreateError::Refused)?;
        }
        if self.is(Mutant::MarksExisting) && call.record.plan.mode == Mode::Granted {
            let _ = self.ask(call, Method::PUT, &format!("/buckets/{}/limit", call.bucket())).await;
        }
        let (user, keys) = self.make_user(call).await?;
        let issued = async {
            if !self.is(Mutant::KeepsLostKeys) {
                self.delete_keys(call, &user, keys).await?;
            }
            self.issue(call, &user).await
        };
        match issued.await {
            Err(error) if self.is(Mutant::GrantRefused) => Err(CreateError::Refused(error)),
            issued => Ok(issued?),
        }
    }

    async fn probe(&self, call: &ProbeCall<'_, Self>) -> Result<Probe, StoreError> {
        let app = As::App(&call.credentials.access_key_id, &call.credentials.secret_access_key);
        match self.http.find::<Myself>(app, &call.parameters.server, "/myself").await {
            Ok(Some(_)) => Ok(Probe::Usable),
            Ok(None) => Ok(Probe::NotYet("there are no such keys".to_owned())),
            Err(problem) if problem.is(StatusCode::UNAUTHORIZED) => {
                Ok(Probe::NotYet("there are no such keys".to_owned()))
            }
            Err(problem) => {
                Err(StoreError::retryable(&FAILING, format!("store {} {problem}; retrying", call.parameters.server)))
            }
        }
    }

    async fn rotate(&self, call: &Call<'_, Self>, present: &str) -> Result<Option<AppCredentials>, StoreError> {
        let found = self.user(call).await.map_err(|problem| self.failed(call, &problem))?;
        let keys = found.map(|user| user.keys).unwrap_or_default();
        let keys = keys.into_iter().filter(|key| key != present || self.is(Mutant::RotateReplaces));
        self.delete_keys(call, call.user(), keys).await?;
        self.issue(call, call.user()).await.map(Some)
    }

    async fn check(&self, call: &Call<'_, Self>, keys: &[&str]) -> Result<Checkup, StoreError> {
        self.check_bucket(call).await?;
        let existing = match self.user(call).await {
            Err(_) if self.is(Mutant::ErrorIsLost) => Vec::new(),
            found => found.map_err(|problem| self.failed(call, &problem))?.map(|user| user.keys).unwrap_or_default(),
        };
        let is_lost = keys.first().is_some_and(|present| !existing.iter().any(|key| key == present));
        let kept = if self.is(Mutant::CheckDropsKeys) { keys.get(..1).unwrap_or_default() } else { keys };
        let others = existing.into_iter().filter(|key| !kept.contains(&key.as_str()));
        let others: Vec<_> = others.filter(|_| !self.is(Mutant::CheckKeepsKeys)).collect();
        let deleted = self.delete_keys(call, call.user(), others).await?;
        Ok(Checkup::default().with_keys_lost(is_lost).with_deleted_keys(deleted))
    }

    async fn examine(&self, call: &Call<'_, Self>) -> Vec<Finding> {
        if self.is(Mutant::ExamineWrites) {
            let path = format!("/buckets/{}", call.bucket());
            let _ = self.ask(call, Method::PUT, &format!("{path}?uid={}", call.record.claim.uid)).await;
            let _ = self.ask(call, Method::DELETE, &path).await;
        }
        Vec::new()
    }

    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        if self.has_forgotten(call) {
            return Ok(AccessRemoval::NotFound);
        }
        let name = call.user();
        let found = self.user(call).await.map_err(|problem| self.failed(call, &problem))?;
        let is_marked = |user: &User| user.uid.as_deref().is_some_and(|uid| call.record.names_uid(uid));
        let user = match found {
            Some(user) if is_marked(&user) || self.is(Mutant::RevokesForeign) => name.to_owned(),
            None if self.is(Mutant::TrustsNotFound) || self.is(Mutant::ErrorIsMissing) => {
                return Ok(AccessRemoval::NotFound);
            }
            None if self.is(Mutant::RevokesOnce) => {
                let message = format!("store {} has no user {name:?}; retrying", call.parameters.server);
                return Err(StoreError::retryable(&FAILING, message));
            }
            found => match self.present_user(call).await? {
                // It has lost its marks, or its name.
                Some(user) if !self.is(Mutant::NeedsMarks) => user,
                _ if found.is_none() => return Ok(AccessRemoval::NotFound),
                _ => {
                    let why = format!("user {name:?} was left in place, because it is not this claim's");
                    return Ok(AccessRemoval::LeftInPlace(why));
                }
            },
        };
        let existed = self.delete(call, &format!("/users/{user}")).await?;
        call.end_access();
        Ok(if existed { AccessRemoval::Deleted } else { AccessRemoval::NotFound })
    }

    fn deletes_in_parallel(&self, _: &Call<'_, Self>) -> bool {
        true
    }

    async fn delete_bucket(&self, call: &Call<'_, Self>, content: Content) -> Result<BucketRemoval, StoreError> {
        if self.has_forgotten(call) {
            return Ok(BucketRemoval::NotFound);
        }
        let name = call.bucket();
        let found = self.bucket(call).await.map_err(|problem| self.failed(call, &problem))?;
        let objects = match found {
            Some(bucket) if bucket.uid.as_deref().is_some_and(|uid| call.record.names_uid(uid)) => bucket.objects,
            Some(bucket) if self.is(Mutant::DeletesForeign) => bucket.objects,
            Some(_) => {
                let why = format!("bucket {name:?} was left in place, because it is not this claim's");
                return Ok(BucketRemoval::LeftInPlace(why));
            }
            None => return Ok(BucketRemoval::NotFound),
        };
        if !self.is(Mutant::DeletesFirst) {
            call.access_ended().await;
        }
        if content == Content::Keep && objects > 0 && !self.is(Mutant::EmptiesKept) {
            return Ok(BucketRemoval::NotEmpty);
        }
        if content == Content::Delete || self.is(Mutant::EmptiesKept) {
            self.delete(call, &format!("/buckets/{name}/objects")).await?;
        }
        if self.is(Mutant::LeavesBucket) {
            return Ok(BucketRemoval::Deleted);
        }
        match self.http.delete(As::Owner(&call.owner.token), &call.parameters.server, &format!("/buckets/{name}")).await
        {
            Ok(true) => Ok(BucketRemoval::Deleted),
            Ok(false) => Ok(BucketRemoval::NotFound),
            Err(problem) if problem.is(StatusCode::CONFLICT) && content == Content::Keep => Ok(BucketRemoval::NotEmpty),
            Err(Problem::Failed(..)) if self.is(Mutant::ErrorIsRemoved) => Ok(BucketRemoval::Deleted),
            Err(problem) => Err(self.failed(call, &problem)),
        }
    }
}
