//! A whole operator in one call: [`Operator`]; and the commands for admins.
//!
//! Each command reads, prints what it found with the remedy, and ends. It reads with the admin's own permissions, while
//! an operator may serve. It uses the same functions as the operator (`decide`), so that both draw the same conclusions
//! about the same object. It depends on the trait, and on no store.
//!
//! | file | what it holds |
//! |---|---|
//! | `session` | what all commands use: the client, the store, the name of the provisioner |
//! | `view` | claims, ObjectBuckets and StorageClasses, each listed once, and which belong together |
//! | `output` | tables, colours, JSON and YAML; text of tenants without control characters |
//! | `status` | all claims, or the details of one |
//! | `orphans` | what has no claim, and the actions that an admin can apply to it |
//! | `adopt` | restored claims get their buckets, users and keys back |
//! | `claim` | `env`, `rotate` and `retry`: what users do with one claim |
//! | `disposition` | what the deletion of a claim would delete |
//! | `usage` | how much is in a bucket |
//! | `accounts` | the accounts that ObjectBuckets record |
//! | `lease` | whether somebody holds a Lease |
//! | `doctor` | checks an installation, with a remedy for each problem |
//! | `prompt`, `annotate` | questions to the admin; annotations on ObjectBuckets, and how the operator reacts |
//! | `args`, `shell` | the command line; the plugin of kubectl, completions, the man page |
//! | `check` | whether a store meets the requirements of the trait |
//! | `rbac`, `reasons` | what the commands of these names print |

mod accounts;
mod adopt;
mod annotate;
mod args;
mod check;
mod claim;
mod disposition;
mod doctor;
mod lease;
mod orphans;
mod output;
mod prompt;
mod rbac;
mod reasons;
mod session;
mod shell;
mod status;
#[cfg(test)]
pub(crate) mod testing;
mod usage;
mod view;

use std::convert::Infallible;
use std::error::Error;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use tokio::sync::Mutex;

use self::args::{Args, Command};
use self::output::clean;
use self::rbac::{Serves, Subject};
use self::session::Session;
use crate::api;
use crate::controller::{self, Options};
use crate::decide::metadata::FieldManager;
use crate::store::{CommonParameters, Observer, Parameters as _, Provisioner, Start};
use operator_runtime::cluster;
use operator_runtime::flags::{self, NoFlags};
use operator_runtime::kubernetes::pages;
use operator_runtime::parameters;
use operator_runtime::program::{self, Identity, block_on, chain, documents, print};

/// The program around a store: command line, logging, signals, leader election, and the controller.
///
/// Its commands: `run`, the default, serves claims; `crds` prints the CustomResourceDefinitions, `rbac` the permissions
/// that it needs, `parameters` the parameters of StorageClasses, `reasons` the reason codes of claims, and `metrics`
/// the metrics; `doctor`, `status`, `orphans` and `adopt` are tools for admins, `env`, `rotate` and `retry` for users;
/// `completions` and `man` are for shells; `rebuild-objectbucket` rebuilds a lost ObjectBucket. `--help` lists all flags.
/// Most of them can be set by environment variables, too.
#[derive(Debug)]
#[must_use = "an operator does nothing until it runs"]
pub struct Operator {
    identity: Identity,
    field_manager: Option<String>,
}

impl Operator {
    /// An operator for the StorageClasses whose `provisioner` is `name`, such as `example.com/bucket`. Admins can
    /// choose another name with `--provisioner-name`, to run several operators in one cluster.
    ///
    /// In its help it has the name of the running program, unless [`program`](Self::program) sets another.
    pub fn new(name: impl Into<String>) -> Self {
        let identity = Identity::new(name, "Provisions buckets for ObjectBucketClaims.");
        Self { identity, field_manager: None }
    }

    operator_runtime::identity_setters!();

    /// Sets the name with which the operator writes, as `managedFields` shows it, instead of the provisioner's; see
    /// [`Options::field_manager`](controller::Options::field_manager).
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Runs the command of the command line, and returns the exit code for `main`. Serving claims ends with SIGTERM or
    /// SIGINT, or when the lease is lost.
    ///
    /// `make` constructs the store, from its own flags (`F`, a struct that derives `clap::Args`, or [`NoFlags`]) and
    /// from settings of the operator. It is called once, by the commands that call the store; to serve claims, when
    /// this process has the lease or needs none. If it fails, the program fails.
    ///
    /// If the arguments are invalid, exits with a message and a usage hint. Whoever serves claims logs errors; other
    /// commands print them to standard error. A store that does not meet the requirements of [`Provisioner`] is refused
    /// with a message before anything else: names of parameters and reasons, and the longest name of a user.
    pub fn run<F, P, E>(self, make: impl AsyncFnOnce(F, Start) -> Result<P, E>) -> ExitCode
    where
        F: clap::Args,
        P: Provisioner,
        E: Display,
    {
        if let Err(problem) = check::store::<P>() {
            eprintln!("error: {problem}");
            return ExitCode::FAILURE;
        }
        let own = flags::own::<F>();
        let mut words = std::env::args_os();
        let started_as = words.next();
        if let Some(completed) = shell::completed_plugin(started_as.as_ref()) {
            let command = Args::described(&self.identity, &own, Some(&completed));
            print!("{}", shell::candidates(command, words));
            return ExitCode::SUCCESS;
        }
        let (args, matches) = Args::read(&self.identity, &own);
        if let (Some(Command::Run), Some(plugin)) = (&args.command, shell::plugin(started_as.as_ref())) {
            let program = &self.identity.program;
            eprintln!("error: {plugin} serves no claims; to serve them from this machine, use `{program} run`");
            return ExitCode::from(2);
        }
        if args.command.is_none() && shell::is_typed() {
            let program = shell::invoked_as(&self.identity.program);
            eprintln!(
                "error: without a command, this program would serve claims from this machine, with your permissions; to do \
                 that, use `{program} run`; `{program} help` shows all commands"
            );
            return ExitCode::from(2);
        }
        let serves = matches!(args.command, Some(Command::Run) | None);
        if !serves {
            args.log.log(&self.identity);
        }
        let make = async |start: Start| -> Result<P, Box<dyn Error>> {
            let flags = F::from_arg_matches(&matches)?;
            make(flags, start).await.map_err(|error| error.to_string().into())
        };
        let done = self.execute(make, &args, &own);
        if serves {
            return program::exit_code(done);
        }
        done.unwrap_or_else(|error| {
            eprintln!("error: {}", clean(&chain(error.as_ref())));
            ExitCode::FAILURE
        })
    }

    fn execute<P: Provisioner>(
        &self,
        make: impl Make<P>,
        args: &Args,
        own: &[clap::Arg],
    ) -> Result<ExitCode, Box<dyn Error>> {
        let options = |threads: Option<&str>| self.options(args, threads);
        let done = match &args.command {
            Some(Command::Crds { output_dir }) => crds(output_dir.as_deref()),
            Some(Command::Rbac { operator_namespace, service_account, owner_secret, owner_namespace, keyless }) => {
                let serves = match args.serves(owner_secret, owner_namespace) {
                    Ok(serves) => serves,
                    Err(problem) => {
                        eprintln!("error: {problem}");
                        return Ok(ExitCode::from(2));
                    }
                };
                let (namespace, account) = (operator_namespace.clone(), service_account.clone());
                let subject = subject(&self.identity.program, args, namespace, account, serves);
                let subject = Subject { keyless: *keyless, ..subject };
                print(&documents(&rbac::objects(&subject))?)
            }
            Some(Command::Parameters) => print(&parameters_table::<P>()),
            Some(Command::Reasons) => print(&reasons::page::<P>()),
            Some(Command::Metrics) => print(&Observer::default().runtime().table()),
            Some(
                tool @ (Command::Doctor(_)
                | Command::Status(_)
                | Command::Orphans(_)
                | Command::Adopt(_)
                | Command::Env(_)
                | Command::Rotate(_)
                | Command::Retry(_)
                | Command::Record { .. }),
            ) => {
                return block_on(self.run_tool(make, args, options(None), tool));
            }
            Some(Command::Completions { shell }) => {
                let started_as = std::env::args_os().next();
                print(&shell::completions(*shell, Args::described(&self.identity, own, started_as.as_ref())))
            }
            Some(Command::Man { output_dir }) => {
                shell::manual(Args::described(&self.identity, own, None), output_dir.as_deref())
            }
            Some(Command::Run) | None => {
                let observer = Observer::new(&self.identity.program, &self.identity.version);
                let telemetry = args.log.log_and_trace(&self.identity);
                let threads = std::env::var("LIB_BUCKET_PROVISIONER_THREADS").ok();
                let done = block_on(serve(make, args, Options { observer, ..options(threads.as_deref()) }));
                telemetry.stop();
                done
            }
        };
        done.map(|()| ExitCode::SUCCESS)
    }

    /// `go_threads` is as in [`Args::options`].
    fn options(&self, args: &Args, go_threads: Option<&str>) -> Options {
        let options = args.options(go_threads);
        match &self.field_manager {
            Some(name) => options.with_field_manager(name),
            None => options,
        }
    }

    /// Runs a command that has a [`Session`].
    async fn run_tool<P: Provisioner>(
        &self,
        make: impl Make<P>,
        args: &Args,
        options: Options,
        tool: &Command,
    ) -> Result<ExitCode, Box<dyn Error>> {
        let config = args.cluster.config().await?;
        let limit = if matches!(tool, Command::Doctor(_)) { doctor::ANSWER_LIMIT } else { cluster::ANSWER_LIMIT };
        // As kubectl, whose users expect the claims of their context.
        let lists_context = shell::plugin(std::env::args_os().next().as_ref()).is_some()
            && matches!(tool, Command::Status(_))
            && !args.all_namespaces();
        let of_context = lists_context.then(|| config.default_namespace.clone());
        let session = Session {
            client: pages::bounded(cluster::client(config.clone(), limit)?),
            config,
            store: make(options.start(false)).await?,
            field_manager: FieldManager::new(&options.field_manager),
            provisioner: options.provisioner_name,
            namespace: options.namespace.or(of_context),
            lease: args.lease("")?,
            leases: args.leases_to_find(),
            program: shell::invoked_as(&self.identity.program),
            version: self.identity.version.clone(),
        };
        match tool {
            Command::Status(args) => status::run(&session, args).await?,
            Command::Orphans(args) => return orphans::run(&session, args).await,
            Command::Adopt(args) => return adopt::run(&session, args).await,
            Command::Doctor(args) if !doctor::run(&session, args).await? => return Ok(ExitCode::FAILURE),
            Command::Env(args) => claim::env(&session, args).await?,
            Command::Rotate(args) => claim::rotate(&session, args).await?,
            Command::Retry(args) => claim::retry(&session, args).await?,
            Command::Record { claim, bucket } => {
                let (namespace, name) = session.named(claim)?;
                let claim = (namespace.as_str(), name.as_str());
                let Session { client, store, provisioner, .. } = &session;
                let record = controller::of_claim(client, store, provisioner, claim, bucket.clone()).await?;
                print(&serde_saphyr::to_string(&record)?)?;
            }
            _ => {}
        }
        Ok(ExitCode::SUCCESS)
    }

    /// [`run`](Self::run) with a store that has no flags and needs no settings of the operator.
    pub fn run_with<P: Provisioner>(self, store: P) -> ExitCode {
        self.run(async |NoFlags {}, _| Ok::<_, Infallible>(store))
    }
}

fn subject(
    program: &str,
    args: &Args,
    operator_namespace: Option<String>,
    service_account: Option<String>,
    serves: Serves,
) -> Subject {
    let program = operator_runtime::rbac::name_of_program(program);
    let namespace = operator_namespace.unwrap_or_else(|| program.clone());
    Subject {
        account: service_account.unwrap_or(program),
        lease: args.lease_name(),
        lease_namespace: args.lease_namespace().unwrap_or_else(|| namespace.clone()),
        namespace,
        keyless: false,
        serves,
    }
}

/// Constructs the store.
trait Make<P>: AsyncFnOnce(Start) -> Result<P, Box<dyn Error>> {}
impl<P, M: AsyncFnOnce(Start) -> Result<P, Box<dyn Error>>> Make<P> for M {}

async fn serve<P: Provisioner>(make: impl Make<P>, args: &Args, options: Options) -> Result<(), Box<dyn Error>> {
    let config = args.cluster.config().await?;
    let observer = options.observer.clone();
    args.admin.start(observer.runtime()).await?;
    let lease = args.lease(&config.default_namespace)?;
    // It is made once, when this process leads for the first time.
    let store = Mutex::new(Store::ToBeMade(make));
    let work = |client, permit, stop| {
        let (store, options) = (&store, Options { permit, ..options.clone() });
        async move {
            let store = store.lock().await.made(options.start(true)).await;
            if let Some(store) = store {
                controller::run_shared(client, store, options, stop).await;
            }
        }
    };
    program::serve(config, lease, observer.runtime(), work).await?;
    match store.into_inner() {
        Store::Failed(error) => Err(error),
        Store::ToBeMade(_) | Store::Made(_) => Ok(()),
    }
}

/// The store that serves claims.
enum Store<M, P> {
    ToBeMade(M),
    Made(Arc<P>),
    Failed(Box<dyn Error>),
}

impl<P, M: Make<P>> Store<M, P> {
    /// The store, made if it is not; `None` if that has failed.
    async fn made(&mut self, start: Start) -> Option<Arc<P>> {
        let interrupted = || Self::Failed("the store was not made before the cluster was set back".into());
        *self = match std::mem::replace(self, interrupted()) {
            Self::ToBeMade(make) => match make(start).await {
                Ok(store) => Self::Made(Arc::new(store)),
                Err(error) => Self::Failed(error),
            },
            made_before => made_before,
        };
        match self {
            Self::Made(store) => Some(Arc::clone(store)),
            Self::ToBeMade(_) | Self::Failed(_) => None,
        }
    }
}

fn crds(output_dir: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let Some(dir) = output_dir else {
        return print(&documents(&api::crds().map(|(_, crd)| crd))?);
    };
    for (file, crd) in api::crds() {
        std::fs::write(dir.join(file), serde_saphyr::to_string(&crd)?)
            .map_err(|error| cannot_write(&dir.join(file), &error))?;
    }
    Ok(())
}

/// Why a file of `--output-dir`, or one there, cannot be written.
fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    let remedy = match error.kind() {
        std::io::ErrorKind::NotFound => "; create the directory that --output-dir names",
        _ => "",
    };
    format!("cannot write {}: {error}{remedy}", path.display())
}

/// The class parameters of a store, and those that all stores share, as a table in Markdown.
fn parameters_table<P: Provisioner>() -> String {
    let mut all = P::Parameters::table();
    all.extend(CommonParameters::table_for::<P::Owner>(P::CAPABILITIES));
    parameters::markdown(&all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::OsString;

    use super::*;

    /// By it, an operator of a later version knows what it has written.
    #[test]
    fn an_operator_keeps_the_field_manager_that_its_program_sets() {
        let manager = |operator: &Operator, line: &[&str]| {
            let (args, _) = Args::try_read(&operator.identity, &[], line.iter().map(OsString::from)).unwrap();
            operator.options(&args, None).field_manager
        };
        let (usual, renamed) = (["a"].as_slice(), ["a", "--provisioner-name", "example.com/other"].as_slice());
        let operator = Operator::new("example.com/bucket");
        assert_eq!(manager(&operator, usual), "example.com/bucket");
        assert_eq!(manager(&operator, renamed), "example.com/other");
        assert_eq!(manager(&operator.field_manager("ours"), renamed), "ours");
    }
}
