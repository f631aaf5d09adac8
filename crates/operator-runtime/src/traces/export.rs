//! The queue of spans, and the log lines about it: two for each time that the collector cannot be reached, however long.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor};

use super::client::Client;

/// What both ends of the queue know.
pub(super) struct Queue {
    room: usize,
    waiting: AtomicUsize,
    /// Spans that were lost since the collector took the last ones.
    lost: AtomicUsize,
    is_failing: AtomicBool,
    url: String,
}

impl Queue {
    /// For so many spans.
    pub(super) fn new(room: usize, url: String) -> Self {
        Self { room, waiting: AtomicUsize::new(0), lost: AtomicUsize::new(0), is_failing: AtomicBool::new(false), url }
    }

    /// Whether there is room for one more; then it is counted.
    fn admits(&self) -> bool {
        if self.waiting.fetch_add(1, Ordering::Relaxed) < self.room {
            return true;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.lost.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Spans have left the queue. `problem`: why the collector did not accept them.
    fn left(&self, spans: usize, problem: Option<String>) {
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        let url = &self.url;
        match problem {
            Some(problem) => {
                self.lost.fetch_add(spans, Ordering::Relaxed);
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "traces are lost, because {url} does not take them: {problem}; claims are served all the same; \
                         check the collector, and --otlp-endpoint, which needs its port for HTTP (4318)"
                    );
                }
            }
            None => {
                let lost = self.lost.swap(0, Ordering::Relaxed);
                let was_failing = self.is_failing.swap(false, Ordering::Relaxed);
                if was_failing || lost > 0 {
                    tracing::info!(lost, "the collector takes traces; spans were lost before");
                }
            }
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.waiting).finish()
    }
}

/// The end of the queue into which spans come. A span that does not fit is dropped at once.
#[derive(Debug)]
pub(super) struct Processor {
    batches: BatchSpanProcessor,
    queue: Arc<Queue>,
}

impl Processor {
    pub(super) fn new(batches: BatchSpanProcessor, queue: Arc<Queue>) -> Self {
        Self { batches, queue }
    }
}

impl SpanProcessor for Processor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() && self.queue.admits() {
            self.batches.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// The end of the queue from which spans are sent.
#[derive(Debug)]
pub(super) struct Exporter {
    otlp: opentelemetry_otlp::SpanExporter,
    client: Client,
    queue: Arc<Queue>,
}

impl Exporter {
    pub(super) fn new(otlp: opentelemetry_otlp::SpanExporter, client: Client, queue: Arc<Queue>) -> Self {
        Self { otlp, client, queue }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let done = self.otlp.export(batch).await;
        let problem = done.as_ref().err().map(|error| self.client.problem().unwrap_or_else(|| error.to_string()));
        self.queue.left(spans, problem);
        done
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_lost_until_there_is_room_again() {
        let queue = Queue::new(2, String::new());
        assert_eq!([(); 3].map(|()| queue.admits()), [true, true, false]);
        queue.left(2, Some("gone".to_owned()));
        assert_eq!(queue.lost.load(Ordering::Relaxed), 3);
        assert!(queue.admits());
        queue.left(1, None);
        assert_eq!(queue.lost.load(Ordering::Relaxed), 0);
        assert!(!queue.is_failing.load(Ordering::Relaxed));
    }
}
