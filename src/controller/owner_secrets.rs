//! Watches the Secrets that hold owners' credentials, each by its name, and says when one changes.
//!
//! Claims that wait for a Secret to appear or to be mended are woken by this, not by polling. Only the
//! Secrets that records refer to are watched, and only their metadata.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::provisioner::SecretRef;

/// A Secret and its resource version after a change.
pub(crate) type Change = (SecretRef, Option<String>);

/// The watches. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct OwnerSecrets {
    changes: mpsc::UnboundedSender<Change>,
    watched: Mutex<(HashSet<SecretRef>, JoinSet<()>)>,
}

impl OwnerSecrets {
    /// Returns the watches, none yet, and where they report changes.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Change>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        (Self { changes, watched: Mutex::default() }, receiver)
    }

    /// Watches a Secret from now on; harmless if it is watched already.
    pub(crate) fn watch(&self, client: &Client, secret: &SecretRef) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let (names, tasks) = &mut *watched;
        if !names.insert(secret.clone()) {
            return;
        }
        let api: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), &secret.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", secret.name));
        let (changes, secret) = (self.changes.clone(), secret.clone());
        tasks.spawn(async move {
            let mut events = watcher(api, config).default_backoff().touched_objects().boxed();
            loop {
                match events.try_next().await {
                    Ok(Some(seen)) => {
                        if changes.send((secret.clone(), seen.metadata.resource_version)).is_err() {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(error) => tracing::debug!(%error, %secret, "watching an owner's Secret"),
                }
            }
        });
    }
}
