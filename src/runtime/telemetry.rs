//! Logging: to standard error, as text or JSON, one line per thing worth knowing.

use std::io::IsTerminal as _;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Libraries that write requests and answers, and with them keys, into their finer logs.
const TALKATIVE: [&str; 5] = ["aws_", "hyper", "h2", "rustls", "kube_client::client::body"];

/// Starts logging. `verbosity` is klog's: 0 to 1 tells each claim's story, 2 to 4 adds every attempt and
/// call to a store, 5 and more everything that holds no secret. `RUST_LOG` in the environment overrides it.
///
/// Harmless if logging was started before.
pub fn init(format: Format, verbosity: u8) {
    // kube's client complains of each call that fails; whoever made the call says so, once for each change.
    let level = match verbosity {
        0..=1 => "info,kube_runtime=warn,kube_client::client::builder=off,aws_config=error",
        2..=4 => "info,kube_runtime=warn,kube_client::client::builder=off,bucket_provisioner=debug",
        _ => "debug,bucket_provisioner=trace",
    };
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let filter = wanted.and(filter_fn(is_discreet));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
    };
    if let Err(error) = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init() {
        tracing::debug!(%error, "logging was started before");
    }
}

/// Whatever is asked for, the finer logs of some libraries stay off.
fn is_discreet(line: &Metadata<'_>) -> bool {
    *line.level() <= Level::INFO || !TALKATIVE.iter().any(|prefix| line.target().starts_with(prefix))
}
