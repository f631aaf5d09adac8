//! What becomes of a claim and its volume.
//!
//! Long, because each case is short, and they share the stage.

use bucket_provisioner::store::Permit;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use provisioner_conformance::proxy::{Ending, Gate, Verdict, expired};
use serde_json::json;
use volume_provisioner::{VolumeError, wire};

use super::shelf::{Outcome, SHELF, Shelf};
use super::stage::{CROWD, Stage, is_held, phase_of};

#[tokio::test]
async fn a_volume_is_created_and_deleted_with_its_claim() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({ "mountOptions": ["noatime"], "parameters": { "material": "oak" } })).await;
    let claim = stage.submit("data", &class, json!({})).await;
    let volume = stage.wait_volume("data").await;
    let name = format!("pvc-{}", claim.uid().unwrap());
    assert_eq!(volume.name_any(), name);
    assert_eq!(shelf.volumes(), std::slice::from_ref(&name));
    assert!(volume.finalizers().iter().any(|finalizer| finalizer == wire::VOLUME_FINALIZER));
    assert_eq!(volume.annotations()[wire::PROVISIONED_BY], stage.provisioner);
    assert_eq!(volume.annotations()[wire::VOLUME_UID], volume.uid().unwrap());
    assert_eq!(volume.annotations()[SHELF], "a");
    let spec = volume.spec.unwrap();
    assert_eq!(spec.nfs.unwrap().path, format!("/{name}oak"));
    assert_eq!(spec.capacity.unwrap()["storage"].0, "1Mi");
    assert_eq!(spec.claim_ref.unwrap().uid, claim.uid());
    assert_eq!((spec.storage_class_name.unwrap(), spec.mount_options.unwrap()), (class, vec!["noatime".to_owned()]));
    stage.wait_event("data", "Provisioning", "is provisioning volume").await;
    let note = stage.wait_event("data", "ProvisioningSucceeded", &name).await;
    assert!(note.ends_with("; made of paper"), "{note}");

    stage.delete_claim("data").await;
    stage.wait_volume_gone(&name).await;
    assert_eq!(shelf.volumes(), Vec::<String>::new());
    assert_eq!(shelf.calls(), [format!("provision {name}"), format!("delete {name}")]);
}

#[tokio::test]
async fn a_slow_deletion_is_reported() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    shelf.inject(|_| Outcome::HangsBefore);
    stage.delete_claim("data").await;
    stage.wait_event(&name, "VolumeDelete", "is deleting volume").await;
}

#[tokio::test]
async fn a_retained_volume_stays_and_can_be_deleted_as_an_object() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("kept", json!({ "reclaimPolicy": "Retain" })).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    stage.delete_claim("data").await;
    let released = |volume: &_| phase_of(volume) == Some("Released");
    stage.wait_pv(&name, "released", released).await;
    stage
        .wait_pv(&name, "without our finalizer", |volume| {
            !volume.finalizers().iter().any(|finalizer| finalizer == wire::VOLUME_FINALIZER)
        })
        .await;
    stage.pvs().delete(&name, &DeleteParams::default()).await.unwrap();
    stage.wait_volume_gone(&name).await;
    assert_eq!(shelf.volumes(), [name]);
}

#[tokio::test]
async fn a_volume_waits_for_the_node_of_its_first_pod() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let topologies = json!([{ "matchLabelExpressions": [{ "key": "zone", "values": ["a", "b"] }] }]);
    let local = json!({ "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies });
    let class = stage.class("local", local).await;
    stage.submit("data", &class, json!({})).await;
    let node = stage.node("node").await;
    // Claims after it are served, so it was not forgotten.
    let other = stage.class("immediate", json!({})).await;
    stage.submit("other", &other, json!({})).await;
    stage.wait_volume("other").await;
    assert_eq!(shelf.volumes().len(), 1);

    stage.select_node("data", &node).await;
    stage.wait_volume("data").await;
    assert_eq!(serde_json::to_value(shelf.topologies()).unwrap(), topologies);
    let asked = shelf.nodes().pop().unwrap().unwrap();
    assert_eq!((asked.name.as_str(), asked.labels["kubernetes.io/hostname"].as_str()), (node.as_str(), node.as_str()));
}

#[tokio::test]
async fn another_node_is_selected_if_a_volume_is_impossible() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("local", json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    stage.submit("data", &class, json!({})).await;
    let (full, free) = (stage.node("full").await, stage.node("free").await);
    shelf.inject(|_| Outcome::Fails(VolumeError::wrong_node("there is no room on this node")));
    stage.select_node("data", &full).await;
    let is_unselected = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
        !claim.annotations().contains_key(wire::SELECTED_NODE)
    };
    shelf.wait_calls("tried", |calls| calls.len() == 1).await;
    stage.wait_pvc("data", "unselected", |claim| is_unselected(claim) && !is_held(claim)).await;
    stage.wait_event("data", "ProvisioningFailed", "no room on this node").await;
    shelf.leave_alone();

    stage.select_node("data", &stage.unique("gone")).await;
    stage.wait_event("data", "ProvisioningFailed", "does not exist, so another one is selected").await;
    stage.wait_pvc("data", "unselected", is_unselected).await;

    stage.select_node("data", &free).await;
    stage.wait_volume("data").await;
    assert_eq!(shelf.made(), [1]);
}

/// Each has volumes of its own.
#[tokio::test]
async fn two_instances_serve_one_class_without_doubles() {
    let stage = Stage::new().await;
    let shelves = [Shelf::new("a"), Shelf::new("b")];
    let _operators = [stage.start(&shelves[0]), stage.start(&shelves[1])];
    let class = stage.class("disks", json!({})).await;
    let claims: Vec<_> = (0..12).map(|number| format!("data-{number}")).collect();
    for claim in &claims {
        stage.submit(claim, &class, json!({})).await;
    }
    for claim in &claims {
        stage.wait_volume(claim).await;
    }
    let all: Vec<_> = shelves.iter().flat_map(Shelf::volumes).collect();
    assert_eq!(all.len(), claims.len(), "{all:?}");
    // Neither made one that it had to delete again.
    assert_eq!(shelves.iter().map(|shelf| shelf.made().len()).sum::<usize>(), claims.len());
    for volume in stage.own_pvs().await {
        let shelf = &shelves[usize::from(volume.annotations()[SHELF] == "b")];
        assert!(shelf.volumes().contains(&volume.name_any()));
        assert!(shelf.calls().contains(&format!("provision {}", volume.name_any())));
    }
    // Each deletes its own.
    for claim in &claims {
        stage.delete_claim(claim).await;
    }
    for volume in &all {
        stage.wait_volume_gone(volume).await;
    }
    assert!(shelves.iter().all(|shelf| shelf.volumes().is_empty()));
}

#[tokio::test]
async fn an_instance_leaves_what_it_does_not_want_to_another() {
    let stage = Stage::new().await;
    let (idle, busy) = (Shelf::choosy("idle", |_| false), Shelf::new("busy"));
    let _operators = [stage.start(&idle), stage.start(&busy)];
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    stage.wait_volume("data").await;
    assert_eq!(idle.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_that_was_restored_from_a_backup_keeps_its_data() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let mut operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let mut backup = stage.wait_volume("data").await;
    let name = backup.name_any();
    operator.stop().await;

    // The cluster is lost, and what was backed up is created again: first the volumes.
    stage.delete_claim("data").await;
    stage.wait_claim_gone("data").await;
    let none = json!({ "metadata": { "finalizers": null } });
    stage.pvs().delete(&name, &DeleteParams::default()).await.unwrap();
    stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    stage.wait_volume_gone(&name).await;
    backup.metadata.resource_version = None;
    backup.metadata.uid = None;
    backup.metadata.managed_fields = None;
    stage.pvs().create(&PostParams::default(), &backup).await.unwrap();
    stage.wait_pv(&name, "released", |volume| phase_of(volume) == Some("Released")).await;

    let _operator = stage.start(&shelf);
    stage.wait_event(&name, "VolumeFailedDelete", "was restored or copied").await;
    assert_eq!(shelf.volumes(), std::slice::from_ref(&name));
    // An admin confirms that it may be deleted.
    let unmarked = json!({ "metadata": { "annotations": { wire::VOLUME_UID: null } } });
    let restored = stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(unmarked)).await.unwrap();
    stage.wait_event(&name, "VolumeFailedDelete", "lacks the annotation").await;
    let marked = json!({ "metadata": { "annotations": { wire::VOLUME_UID: restored.uid() } } });
    stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(marked)).await.unwrap();
    stage.wait_volume_gone(&name).await;
    assert_eq!(shelf.volumes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_that_a_new_claim_names_keeps_its_data() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let mut operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    operator.stop().await;
    // The claim is deleted and restored while no operator runs.
    stage.delete_claim("data").await;
    stage.wait_claim_gone("data").await;
    stage.submit("data", &class, json!({ "volumeName": name })).await;
    stage.wait_pv(&name, "released", |volume| phase_of(volume) == Some("Released")).await;

    let _operator = stage.start(&shelf);
    stage.wait_event(&name, "VolumeFailedDelete", "names this PersistentVolume").await;
    assert_eq!(shelf.volumes(), std::slice::from_ref(&name));
    let handed = json!({ "spec": { "claimRef": { "uid": null, "resourceVersion": null } } });
    stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(handed)).await.unwrap();
    stage.wait_volume("data").await;
    assert_eq!(shelf.made(), [1]);
}

#[tokio::test]
async fn a_restart_with_bound_volumes_writes_nothing() {
    let _crowd = CROWD.write().await;
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let mut operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    let claims: Vec<_> = (0..50).map(|number| format!("data-{number}")).collect();
    for claim in &claims {
        stage.submit(claim, &class, json!({})).await;
    }
    for claim in &claims {
        stage.wait_volume(claim).await;
    }
    operator.stop().await;
    // The others are made without an operator, and retained, so that they can be deleted at once.
    let many = stage.bound_copies(950, &class).await;
    stage.kubernetes.clear();
    let calls = shelf.calls().len();
    let _operator = stage.start(&shelf);
    // It has seen them all when it serves another one.
    stage.submit("last", &class, json!({})).await;
    stage.wait_volume("last").await;
    let writes: Vec<_> = stage.kubernetes.writes().into_iter().filter(|name| name != "create events").collect();
    let of_one = [
        "patch persistentvolumeclaims",
        "create persistentvolumes",
        "patch persistentvolumes",
        "patch persistentvolumeclaims",
    ];
    assert_eq!(writes, of_one);
    assert_eq!(shelf.calls().len(), calls + 1);
    many.delete().await;
}

#[tokio::test]
async fn a_taken_name_is_reported_and_nothing_is_left() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let class = stage.class("disks", json!({})).await;
    let claim = stage.submit("data", &class, json!({})).await;
    let name = format!("pvc-{}", claim.uid().unwrap());
    let rival = json!({
        "metadata": { "name": name },
        "spec": { "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "another",
            "persistentVolumeReclaimPolicy": "Retain", "nfs": { "server": "rival.example.com", "path": "/" } },
    });
    stage.pvs().create(&PostParams::default(), &serde_json::from_value(rival).unwrap()).await.unwrap();
    let _operator = stage.start(&shelf);
    stage.wait_event("data", "ProvisioningFailed", "exists, and is not this claim's").await;
    stage.delete_claim("data").await;
    stage.wait_claim_gone("data").await;
    assert_eq!(shelf.volumes(), Vec::<String>::new());
    let rival = stage.pvs().get(&name).await.unwrap();
    assert!(rival.metadata.deletion_timestamp.is_none());
    stage.pvs().delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn changes_during_broken_watches_are_seen_in_the_next_list() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("old", &class, json!({})).await;
    let old = stage.wait_volume("old").await.name_any();
    // No watch begins again until a list was read, and meanwhile one claim is created and another one deleted.
    let gate = Gate::closed();
    let held = gate.clone();
    stage.kubernetes.inject(move |call| match call.name.split(' ').next() {
        Some("watch") => expired(),
        Some("list") => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    stage.kubernetes.end_watches(Ending::Closed);
    assert!(gate.reached().await, "it lists again");
    stage.delete_claim("old").await;
    stage.wait_claim_gone("old").await;
    stage.submit("new", &class, json!({})).await;
    stage.wait_pvc("new", "given to us", |claim| !claim.annotations().is_empty()).await;
    stage.kubernetes.leave_alone();
    gate.open();
    stage.wait_volume("new").await;
    stage.wait_volume_gone(&old).await;
    assert_eq!(shelf.volumes().len(), 1);
}

#[tokio::test]
async fn another_selected_node_moves_a_claim_to_its_instance() {
    let stage = Stage::new().await;
    let left = Shelf::choosy("left", |node| node.is_some_and(|node| node.name.ends_with("left")));
    let right = Shelf::choosy("right", |node| node.is_some_and(|node| node.name.ends_with("right")));
    let _operators = [stage.start(&left), stage.start(&right)];
    let class = stage.class("local", json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    let nodes = [stage.node("left").await, stage.node("right").await];
    left.inject(|verb| match verb {
        "provision" => Outcome::Fails(VolumeError::in_progress("the disk is slow")),
        _ => Outcome::Works,
    });
    stage.submit("data", &class, json!({})).await;
    stage.select_node("data", &nodes[0]).await;
    stage.wait_pvc("data", "held", is_held).await;
    left.wait_calls("begun", |calls| !calls.is_empty()).await;
    stage.select_node("data", &nodes[1]).await;
    // It undoes what it has begun, by finishing it first.
    let knows =
        |_: &[String]| left.nodes().last().is_some_and(|node| node.as_ref().is_some_and(|n| n.name == nodes[1]));
    left.wait_calls("undone", knows).await;
    left.leave_alone();
    stage.wait_volume("data").await;
    assert_eq!((left.volumes().len(), right.volumes().len()), (0, 1), "{:?} {:?}", left.calls(), right.calls());
}

/// Until the last moment before its deletion.
#[tokio::test]
async fn a_volume_made_available_again_keeps_its_data() {
    let (stage, shelf, gate) = (Stage::new().await, Shelf::new("a"), Gate::closed());
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    let held = gate.clone();
    stage.kubernetes.inject(move |call| match &*call.name {
        "delete persistentvolumes" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    stage.delete_claim("data").await;
    assert!(gate.reached().await, "it is about to be deleted");
    let available = json!({ "spec": { "claimRef": null } });
    stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(available)).await.unwrap();
    stage.wait_pv(&name, "available", |volume| phase_of(volume) == Some("Available")).await;
    stage.kubernetes.leave_alone();
    gate.open();
    stage.submit("next", &class, json!({})).await;
    assert_eq!(stage.wait_volume("next").await.name_any(), name);
    assert_eq!(shelf.calls(), [format!("provision {name}")]);
}

/// Even if the provisioner does not check which instance a volume is of.
#[tokio::test]
async fn each_instance_deletes_only_its_own_volumes() {
    let stage = Stage::new().await;
    let shelves = [Shelf::careless("a"), Shelf::careless("b")];
    let _operators = [stage.start(&shelves[0]), stage.start(&shelves[1])];
    let class = stage.class("disks", json!({})).await;
    for number in 0..8 {
        let claim = format!("data-{number}");
        stage.submit(&claim, &class, json!({})).await;
        let volume = stage.wait_volume(&claim).await.name_any();
        stage.delete_claim(&claim).await;
        stage.wait_volume_gone(&volume).await;
    }
    assert_eq!(shelves.each_ref().map(Shelf::volumes), [const { Vec::<String>::new() }; 2]);
}

#[tokio::test]
async fn a_cleanup_ends_before_the_claim_gets_its_volume() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("local", json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    let node = stage.node("node").await;
    let slow = || Outcome::Fails(VolumeError::in_progress("the disk is slow"));
    shelf.inject(move |_| slow());
    stage.submit("data", &class, json!({})).await;
    stage.select_node("data", &node).await;
    shelf.wait_calls("begun", |calls| !calls.is_empty()).await;
    // Before it is ready, or the claim would be bound.
    stage.unselect_node("data").await;
    shelf.inject(move |verb| if verb == "delete" { slow() } else { Outcome::Works });
    shelf.wait_calls("undone", |calls| calls.iter().any(|call| call.starts_with("delete"))).await;
    stage.select_node("data", &node).await;
    // It is asked again and again, and does not provision meanwhile.
    let seen = shelf.calls().len();
    shelf.wait_calls("asked again", |calls| calls.len() > seen + 2).await;
    shelf.leave_alone();
    stage.wait_volume("data").await;
    let calls = shelf.calls();
    let first = calls.iter().position(|call| call.starts_with("delete")).unwrap();
    let (last, between) = calls[first..].split_last().unwrap();
    assert!(last.starts_with("provision") && between.iter().all(|call| call.starts_with("delete")), "{calls:?}");
    assert_eq!(shelf.volumes().len(), 1);
}

#[tokio::test]
async fn edits_never_delete_the_volume_of_a_bound_claim() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let mut operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    operator.stop().await;
    // The annotation of the volume is removed, and the claim is applied as it was dumped while it was held.
    let disowned = json!({ "metadata": { "annotations": { wire::PROVISIONED_BY: null } } });
    stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(disowned)).await.unwrap();
    let held = json!({ "metadata": {
        "finalizers": ["kubernetes.io/pvc-protection", wire::CLAIM_FINALIZER],
        "annotations": { wire::HELD_BY: format!("{} a", stage.provisioner) },
    } });
    stage.pvcs().patch("data", &PatchParams::default(), &Patch::Merge(held)).await.unwrap();
    let _operator = stage.start(&shelf);
    stage.wait_pvc("data", "let go", |claim| !is_held(claim)).await;
    assert_eq!(shelf.calls(), [format!("provision {name}")]);
}

/// As Kubernetes does with a volume that it releases before it was bound, and an admin with one for another claim.
#[tokio::test]
async fn a_volume_whose_claim_was_replaced_in_it_is_not_deleted() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let retained = json!({ "reclaimPolicy": "Retain", "parameters": { "material": "wet paper" } });
    let class = stage.class("disks", retained).await;
    let claim = stage.submit("data", &class, json!({})).await;
    let name = format!("pvc-{}", claim.uid().unwrap());
    stage.wait_pv(&name, "created", |_| true).await;
    let replaced = json!({ "spec": { "claimRef": { "name": "other", "uid": null, "resourceVersion": null } } });
    stage.pvs().patch(&name, &PatchParams::default(), &Patch::Merge(replaced)).await.unwrap();
    stage.delete_claim("data").await;
    stage.wait_claim_gone("data").await;
    let calls = shelf.calls();
    assert!(calls.iter().all(|call| call.starts_with("provision")), "{calls:?}");
    assert_eq!(shelf.volumes(), std::slice::from_ref(&name));
    stage.pvs().delete(&name, &DeleteParams::default()).await.unwrap();
}

/// Its PersistentVolume is deleted by hand.
#[tokio::test]
async fn a_volume_deleted_before_it_was_bound_is_found_again() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({ "parameters": { "material": "wet paper" } })).await;
    let claim = stage.submit("data", &class, json!({})).await;
    let name = format!("pvc-{}", claim.uid().unwrap());
    stage.wait_pv(&name, "created", |_| true).await;
    let small = stage.pvs().delete(&name, &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(stage.wait_volume("data").await.name_any(), name);
    assert_ne!(stage.pvs().get(&name).await.unwrap().uid(), small.uid());
    assert_eq!((shelf.made(), shelf.volumes()), (vec![1], vec![name]));
}

#[tokio::test]
async fn an_admin_can_change_what_becomes_of_a_volume() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let has_finalizer =
        |volume: &PersistentVolume| volume.finalizers().iter().any(|finalizer| finalizer == wire::VOLUME_FINALIZER);
    let classes =
        [stage.class("deleted", json!({})).await, stage.class("kept", json!({ "reclaimPolicy": "Retain" })).await];
    let mut volumes = Vec::new();
    for (claim, class) in ["kept", "deleted"].into_iter().zip(&classes) {
        stage.submit(claim, class, json!({})).await;
        volumes.push(stage.wait_volume(claim).await.name_any());
    }
    for (volume, policy) in volumes.iter().zip(["Retain", "Delete"]) {
        let changed = json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
        stage.pvs().patch(volume, &PatchParams::default(), &Patch::Merge(changed)).await.unwrap();
        stage.wait_pv(volume, policy, |volume| has_finalizer(volume) == (policy == "Delete")).await;
    }
    for claim in ["kept", "deleted"] {
        stage.delete_claim(claim).await;
    }
    stage.wait_volume_gone(&volumes[1]).await;
    stage.wait_pv(&volumes[0], "released", |volume| phase_of(volume) == Some("Released")).await;
    assert_eq!(shelf.volumes(), volumes[..1]);
}

#[tokio::test]
async fn without_its_lease_an_operator_calls_no_store() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let mut options = stage.options();
    options.permit = Permit::new(|| false);
    let _operator = stage.start_with(&shelf, options);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    stage.wait_event("data", "ProvisioningFailed", "no longer holds the lease").await;
    assert_eq!(shelf.calls(), Vec::<String>::new());
}
