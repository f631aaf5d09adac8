//! The commands of the real binary that an admin runs, with what the admin types.

use std::path::PathBuf;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::World;

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// What was printed as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A command that runs.
pub(crate) struct Tool {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    err: BufReader<ChildStderr>,
    asked: String,
    _folder: Folder,
}

/// A folder of its own, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("aws-s3-provisioner-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// An admin's kubeconfig for the cluster of a world, through its proxy.
    pub(crate) fn kubeconfig(&self, world: &World) -> PathBuf {
        let file = self.0.join("kubeconfig");
        std::fs::write(&file, world.admin_kubeconfig().to_string()).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Tool {
    /// Starts a command for the claims of a world.
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let folder = Folder::new(&world.unique(&format!("{:x}", rand_id())));
        let mut command = command(world, &folder, args);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.kill_on_drop(true).spawn().unwrap();
        let err = BufReader::new(child.stderr.take().unwrap());
        let out = child.stdout.take().map(BufReader::new);
        Self { child, out, err, asked: String::new(), _folder: folder }
    }

    /// Runs a command to its end, with these answers.
    pub(crate) async fn run(world: &World, args: &[&str], answers: &str) -> Ended {
        let mut tool = Self::start(world, args);
        tool.types(answers).await;
        tool.end().await
    }

    /// Types an answer.
    pub(crate) async fn types(&mut self, answers: &str) {
        // A command that does not ask may have ended.
        let _ = self.child.stdin.as_mut().unwrap().write_all(answers.as_bytes()).await;
    }

    /// Waits for a question that ends so.
    pub(crate) async fn asks(&mut self, question: &str) {
        while !self.asked.trim_end().ends_with(question) {
            let read = tokio::time::timeout(super::PATIENCE, self.err.fill_buf()).await;
            let read = read.expect("it asks").unwrap();
            assert!(!read.is_empty(), "it does not ask {question:?}: {}", self.asked);
            self.asked.push_str(&String::from_utf8_lossy(read));
            let length = read.len();
            self.err.consume(length);
        }
    }

    /// Waits until it has printed a line with this text.
    pub(crate) async fn prints(&mut self, text: &str) {
        let mut line = String::new();
        let out = self.out.as_mut().unwrap();
        while !line.contains(text) {
            line.clear();
            let read = tokio::time::timeout(super::PATIENCE, out.read_line(&mut line)).await;
            assert!(read.expect("it prints").unwrap() > 0, "it does not print {text:?}");
        }
    }

    /// Waits for its end.
    pub(crate) async fn end(mut self) -> Ended {
        drop(self.child.stdin.take());
        let (mut out, mut err) = (String::new(), self.asked);
        let mut stdout = self.out.take().unwrap();
        let (read, also_read) = tokio::join!(stdout.read_to_string(&mut out), self.err.read_to_string(&mut err));
        read.and(also_read).unwrap();
        let status = self.child.wait().await.unwrap();
        Ended { code: status.code().unwrap_or(-1), out, err }
    }
}

/// A command for the claims of a world.
pub(super) fn command(world: &World, folder: &Folder, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aws-s3-provisioner"));
    command.env_clear().args(args).arg("--kubeconfig").arg(folder.kubeconfig(world));
    command.args(["--provisioner-name", &world.provisioner, "--namespace", &world.namespace]);
    command
}

pub(super) fn rand_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
