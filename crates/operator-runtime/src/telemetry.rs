//! Logging to standard error, as text or JSON.

use std::io::IsTerminal as _;

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, ParseError, Targets, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{Registry, fmt, registry};

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

/// This library, and those that are made with it. None of their lines contains a secret.
const LIBRARIES: [&str; 3] = [env!("CARGO_CRATE_NAME"), "bucket_provisioner", "volume_provisioner"];

/// Starts logging, unless it was started before. `verbosity` is that of klog: 0 and 1 log the progress of each claim, 2
/// to 4 also each attempt and call to a store, 5 and more everything that contains no secret. The environment variable
/// `RUST_LOG` takes precedence, but for lines that may contain a secret: the debug logs of some libraries, and TRACE of all
/// crates but these libraries and `program`, because HTTP clients log there what they send. `program` is the crate whose
/// own lines count like the libraries'.
pub fn init(format: Format, verbosity: u8, program: &str) {
    init_traced(format, verbosity, program, None);
}

/// Where spans go, besides the log.
pub type Spans = Box<dyn Layer<Registry> + Send + Sync>;

/// [`init`], with spans that go elsewhere.
pub fn init_traced(format: Format, verbosity: u8, program: &str, spans: Option<Spans>) {
    begun(match spans {
        Some(spans) => registry().with(spans).with(lines(format, verbosity, program, "info")).try_init(),
        None => registry().with(lines(format, verbosity, program, "info")).try_init(),
    });
}

/// [`init`] for a command that an admin runs: progress and refused calls would be mixed with the lines of its output.
pub fn init_for_command(format: Format, verbosity: u8, program: &str) {
    begun(registry().with(lines(format, verbosity, program, "warn")).try_init());
}

fn begun(begun: Result<(), TryInitError>) {
    if let Err(error) = begun {
        tracing::debug!(%error, "logging has already been started");
    }
    if let Some(Err(error)) = asked_for() {
        tracing::warn!(%error, "RUST_LOG is ignored: it is a level, or a list of CRATE=LEVEL");
    }
}

/// What the environment variable `RUST_LOG` asks for.
fn asked_for() -> Option<Result<Targets, String>> {
    let asked = std::env::var("RUST_LOG").ok()?;
    parse(&asked)
}

/// A list of levels for targets; `None` if it is empty.
fn parse(asked: &str) -> Option<Result<Targets, String>> {
    // An empty part would count as the level ERROR for all.
    let parts: Vec<_> = asked.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    // Filters by span, which other programs know, would count as targets that nothing has.
    match parts.iter().find(|part| part.contains(['[', '{'])) {
        Some(part) => Some(Err(format!("{part:?} names a span"))),
        None if parts.is_empty() => None,
        None => Some(parts.join(",").parse().map_err(|error: ParseError| error.to_string())),
    }
}

/// The lines of the log; `least` is the level without verbosity.
fn lines<S>(format: Format, verbosity: u8, program: &str, least: &str) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    // kube's client logs each failed call; the callers log failures once for each change.
    let (others, own) = match verbosity {
        0..=1 => (format!("{least},kube_runtime=warn,kube_client::client::builder=off,aws_config=error"), least),
        2..=4 => ("info,kube_runtime=warn,kube_client::client::builder=off".to_owned(), "debug"),
        _ => ("debug".to_owned(), "trace"),
    };
    let program: String = program.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let own = own_crates(&program).map(|name| format!(",{name}={own}"));
    let level = others + &own.collect::<String>();
    let wanted = asked_for().and_then(Result::ok).unwrap_or_else(|| level.parse().unwrap_or_default());
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
    let is_own = own_crates(program).any(|name| line.target().split("::").next() == Some(name));
    match *line.level() {
        Level::TRACE => is_own,
        Level::DEBUG => is_own || !LOGS_SECRETS.iter().any(|prefix| line.target().starts_with(prefix)),
        _ => true,
    }
}

/// The crates whose lines are logged in more detail than those of others.
fn own_crates(program: &str) -> impl Iterator<Item = &str> {
    LIBRARIES.into_iter().chain([program]).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_rust_log_asks_for_is_taken_whole_or_not_at_all() {
        let asked = |text: &str| parse(text).map(|parsed| parsed.map(|targets| targets.to_string()));
        assert_eq!(asked("debug,"), Some(Ok("debug".to_owned())));
        assert_eq!(asked(" info, kube_client=debug ").unwrap().unwrap(), "kube_client=debug,info");
        assert_eq!((asked(""), asked(" , ")), (None, None));
        for unusable in ["[claim]=debug", "kube=loud", "info,kube[claim]"] {
            assert!(asked(unusable).unwrap().is_err(), "{unusable}");
        }
    }
}
