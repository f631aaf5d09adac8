//! What the operator is given to do, and how one sees that it is done.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinSet;

use crate::Failure;
use crate::kubernetes::{CLASS, Kubernetes};

/// How long nothing may happen to any claim.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long it took, from the begin of the work, until all were done, and until each was.
pub(crate) struct Times {
    pub(crate) took: Duration,
    pub(crate) each: BTreeMap<String, Duration>,
    /// The claims in the order in which the API server took them.
    pub(crate) order: Vec<String>,
}

/// How long it took until one claim was Bound, and then until it was deleted.
pub(crate) struct Life {
    pub(crate) bound: Duration,
    pub(crate) gone: Duration,
}

/// Creates claims; returns how long it took until all were Bound.
pub(crate) async fn create(kubernetes: &Kubernetes, n: usize) -> Result<Duration, Failure> {
    let names = (1..=n).map(|number| format!("c{number}")).collect();
    Ok(create_named(kubernetes, CLASS, names, |_| Ok(())).await?.took)
}

/// Creates claims in this order. `done` gets the number that are Bound.
pub(crate) async fn create_named(
    kubernetes: &Kubernetes,
    class: &'static str,
    names: Vec<String>,
    done: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Times, Failure> {
    let working = kubernetes.clone();
    let give = move |name: String| {
        let kubernetes = working.clone();
        async move { kubernetes.create_claim(&name, class).await.map(|_| name) }
    };
    many(kubernetes, Wanted::Bound, names, give, done).await
}

/// Deletes all claims; returns how long it took until all were gone.
pub(crate) async fn delete(kubernetes: &Kubernetes) -> Result<Duration, Failure> {
    let names = kubernetes.claims().await?.into_iter().map(|claim| claim.name).collect();
    Ok(delete_named(kubernetes, names, |_| Ok(())).await?.took)
}

/// Deletes claims in this order. `done` gets the number that are deleted.
pub(crate) async fn delete_named(
    kubernetes: &Kubernetes,
    names: Vec<String>,
    done: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Times, Failure> {
    let working = kubernetes.clone();
    let give = move |name: String| {
        let kubernetes = working.clone();
        async move { kubernetes.delete_claim(&name).await.map(|()| name) }
    };
    many(kubernetes, Wanted::Gone, names, give, done).await
}

/// Gives each of these claims to the API server, and waits until all are done.
async fn many<F>(
    kubernetes: &Kubernetes,
    wanted: Wanted,
    names: Vec<String>,
    give: impl Fn(String) -> F + Send + 'static,
    done: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Times, Failure>
where
    F: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let order = Arc::new(Mutex::new(Vec::new()));
    let (given, all_names) = (Arc::clone(&order), names.clone());
    let work = async move {
        let mut tasks: JoinSet<_> = names.into_iter().map(give).collect();
        while let Some(name) = tasks.join_next().await {
            given.lock().map_err(|_| "a task has panicked")?.push(name??);
        }
        Ok(())
    };
    let mut times = measure(kubernetes.watched(), wanted, Some(all_names), work, done).await?;
    times.order = std::mem::take(&mut *order.lock().map_err(|_| "a task has panicked")?);
    Ok(times)
}

/// Creates one claim, and deletes it when it is Bound.
pub(crate) async fn one(kubernetes: &Kubernetes, name: &str, class: &'static str) -> Result<Life, Failure> {
    let names = || Some(vec![name.to_owned()]);
    let (working, of) = (kubernetes.clone(), name.to_owned());
    let create = async move { working.create_claim(&of, class).await.map(drop) };
    let bound = measure(kubernetes.watched(), Wanted::Bound, names(), create, |_| Ok(())).await?.took;
    let (working, of) = (kubernetes.clone(), name.to_owned());
    let delete = async move { working.delete_claim(&of).await };
    let gone = measure(kubernetes.watched(), Wanted::Gone, names(), delete, |_| Ok(())).await?.took;
    Ok(Life { bound, gone })
}

/// Does `work`; returns how long it took from its begin until all claims that there are were Bound.
pub(crate) async fn until_bound(
    kubernetes: &Kubernetes,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
) -> Result<Duration, Failure> {
    Ok(measure(kubernetes.watched(), Wanted::Bound, None, work, |_| Ok(())).await?.took)
}

/// What is to become of claims.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Wanted {
    Bound,
    Gone,
}

/// Begins `work` once a watch stands, and waits until the watch has shown what is wanted of these claims, or of all.
pub(crate) async fn measure(
    api: Api<DynamicObject>,
    wanted: Wanted,
    names: Option<Vec<String>>,
    work: impl Future<Output = Result<(), Failure>> + Send + 'static,
    mut done: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<Times, Failure> {
    let mut events = pin!(watcher(api, Config::default()));
    let mut waiting = names.clone().unwrap_or_default().into_iter().collect::<std::collections::BTreeSet<_>>();
    let mut each = BTreeMap::new();
    let mut work = Some(work);
    let mut working = JoinSet::new();
    let mut began = Instant::now();
    loop {
        let event = tokio::select! {
            Some(done) = working.join_next() => {
                done??;
                continue;
            }
            event = tokio::time::timeout(PATIENCE, events.next()) => event,
        };
        let (name, is_done) =
            match event.map_err(|_| "nothing happens to the claims any more")?.ok_or("the watch has ended")?? {
                Event::Init => continue,
                Event::InitApply(claim) | Event::Apply(claim) => {
                    let is_bound = claim.data["status"]["phase"].as_str() == Some("Bound");
                    (claim.name_any(), wanted == Wanted::Bound && is_bound)
                }
                Event::Delete(claim) => (claim.name_any(), wanted == Wanted::Gone),
                Event::InitDone => {
                    if let Some(work) = work.take() {
                        began = Instant::now();
                        working.spawn(work);
                    }
                    (String::new(), true)
                }
            };
        if !is_done && names.is_none() {
            waiting.insert(name);
        } else if is_done && waiting.remove(&name) {
            each.insert(name, began.elapsed());
            done(each.len())?;
        }
        if work.is_none() && waiting.is_empty() {
            let took = began.elapsed();
            all(working).await?;
            return Ok(Times { took, each, order: Vec::new() });
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
