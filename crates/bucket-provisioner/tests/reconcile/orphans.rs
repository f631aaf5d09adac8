//! ObjectBuckets without their claims, while others act at the worst time.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::World;

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
