//! The clients of one identity, and how its calls are made: at the rate that the account allows, and repeated when they were
//! throttled.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_iam as iam;
use aws_sdk_s3 as s3;
use aws_sdk_s3control as s3control;
use aws_sdk_sts as sts;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use tokio::time::Instant;

use crate::class::target::Endpoints;
use crate::client::account::Account;
use crate::client::call::{Call, CallError, Cause, Identity, Operation, Resource, Service, observe};
use crate::client::error::Error;
use crate::client::pace::{Pacers, Scope};
use crate::client::quota::Quotas;
use crate::s3::budget::MemoryBudget;
use bucket_provisioner::store::Observer;
use bucket_provisioner::store::rate_wait::Priority;

/// A call is given up that was refused for its rate so often, and for so long.
const REFUSALS: u32 = 3;
const REFUSED_TIME: Duration = Duration::from_secs(30);

/// How long a call is repeated that is refused for its rate.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    refusals: u32,
    since: Option<Instant>,
}

impl Timeouts {
    /// Notes a refusal; returns whether the call is given up.
    pub(crate) fn is_over(&mut self) -> bool {
        self.refusals += 1;
        let since = *self.since.get_or_insert_with(Instant::now);
        self.refusals >= REFUSALS && since.elapsed() > REFUSED_TIME
    }
}

/// The clients of one identity.
pub(crate) struct Store {
    pub(crate) s3: s3::Client,
    /// S3 with the SDK's own retries, for calls that can be repeated blindly.
    pub(crate) retrying_s3: s3::Client,
    pub(crate) iam: iam::Client,
    /// The part of S3 for access points; `None` if its endpoint is not known.
    pub(crate) control: Option<s3control::Client>,
    /// `None` if the endpoint is not known.
    pub(crate) sts: Option<sts::Client>,
    /// Shared by the listings of all stores.
    pub(crate) budget: MemoryBudget,
    /// The account that the identity belongs to.
    pub(crate) account: Account,
    pub(crate) endpoints: Endpoints,
    pub(super) quotas: Arc<Quotas>,
    /// Whether CreateBucket was accepted when it was last called.
    pub(super) creates_buckets: AtomicBool,
    pub(super) pacers: Arc<Pacers>,
    pub(super) observer: Observer,
    pub(super) identity: Identity,
    /// The access key id; `None` for the ambient identity.
    pub(super) key_id: Option<String>,
    /// Whether the Secret has a session token.
    pub(super) session: bool,
}

impl Store {
    /// Makes a call that this identity signs, as soon as the rate limit allows it. A throttled call is repeated. Boxed,
    /// because the futures of the SDK are large, and several calls may run side by side.
    ///
    /// # Errors
    /// Why it failed; a refusal for its rate only if it was refused again and again.
    pub(crate) async fn call<T, E, F>(
        &self,
        operation: Operation,
        resource: Resource,
        send: impl Fn() -> F,
    ) -> Result<T, CallError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    {
        self.call_unless(operation, resource, send, |_| false).await
    }

    /// The same for a call whose answer can say that a part of it was `refused` for its rate. The caller repeats that part.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub(crate) async fn call_unless<T, E, F>(
        &self,
        operation: Operation,
        resource: Resource,
        send: impl Fn() -> F,
        refused: impl Fn(&T) -> bool,
    ) -> Result<T, CallError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    {
        let Some(scope) = self.scope(operation, &resource) else {
            return self.call_once(operation, resource, Box::pin(send())).await;
        };
        let pacer = self.pacers.of(scope);
        let mut patience = Timeouts::default();
        let priority = Priority::current();
        loop {
            // What is refused again, perhaps for its own reasons, does not hold up the others.
            let priority = if patience.refusals > 1 { priority.again() } else { priority };
            let slot = pacer.acquire(priority).await;
            match self.call_once(operation, resource.clone(), Box::pin(send())).await {
                Err(error) if error.is_throttled() => {
                    slot.refused();
                    if patience.is_over() {
                        return Err(error);
                    }
                    self.observer.retried(operation.service().name());
                }
                answer => {
                    match &answer {
                        Ok(answer) if refused(answer) => {
                            slot.refused();
                            self.observer.retried(operation.service().name());
                        }
                        Err(error) if error.status() == 0 => {}
                        _ => slot.accepted(),
                    }
                    return answer;
                }
            }
        }
    }

    /// Makes a call that this identity signs, at once and once.
    ///
    /// # Errors
    /// Why it failed.
    pub(crate) async fn call_once<T, E>(
        &self,
        operation: Operation,
        resource: Resource,
        sent: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    ) -> Result<T, CallError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        observe(&self.observer, self.call_to(operation, resource), sent).await
    }

    /// Counts objects that were deleted with their bucket.
    pub(crate) fn purged(&self, objects: u64) {
        self.observer.purged(objects);
    }

    /// Whether the next bucket will most likely be created.
    pub(crate) fn creates_buckets(&self) -> bool {
        self.creates_buckets.load(Ordering::Relaxed)
    }

    /// Notes whether a bucket was created.
    pub(crate) fn note_creation(&self, accepted: bool) {
        self.creates_buckets.store(accepted, Ordering::Relaxed);
    }

    /// What shares a limit with a call.
    fn scope(&self, operation: Operation, resource: &Resource) -> Option<Scope> {
        let account = || self.account.known().or_else(|| self.key_id.clone()).unwrap_or_default();
        let Endpoints { s3, region, iam, .. } = &self.endpoints;
        match (operation.service(), resource) {
            (Service::Iam, _) => Some(Scope::Iam { endpoint: iam.clone(), account: account() }),
            (Service::Buckets, _) => {
                Some(Scope::S3 { endpoint: s3.clone(), region: region.clone(), account: account() })
            }
            (Service::Objects, Resource::Bucket(bucket)) => {
                let deletes = matches!(operation, Operation::DeleteObjects | Operation::DeleteObject);
                Some(Scope::Objects { endpoint: s3.clone(), bucket: bucket.clone(), deletes })
            }
            (Service::Objects | Service::Sts, _) => None,
        }
    }

    /// Fails without a call if the account is known to have no room for what the operation creates.
    ///
    /// # Errors
    /// The store's last refusal.
    pub(crate) fn check_quota(&self, operation: Operation, resource: Resource) -> Result<(), Error> {
        self.scope(operation, &resource).map_or(Ok(()), |scope| self.quotas.check(&scope, operation, resource))
    }

    /// Notes how a call ended that creates something.
    pub(crate) fn note_quota(&self, operation: Operation, error: Option<&CallError>) {
        if let Some(scope) = self.scope(operation, &Resource::Account) {
            self.quotas.note(&scope, operation, error);
        }
    }

    /// This operation has deleted something, so there may be room.
    pub(crate) fn freed(&self, operation: Operation) {
        if let Some(scope) = self.scope(operation, &Resource::Account) {
            self.quotas.freed(&scope);
        }
    }

    /// The error for an answer without a required value.
    pub(crate) fn unreadable(&self, operation: Operation, resource: Resource) -> CallError {
        CallError { call: Box::new(self.call_to(operation, resource)), cause: Cause::Unreadable }
    }

    fn call_to(&self, operation: Operation, resource: Resource) -> Call {
        Call { operation, resource, identity: self.identity.clone(), session: self.session }
    }
}
