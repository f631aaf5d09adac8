//! What a claim reports that is not bound: its phase, and its condition Ready.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use rstest::rstest;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::{CLAIM, EXISTING, NAMESPACE, World, phase, ready};

const RIVAL: &str = "pictures";
const FLOW: Flow = Flow { kind: Kind::Generated, step: Step::Provide };
const NAMED: Flow = Flow { kind: Kind::Named, ..FLOW };
/// More than any claim takes to its first call to the store.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has an operator fail at this call.
fn start(world: &World, call: &'static str, verdict: Verdict) -> (JoinSet<()>, Calls) {
    let calls = Calls::default();
    calls.begin(move |name| if name == call { verdict } else { Verdict::Pass });
    (world.start(&calls), calls)
}

/// The phase and the reason of a claim when it reports a problem.
async fn problem(world: &World, claim: &str) -> (String, String) {
    let reported = |world: &World| {
        let claim = world.claim_named(claim)?;
        let reason = ready(&claim)["reason"].as_str().filter(|reason| !["Pending", "Provisioning"].contains(reason))?;
        Some((phase(&claim).as_str()?.to_owned(), reason.to_owned()))
    };
    world.until("reported", |world| reported(world).is_some()).await;
    reported(world).expect("a report")
}

fn has(phase: &str, reason: &str) -> (String, String) {
    (phase.to_owned(), reason.to_owned())
}

/// Otherwise tools take it for ready.
#[tokio::test(start_paused = true)]
async fn a_claim_is_unready_before_anything_is_created() {
    let world = FLOW.world();
    world.api.drop_default_condition();
    FLOW.submit(&world);
    let (_operator, calls) = start(&world, "store create_bucket", Verdict::StopBefore);
    timeout(PATIENCE, calls.stopped()).await.expect("stopped");
    let claim = world.claim().expect("a claim");
    assert_eq!([&ready(&claim)["status"], &ready(&claim)["reason"]], ["False", "Provisioning"], "{claim:#}");
}

#[tokio::test(start_paused = true)]
async fn our_crd_saves_the_first_report() {
    let world = FLOW.world();
    FLOW.submit(&world);
    let (_operator, calls) = start(&world, "store create_bucket", Verdict::StopBefore);
    timeout(PATIENCE, calls.stopped()).await.expect("stopped");
    let claim = world.claim().expect("a claim");
    assert_eq!([&ready(&claim)["status"], &ready(&claim)["reason"]], ["Unknown", "Pending"], "{claim:#}");
    let is_report = |name: &str| name.starts_with("patch objectbucketclaims/status");
    assert!(!calls.all().iter().any(|call| is_report(&call.name)), "{:#?}", calls.all());
}

/// What an admin corrects ends by itself; a name that is another's does not.
#[rstest]
#[case::denied("photos", ("Pending", "Denied"))]
#[case::taken(EXISTING, ("Failed", "Taken"))]
#[tokio::test(start_paused = true)]
async fn only_a_claim_that_must_be_changed_has_failed(#[case] bucket: &str, #[case] reported: (&str, &str)) {
    let world = FLOW.world();
    world.submit(json!({ "bucketName": bucket }));
    let verdict = if bucket == EXISTING { Verdict::Pass } else { Verdict::Answer(403) };
    let (_operator, _) = start(&world, "store create_bucket", verdict);
    assert_eq!(problem(&world, CLAIM).await, has(reported.0, reported.1));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_of_a_live_claim_fails_the_next() {
    let world = NAMED.world();
    let _operator = world.start(&Calls::default());
    NAMED.submit(&world);
    world.until("bound", World::is_bound).await;
    world.submit_named(RIVAL, json!({ "bucketName": "photos" }));
    assert_eq!(problem(&world, RIVAL).await, has("Failed", "Taken"));
}

/// It is free when the deletion ends, whether that runs or is scheduled.
#[rstest]
#[case::being_deleted(Kind::Named)]
#[case::scheduled(Kind::Later)]
#[tokio::test(start_paused = true)]
async fn a_bucket_of_a_deleted_claim_is_waited_for(#[case] kind: Kind) {
    let world = Flow { kind, ..FLOW }.world();
    let (_operator, calls) = start(&world, "store delete_bucket", Verdict::Answer(500));
    NAMED.submit(&world);
    world.until("bound", World::is_bound).await;
    world.delete_claim();
    world.afterwards().await;
    world.submit_named(RIVAL, json!({ "bucketName": "photos" }));
    assert_eq!(problem(&world, RIVAL).await, has("Pending", "Taken"));
    calls.begin(|_| Verdict::Pass);
    if kind == Kind::Later {
        world.set_deletion(&Timestamp::now());
    }
    let is_bound = |world: &World| world.claim_named(RIVAL).is_some_and(|claim| phase(&claim) == "Bound");
    world.until("bound", is_bound).await;
}

/// Users can write the status.
#[tokio::test(start_paused = true)]
async fn a_forged_phase_does_not_open_a_class() {
    let world = World::new(json!({ "parameters": { "allowedNamespaceSelector": "!team" } }));
    world.api.edit("namespaces", "", NAMESPACE, &json!({ "metadata": { "labels": { "team": "shop" } } }));
    FLOW.submit(&world);
    world.api.edit_status("objectbucketclaims", NAMESPACE, CLAIM, &json!({ "phase": "Bound" }));
    let _operator = world.start(&Calls::default());
    assert_eq!(problem(&world, CLAIM).await, has("Bound", "NamespaceNotAllowed"));
    world.afterwards().await;
    assert!(world.record().is_none() && world.stored().buckets.is_empty(), "{:#?}", world.record());
}

/// Nothing has labels that do not exist, so `!team` would allow them.
#[tokio::test(start_paused = true)]
async fn a_selector_allows_no_namespace_that_does_not_exist() {
    let world = World::new(json!({ "parameters": { "allowedNamespaceSelector": "!team" } }));
    world.api.delete("namespaces", "", NAMESPACE);
    FLOW.submit(&world);
    let _operator = world.start(&Calls::default());
    assert_eq!(problem(&world, CLAIM).await, has("Pending", "NamespaceNotAllowed"));
}
