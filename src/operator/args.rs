//! The command line: flags, their environment variables, and the Go binary's flags.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use super::values::{claim_name, duration, given, go_style, object_name, provisioner_name};
use crate::controller::Options;
use crate::runtime::lease::{self, BadTiming, Timing};
use crate::runtime::telemetry::Format;

/// What differs between the command lines of two operators.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// Default of `--provisioner-name`.
    pub(crate) provisioner_name: String,
    /// Name of the program, for help and version.
    pub(crate) program: String,
    /// Its version, for `--version`; empty if it has none.
    pub(crate) version: String,
    /// What it does, in one sentence.
    pub(crate) about: String,
}

/// The name of the program that runs.
pub(crate) fn running_program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    lease: LeaseArgs,
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
    /// Print the CustomResourceDefinitions as YAML, for `kubectl apply -f -`.
    Crds {
        /// Write each one to a file in this directory instead.
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
    /// Print the permissions that the operator needs, as YAML: its namespace, and a ServiceAccount with
    /// roles and bindings.
    Rbac {
        /// Namespace in which the operator runs [default: the name of the program].
        #[arg(long, value_name = "NAMESPACE", value_parser = object_name)]
        operator_namespace: Option<String>,
        /// Name of the ServiceAccount, and of roles and bindings [default: the name of the program].
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        service_account: Option<String>,
    },
    /// Print the parameters of StorageClasses, as a table in Markdown.
    Parameters,
    /// Print the reasons that claims and ObjectBuckets can give, as a page in Markdown.
    Reasons,
    /// Rebuild the lost ObjectBucket of a claim from the tags of its bucket, and print it. Changes nothing: check the
    /// output, apply it, and annotate the ObjectBucket with objectbucket.io/orphan=adopt.
    Record {
        /// The claim.
        #[arg(value_name = "NAMESPACE/NAME", value_parser = claim_name)]
        claim: (String, String),
        /// Name of the bucket, if neither the claim nor its StorageClass says it.
        #[arg(long, value_name = "NAME")]
        bucket: Option<String>,
    },
}

/// Which cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Kubeconfig file [default: $KUBECONFIG, else ~/.kube/config, else the pod's service account].
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// URL of the API server, instead of the one in the kubeconfig.
    #[arg(long, global = true, value_name = "URL", env = "PROVISIONER_MASTER")]
    pub(crate) master: Option<String>,
}

/// What to serve, and how.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Serve the StorageClasses with this provisioner name. Several operators with different names can share a cluster.
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_NAME", required = false, value_parser = provisioner_name)]
    provisioner_name: String,
    /// Serve only the claims of this namespace.
    #[arg(long, global = true, value_name = "NAMESPACE", env = "PROVISIONER_NAMESPACE")]
    namespace: Option<String>,
    /// Work on up to N claims of one store at the same time, and on 4 x N in total. If other namespaces have to wait,
    /// half as many more. Claims that only wait do not count. Without this flag, LIB_BUCKET_PROVISIONER_THREADS of the
    /// Go binary is used [default: 32].
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_CONCURRENCY", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How often to check the bucket, user and policy of each bound claim in the store, and repair them; 0 for never.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RESYNC", default_value = "10h", value_parser = humantime::parse_duration)]
    resync: Duration,
}

/// Leader election.
#[derive(Debug, clap::Args)]
struct LeaseArgs {
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
    /// Name of the lease [default: derived from --provisioner-name and --namespace].
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_LEASE_NAME", value_parser = object_name)]
    lease_name: Option<String>,
}

/// How to log.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
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

/// Flags of the Go binary's logger, accepted and ignored, so that old manifests still work.
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
    /// Reads the process's arguments. If they are wrong, exits with a message and a usage hint.
    pub(crate) fn read(identity: &Identity) -> Self {
        Self::try_read(identity, std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn try_read(identity: &Identity, args: impl Iterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut command = Self::described(identity);
        let matches = command.try_get_matches_from_mut(args.map(go_style))?;
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        args.timing().map_err(|problem| command.error(ErrorKind::ValueValidation, problem))?;
        Ok(args)
    }

    fn described(identity: &Identity) -> clap::Command {
        let Identity { provisioner_name, program, version, about } = identity.clone();
        let command = Self::command()
            .name(program)
            .about(about)
            .mut_arg("provisioner_name", |arg| arg.default_value(provisioner_name));
        if version.is_empty() { command } else { command.version(version) }
    }

    /// The lease to hold, `None` without leader election. `namespace` is the default namespace of the lease.
    pub(crate) fn lease(&self, namespace: &str) -> Result<Option<lease::Options>, String> {
        if !self.lease.leader_elect {
            return Ok(None);
        }
        Ok(Some(lease::Options {
            namespace: self.lease_namespace().unwrap_or_else(|| namespace.to_owned()),
            name: self.lease_name(),
            identity: lease::identity(),
            timing: self.timing()?,
        }))
    }

    /// The namespace of the lease, if it is set.
    pub(crate) fn lease_namespace(&self) -> Option<String> {
        given(&self.lease.lease_namespace)
    }

    /// The name of the lease.
    pub(crate) fn lease_name(&self) -> String {
        let derived = || lease::name(&self.run.provisioner_name, given(&self.run.namespace).as_deref());
        given(&self.lease.lease_name).unwrap_or_else(derived)
    }

    fn timing(&self) -> Result<Timing, String> {
        let LeaseArgs { lease_duration: lease, lease_renew_deadline: renew, lease_retry_period: retry, .. } =
            self.lease;
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

    /// The options of the controller. `go_threads` is the value of LIB_BUCKET_PROVISIONER_THREADS.
    pub(crate) fn options(&self, go_threads: Option<&str>) -> Options {
        let threads = go_threads.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
        Options {
            namespace: self.run.namespace.clone().filter(|n| !n.is_empty()),
            concurrency: self.run.concurrency.or(threads).unwrap_or(Options::DEFAULT_CONCURRENCY),
            resync: Some(self.run.resync).filter(|every| !every.is_zero()),
            ..Options::new(&self.run.provisioner_name)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn identity() -> Identity {
        Identity {
            provisioner_name: "aws-s3.io/bucket".into(),
            program: "a-provisioner".into(),
            version: "1.2.3".into(),
            about: "Provisions buckets.".into(),
        }
    }

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_read(&identity(), ["a-provisioner"].iter().chain(args).map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::described(&identity()).debug_assert();
    }

    #[test]
    fn help_and_version_are_those_of_the_operator() {
        let shown = |flag| parse(&[flag]).unwrap_err().to_string();
        assert_eq!(shown("--version"), "a-provisioner 1.2.3\n");
        let help = shown("--help");
        assert!(help.starts_with("Provisions buckets.\n\nUsage: a-provisioner"), "{help}");
        assert!(help.contains("[default: aws-s3.io/bucket]"), "{help}");
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
    fn flags_work_before_and_after_the_command() {
        assert_eq!(parse(&["run", "--namespace", "a"]).unwrap().options(None).namespace.as_deref(), Some("a"));
        assert_eq!(parse(&["--namespace", "a", "run"]).unwrap().options(None).namespace.as_deref(), Some("a"));
    }

    #[test]
    fn invalid_values_are_refused() {
        assert!(parse(&["--concurrency", "0"]).is_err());
        assert!(parse(&["--provisioner-name", "a b"]).is_err());
        assert!(parse(&["--no-such-flag"]).is_err());
    }

    fn lease(args: &[&str]) -> Option<lease::Options> {
        parse(args).unwrap().lease("here").unwrap()
    }

    #[test]
    fn there_is_a_lease_unless_it_is_turned_off() {
        let default = lease(&[]).unwrap();
        assert_eq!((&*default.namespace, &*default.name), ("here", "aws-s3.io.bucket"));
        assert_eq!(default.timing, Timing::default());
        assert!(lease(&["--leader-elect"]).is_some());
        assert!(lease(&["--leader-elect=true", "run"]).is_some());
        assert!(lease(&["run", "-leader-elect=false"]).is_none());
        assert!(lease(&["--leader-elect=0"]).is_none());
        assert!(parse(&["--leader-elect=maybe"]).is_err());
    }

    #[test]
    fn the_lease_can_be_chosen_before_and_after_the_command() {
        let chosen = ["--lease-namespace=there", "--lease-name", "mine", "-lease-duration=1m30s"];
        let times = ["--lease-renew-deadline=30s", "--lease-retry-period", "500ms"];
        for args in [[&chosen[..], &["run"], &times].concat(), [&["run"], &chosen[..], &times].concat()] {
            let lease = lease(&args).unwrap();
            assert_eq!((&*lease.namespace, &*lease.name), ("there", "mine"));
            assert_eq!(lease.timing.lease_duration(), Duration::from_secs(90));
            assert_eq!(lease.timing.renew_deadline(), Duration::from_secs(30));
            assert_eq!(lease.timing.retry_period(), Duration::from_millis(500));
        }
    }

    #[test]
    fn operators_that_serve_different_claims_have_different_leases() {
        let names: std::collections::HashSet<_> = [
            &[][..],
            &["--namespace=a"],
            &["--namespace=b"],
            &["--provisioner-name=example.com/b"],
            &["--provisioner-name=example.com/b", "--namespace=a"],
        ]
        .map(|args| lease(args).unwrap().name)
        .into();
        assert_eq!(names.len(), 5, "{names:?}");
        assert_eq!(lease(&["--namespace="]).unwrap().name, "aws-s3.io.bucket");
    }

    #[test]
    fn durations_that_cannot_work_together_are_refused_with_a_remedy() {
        let refused = |args: &[&str]| parse(args).unwrap_err().to_string();
        let shorter = refused(&["--lease-duration=10s"]);
        assert!(
            shorter.contains("--lease-duration=10s") && shorter.contains("lower --lease-renew-deadline"),
            "{shorter}"
        );
        let hasty = refused(&["--lease-retry-period=9s"]);
        assert!(hasty.contains("--lease-retry-period=9s") && hasty.contains("raise --lease-renew-deadline"), "{hasty}");
        let broken = refused(&["--lease-duration=15500ms"]);
        assert!(broken.contains("whole seconds, such as 15s"), "{broken}");
        let nothing = refused(&["--lease-renew-deadline=0s"]);
        assert!(nothing.contains("--lease-renew-deadline") && nothing.contains("longer than zero"), "{nothing}");
        assert!(parse(&["--lease-name=A_b"]).is_err());
    }
}
