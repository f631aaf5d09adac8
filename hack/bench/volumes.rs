//! Volumes: the provisioner of directories in `examples/`, beside one on the Go library and beside the floor, which is
//! a client that only creates and deletes PersistentVolumes. All three wait for the controllers of Kubernetes, which
//! bind and release.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use http::Method;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::counters::{Process, Requests};
use crate::kubernetes::{Claim, Claimed, Kubernetes};
use crate::load::{self, Life, Wanted, all};
use crate::measure::by_operator;
use crate::operator::Operator;
use crate::parts::Bench;
use crate::table::{Row, header};
use crate::{Failure, latency, say};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const PROVISIONER: &str = "example.com/hostpath";
const CLASS: &str = "directories";
/// How many volumes an operator works on at the same time: the default of `--worker-threads` of the one in `examples/`.
const AT_ONCE: &str = "32";
/// Claims one after another.
const ONE_BY_ONE: usize = 50;

/// The operators that are compared.
#[derive(Clone, Copy)]
enum Library {
    Ours,
    Go,
}

impl Library {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "operator",
            Self::Go => "Go library",
        }
    }

    /// Starts its provisioner, and waits until it serves claims.
    async fn start(self) -> Result<Operator, Failure> {
        let beside = std::env::current_exe()?;
        let (program, serves) = match self {
            Self::Ours => ("hostpath-provisioner", "serving claims"),
            Self::Go => ("hostpath-provisioner-go", "Started provisioner controller"),
        };
        let mut command = Command::new(beside.with_file_name(program));
        command.env_clear().env("KUBECONFIG", std::env::var("KUBECONFIG")?).env("NODE_NAME", "bench");
        command.arg("--pv-dir").arg(directory()?).args(["--worker-threads", AT_ONCE]);
        if matches!(self, Self::Go) {
            // Its client would send 5 requests a second.
            command.args(["--kube-api-qps", "-1"]);
        }
        let operator = Operator::of(command, serves)?;
        operator.ready().await?;
        Ok(operator)
    }
}

/// Where the volumes are.
fn directory() -> Result<PathBuf, Failure> {
    let directory = std::env::temp_dir().join("volumes");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

impl Bench {
    /// `n` claims from their creation to all Bound, and from their deletion to all gone with their PersistentVolumes and
    /// directories; a restart between; and some claims one after another.
    pub(crate) async fn volumes(&mut self, n: usize) -> Result<(), Failure> {
        let kubernetes = Kubernetes::new(Claimed::Volumes).await?;
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
            "provisioner": PROVISIONER,
            // Who may give a directory to another group is root alone.
            "parameters": { "gid": fs::metadata(directory()?)?.gid().to_string() },
        });
        kubernetes.send(Method::POST, CLASSES, Some(&class)).await?;

        say(&format!("{n} volumes, floor"));
        let (floor, floors) = by_floor(&kubernetes, n).await?;
        let mut libraries = Vec::new();
        for library in [Library::Ours, Library::Go] {
            say(&format!("{n} volumes, {}", library.name()));
            libraries.push(self.by_library(&kubernetes, library, n).await?);
        }

        println!("\n{}", header("a volume"));
        for (number, floor) in floor.iter().enumerate() {
            floor.print();
            for (rows, _) in &libraries {
                if let Some(row) = rows.get(number) {
                    Row { ratio: Some(row.seconds / floor.seconds), ..row.clone() }.print();
                }
            }
        }
        println!("\n{}", latency::header());
        for (library, (_, lives)) in [Library::Ours, Library::Go].iter().zip(&libraries) {
            latency::print(&format!("volume, {}", library.name()), lives, &floors, |life| life.bound);
            latency::print(&format!("volume gone, {}", library.name()), lives, &floors, |life| life.gone);
        }
        Ok(())
    }

    /// The rows of creation and deletion, and the lives of some claims; a restart is in the second table.
    async fn by_library(
        &mut self,
        kubernetes: &Kubernetes,
        library: Library,
        n: usize,
    ) -> Result<(Vec<Row>, Vec<Life>), Failure> {
        let named = |row: Row, what: &str| Row { name: format!("{what}, {}", library.name()), ..row };
        let operator = library.start().await?;
        let lives = operator.during(one_by_one(kubernetes)).await?;
        let created = by_operator(kubernetes, &operator, "", n, n, create(kubernetes, n)).await?;
        operator.stop().await?;

        let (before, began) = (Requests::until_now(kubernetes).await?, Instant::now());
        let operator = library.start().await?;
        let requests = Requests::until_now(kubernetes).await?.since(before);
        self.in_all.push(Row {
            processor_seconds: operator.processor_seconds()?,
            writes: requests.writes as f64,
            events: Some(requests.events as f64),
            requests: Some(requests.all as f64),
            mib: Some(operator.memory()?),
            ..Row::new(&format!("restarted, {}", library.name()), n, began.elapsed().as_secs_f64())
        });
        let deleted = by_operator(kubernetes, &operator, "", n, n, delete(kubernetes)).await?;
        operator.stop().await?;
        check_nothing_left(kubernetes).await?;
        Ok((vec![named(created, "volumes"), named(deleted, "volumes gone")], lives))
    }
}

async fn create(kubernetes: &Kubernetes, n: usize) -> Result<Duration, Failure> {
    let names = (1..=n).map(|number| format!("v{number}")).collect();
    Ok(load::create_named(kubernetes, CLASS, names, |_| Ok(())).await?.took)
}

/// Deletes all claims; returns how long it took until all their PersistentVolumes were gone.
async fn delete(kubernetes: &Kubernetes) -> Result<Duration, Failure> {
    let claims = kubernetes.claims().await?;
    let names = claims.iter().map(volume_name).collect();
    let working = kubernetes.clone();
    let work = async move {
        let mut tasks = JoinSet::new();
        for claim in claims {
            let kubernetes = working.clone();
            tasks.spawn(async move { kubernetes.delete_claim(&claim.name).await });
        }
        all(tasks).await
    };
    Ok(load::measure(volumes(kubernetes), Wanted::Gone, Some(names), work, |_| Ok(())).await?.took)
}

async fn one_by_one(kubernetes: &Kubernetes) -> Result<Vec<Life>, Failure> {
    let mut lives = Vec::new();
    for _ in 0..ONE_BY_ONE {
        let bound = create(kubernetes, 1).await?;
        lives.push(Life { bound, gone: delete(kubernetes).await? });
    }
    // Connections stand from the second one on.
    lives.remove(0);
    Ok(lives)
}

fn volumes(kubernetes: &Kubernetes) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("", "v1", "PersistentVolume");
    Api::all_with(kubernetes.client.clone(), &ApiResource::from_gvk(&kind))
}

fn volume_name(claim: &Claim) -> String {
    format!("pvc-{}", claim.uid)
}

/// The rows of the floor, and the lives of some of its claims.
async fn by_floor(kubernetes: &Kubernetes, n: usize) -> Result<(Vec<Row>, Vec<Life>), Failure> {
    let floor = serve(Kubernetes::new(Claimed::Volumes).await?);
    let work = async {
        let lives = one_by_one(kubernetes).await?;
        let created = floor_row(kubernetes, "volumes, floor", n, create(kubernetes, n)).await?;
        let deleted = floor_row(kubernetes, "volumes gone, floor", n, delete(kubernetes)).await?;
        check_nothing_left(kubernetes).await?;
        Ok((vec![created, deleted], lives))
    };
    tokio::select! {
        done = work => done,
        ended = floor => ended.and(Err("the floor has ended".into())),
    }
}

/// Its processor time is that of this program, which makes the claims, too.
async fn floor_row(
    kubernetes: &Kubernetes,
    name: &str,
    n: usize,
    work: impl Future<Output = Result<Duration, Failure>>,
) -> Result<Row, Failure> {
    let before = Requests::until_now(kubernetes).await?;
    let processor = Process::this().processor_seconds()?;
    let seconds = work.await?.as_secs_f64();
    let requests = Requests::until_now(kubernetes).await?.since(before);
    Ok(Row {
        a_second: Some(n as f64 / seconds),
        processor_seconds: Process::this().processor_seconds()? - processor,
        writes: requests.writes as f64 / n as f64,
        events: Some(requests.events as f64 / n as f64),
        requests: Some(requests.all as f64 / n as f64),
        p99_ms: Some(requests.p99()),
        ..Row::new(name, n, seconds)
    })
}

/// Gives a volume to each claim, and deletes those that are released, without a finalizer and without an event. Ends only
/// when something fails.
async fn serve(kubernetes: Kubernetes) -> Result<(), Failure> {
    let claims = watcher(kubernetes.watched(), watcher::Config::default()).default_backoff();
    let released = watcher(volumes(&kubernetes), watcher::Config::default()).default_backoff();
    let mut provided = HashSet::new();
    let provide = claims.applied_objects().map_err(Failure::from).try_for_each_concurrent(None, |claim| {
        let kubernetes = kubernetes.clone();
        let is_new = provided.insert(claim.metadata.uid.clone());
        async move { if is_new { provide(&kubernetes, &claim).await } else { Ok(()) } }
    });
    let mut removed = HashSet::new();
    let remove = released.applied_objects().map_err(Failure::from).try_for_each_concurrent(None, |volume| {
        let kubernetes = kubernetes.clone();
        let is_due = volume.data["status"]["phase"] == "Released" && removed.insert(volume.metadata.uid);
        let name = volume.metadata.name.filter(|_| is_due);
        async move {
            let Some(name) = name else { return Ok(()) };
            fs::remove_dir(directory()?.join(&name)).map_err(|error| format!("{name} cannot be removed: {error}"))?;
            kubernetes.send(Method::DELETE, &format!("{VOLUMES}/{name}"), None).await.map(drop)
        }
    });
    tokio::try_join!(provide, remove).map(drop)
}

async fn provide(kubernetes: &Kubernetes, claim: &DynamicObject) -> Result<(), Failure> {
    let (name, uid) = (claim.metadata.name.as_deref(), claim.metadata.uid.as_deref().unwrap_or_default());
    let volume = format!("pvc-{uid}");
    let path = directory()?.join(&volume);
    fs::create_dir(&path).map_err(|error| format!("{} cannot be created: {error}", path.display()))?;
    // Without the annotation Kubernetes would delete directories in /tmp itself.
    let annotations = json!({ "pv.kubernetes.io/provisioned-by": PROVISIONER });
    let body: Value = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume, "annotations": annotations },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Mi" }, "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": { "path": path },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "bench", "name": name, "uid": uid,
            },
        },
    });
    kubernetes.send(Method::POST, VOLUMES, Some(&body)).await.map(drop)
}

async fn check_nothing_left(kubernetes: &Kubernetes) -> Result<(), Failure> {
    let volumes = kubernetes.get(VOLUMES).await?;
    let directories = fs::read_dir(directory()?)?.count();
    match volumes["items"].as_array().map(Vec::len) {
        Some(0) if directories == 0 => Ok(()),
        volumes => Err(format!("left: {volumes:?} PersistentVolumes, {directories} directories").into()),
    }
}
