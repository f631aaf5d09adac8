//! How metrics are defined: each once, for those who scrape and for the page that describes them.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

/// How long a call to a store takes: the upper limits of buckets, in seconds.
pub const CALL: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// A number that can rise and fall.
pub type Gauge = gauge::Gauge<f64, AtomicU64>;
/// A number that only rises.
pub type Counter = counter::Counter;
/// Seconds that somebody else counts.
pub type Seconds = counter::Counter<f64, AtomicU64>;

/// A metric with labels.
#[derive(Debug)]
pub struct Labelled<M, const N: usize, C = fn() -> M> {
    labels: [&'static str; N],
    family: Family<Labels, M, C>,
}

type Labels = Vec<(&'static str, String)>;

impl<M: Clone, const N: usize, C: MetricConstructor<M>> Labelled<M, N, C> {
    /// The one with these values of its labels.
    pub fn with(&self, values: [&str; N]) -> M {
        self.with_more(values, None)
    }

    /// The same with one more label, which only some installations want.
    pub fn with_more(&self, values: [&str; N], more: Option<(&'static str, &str)>) -> M {
        let labels = self.labels.into_iter().zip(values).chain(more);
        let labels = labels.map(|(label, value)| (label, value.to_owned())).collect();
        self.family.get_or_create(&labels).clone()
    }

    /// Forgets all values of the labels.
    pub fn clear(&self) {
        self.family.clear();
    }
}

/// The times of something, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Times(&'static [f64]);

impl MetricConstructor<Histogram> for Times {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// All that was defined.
#[derive(Debug, Default)]
pub struct Definitions {
    registry: Registry,
    rows: Vec<Row>,
}

/// A row of the table in docs/metrics.md.
#[derive(Debug)]
struct Row {
    name: String,
    kind: &'static str,
    labels: Vec<&'static str>,
    help: &'static str,
}

impl Definitions {
    /// What never changes, as labels of a gauge that is 1.
    pub fn info<const N: usize>(&mut self, name: &str, help: &'static str, labels: [(&'static str, String); N]) {
        let names = labels.each_ref().map(|(label, _)| *label);
        self.define(&format!("{name}_info"), name, "info", &names, help, Info::new(labels.to_vec()));
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &'static str) -> Gauge {
        let gauge = Gauge::default();
        self.define(name, name, "gauge", &[], help, gauge.clone());
        gauge
    }

    /// A counter without labels; its name has no `_total`, which is added when it is scraped.
    pub fn counter(&mut self, name: &str, help: &'static str) -> Counter {
        let counter = Counter::default();
        self.define(&format!("{name}_total"), name, "counter", &[], help, counter.clone());
        counter
    }

    /// Seconds that somebody else counts; its name has no `_total`.
    pub fn seconds(&mut self, name: &str, help: &'static str) -> Seconds {
        let seconds = Seconds::default();
        self.define(&format!("{name}_total"), name, "counter", &[], help, seconds.clone());
        seconds
    }

    /// A gauge with labels.
    pub fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Labelled<Gauge, N> {
        let family = Family::default();
        self.define(name, name, "gauge", &labels, help, family.clone());
        Labelled { labels, family }
    }

    /// A counter with labels; its name has no `_total`.
    pub fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
    ) -> Labelled<Counter, N> {
        let family = Family::default();
        self.define(&format!("{name}_total"), name, "counter", &labels, help, family.clone());
        Labelled { labels, family }
    }

    /// A histogram with labels. `buckets`: their upper limits, in seconds.
    pub fn times<const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        labels: [&'static str; N],
        buckets: &'static [f64],
    ) -> Labelled<Histogram, N, Times> {
        let family = Family::new_with_constructor(Times(buckets));
        self.define(name, name, "histogram", &labels, help, family.clone());
        Labelled { labels, family }
    }

    /// `shown`: the name with which it is scraped.
    fn define(
        &mut self,
        shown: &str,
        name: &str,
        kind: &'static str,
        labels: &[&'static str],
        help: &'static str,
        metric: impl Metric,
    ) {
        self.registry.register(name, help, metric);
        self.rows.push(Row { name: shown.to_owned(), kind, labels: labels.to_vec(), help });
    }

    /// In the text format of OpenMetrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    /// As a table in Markdown.
    pub fn table(&self) -> String {
        let mut text = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for Row { name, kind, labels, help } in &self.rows {
            let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
            text += &format!("| `{name}` | {kind} | {labels} | {help} |\n");
        }
        text
    }
}

/// Sets what somebody else counts.
pub fn set(counter: &Seconds, value: f64) {
    counter.inner().store(value.to_bits(), Ordering::Relaxed);
}
