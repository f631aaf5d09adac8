//! The floor: the AWS calls and Kubernetes writes of the operator, in the same order for each claim and for
//! as many claims at once, and nothing else. No reads of Kubernetes, no watches, no decisions.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;
use crate::bodies::{self, LABEL, names};
use crate::kubernetes::{CLAIMS, CLASS, Claim, Claimed, Kubernetes, RECORDS};
use crate::load::all;
use crate::store::{Kind, Policy, Store};

/// `--concurrency` of the operator by default.
const AT_ONCE: usize = 32;
/// Objects in an answer to a list.
const PAGE: usize = 200;
pub(crate) const SECRETS: &str = "/api/v1/namespaces/bench/secrets";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/bench/events";

#[derive(Clone)]
pub(crate) struct Floor {
    kubernetes: Kubernetes,
    store: Store,
    policy: Arc<Policy>,
    turns: Arc<Semaphore>,
    class: &'static str,
    kind: Kind,
}

impl Floor {
    /// With connections of its own to the API server and to the store at `url`.
    pub(crate) async fn new(url: &str, policy: &Arc<Policy>) -> Result<Self, Failure> {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let kubernetes = Kubernetes::new(Claimed::Buckets).await?;
        let policy = Arc::clone(policy);
        Ok(Self { kubernetes, store: Store::new(url)?, policy, turns, class: CLASS, kind: Kind::Plain })
    }

    /// For claims of a class with settings.
    pub(crate) fn managed(self, class: &'static str) -> Self {
        Self { class, kind: Kind::Managed, ..self }
    }

    pub(crate) fn aws_calls(&self) -> usize {
        self.store.calls()
    }

    /// Creates `n` claims and binds them.
    pub(crate) async fn create(&self, n: usize) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for number in 1..=n {
            let floor = self.clone();
            tasks.spawn(async move {
                let claim = floor.kubernetes.create_claim(&format!("c{number}"), floor.class).await?;
                let _turn = floor.turns.acquire().await?;
                floor.bind(&claim).await
            });
        }
        all(tasks).await
    }

    /// Also connects to the API server, as the operator has before time counts.
    pub(crate) async fn claims(&self) -> Result<Vec<Claim>, Failure> {
        self.kubernetes.claims().await
    }

    /// Lists what the operator watches, all kinds at once, and then binds a claim that waits.
    pub(crate) async fn restart(&self, waiting: &Claim) -> Result<(), Failure> {
        self.list().await?;
        self.bind(waiting).await
    }

    /// Deletes claims and lets them go.
    pub(crate) async fn delete(&self, claims: Vec<Claim>) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for claim in claims {
            let floor = self.clone();
            tasks.spawn(async move {
                floor.kubernetes.delete_claim(&claim.name).await?;
                let _turn = floor.turns.acquire().await?;
                floor.release(&claim).await
            });
        }
        all(tasks).await
    }

    /// In pages, as memory for many claims bounds them.
    async fn list(&self) -> Result<(), Failure> {
        let ours = format!("&labelSelector=bucket-provisioner%3D{LABEL}");
        let kinds = [
            ("/apis/objectbucket.io/v1alpha1/objectbucketclaims", ""),
            (RECORDS, ""),
            ("/apis/storage.k8s.io/v1/storageclasses", ""),
            ("/api/v1/secrets", &ours),
            ("/api/v1/configmaps", &ours),
        ];
        let mut tasks = JoinSet::new();
        for (kind, selected) in kinds {
            let (floor, first) = (self.clone(), format!("{kind}?limit={PAGE}{selected}"));
            tasks.spawn(async move {
                let mut path = first.clone();
                loop {
                    let listed = floor.kubernetes.get(&path).await?;
                    match listed["metadata"]["continue"].as_str() {
                        Some(next) if !next.is_empty() => path = format!("{first}&continue={next}"),
                        _ => return Ok(()),
                    }
                }
            });
        }
        all(tasks).await
    }

    async fn bind(&self, claim: &Claim) -> Result<(), Failure> {
        let (bucket, user, record) = names(claim);
        let claim_path = format!("{CLAIMS}/{}", claim.name);
        self.patch(&claim_path, bodies::taken_on(&bucket)).await?;
        self.post(RECORDS, bodies::record(claim, &self.store)).await?;

        let (id, key) = self.store.make(&bucket, &user, &bodies::tags(claim), &self.policy, self.kind).await?;
        self.post(SECRETS, bodies::secret(claim, &id, &key)).await?;
        self.store.probe(&bucket, &id, &key).await?;
        let credentials_published = json!({ "spec": { "additionalState": { "handedOver": "true" } } });
        self.patch(&format!("{RECORDS}/{record}"), credentials_published).await?;
        self.post(CONFIG_MAPS, bodies::config_map(claim, &bucket, &self.store)).await?;

        self.patch(&format!("{RECORDS}/{record}/status"), json!({ "status": { "phase": "Bound" } })).await?;
        self.patch(&claim_path, json!({ "spec": { "objectBucketName": record } })).await?;
        let note =
            format!("bucket {bucket:?} is ready; Secret and ConfigMap of the claim's name hold what an app needs");
        self.patch(&format!("{claim_path}/status"), bodies::bound(&note)).await?;
        self.post(EVENTS, bodies::event(claim, "Bound", &note)?).await
    }

    async fn release(&self, claim: &Claim) -> Result<(), Failure> {
        let (bucket, user, record) = names(claim);
        self.store.unmake(&bucket, &user, &self.policy).await?;
        let (secret, config_map) = (format!("{SECRETS}/{}", claim.name), format!("{CONFIG_MAPS}/{}", claim.name));
        tokio::try_join!(self.remove(&secret), self.remove(&config_map))?;
        let nothing = json!({ "metadata": { "finalizers": [] } });
        let record = format!("{RECORDS}/{record}");
        self.remove(&record).await?;
        self.patch(&record, nothing.clone()).await?;
        self.patch(&format!("{CLAIMS}/{}", claim.name), nothing).await?;
        let note = format!("the claim's access is deleted; bucket {bucket:?} is deleted with all that was in it");
        self.post(EVENTS, bodies::event(claim, "Removed", &note)?).await
    }

    async fn post(&self, path: &str, body: Value) -> Result<(), Failure> {
        self.kubernetes.send(Method::POST, path, Some(&body)).await.map(drop)
    }

    async fn patch(&self, path: &str, body: Value) -> Result<(), Failure> {
        self.kubernetes.send(Method::PATCH, path, Some(&body)).await.map(drop)
    }

    async fn remove(&self, path: &str) -> Result<(), Failure> {
        self.kubernetes.send(Method::DELETE, path, None).await.map(drop)
    }
}
