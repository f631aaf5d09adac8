//! The clients of one identity, and how its calls are made: at the rate that the account allows, and repeated when they were
//! throttled.

use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_sdk_eks as eks;
use aws_sdk_iam as iam;
use aws_sdk_s3 as s3;
use aws_sdk_s3control as s3control;
use aws_sdk_sts as sts;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use tokio::time::sleep;

use crate::class::target::{Ceilings, Endpoints};
use crate::client::account::Account;
use crate::client::call::{Call, CallError, Cause, Identity, Operation, Resource, Service, observe};
use crate::client::codes::is_about_credentials;
use crate::client::error::Error;
use crate::client::limiter::{Backoff, Limiter, Limiters};
use crate::client::quota::Quotas;
use crate::client::session::Session;
use crate::s3::budget::MemoryBudget;
use bucket_provisioner::store::Observer;

/// How often a call about objects is repeated if the store fails, unless that took so long. All of them can be repeated
/// blindly, and a removal makes many.
const RETRIES: u32 = 2;
const RETRIED: Duration = Duration::from_secs(10);
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// The clients of one identity.
pub(crate) struct Store {
    pub(crate) s3: s3::Client,
    /// S3 for calls about objects, and for listings, whose answers are longer than others.
    pub(crate) listing_s3: s3::Client,
    pub(crate) iam: iam::Client,
    /// `None` if no claim of the class needs it.
    pub(crate) eks: Option<eks::Client>,
    /// The part of S3 for access points; `None` if its endpoint is not known.
    pub(crate) control: Option<s3control::Client>,
    /// `None` if the endpoint is not known.
    pub(crate) sts: Option<sts::Client>,
    /// Its part of what the listings of all stores share.
    pub(crate) budget: MemoryBudget,
    /// The account that the identity belongs to.
    pub(crate) account: Account,
    pub(crate) endpoints: Endpoints,
    pub(super) quotas: Arc<Quotas>,
    /// Whether CreateBucket was accepted when it was last called.
    pub(super) creates_buckets: AtomicBool,
    /// Whether CreateBucket refuses tags here.
    pub(super) refuses_tags: AtomicBool,
    /// Whether CreateBucket was denied because it names the ownership of objects.
    pub(super) denies_ownership: AtomicBool,
    pub(super) limiters: Arc<Limiters>,
    pub(super) observer: Observer,
    pub(super) identity: Identity,
    /// The access key id; `None` for the ambient identity.
    pub(super) key_id: Option<String>,
    /// Whether the Secret has a session token.
    pub(super) session: bool,
    /// The session that signs, if the identity is a role.
    pub(super) role: Option<Arc<Session>>,
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
        self.call_for_parts(operation, resource, send, |_| false).await
    }

    /// The same for a call whose answer can say that a `part` of it was throttled. The caller repeats that part.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub(crate) async fn call_for_parts<T, E, F>(
        &self,
        operation: Operation,
        resource: Resource,
        send: impl Fn() -> F,
        part: impl Fn(&T) -> bool,
    ) -> Result<T, CallError>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    {
        let scope = self.scope(operation, &resource);
        let ceilings = self.ceilings(operation, &scope);
        let limiter = self.limiters.of(scope);
        let (mut backoff, mut retries, mut is_renewed) = (Backoff::default(), 0..RETRIES, false);
        loop {
            let mut turns = Vec::with_capacity(ceilings.len());
            for (limiter, ceiling) in &ceilings {
                turns.push(limiter.acquire(Some(*ceiling)).await);
            }
            let sent = limiter.acquire(None).await;
            let began = sent.at;
            let answer = self.call_once(operation, resource.clone(), Box::pin(send())).await;
            let is_throttled = answer.as_ref().map_or_else(CallError::is_throttled, &part);
            sent.answered(is_throttled);
            let repeats = match &answer {
                Err(_) if is_throttled => backoff.wait().await,
                // It was not executed, and the next session is another one.
                Err(error) if self.role.is_some() && is_about_credentials(error.code()) => {
                    !mem::replace(&mut is_renewed, true)
                }
                Err(error) if operation.service() == Service::Objects && error.is_transient() => {
                    began.elapsed() < RETRIED && retries.next().is_some()
                }
                _ => false,
            };
            if repeats || is_throttled && answer.is_ok() {
                self.observer.retried(operation.service().name());
            }
            if !repeats {
                return answer;
            }
            if answer.is_err_and(|error| error.is_transient()) {
                sleep(RETRY_WAIT).await;
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
        let key_id = || self.role.as_ref().and_then(|session| session.key_id());
        let before = key_id();
        let answer = observe(&self.observer, self.call_to(operation, resource), sent).await;
        match (&answer, &self.role) {
            (Err(error), Some(session)) if is_about_credentials(error.code()) => {
                // Another call may have replaced the session meanwhile.
                before.or_else(key_id).into_iter().for_each(|key_id| session.forget(&key_id));
            }
            (Err(error), Some(session)) if error.code() == "AccessDenied" => session.doubt(),
            _ => {}
        }
        answer
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

    /// Whether buckets are created without tags, because their store or region refuses those.
    pub(crate) fn creates_without_tags(&self) -> bool {
        self.refuses_tags.load(Ordering::Relaxed)
    }

    /// Whether the last bucket could be created only without naming the ownership of objects.
    pub(crate) fn creates_without_ownership(&self) -> bool {
        self.denies_ownership.load(Ordering::Relaxed)
    }

    /// Notes whether a bucket that names the ownership of objects was created, and one that does not was denied.
    pub(crate) fn note_ownership(&self, accepted: bool) {
        self.denies_ownership.store(!accepted, Ordering::Relaxed);
    }

    /// Notes that a bucket was created without the tags with which it was refused.
    pub(crate) fn note_refused_tags(&self) {
        self.refuses_tags.store(true, Ordering::Relaxed);
    }

    /// What shares a limit with a call: those of the account to the service, or, for objects, those of the bucket that
    /// delete or that do not.
    fn scope(&self, operation: Operation, resource: &Resource) -> String {
        let Endpoints { s3, region, iam, .. } = &self.endpoints;
        // If the account is not known, its credentials.
        let identity = || self.role.as_ref().map(|session| session.role().to_owned()).or_else(|| self.key_id.clone());
        let account = || self.account.known().or_else(identity).unwrap_or_default();
        match operation.service() {
            Service::Iam | Service::Sts => format!("IAM {iam:?} {} {}", account(), operation.reads()),
            Service::Eks => format!("EKS {:?} {} {}", self.endpoints.eks, account(), operation.reads()),
            Service::Buckets => format!("S3 {s3:?} {region} {}", account()),
            Service::Objects => {
                let deletes = matches!(operation, Operation::DeleteObjects | Operation::DeleteObject);
                format!("S3 {s3:?} {resource} {deletes}")
            }
        }
    }

    /// The ceilings of a call, each with its limiter: that of its class first, for which other classes need not wait.
    fn ceilings(&self, operation: Operation, scope: &str) -> Vec<(Arc<Limiter>, u32)> {
        let Ceilings { of_class, of_operator } = self.endpoints.iam_ceilings;
        let is_iam = operation.service() == Service::Iam;
        let both = [("class", of_class), ("operator", of_operator)].into_iter().filter(|_| is_iam);
        let limiter = |(whose, ceiling): (&str, Option<u32>)| {
            Some((self.limiters.of(format!("{scope} {whose} {}", ceiling?)), ceiling?))
        };
        both.filter_map(limiter).collect()
    }

    /// Fails without a call if the account is known to have no room for what the operation creates.
    ///
    /// # Errors
    /// The store's last refusal.
    pub(crate) fn check_quota(&self, operation: Operation, resource: Resource) -> Result<(), Error> {
        self.quotas.check(self.scope(operation, &resource), operation, resource)
    }

    /// Notes how a call ended that creates something.
    pub(crate) fn note_quota(&self, operation: Operation, error: Option<&CallError>) {
        self.quotas.note(self.scope(operation, &Resource::Account), operation, error);
    }

    /// This operation has deleted something, so there may be room.
    pub(crate) fn freed(&self, operation: Operation) {
        self.quotas.freed(&self.scope(operation, &Resource::Account));
    }

    /// The error for an answer without a required value.
    pub(crate) fn unreadable(&self, operation: Operation, resource: Resource) -> CallError {
        CallError { call: Box::new(self.call_to(operation, resource)), cause: Cause::Unreadable }
    }

    fn call_to(&self, operation: Operation, resource: Resource) -> Call {
        Call { operation, resource, identity: self.identity.clone(), session: self.session }
    }
}
