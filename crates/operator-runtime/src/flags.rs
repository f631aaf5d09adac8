//! Flags that the programs of this library share: which cluster, which lease, how to log.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::admin::{self, Address};
use super::lease::{self, BadTiming, Timing};
use super::program::Identity;
use super::telemetry::{self, Format};
#[cfg(feature = "otel")]
use super::traces::{TraceArgs, Traces};
use super::values::{duration, given, object_name};
use crate::observe::Observer;

/// For a provisioner without flags of its own.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct NoFlags {}

/// A provisioner's own flags, as its commands have them: before and after the command, and required only where the
/// provisioner is made, which `F::from_arg_matches` sees to.
#[must_use]
pub fn own<F: clap::Args>() -> Vec<clap::Arg> {
    let own = F::augment_args(clap::Command::new(""));
    own.get_arguments().map(|arg| arg.clone().required(false).global(true)).collect()
}

/// Which cluster.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account].
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context].
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// URL of the API server, instead of the one in the kubeconfig.
    #[arg(long, global = true, value_name = "URL", env = "PROVISIONER_MASTER")]
    pub master: Option<String>,
}

impl ClusterArgs {
    /// How the cluster is reached.
    pub async fn config(&self) -> Result<kube::Config, Box<dyn Error>> {
        let chosen = KubeConfigOptions { context: given(&self.context), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(file) => kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &chosen).await?,
            // Only a kubeconfig has contexts.
            None if chosen.context.is_some() => kube::Config::from_kubeconfig(&chosen).await?,
            None => kube::Config::infer().await?,
        };
        if let Some(master) = self.master.as_deref().filter(|master| !master.is_empty()) {
            config.cluster_url =
                master.parse().map_err(|error| format!("--master {master:?} is not a URL: {error}"))?;
        }
        Ok(config)
    }
}

/// Leader election.
#[derive(Debug, clap::Args)]
pub struct LeaseArgs {
    /// Work only while holding a lease: one of several operators works, and the others stand by.
    #[arg(long, global = true, env = "PROVISIONER_LEADER_ELECT", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    leader_elect: bool,
    /// How long the lease is valid after its last renewal, in whole seconds. A crashed leader is replaced after this
    /// time.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_LEASE_DURATION", default_value = "15s", value_parser = duration)]
    lease_duration: Duration,
    /// How long a leader works after its last renewal before it exits.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_LEASE_RENEW_DEADLINE", default_value = "10s", value_parser = duration)]
    lease_renew_deadline: Duration,
    /// Pause between two renewals, and between two attempts of an operator that stands by.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_LEASE_RETRY_PERIOD", default_value = "2s", value_parser = duration)]
    lease_retry_period: Duration,
    /// Namespace of the lease [default: the namespace of the pod, or of the kubeconfig's context].
    #[arg(long, global = true, value_name = "NAMESPACE", env = "PROVISIONER_LEASE_NAMESPACE")]
    lease_namespace: Option<String>,
    /// Name of the lease [default: derived from what is served].
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_LEASE_NAME", value_parser = object_name)]
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
    /// They cannot work together: the flags, and the remedy.
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
pub struct AdminArgs {
    /// Serve /healthz, /readyz and /metrics by HTTP at IP:PORT, or :PORT for all addresses of this machine; off for not at
    /// all [default: in a pod :8080, else 127.0.0.1:8080].
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
    /// Begins to serve what the operator shows.
    ///
    /// # Errors
    /// The address that was chosen cannot be had.
    pub async fn start(&self, observer: &Observer) -> Result<(), Box<dyn Error>> {
        admin::start(&self.admin_address, observer).await
    }
}

/// How to log.
#[derive(Debug, clap::Args)]
pub struct LogArgs {
    /// Format of log lines: text for people, or JSON for machines.
    #[arg(long, global = true, env = "PROVISIONER_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// How much to log: 0 for the progress of each claim, 2 for every attempt and call to the store, 5 for everything.
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

/// What has to be sent before the program ends.
#[derive(Debug)]
#[must_use = "traces that were not sent are lost"]
pub struct Telemetry {
    #[cfg(feature = "otel")]
    traces: Option<Traces>,
}

impl LogArgs {
    /// Begins to log, for a command that does not serve.
    pub fn log(&self, identity: &Identity) {
        telemetry::init_for_command(self.format(), self.verbosity, &identity.program);
    }

    /// Begins to log, and to export traces if anybody wants them. Where that cannot be, claims are served without it.
    #[cfg(feature = "otel")]
    pub fn log_and_trace(&self, identity: &Identity) -> Telemetry {
        let (traces, spans, problem) = match self.traces.start(identity) {
            Ok(Some((traces, spans))) => (Some(traces), Some(spans), None),
            Ok(None) => (None, None, None),
            Err(problem) => (None, None, Some(problem)),
        };
        telemetry::init_traced(self.format(), self.verbosity, &identity.program, spans);
        if let Some(problem) = problem {
            tracing::warn!("there will be no traces: {problem}; claims are served all the same");
        }
        Telemetry { traces }
    }

    /// Begins to log. This build exports no traces.
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
    /// Sends what is left, in little time.
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
