//! What shows the progress of the work for buckets: metrics and traces.

use std::sync::Arc;
use std::time::Duration;

use operator_runtime::observe::{Health, Observer as Runtime};

use crate::metrics::{Gauges, Metrics, PREFIX};

/// Shows whether an operator works, and its metrics. Clones are the same.
///
/// The default one shows them to nobody: [`Operator`](crate::Operator) serves its own by HTTP.
#[derive(Debug, Clone)]
pub struct Observer {
    runtime: Runtime,
    metrics: Arc<Metrics>,
}

impl Default for Observer {
    fn default() -> Self {
        Self::new("", "")
    }
}

impl Observer {
    /// Of this program, in this version.
    pub(crate) fn new(program: &str, version: &str) -> Self {
        let runtime = Runtime::new(PREFIX, program, version);
        let metrics = Arc::new(runtime.define(Metrics::define));
        Self { runtime, metrics }
    }

    /// What all operators show.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn health(&self) -> &Health {
        self.runtime.health()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Has gauges set before they are read.
    pub(crate) fn set_gauges(&self, source: impl Fn(&Gauges) + Send + Sync + 'static) {
        let metrics = Arc::clone(&self.metrics);
        self.runtime.before_each_scrape(move || {
            metrics.gauges.clear();
            source(&metrics.gauges);
        });
    }

    /// A call to a store has ended.
    pub fn called(&self, &StoreCall { service, operation, outcome, took }: &StoreCall<'_>) {
        self.metrics.called(service, operation, outcome, took);
    }

    /// A call to a store is repeated, because the store refused it for its rate, failed, or did not answer.
    pub fn retried(&self, service: &str) {
        self.metrics.retried(service);
    }

    /// So many objects were deleted of a bucket that is to be deleted itself. An alert watches whether a large bucket gets
    /// any emptier, so a store should report this while it empties one, with every call.
    pub fn purged(&self, objects: u64) {
        self.metrics.purged(objects);
    }
}

/// A call to a store that has ended, for the metrics.
#[derive(Debug, Clone, Copy)]
pub struct StoreCall<'a> {
    /// The service, such as the name of an API: few values.
    pub service: &'a str,
    /// The operation: few values.
    pub operation: &'a str,
    /// `ok`, or what kind of failure it was.
    pub outcome: &'a str,
    /// How long it took.
    pub took: Duration,
}
