//! What is due at a time.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::World;

/// Neither later, because somebody may set the clock, nor more often.
#[tokio::test(start_paused = true)]
async fn a_scheduled_deletion_is_checked_every_hour() {
    let flow = Flow { kind: Kind::Later, step: Step::DeleteLater };
    let (world, calls) = (flow.world(), Calls::default());
    let _operator = world.start(&calls);
    flow.submit(&world);
    world.until("bound", World::is_bound).await;
    world.delete_claim();
    world.until("scheduled", |world| world.claim().is_none()).await;
    world.set_deletion(&(Timestamp::now() + SignedDuration::from_hours(7 * 24)));
    world.afterwards().await;
    calls.begin(|_| Verdict::Pass);
    sleep(Duration::from_secs(10 * 3600)).await;
    let checks = calls.all().iter().filter(|call| call.name.starts_with("get objectbuckets")).count();
    assert!((10..=11).contains(&checks), "{checks} checks in 10 hours");
}
