//! Claims: what the operator is given to do, and how one sees that it is done.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use http::{Method, Request};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;

pub(crate) const CLAIMS: &str = "/apis/objectbucket.io/v1alpha1/namespaces/bench/objectbucketclaims";
/// Claims that are created or deleted at the same time.
const AT_ONCE: usize = 16;
/// How long nothing may happen to any claim.
const PATIENCE: Duration = Duration::from_secs(120);

/// The API server without types: paths and JSON.
#[derive(Clone)]
pub(crate) struct Kubernetes {
    client: Client,
}

impl Kubernetes {
    async fn new() -> Result<Self, Failure> {
        Ok(Self { client: Client::try_default().await? })
    }

    /// The answer is not parsed.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String, Failure> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("Content-Type", kind).body(body)?;
        Ok(self.client.request_text(request).await?)
    }
}

/// A claim as far as work on it needs it.
#[derive(Clone)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) uid: String,
}

pub(crate) struct Load {
    pub(crate) kubernetes: Kubernetes,
    turns: Arc<Semaphore>,
}

impl Load {
    pub(crate) async fn new() -> Result<Self, Failure> {
        Ok(Self { kubernetes: Kubernetes::new().await?, turns: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    pub(crate) async fn create_one(&self, number: usize) -> Result<Claim, Failure> {
        let _turn = self.turns.acquire().await?;
        let name = format!("c{number}");
        let claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": { "name": name },
            "spec": { "storageClassName": "s3-buckets", "generateBucketName": "bench" },
        });
        let created = self.kubernetes.send(Method::POST, CLAIMS, Some(&claim)).await?;
        let created: Value = serde_json::from_str(&created)?;
        let uid = created["metadata"]["uid"].as_str().ok_or("a claim without uid")?.to_owned();
        Ok(Claim { name, uid })
    }

    pub(crate) async fn delete_one(&self, claim: &str) -> Result<(), Failure> {
        let _turn = self.turns.acquire().await?;
        self.kubernetes.send(Method::DELETE, &format!("{CLAIMS}/{claim}"), None).await.map(drop)
    }

    pub(crate) async fn claims(&self) -> Result<Vec<Claim>, Failure> {
        let listed: Value = serde_json::from_str(&self.kubernetes.send(Method::GET, CLAIMS, None).await?)?;
        let items = listed["items"].as_array().ok_or("no list of claims")?;
        let text = |item: &Value, key: &str| item["metadata"][key].as_str().unwrap_or_default().to_owned();
        Ok(items.iter().map(|item| Claim { name: text(item, "name"), uid: text(item, "uid") }).collect())
    }

    /// Creates claims; returns how long it took until all were Bound.
    pub(crate) async fn create(self, n: usize) -> Result<Duration, Failure> {
        let load = Arc::new(self);
        let working = Arc::clone(&load);
        load.measure(move |phases| phases.values().filter(|phase| *phase == "Bound").count() == n, async move {
            let mut tasks = JoinSet::new();
            for number in 1..=n {
                let load = Arc::clone(&working);
                tasks.spawn(async move { load.create_one(number).await.map(drop) });
            }
            all(tasks).await
        })
        .await
    }

    /// Deletes all claims; returns how long it took until all were gone.
    pub(crate) async fn delete(self) -> Result<Duration, Failure> {
        let claims = self.claims().await?;
        let load = Arc::new(self);
        let working = Arc::clone(&load);
        load.measure(BTreeMap::is_empty, async move {
            let mut tasks = JoinSet::new();
            for claim in claims {
                let load = Arc::clone(&working);
                tasks.spawn(async move { load.delete_one(&claim.name).await });
            }
            all(tasks).await
        })
        .await
    }

    pub(crate) async fn wait_all_bound(&self) -> Result<(), Failure> {
        let all_bound = |phases: &Phases| !phases.is_empty() && phases.values().all(|phase| phase == "Bound");
        self.measure(all_bound, async { Ok(()) }).await.map(drop)
    }

    /// Begins `work` once a watch stands; returns how long it took until the watch showed what is wanted.
    async fn measure(
        &self,
        wanted: impl Fn(&Phases) -> bool,
        work: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) -> Result<Duration, Failure> {
        let kind = GroupVersionKind::gvk("objectbucket.io", "v1alpha1", "ObjectBucketClaim");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.kubernetes.client.clone(), "bench", &ApiResource::from_gvk(&kind));
        let mut events = pin!(watcher(api, Config::default()));
        let mut phases = Phases::new();
        let mut work = Some(work);
        let mut working = JoinSet::new();
        let mut began = Instant::now();
        let mut complete = false;
        loop {
            let event = tokio::select! {
                Some(done) = working.join_next() => {
                    done??;
                    continue;
                }
                event = tokio::time::timeout(PATIENCE, events.next()) => event,
            };
            match event.map_err(|_| "nothing happens to the claims any more")?.ok_or("the watch has ended")?? {
                Event::Init => {
                    phases.clear();
                    complete = false;
                }
                Event::InitApply(claim) | Event::Apply(claim) => {
                    let phase = claim.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
                    phases.insert(claim.name_any(), phase);
                }
                Event::Delete(claim) => {
                    phases.remove(&claim.name_any());
                }
                Event::InitDone => {
                    complete = true;
                    if let Some(work) = work.take() {
                        began = Instant::now();
                        working.spawn(work);
                    }
                }
            }
            if complete && wanted(&phases) {
                let took = began.elapsed();
                all(working).await?;
                return Ok(took);
            }
        }
    }
}

/// The phase of each claim, by name.
type Phases = BTreeMap<String, String>;

/// Waits for all; fails with the first that failed.
pub(crate) async fn all(mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
