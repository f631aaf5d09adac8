//! The metrics of provisioners of volumes, by the names of sig-storage-lib-external-provisioner.

use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use operator_runtime::observe::metrics::{CALL, Counter, Definitions, Labelled, Times};

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
                    "Volumes that were provisioned; of provisioners of volumes, as in sig-storage-lib-external-provisioner",
                    ["class"],
                ),
                failed: all.counters(
                    "controller_persistentvolumeclaim_provision_failed",
                    "Failed attempts to provision a volume",
                    ["class"],
                ),
                times: all.times(
                    "controller_persistentvolumeclaim_provision_duration_seconds",
                    "How long it took to provision a volume",
                    ["class"],
                    CALL,
                ),
            },
            deleted: Verb {
                done: all.counters("controller_persistentvolume_delete", "Volumes that were deleted", ["class"]),
                failed: all.counters(
                    "controller_persistentvolume_delete_failed",
                    "Failed attempts to delete a volume",
                    ["class"],
                ),
                times: all.times(
                    "controller_persistentvolume_delete_duration_seconds",
                    "How long it took to delete a volume",
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
