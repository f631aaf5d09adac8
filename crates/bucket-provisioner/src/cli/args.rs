//! The command line: flags, their environment variables, and the Go binary's flags.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::front;
use super::rbac::{OwnerSecrets, Serves};
use crate::cli::adopt::AdoptArgs;
use crate::cli::doctor::{DoctorArgs, LeaseToFind};
use crate::cli::orphans::OrphansArgs;
use crate::cli::status::StatusArgs;
use crate::controller::Options;
use operator_runtime::flags::{AdminArgs, ClusterArgs, LeaseArgs, LogArgs};
use operator_runtime::lease;
use operator_runtime::program::Identity;
use operator_runtime::values::{given, go_style, namespaced_name, object_name, provisioner_name};

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
    pub(crate) admin: AdminArgs,
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
    /// roles and bindings. With --namespace, those of an operator that serves this namespace alone.
    Rbac {
        /// Namespace in which the operator runs [default: the name of the program].
        #[arg(long, value_name = "NAMESPACE", value_parser = object_name)]
        operator_namespace: Option<String>,
        /// Name of the ServiceAccount, and of roles and bindings [default: the name of the program].
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        service_account: Option<String>,
        /// With --namespace: a Secret of another namespace that classes name. Can be repeated.
        #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
        owner_secret: Vec<(String, String)>,
        /// With --namespace: a namespace in which classes may name any Secret. Can be repeated.
        #[arg(long, value_name = "NAMESPACE", value_parser = object_name)]
        owner_namespace: Vec<String>,
    },
    /// Print the parameters of StorageClasses, as a table in Markdown.
    Parameters,
    /// Print the reasons that claims and ObjectBuckets can give, as a page in Markdown.
    Reasons,
    /// Print the metrics that are served at /metrics, as a table in Markdown.
    Metrics,
    /// Look whether the installation works, and say what to do about what does not. Changes nothing. Exits with 1 if
    /// something is wrong.
    Doctor(DoctorArgs),
    /// Show all claims, what needs somebody first; or one claim's whole details. Changes nothing.
    Status(StatusArgs),
    /// Look for buckets, users and ObjectBuckets of this cluster that no claim has, and for claims that lost theirs. Changes
    /// nothing without --apply. Exits with 0 if there are none, with 3 if there are some, and with 1 if not all could be
    /// looked at.
    Orphans(OrphansArgs),
    /// Give restored claims back what they had: bucket, user and keys.
    Adopt(AdoptArgs),
    /// Print a script that completes this command line in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for `man -l -`.
    Man {
        /// Write it to this directory instead, with a page for each command.
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
    /// Rebuild the lost ObjectBucket of a claim from the tags of its bucket, and print it. Changes nothing: check the
    /// output, apply it, and annotate the ObjectBucket with objectbucket.io/orphan=adopt.
    Record {
        /// The claim.
        #[arg(value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
        claim: (String, String),
        /// Name of the bucket, if neither the claim nor its StorageClass says it.
        #[arg(long, value_name = "NAME")]
        bucket: Option<String>,
    },
}

/// What to serve, and how.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Serve the StorageClasses with this provisioner name. Several operators with different names can share a cluster.
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_NAME", required = false, value_parser = provisioner_name)]
    provisioner_name: String,
    /// Serve, or show, only the claims of this namespace.
    #[arg(short, long, global = true, value_name = "NAMESPACE", env = "PROVISIONER_NAMESPACE")]
    namespace: Option<String>,
    /// Work on up to N claims of one store at the same time, and on 4 x N in total. If other namespaces have to wait,
    /// half as many more. Claims that only wait do not count. Without this flag, LIB_BUCKET_PROVISIONER_THREADS of
    /// lib-bucket-provisioner is used [default: 32].
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_CONCURRENCY", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// How often to check bucket and access of each bound claim in the store, and repair them; 0 for never.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RESYNC", default_value = "10h", value_parser = humantime::parse_duration)]
    resync: Duration,
    /// Add the label `namespace` to the metric obc_provisioner_claims. Everybody who may read the metrics then learns which
    /// namespaces have claims.
    #[arg(long, global = true, env = "PROVISIONER_METRICS_NAMESPACE_LABEL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    metrics_namespace_label: bool,
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
    ///
    /// `own`: the flags of the store. What was given for them is in the matches.
    pub(crate) fn read(identity: &Identity, own: &[Arg]) -> (Self, ArgMatches) {
        Self::try_read(identity, own, std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn try_read(
        identity: &Identity,
        own: &[Arg],
        args: impl Iterator<Item = OsString>,
    ) -> Result<(Self, ArgMatches), clap::Error> {
        let args: Vec<_> = args.map(go_style).collect();
        let plugin = front::plugin(args.first());
        let read = Self::parse(identity, own, &args);
        // A plugin of kubectl is for looking: without a command it shows claims.
        let is_unknown =
            |error: &clap::Error| matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
        let in_doubt = match &read {
            Ok((read, _)) => read.command.is_none(),
            Err(error) => is_unknown(error),
        };
        if plugin.is_none() || !in_doubt {
            return read;
        }
        let mut with_status = args;
        with_status.insert(1.min(with_status.len()), OsString::from("status"));
        match (read, Self::parse(identity, own, &with_status)) {
            (Err(error), Err(of_status)) if is_unknown(&of_status) => Err(error),
            (_, with_status) => with_status,
        }
    }

    fn parse(identity: &Identity, own: &[Arg], args: &[OsString]) -> Result<(Self, ArgMatches), clap::Error> {
        let mut command = Self::described(identity, own, args.first());
        let matches = command.try_get_matches_from_mut(args)?;
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        args.lease.timing().map_err(|problem| command.error(ErrorKind::ValueValidation, problem))?;
        Ok((args, matches))
    }

    /// The command line of an operator that was started by this name.
    pub(crate) fn described(identity: &Identity, own: &[Arg], started_as: Option<&OsString>) -> clap::Command {
        let Identity { provisioner_name, program, version, about } = identity.clone();
        let command = Self::command()
            .name(program)
            .about(about)
            .args(own)
            .mut_arg("provisioner_name", |arg| arg.default_value(provisioner_name));
        let command = match front::plugin(started_as) {
            Some(plugin) => command.bin_name(plugin),
            None => command,
        };
        front::tidy(if version.is_empty() { command } else { command.version(version) })
    }

    /// Whose claims are served, and with which owners' Secrets, so that permissions can be limited to that.
    pub(crate) fn serves(&self, secrets: &[(String, String)], namespaces: &[String]) -> Result<Serves, String> {
        let named = secrets.iter().map(|(namespace, name)| (namespace, Some(name.clone())));
        let owners = named.chain(namespaces.iter().map(|namespace| (namespace, None)));
        let owners: Vec<_> =
            owners.map(|(namespace, name)| OwnerSecrets { namespace: namespace.clone(), name }).collect();
        match given(&self.run.namespace) {
            Some(claims) => Ok(Serves::Namespace { claims, owners }),
            None if owners.is_empty() => Ok(Serves::Everywhere),
            None => Err("--owner-secret and --owner-namespace need --namespace: without it the operator may read all \
                         Secrets"
                .to_owned()),
        }
    }

    /// The lease to hold, `None` without leader election. `namespace` is the default namespace of the lease.
    pub(crate) fn lease(&self, namespace: &str) -> Result<Option<lease::Options>, String> {
        self.lease.options(self.lease_name(), namespace)
    }

    /// The namespace of the lease, if it is set.
    pub(crate) fn lease_namespace(&self) -> Option<String> {
        self.lease.namespace()
    }

    /// The name of the lease.
    pub(crate) fn lease_name(&self) -> String {
        let derived = || lease::name(&self.run.provisioner_name, given(&self.run.namespace).as_deref());
        self.lease.name().unwrap_or_else(derived)
    }

    /// The lease to look for, `None` without leader election.
    pub(crate) fn lease_to_find(&self) -> Result<Option<LeaseToFind>, String> {
        let lease = self.lease("")?;
        Ok(lease.map(|lease| LeaseToFind { name: lease.name, namespace: self.lease_namespace() }))
    }

    /// Names of the leases that an operator may hold which serves what is looked at: `--namespace` may be only the admin's
    /// choice of what to see.
    pub(crate) fn leases_to_find(&self) -> Vec<String> {
        let everywhere = || lease::name(&self.run.provisioner_name, None);
        self.lease.name().map_or_else(|| vec![self.lease_name(), everywhere()], |name| vec![name])
    }

    /// The options of the controller. `go_threads` is the value of LIB_BUCKET_PROVISIONER_THREADS.
    pub(crate) fn options(&self, go_threads: Option<&str>) -> Options {
        let threads = go_threads.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
        Options {
            namespace: self.run.namespace.clone().filter(|n| !n.is_empty()),
            concurrency: self.run.concurrency.or(threads).unwrap_or(Options::DEFAULT_CONCURRENCY),
            resync: Some(self.run.resync).filter(|every| !every.is_zero()),
            shows_namespaces: self.run.metrics_namespace_label,
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
        Args::try_read(&identity(), &[], ["a-provisioner"].iter().chain(args).map(OsString::from)).map(|(args, _)| args)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::described(&identity(), &[], None).debug_assert();
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
    fn namespaces_are_metrics_only_on_request() {
        let shown = |args: &[&str]| parse(args).unwrap().options(None).shows_namespaces;
        assert!(!shown(&[]) && !shown(&["--metrics-namespace-label=false"]));
        assert!(shown(&["--metrics-namespace-label"]) && shown(&["run", "--metrics-namespace-label=true"]));
    }

    #[test]
    fn commands_that_only_look_accept_the_flags_for_serving_and_do_not_show_them() {
        for args in [&["--concurrency=3", "status"][..], &["status", "--concurrency=3"]] {
            assert_eq!(parse(args).unwrap().options(None).concurrency, 3);
        }
        let help = |command| parse(&[command, "--help"]).unwrap_err().to_string();
        for command in ["status", "orphans", "adopt", "record"] {
            let help = help(command);
            assert!(!help.contains("--lease") && !help.contains("--concurrency"), "{help}");
            assert!(!help.contains("--otlp-endpoint") && !help.contains("--metrics-namespace-label"), "{help}");
            assert!(help.contains("--namespace") && help.contains("--context"), "{help}");
        }
        assert!(help("run").contains("--lease-duration") && help("run").contains("--concurrency"));
    }

    #[test]
    fn a_plugin_of_kubectl_shows_claims_unless_it_is_told_otherwise() {
        let plugin = |args: &[&str]| {
            Args::try_read(&identity(), &[], ["/bin/kubectl-obc"].iter().chain(args).map(OsString::from))
        };
        for args in
            [&[][..], &["-n", "shop"], &["-ojson"], &["-o", "wide", "-n", "shop"], &["shop/photos"], &["status"]]
        {
            assert!(matches!(plugin(args).unwrap().0.command, Some(Command::Status(_))), "{args:?}");
        }
        let conflict = plugin(&["shop/photos", "--watch"]).unwrap_err();
        assert!(conflict.to_string().contains("cannot be used with"), "{conflict}");
        assert!(matches!(plugin(&["run"]).unwrap().0.command, Some(Command::Run)));
        assert!(matches!(plugin(&["orphans"]).unwrap().0.command, Some(Command::Orphans(_))));
        let help = plugin(&["--help"]).unwrap_err().to_string();
        assert!(help.contains("Usage: kubectl obc"), "{help}");
        assert!(plugin(&["status", "--help"]).unwrap_err().to_string().contains("Usage: kubectl obc status"));
        assert!(parse(&[]).unwrap().command.is_none(), "an operator serves");
    }

    #[test]
    fn invalid_values_are_refused() {
        assert!(parse(&["--concurrency", "0"]).is_err());
        assert!(parse(&["--provisioner-name", "a b"]).is_err());
        assert!(parse(&["--no-such-flag"]).is_err());
    }

    #[test]
    fn permissions_are_those_of_the_namespace_that_is_served() {
        let serves = |args: &[&str]| {
            let args = parse(args).unwrap();
            let Some(Command::Rbac { owner_secret, owner_namespace, .. }) = &args.command else { panic!("{args:?}") };
            args.serves(owner_secret, owner_namespace)
        };
        assert_eq!(serves(&["rbac"]).unwrap(), Serves::Everywhere);
        let of = |namespace: &str, name: Option<&str>| OwnerSecrets {
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
        };
        let args = ["rbac", "--namespace=team", "--owner-secret=a/b", "--owner-secret=a/c", "--owner-namespace=d"];
        let owners = vec![of("a", Some("b")), of("a", Some("c")), of("d", None)];
        assert_eq!(serves(&args).unwrap(), Serves::Namespace { claims: "team".to_owned(), owners });
        assert!(serves(&["rbac", "--owner-secret=a/b"]).unwrap_err().contains("need --namespace"));
        assert!(parse(&["rbac", "--namespace=team", "--owner-secret=a"]).is_err());
    }

    fn lease(args: &[&str]) -> Option<lease::Options> {
        parse(args).unwrap().lease("here").unwrap()
    }

    #[test]
    fn there_is_a_lease_unless_it_is_turned_off() {
        let default = lease(&[]).unwrap();
        assert_eq!((&*default.namespace, &*default.name), ("here", "aws-s3.io.bucket"));
        assert_eq!(default.timing, lease::Timing::default());
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
