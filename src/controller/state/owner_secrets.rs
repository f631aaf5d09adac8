//! Watches the Secrets with owners' credentials, each by its name, and reports changes.
//!
//! This wakes claims that wait until a Secret appears or is corrected. Only Secrets that records refer to are watched,
//! and only their metadata.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::kubernetes::watch::watch;
use crate::observe::Observer;
use crate::provisioner::SecretRef;

/// A Secret and its resource version after a change.
pub(crate) type Change = (SecretRef, Option<String>);

/// The watches. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct OwnerSecrets {
    observer: Observer,
    changes: mpsc::UnboundedSender<Change>,
    watched: Mutex<(HashSet<SecretRef>, JoinSet<()>)>,
    versions: Arc<Mutex<HashMap<SecretRef, String>>>,
}

impl OwnerSecrets {
    /// No watches yet, and the receiver of changes.
    pub(crate) fn new(observer: Observer) -> (Self, mpsc::UnboundedReceiver<Change>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        (Self { observer, changes, watched: Mutex::default(), versions: Arc::default() }, receiver)
    }

    /// The newest resource version of a Secret that is known.
    pub(crate) fn version(&self, secret: &SecretRef) -> Option<String> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).get(secret).cloned()
    }

    /// Remembers the version of a Secret that was read, unless a newer one is known.
    pub(crate) fn saw(&self, secret: &SecretRef, version: Option<&str>) {
        note_version(&self.versions, secret, version);
    }

    /// Watches a Secret from now on, if it is not watched yet.
    pub(crate) fn watch(&self, client: &Client, secret: &SecretRef) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (names, tasks) = &mut *watched;
        if !names.insert(secret.clone()) {
            return;
        }
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &secret.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", secret.name));
        let (changes, secret, versions) = (self.changes.clone(), secret.clone(), Arc::clone(&self.versions));
        let mut events = watch("owners' Secrets", api, config, &self.observer).touched_objects().boxed();
        tasks.spawn(async move {
            while let Some(Ok(seen)) = events.next().await {
                note_version(&versions, &secret, seen.metadata.resource_version.as_deref());
                if changes.send((secret.clone(), seen.metadata.resource_version)).is_err() {
                    return;
                }
            }
        });
    }
}

/// Resource versions of one kind of object grow ("Resource versions", Kubernetes API concepts).
fn note_version(versions: &Mutex<HashMap<SecretRef, String>>, secret: &SecretRef, version: Option<&str>) {
    let number = |version: &str| version.parse::<u64>().unwrap_or_default();
    let Some(version) = version else { return };
    let mut versions = versions.lock().unwrap_or_else(PoisonError::into_inner);
    let known = versions.entry(secret.clone()).or_default();
    if number(version) >= number(known) {
        *known = version.to_owned();
    }
}
