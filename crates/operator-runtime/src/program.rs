//! What the main function of a program needs.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use kube::{Client, Config};
use serde::Serialize;

use super::lease::{self, Term, Terms};
use super::permit::Permit;
use super::{cluster, signals};
use crate::observe::{BEAT, Observer, Phase};

/// What differs between the command lines of two operators.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Default of `--provisioner-name`.
    pub provisioner_name: String,
    /// Name of the program, for help and version.
    pub program: String,
    /// Its version, for `--version`; empty if it has none.
    pub version: String,
    /// What it does, in one sentence.
    pub about: String,
}

impl Identity {
    /// An operator for classes with this provisioner name. Its program has the name of the running one.
    pub fn new(provisioner_name: impl Into<String>, about: &'static str) -> Self {
        let about = about.to_owned();
        Self { provisioner_name: provisioner_name.into(), program: running_program(), version: String::new(), about }
    }
}

/// The setters that all operators have, for a type with a field `identity`.
#[macro_export]
macro_rules! identity_setters {
    () => {
        /// Sets what `--help` shows about the operator, in a sentence.
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
    };
}

/// The exit code of a program. An error is logged.
pub fn exit_code(done: Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    done.unwrap_or_else(|error| {
        tracing::error!("{}", chain(error.as_ref()));
        ExitCode::FAILURE
    })
}

fn running_program() -> String {
    let path = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Does not wait for tasks that still run, because they must not continue.
///
/// In one thread: an operator waits for the network, and a task that wakes another thread costs more than what it has
/// to do. What blocks or takes long belongs into [`tokio::task::spawn_blocking`].
pub fn block_on<T>(work: impl Future<Output = Result<T, Box<dyn Error>>>) -> Result<T, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Does `work` until SIGTERM or SIGINT, which is its last argument. With a lease only while this process holds it: then
/// the client passes its fence, and the permit shows `work` whether it may continue. It is done once more, with the same
/// permit, when the cluster was set back to an earlier state.
///
/// # Errors
/// The cluster's configuration cannot be used, or the lease was lost.
pub async fn serve<W: Future<Output = ()>>(
    config: Config,
    lease: Option<lease::Options>,
    observer: &Observer,
    work: impl FnMut(Client, Permit, Shared<BoxFuture<'static, ()>>) -> W,
) -> Result<(), Box<dyn Error>> {
    // In the same task, so that it stops when the work does.
    let beats = async {
        let mut tick = tokio::time::interval(BEAT);
        loop {
            tick.tick().await;
            observer.health().beat();
        }
    };
    tokio::select! {
        done = serve_still(config, lease, observer, work) => done,
        never = beats => never,
    }
}

async fn serve_still<W: Future<Output = ()>>(
    mut config: Config,
    lease: Option<lease::Options>,
    observer: &Observer,
    mut work: impl FnMut(Client, Permit, Shared<BoxFuture<'static, ()>>) -> W,
) -> Result<(), Box<dyn Error>> {
    let stopped = observer.clone();
    let stop = signals::shutdown().map(move |()| drop(stopped.health().set_phase(Phase::Stopping))).boxed().shared();
    let lease_client = lease::client(&config)?;
    // Retries behind the fence of the lease would pass it.
    config.default_retry = lease.is_none();
    let client = cluster::client(config, cluster::ANSWER_LIMIT)?;
    let Some(lease) = lease else {
        observer.leads(true);
        work(client, Permit::always(), stop).await;
        return Ok(());
    };
    let terms = Terms::default();
    let lead = |term: Term| {
        let client = term.fence(client.clone());
        terms.begin(term);
        work(client, Permit::of(&terms), stop.clone())
    };
    lease::lead_observed(lease_client, lease, observer, stop.clone(), lead).await?;
    Ok(())
}

/// Prints to standard output. Who reads it may have seen enough, as `head` has.
pub fn print(text: &str) -> Result<(), Box<dyn Error>> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// An error with all its causes, in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Objects as documents of YAML.
///
/// # Errors
/// One of them has no YAML.
pub fn documents(objects: &[impl Serialize]) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    for object in objects {
        text += "---\n";
        text += &serde_saphyr::to_string(object)?;
    }
    Ok(text)
}
