//! An operator as a process of its own, which can be killed.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::base::patience;
use super::report;
use super::world::World;

/// What an operator logs, to be read also after it has ended.
pub type Log = Arc<watch::Sender<String>>;

/// A program made with [`Operator`](bucket_provisioner::Operator), and how it is started.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Program {
    /// A program in this file. It is started in an empty environment.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), environment: Vec::new() }
    }

    /// With these arguments on top.
    pub fn args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// With this variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it for the claims of a world, through the world's proxy.
    pub fn start(&self, world: &World) -> Running {
        self.clone().args(["--namespace", &world.namespace]).start_with(world, &world.kubeconfig())
    }

    /// Starts it with this kubeconfig, and with no other arguments than its own.
    pub fn start_with(&self, world: &World, kubeconfig: &serde_json::Value) -> Running {
        let (dir, mut command) = self.command(world, kubeconfig);
        let mut child = command
            // An operator that starts after a killed one would wait for its lease. Tests of the lease set the flag.
            .env("PROVISIONER_LEADER_ELECT", "false")
            // Many run side by side, and one alone could have the default address.
            .env("PROVISIONER_ADMIN_ADDRESS", "off")
            // On a terminal it would ask for the command `run`.
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", self.path.display()));
        let log = Arc::new(watch::Sender::new(String::new()));
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (from_out, from_err) = (read(out, Arc::clone(&log)), read(err, Arc::clone(&log)));
        let reader = tokio::spawn(async {
            tokio::join!(from_out, from_err);
        });
        Running { child, log, reader: Some(reader), _kubeconfig: dir }
    }

    /// Runs it to its end, such as for a subcommand; returns what it printed, or what it complained about.
    ///
    /// # Errors
    /// What it wrote to its standard error, if it failed.
    pub async fn run(&self, world: &World) -> Result<String, String> {
        let output = self.output(world).await;
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Runs it to its end as an admin does, and returns all that it wrote, and how it ended.
    pub async fn output(&self, world: &World) -> Output {
        let (_dir, mut command) = self.command(world, &world.admin_kubeconfig());
        command.output().await.unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    fn command(&self, world: &World, kubeconfig: &serde_json::Value) -> (TempDir, Command) {
        let dir = TempDir::new();
        let file = dir.path().join("kubeconfig");
        fs::write(&file, kubeconfig.to_string()).unwrap();
        let mut command = Command::new(&self.path);
        command.arg("--kubeconfig").arg(file).args(["--provisioner-name", &world.provisioner]);
        command.args(&self.args).env_clear().envs(self.environment.iter().cloned());
        (dir, command)
    }
}

async fn read(from: impl AsyncRead + Unpin, into: Log) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        into.send_modify(|log| {
            log.push_str(&line);
            log.push('\n');
        });
    }
}

/// A running operator, and what it logged; dropping it kills it.
pub struct Running {
    child: Child,
    log: Log,
    reader: Option<JoinHandle<()>>,
    _kubeconfig: TempDir,
}

impl Running {
    /// Everything it logged so far.
    pub fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// Waits until it has logged this.
    pub async fn wait_log(&self, text: &str) {
        let mut log = self.log.subscribe();
        let logged = log.wait_for(|log| log.contains(text));
        let logged = tokio::time::timeout(patience(), logged).await.is_ok();
        assert!(logged, "{text:?} is not in the log:\n{}", self.log());
    }

    /// What it logs, to be read also after it has ended.
    pub fn log_so_far(&self) -> Log {
        Arc::clone(&self.log)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        send_signal("TERM", self.pid());
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Sends SIGKILL and waits for the end.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits for its end, and requires that it ended well and in time.
    pub async fn ended(&mut self, within: Duration) {
        let status = self.exit_status(within).await;
        assert!(status.success(), "it ended with {status}; its log:\n{}", self.log());
    }

    /// Waits for its end, however it ended.
    pub async fn exit_status(&mut self, within: Duration) -> ExitStatus {
        let status = tokio::time::timeout(within, self.child.wait()).await;
        let status = status.unwrap_or_else(|_| panic!("it has not ended; its log:\n{}", self.log())).unwrap();
        if let Some(reader) = self.reader.take() {
            reader.await.unwrap();
        }
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = match self.child.try_wait() {
                Ok(Some(status)) => format!("has ended ({status})"),
                _ => "runs".to_owned(),
            };
            report::note(format!("the operator {state}; its log:\n{}", self.log()));
        }
    }
}

/// Sends a signal, such as `TERM`, to a process.
pub fn send_signal(name: &str, pid: u32) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// An address of this machine for a server in the program, which stays free while the program is killed and started again.
///
/// A port of 127.0.0.1 would not: any connection may take it meanwhile as its own end.
pub fn free_address() -> SocketAddr {
    let ip = crate::base::unique_ip();
    let free = TcpListener::bind((ip, 0)).unwrap_or_else(|error| panic!("no port of {ip} is free: {error}"));
    free.local_addr().unwrap()
}

/// A folder that is deleted when the value is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes a folder of its own.
    #[allow(clippy::new_without_default, reason = "it does something")]
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("conformance-{:016x}", rand::random::<u64>()));
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
