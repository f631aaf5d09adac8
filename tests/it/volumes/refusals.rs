//! What a claim cannot have is reported once, and provided as soon as it can be.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use provisioner_conformance::proxy::{Gate, Verdict};
use serde_json::json;
use volume_provisioner::VolumeError;

use super::shelf::{Outcome, Shelf};
use super::stage::{Stage, conflict, is_held, seen_soon};

#[tokio::test]
async fn unsupported_requests_are_refused_with_their_remedy() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    let wrong = stage.class("wrong", json!({ "parameters": { "materiel": "oak" } })).await;
    let block = json!({ "volumeMode": "Block" });
    let selector = json!({ "selector": { "matchLabels": { "a": "b" } } });
    let mode = json!({ "accessModes": ["ReadWriteOncePod"] });
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "block" } });
    let cases = [
        ("block", &class, block, "spec.volumeMode: \"Block\" cannot be had"),
        ("selector", &class, selector, "create the claim without it"),
        ("mode", &class, mode, "spec.accessModes: \"ReadWriteOncePod\" cannot be had"),
        ("source", &class, source, "spec.dataSource: "),
        ("parameter", &wrong, json!({}), "unknown parameter \"materiel\" (do you mean \"material\"?)"),
    ];
    for (name, class, spec, _) in &cases {
        stage.submit(name, class, spec.clone()).await;
    }
    for (name, _, _, note) in &cases {
        stage.wait_event(name, "ProvisioningFailed", note).await;
    }
    // A class that is created again is checked again.
    stage.class("wrong", json!({ "parameters": { "material": "oak" } })).await;
    stage.wait_volume("parameter").await;
    assert_eq!(shelf.calls().len(), 1, "the others never got there: {:?}", shelf.calls());
    for claim in ["block", "selector", "mode", "source"] {
        assert!(!is_held(&stage.pvcs().get(claim).await.unwrap()), "{claim}");
    }
}

#[tokio::test]
async fn several_instances_report_each_problem_once() {
    let stage = Stage::new().await;
    let shelves = ["a", "b", "c"].map(Shelf::new);
    let _operators = shelves.each_ref().map(|shelf| stage.start(shelf));
    let class = stage.class("disks", json!({})).await;
    let ice = stage.class("ice", json!({ "parameters": { "material": "ice" } })).await;
    stage.submit("block", &class, json!({ "volumeMode": "Block" })).await;
    stage.submit("cold", &ice, json!({})).await;
    let refused = [("block", "cannot be had"), ("cold", "melts on every shelf")];
    let attempts = || stage.kubernetes.writes().iter().filter(|name| *name == "create events").count();
    seen_soon("each instance has tried to report each", || attempts() >= refused.len() * shelves.len()).await;
    for (claim, note) in refused {
        stage.wait_event(claim, "ProvisioningFailed", note).await;
        assert_eq!(stage.events(claim, "ProvisioningFailed").await.len(), 1, "{claim}");
        assert!(!is_held(&stage.pvcs().get(claim).await.unwrap()), "{claim}");
    }
}

#[tokio::test]
async fn a_denied_write_is_reported_even_as_a_conflict() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    stage.kubernetes.inject(|call| match &*call.name {
        "patch persistentvolumeclaims" => conflict("denied by a webhook"),
        _ => Verdict::Pass,
    });
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    stage.wait_event("data", "ProvisioningFailed", "cannot hold the claim: denied by a webhook").await;
    stage.kubernetes.leave_alone();
    stage.wait_volume("data").await;
}

#[tokio::test]
async fn a_class_may_come_later() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    stage.submit("data", &stage.unique("disks"), json!({})).await;
    stage.class("disks", json!({})).await;
    stage.wait_volume("data").await;
}

#[tokio::test]
async fn failures_are_retried_and_terminal_ones_wait_for_a_change() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    let mut tries = 0;
    shelf.inject(move |_| {
        tries += 1;
        match tries {
            1 | 2 => Outcome::Fails(VolumeError::retryable("the shelf is locked")),
            3 => Outcome::Fails(VolumeError::in_progress("half of it is done")),
            4 => Outcome::Fails(VolumeError::terminal("oak is not to be had")),
            _ => Outcome::Works,
        }
    });
    stage.submit("data", &class, json!({})).await;
    for (reason, note) in [
        ("ProvisioningFailed", "the shelf is locked"),
        ("Provisioning", "half of it is done"),
        ("ProvisioningFailed", "oak is not to be had"),
    ] {
        stage.wait_event("data", reason, note).await;
    }
    assert_eq!(shelf.calls().len(), 4);
    stage.wait_pvc("data", "let go, since nothing is left behind", |claim| !is_held(claim)).await;
    // Other claims are served, and this one is not tried again.
    stage.submit("other", &class, json!({})).await;
    stage.wait_volume("other").await;
    assert_eq!(shelf.calls().len(), 5);
    let change = json!({ "metadata": { "annotations": { "material": "pine" } } });
    stage.pvcs().patch("data", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    stage.wait_volume("data").await;
    assert_eq!(shelf.made(), [1, 1]);
}

/// Until something changes.
#[tokio::test]
async fn a_verb_is_given_up_after_its_threshold() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let mut options = stage.options();
    options.provision_retry.threshold = Some(3);
    options.delete_retry.threshold = Some(2);
    let _operator = stage.start_with(&shelf, options);
    let class = stage.class("disks", json!({})).await;
    shelf.inject(|_| Outcome::Fails(VolumeError::retryable("the shelf is locked")));
    stage.submit("data", &class, json!({})).await;
    stage.wait_event("data", "ProvisioningFailed", "the shelf is locked; giving up after 3 attempts").await;
    assert_eq!(shelf.calls().len(), 3);
    shelf.leave_alone();
    let change = json!({ "metadata": { "annotations": { "try": "again" } } });
    stage.pvcs().patch("data", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    let volume = stage.wait_volume("data").await.metadata.name.unwrap();

    shelf.inject(|_| Outcome::Fails(VolumeError::retryable("the shelf is locked")));
    stage.delete_claim("data").await;
    stage.wait_event(&volume, "VolumeFailedDelete", "the shelf is locked; giving up after 2 attempts").await;
    shelf.leave_alone();
    let change = json!({ "metadata": { "annotations": { "try": "again" } } });
    stage.pvs().patch(&volume, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    stage.wait_volume_gone(&volume).await;
    assert_eq!(shelf.volumes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_verb_that_panics_or_hangs_stops_no_other_claim() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    let mut tries = 0;
    shelf.inject(move |_| {
        tries += 1;
        match tries {
            1 => Outcome::Panics,
            2 => Outcome::HangsBefore,
            _ => Outcome::Works,
        }
    });
    stage.submit("panics", &class, json!({})).await;
    stage.wait_event("panics", "ProvisioningFailed", "provision panicked").await;
    shelf.wait_calls("the one that hangs", |calls| calls.len() == 2).await;
    stage.submit("works", &class, json!({})).await;
    stage.wait_volume("works").await;
}

#[tokio::test]
async fn a_panic_before_the_verbs_stops_no_other_claim() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let glass = stage.class("glass", json!({ "parameters": { "material": "glass" } })).await;
    stage.submit("breaks", &glass, json!({})).await;
    stage.wait_event("breaks", "ProvisioningFailed", "the provisioner panicked").await;
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    stage.wait_volume("data").await;
}

#[tokio::test]
async fn an_unstarted_claim_can_be_deleted_while_the_store_is_down() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    shelf.inject(|_| Outcome::Fails(VolumeError::refused("the shelf is full")));
    for claim in ["waits", "deleted"] {
        stage.submit(claim, &class, json!({})).await;
        stage.wait_event(claim, "ProvisioningFailed", "the shelf is full").await;
    }
    stage.delete_claim("deleted").await;
    stage.wait_claim_gone("deleted").await;
    shelf.leave_alone();
    stage.wait_volume("waits").await;
}

#[tokio::test]
async fn a_class_that_is_not_listed_yet_is_not_missing() {
    let (stage, shelf, gate) = (Stage::new().await, Shelf::new("a"), Gate::closed());
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    stage.wait_pvc("data", "given to us", |claim| !claim.annotations().is_empty()).await;
    let held = gate.clone();
    stage.kubernetes.inject(move |call| match &*call.name {
        "list storageclasses" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    let _operator = stage.start(&shelf);
    assert!(gate.reached().await, "it lists the classes");
    let watches = || stage.kubernetes.names().iter().any(|name| name == "watch persistentvolumeclaims");
    seen_soon("the claims were listed", watches).await;
    stage.kubernetes.leave_alone();
    gate.open();
    stage.wait_volume("data").await;
    assert_eq!(stage.events("data", "ProvisioningFailed").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_class_that_the_watch_has_not_shown_yet_is_not_missing() {
    let (stage, shelf, gate) = (Stage::new().await, Shelf::new("a"), Gate::closed());
    let held = gate.clone();
    stage.kubernetes.inject(move |call| match &*call.name {
        "watch storageclasses" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    let _operator = stage.start(&shelf);
    assert!(gate.reached().await, "it watches the classes");
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let looks = || stage.kubernetes.names().iter().any(|name| name == "get storageclasses");
    seen_soon("it looks for the class", looks).await;
    gate.open();
    stage.wait_volume("data").await;
    assert_eq!(stage.events("data", "ProvisioningFailed").await, Vec::<String>::new());
}
