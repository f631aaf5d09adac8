//! What a test of volumes works in.

use std::ops::Deref;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use operator_runtime::{self, cluster::ANSWER_LIMIT};
use provisioner_conformance::proxy::Verdict;
use serde_json::{Value, json};
use tokio::sync::{RwLock, oneshot};
use tokio::task::JoinHandle;
use volume_provisioner::{Options, Retry, wire};

use super::shelf::Shelf;
use crate::support::{admin, delete_each, seen};

/// A world with classes and claims for volumes.
pub(super) struct Stage {
    world: provisioner_conformance::World,
}

impl Deref for Stage {
    type Target = provisioner_conformance::World;

    fn deref(&self) -> &provisioner_conformance::World {
        &self.world
    }
}

/// Read by tests with dozens of operators, each of which watches all claims and volumes; written by the test with a
/// thousand of these.
pub(super) static CROWD: RwLock<()> = RwLock::const_new(());

/// The label of what was copied, with the world's id.
const COPY: &str = "copy-of";

/// Claims and volumes that no operator made.
pub(super) struct Copies {
    claims: Api<PersistentVolumeClaim>,
    volumes: Api<PersistentVolume>,
    of: String,
}

impl Copies {
    pub(super) async fn delete(self) {
        let ours = ListParams::default().labels(&format!("{COPY}={}", self.of));
        delete_each(&self.claims, &ours).await;
        delete_each(&self.volumes, &ours).await;
    }
}

/// A running operator; dropping it kills it.
pub(super) struct Operator {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Operator {
    /// Ends it wherever it is.
    pub(super) async fn kill(&mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    pub(super) async fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        tokio::time::timeout(crate::support::PATIENCE, &mut self.task).await.expect("it stops").unwrap();
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        let world =
            provisioner_conformance::World::in_cluster(admin().await, &provisioner_conformance::World::new_id()).await;
        Self { world }
    }

    pub(super) fn options(&self) -> Options {
        let retry = Retry { initial: Duration::from_millis(100), ..Retry::default() };
        let mut options = Options::new(&self.provisioner);
        (options.provision_retry, options.delete_retry) = (retry, retry);
        options
    }

    /// Starts an operator behind the proxy.
    pub(super) fn start(&self, shelf: &Shelf) -> Operator {
        self.start_with(shelf, self.options())
    }

    pub(super) fn start_with(&self, shelf: &Shelf, options: Options) -> Operator {
        let client = operator_runtime::cluster::client(self.config(), ANSWER_LIMIT).unwrap();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(volume_provisioner::run(client, shelf.clone(), options, shutdown));
        Operator { stop: Some(stop), task }
    }

    /// A class with these fields; returns its name.
    pub(super) async fn class(&self, name: &str, fields: Value) -> String {
        let name = self.unique(name);
        let mut class = json!({ "metadata": { "name": name }, "provisioner": self.provisioner });
        class.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.create_class(class).await;
        name
    }

    /// Submits a claim; `spec` is added to what it asks for.
    pub(super) async fn submit(&self, name: &str, class: &str, spec: Value) -> PersistentVolumeClaim {
        let mut all = json!({
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Mi" } },
        });
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let claim = json!({ "metadata": { "name": name }, "spec": all });
        self.pvcs().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap()
    }

    pub(super) fn pvcs(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn pvs(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    /// The PersistentVolumes of this world's provisioner.
    pub(super) async fn own_pvs(&self) -> Vec<PersistentVolume> {
        let mut all = self.pvs().list(&ListParams::default()).await.unwrap().items;
        all.retain(|volume| volume.annotations().get(wire::PROVISIONED_BY) == Some(&self.provisioner));
        all
    }

    /// Bound claims with retained volumes of this world's provisioner.
    pub(super) async fn bound_copies(&self, number: usize, class: &str) -> Copies {
        let names = stream::iter(0..number).map(|number| format!("copy-{number}"));
        names.for_each_concurrent(8, |name| self.bound_copy(name, class)).await;
        let is_bound = |claim: &PersistentVolumeClaim| {
            claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        };
        let bound = async {
            while !self.pvcs().list(&ListParams::default().labels(COPY)).await.unwrap().iter().all(is_bound) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        assert!(tokio::time::timeout(crate::support::PATIENCE, bound).await.is_ok(), "not all copies are bound");
        Copies { claims: self.pvcs(), volumes: self.pvs(), of: self.id.clone() }
    }

    async fn bound_copy(&self, name: String, class: &str) {
        let volume = format!("pvc-{}", self.unique(&name));
        let spec = json!({
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "volumeName": volume,
            "resources": { "requests": { "storage": "1Mi" } },
        });
        let claim = json!({
            "metadata": { "name": name, "labels": { COPY: self.id }, "annotations": {
                "pv.kubernetes.io/bind-completed": "yes", wire::STORAGE_PROVISIONER: self.provisioner,
            } },
            "spec": spec,
        });
        let claim = self.pvcs().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
        let volume = json!({
            "metadata": {
                "name": volume, "labels": { COPY: self.id }, "annotations": { wire::PROVISIONED_BY: self.provisioner },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Mi" }, "storageClassName": class,
                "claimRef": { "namespace": self.namespace, "name": name, "uid": claim.uid() },
                "nfs": { "server": "shelf.example.com", "path": "/" }, "persistentVolumeReclaimPolicy": "Retain",
            },
        });
        self.pvs().create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    }

    /// Waits until a claim is bound and let go, and returns its PersistentVolume.
    pub(super) async fn wait_volume(&self, name: &str) -> PersistentVolume {
        let claim = self
            .wait_pvc(name, "bound and let go", |claim| {
                let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
                phase == Some("Bound") && !is_held(claim)
            })
            .await;
        let volume = claim.spec.unwrap().volume_name.unwrap();
        self.wait_pv(&volume, "bound", |volume| phase_of(volume) == Some("Bound")).await
    }

    pub(super) async fn wait_pvc(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&PersistentVolumeClaim) -> bool,
    ) -> PersistentVolumeClaim {
        match seen(&self.pvcs(), name, |claim| claim.is_some_and(&wanted)).await {
            Ok(claim) => claim.unwrap(),
            Err(_) => panic!("claim {name} is not {what}: {:#?}", self.pvcs().get_opt(name).await),
        }
    }

    pub(super) async fn wait_pv(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&PersistentVolume) -> bool,
    ) -> PersistentVolume {
        match seen(&self.pvs(), name, |volume| volume.is_some_and(&wanted)).await {
            Ok(volume) => volume.unwrap(),
            Err(_) => panic!("volume {name} is not {what}: {:#?}", self.pvs().get_opt(name).await),
        }
    }

    pub(super) async fn delete_claim(&self, name: &str) {
        self.pvcs().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until a claim is deleted.
    pub(super) async fn wait_claim_gone(&self, name: &str) {
        if seen(&self.pvcs(), name, |claim| claim.is_none()).await.is_err() {
            panic!("claim {name} is still there: {:#?}", self.pvcs().get_opt(name).await);
        }
    }

    /// Waits until a PersistentVolume is deleted.
    pub(super) async fn wait_volume_gone(&self, name: &str) {
        if seen(&self.pvs(), name, |volume| volume.is_none()).await.is_err() {
            panic!("volume {name} is still there: {:#?}", self.pvs().get_opt(name).await);
        }
    }

    /// The notes of the events of a claim or a PersistentVolume.
    pub(super) async fn events(&self, about: &str, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let fields = format!("reason={reason},regarding.name={about}");
        let all = events.list(&ListParams::default().fields(&fields)).await.unwrap();
        // Events on PersistentVolumes name no namespace; claims of other tests have the same names.
        let is_ours = |event: &Event| {
            let namespace = event.regarding.as_ref().and_then(|about| about.namespace.as_deref());
            namespace.is_none_or(|namespace| namespace == self.namespace)
        };
        all.into_iter().filter(is_ours).filter_map(|event| event.note).collect()
    }

    /// Waits for an event of a claim or a PersistentVolume, and returns its note.
    pub(super) async fn wait_event(&self, about: &str, reason: &str, part: &str) -> String {
        let looked = async {
            loop {
                let notes = self.events(about, reason).await;
                if let Some(note) = notes.into_iter().find(|note| note.contains(part)) {
                    return note;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let looked = tokio::time::timeout(crate::support::PATIENCE, looked).await;
        looked.unwrap_or_else(|_| panic!("no event {reason} about {about} has {part:?}"))
    }

    /// A node with a label; returns its name.
    pub(super) async fn node(&self, name: &str) -> String {
        let name = self.unique(name);
        let node = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        name
    }

    /// Does what the scheduler does when a node does not fit.
    pub(super) async fn unselect_node(&self, claim: &str) {
        let patch = json!({ "metadata": { "annotations": { wire::SELECTED_NODE: null } } });
        self.pvcs().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Does what the scheduler does.
    pub(super) async fn select_node(&self, claim: &str, node: &str) {
        let patch = json!({ "metadata": { "annotations": { wire::SELECTED_NODE: node } } });
        self.pvcs().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// The answer of an API server whose write has lost against another, or of a webhook that answers like that.
pub(super) fn conflict(message: &str) -> Verdict {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409, "message": message,
    });
    Verdict::Answer(409, status.to_string())
}

/// Waits until something is so.
pub(super) async fn seen_soon(what: &str, is_so: impl Fn() -> bool) {
    let looked = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(crate::support::PATIENCE, looked).await.is_ok(), "not seen: {what}");
}

pub(super) fn phase_of(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}

/// Whether a claim has anything of ours.
pub(super) fn is_held(claim: &PersistentVolumeClaim) -> bool {
    claim.finalizers().iter().any(|finalizer| finalizer == wire::CLAIM_FINALIZER)
        || claim.annotations().contains_key(wire::HELD_BY)
}
