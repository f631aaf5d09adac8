//! Traces: the spans of [`observe::spans`](crate::observe::spans), sent to a collector of OpenTelemetry by OTLP over HTTP.
//!
//! All attempts for one claim are one trace (`ids.rs`). Spans wait in a queue that a thread of its own empties
//! (`export.rs`), so that a slow or unavailable collector blocks no claim. Spans that do not fit are dropped, and
//! counted.

mod client;
mod endpoint;
mod export;
mod ids;

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Config, SdkTracerProvider};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Layer as _;

use self::client::Client;
use self::endpoint::Endpoint;
use self::export::{Exporter, Processor, Queue};
use self::ids::{ClaimIds, ClaimSampler, ClaimTracer};
use super::program::Identity;
use super::telemetry::Spans;
use crate::observe::spans::TARGET;

/// How many spans wait at most; some 3 MiB.
const QUEUE: usize = 2048;
/// How long the last spans may take when the program ends. Others may wait for that, such as the next leader.
const LAST: Duration = Duration::from_secs(2);

/// Where traces are sent.
#[derive(Debug, clap::Args)]
pub struct TraceArgs {
    /// Send traces to the OpenTelemetry collector at this URL; `off` disables them
    ///
    /// By OTLP over HTTP, such as http://otel-collector:4318. Without this flag: the URL in
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT, else none.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "PROVISIONER_OTLP_ENDPOINT",
        default_value = "",
        hide_default_value = true,
        // It could have a password, although it must not.
        hide_env_values = true
    )]
    otlp_endpoint: String,
}

/// The exporter, while the program runs.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl TraceArgs {
    /// Begins to export, if anybody wants that: the exporter, and where it gets spans from.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn start(&self, identity: &Identity) -> Result<Option<(Traces, Spans)>, String> {
        // Not read by clap, which would show a bad value, and end the program because of it.
        let endpoint: Endpoint = self.otlp_endpoint.parse().map_err(|problem| format!("--otlp-endpoint: {problem}"))?;
        let Some(url) = endpoint.resolve(|name| std::env::var(name).ok())? else { return Ok(None) };
        let client = Client::new(&url)?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(url.to_string())
            .build()
            .map_err(|error| format!("{error}; correct the variables OTEL_EXPORTER_OTLP_*"))?;
        let queue = Arc::new(Queue::new(QUEUE, shown(&url)));
        let config = BatchConfigBuilder::default().with_max_queue_size(QUEUE).build();
        let batches = BatchSpanProcessor::new(Exporter::new(exporter, client, Arc::clone(&queue)), config);
        let provider = SdkTracerProvider::builder()
            .with_resource(resource(identity))
            .with_id_generator(ClaimIds::default())
            .with_sampler(ClaimSampler::new(Config::default().sampler))
            .with_span_processor(Processor::new(batches, queue))
            .build();
        let layer = OpenTelemetryLayer::new(ClaimTracer::new(provider.tracer(env!("CARGO_PKG_NAME"))))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            // Parents are those of the spans themselves.
            .with_context_activation(false)
            .with_filter(filter_fn(|span| span.is_span() && span.target() == TARGET));
        tracing::debug!(url = shown(&url), "traces are sent to a collector");
        Ok(Some((Traces(provider), layer.boxed())))
    }
}

impl Traces {
    /// Sends what is left, in little time.
    pub fn stop(self) {
        if let Err(error) = self.0.shutdown_with_timeout(LAST) {
            tracing::debug!(%error, "the last spans of traces are lost");
        }
    }
}

/// The URL as logs show it: a query can have a key.
fn shown(url: &Uri) -> String {
    let part = |text: Option<&str>| text.unwrap_or_default().to_owned();
    format!("{}://{}{}", part(url.scheme_str()), part(url.authority().map(Authority::as_str)), url.path())
}

/// Who sends; what the variables of OpenTelemetry say takes precedence.
fn resource(identity: &Identity) -> Resource {
    let found = Resource::builder().build();
    let name = Key::new("service.name");
    let is_named = found.get(&name).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let host = hostname::get().unwrap_or_default().to_string_lossy().into_owned();
    let ours = [("service.version", identity.version.clone()), ("service.instance.id", host)];
    let ours = ours.into_iter().filter(|(key, value)| !value.is_empty() && found.get(&Key::new(*key)).is_none());
    let ours = ours.map(|(key, value)| KeyValue::new(key, value));
    let builder = Resource::builder().with_attributes(ours);
    if is_named { builder.build() } else { builder.with_service_name(identity.program.clone()).build() }
}
