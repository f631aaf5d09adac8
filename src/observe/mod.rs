//! What an operator shows of itself to those who run it: whether it works, and its metrics. It knows nothing of what it
//! shows; whoever works tells it.

mod definitions;
mod health;
mod metrics;
mod process;
pub(crate) mod spans;
#[cfg(feature = "volume")]
mod volumes;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::definitions::{Gauges, Metrics};
pub(crate) use self::health::{BEAT, Health, Phase};

/// Shows whether an operator works, and its metrics. Clones are the same.
///
/// The default one shows them to nobody: [`Operator`](crate::Operator) serves its own by HTTP.
#[derive(Clone)]
pub struct Observer(Arc<Shared>);

struct Shared {
    version: String,
    health: Health,
    metrics: Metrics,
    gauges: Mutex<Vec<Source>>,
    shown: Mutex<Option<(Instant, Arc<str>)>>,
}

/// How long a text is shown. To look at ten thousand claims takes time, and anybody in the cluster can ask again and again.
const FRESH: Duration = Duration::from_secs(1);

/// Sets gauges to what is so now.
type Source = Box<dyn Fn(&Gauges) + Send + Sync>;

impl Default for Observer {
    fn default() -> Self {
        Self::new("", "")
    }
}

impl Observer {
    /// Of this program, in this version.
    pub(crate) fn new(program: &str, version: &str) -> Self {
        let metrics = Metrics::new(program, version);
        let version = version.to_owned();
        let health = Health::default();
        Self(Arc::new(Shared { version, health, metrics, gauges: Mutex::default(), shown: Mutex::default() }))
    }

    /// The version of the program; empty if it has none.
    pub(crate) fn version(&self) -> &str {
        &self.0.version
    }

    pub(crate) fn health(&self) -> &Health {
        &self.0.health
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Another process works, and this one stands by.
    pub(crate) fn stands_by(&self, leader: &str) {
        self.health().is(Phase::StandingBy { leader: leader.to_owned() });
    }

    /// This process works from now on, or no longer.
    pub(crate) fn leads(&self, leads: bool) {
        self.metrics().leading.set(f64::from(u8::from(leads)));
        // Only who takes over counts it: of three replicas, two would see the same change.
        if leads && matches!(self.health().is(Phase::Reading), Phase::StandingBy { .. }) {
            self.metrics().leader_changes.inc();
        }
    }

    /// Has gauges set before they are read.
    pub(crate) fn gauges(&self, source: impl Fn(&Gauges) + Send + Sync + 'static) {
        self.sources().push(Box::new(source));
    }

    /// All metrics, in the text format of OpenMetrics, as they were at most a second ago.
    pub(crate) fn text(&self) -> Arc<str> {
        // Under the lock, or of two readers one would see what the other has just cleared.
        let mut shown = self.0.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = shown.as_ref().filter(|(when, _)| when.elapsed() < FRESH) {
            return Arc::clone(text);
        }
        let metrics = self.metrics();
        metrics.serving.set(f64::from(u8::from(self.health().serves())));
        metrics.gauges.clear();
        for source in &*self.sources() {
            source(&metrics.gauges);
        }
        let text: Arc<str> = metrics.text().into();
        *shown = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    /// A call to a store was answered, or not. `service` and `operation` have few values, such as names of an API;
    /// `outcome` is `ok`, or what kind of failure it was.
    pub fn called(&self, service: &str, operation: &str, outcome: &str, took: Duration) {
        self.metrics().called(service, operation, outcome, took);
    }

    /// A call to a store is repeated, because the store refused it for its rate, failed, or did not answer.
    pub fn retried(&self, service: &str) {
        self.metrics().retried(service);
    }

    /// So many objects were deleted of a bucket that is to be deleted itself. An alert watches whether a large bucket gets
    /// any emptier, so a store should report this while it empties one, with every call.
    pub fn purged(&self, objects: u64) {
        self.metrics().purged(objects);
    }

    // A panic in a source leaves the list as it was.
    fn sources(&self) -> MutexGuard<'_, Vec<Source>> {
        self.0.gauges.lock().unwrap_or_else(PoisonError::into_inner)
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
        *observer.0.shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
        observer.text().lines().any(|line| line == sample)
    }

    #[test]
    fn a_leader_that_has_not_read_the_cluster_does_not_serve() {
        let observer = Observer::default();
        observer.leads(true);
        assert!(shows(&observer, "provisioner_leading 1.0") && shows(&observer, "provisioner_serving 0.0"));
        observer.health().is(Phase::Serving);
        assert!(shows(&observer, "provisioner_serving 1.0"));
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
            assert!(shows(observer, &format!("provisioner_leader_changes_total {changes}")));
        }
    }
}
