//! Watches the Secrets with provisioning credentials, each by its name, and reports changes.
//!
//! This wakes claims that wait until a Secret appears or is corrected. Only Secrets that records refer to are watched,
//! and only their metadata.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::store::Observer;
use crate::store::SecretRef;
use operator_runtime::engine::version_number;
use operator_runtime::kubernetes::watch::watch;

/// A watch without a request for this time is not needed: claims that wait request it every few minutes.
const UNUSED: Duration = Duration::from_secs(3600);

/// A Secret and its resource version after a change.
pub(crate) type Change = (SecretRef, Option<String>);

/// The watches. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct OwnerSecrets {
    observer: Observer,
    changes: mpsc::UnboundedSender<Change>,
    watched: Mutex<Watched>,
    versions: Arc<Mutex<HashMap<SecretRef, String>>>,
}

#[derive(Debug, Default)]
struct Watched {
    secrets: HashMap<SecretRef, Watch>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Watch {
    task: AbortHandle,
    /// When it was asked for last.
    asked: Instant,
}

impl OwnerSecrets {
    /// No watches yet, and the receiver of changes.
    pub(crate) fn new(observer: Observer) -> (Self, mpsc::UnboundedReceiver<Change>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        (Self { observer, changes, watched: Mutex::default(), versions: Arc::default() }, receiver)
    }

    /// The newest resource version of a Secret that is known.
    pub(crate) fn version(&self, secret: &SecretRef) -> Option<String> {
        self.versions.lock().get(secret).cloned()
    }

    /// Remembers the version of a Secret that was read, unless a newer one is known.
    pub(crate) fn saw(&self, secret: &SecretRef, version: Option<&str>) {
        note_version(&self.versions, secret, version);
    }

    /// Watches a Secret from now on, if it is not watched yet.
    pub(crate) fn watch(&self, client: &Client, secret: &SecretRef) {
        let mut watched = self.watched.lock();
        if let Some(watch) = watched.secrets.get_mut(secret) {
            watch.asked = Instant::now();
            return;
        }
        let key = secret.clone();
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &secret.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", secret.name));
        let (changes, secret, versions) = (self.changes.clone(), secret.clone(), Arc::clone(&self.versions));
        let mut events = watch("owners' Secrets", api, config, self.observer.runtime()).touched_objects().boxed();
        let task = watched.tasks.spawn(async move {
            while let Some(Ok(seen)) = events.next().await {
                note_version(&versions, &secret, seen.metadata.resource_version.as_deref());
                if changes.send((secret.clone(), seen.metadata.resource_version)).is_err() {
                    return;
                }
            }
        });
        watched.secrets.insert(key, Watch { task, asked: Instant::now() });
    }

    /// Ends the watches that nobody has asked for in a while, unless the Secret's keys are `shared`. Otherwise the watch of
    /// a class that was retired, with its Secret and the permission to watch it, would fail forever.
    pub(crate) fn end_unused(&self, shared: impl Fn(&SecretRef) -> bool) {
        let is_unused = |watch: &Watch| watch.asked.elapsed() > UNUSED;
        let unused: Vec<_> = self
            .watched
            .lock()
            .secrets
            .iter()
            .filter(|(_, watch)| is_unused(watch))
            .map(|(secret, _)| secret.clone())
            .collect();
        // Not under the lock: to read all records takes time.
        for secret in unused {
            let is_shared = shared(&secret);
            let mut watched = self.watched.lock();
            match watched.secrets.get_mut(&secret) {
                Some(watch) if is_shared => watch.asked = Instant::now(),
                Some(watch) if is_unused(watch) => {
                    watch.task.abort();
                    watched.secrets.remove(&secret);
                }
                _ => {}
            }
        }
        while self.watched.lock().tasks.try_join_next().is_some() {}
    }
}

fn note_version(versions: &Mutex<HashMap<SecretRef, String>>, secret: &SecretRef, version: Option<&str>) {
    let number = |version: &str| version_number(Some(version)).unwrap_or_default();
    let Some(version) = version else { return };
    let mut versions = versions.lock();
    let known = versions.entry(secret.clone()).or_default();
    if number(version) >= number(known) {
        *known = version.to_owned();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_needs_any_more_ends() {
        let silent = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, std::convert::Infallible>>());
        let client = Client::new(silent, "here");
        let (secrets, _changes) = OwnerSecrets::new(Observer::default());
        let named = |name: &str| SecretRef { namespace: "ns".into(), name: name.into() };
        let (retired, shared, asked) = (named("retired"), named("shared"), named("asked"));
        for secret in [&retired, &shared, &asked] {
            secrets.watch(&client, secret);
        }
        tokio::time::advance(UNUSED).await;
        secrets.watch(&client, &asked);
        tokio::time::advance(Duration::from_secs(1)).await;
        secrets.end_unused(|secret| *secret == shared);
        tokio::task::yield_now().await;
        secrets.end_unused(|_| false);
        let watched = secrets.watched.lock();
        let is_watched = |secret| watched.secrets.contains_key(secret);
        assert_eq!([&retired, &shared, &asked].map(is_watched), [false, true, true]);
        assert_eq!(watched.tasks.len(), 2, "the task has ended, too");
    }
}
