//! A whole operator in one call: [`Operator`]; and what an admin asks an installation.
//!
//! Each command looks, prints what it found with the remedy, and ends. It looks with the admin's own rights, and beside an
//! operator that serves. It reads by the same functions as the operator (`decide`), so that both say the same of the same
//! object. It knows the trait, and no store.
//!
//! | file | what it holds |
//! |---|---|
//! | `session` | what all commands look with: the client, the store, which provisioner |
//! | `output` | tables, JSON and YAML; what others have written, made harmless |
//! | `status` | all claims, or one claim's whole story |
//! | `orphans` | what no claim has, and what an admin wants done about it |
//! | `adopt` | restored claims get back what they had |
//! | `fate` | what the deletion of a claim would remove |
//! | `usage` | how much is in a bucket |
//! | `accounts` | the accounts that ObjectBuckets record |
//! | `doctor` | whether an installation works, and what to do about what does not |
//! | `ask`, `word` | questions; an admin's word on an ObjectBucket, and what the operator answers |
//! | `args`, `front` | the command line; completions, the man page |
//! | `check` | whether a store is what the trait demands |
//! | `rbac`, `reasons` | what the commands of these names print |

mod accounts;
mod adopt;
mod args;
mod ask;
mod check;
mod doctor;
mod fate;
mod front;
mod orphans;
mod output;
mod rbac;
mod reasons;
mod session;
mod status;
#[cfg(test)]
mod testing;
mod usage;
mod word;

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use self::args::{Args, Command};
use self::doctor::{DoctorArgs, Installation};
use self::output::clean;
use self::rbac::{Serves, Subject};
use self::session::Session;
use crate::store::{CommonParameters, Observer, Parameter, Parameters as _, Permit, Provisioner};
use crate::{api, controller};
use operator_runtime as runtime;
use operator_runtime::lease::Term;
use operator_runtime::program::{self, Identity, block_on, chain, print, running_program};

/// The program around a store: command line, logging, signals, leader election, and the controller.
///
/// Its commands: `run`, the default, serves claims; `crds` prints the CustomResourceDefinitions, `rbac` the permissions
/// that it needs, `parameters` the parameters of StorageClasses, `reasons` what claims can say, and `metrics` what can be
/// scraped; `doctor`, `status`, `orphans` and `adopt` are an admin's tools; `completions` and `man` are for shells;
/// `record` rebuilds a lost ObjectBucket. `--help` lists all flags. Most of them can be given as environment variables too.
#[derive(Debug)]
#[must_use = "an operator does nothing until it runs"]
pub struct Operator<P> {
    identity: Identity,
    store: P,
}

impl<P: Provisioner> Operator<P> {
    /// An operator for the StorageClasses whose `provisioner` is `name`, such as `example.com/bucket`. Admins can choose
    /// another name with `--provisioner-name`, to run several operators in one cluster.
    ///
    /// In its help it has the name of the running program, unless [`program`](Self::program) sets another.
    pub fn new(name: impl Into<String>, store: P) -> Self {
        let identity = Identity {
            provisioner_name: name.into(),
            program: running_program(),
            version: String::new(),
            about: "Provisions buckets for ObjectBucketClaims.".to_owned(),
        };
        Self { identity, store }
    }

    /// Sets what `--help` says about the operator, in a sentence.
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.identity.about = about.into();
        self
    }

    /// Sets the name that help and version show.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.identity.program = program.into();
        self
    }

    /// Sets the version that `--version` shows, mostly `env!("CARGO_PKG_VERSION")`.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.identity.version = version.into();
        self
    }

    /// Does what the command line says, and returns what `main` has to return. Serving claims ends with SIGTERM or
    /// SIGINT, or when the lease is lost.
    ///
    /// If the arguments are wrong, exits with a message and a usage hint. Errors are logged to standard error. A store that
    /// is not what [`Provisioner`] demands is refused with a message before anything else: names of parameters and
    /// reasons, and the longest name of a user.
    pub fn run(self) -> ExitCode {
        if let Err(problem) = check::store::<P>() {
            eprintln!("{} cannot work: {problem}", self.identity.program);
            return ExitCode::FAILURE;
        }
        let args = Args::read(&self.identity);
        if args.command.is_none() && front::is_typed() {
            let program = front::called(&self.identity.program);
            eprintln!(
                "error: without a command this program serves claims from here, with your rights; `{program} run` does \
                 that, and `{program} help` shows all commands"
            );
            return ExitCode::from(2);
        }
        if !matches!(args.command, Some(Command::Run) | None) {
            args.log.log(&self.identity);
        }
        let done = match &args.command {
            Some(Command::Crds { output_dir }) => crds(output_dir.as_deref()),
            Some(Command::Rbac { operator_namespace, service_account, owner_secret, owner_namespace }) => {
                let (namespace, account) = (operator_namespace.clone(), service_account.clone());
                let subject = |serves| subject(&self.identity.program, &args, namespace, account, serves);
                let serves = args.serves(owner_secret, owner_namespace);
                serves.map_err(Into::into).and_then(|serves| print(&documents(&rbac::objects(&subject(serves)))?))
            }
            Some(Command::Parameters) => print(&parameters_table::<P>()),
            Some(Command::Reasons) => print(&reasons::page::<P>()),
            Some(Command::Metrics) => print(&Observer::default().runtime().table()),
            Some(Command::Doctor(asked)) => match block_on(doctor(self.store, &self.identity, &args, asked.clone())) {
                Ok(true) => Ok(()),
                Ok(false) => return ExitCode::FAILURE,
                Err(error) => Err(error),
            },
            Some(tool @ (Command::Status(_) | Command::Orphans(_) | Command::Adopt(_))) => {
                let program = front::called(&self.identity.program);
                return block_on(ask(self.store, &args, tool, &program)).unwrap_or_else(|error| {
                    eprintln!("error: {}", clean(&chain(error.as_ref())));
                    ExitCode::FAILURE
                });
            }
            Some(Command::Completions { shell }) => {
                let started_as = std::env::args_os().next();
                print(&front::completions(*shell, Args::described(&self.identity, started_as.as_ref())))
            }
            Some(Command::Man { output_dir }) => {
                front::manual(Args::described(&self.identity, None), output_dir.as_deref())
            }
            Some(Command::Record { claim, bucket }) => block_on(record(self.store, &args, claim, bucket.clone())),
            Some(Command::Run) | None => {
                let observer = Observer::new(&self.identity.program, &self.identity.version);
                let telemetry = args.log.log_and_trace(&self.identity);
                let done = block_on(serve(self.store, &args, observer));
                telemetry.stop();
                done
            }
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                tracing::error!("{}", chain(error.as_ref()));
                ExitCode::FAILURE
            }
        }
    }
}

/// Who gets the permissions.
fn subject(
    program: &str,
    args: &Args,
    operator_namespace: Option<String>,
    service_account: Option<String>,
    serves: Serves,
) -> Subject {
    // The name of a program can have characters that names of objects do not have.
    let program = program.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let namespace = operator_namespace.unwrap_or_else(|| program.clone());
    Subject {
        account: service_account.unwrap_or(program),
        lease: args.lease_name(),
        lease_namespace: args.lease_namespace().unwrap_or_else(|| namespace.clone()),
        namespace,
        serves,
    }
}

async fn serve<P: Provisioner>(store: P, args: &Args, observer: Observer) -> Result<(), Box<dyn Error>> {
    let config = args.cluster.config().await?;
    args.admin.start(observer.runtime()).await?;
    let mut options = args.options(std::env::var("LIB_BUCKET_PROVISIONER_THREADS").ok().as_deref());
    options.observer = observer.clone();
    let lease = args.lease(&config.default_namespace)?;
    let work = |client, term: Option<Term>, stop| {
        if let Some(term) = term {
            options.permit = Permit::new(move || !term.is_over());
        }
        controller::run(client, store, options, stop)
    };
    program::serve(config, lease, observer.runtime(), work).await
}

async fn doctor<P: Provisioner>(
    store: P,
    identity: &Identity,
    args: &Args,
    asked: DoctorArgs,
) -> Result<bool, Box<dyn Error>> {
    let installation = Installation {
        config: args.cluster.config().await?,
        options: args.options(None),
        lease: args.lease_to_find()?,
        rules: rbac::rules(&args.lease_name())?,
        program: identity.program.clone(),
        version: identity.version.clone(),
    };
    doctor::run(store, installation, asked).await
}

/// Does what an admin asks with a tool.
async fn ask<P: Provisioner>(store: P, args: &Args, tool: &Command, program: &str) -> Result<ExitCode, Box<dyn Error>> {
    let client = runtime::cluster::client(args.cluster.config().await?, runtime::cluster::ANSWER_LIMIT)?;
    let session = Session::new(client, store, &args.options(None), args.leases_to_find(), program);
    match tool {
        Command::Status(asked) => status::run(&session, asked).await.map(|()| ExitCode::SUCCESS),
        Command::Orphans(asked) => orphans::run(&session, asked).await,
        Command::Adopt(asked) => adopt::run(&session, asked).await,
        _ => Ok(ExitCode::SUCCESS),
    }
}

async fn record<P: Provisioner>(
    store: P,
    args: &Args,
    (namespace, name): &(String, String),
    bucket: Option<String>,
) -> Result<(), Box<dyn Error>> {
    let client = runtime::cluster::client(args.cluster.config().await?, runtime::cluster::ANSWER_LIMIT)?;
    let record = controller::recall(client, store, &args.options(None), (namespace, name), bucket).await?;
    print(&serde_saphyr::to_string(&record)?)
}

fn crds(output_dir: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let Some(dir) = output_dir else {
        return print(&documents(&api::crds().map(|(_, crd)| crd))?);
    };
    for (file, crd) in api::crds() {
        std::fs::write(dir.join(file), serde_saphyr::to_string(&crd)?)
            .map_err(|e| format!("cannot write {}: {e}", dir.join(file).display()))?;
    }
    Ok(())
}

/// Objects as documents of YAML.
fn documents(objects: &[impl Serialize]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for object in objects {
        write!(text, "---\n{}", serde_saphyr::to_string(object)?)?;
    }
    Ok(text)
}

/// The class parameters of a store, and those that all stores share, as a table in Markdown.
pub(crate) fn parameters_table<P: Provisioner>() -> String {
    let mut text = "| parameter | default | meaning |\n|---|---|---|\n".to_owned();
    for Parameter { name, default, meaning, is_required, .. } in
        P::Parameters::table().iter().chain(&CommonParameters::table(P::CAN_ROTATE))
    {
        let default = if *is_required { "(required)" } else { default };
        // Writing to a String does not fail.
        let _ = writeln!(text, "| `{name}` | {default} | {meaning} |");
    }
    text
}
