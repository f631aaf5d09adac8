//! The session of a role that the provisioning credentials assume: one for each role, for all of its claims.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_sts as sts;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::client::call::{Call, CallError, Cause, Identity, NotAssumed, Operation, Resource, observe};
use bucket_provisioner::store::{Observer, RoleRef};

/// Whoever has assumed a role already gets no longer session of another one ("Role chaining", IAM user guide).
const LENGTH: Duration = Duration::from_secs(3600);
/// This long before its end a session is replaced.
const RESERVE: Duration = Duration::from_secs(5 * 60);
/// While a session can still be used, a failed replacement is repeated after this time.
const RETRY: Duration = Duration::from_secs(30);
/// Shorter than the limit of the call that waits for it.
const TIME_LIMIT: Duration = Duration::from_secs(8);
/// A denial may be about a session that somebody has revoked, unless it is younger.
const REVOCABLE: Duration = Duration::from_secs(5 * 60);
/// CloudTrail shows it.
const NAME: &str = "aws-s3-provisioner";

/// Assumes a role when it is needed, and keeps the session.
pub(crate) struct Session {
    role: RoleRef,
    /// Who assumes it.
    identity: Identity,
    /// Signed by the identity; `None` if the endpoint is not known.
    sts: Option<sts::Client>,
    observer: Observer,
    kept: Mutex<Kept>,
    /// Only one call at a time assumes the role.
    assuming: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Kept {
    credentials: Option<Credentials>,
    since: Option<Instant>,
    /// No replacement is tried before.
    not_before: Option<Instant>,
}

impl Kept {
    /// Credentials that will not be refused for their age.
    fn usable(&self) -> Option<Credentials> {
        let now = SystemTime::now();
        let left = |credentials: &Credentials, reserve: Duration| {
            credentials.expiry().is_none_or(|end| end > now.checked_add(reserve).unwrap_or(now))
        };
        let waits = self.not_before.is_some_and(|at| Instant::now() < at);
        let reserve = if waits { Duration::ZERO } else { RESERVE };
        self.credentials.clone().filter(|credentials| left(credentials, reserve))
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session(..)")
    }
}

impl Session {
    pub(crate) fn new(role: RoleRef, identity: Identity, sts: Option<sts::Client>, observer: Observer) -> Arc<Self> {
        let (kept, assuming) = Default::default();
        Arc::new(Self { role, identity, sts, observer, kept, assuming })
    }

    /// Its role.
    pub(crate) fn role(&self) -> &str {
        &self.role.name
    }

    /// The access key id of the present session.
    pub(crate) fn key_id(&self) -> Option<String> {
        self.kept.lock().credentials.as_ref().map(|credentials| credentials.access_key_id().to_owned())
    }

    /// Forgets the session with this access key id, because AWS refuses it. The next call assumes the role again.
    pub(crate) fn forget(&self, key_id: &str) {
        let mut kept = self.kept.lock();
        if kept.credentials.as_ref().is_some_and(|credentials| credentials.access_key_id() == key_id) {
            *kept = Kept::default();
        }
    }

    /// Forgets the session if it may have been revoked ("Revoking IAM role temporary security credentials", IAM user guide):
    /// AWS denied what it may have allowed.
    pub(crate) fn doubt(&self) {
        let mut kept = self.kept.lock();
        if kept.since.is_some_and(|since| since.elapsed() >= REVOCABLE) {
            *kept = Kept::default();
        }
    }

    async fn credentials(&self) -> Result<Credentials, CallError> {
        let usable = || self.kept.lock().usable();
        if let Some(usable) = usable() {
            return Ok(usable);
        }
        let _one_at_a_time = self.assuming.lock().await;
        if let Some(usable) = usable() {
            return Ok(usable);
        }
        match self.assume().await {
            Ok(credentials) => {
                *self.kept.lock() =
                    Kept { credentials: Some(credentials.clone()), since: Some(Instant::now()), not_before: None };
                Ok(credentials)
            }
            Err(error) => {
                self.kept.lock().not_before = Some(Instant::now() + RETRY);
                usable().ok_or(error)
            }
        }
    }

    async fn assume(&self) -> Result<Credentials, CallError> {
        let RoleRef { name: arn, external_id, .. } = &self.role;
        let call = Call {
            operation: Operation::AssumeRole,
            resource: Resource::role(arn),
            identity: self.identity.clone(),
            session: false,
        };
        let failed = |cause| CallError { call: Box::new(call.clone()), cause };
        let Some(sts) = &self.sts else {
            return Err(failed(Cause::NotSent("the endpoint of STS is not known".to_owned())));
        };
        let length = i32::try_from(LENGTH.as_secs()).ok();
        let sent = sts.assume_role().role_arn(arn).set_external_id(external_id.clone()).role_session_name(NAME);
        let sent = observe(&self.observer, call.clone(), sent.set_duration_seconds(length).send());
        let answer = timeout(TIME_LIMIT, sent).await.map_err(|_| failed(Cause::NoAnswer("timed out".to_owned())))??;
        let keys = answer.credentials.ok_or_else(|| failed(Cause::Unreadable))?;
        let end = SystemTime::try_from(keys.expiration).map_err(|_| failed(Cause::Unreadable))?;
        Ok(Credentials::new(keys.access_key_id, keys.secret_access_key, Some(keys.session_token), Some(end), NAME))
    }
}

impl ProvideCredentials for Session {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        // The call for which they are needed fails with the same error.
        future::ProvideCredentials::new(async {
            self.credentials().await.map_err(|error| CredentialsError::provider_error(NotAssumed(error)))
        })
    }
}
