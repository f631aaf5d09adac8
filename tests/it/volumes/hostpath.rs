//! The example: `examples/hostpath-provisioner`, whose volumes are directories.

use std::path::PathBuf;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::PostParams;
use provisioner_conformance::free_address;
use serde_json::{Value, json};
use volume_provisioner::wire;

use super::stage::{Stage, phase_of, seen_soon};
use crate::admin::{value, wait_for, wait_serving};
use crate::conformance::example;
use crate::traces::{Collector, assert_child, trace_of};
use provisioner_conformance::{Program, Running, TempDir};

const IDENTITY: &str = "hostPathProvisionerIdentity";

fn program(root: &TempDir, node: &str) -> Program {
    example("hostpath-provisioner").env("PV_DIR", root.path().to_str().unwrap()).env("NODE_NAME", node)
}

/// A running provisioner, whose log is shown if the test fails.
struct Shown(Running);

impl Drop for Shown {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the provisioner:\n{}", self.0.log());
        }
    }
}

fn start(stage: &Stage, program: &Program) -> Shown {
    Shown(program.clone().args(["-v", "5"]).start_with(stage, &stage.kubeconfig()))
}

pub(super) fn path_of(volume: &k8s_openapi::api::core::v1::PersistentVolume) -> PathBuf {
    volume.spec.as_ref().unwrap().host_path.as_ref().unwrap().path.clone().into()
}

/// A class whose directories have a group that also other users than root can set.
fn of_own_group() -> Value {
    json!({ "parameters": { "gid": rustix::process::getegid().as_raw().to_string() } })
}

#[tokio::test]
async fn a_directory_is_created_and_deleted_with_its_claim() {
    let (stage, root) = (Stage::new().await, TempDir::new());
    let _operator = start(&stage, &program(&root, "node-1"));
    let class = stage.class("hostpath", of_own_group()).await;
    stage.submit("data", &class, json!({ "accessModes": ["ReadWriteMany"] })).await;
    let volume = stage.wait_volume("data").await;
    let path = path_of(&volume);
    assert_eq!(path, root.path().join(volume.name_any()));
    std::fs::write(path.join("SUCCESS"), "").unwrap();
    assert_eq!(volume.annotations()[IDENTITY], "node-1");
    stage.wait_event("data", "ProvisioningSucceeded", "the capacity is not enforced").await;
    stage.delete_claim("data").await;
    stage.wait_volume_gone(&volume.name_any()).await;
    assert!(!path.exists() && root.path().exists());
}

#[tokio::test]
async fn operations_are_counted_in_the_usual_metrics() {
    let (stage, root, address) = (Stage::new().await, TempDir::new(), free_address());
    let _operator = start(&stage, &program(&root, "node-1").args(["--admin-address", &address.to_string()]));
    wait_serving(address).await;
    let class = stage.class("hostpath", of_own_group()).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    stage.delete_claim("data").await;
    stage.wait_volume_gone(&name).await;
    // It cannot be deleted while another file has its name.
    stage.submit("more", &class, json!({})).await;
    let name = stage.wait_volume("more").await.name_any();
    std::fs::remove_dir(root.path().join(&name)).unwrap();
    std::fs::write(root.path().join(&name), "").unwrap();
    stage.delete_claim("more").await;
    let [provisioned, deleted, failed] =
        ["persistentvolumeclaim_provision", "persistentvolume_delete", "persistentvolume_delete_failed"]
            .map(|name| format!("controller_{name}_total{{class=\"{class}\"}}"));
    let wanted = [(&provisioned, 2.0), (&deleted, 1.0), (&failed, 1.0)];
    let is_so = |text: &str| wanted.iter().all(|(name, least)| value(text, name).is_some_and(|is| is >= *least));
    let metrics = wait_for(address, "/metrics", |_, text| is_so(text)).await;
    assert_eq!((value(&metrics, &provisioned), value(&metrics, &deleted)), (Some(2.0), Some(1.0)), "{metrics}");
    let times = format!("controller_persistentvolume_delete_duration_seconds_count{{class=\"{class}\"}}");
    assert_eq!(value(&metrics, &times), Some(1.0), "failures do not count: {metrics}");
}

#[tokio::test]
async fn provisioning_and_deletion_are_in_the_trace_of_the_claim() {
    let (stage, root, collector) = (Stage::new().await, TempDir::new(), Collector::start().await);
    let mut operator = start(&stage, &program(&root, "node-1").args(["--otlp-endpoint", &collector.url]));
    let class = stage.class("hostpath", of_own_group()).await;
    let uid = stage.submit("data", &class, json!({})).await.uid().unwrap();
    let name = stage.wait_volume("data").await.name_any();
    stage.delete_claim("data").await;
    stage.wait_volume_gone(&name).await;
    operator.0.terminate();
    operator.0.ended(Duration::from_secs(10)).await;
    let spans = collector.upstream().spans();
    assert!(spans.iter().all(|span| span.trace == trace_of(&uid)), "{spans:#?}");
    assert_child(&spans, "provision", "attempt");
    assert_child(&spans, "kubernetes post persistentvolumes", "attempt");
    assert_child(&spans, "delete", "attempt at volume");
}

#[tokio::test]
async fn without_its_node_name_it_exits_with_a_message() {
    let (stage, root) = (Stage::new().await, TempDir::new());
    let message = program(&root, "").run(&stage).await.unwrap_err();
    assert!(message.contains("NODE_NAME is not set") && message.contains("spec.nodeName"), "{message}");
    let missing = example("hostpath-provisioner").env("PV_DIR", "/no/such/place").env("NODE_NAME", "node-1");
    let message = missing.run(&stage).await.unwrap_err();
    assert!(
        message.contains("--pv-dir \"/no/such/place\" cannot be used") && message.contains("create it"),
        "{message}"
    );
}

#[tokio::test]
async fn each_node_serves_its_own_volumes() {
    let (stage, roots) = (Stage::new().await, [TempDir::new(), TempDir::new()]);
    let nodes = [stage.node("one").await, stage.node("two").await];
    let of_node = |number: usize| start(&stage, &program(&roots[number], &nodes[number]).args(["--per-node"]));
    let _operators = [of_node(0), of_node(1)];
    let mut class = of_own_group();
    class["volumeBindingMode"] = json!("WaitForFirstConsumer");
    let class = stage.class("local", class).await;
    for (number, claim) in ["a", "b"].into_iter().enumerate() {
        stage.submit(claim, &class, json!({})).await;
        stage.select_node(claim, &nodes[number]).await;
        let volume = stage.wait_volume(claim).await;
        assert!(path_of(&volume).starts_with(roots[number].path()));
        assert_eq!(volume.annotations()[IDENTITY], nodes[number]);
        let affinity = volume.spec.as_ref().unwrap().node_affinity.clone().unwrap().required.unwrap();
        let on = affinity.node_selector_terms[0].match_expressions.as_ref().unwrap()[0].clone();
        assert_eq!((on.key.as_str(), on.values.unwrap()), ("kubernetes.io/hostname", vec![nodes[number].clone()]));
        stage.delete_claim(claim).await;
        stage.wait_volume_gone(&volume.name_any()).await;
        assert!(!path_of(&volume).exists());
    }
}

/// Where each node has its own volumes.
#[tokio::test]
async fn a_class_that_selects_no_node_is_refused() {
    let (stage, root) = (Stage::new().await, TempDir::new());
    let _operator = start(&stage, &program(&root, "node-1").args(["--per-node"]));
    let class = stage.class("immediate", of_own_group()).await;
    stage.submit("data", &class, json!({})).await;
    stage.wait_event("data", "ProvisioningFailed", "needs volumeBindingMode WaitForFirstConsumer").await;
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}

/// Until the first is killed.
#[tokio::test]
async fn of_two_for_one_node_the_second_is_a_standby() {
    let (stage, root) = (Stage::new().await, TempDir::new());
    let class = stage.class("hostpath", of_own_group()).await;
    let timing = ["--lease-duration=6s", "--lease-renew-deadline=4s", "--lease-retry-period=1s"];
    let elected = program(&root, "node-1").args(["--leader-elect=true", "--lease-namespace", &stage.namespace]);
    let elected = elected.args(timing);
    let one = start(&stage, &elected);
    stage.submit("first", &class, json!({})).await;
    stage.wait_volume("first").await;
    let other = start(&stage, &elected);
    seen_soon("it stands by", || other.0.log().contains("on standby")).await;
    stage.submit("second", &class, json!({})).await;
    stage.wait_volume("second").await;
    assert!(!other.0.log().contains("serving claims"));
    drop(one);
    stage.submit("third", &class, json!({})).await;
    stage.wait_volume("third").await;
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 3);
}

/// A PersistentVolume as the Go provisioner of the guide of 2017 wrote it, bound to a claim.
async fn made_by_go(stage: &Stage, root: &TempDir, class: &str, claim: &str, annotations: serde_json::Value) -> String {
    let name = format!("pvc-{}", stage.unique(claim));
    std::fs::create_dir(root.path().join(&name)).unwrap();
    std::fs::write(root.path().join(&name).join("SUCCESS"), "").unwrap();
    let mut all = json!({ wire::PROVISIONED_BY: stage.provisioner });
    all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    let volume = json!({
        "metadata": { "name": name, "annotations": all },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Mi" }, "storageClassName": class,
            "claimRef": { "namespace": stage.namespace, "name": claim },
            "hostPath": { "path": root.path().join(&name) }, "persistentVolumeReclaimPolicy": "Delete",
        },
    });
    stage.pvs().create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    stage.submit(claim, class, json!({ "volumeName": name })).await;
    stage.wait_pv(&name, "bound", |volume| phase_of(volume) == Some("Bound")).await;
    name
}

#[tokio::test]
async fn volumes_of_the_go_provisioner_are_taken_over() {
    let (stage, root) = (Stage::new().await, TempDir::new());
    let class = stage.class("hostpath", of_own_group()).await;
    let mine = made_by_go(&stage, &root, &class, "mine", json!({ IDENTITY: "node-1" })).await;
    let foreign = made_by_go(&stage, &root, &class, "foreign", json!({ IDENTITY: "node-2" })).await;
    let unknown = made_by_go(&stage, &root, &class, "unknown", json!({})).await;
    let _operator = start(&stage, &program(&root, "node-1"));
    let has_finalizer = |volume: &k8s_openapi::api::core::v1::PersistentVolume| {
        volume.finalizers().iter().any(|finalizer| finalizer == wire::VOLUME_FINALIZER)
    };
    stage.wait_pv(&mine, "kept by the finalizer", has_finalizer).await;
    for claim in ["unknown", "foreign", "mine"] {
        stage.delete_claim(claim).await;
    }
    stage.wait_volume_gone(&mine).await;
    stage.wait_event(&unknown, "VolumeFailedDelete", "lacks the annotation").await;
    assert!(!root.path().join(&mine).exists());
    for left in [&foreign, &unknown] {
        assert!(root.path().join(left).join("SUCCESS").exists());
        let volume = stage.pvs().get(left).await.unwrap();
        assert_eq!((phase_of(&volume), volume.metadata.deletion_timestamp.is_none()), (Some("Released"), true));
        assert!(!has_finalizer(&volume) && !volume.annotations().contains_key(wire::VOLUME_UID), "nothing of ours");
    }
    let mark = async |name: &str, mut annotations: Value| {
        annotations[wire::VOLUME_UID] = json!(stage.pvs().get(name).await.unwrap().uid());
        let patch = kube::api::Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        stage.pvs().patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    };
    mark(&unknown, json!({})).await;
    stage.wait_event(&unknown, "VolumeFailedDelete", "it is not known which node has the directory").await;
    // Both are on this node after all.
    for left in [&foreign, &unknown] {
        mark(left, json!({ IDENTITY: "node-1" })).await;
        stage.wait_volume_gone(left).await;
    }
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}
