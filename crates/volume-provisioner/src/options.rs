//! What the command line sets.

use std::time::Duration;

use super::decide::retry::Retry;
use operator_runtime::Permit;
use operator_runtime::observe::Observer;

/// What is served, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// `StorageClass.provisioner` of the classes that are served.
    pub provisioner_name: String,
    /// How many volumes of one class are worked on at the same time, and four times as many in all.
    pub worker_threads: u16,
    /// How often what was given up is tried again.
    pub resync_period: Duration,
    /// How `provision` is retried.
    pub provision_retry: Retry,
    /// How `delete` is retried.
    pub delete_retry: Retry,
    /// Whether the volumes of released PersistentVolumes are deleted that lack the annotation with their uid: other programs
    /// write none, and a copy could have lost it.
    pub deletes_unmarked_volumes: bool,
    /// How many failures of a namespace are retried in a second; the first 100 come without a pause.
    pub retries_per_second: u32,
    /// Whether this process may call the store.
    pub permit: Permit,
    /// Metrics and probes.
    pub observer: Observer,
}

impl Options {
    /// The defaults for classes with this provisioner.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        Self {
            provisioner_name: provisioner_name.into(),
            worker_threads: 32,
            resync_period: Duration::from_secs(15 * 60),
            provision_retry: Retry::default(),
            delete_retry: Retry::default(),
            deletes_unmarked_volumes: false,
            retries_per_second: 10,
            permit: Permit::always(),
            observer: Observer::default(),
        }
    }
}
