//! A snapshot of etcd sets the cluster back to any version since the claim was submitted. The store is as it was.

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::World;

const FLOW: Flow = Flow { kind: Kind::Generated, step: Step::Provide };

/// Versions of a world without a claim, and then of each change until it is bound.
async fn versions() -> std::ops::Range<usize> {
    let world = FLOW.world();
    let before = world.api.version();
    let _operator = FLOW.begin(&world, &Calls::default(), |_| Verdict::Pass).await;
    FLOW.end(&world).await;
    before + 1..world.api.version()
}

/// A bound claim whose bucket is used, as it was at a version. No operator runs.
async fn set_back(version: usize) -> World {
    let world = FLOW.world();
    let operator = FLOW.begin(&world, &Calls::default(), |_| Verdict::Pass).await;
    FLOW.end(&world).await;
    world.use_bucket();
    drop(operator);
    world.api.set_back(version);
    world
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_set_back_is_bound_to_its_bucket() {
    for version in versions().await {
        println!("{version}");
        let world = set_back(version).await;
        let _operator = world.start(&Calls::default());
        FLOW.end(&world).await;
        world.assert_bound();
        let contents: Vec<_> = world.stored().buckets.into_values().map(|bucket| bucket.objects).collect();
        assert_eq!(contents, [["mine"]]);
    }
}

/// Unless its ObjectBucket tells that apps may have used the bucket.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_set_back_does_not_lose_its_content() {
    for version in versions().await {
        println!("{version}");
        let world = set_back(version).await;
        let was_published = world.is_published();
        world.delete_claim();
        let _operator = world.start(&Calls::default());
        world.until("deleted", |world| world.claim().is_none()).await;
        world.afterwards().await;
        let contents: Vec<_> = world.stored().buckets.into_values().map(|bucket| bucket.objects).collect();
        assert_eq!(contents, if was_published { vec![] } else { vec![["mine"]] });
    }
}
