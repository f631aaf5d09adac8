//! What every reconcile shares: the client, the provisioner, the caches, the memory.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::caches::Caches;
use super::conditions::Conditions;
use super::crds::Crds;
use super::memory::{Awaited, Memory};
use super::orphans::Orphans;
use super::owner_secrets::OwnerSecrets;
use super::propagation::Propagation;
use super::stores;
use super::unlabelled::Unlabelled;
use crate::api::{Guard, ObjectBucket, wire};
use crate::decide::claim::{Claim, Guarded};
use crate::decide::keys::KeyNotes;
use crate::decide::metadata::FieldManager;
use crate::decide::record::Author;
use crate::decide::report::ConditionSupport;
use crate::decide::request;
use crate::decide::settings::Rules;
use crate::decide::shared_name;
use crate::decide::sharing::Creator;
use crate::error::Error;
use crate::options::Options;
use crate::reasons;
use crate::refusal::Refusal;
use crate::store::{CreateError, Failure, Provisioner, Record, SharedFrom};
use operator_runtime::engine::Workers;

/// How many stores can have all their workers at the same time.
const STORES_AT_ONCE: usize = 4;
/// How many claims try new keys often at the same time.
const KEY_WAITS: usize = 64;
/// How many claims report at the same time what they wait for.
const WAIT_REPORTS: usize = 8;

/// Logs what caused a failure. Claims do not show it, because it may differ between attempts.
fn log_failure<P: Provisioner>(failure: &impl Failure) {
    let reason = failure.reason();
    let is_known = P::REASONS.iter().map(|known| known.name).chain(reasons::all().map(|known| known.name));
    if !is_known.into_iter().any(|known| known == reason) {
        tracing::error!(reason, "the REASONS of the store lack this one: report it to the operator's developers");
    }
    let sources = std::iter::successors(failure.source(), |error| error.source());
    let sources: Vec<_> = sources.map(ToString::to_string).collect();
    if !sources.is_empty() {
        tracing::debug!(reason, %failure, "caused by: {}", sources.join(": "));
    }
}

/// What an answer of a verb proves.
enum Proves {
    TheStoreAnswers,
    Nothing,
}

/// Shared by all reconciles.
pub(crate) struct Context<P> {
    pub(crate) client: Client,
    pub(crate) provisioner: Arc<P>,
    pub(crate) options: Options,
    pub(crate) field_manager: FieldManager,
    /// What the store can do, and how it checks settings.
    pub(crate) rules: Rules,
    /// The value of our label.
    pub(crate) label: String,
    /// UID of the namespace `kube-system`, which identifies the cluster.
    pub(crate) cluster: String,
    pub(crate) caches: Caches,
    pub(crate) memory: Memory,
    pub(crate) conditions: Conditions,
    pub(crate) workers: Arc<Workers>,
    /// How long new keys take to work.
    pub(crate) propagation: Propagation,
    /// Limits how many claims try new keys often at the same time, without a worker.
    pub(crate) key_waits: Semaphore,
    /// Limits how many claims report at the same time what they wait for.
    pub(crate) wait_reports: Semaphore,
    pub(crate) owner_secrets: OwnerSecrets,
    /// Records without a claim.
    pub(crate) orphans: Orphans,
    /// Whether a CRD is being deleted.
    pub(crate) crds: Crds,
    /// ObjectBuckets that no label finds by their bucket.
    pub(crate) unlabelled: Unlabelled,
    /// Whether a claim has waited for a ServiceAccount, so that these are watched.
    service_accounts_awaited: watch::Sender<bool>,
    /// The uids of classes on which the store's warning is published.
    pub(crate) warned_classes: Mutex<HashSet<String>>,
}

impl<P: Provisioner> Context<P> {
    pub(crate) fn new(
        client: Client,
        provisioner: Arc<P>,
        options: Options,
        cluster: String,
        claims: Store<Guarded>,
        owner_secrets: OwnerSecrets,
    ) -> Self {
        let concurrency = usize::from(options.concurrency.max(1));
        Self {
            client,
            provisioner,
            field_manager: FieldManager::new(&options.field_manager),
            rules: request::rules::<P>(),
            label: wire::provisioner_label(&options.provisioner_name),
            cluster,
            caches: Caches::of(claims, options.namespace.clone()),
            memory: Memory::default(),
            conditions: Conditions::default(),
            workers: Workers::new(STORES_AT_ONCE * concurrency),
            propagation: Propagation::default(),
            key_waits: Semaphore::new(KEY_WAITS),
            wait_reports: Semaphore::new(WAIT_REPORTS),
            owner_secrets,
            orphans: Orphans::default(),
            crds: Crds::default(),
            unlabelled: Unlabelled::default(),
            service_accounts_awaited: watch::Sender::new(false),
            warned_classes: Mutex::default(),
            options,
        }
    }
}

impl<P> Context<P> {
    /// Whether a claim should have conditions. Claims of the Go provisioner have none, and are not changed.
    pub(crate) fn condition_support(&self, author: Author) -> ConditionSupport {
        match author {
            Author::Us => self.conditions.condition_support(),
            Author::GoProvisioner => ConditionSupport::No,
        }
    }

    /// Whether a claim that shares the provisioning keys has the keys that the provisioning Secret holds now, as far as
    /// its watch shows.
    pub(crate) fn shares_present_keys(&self, record: &Record, notes: &KeyNotes) -> bool {
        let Some(secret) = record.plan.owner.secret.as_ref().filter(|_| record.plan.user.is_none()) else {
            return true;
        };
        self.owner_secrets.watch(&self.client, secret);
        self.owner_secrets.version(secret).is_none_or(|version| notes.shared_from.as_ref() == Some(&version))
    }

    /// The claim of this name, whose bucket another claim of its namespace may share.
    pub(crate) fn creator(&self, namespace: &str, name: &str) -> Creator {
        let shown = self.caches.claims.get(&ObjectRef::new(name).within(namespace));
        let Some(shown) = shown.map(|shown| Claim::read(&shown, &self.label)) else { return Creator::Missing };
        let stored = self.caches.record(&shown, &self.options.provisioner_name, &self.cluster);
        Creator::Shown { claim: shown.into(), stored: stored.map(Box::new) }
    }

    fn creator_of(&self, record: &Record) -> Option<Creator> {
        let from = record.plan.shared_from.as_ref()?;
        Some(self.creator(&record.claim.namespace, &from.name))
    }

    /// The uids of the claim whose bucket the claim of this record shares, if they have changed.
    pub(crate) fn renamed_creator(&self, record: &Record) -> Option<SharedFrom> {
        self.creator_of(record)?.renamed(record)
    }

    /// Whether the bucket that the claim of this record shares is in its account.
    ///
    /// # Errors
    /// [`Refusal::BucketClaimNotShareable`].
    pub(crate) fn check_creators_account(&self, record: &Record) -> Result<(), Refusal> {
        self.creator_of(record).map_or(Ok(()), |creator| creator.check_account(record))
    }

    /// Has a claim that is not Bound woken when the claim changes that it names.
    pub(crate) fn wait_for_creator(&self, claim: &Claim) {
        let named = shared_name::named(claim.config(), self.rules.has).filter(|_| !claim.bound());
        if let Some(name) = named {
            self.memory.wait_for(&claim.id, Some(Awaited::Creator(claim.id.namespace.clone(), name.to_owned())));
        }
    }

    /// Has ServiceAccounts watched from now on, because a claim waits for one.
    pub(crate) fn watch_service_accounts(&self) {
        self.service_accounts_awaited.send_replace(true);
    }

    /// Completes when a claim waits for a ServiceAccount, or has.
    pub(crate) async fn service_accounts_awaited(&self) {
        // Cannot fail, because `self` has the sender.
        let _ = self.service_accounts_awaited.subscribe().wait_for(|awaited| *awaited).await;
    }

    pub(crate) fn claims_in(&self, namespace: &str) -> Api<Guarded> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn secrets_in(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn config_maps_in(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn record_writer(&self) -> Api<ObjectBucket> {
        Api::all(self.client.clone())
    }

    pub(crate) fn records(&self) -> Api<Guard<ObjectBucket>> {
        Api::all(self.client.clone())
    }
}

impl<P: Provisioner> Context<P> {
    /// Awaits a call to the store of a record, and notes whether the store answers.
    pub(crate) async fn call_store<T, E: Failure>(
        &self,
        record: &Record,
        // Boxed, because the futures of the SDK are large; and of no type, because theirs are so deep that the compiler
        // may give up on programs that spawn the controller.
        call: BoxFuture<'_, Result<T, E>>,
    ) -> Result<T, Error> {
        self.counting(record, call, Proves::TheStoreAnswers).await
    }

    /// The same for a verb that creates something.
    pub(crate) async fn call_store_to_create<T, E: Failure>(
        &self,
        record: &Record,
        call: BoxFuture<'_, Result<T, CreateError<E>>>,
    ) -> Result<T, CreateError<Error>> {
        let asked = self.workers.ask(stores::store_of(record));
        let answer = call.await;
        match &answer {
            Err(CreateError::Refused(failure) | CreateError::Failed(failure)) if failure.affects_all_claims() => {
                asked.failed();
            }
            // Perhaps no call was made.
            Err(CreateError::Refused(_)) => asked.cancelled(),
            Ok(_) | Err(CreateError::Failed(_)) => asked.answered(),
        }
        if let Err(CreateError::Refused(failure) | CreateError::Failed(failure)) = &answer {
            log_failure::<P>(failure);
        }
        answer.map_err(|error| match error {
            CreateError::Refused(failure) => CreateError::Refused(Error::store(failure)),
            CreateError::Failed(failure) => CreateError::Failed(Error::store(failure)),
        })
    }

    /// The same for a call whose success proves nothing, because its answer may be cached.
    pub(crate) async fn call_store_once<T, E: Failure>(
        &self,
        record: &Record,
        call: BoxFuture<'_, Result<T, E>>,
    ) -> Result<T, Error> {
        self.counting(record, call, Proves::Nothing).await
    }

    async fn counting<T, E: Failure>(
        &self,
        record: &Record,
        call: BoxFuture<'_, Result<T, E>>,
        proves: Proves,
    ) -> Result<T, Error> {
        let asked = self.workers.ask(stores::store_of(record));
        let answer = call.await;
        match &answer {
            Err(failure) if failure.affects_all_claims() => asked.failed(),
            Ok(_) | Err(_) => match proves {
                Proves::TheStoreAnswers => asked.answered(),
                Proves::Nothing => asked.cancelled(),
            },
        }
        answer.inspect_err(|failure| log_failure::<P>(failure)).map_err(Error::store)
    }
}
