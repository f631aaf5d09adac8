//! ObjectBuckets without their claims, while others act at the worst time.

use std::time::Duration;

use bucket_provisioner::api::wire;
use serde_json::json;
use tokio::time::sleep;

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::{RECORD, World};

const FLOW: Flow = Flow { kind: Kind::Generated, step: Step::RemoveOrphan };

/// Otherwise its claim would be Ready while its objects are deleted.
#[tokio::test(start_paused = true)]
async fn a_bucket_is_not_adopted_while_it_is_removed() {
    let (world, calls) = (FLOW.world(), Calls::default());
    let late = |name: &str| if name == "store delete_bucket" { Verdict::Late } else { Verdict::Pass };
    let _operator = FLOW.begin(&world, &calls, late).await;
    while !calls.all().iter().any(|call| call.name == "store delete_bucket") {
        sleep(Duration::from_millis(1)).await;
    }
    world.submit(json!({ "generateBucketName": "photos" }));
    world.set_action("adopt");
    while !world.stored().buckets.is_empty() {
        assert!(!world.is_bound(), "{:#?}", world.claim());
        sleep(Duration::from_millis(100)).await;
    }
}

/// What runs has some seconds to end.
#[tokio::test(start_paused = true)]
async fn a_removal_that_runs_ends_before_the_operator() {
    let (world, calls) = (FLOW.world(), Calls::default());
    let shutdown = world.shutdown.clone();
    let rule = move |name: &str| {
        if name == "store revoke" {
            shutdown.send_replace(true);
        }
        Verdict::Pass
    };
    let mut operator = FLOW.begin(&world, &calls, rule).await;
    operator.join_next().await;
    let stored = world.stored();
    assert!(stored.users.is_empty() && stored.buckets.is_empty(), "{stored:#?}");
    assert!(world.record().is_none(), "{:#?}", world.record());
}

/// Nothing is remembered of a claim that vanished, and the store may not show yet what was just created for it.
#[tokio::test(start_paused = true)]
async fn access_that_the_store_does_not_show_yet_is_searched_again() {
    let world = FLOW.world();
    let _operator = world.start(&Calls::default());
    sleep(Duration::from_secs(3600)).await;
    FLOW.submit(&world);
    world.until("bound", World::is_bound).await;
    let users = world.stored().users;
    world.store.contents.lock().users.retain(|name, _| !users.contains_key(name));
    world.force_out_claim();
    // Half of the store's lag.
    sleep(Duration::from_secs(5)).await;
    world.store.contents.lock().users.extend(users);
    world.afterwards().await;
    assert!(world.stored().users.is_empty(), "{:#?}", world.record());
}

/// A report about a claim that is not its own would be written into it.
#[tokio::test(start_paused = true)]
async fn a_record_that_became_another_provisioners_is_left_alone() {
    const OTHER: &str = "other.example.com/s3";
    let flow = Flow { step: Step::Vanish, ..FLOW };
    let (world, calls) = (flow.world(), Calls::default());
    let api = world.api.clone();
    // The cache still shows the operator's own when it reads this one.
    let replace = move |name: &str| {
        if name == format!("get objectbuckets {RECORD}") {
            let mut record = api.get("objectbuckets", "", RECORD).expect("the record");
            if record["spec"]["additionalState"][wire::state::PROVISIONER] != OTHER {
                api.delete_by_force("objectbuckets", "", RECORD);
                record["spec"]["additionalState"][wire::state::PROVISIONER] = json!(OTHER);
                record["status"] = json!(null);
                record["metadata"] = json!({
                    "name": RECORD,
                    "labels": { wire::PROVISIONER_LABEL: wire::provisioner_label(OTHER) },
                });
                api.create("objectbuckets", "", record);
            }
        }
        Verdict::Pass
    };
    let _operator = flow.begin(&world, &calls, replace).await;
    world.afterwards().await;
    let record = world.record().expect("the other provisioner's");
    assert_eq!(record["spec"]["additionalState"][wire::state::PROVISIONER], OTHER, "{record:#}");
    assert_eq!([&record["metadata"]["annotations"], &record["status"]], [&json!(null); 2], "{record:#}");
    assert_eq!(world.stored().buckets.len(), 1);
}

/// It asks for its ObjectBucket before that exists.
#[tokio::test(start_paused = true)]
async fn a_new_claim_costs_no_check_of_an_orphan() {
    let flow = Flow { step: Step::Provide, ..FLOW };
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = flow.begin(&world, &calls, |_| Verdict::Pass).await;
    world.until("bound", World::is_bound).await;
    world.afterwards().await;
    // An attempt knows its claim from the cache.
    let checks = calls.all().into_iter().filter(|call| call.name == "get objectbucketclaims photos").count();
    assert_eq!(checks, 0, "{:#?}", calls.all());
}

/// The watch shows it before that write is answered.
#[tokio::test(start_paused = true)]
async fn an_action_that_is_set_after_a_write_is_seen() {
    let flow = Flow { step: Step::Provide, ..FLOW };
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = flow.begin(&world, &calls, |_| Verdict::Pass).await;
    world.until("bound", World::is_bound).await;
    world.afterwards().await;
    let mut is_late = false;
    calls.begin(move |name| match name == format!("patch objectbuckets {RECORD}") && !is_late {
        true => {
            is_late = true;
            Verdict::LateAnswer
        }
        false => Verdict::Pass,
    });
    for action in ["remove", "revoke"] {
        world.set_action(action);
        world.until("refused", |world| !world.has_action()).await;
    }
    assert!(world.record_reports("ClaimExists"), "{:#?}", world.record());
}
