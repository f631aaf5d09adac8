//! The command line: flags, their environment variables, and the flags of the Go provisioner.
//!
//! The first paragraph of a flag's or command's comment is what `-h` prints, in one line. `--help` prints the other
//! paragraphs, too: defaults that depend on others, exit codes, constraints.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::rbac::{OwnerSecrets, Serves};
use super::shell;
use crate::cli::adopt::AdoptArgs;
use crate::cli::claim::{ClaimArgs, EnvArgs};
use crate::cli::doctor::DoctorArgs;
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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve claims until stopped (default)
    Run,
    /// Print the CustomResourceDefinitions as YAML
    ///
    /// To install them, pipe the output into `kubectl apply --server-side --filename -`.
    Crds {
        /// Write a file for each one to this directory instead
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
    /// Print the operator's namespace, ServiceAccount, roles and bindings as YAML
    ///
    /// With --namespace, they are those of an operator that serves only this namespace.
    Rbac {
        /// Run the operator in this namespace [default: the name of the program]
        #[arg(long, value_name = "NAMESPACE", value_parser = object_name)]
        operator_namespace: Option<String>,
        /// Name the ServiceAccount, roles and bindings [default: the name of the program]
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        service_account: Option<String>,
        /// Allow the operator to read this Secret; can be repeated
        ///
        /// For Secrets outside the namespace that is served, which classes name. Needs --namespace.
        #[arg(long, value_name = "NAMESPACE/NAME", value_parser = namespaced_name)]
        owner_secret: Vec<(String, String)>,
        /// Allow the operator to read all Secrets of this namespace; can be repeated
        ///
        /// Classes may then name any Secret there. Needs --namespace.
        #[arg(long, value_name = "NAMESPACE", value_parser = object_name)]
        owner_namespace: Vec<String>,
        /// Allow the operator to request tokens of ServiceAccounts, and to watch ServiceAccounts
        ///
        /// For classes with `authentication: ServiceAccount`: with a token, the operator tries the access of a claim before the
        /// claim is Bound.
        #[arg(long)]
        keyless: bool,
    },
    /// Print the parameters of StorageClasses as a Markdown table
    Parameters,
    /// Print the reason codes of claims and ObjectBuckets as a Markdown page
    Reasons,
    /// Print the metrics of the operator as a Markdown table
    Metrics,
    /// Check the installation and print a fix for each problem
    ///
    /// Changes nothing, in the cluster or in the store. Exit codes: 0 if there are no problems, 1 if there are some, 2
    /// if an argument is invalid.
    Doctor(DoctorArgs),
    /// List claims, those that need attention first; with NAME, show one in detail
    ///
    /// Changes nothing. Exit codes: 0, or 1 if the claims could not be read.
    Status(StatusArgs),
    /// Print the variables of a claim's Secret and ConfigMap, for `eval`
    ///
    /// These contain the claim's keys. Changes nothing.
    Env(EnvArgs),
    /// Request new keys for a claim
    ///
    /// The previous keys work until the grace period of the class ends. Restart pods that read their keys only once.
    Rotate(ClaimArgs),
    /// Let the operator retry a claim, or check a bound one, at once
    Retry(ClaimArgs),
    /// Find buckets, users and ObjectBuckets without a claim, and claims without them
    ///
    /// Finds those of this cluster. Changes nothing without --apply.
    ///
    /// Exit codes: 0 if there are no orphans, 3 if there are some, 1 if something could not be checked, 2 if an
    /// argument is invalid.
    Orphans(OrphansArgs),
    /// Give restored claims their bucket, user and keys back
    ///
    /// Exit codes: 0 if everything was adopted, 1 if something was not, 2 if an argument is invalid.
    Adopt(AdoptArgs),
    /// Print a completion script for a shell
    Completions {
        /// Complete commands in this shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man {
        /// Write a page for each command to this directory instead; `man DIR/FILE` shows one
        #[arg(long, value_name = "DIR")]
        output_dir: Option<PathBuf>,
    },
    /// Print the lost ObjectBucket of a claim, rebuilt from the tags of its bucket
    ///
    /// Changes nothing. Check the output, apply it, and annotate the ObjectBucket with objectbucket.io/orphan=adopt.
    #[command(name = "rebuild-objectbucket", alias = "record")]
    Record {
        /// Rebuild the ObjectBucket of this claim
        #[arg(value_name = "[NAMESPACE/]NAME")]
        claim: String,
        /// Use this bucket, if neither the claim nor its StorageClass names one
        #[arg(long, value_name = "NAME")]
        bucket: Option<String>,
    },
}

/// Which claims to serve, and how.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Claims")]
struct RunArgs {
    /// Serve or show only the claims of StorageClasses with this provisioner
    ///
    /// Several operators with different names can share a cluster.
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_NAME", required = false, value_parser = provisioner_name)]
    provisioner_name: String,
    /// Serve or show only the claims of this namespace
    #[arg(short, long, global = true, value_name = "NAMESPACE", env = "PROVISIONER_NAMESPACE")]
    namespace: Option<String>,
    /// Serve or show the claims of all namespaces
    ///
    /// This is the default, but for the list of claims that the plugin of kubectl shows: that is of the namespace of the
    /// context.
    #[arg(short = 'A', long, global = true)]
    all_namespaces: bool,
    /// Work on up to N claims of one store at the same time [default: 32]
    ///
    /// In total, the operator works on up to 4 x N claims. If claims of other namespaces wait, it works on half as many
    /// more. Claims that only wait do not count. Without this flag, the operator uses LIB_BUCKET_PROVISIONER_THREADS,
    /// as lib-bucket-provisioner does.
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_CONCURRENCY", value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: Option<u16>,
    /// Check and repair each bound claim in the store this often; 0 disables it
    ///
    /// This checks bucket and access. The checks of all claims are spread over this time.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RESYNC", default_value = "10h", value_parser = humantime::parse_duration)]
    resync: Duration,
    /// Add the label `namespace` to the metric obc_provisioner_claims
    ///
    /// Everybody who may read the metrics can then see which namespaces have claims.
    #[arg(long, global = true, help_heading = "Observability", hide_short_help = true, env = "PROVISIONER_METRICS_NAMESPACE_LABEL", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    metrics_namespace_label: bool,
}

/// Flags of the Go provisioner's logger. They are ignored, so that old manifests still work.
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
    /// Reads the process's arguments. If they are invalid, exits with a message and a usage hint.
    ///
    /// `own`: the flags of the store. Their values are in the matches.
    pub(crate) fn read(identity: &Identity, own: &[Arg]) -> (Self, ArgMatches) {
        Self::try_read(identity, own, std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    pub(super) fn try_read(
        identity: &Identity,
        own: &[Arg],
        args: impl Iterator<Item = OsString>,
    ) -> Result<(Self, ArgMatches), clap::Error> {
        let args: Vec<_> = args.map(go_style).collect();
        let plugin = shell::plugin(args.first());
        let read = Self::parse(identity, own, &args);
        // A plugin of kubectl is a tool for admins: without a command it shows claims.
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
        if args.iter().any(|arg| arg == "-h") {
            // One line for each flag, whatever the width of the terminal. The variables are in `--help` only.
            command = command.term_width(0).mut_args(|arg| arg.hide_env(true));
        }
        let matches = command.try_get_matches_from_mut(args)?;
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        args.lease.timing().map_err(|problem| command.error(ErrorKind::ValueValidation, problem))?;
        Ok((args, matches))
    }

    /// The command line of an operator that was started with this name.
    pub(crate) fn described(identity: &Identity, own: &[Arg], started_as: Option<&OsString>) -> clap::Command {
        let Identity { provisioner_name, program, version, about } = identity.clone();
        let command = Self::command()
            .name(program)
            .about(about)
            .args(own)
            .mut_arg("provisioner_name", |arg| arg.default_value(provisioner_name));
        let command = match shell::plugin(started_as) {
            Some(plugin) => shell::as_plugin(command, plugin),
            None => command,
        };
        shell::tidy(if version.is_empty() { command } else { command.version(version) })
    }

    /// The only namespace whose claims are meant.
    fn namespace(&self) -> Option<String> {
        given(&self.run.namespace).filter(|_| !self.run.all_namespaces)
    }

    /// Whether the claims of all namespaces are meant, rather than those of the context's.
    pub(crate) fn all_namespaces(&self) -> bool {
        self.run.all_namespaces
    }

    /// The namespaces that are served and the Secrets with provisioning credentials, so that RBAC can be limited to
    /// them.
    pub(crate) fn serves(&self, secrets: &[(String, String)], namespaces: &[String]) -> Result<Serves, String> {
        let named = secrets.iter().map(|(namespace, name)| (namespace, Some(name.clone())));
        let owners = named.chain(namespaces.iter().map(|namespace| (namespace, None)));
        let owners: Vec<_> =
            owners.map(|(namespace, name)| OwnerSecrets { namespace: namespace.clone(), name }).collect();
        match self.namespace() {
            Some(claims) => Ok(Serves::Namespace { claims, owners }),
            None if owners.is_empty() => Ok(Serves::Everywhere),
            None => Err("--owner-secret and --owner-namespace need --namespace: without it the operator may read all \
                         Secrets"
                .to_owned()),
        }
    }

    /// The lease to hold, `None` without leader election. `namespace` is the default namespace of the lease.
    pub(crate) fn lease(&self, namespace: &str) -> Result<Option<lease::Options>, String> {
        let lease = self.lease.options(self.lease_name(), namespace)?;
        Ok(lease.map(|lease| lease::Options { one_in_cluster: true, ..lease }))
    }

    /// The namespace of the lease, if it is set.
    pub(crate) fn lease_namespace(&self) -> Option<String> {
        self.lease.namespace()
    }

    /// The name of the lease.
    pub(crate) fn lease_name(&self) -> String {
        let derived = || lease::name(&self.run.provisioner_name, self.namespace().as_deref());
        self.lease.name().unwrap_or_else(derived)
    }

    /// Names of the leases that a serving operator may hold. `--namespace` may only select what the command shows, so
    /// the lease of an operator for all namespaces is among them.
    pub(crate) fn leases_to_find(&self) -> Vec<String> {
        let everywhere = || lease::name(&self.run.provisioner_name, None);
        self.lease.name().map_or_else(|| vec![self.lease_name(), everywhere()], |name| vec![name])
    }

    /// The options of the controller. `go_threads` is the value of LIB_BUCKET_PROVISIONER_THREADS.
    pub(crate) fn options(&self, go_threads: Option<&str>) -> Options {
        let threads = go_threads.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
        Options {
            namespace: self.namespace(),
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
    fn short_help_is_short_and_long_help_has_everything() {
        let shown = |args: &[&str]| parse(args).unwrap_err().to_string();
        for args in [&["-h"][..], &["orphans", "-h"], &["adopt", "-h"], &["run", "-h"]] {
            let help = shown(args);
            assert!(!help.contains("--master") && !help.contains("--lease-duration"), "{help}");
            assert!(!help.contains("[env: "), "{help}");
        }
        let long = shown(&["--help"]);
        for part in ["Cluster:", "Claims:", "Leases:", "Observability:", "--master", "[env: PROVISIONER_MASTER"] {
            assert!(long.contains(part), "{part}: {long}");
        }
        for line in shown(&["-h"]).lines().chain(shown(&["orphans", "-h"]).lines()) {
            let help = line.rsplit("  ").next().unwrap_or_default();
            assert!(help.chars().count() <= 100, "{line}");
        }
    }

    #[test]
    fn the_flags_of_the_go_provisioner_are_accepted() {
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
    fn tools_accept_the_flags_for_serving_and_hide_them() {
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
    fn a_kubectl_plugin_shows_claims_by_default() {
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
    fn there_is_a_lease_unless_it_is_disabled() {
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
    fn contradicting_durations_are_refused_with_a_remedy() {
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
