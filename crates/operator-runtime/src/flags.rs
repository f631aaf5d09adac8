//! Flags that the programs of this library share: the cluster, the lease, probes, metrics and logs.
//!
//! The first paragraph of a flag's comment is what `-h` prints, in one line. `--help` prints the other paragraphs, too.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::admin::{self, Address};
use super::lease::{self, BadTiming, Timing};
use super::program::{Identity, chain};
use super::telemetry::{self, Format};
#[cfg(feature = "otel")]
use super::traces::{TraceArgs, Traces};
use super::values::{duration, given, object_name};
use crate::observe::Observer;

/// For a provisioner without flags of its own.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct NoFlags {}

/// A provisioner's own flags. They are accepted before and after the command, and required only where the provisioner
/// is constructed: `F::from_arg_matches` checks that.
#[must_use]
pub fn own<F: clap::Args>() -> Vec<clap::Arg> {
    let own = F::augment_args(clap::Command::new(""));
    own.get_arguments().map(|arg| arg.clone().required(false).global(true)).collect()
}

/// How to reach the cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// Read this kubeconfig file
    ///
    /// Without this flag: the file in $KUBECONFIG, else ~/.kube/config, else the service account of the pod.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig [default: the current context]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Connect to the API server at this URL, not at that of the kubeconfig
    #[arg(long, global = true, value_name = "URL", env = "PROVISIONER_MASTER", hide_short_help = true)]
    pub master: Option<String>,
}

impl ClusterArgs {
    /// The client's configuration.
    ///
    /// # Errors
    /// The kubeconfig cannot be read or has no such context, or `--master` is not a URL.
    pub async fn config(&self) -> Result<kube::Config, Box<dyn Error>> {
        let chosen = KubeConfigOptions { context: given(&self.context), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(file) => {
                let read = Kubeconfig::read_from(file);
                let read = read.map_err(|error| format!("{}; correct --kubeconfig", chain(&error)))?;
                kube::Config::from_custom_kubeconfig(read, &chosen).await?
            }
            // Only a kubeconfig has contexts.
            None if chosen.context.is_some() => kube::Config::from_kubeconfig(&chosen).await?,
            None => kube::Config::infer().await.map_err(|error| no_cluster(&error))?,
        };
        if let Some(master) = self.master.as_deref().filter(|master| !master.is_empty()) {
            config.cluster_url =
                master.parse().map_err(|error| format!("--master {master:?} is not a URL: {error}"))?;
        }
        Ok(config)
    }
}

/// There is no kubeconfig and, in a pod, no ServiceAccount either.
fn no_cluster(error: &(dyn Error + 'static)) -> String {
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return format!(
            "no cluster is configured: {}; in the operator's pod, set automountServiceAccountToken, elsewhere KUBECONFIG",
            chain(error)
        );
    }
    // The problem with the kubeconfig.
    let why = chain(error.source().unwrap_or(error));
    format!("no cluster is configured: {why}, and this is not a pod; set KUBECONFIG, or use --kubeconfig")
}

/// Leader election.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Leases")]
pub struct LeaseArgs {
    /// Serve only while holding the lease
    ///
    /// Leader election: one of several operators holds the lease and serves; the others are on standby. With `false`,
    /// make sure yourself that only one operator runs.
    #[arg(long, global = true, env = "PROVISIONER_LEADER_ELECT", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    leader_elect: bool,
    /// Let the lease expire after this time without a renewal
    ///
    /// Another operator replaces a crashed leader after this time. It must be in whole seconds, and longer than
    /// --lease-renew-deadline.
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", env = "PROVISIONER_LEASE_DURATION", default_value = "15s", value_parser = duration)]
    lease_duration: Duration,
    /// Exit if the leader cannot renew the lease for this time
    ///
    /// It must be longer than 1.2 times --lease-retry-period.
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", env = "PROVISIONER_LEASE_RENEW_DEADLINE", default_value = "10s", value_parser = duration)]
    lease_renew_deadline: Duration,
    /// Pause for this time between two renewals
    ///
    /// An operator on standby pauses as long between two attempts to get the lease.
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", env = "PROVISIONER_LEASE_RETRY_PERIOD", default_value = "2s", value_parser = duration)]
    lease_retry_period: Duration,
    /// Keep the lease in this namespace
    ///
    /// Without this flag: the namespace of the pod, or that of the kubeconfig's context.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAMESPACE", env = "PROVISIONER_LEASE_NAMESPACE")]
    lease_namespace: Option<String>,
    /// Use a lease of this name
    ///
    /// Without this flag, the name is derived from --provisioner-name, and from the namespace if the operator serves
    /// only one.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", env = "PROVISIONER_LEASE_NAME", value_parser = object_name)]
    lease_name: Option<String>,
}

impl LeaseArgs {
    /// The lease to hold, `None` without leader election. `name` and `namespace` are those of the lease.
    pub fn options(&self, name: String, namespace: &str) -> Result<Option<lease::Options>, String> {
        if !self.leader_elect {
            return Ok(None);
        }
        Ok(Some(lease::Options {
            namespace: self.namespace().unwrap_or_else(|| namespace.to_owned()),
            name,
            identity: lease::identity(),
            timing: self.timing()?,
            one_in_cluster: false,
        }))
    }

    /// The namespace of the lease, if it is set.
    pub fn namespace(&self) -> Option<String> {
        given(&self.lease_namespace)
    }

    /// The name of the lease, if it is set.
    pub fn name(&self) -> Option<String> {
        given(&self.lease_name)
    }

    /// The durations of the election.
    ///
    /// # Errors
    /// They contradict each other; the message names the flags and the remedy.
    pub fn timing(&self) -> Result<Timing, String> {
        let (lease, renew, retry) = (self.lease_duration, self.lease_renew_deadline, self.lease_retry_period);
        Timing::new(lease, renew, retry).map_err(|problem| {
            let remedy = match problem {
                BadTiming::LeaseDurationNotWholeSeconds => "set --lease-duration to whole seconds, such as 15s",
                BadTiming::LeaseDurationTooShort => "raise --lease-duration or lower --lease-renew-deadline",
                BadTiming::RenewDeadlineTooShort => "raise --lease-renew-deadline or lower --lease-retry-period",
                BadTiming::RetryPeriodZero => "set --lease-retry-period to a value such as 2s",
            };
            format!(
                "--lease-duration={lease:?} --lease-renew-deadline={renew:?} --lease-retry-period={retry:?}: {problem}; {remedy}"
            )
        })
    }
}

/// Probes and metrics.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Observability")]
pub struct AdminArgs {
    /// Serve probes and metrics at IP:PORT or :PORT; `off` disables them
    ///
    /// The paths are /healthz, /readyz and /metrics, by HTTP. :PORT is that port of all addresses of this machine.
    /// Without this flag: :8080 in a pod, else 127.0.0.1:8080.
    #[arg(
        long,
        global = true,
        value_name = "ADDRESS",
        env = "PROVISIONER_ADMIN_ADDRESS",
        default_value = "",
        hide_default_value = true
    )]
    admin_address: Address,
}

impl AdminArgs {
    /// Starts to serve probes and metrics.
    ///
    /// # Errors
    /// The address that the flag names is not available.
    pub async fn start(&self, observer: &Observer) -> Result<(), Box<dyn Error>> {
        admin::start(&self.admin_address, observer).await
    }
}

/// How to log.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Observability")]
pub struct LogArgs {
    /// Log in this format
    #[arg(long, global = true, env = "PROVISIONER_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Set the verbosity of the log, from 0 to 5
    ///
    /// 0 logs the progress of each claim, 2 also every attempt and every call to the store, 5 everything that contains
    /// no secret.
    #[arg(
        short = 'v',
        long = "verbosity",
        global = true,
        value_name = "LEVEL",
        env = "PROVISIONER_VERBOSITY",
        default_value_t = 0
    )]
    pub verbosity: u8,
    #[cfg(feature = "otel")]
    #[command(flatten)]
    traces: TraceArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// Traces that must be sent before the program ends.
#[derive(Debug)]
#[must_use = "traces that were not sent are lost"]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    traces: Option<Traces>,
}

impl LogArgs {
    /// Starts logging, for a command that does not serve.
    pub fn log(&self, identity: &Identity) {
        telemetry::init_for_command(self.format(), self.verbosity, &identity.program);
    }

    /// Starts logging, and exporting traces if a collector is configured. If that fails, claims are served without
    /// traces.
    #[cfg(feature = "otel")]
    pub fn log_and_trace(&self, identity: &Identity) -> Telemetry {
        let (traces, spans, problem) = match self.traces.start(identity) {
            Ok(Some((traces, spans))) => (Some(traces), Some(spans), None),
            Ok(None) => (None, None, None),
            Err(problem) => (None, None, Some(problem)),
        };
        telemetry::init_traced(self.format(), self.verbosity, &identity.program, spans);
        if let Some(problem) = problem {
            tracing::warn!("traces are not exported: {problem}; claims are served without them");
        }
        Telemetry { traces }
    }

    /// Starts logging. This build exports no traces.
    #[cfg(not(feature = "otel"))]
    pub fn log_and_trace(&self, identity: &Identity) -> Telemetry {
        telemetry::init(self.format(), self.verbosity, &identity.program);
        Telemetry {}
    }

    fn format(&self) -> Format {
        match self.log_format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        }
    }
}

impl Telemetry {
    /// Sends the remaining traces, within seconds.
    pub fn stop(self) {
        #[cfg(feature = "otel")]
        if let Some(traces) = self.traces {
            traces.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use clap::FromArgMatches as _;

    use super::own;

    #[derive(Debug, clap::Args)]
    struct Flags {
        #[arg(long)]
        root: String,
    }

    #[test]
    fn own_flags_are_required_only_where_they_are_read() {
        let read = |args: &[&str]| {
            let command =
                clap::Command::new("a-provisioner").args(own::<Flags>()).subcommand(clap::Command::new("run"));
            command.try_get_matches_from(args).unwrap()
        };
        for args in [["a-provisioner", "--root", "a", "run"], ["a-provisioner", "run", "--root", "a"]] {
            assert_eq!(Flags::from_arg_matches(&read(&args)).unwrap().root, "a");
        }
        let missing = Flags::from_arg_matches(&read(&["a-provisioner", "run"])).unwrap_err();
        assert!(missing.to_string().contains("required"), "{missing}");
    }
}
