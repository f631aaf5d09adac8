//! All metrics. docs/metrics.md is generated from here.

use std::fmt;
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{Counter, Definitions, Gauge, Labelled, Times};
use super::process::Process;

/// From a claim that waits for nothing to one that waits for a person.
const TO_BOUND: &[f64] = &[0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// An attempt is ended after two minutes.
const ATTEMPT: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];
/// A call to a store.
const CALL: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// What is counted when it happens, and what is looked at when somebody asks.
pub(crate) struct Metrics {
    pub(crate) leading: Gauge,
    pub(crate) leader_changes: Counter,
    pub(crate) attempts: Labelled<Histogram, 1, Times>,
    pub(crate) to_bound: Labelled<Histogram, 1, Times>,
    provisioned: Verb,
    deleted: Verb,
    calls: Labelled<Counter, 3>,
    call_times: Labelled<Histogram, 1, Times>,
    pub(super) gauges: Gauges,
    process: Process,
    all: Definitions,
}

/// How often a verb of a provisioner of volumes was done, and how often it failed, by class.
struct Verb {
    done: Labelled<Counter, 1>,
    failed: Labelled<Counter, 1>,
    times: Labelled<Histogram, 1, Times>,
}

/// What is looked at when somebody asks.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub(crate) claims: Labelled<Gauge, 3>,
    pub(crate) workers_busy: Labelled<Gauge, 1>,
    pub(crate) waiting: Labelled<Gauge, 1>,
    pub(crate) parked: Labelled<Gauge, 1>,
    pub(crate) silent: Labelled<Gauge, 1>,
}

impl Gauges {
    pub(super) fn clear(&self) {
        self.claims.clear();
        for of_store in [&self.workers_busy, &self.waiting, &self.parked, &self.silent] {
            of_store.clear();
        }
    }
}

impl Metrics {
    pub(crate) fn new(program: &str, version: &str) -> Self {
        let mut all = Definitions::default();
        let labels = [("program", program.to_owned()), ("version", version.to_owned())];
        all.info("provisioner_build", "Which program, in which version", labels);
        Self {
            leading: all.gauge("provisioner_leading", "1 while this process serves claims, 0 while it stands by"),
            leader_changes: all.counter("provisioner_leader_changes", "How often this process has seen another leader"),
            gauges: Gauges {
                claims: all.gauges(
                    "provisioner_claims",
                    "Claims of the classes that are served; claims that have no status yet have no phase and no reason",
                    ["class", "phase", "reason"],
                ),
                workers_busy: all.gauges(
                    "provisioner_workers_busy",
                    "Claims that are being worked on, by the host of their store",
                    ["store"],
                ),
                waiting: all.gauges("provisioner_claims_waiting", "Claims that wait for a worker", ["store"]),
                parked: all.gauges(
                    "provisioner_claims_limited",
                    "Claims that wait for their turn at a store that limits how fast it is called",
                    ["store"],
                ),
                silent: all.gauges(
                    "provisioner_store_silent",
                    "1 while one claim at a time calls the store, because it does not answer or refuses the owner",
                    ["store"],
                ),
            },
            attempts: all.times(
                "provisioner_attempt_seconds",
                "Attempts at claims that were not at rest, by their result: done, race, failed, timeout, panic",
                ["result"],
                ATTEMPT,
            ),
            to_bound: all.times(
                "provisioner_time_to_bound_seconds",
                "From the creation of a claim until it is Bound",
                ["class"],
                TO_BOUND,
            ),
            calls: all.counters(
                "provisioner_store_calls",
                "Calls to the store, by their outcome: ok, or the kind of failure",
                ["service", "operation", "outcome"],
            ),
            call_times: all.times(
                "provisioner_store_call_seconds",
                "How long calls to the store took",
                ["service"],
                CALL,
            ),
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
            process: Process::define(&mut all),
            all,
        }
    }

    pub(super) fn called(&self, service: &str, operation: &str, outcome: &str, took: Duration) {
        self.calls.with([service, operation, outcome]).inc();
        self.call_times.with([service]).observe(took.as_secs_f64());
    }

    /// A volume of this class was provisioned, or that failed.
    pub(crate) fn provisioned(&self, class: &str, is_done: bool, took: Duration) {
        self.provisioned.ended(class, is_done, took);
    }

    /// A volume of this class was deleted, or that failed.
    pub(crate) fn deleted(&self, class: &str, is_done: bool, took: Duration) {
        self.deleted.ended(class, is_done, took);
    }

    pub(super) fn text(&self) -> String {
        self.process.update();
        self.all.text()
    }

    /// All of them, as a table in Markdown.
    pub(crate) fn table(&self) -> String {
        self.all.table()
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

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
