//! The metrics of claims, buckets and stores. The tables of docs/metrics.md are generated from here.

use std::fmt;
use std::time::Duration;

use prometheus_client::metrics::histogram::Histogram;

use operator_runtime::observe::metrics::{CALL, Counter, Definitions, Gauge, Labelled, Times};
use operator_runtime::observe::since_1970;

/// From a claim that waits for nothing to one that waits for a person.
const TO_BOUND: &[f64] = &[0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];
/// An attempt is ended after two minutes.
const ATTEMPT: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0];

/// What is counted when it happens, and what is looked at when somebody asks.
pub(crate) struct Metrics {
    pub(crate) attempts: Labelled<Histogram, 1, Times>,
    pub(crate) to_bound: Labelled<Histogram, 1, Times>,
    pub(crate) upkeep: Upkeep,
    calls: Calls,
    pub(crate) gauges: Gauges,
}

/// What is looked at when somebody asks.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub(crate) claims: Labelled<Gauge, 3>,
    pub(crate) oldest_unbound: Labelled<Gauge, 2>,
    pub(crate) oldest_deleted: Labelled<Gauge, 2>,
    pub(crate) oldest_key: Labelled<Gauge, 1>,
    pub(crate) rotation: Labelled<Gauge, 1>,
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
                "provisioner_claims",
                "Claims of the classes that are served; claims that have no status yet have no phase and no reason, and those whose class was deleted have no class",
                ["class", "phase", "reason"],
            ),
            oldest_unbound: all.gauges(
                "provisioner_oldest_unbound_claim_seconds",
                "Age of the oldest claim that was never Bound",
                ["class", "reason"],
            ),
            oldest_deleted: all.gauges(
                "provisioner_oldest_deleted_claim_seconds",
                "Since when the claim is being deleted whose deletion takes longest",
                ["class", "reason"],
            ),
            oldest_key: all.gauges(
                "provisioner_oldest_key_seconds",
                "Age of the oldest key that was issued to a bound claim; it counts as no older than its claim",
                ["class"],
            ),
            rotation: all.gauges(
                "provisioner_key_rotation_seconds",
                "The age at which keys are replaced, of classes that say so (`rotateKeysEvery`)",
                ["class"],
            ),
            orphans: all.gauges("provisioner_orphans", "ObjectBuckets that wait for an admin, by their reason", ["reason"]),
            scheduled_deletions: all.gauge(
                "provisioner_scheduled_deletions",
                "Buckets of deleted claims that are going to be deleted (`onDelete`), and those whose deletion is late",
            ),
            next_scheduled_deletion: all.gauge(
                "provisioner_next_scheduled_deletion_timestamp_seconds",
                "When the next of them is due, in seconds since 1970; in the past if its deletion is late and makes no progress; 0 if there is none",
            ),
            purges: all.gauge("provisioner_purges", "Large buckets that are being emptied"),
            purge_idle: all.gauge(
                "provisioner_purge_idle_seconds",
                "For how long nothing was deleted of the large bucket that is stuck longest; waiting for a turn does not count",
            ),
            check_overdue: all.gauge("provisioner_check_overdue_seconds", "How late the check of a bound claim is (`--resync`) that is the latest; 0 if none is"),
            workers: all.gauge("provisioner_workers_limit", "Claims that can be worked on at the same time"),
            of_stores: OfStores::define(all),
        }
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
            busy: of_store("provisioner_workers_busy", "Claims that are being worked on, by the host of their store"),
            limit: of_store(
                "provisioner_store_workers_limit",
                "Claims of a store that can be worked on at the same time, for each of its owners; 1 while it is silent",
            ),
            waiting: of_store("provisioner_claims_waiting", "Claims that wait for a worker"),
            oldest_waiting: of_store(
                "provisioner_oldest_waiting_claim_seconds",
                "How long the claim waits for a worker that waits longest",
            ),
            throttled: of_store(
                "provisioner_claims_limited",
                "Claims that wait for their turn at a store that limits how fast it is called",
            ),
            silent: of_store(
                "provisioner_store_silent",
                "1 while one claim at a time calls the store, because it does not answer or refuses the owner",
            ),
        }
    }
}

impl Upkeep {
    fn define(all: &mut Definitions) -> Self {
        Self {
            rotations: all.counters(
                "provisioner_key_rotations",
                "Rotations of keys, by what they were for (age, request) and their result (done, failed)",
                ["trigger", "result"],
            ),
            checks: all.counters(
                "provisioner_checks",
                "Checks of bucket and user of a bound claim, by their result: done, failed, lost (bucket or access is gone)",
                ["result"],
            ),
            last_check: all.gauge("provisioner_last_check_timestamp_seconds", "When this process has last checked a bound claim, in seconds since 1970; 0 if it has not"),
            repairs: all.counters(
                "provisioner_repairs",
                "What somebody else had changed and was repaired: something in the store, a foreign key of a user, an ObjectBucket (store, key, record)",
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
                "provisioner_store_calls",
                "Calls to the store, by their outcome: ok, throttled, or another kind of failure",
                ["service", "operation", "outcome"],
            ),
            times: all.times("provisioner_store_call_seconds", "How long calls to the store took", ["service"], CALL),
            retries: all.counters(
                "provisioner_store_retries",
                "Calls to the store that were repeated at once or in turn, because it had refused or failed the last one",
                ["service"],
            ),
            purged: all.counter(
                "provisioner_purged_objects",
                "Objects, versions and delete markers that were deleted with their buckets",
            ),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
