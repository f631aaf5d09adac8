//! What an operator shows of itself to those who run it: whether it works, and its metrics. It knows nothing of what it
//! shows; whoever works tells it.

mod health;
pub mod metrics;
mod process;
pub mod spans;

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::health::{BEAT, Health, Phase, Ready};
use self::metrics::{Counter, Definitions, Gauge, Labelled};
use self::process::Process;
pub use self::process::since_1970;

/// Shows whether an operator works, and its metrics. Clones are the same.
///
/// The default one is for tests and for libraries: no program serves it by HTTP.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

struct Shared {
    version: String,
    health: Health,
    metrics: Metrics,
    definitions: Mutex<Definitions>,
    sources: Mutex<Vec<Source>>,
    shown: Mutex<Option<(Instant, Arc<str>)>>,
}

/// The metrics that each operator has.
#[derive(Debug)]
struct Metrics {
    leading: Gauge,
    serving: Gauge,
    leader_changes: Counter,
    watch_failures: Labelled<Counter, 1>,
    process: Process,
}

/// How long a text is cached. Collecting ten thousand claims takes time, and anybody in the cluster can scrape often.
const FRESH: Duration = Duration::from_secs(1);

/// Sets gauges to what is so now.
type Source = Box<dyn Fn() + Send + Sync>;

impl Default for Observer {
    fn default() -> Self {
        Self::new("operator", "", "")
    }
}

impl Observer {
    /// Of this program, in this version. `prefix` begins the names of the metrics that each operator has, and has no `_` at
    /// its end: operators for buckets and for volumes have different ones, so that alerts for one do not see the other.
    #[must_use]
    pub fn new(prefix: &str, program: &str, version: &str) -> Self {
        let mut definitions = Definitions::default();
        let labels = [("program", program.to_owned()), ("version", version.to_owned())];
        definitions.info(&format!("{prefix}_build"), "Program and version as labels; the value is always 1", labels);
        let metrics = Metrics::define(&mut definitions, prefix);
        Self(Arc::new(Shared {
            version: version.to_owned(),
            health: Health::default(),
            metrics,
            definitions: Mutex::new(definitions),
            sources: Mutex::default(),
            shown: Mutex::default(),
        }))
    }

    /// Adds metrics to those that are scraped.
    pub fn define<M>(&self, define: impl FnOnce(&mut Definitions) -> M) -> M {
        define(&mut self.0.definitions.lock())
    }

    /// The version of the program; empty if it has none.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// Whether the operator works.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.0.health
    }

    /// The failures of a watch; `resource` is what it watches.
    pub(crate) fn watch_failures(&self, resource: &str) -> Counter {
        self.0.metrics.watch_failures.with([resource])
    }

    /// Another process works, and this one stands by.
    pub fn stands_by(&self, leader: &str) {
        self.0.metrics.leading.set(0.0);
        self.health().set_phase(Phase::StandingBy { leader: leader.to_owned() });
    }

    /// This process works from now on, or no longer.
    pub fn leads(&self, leads: bool) {
        self.0.metrics.leading.set(f64::from(u8::from(leads)));
        // Only the new leader counts it: of three replicas, two would see the same change.
        if leads && matches!(self.health().set_phase(Phase::Reading), Phase::StandingBy { .. }) {
            self.0.metrics.leader_changes.inc();
        }
    }

    /// Has gauges set before they are read.
    pub fn before_each_scrape(&self, source: impl Fn() + Send + Sync + 'static) {
        self.0.sources.lock().push(Box::new(source));
    }

    /// All metrics, in the text format of OpenMetrics, as they were at most a second ago.
    #[must_use]
    pub fn text(&self) -> Arc<str> {
        // Under the lock, or of two readers one would see what the other has just cleared.
        let mut shown = self.0.shown.lock();
        if let Some((_, text)) = shown.as_ref().filter(|(when, _)| when.elapsed() < FRESH) {
            return Arc::clone(text);
        }
        let metrics = &self.0.metrics;
        metrics.serving.set(f64::from(u8::from(self.health().serves())));
        for source in &*self.0.sources.lock() {
            source();
        }
        metrics.process.update();
        let text: Arc<str> = self.0.definitions.lock().text().into();
        *shown = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    /// All metrics, as a table in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        self.0.definitions.lock().table()
    }
}

impl Metrics {
    fn define(all: &mut Definitions, prefix: &str) -> Self {
        let name = |name| format!("{prefix}_{name}");
        Self {
            leading: all.gauge(
                &name("leading"),
                "1 if this process is the leader or runs without leader election, 0 on standby",
            ),
            serving: all.gauge(
                &name("serving"),
                "1 if this process serves claims, 0 on standby or before its caches are synced",
            ),
            leader_changes: all
                .counter(&name("leader_changes"), "Number of times this process became the leader after standby"),
            watch_failures: all.counters(
                &name("watch_failures"),
                "Number of failed or interrupted watches",
                ["resource"],
            ),
            process: Process::define(all),
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.health().ready()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(observer: &Observer, sample: &str) -> bool {
        *observer.0.shown.lock() = None;
        observer.text().lines().any(|line| line == sample)
    }

    #[test]
    fn a_leader_that_has_not_read_the_cluster_does_not_serve() {
        let observer = Observer::default();
        observer.leads(true);
        assert!(shows(&observer, "operator_leading 1.0") && shows(&observer, "operator_serving 0.0"));
        observer.health().set_phase(Phase::Serving);
        assert!(shows(&observer, "operator_serving 1.0"));
    }

    #[test]
    fn who_takes_over_from_another_counts_a_change_of_the_leader() {
        let (first, second, third) = (Observer::default(), Observer::default(), Observer::default());
        first.leads(true);
        second.stands_by("first");
        third.stands_by("first");
        second.leads(true);
        third.stands_by("second");
        for (observer, changes) in [(&first, 0), (&second, 1), (&third, 0)] {
            assert!(shows(observer, &format!("operator_leader_changes_total {changes}")));
        }
    }
}
