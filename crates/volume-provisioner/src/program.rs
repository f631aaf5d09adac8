//! A whole provisioner of volumes in one call: [`VolumeOperator`].

use std::error::Error;
use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::decide::retry::Retry;
use super::metrics;
use super::options::Options;
use super::permissions;
use super::provisioner::VolumeProvisioner;
use operator_runtime::flags::{self, AdminArgs, ClusterArgs, LeaseArgs, LogArgs};
use operator_runtime::lease::{self, Timing};
use operator_runtime::observe::Observer;
use operator_runtime::program::{self, Identity, block_on, documents, print};
use operator_runtime::values::{duration, go_style, object_name, provisioner_name};
use operator_runtime::{parameters, rbac};

/// The program around a [`VolumeProvisioner`]: command line, logging, signals, leader election, and the controller.
///
/// Its commands: `run`, the default, serves claims; `rbac` prints the permissions that it needs, `parameters` the parameters
/// of StorageClasses. `--help` lists all flags. Most of them can be given as environment variables, too.
#[derive(Debug)]
#[must_use = "an operator does nothing until it runs"]
pub struct VolumeOperator {
    identity: Identity,
}

impl VolumeOperator {
    /// An operator for the StorageClasses whose `provisioner` is `name`, such as `example.com/disk`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { identity: Identity::new(name, "Provisions volumes for PersistentVolumeClaims.") }
    }

    operator_runtime::identity_setters!();

    /// Runs the command line, and returns what `main` has to return. Serving ends with SIGTERM or SIGINT, or when
    /// the lease is lost.
    ///
    /// `make` makes the provisioner, from its own flags: `F`, a struct that derives `clap::Args`, or [`NoFlags`](crate::NoFlags). It is called
    /// once, to serve claims. If it fails, the program logs the error and fails.
    ///
    /// If the arguments are wrong, exits with a message and a usage hint. Other errors are logged to standard error.
    pub fn run<F, P, E>(self, make: impl AsyncFnOnce(F) -> Result<P, E>) -> ExitCode
    where
        F: clap::Args,
        P: VolumeProvisioner,
        E: Display,
    {
        if let Err(problem) = parameters::check::<P::Parameters>() {
            eprintln!("error: {problem}");
            return ExitCode::FAILURE;
        }
        let (args, matches) = Args::read(&self.identity, &flags::own::<F>());
        if !matches!(args.command, Some(Command::Run) | None) {
            args.log.log(&self.identity);
        }
        let done = match &args.command {
            Some(Command::Rbac { operator_namespace, service_account }) => {
                let name = rbac::name_of_program(&self.identity.program);
                let namespace = operator_namespace.as_ref().unwrap_or(&name);
                let objects = permissions::objects(service_account.as_ref().unwrap_or(&name), namespace);
                documents(&objects).and_then(|text| print(&text))
            }
            Some(Command::Parameters) => print(&parameters::markdown(&parameters::table_of::<P::Parameters>())),
            Some(Command::Run) | None => {
                let observer = Observer::new(metrics::PREFIX, &self.identity.program, &self.identity.version);
                let telemetry = args.log.log_and_trace(&self.identity);
                let make = async || -> Result<P, Box<dyn Error>> {
                    make(F::from_arg_matches(&matches)?).await.map_err(|error| error.to_string().into())
                };
                let done = block_on(async { serve(make().await?, &args, &matches, observer).await });
                telemetry.stop();
                done
            }
        };
        program::exit_code(done.map(|()| ExitCode::SUCCESS))
    }
}

/// Whether flags or the environment give one of the lease's times.
fn chooses_times(matches: &ArgMatches) -> bool {
    let times = ["lease_duration", "lease_renew_deadline", "lease_retry_period"];
    times.iter().any(|time| matches.value_source(time) != Some(ValueSource::DefaultValue))
}

async fn serve<P: VolumeProvisioner>(
    provisioner: P,
    args: &Args,
    matches: &ArgMatches,
    observer: Observer,
) -> Result<(), Box<dyn Error>> {
    let config = args.cluster.config().await?;
    args.admin.start(&observer).await?;
    let mut options = args.run.options();
    options.observer = observer.clone();
    let lease = args.lease_of(provisioner.identity(), matches, &config.default_namespace)?;
    let provisioner = Arc::new(provisioner);
    let work = |client, permit, stop| {
        super::run_shared(client, Arc::clone(&provisioner), Options { permit, ..options.clone() }, stop)
    };
    program::serve(config, lease, &observer, work).await
}

#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    lease: LeaseArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Serve claims until stopped (the default).
    Run,
    /// Print the permissions that the provisioner needs, as YAML: its namespace, and a ServiceAccount with roles and
    /// bindings.
    Rbac {
        /// Namespace in which the provisioner runs [default: the name of the program].
        #[arg(long, value_name = "NAMESPACE", value_parser = object_name)]
        operator_namespace: Option<String>,
        /// Name of the ServiceAccount, and of roles and bindings [default: the name of the program].
        #[arg(long, value_name = "NAME", value_parser = object_name)]
        service_account: Option<String>,
    },
    /// Print the parameters of StorageClasses, as a table in Markdown.
    Parameters,
}

/// What to serve, and how.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is served")]
struct RunArgs {
    /// Serve the StorageClasses with this provisioner name.
    #[arg(long, global = true, value_name = "NAME", env = "PROVISIONER_NAME", required = false, value_parser = provisioner_name)]
    provisioner_name: String,
    /// Work on up to N volumes of one StorageClass at the same time, and on 4 x N in total.
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_WORKER_THREADS", default_value = "32", value_parser = clap::value_parser!(u16).range(1..))]
    worker_threads: u16,
    /// How often to try again what was refused or given up.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RESYNC_PERIOD", default_value = "15m", value_parser = duration)]
    resync_period: Duration,
    /// Double the pause after each failure. Otherwise all pauses are as long as the first one.
    #[arg(long, global = true, env = "PROVISIONER_EXPONENTIAL_BACK_OFF_ON_ERROR", default_value = "true", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    exponential_back_off_on_error: bool,
    /// The pause after the first failure.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RETRY_INTERVAL_START", default_value = "1s", value_parser = duration)]
    retry_interval_start: Duration,
    /// The longest pause after a failure.
    #[arg(long, global = true, value_name = "DURATION", env = "PROVISIONER_RETRY_INTERVAL_MAX", default_value = "5m", value_parser = duration)]
    retry_interval_max: Duration,
    /// After N failures to provision a volume, try only when the claim or its class changes, and every --resync-period;
    /// 0 disables it.
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_FAILED_PROVISION_THRESHOLD", default_value_t = 0)]
    failed_provision_threshold: u32,
    /// After N failures to delete a volume, try only when the PersistentVolume changes, and every --resync-period; 0
    /// disables it.
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_FAILED_DELETE_THRESHOLD", default_value_t = 0)]
    failed_delete_threshold: u32,
    /// Also delete the volumes of released PersistentVolumes that lack the annotation volume.objectbucket.io/uid: those that
    /// another program provisioned, and were released before this one has seen them.
    #[arg(long, global = true, env = "PROVISIONER_DELETE_UNMARKED_VOLUMES", default_value = "false", default_missing_value = "true", num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = BoolishValueParser::new())]
    delete_unmarked_volumes: bool,
    /// How many failures of a namespace to retry in a second. The first 100 come without a pause.
    #[arg(long, global = true, value_name = "N", env = "PROVISIONER_RETRIES_PER_SECOND", default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    retries_per_second: u32,
}

impl Args {
    /// `own`: the flags of the provisioner. What was given for them is in the matches.
    fn read(identity: &Identity, own: &[Arg]) -> (Self, ArgMatches) {
        Self::try_read(identity, own, std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn try_read(
        identity: &Identity,
        own: &[Arg],
        args: impl Iterator<Item = OsString>,
    ) -> Result<(Self, ArgMatches), clap::Error> {
        let Identity { provisioner_name, program, version, about } = identity.clone();
        let command = Self::command().name(program).about(about).args(own);
        let command = command.mut_arg("provisioner_name", |arg| arg.default_value(provisioner_name));
        let mut command = if version.is_empty() { command } else { command.version(version) };
        let matches = command.try_get_matches_from_mut(args.map(go_style))?;
        let args = Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
        args.lease.timing().map_err(|problem| command.error(ErrorKind::ValueValidation, problem))?;
        Ok((args, matches))
    }

    /// The lease of an instance with this identity, `None` without leader election. `namespace` is the default namespace
    /// of the lease.
    fn lease_of(
        &self,
        identity: &str,
        matches: &ArgMatches,
        namespace: &str,
    ) -> Result<Option<lease::Options>, String> {
        // Instances with different identities work at the same time, so each has a lease of its own.
        let identity = Some(identity).filter(|identity| !identity.is_empty());
        let name = self.lease.name().unwrap_or_else(|| lease::name(&self.run.provisioner_name, identity));
        let mut lease = self.lease.options(name, namespace)?;
        // One instance a node, which nobody stands by for: a cluster has thousands of nodes, and each renewal is a write.
        if let Some(lease) = lease.as_mut().filter(|_| identity.is_some() && !chooses_times(matches)) {
            lease.timing = Timing::slow();
        }
        Ok(lease)
    }
}

impl RunArgs {
    fn options(&self) -> Options {
        let retry = |threshold: u32| Retry {
            initial: self.retry_interval_start,
            max: self.retry_interval_max.max(self.retry_interval_start),
            exponential: self.exponential_back_off_on_error,
            threshold: Some(threshold).filter(|threshold| *threshold > 0),
        };
        Options {
            worker_threads: self.worker_threads,
            resync_period: self.resync_period,
            provision_retry: retry(self.failed_provision_threshold),
            delete_retry: retry(self.failed_delete_threshold),
            deletes_unmarked_volumes: self.delete_unmarked_volumes,
            retries_per_second: self.retries_per_second,
            ..Options::new(&self.provisioner_name)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(args: &[&str]) -> Result<(Args, ArgMatches), clap::Error> {
        let identity = Identity {
            provisioner_name: "example.com/disk".into(),
            program: "a-provisioner".into(),
            version: "1.2.3".into(),
            about: "Provisions disks.".into(),
        };
        Args::try_read(&identity, &[], ["a-provisioner"].iter().chain(args).map(Into::into))
    }

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        read(args).map(|(args, _)| args)
    }

    /// The lease of an instance with this identity that is started with these arguments.
    fn lease_of(identity: &str, args: &[&str]) -> Option<lease::Options> {
        let (args, matches) = read(args).unwrap();
        args.lease_of(identity, &matches, "ns").unwrap()
    }

    fn timing_of(identity: &str, args: &[&str]) -> Timing {
        lease_of(identity, args).unwrap().timing
    }

    #[test]
    fn the_options_of_the_guide_are_flags() {
        let options = parse(&[]).unwrap().run.options();
        assert_eq!(options.provisioner_name, "example.com/disk");
        assert_eq!((options.provision_retry, options.delete_retry), (Retry::default(), Retry::default()));
        assert!(!options.deletes_unmarked_volumes);
        let set = [
            "--resync-period=15s",
            "--exponential-back-off-on-error=false",
            "--failed-provision-threshold=5",
            "--failed-delete-threshold=6",
            "--delete-unmarked-volumes",
            "-worker-threads=4",
        ];
        let options = parse(&set).unwrap().run.options();
        assert_eq!((options.resync_period, options.worker_threads), (Duration::from_secs(15), 4));
        assert_eq!((options.provision_retry.threshold, options.delete_retry.threshold), (Some(5), Some(6)));
        assert!(!options.provision_retry.exponential && options.deletes_unmarked_volumes);
    }

    #[test]
    fn help_and_errors_are_those_of_the_provisioner() {
        let shown = |flag| parse(&[flag]).unwrap_err().to_string();
        assert_eq!(shown("--version"), "a-provisioner 1.2.3\n");
        let help = shown("--help");
        assert!(help.starts_with("Provisions disks.\n\nUsage: a-provisioner"), "{help}");
        assert!(help.contains("[default: example.com/disk]") && help.contains("--master"), "{help}");
        assert!(shown("--lease-duration=1s").contains("raise --lease-duration"));
    }

    #[test]
    fn an_instance_with_an_identity_renews_its_lease_slowly() {
        assert_eq!(timing_of("node-1", &[]), Timing::slow());
        assert_eq!(timing_of("node-1", &["run", "--lease-namespace=elsewhere"]), Timing::slow());
    }

    /// One of them holds the lease for all volumes, and the others wait for it.
    #[test]
    fn replicas_without_an_identity_renew_as_others_do() {
        assert_eq!(timing_of("", &[]), Timing::default());
    }

    #[test]
    fn times_that_are_given_are_those_of_the_lease() {
        let timing = |lease, renew, retry| {
            let [lease, renew, retry] = [lease, renew, retry].map(Duration::from_secs);
            Timing::new(lease, renew, retry).unwrap()
        };
        for identity in ["", "node-1"] {
            assert_eq!(timing_of(identity, &["--lease-retry-period=3s"]), timing(15, 10, 3));
            assert_eq!(timing_of(identity, &["--lease-renew-deadline=9s"]), timing(15, 9, 2));
            // Also those that are the default.
            assert_eq!(timing_of(identity, &["run", "--lease-duration=15s"]), Timing::default());
        }
    }

    #[test]
    fn instances_with_different_identities_have_their_own_lease() {
        let name = |identity, args: &[&str]| lease_of(identity, args).map(|lease| (lease.namespace, lease.name));
        let named = |namespace: &str, name: &str| Some((namespace.to_owned(), name.to_owned()));
        assert_eq!(name("", &[]), named("ns", "example.com.disk"));
        assert_eq!(name("node-1", &[]), named("ns", "example.com.disk--node-1"));
        assert_eq!(name("node-1", &["--lease-name=mine", "--lease-namespace=there"]), named("there", "mine"));
        assert_eq!(name("node-1", &["--leader-elect=false"]), None);
    }
}
