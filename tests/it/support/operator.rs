//! The operator, as a task in the test's own process or as the real binary.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bucket_provisioner::aws::AwsProvisioner;
use bucket_provisioner::controller::{self, Options};
use bucket_provisioner::runtime::{self, cluster::ANSWER_LIMIT};
use kube::Config;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::{PATIENCE, World};

/// What an operator logs, to be read also when it is gone.
pub(crate) type Log = Arc<watch::Sender<String>>;

/// How the operator runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    InProcess,
    Binary,
}

/// A running operator that goes through the world's proxies; dropping it kills it.
#[allow(clippy::large_enum_variant, reason = "there are few of them")]
pub(crate) enum Operator {
    InProcess { stop: oneshot::Sender<()>, task: JoinHandle<()> },
    Binary(Binary),
}

impl Operator {
    /// Starts an operator for the claims of the world.
    pub(crate) async fn start(world: &World, kind: Kind) -> Self {
        match kind {
            Kind::InProcess => Self::with(world, Self::options(world)),
            Kind::Binary => Self::Binary(Binary::start(world, &[], &[])),
        }
    }

    /// What an operator for the claims of the world is told.
    pub(crate) fn options(world: &World) -> Options {
        Options { namespace: Some(world.namespace.clone()), ..Options::new(&world.provisioner) }
    }

    /// Starts an operator in this process.
    pub(crate) fn with(world: &World, options: Options) -> Self {
        let client =
            runtime::cluster::client(Config::new(world.kubernetes.url.parse().unwrap()), ANSWER_LIMIT).unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(controller::run(client, AwsProvisioner::new(), options, shutdown));
        Self::InProcess { stop, task }
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(self) {
        match self {
            Self::InProcess { stop, task } => {
                let _ = stop.send(());
                tokio::time::timeout(PATIENCE, task).await.expect("the operator stops").unwrap();
            }
            Self::Binary(mut binary) => {
                binary.terminate();
                binary.ended(PATIENCE).await;
            }
        }
    }
}

/// The real binary and what it logged.
pub(crate) struct Binary {
    child: Child,
    log: Log,
    reader: Option<JoinHandle<()>>,
    _kubeconfig: tempdir::Dir,
}

/// The class parameter of a test that has IAM at an address of AWS; see [`Binary::start_at_aws`].
pub(crate) const IAM_OF_AWS: (&str, &str) = ("iamEndpoint", "http://iam.amazonaws.com");

/// The operator for AWS.
const OPERATOR: &str = env!("CARGO_BIN_EXE_aws-s3-provisioner");

impl Binary {
    /// Starts the binary in a network whose proxy is the world's AWS: what goes to AWS's own address gets there, and for
    /// classes with [`IAM_OF_AWS`] the emulator is AWS rather than another store.
    pub(crate) fn start_at_aws(world: &World) -> Self {
        Self::start(world, &[], &[("HTTP_PROXY", &world.aws.url), ("NO_PROXY", "127.0.0.1")])
    }

    /// Starts the binary on the world's proxies, with these arguments and variables on top.
    pub(crate) fn start(world: &World, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let kubeconfig = Self::proxied(world);
        let args = [&["--namespace", &world.namespace], args].concat();
        Self::start_with(world, &kubeconfig, &args, environment)
    }

    /// Runs a subcommand of the binary to its end, with the world's cluster and provisioner; returns what it printed, or
    /// what it complained about.
    pub(crate) async fn run(world: &World, args: &[&str]) -> Result<String, String> {
        let (dir, file) = Self::kubeconfig(&Self::proxied(world));
        let mut command = Self::command(Path::new(OPERATOR), &file, &world.provisioner, args);
        let output = command.output().await.expect("the binary runs");
        drop(dir);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// A kubeconfig for the world's proxy.
    fn proxied(world: &World) -> serde_json::Value {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": world.kubernetes.url } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        })
    }

    fn kubeconfig(content: &serde_json::Value) -> (tempdir::Dir, std::path::PathBuf) {
        let dir = tempdir::Dir::new();
        let file = dir.path().join("kubeconfig");
        std::fs::write(&file, content.to_string()).unwrap();
        (dir, file)
    }

    fn command(program: &Path, kubeconfig: &Path, provisioner: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(["-kubeconfig", kubeconfig.to_str().unwrap(), "--provisioner-name", provisioner]);
        command.args(args).env_clear();
        command
    }

    /// Starts the binary with this kubeconfig.
    pub(crate) fn start_with(
        world: &World,
        kubeconfig: &serde_json::Value,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        Self::start_program(Path::new(OPERATOR), world, kubeconfig, args, environment)
    }

    /// Starts an example of the package, which is an operator for another store.
    pub(crate) fn start_example(name: &str, world: &World, environment: &[(&str, &str)]) -> Self {
        let program = Path::new(OPERATOR).with_file_name("examples").join(name);
        assert!(program.exists(), "to build it: cargo build --locked --example {name}");
        Self::start_program(&program, world, &Self::proxied(world), &["--namespace", &world.namespace], environment)
    }

    fn start_program(
        program: &Path,
        world: &World,
        kubeconfig: &serde_json::Value,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let (dir, file) = Self::kubeconfig(kubeconfig);
        let mut child = Self::command(program, &file, &world.provisioner, args)
            // Who starts after a killed one would wait for its lease. Tests of the lease ask for it by the flag.
            .env("PROVISIONER_LEADER_ELECT", "false")
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the binary starts");
        let log = Arc::new(watch::Sender::new(String::new()));
        let (lines, into) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&log));
        let reader = tokio::spawn(async move {
            let mut lines = lines;
            while let Ok(Some(line)) = lines.next_line().await {
                into.send_modify(|log| {
                    log.push_str(&line);
                    log.push('\n');
                });
            }
        });
        Self { child, log, reader: Some(reader), _kubeconfig: dir }
    }

    /// Everything it logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Waits until it has logged this.
    pub(crate) async fn wait_log(&self, text: &str) {
        let mut log = self.log.subscribe();
        let said = log.wait_for(|log| log.contains(text));
        let said = tokio::time::timeout(PATIENCE, said).await.is_ok();
        assert!(said, "{text:?} is not in the log:\n{}", self.log());
    }

    /// What it logs, to be read also when it is gone.
    pub(crate) fn log_so_far(&self) -> Log {
        Arc::clone(&self.log)
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        send_signal("TERM", self.pid());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits for its end, and requires that it ended well and in time.
    pub(crate) async fn ended(&mut self, within: Duration) {
        let status = self.exit_status(within).await;
        assert!(status.success(), "it ended with {status}; its log:\n{}", self.log());
    }

    /// Waits for its end, however it ended.
    pub(crate) async fn exit_status(&mut self, within: Duration) -> ExitStatus {
        let status = tokio::time::timeout(within, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("it has not ended; its log:\n{}", self.log())).unwrap();
        if let Some(reader) = self.reader.take() {
            reader.await.unwrap();
        }
        status
    }
}

/// Sends a signal, such as `TERM`, to a process.
pub(crate) fn send_signal(name: &str, pid: u32) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

impl Drop for Binary {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the operator's log:\n{}", self.log());
        }
    }
}

/// A folder that goes with its owner.
pub(crate) mod tempdir {
    use super::Path;

    pub(crate) struct Dir(std::path::PathBuf);

    impl Dir {
        pub(crate) fn new() -> Self {
            let path = std::env::temp_dir().join(format!("aws-s3-provisioner-{:016x}", rand::random::<u64>()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
