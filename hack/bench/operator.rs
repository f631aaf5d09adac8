//! An operator as a process, with its lease and its log as it ships. Its AWS calls are counted in its metrics.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::Failure;
use crate::counters::Process;

/// The counter of calls to the store.
const AWS_CALLS: &str = "obc_provisioner_store_calls_total{";
/// As the operator logs without flags, and each AWS call.
const LOG: &str = "info,kube_runtime=warn,kube_client::client::builder=off,aws_config=error,\
                   aws_s3_provisioner::client::call=debug";
/// How long a start may take, and how long it may take until nothing is done any more.
const PATIENCE: Duration = Duration::from_secs(60);
const AWS_CALL: &str = "AWS call";

/// A process that is killed when this is dropped.
pub(crate) struct Operator {
    child: Child,
    process: Process,
    log: PathBuf,
    /// What it logs once it serves claims.
    serves: &'static str,
    /// Where it serves its metrics, if it does.
    admin: Option<SocketAddr>,
}

impl Operator {
    /// Starts it and waits until it serves claims and has nothing to do.
    pub(crate) async fn start(aws_url: &str) -> Result<Self, Failure> {
        let operator = Self::with_log(aws_url, None)?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Starts it with each AWS call in its log.
    pub(crate) fn spawn(aws_url: &str) -> Result<Self, Failure> {
        Self::with_log(aws_url, Some(LOG))
    }

    /// Starts the program in the folder of this one.
    fn with_log(aws_url: &str, log: Option<&str>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?.with_file_name("aws-s3-provisioner"));
        // Free from here on, as nobody else asks for ports on a machine that measures.
        let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        command
            .env_clear()
            .env("KUBECONFIG", std::env::var("KUBECONFIG")?)
            .env("AWS_ENDPOINT_URL", aws_url)
            .envs(log.map(|log| ("RUST_LOG", log)))
            .env("PROVISIONER_ADMIN_ADDRESS", admin.to_string())
            // A check of a bound claim is not what is measured.
            .env("PROVISIONER_RESYNC", "9999h");
        let mut operator = Self::of(command, "serving claims")?;
        operator.admin = Some(admin);
        Ok(operator)
    }

    /// Starts this program, which logs `serves` once it serves claims. Its log is in the folder for temporary files,
    /// which is where `hack/bench.sh` looks for it if something fails.
    pub(crate) fn of(mut command: Command, serves: &'static str) -> Result<Self, Failure> {
        let log = std::env::temp_dir().join("operator.log");
        let file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{} cannot be started: {error}", command.get_program().display()))?;
        let process = Process(child.id().to_string());
        Ok(Self { child, process, log, serves, admin: None })
    }

    /// Waits until it serves claims, and then until it has nothing to do.
    pub(crate) async fn ready(&self) -> Result<(), Failure> {
        let began = Instant::now();
        while !self.log()?.contains(self.serves) {
            if began.elapsed() > PATIENCE || !self.process.runs() {
                return Err("the operator does not start".into());
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.settle().await
    }

    /// Waits until it has used no processor for a second, but not for ever.
    pub(crate) async fn settle(&self) -> Result<(), Failure> {
        let began = Instant::now();
        let mut before = self.processor_seconds()?;
        while began.elapsed() < PATIENCE {
            sleep(Duration::from_secs(1)).await;
            let now = self.processor_seconds()?;
            if now - before < 0.015 {
                return Ok(());
            }
            before = now;
        }
        Ok(())
    }

    /// Waits for `work`, but not if the operator ends meanwhile.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let ends = async {
            while self.process.runs() {
                sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::select! {
            done = work => done,
            () = ends => Err("the operator has ended".into()),
        }
    }

    /// Stops it as Kubernetes would, so that it gives up its lease.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        Command::new("kill").args(["-TERM", &self.process.0]).status()?;
        while self.child.try_wait()?.is_none() {
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    pub(crate) fn processor_seconds(&self) -> Result<f64, Failure> {
        self.process.processor_seconds()
    }

    /// Reads its metrics as Prometheus does.
    pub(crate) async fn scrape(&self) -> Result<String, Failure> {
        let mut server = TcpStream::connect(self.admin.ok_or("it serves no metrics")?).await?;
        server.write_all(b"GET /metrics HTTP/1.1\r\nhost: bench\r\n\r\n").await?;
        let mut answer = String::new();
        server.read_to_string(&mut answer).await?;
        match answer.starts_with("HTTP/1.1 200") {
            true => Ok(answer),
            false => Err("the operator does not serve its metrics".into()),
        }
    }

    /// Resident memory in MiB.
    pub(crate) fn memory(&self) -> Result<f64, Failure> {
        self.process.memory("VmRSS")
    }

    /// The most that resident memory was, in MiB.
    pub(crate) fn peak_memory(&self) -> Result<f64, Failure> {
        self.process.memory("VmHWM")
    }

    /// Its AWS calls so far; none of a program without metrics. What is scraped may be a second old.
    pub(crate) async fn aws_calls(&self) -> Result<usize, Failure> {
        if self.admin.is_none() {
            return Ok(0);
        }
        let metrics = self.scrape().await?;
        let counters = metrics.lines().filter(|line| line.starts_with(AWS_CALLS));
        Ok(counters.filter_map(|line| line.rsplit(' ').next()?.trim().parse::<usize>().ok()).sum())
    }

    /// AWS calls that were not made for a claim of this name.
    pub(crate) fn aws_calls_but_for(&self, claim: &str) -> Result<usize, Failure> {
        Ok(self.log()?.lines().filter(|line| line.contains(AWS_CALL) && !line.contains(claim)).count())
    }

    fn log(&self) -> Result<String, Failure> {
        Ok(std::fs::read_to_string(&self.log)?)
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // One that has ended already cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
