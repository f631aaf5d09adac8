//! The operator is killed, the claim deleted, and each call failed, at every call of a whole life.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use provisioner_conformance::proxy::{Call, Ending, Gate, Verdict};
use serde_json::json;
use tokio::sync::Semaphore;

use super::shelf::{Outcome, Shelf};
use super::stage::{CROWD, Stage, conflict, phase_of};

/// How many lives of all tests run at the same time. Each operator watches what is made in all of them, so that many would make
/// each other wait too long.
static LIVES: Semaphore = Semaphore::const_new(8);

async fn in_turn(life: impl Future<Output = ()>) {
    let _permit = LIVES.acquire().await.unwrap();
    life.await;
}

/// A call that changes something, but for events, which nothing depends on.
fn counts(call: &Call) -> bool {
    call.mutates && call.name != "create events"
}

/// The names of the calls that a whole life makes, in their order.
async fn calls_of_a_life() -> Vec<String> {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    stage.delete_claim("data").await;
    stage.wait_volume_gone(&name).await;
    let calls = stage.kubernetes.calls();
    calls.iter().filter(|call| counts(call)).map(|call| call.name.clone()).collect()
}

/// Does something to the call with this number, and lets all others pass.
fn at_call(stage: &Stage, number: usize, mut verdict: impl FnMut() -> Verdict + Send + 'static) {
    let mut seen = 0;
    stage.kubernetes.inject(move |call| {
        if !counts(call) {
            return Verdict::Pass;
        }
        seen += 1;
        if seen == number { verdict() } else { Verdict::Pass }
    });
}

/// Holds the call with this number at a gate: when it is done but not answered, or before it reaches the server.
fn hold_at(stage: &Stage, number: usize, is_done: bool, gate: &Gate) {
    let gate = gate.clone();
    at_call(stage, number, move || match is_done {
        true => Verdict::HoldAnswer(gate.clone()),
        false => Verdict::Hold(gate.clone()),
    });
}

/// Submits a claim, and deletes it when it has its volume; whoever kills the operator meanwhile starts another one.
async fn live(stage: &Stage, shelf: &Shelf) {
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    assert_eq!(shelf.made(), [1], "made once");
    assert_eq!(stage.own_pvs().await.len(), 1);
    stage.delete_claim("data").await;
    stage.wait_volume_gone(&name).await;
    assert_eq!(shelf.volumes(), Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_needs_exactly_these_calls() {
    let _crowd = CROWD.read().await;
    let calls = calls_of_a_life().await;
    let expected = [
        "patch persistentvolumeclaims",
        "create persistentvolumes",
        "patch persistentvolumes",
        "patch persistentvolumeclaims",
        "delete persistentvolumes",
        "patch persistentvolumes",
    ];
    assert_eq!(calls, expected);
}

#[tokio::test]
async fn a_volume_bound_before_its_creation_is_known_is_marked_once() {
    let (stage, shelf, gate) = (Stage::new().await, Shelf::new("a"), Gate::closed());
    hold_at(&stage, 2, true, &gate);
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    let name = format!("pvc-{}", stage.submit("data", &class, json!({})).await.uid().unwrap());
    assert!(gate.reached().await, "it is created");
    stage.wait_pv(&name, "bound", |volume| phase_of(volume) == Some("Bound")).await;
    // What is done for a later claim shows that the operator has seen that.
    stage.submit("later", &class, json!({})).await;
    let later = stage.wait_volume("later").await.name_any();
    stage.delete_claim("later").await;
    stage.wait_volume_gone(&later).await;
    let is_write = |call: &&Call| call.name == "patch persistentvolumes" && call.target.contains(&name);
    let writes = || stage.kubernetes.calls().iter().filter(is_write).count();
    assert_eq!(writes(), 0, "the attempt for its claim marks it");
    gate.open();
    stage.wait_volume("data").await;
    assert_eq!(writes(), 1);
}

#[tokio::test]
async fn nothing_is_doubled_or_lost_wherever_the_operator_was_killed() {
    let _crowd = CROWD.read().await;
    let calls = calls_of_a_life().await.len();
    let points = (1..=calls).flat_map(|number| [(number, false), (number, true)]);
    let run = async |(number, is_done)| {
        let (stage, shelf, gate) = (Stage::new().await, Shelf::new("a"), Gate::closed());
        hold_at(&stage, number, is_done, &gate);
        let mut operator = stage.start(&shelf);
        let killer = async {
            assert!(gate.reached().await, "call {number} comes");
            operator.kill().await;
            stage.kubernetes.leave_alone();
            operator = stage.start(&shelf);
        };
        tokio::join!(live(&stage, &shelf), killer);
    };
    join_all(points.map(|point| in_turn(run(point)))).await;
}

#[tokio::test]
async fn nothing_is_doubled_or_lost_after_a_kill_in_a_verb() {
    let _crowd = CROWD.read().await;
    let points = ["provision", "delete"]
        .into_iter()
        .flat_map(|verb| [(verb, Outcome::HangsBefore), (verb, Outcome::HangsAfter)]);
    let run = async |(verb, outcome): (&'static str, Outcome)| {
        let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
        shelf.inject(move |called| if called == verb { outcome.clone() } else { Outcome::Works });
        let mut operator = stage.start(&shelf);
        let killer = async {
            shelf.wait_calls(verb, |calls| calls.iter().any(|call| call.starts_with(verb))).await;
            operator.kill().await;
            shelf.leave_alone();
            operator = stage.start(&shelf);
        };
        tokio::join!(live(&stage, &shelf), killer);
    };
    join_all(points.map(|point| in_turn(run(point)))).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_claim_that_is_deleted_at_any_moment() {
    let _crowd = CROWD.read().await;
    // The calls until the claim is let go.
    let points = (1..=4).flat_map(|number| [(number, false), (number, true)]);
    let run = async |(number, is_done)| {
        let (stage, shelf, gate) = (Stage::new().await, Shelf::new("a"), Gate::closed());
        hold_at(&stage, number, is_done, &gate);
        let _operator = stage.start(&shelf);
        let class = stage.class("disks", json!({})).await;
        let name = format!("pvc-{}", stage.submit("data", &class, json!({})).await.uid().unwrap());
        assert!(gate.reached().await, "call {number} comes");
        stage.delete_claim("data").await;
        gate.open();
        stage.wait_claim_gone("data").await;
        stage.wait_volume_gone(&name).await;
        // The volume is deleted before the PersistentVolume, or before the claim.
        assert_eq!(shelf.volumes(), Vec::<String>::new(), "call {number}, done: {is_done}");
    };
    join_all(points.map(|point| in_turn(run(point)))).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_claim_deleted_during_provisioning() {
    let _crowd = CROWD.read().await;
    for outcome in [Outcome::HangsBefore, Outcome::HangsAfter] {
        let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
        shelf.inject(move |_| outcome.clone());
        let mut operator = stage.start(&shelf);
        let class = stage.class("disks", json!({})).await;
        stage.submit("data", &class, json!({})).await;
        shelf.wait_calls("provision", |calls| calls.len() == 1).await;
        stage.delete_claim("data").await;
        operator.kill().await;
        shelf.leave_alone();
        let _operator = stage.start(&shelf);
        stage.wait_claim_gone("data").await;
        assert_eq!(shelf.volumes(), Vec::<String>::new());
        assert!(stage.own_pvs().await.is_empty());
    }
}

#[tokio::test]
async fn every_call_may_fail_in_every_way() {
    let _crowd = CROWD.read().await;
    let calls = calls_of_a_life().await.len();
    let failures: [fn() -> Verdict; 4] = [
        || Verdict::Answer(500, "broken".to_owned()),
        || Verdict::Reset,
        || Verdict::LoseAnswer,
        || conflict("it has changed"),
    ];
    let points = (1..=calls).flat_map(|number| failures.into_iter().map(move |failure| (number, failure)));
    let run = async |(number, failure)| {
        let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
        at_call(&stage, number, failure);
        let _operator = stage.start(&shelf);
        live(&stage, &shelf).await;
    };
    join_all(points.map(|point| in_turn(run(point)))).await;
}

#[tokio::test]
async fn a_view_that_lags_behind_provisions_nothing_twice() {
    let _crowd = CROWD.read().await;
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    // From the first write on, the operator sees nothing new until the gate opens.
    let gate = Gate::closed();
    let held = gate.clone();
    stage.kubernetes.inject(
        move |call| {
            if call.name.starts_with("watch") { Verdict::Hold(held.clone()) } else { Verdict::Pass }
        },
    );
    let class = stage.class("disks", json!({})).await;
    let name = format!("pvc-{}", stage.submit("data", &class, json!({})).await.uid().unwrap());
    stage.wait_pvc("data", "given to us", |claim| !claim.annotations().is_empty()).await;
    let _operator = stage.start(&shelf);
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    stage.wait_pvc("data", "bound", is_bound).await;
    stage.delete_claim("data").await;
    assert_eq!(shelf.calls(), [format!("provision {name}")]);
    gate.open();
    stage.wait_claim_gone("data").await;
    stage.wait_volume_gone(&name).await;
    assert_eq!(shelf.calls(), [format!("provision {name}"), format!("delete {name}")]);
}

/// Unless that takes long.
#[tokio::test]
async fn our_finalizer_is_removed_after_that_of_kubernetes() {
    let (stage, shelf) = (Stage::new().await, Shelf::new("a"));
    let _operator = stage.start(&shelf);
    let class = stage.class("disks", json!({})).await;
    stage.submit("data", &class, json!({})).await;
    let name = stage.wait_volume("data").await.name_any();
    // From its deletion on, the operator sees nothing new of PersistentVolumes.
    let (deletion, watch) = (Gate::closed(), Gate::closed());
    let (held, unseen) = (deletion.clone(), watch.clone());
    stage.kubernetes.inject(move |call| match call.name.as_str() {
        "delete persistentvolumes" => Verdict::Hold(held.clone()),
        "watch persistentvolumes" => Verdict::Hold(unseen.clone()),
        _ => Verdict::Pass,
    });
    stage.delete_claim("data").await;
    assert!(deletion.reached().await, "it is deleted");
    stage.kubernetes.end_watches(Ending::Closed);
    assert!(watch.reached().await, "it is watched again");
    deletion.open();
    shelf.wait_calls("delete", |calls| calls.len() == 2).await;
    let has_only_ours =
        |volume: &PersistentVolume| volume.finalizers() == ["external-provisioner.volume.kubernetes.io/finalizer"];
    stage.wait_pv(&name, "kept by us alone", has_only_ours).await;
    let last = stage.kubernetes.calls().iter().filter(|call| counts(call)).map(|call| call.name.clone()).next_back();
    assert_eq!(last.as_deref(), Some("delete persistentvolumes"));
    // It does not wait for ever for what it cannot see.
    stage.wait_volume_gone(&name).await;
    assert_eq!(shelf.calls().len(), 2, "deleted once");
}
