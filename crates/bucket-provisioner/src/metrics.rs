//! The metrics of claims, buckets and stores. The tables of docs/metrics.md are generated from here.

use std::fmt;
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use operator_runtime::observe::metrics::{CALL, Counter, Definitions, Gauge, Labelled, Times};
use operator_runtime::observe::since_1970;

/// Prefix of the metrics that all operators have. Those below have it in their names.
pub(crate) const PREFIX: &str = "obc_provisioner";

/// From a claim that waits for nothing to one that waits for a person.
const TO_BOUND: &[f64] = &[0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// An attempt is ended after two minutes.
const ATTEMPT: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// Counters, which count events, and gauges, which are read with each scrape.
pub(crate) struct Metrics {
    pub(crate) attempts: Labelled<Histogram, 1, Times>,
    pub(crate) to_bound: Labelled<Histogram, 1, Times>,
    pub(crate) upkeep: Upkeep,
    calls: Calls,
    pub(crate) gauges: Gauges,
}

/// What is read with each scrape.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub(crate) claims: Labelled<Gauge, 3>,
    pub(crate) oldest_unbound: Labelled<Gauge, 2>,
    pub(crate) oldest_deleted: Labelled<Gauge, 2>,
    pub(crate) oldest_key: Labelled<Gauge, 1>,
    rotation: Labelled<Gauge, 1>,
    pub(crate) orphans: Labelled<Gauge, 1>,
    pub(crate) scheduled_deletions: Gauge,
    pub(crate) next_scheduled_deletion: Gauge,
    pub(crate) purges: Gauge,
    pub(crate) purge_idle: Gauge,
    pub(crate) check_overdue: Gauge,
    pub(crate) workers: Gauge,
    pub(crate) of_stores: OfStores,
}

/// The work for each store.
#[derive(Debug)]
pub(crate) struct OfStores {
    pub(crate) busy: Labelled<Gauge, 1>,
    pub(crate) limit: Labelled<Gauge, 1>,
    pub(crate) waiting: Labelled<Gauge, 1>,
    pub(crate) oldest_waiting: Labelled<Gauge, 1>,
    pub(crate) throttled: Labelled<Gauge, 1>,
    pub(crate) silent: Labelled<Gauge, 1>,
}

/// What is done for bound claims.
#[derive(Debug)]
pub(crate) struct Upkeep {
    pub(crate) rotations: Labelled<Counter, 2>,
    pub(crate) checks: Labelled<Counter, 1>,
    pub(crate) last_check: Gauge,
    pub(crate) repairs: Labelled<Counter, 1>,
}

/// Calls to stores.
struct Calls {
    all: Labelled<Counter, 3>,
    times: Labelled<Histogram, 1, Times>,
    retries: Labelled<Counter, 1>,
    purged: Counter,
}

impl Metrics {
    pub(crate) fn define(all: &mut Definitions) -> Self {
        Self {
            gauges: Gauges::define(all),
            attempts: all.times(
                "obc_provisioner_attempt_seconds",
                "Duration of attempts to reconcile claims, by result (done, race: another client wrote first, failed, timeout, panic)",
                ["result"],
                ATTEMPT,
            ),
            to_bound: all.times(
                "obc_provisioner_time_to_bound_seconds",
                "Seconds from the creation of a claim until it is Bound",
                ["class"],
                TO_BOUND,
            ),
            upkeep: Upkeep::define(all),
            calls: Calls::define(all),
        }
    }

    pub(crate) fn called(&self, service: &str, operation: &str, outcome: &str, took: Duration) {
        self.calls.all.with([service, operation, outcome]).inc();
        self.calls.times.with([service]).observe(took.as_secs_f64());
    }

    pub(crate) fn retried(&self, service: &str) {
        self.calls.retries.with([service]).inc();
    }

    pub(crate) fn purged(&self, objects: u64) {
        self.calls.purged.inc_by(objects);
    }
}

impl Gauges {
    fn define(all: &mut Definitions) -> Self {
        Self {
            claims: all.gauges(
                "obc_provisioner_claims",
                "Number of claims; phase and reason are empty without a status, class without its StorageClass",
                ["class", "phase", "reason"],
            ),
            oldest_unbound: all.gauges(
                "obc_provisioner_oldest_unbound_claim_seconds",
                "Age of the oldest claim that was never Bound",
                ["class", "reason"],
            ),
            oldest_deleted: all.gauges(
                "obc_provisioner_oldest_deleted_claim_seconds",
                "Seconds since the deletion timestamp of the claim that has been terminating longest",
                ["class", "reason"],
            ),
            oldest_key: all.gauges(
                "obc_provisioner_oldest_key_seconds",
                "Age of the oldest access key of a bound claim, at most the age of the claim",
                ["class"],
            ),
            rotation: all.gauges(
                "obc_provisioner_key_rotation_seconds",
                "Key rotation interval of the class (`rotateKeysEvery`)",
                ["class"],
            ),
            orphans: all.gauges("obc_provisioner_orphans", "Number of ObjectBuckets without a claim that need an admin", ["reason"]),
            scheduled_deletions: all.gauge(
                "obc_provisioner_scheduled_deletions",
                "Number of buckets whose deletion is scheduled (`onDelete`) or overdue",
            ),
            next_scheduled_deletion: all.gauge(
                "obc_provisioner_next_scheduled_deletion_timestamp_seconds",
                "Unix timestamp of the next scheduled bucket deletion, 0 if none; in the past if it is overdue without progress, except if it waits for other claims that use the bucket",
            ),
            purges: all.gauge("obc_provisioner_purges", "Number of large buckets being emptied"),
            purge_idle: all.gauge(
                "obc_provisioner_purge_idle_seconds",
                "Seconds without progress of the slowest bucket deletion, excluding time in the queue",
            ),
            check_overdue: all.gauge("obc_provisioner_check_overdue_seconds", "Seconds since the most overdue check of a bound claim was due (`--resync`), 0 if none"),
            workers: all.gauge("obc_provisioner_workers_limit", "Maximum number of claims processed concurrently"),
            of_stores: OfStores::define(all),
        }
    }

    /// The age at which a class has keys replaced.
    pub(crate) fn set_key_age(&self, class: &str, age: Duration) {
        self.rotation.with([class]).set(age.as_secs_f64());
    }

    pub(crate) fn clear(&self) {
        let Self { claims, oldest_unbound, oldest_deleted, oldest_key, rotation, orphans, .. } = self;
        claims.clear();
        [oldest_unbound, oldest_deleted].into_iter().for_each(Labelled::clear);
        [oldest_key, rotation, orphans].into_iter().for_each(Labelled::clear);
        for gauge in [
            &self.scheduled_deletions,
            &self.next_scheduled_deletion,
            &self.purges,
            &self.purge_idle,
            &self.check_overdue,
            &self.workers,
        ] {
            gauge.set(0.0);
        }
        let OfStores { busy, limit, waiting, oldest_waiting, throttled, silent } = &self.of_stores;
        [busy, limit, waiting, oldest_waiting, throttled, silent].into_iter().for_each(Labelled::clear);
    }
}

impl OfStores {
    fn define(all: &mut Definitions) -> Self {
        let mut of_store = |name, help| all.gauges(name, help, ["store"]);
        Self {
            busy: of_store("obc_provisioner_workers_busy", "Number of claims being processed"),
            limit: of_store(
                "obc_provisioner_store_workers_limit",
                "Maximum number of claims of a store processed concurrently per provisioning credentials",
            ),
            waiting: of_store("obc_provisioner_claims_waiting", "Number of claims waiting for a worker"),
            oldest_waiting: of_store(
                "obc_provisioner_oldest_waiting_claim_seconds",
                "Seconds that the oldest waiting claim has waited for a worker",
            ),
            throttled: of_store(
                "obc_provisioner_claims_limited",
                "Number of claims waiting because of the rate limit of the store",
            ),
            silent: of_store(
                "obc_provisioner_store_silent",
                "1 if the store does not respond or rejects the provisioning credentials",
            ),
        }
    }
}

impl Upkeep {
    fn define(all: &mut Definitions) -> Self {
        Self {
            rotations: all.counters(
                "obc_provisioner_key_rotations",
                "Number of key rotations, by trigger (age, request) and result (done, failed)",
                ["trigger", "result"],
            ),
            checks: all.counters(
                "obc_provisioner_checks",
                "Number of checks of bound claims, by result (done, failed, lost: the bucket no longer exists, or nothing proves that it is the claim's)",
                ["result"],
            ),
            last_check: all.gauge("obc_provisioner_last_check_timestamp_seconds", "Unix timestamp of the last check of a bound claim by this process, 0 if none"),
            repairs: all.counters(
                "obc_provisioner_repairs",
                "Number of reverted external changes, by kind (store: bucket or user, key: unknown key of a user, record: ObjectBucket)",
                ["kind"],
            ),
        }
    }

    /// Begins to count, at zero: of a counter that begins at one, Prometheus sees no increase.
    pub(crate) fn begin(&self) {
        for result in ["done", "failed", "lost"] {
            self.checks.with([result]);
        }
        for (trigger, result) in [("age", "done"), ("age", "failed"), ("request", "done"), ("request", "failed")] {
            self.rotations.with([trigger, result]);
        }
        for kind in ["store", "key", "record"] {
            self.repairs.with([kind]);
        }
    }

    /// The check of a claim has ended.
    pub(crate) fn checked(&self, result: &str) {
        self.checks.with([result]).inc();
        self.last_check.set(since_1970());
    }
}

impl Calls {
    fn define(all: &mut Definitions) -> Self {
        Self {
            all: all.counters(
                "obc_provisioner_store_calls",
                "Number of calls to the store, by outcome (ok, throttled, or another kind of failure)",
                ["service", "operation", "outcome"],
            ),
            times: all.times("obc_provisioner_store_call_seconds", "Duration of calls to the store", ["service"], CALL),
            retries: all.counters(
                "obc_provisioner_store_retries",
                "Number of calls to the store that were retried",
                ["service"],
            ),
            purged: all.counter(
                "obc_provisioner_purged_objects",
                "Number of objects, versions and delete markers deleted with their buckets",
            ),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
