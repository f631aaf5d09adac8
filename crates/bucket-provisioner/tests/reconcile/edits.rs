//! Claims and outputs that somebody edits.

use std::time::Duration;

use bucket_provisioner::api::wire;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::{NAMESPACE, World, ready};

const FLOW: Flow = Flow { kind: Kind::Generated, step: Step::Provide };
/// What shows whether the CRD keeps conditions.
const DRY_RUN: &str = "try to patch objectbucketclaims";

/// Another controller that writes it as well does not take the calls that others need.
#[tokio::test(start_paused = true)]
async fn a_config_map_that_changes_often_is_repaired_at_intervals() {
    let (world, calls) = (FLOW.world(), Calls::default());
    let _operator = world.start(&calls);
    FLOW.submit(&world);
    world.until("bound", World::is_bound).await;
    world.afterwards().await;
    let bucket = |world: &World| world.config_map().unwrap_or_default()["data"]["BUCKET_NAME"].clone();
    let right = bucket(&world);
    calls.begin(|_| Verdict::Pass);
    for round in 0..120 {
        world.edit_config_map(&json!({ "data": { "BUCKET_NAME": format!("other-{round}") } }));
        sleep(Duration::from_secs(1)).await;
    }
    let repairs = calls.all().iter().filter(|call| call.name == "patch configmaps photos").count();
    assert!((4..=8).contains(&repairs), "{repairs} repairs in two minutes");
    world.until("repaired", |world| bucket(world) == right).await;
}

/// Not even the keys that somebody asks for at once.
#[tokio::test(start_paused = true)]
async fn a_setting_that_the_store_refuses_stops_nothing_else() {
    let flow = Flow { kind: Kind::Generated, step: Step::Paint };
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = world.start(&calls);
    flow.submit(&world);
    world.until("bound", World::is_bound).await;
    world.afterwards().await;
    world.store.contents.lock().refused = Some("red".to_owned());
    calls.begin(|_| Verdict::Pass);
    world.edit_claim(&json!({ "spec": { "additionalConfig": { "color": "red" } } }));
    sleep(Duration::from_secs(3600)).await;
    assert!(world.is_bound() && !world.is_red());
    let reports = calls.all().iter().filter(|call| call.name == "create events").count();
    assert!((1..=2).contains(&reports), "it is reported {reports} times");
    let checks = calls.all().iter().filter(|call| call.name == "store check").count();
    assert!((5..40).contains(&checks), "{checks} checks in an hour");
    world.edit_claim(&json!({ "metadata": { "annotations": { wire::annotation::ROTATE_KEYS: "now" } } }));
    let is_rotated = |world: &World| {
        let secret = world.secret().unwrap_or_default();
        let notes = &secret["metadata"]["annotations"];
        notes[wire::annotation::ROTATE_KEYS] == "now" && notes[wire::annotation::RETIRING_KEY].is_null()
    };
    world.until("rotated", is_rotated).await;
    world.store.contents.lock().refused = None;
    world.until("painted", World::is_red).await;
    world.afterwards().await;
    assert_eq!(world.stored().users.values().map(|user| user.keys.len()).sum::<usize>(), 1);
}

/// `kubectl wait` compares the two.
#[tokio::test(start_paused = true)]
async fn the_condition_observes_every_edit_of_the_claim() {
    let (world, calls) = (FLOW.world(), Calls::default());
    let _operator = world.start(&calls);
    FLOW.submit(&world);
    world.until("bound", World::is_bound).await;
    world.afterwards().await;
    for edit in [
        json!({ "spec": { "additionalConfig": {} } }),
        json!({ "spec": { "additionalConfig": { "color": " red " } } }),
        // As `kubectl replace` and Argo CD's Replace=true do with what Git has.
        json!({ "metadata": { "finalizers": null }, "spec": { "bucketName": null, "objectBucketName": null } }),
    ] {
        world.edit_claim(&edit);
        world.until("observed", |world| world.is_bound() && is_observed(&world.claim().unwrap_or_default())).await;
    }
    world.afterwards().await;
    assert!(is_observed(&world.claim().unwrap_or_default()), "{:#?}", world.claim());
}

/// A webhook refuses dry runs, or keeps them waiting: one of them shows it, and the edits do not wait for more.
#[rstest]
#[case::refused(Verdict::Answer(500))]
#[case::delayed(Verdict::Hang)]
#[tokio::test(start_paused = true)]
async fn edits_are_observed_although_dry_runs_fail(#[case] verdict: Verdict) {
    let (world, calls) = (FLOW.world(), Calls::default());
    let operator = world.start(&calls);
    let names: Vec<_> = (0..20).map(|nth| format!("photos-{nth}")).collect();
    let are_all = |world: &World, is_so: fn(&Value) -> bool| {
        names.iter().all(|name| world.claim_named(name).is_some_and(|claim| is_so(&claim)))
    };
    names.iter().for_each(|name| world.submit_named(name, json!({ "generateBucketName": "photos" })));
    world.until("bound", |world| are_all(world, |claim| ready(claim)["status"] == "True")).await;
    world.afterwards().await;
    drop(operator);
    let edit = json!({ "spec": { "additionalConfig": { "color": "red" } } });
    names.iter().for_each(|name| world.api.edit("objectbucketclaims", NAMESPACE, name, &edit));
    let calls = Calls::default();
    calls.begin(move |name| if name.starts_with(DRY_RUN) { verdict } else { Verdict::Pass });
    let began = Instant::now();
    let _operator = world.start(&calls);
    world.until("observed", |world| are_all(world, is_observed)).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    world.afterwards().await;
    let count = |what: &str| calls.all().iter().filter(|call| call.name.starts_with(what)).count();
    assert_eq!((count(DRY_RUN), count("patch objectbucketclaims/status")), (1, names.len()), "{:#?}", calls.all());
}

fn is_observed(claim: &Value) -> bool {
    ready(claim)["observedGeneration"] == claim["metadata"]["generation"]
}
