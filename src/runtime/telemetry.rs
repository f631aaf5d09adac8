//! Logging to standard error, as text or JSON.

use std::io::IsTerminal as _;

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Registry, fmt, registry};

use crate::observe::spans;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Libraries whose debug logs contain requests and answers, and so keys.
const LOGS_SECRETS: [&str; 5] = ["aws_", "hyper", "h2", "rustls", "kube_client::client::body"];

/// Starts logging, unless it was started before. `verbosity` is that of klog: 0 and 1 log the progress of each claim, 2
/// to 4 also each attempt and call to a store, 5 and more everything that contains no secret. The environment variable
/// `RUST_LOG` takes precedence, but for lines that may contain a secret: the debug logs of some libraries, and TRACE of all
/// crates but this one and `program`, because HTTP clients log there what they send. `program` is the crate whose own lines
/// count like the library's.
pub fn init(format: Format, verbosity: u8, program: &str) {
    init_traced(format, verbosity, program, None);
}

/// Where spans go, besides the log.
pub(crate) type Spans = Box<dyn Layer<Registry> + Send + Sync>;

/// [`init`], with spans that go elsewhere.
pub(crate) fn init_traced(format: Format, verbosity: u8, program: &str, spans: Option<Spans>) {
    let begun = match spans {
        Some(spans) => registry().with(spans).with(lines(format, verbosity, program, "info")).try_init(),
        None => registry().with(lines(format, verbosity, program, "info")).try_init(),
    };
    said(begun);
}

/// [`init`] for a command that answers an admin: progress and refused calls would stand between the lines of its
/// answer.
pub(crate) fn init_for_command(format: Format, verbosity: u8, program: &str) {
    said(registry().with(lines(format, verbosity, program, "warn")).try_init());
}

fn said(begun: Result<(), TryInitError>) {
    if let Err(error) = begun {
        tracing::debug!(%error, "logging has already been started");
    }
}

/// The lines of the log; `least` is the level without verbosity.
fn lines<S>(format: Format, verbosity: u8, program: &str, least: &str) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // kube's client logs each failed call; the callers log failures once for each change.
    let level = match verbosity {
        0..=1 => format!("{least},kube_runtime=warn,kube_client::client::builder=off,aws_config=error"),
        2..=4 => "info,kube_runtime=warn,kube_client::client::builder=off,bucket_provisioner=debug".to_owned(),
        _ => "debug,bucket_provisioner=trace".to_owned(),
    };
    let own = match verbosity {
        0..=1 => least,
        2..=4 => "debug",
        _ => "trace",
    };
    let program: String = program.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let level = if program.is_empty() { level } else { format!("{level},{program}={own}") };
    let wanted = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let filter = wanted.and(filter_fn(move |line| has_no_secret(line, &program)));
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
    };
    lines.with_filter(filter)
}

/// Whether a line can be logged at all.
fn has_no_secret(line: &Metadata<'_>, program: &str) -> bool {
    // They repeat what lines say.
    if line.target() == spans::TARGET {
        return false;
    }
    let is_of = |name: &str| !name.is_empty() && line.target().split("::").next() == Some(name);
    match *line.level() {
        Level::TRACE => is_of(env!("CARGO_CRATE_NAME")) || is_of(program),
        Level::DEBUG => !LOGS_SECRETS.iter().any(|prefix| line.target().starts_with(prefix)),
        _ => true,
    }
}
