//! What the operator is given to do, and how one sees that it is done.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinSet;

use crate::Failure;
use crate::kubernetes::Kubernetes;

/// How long nothing may happen to any claim.
const PATIENCE: Duration = Duration::from_secs(120);

/// The phase of each claim, by name.
type Phases = BTreeMap<String, String>;

/// Creates claims; returns how long it took until all were Bound.
pub(crate) async fn create(kubernetes: &Kubernetes, n: usize) -> Result<Duration, Failure> {
    let working = kubernetes.clone();
    let work = async move {
        let mut tasks = JoinSet::new();
        for number in 1..=n {
            let kubernetes = working.clone();
            tasks.spawn(async move { kubernetes.create_claim(&format!("c{number}")).await.map(drop) });
        }
        all(tasks).await
    };
    measure(kubernetes, |phases| phases.values().filter(|phase| *phase == "Bound").count() == n, work).await
}

/// Deletes all claims; returns how long it took until all were gone.
pub(crate) async fn delete(kubernetes: &Kubernetes) -> Result<Duration, Failure> {
    let claims = kubernetes.claims().await?;
    let working = kubernetes.clone();
    let work = async move {
        let mut tasks = JoinSet::new();
        for claim in claims {
            let kubernetes = working.clone();
            tasks.spawn(async move { kubernetes.delete_claim(&claim.name).await });
        }
        all(tasks).await
    };
    measure(kubernetes, BTreeMap::is_empty, work).await
}

/// Does `work`; returns how long it took from its begin until all claims were Bound.
pub(crate) async fn until_bound(
    kubernetes: &Kubernetes,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Result<Duration, Failure> {
    measure(kubernetes, |phases| phases.values().all(|phase| phase == "Bound"), work).await
}

/// Begins `work` once a watch stands; returns how long it took until the watch showed what is wanted.
async fn measure(
    kubernetes: &Kubernetes,
    wanted: impl Fn(&Phases) -> bool,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Result<Duration, Failure> {
    let kind = GroupVersionKind::gvk("objectbucket.io", "v1alpha1", "ObjectBucketClaim");
    let api: Api<DynamicObject> =
        Api::namespaced_with(kubernetes.client.clone(), "bench", &ApiResource::from_gvk(&kind));
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

/// Waits for all; fails with the first that failed.
pub(crate) async fn all(mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
