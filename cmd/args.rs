//! The command line: flags, their environment variables, and the spelling of the Go binary's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bucket_provisioner::api::wire;
use bucket_provisioner::controller::Options;
use bucket_provisioner::runtime::telemetry::Format;
use clap::{Parser, Subcommand, ValueEnum};

/// Provisions AWS S3 buckets for ObjectBucketClaims.
#[derive(Debug, Parser)]
#[command(name = "aws-s3-provisioner", version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    _ignored: IgnoredArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve claims until stopped (the default).
    Run,
    /// Print the CustomResourceDefinitions, to be piped into `kubectl apply -f -`.
    Crds {
        /// Write one file each into this folder instead.
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
}

/// Which cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// URL of the API server, in place of the kubeconfig's.
    #[arg(long, global = true, value_name = "URL", env = "PROVISIONER_MASTER")]
    pub(crate) master: Option<String>,
}

/// What to serve, and how.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Serve the StorageClasses with this provisioner; several operators can share a cluster under
    /// different names.
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_NAME", default_value = wire::DEFAULT_PROVISIONER, value_parser = provisioner_name)]
    provisioner_name: String,
    /// Serve the claims of this namespace only.
    #[arg(long, global = true, value_name = "NAMESPACE", env = "PROVISIONER_NAMESPACE")]
    namespace: Option<String>,
    /// Work on up to this many claims at the same time; claims that wait do not count. The Go binary's
    /// LIB_BUCKET_PROVISIONER_THREADS is read, too [default: 32].
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_CONCURRENCY", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// Ask AWS this often whether all is as it was made for each bound claim, and repair it; 0 for never.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RESYNC", default_value = "10h", value_parser = humantime::parse_duration)]
    resync: Duration,
}

/// How to log.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Log lines as text for people or as JSON for machines.
    #[arg(long, global = true, env = "PROVISIONER_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// How much to log: 0 tells each claim's story, 2 adds every attempt and AWS call, 5 everything.
    #[arg(
        short = 'v',
        long = "verbosity",
        global = true,
        value_name = "LEVEL",
        env = "PROVISIONER_VERBOSITY",
        default_value_t = 0
    )]
    pub(crate) verbosity: u8,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

impl LogArgs {
    pub(crate) fn format(&self) -> Format {
        match self.log_format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        }
    }
}

/// Flags of the Go binary's logger that mean nothing here. Manifests that pass them go on working.
#[derive(Debug, clap::Args)]
struct IgnoredArgs {
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    alsologtostderr: Option<String>,
    #[arg(long, global = true, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<String>,
    #[arg(long, global = true, hide = true)]
    stderrthreshold: Option<String>,
    #[arg(long = "log_dir", global = true, hide = true)]
    log_dir: Option<String>,
    #[arg(long, global = true, hide = true)]
    vmodule: Option<String>,
    #[arg(long = "log_backtrace_at", global = true, hide = true)]
    log_backtrace_at: Option<String>,
}

impl Args {
    /// Reads the process's arguments; ends the process with a message and a usage hint if they are wrong.
    pub(crate) fn read() -> Self {
        Self::parse_from(std::env::args_os().map(go_style))
    }

    /// What the controller is told. `go_threads` is the value of LIB_BUCKET_PROVISIONER_THREADS.
    pub(crate) fn options(&self, go_threads: Option<&str>) -> Options {
        let threads = go_threads.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
        Options {
            provisioner_name: self.run.provisioner_name.clone(),
            namespace: self.run.namespace.clone().filter(|n| !n.is_empty()),
            concurrency: self.run.concurrency.or(threads).unwrap_or(Options::default().concurrency),
            resync: Some(self.run.resync).filter(|every| !every.is_zero()),
        }
    }
}

/// Go's flag package takes `-flag` for `--flag`.
fn go_style(arg: OsString) -> OsString {
    match arg.to_str() {
        Some(text) if is_long_with_one_dash(text) => format!("-{text}").into(),
        _ => arg,
    }
}

fn is_long_with_one_dash(arg: &str) -> bool {
    let Some(name) = arg.strip_prefix('-').map(|rest| rest.split('=').next().unwrap_or(rest)) else {
        return false;
    };
    name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_short_with_value(name)
}

/// `-v2` is the short flag with its value.
fn is_short_with_value(name: &str) -> bool {
    name.strip_prefix('v').is_some_and(|value| value.bytes().all(|b| b.is_ascii_digit()))
}

/// The shape that the API server asks of `StorageClass.provisioner`.
fn provisioner_name(name: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if name.is_empty() || name.len() > 253 || !name.chars().all(allowed) {
        return Err("must be letters, digits, '-', '_', '.' and '/', as in StorageClass.provisioner".to_owned());
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        let all = ["aws-s3-provisioner"].iter().chain(args).map(|a| go_style((*a).into()));
        Args::try_parse_from(all)
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_flags_of_the_go_binary_are_accepted() {
        let args = parse(&["-kubeconfig=/k", "-master", "https://m", "-v=2", "-alsologtostderr", "-logtostderr=true"])
            .unwrap();
        assert_eq!(args.cluster.kubeconfig, Some("/k".into()));
        assert_eq!(args.cluster.master.as_deref(), Some("https://m"));
        assert_eq!(args.log.verbosity, 2);
        assert_eq!(parse(&["-v4"]).unwrap().log.verbosity, 4);
        assert_eq!(args.options(Some("5")).concurrency, 5);
        assert_eq!(args.options(Some("0")).concurrency, 32);
    }

    #[test]
    fn a_flag_wins_over_the_go_variable() {
        assert_eq!(parse(&["--concurrency", "7"]).unwrap().options(Some("5")).concurrency, 7);
    }

    #[test]
    fn flags_may_stand_before_and_after_the_command() {
        assert_eq!(parse(&["run", "--namespace", "a"]).unwrap().options(None).namespace.as_deref(), Some("a"));
        assert_eq!(parse(&["--namespace", "a", "run"]).unwrap().options(None).namespace.as_deref(), Some("a"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        assert!(parse(&["--concurrency", "0"]).is_err());
        assert!(parse(&["--provisioner-name", "a b"]).is_err());
        assert!(parse(&["--no-such-flag"]).is_err());
    }
}
