//! Logging: to standard error, as text or JSON, one line per thing worth knowing.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Starts logging. `verbosity` is klog's: 0 to 1 tells each claim's story, 2 to 4 adds every attempt and
/// call to a store, 5 and more everything. `RUST_LOG` in the environment overrides it.
///
/// Harmless if logging was started before.
pub fn init(format: Format, verbosity: u8) {
    let level = match verbosity {
        0..=1 => "info,kube_runtime=warn",
        2..=4 => "info,kube_runtime=warn,bucket_provisioner=debug",
        _ => "debug,bucket_provisioner=trace",
    };
    let mut filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // These log requests and answers, and with them keys: they stay silent whatever is asked for.
    for wire in [
        "aws_smithy_runtime",
        "aws_smithy_runtime_api",
        "aws_runtime",
        "aws_sigv4",
        "aws_config",
        "hyper",
        "h2",
        "rustls",
    ] {
        if let Ok(quiet) = format!("{wire}=info").parse() {
            filter = filter.add_directive(quiet);
        }
    }
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        Format::Text => base.with_ansi(std::io::stderr().is_terminal()).try_init(),
        Format::Json => base.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
