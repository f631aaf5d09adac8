//! Reads the Secrets with provisioning credentials, watches each by its name, and reports changes.
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

/// How long claims share what was read of a Secret. Hundreds of claims that are created or deleted together need it in
/// each second; an edited one counts at once, as far as the watch shows, and else after this time.
const SHARED: Duration = Duration::from_secs(1);

/// A Secret and its resource version after a change.
pub(crate) type Change = (SecretRef, Option<String>);

/// The watches. Dropping it ends them. Not Debug, because a Secret would print its data.
pub(crate) struct OwnerSecrets {
    observer: Observer,
    changes: mpsc::UnboundedSender<Change>,
    watched: Mutex<Watched>,
    versions: Arc<Mutex<HashMap<SecretRef, String>>>,
    /// What was read, and when that began.
    recent: Mutex<HashMap<SecretRef, (Instant, Secret)>>,
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
        let (watched, versions, recent) = (Mutex::default(), Arc::default(), Mutex::default());
        (Self { observer, changes, watched, versions, recent }, receiver)
    }

    /// The newest resource version of a Secret that is known.
    pub(crate) fn version(&self, secret: &SecretRef) -> Option<String> {
        self.versions.lock().get(secret).cloned()
    }

    /// Reads a Secret, or takes what was read less than a second ago.
    ///
    /// # Errors
    /// Kubernetes refused.
    pub(crate) async fn read(&self, client: &Client, secret: &SecretRef) -> Result<Option<Secret>, kube::Error> {
        if let Some(found) = self.recent(secret) {
            return Ok(Some(found));
        }
        let begun = Instant::now();
        let api: Api<Secret> = Api::namespaced(client.clone(), &secret.namespace);
        let found = api.get_opt(&secret.name).await?;
        if let Some(found) = &found {
            note_version(&self.versions, secret, found.metadata.resource_version.as_deref());
            self.recent.lock().insert(secret.clone(), (begun, found.clone()));
        }
        Ok(found)
    }

    /// What was read just now, unless a newer version is known.
    fn recent(&self, secret: &SecretRef) -> Option<Secret> {
        let recent = self.recent.lock();
        let (_, found) = recent.get(secret).filter(|(begun, _)| begun.elapsed() < SHARED)?;
        (found.metadata.resource_version == self.version(secret)).then(|| found.clone())
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
        self.recent.lock().retain(|_, (begun, _)| begun.elapsed() < SHARED);
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
    #![allow(clippy::unwrap_used)]
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    fn named(name: &str) -> SecretRef {
        SecretRef { namespace: "ns".into(), name: name.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_is_read_once_a_second_unless_it_changes() {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let answers = service_fn(move |request: Request<Body>| {
            let number = counted.fetch_add(1, Ordering::Relaxed) + 1;
            let (status, body) = match request.uri().path().ends_with("/gone") {
                true => (404, json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "" })),
                false => (200, json!({ "metadata": { "resourceVersion": number.to_string() } })),
            };
            let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
            async { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        let client = Client::new(answers, "here");
        let (secrets, _changes) = OwnerSecrets::new(Observer::default());
        let owner = named("owner");
        let read = async |secret: &SecretRef| {
            let found = secrets.read(&client, secret).await.unwrap();
            found.and_then(|found| found.metadata.resource_version)
        };
        assert_eq!((read(&owner).await.as_deref(), read(&owner).await.as_deref()), (Some("1"), Some("1")));
        note_version(&secrets.versions, &owner, Some("2"));
        assert_eq!(read(&owner).await.as_deref(), Some("2"), "the watch has shown that it was edited");
        tokio::time::advance(SHARED).await;
        assert_eq!(read(&owner).await.as_deref(), Some("3"), "a watch can be behind");
        assert_eq!((read(&named("gone")).await, read(&named("gone")).await), (None, None));
        assert_eq!(requests.load(Ordering::Relaxed), 5, "that there is none is not remembered");
        tokio::time::advance(SHARED).await;
        secrets.end_unused(|_| false);
        assert!(secrets.recent.lock().is_empty(), "keys are not kept longer than they are used");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_needs_any_more_ends() {
        let silent = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, std::convert::Infallible>>());
        let client = Client::new(silent, "here");
        let (secrets, _changes) = OwnerSecrets::new(Observer::default());
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
