//! The metrics of provisioners of volumes, by the names of sig-storage-lib-external-provisioner.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use operator_runtime::observe::metrics::{CALL, Counter, Definitions, Labelled, Times};

/// Prefix of the metrics that are not those of the library in Go.
pub(crate) const PREFIX: &str = "volume_provisioner";

/// The verbs of a provisioner of volumes.
pub(crate) struct Volumes {
    provisioned: Verb,
    deleted: Verb,
}

/// How often a verb was done, and how often it failed, by class.
struct Verb {
    done: Labelled<Counter, 1>,
    failed: Labelled<Counter, 1>,
    times: Labelled<Histogram, 1, Times>,
}

impl Volumes {
    pub(crate) fn define(all: &mut Definitions) -> Self {
        Self {
            provisioned: Verb {
                done: all.counters(
                    "controller_persistentvolumeclaim_provision",
                    "Number of volumes provisioned",
                    ["class"],
                ),
                failed: all.counters(
                    "controller_persistentvolumeclaim_provision_failed",
                    "Number of failed attempts to provision a volume",
                    ["class"],
                ),
                times: all.times(
                    "controller_persistentvolumeclaim_provision_duration_seconds",
                    "Latency in seconds to provision a volume, without failed attempts",
                    ["class"],
                    CALL,
                ),
            },
            deleted: Verb {
                done: all.counters("controller_persistentvolume_delete", "Number of volumes deleted", ["class"]),
                failed: all.counters(
                    "controller_persistentvolume_delete_failed",
                    "Number of failed attempts to delete a volume",
                    ["class"],
                ),
                times: all.times(
                    "controller_persistentvolume_delete_duration_seconds",
                    "Latency in seconds to delete a volume, without failed attempts",
                    ["class"],
                    CALL,
                ),
            },
        }
    }

    /// A volume of this class was provisioned, or that failed.
    pub(crate) fn provisioned(&self, class: &str, is_done: bool, took: Duration) {
        self.provisioned.ended(class, is_done, took);
    }

    /// A volume of this class was deleted, or that failed.
    pub(crate) fn deleted(&self, class: &str, is_done: bool, took: Duration) {
        self.deleted.ended(class, is_done, took);
    }
}

impl Verb {
    fn ended(&self, class: &str, is_done: bool, took: Duration) {
        if is_done {
            self.done.with([class]).inc();
            self.times.with([class]).observe(took.as_secs_f64());
        } else {
            self.failed.with([class]).inc();
        }
    }
}
