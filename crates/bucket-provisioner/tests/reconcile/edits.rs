//! Claims and outputs that somebody edits.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::World;

const FLOW: Flow = Flow { kind: Kind::Generated, step: Step::Provide };

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

/// A webhook that refuses dry runs, or a busy API server, does not keep it from that.
#[tokio::test(start_paused = true)]
async fn an_edit_is_observed_although_the_dry_run_fails() {
    let (world, calls) = (FLOW.world(), Calls::default());
    let operator = world.start(&calls);
    FLOW.submit(&world);
    world.until("bound", World::is_bound).await;
    world.afterwards().await;
    drop(operator);
    world.edit_claim(&json!({ "spec": { "additionalConfig": { "color": "red" } } }));
    let calls = Calls::default();
    let mut is_first = true;
    calls.begin(move |name| {
        match name.starts_with("patch objectbucketclaims/status") && std::mem::take(&mut is_first) {
            true => Verdict::Answer(500),
            false => Verdict::Pass,
        }
    });
    let _operator = world.start(&calls);
    world.until("observed", |world| is_observed(&world.claim().unwrap_or_default())).await;
    let written = calls.all().iter().filter(|call| call.name.starts_with("patch objectbucketclaims/status")).count();
    assert_eq!(written, 2, "the dry run, and the edit");
}

fn is_observed(claim: &Value) -> bool {
    let mut conditions = claim["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    ready.is_some_and(|ready| ready["observedGeneration"] == claim["metadata"]["generation"])
}
