//! Lists and watches that lag behind: an operator sees an earlier state of some kinds, and only a get shows what is.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tokio::task::JoinSet;

use crate::calls::{Calls, Verdict};
use crate::flow::{Flow, Kind, Step};
use crate::world::World;

/// The kinds that are seen as they were.
const VIEWS: [&[&str]; 5] = [
    &["objectbucketclaims"],
    &["objectbuckets"],
    &["secrets", "configmaps"],
    &["objectbucketclaims", "objectbuckets"],
    &["objectbucketclaims", "objectbuckets", "secrets", "configmaps"],
];

fn freeze(world: &World, kinds: &[&str], version: impl Into<Option<usize>> + Copy) {
    kinds.iter().for_each(|kind| world.api.freeze(kind, version));
}

/// Starts an operator that sees some kinds as they were at a version, has it act on that, and then lets it see what is.
async fn settle(world: &World, kinds: &[&str], version: usize) {
    freeze(world, kinds, version);
    let _operator = world.start(&Calls::default());
    world.afterwards().await;
    freeze(world, kinds, None);
    world.afterwards().await;
}

/// Requires that no view of any version since the first one changes anything.
async fn assert_unchanged_by_views_since(world: &World, first: usize) {
    let (objects, stored) = (world.api.objects(), world.stored());
    for version in first..world.api.version() {
        for kinds in VIEWS {
            settle(world, kinds, version).await;
            assert_eq!(world.api.objects(), objects, "{kinds:?} at {version}");
            assert_eq!(world.stored(), stored, "{kinds:?} at {version}");
        }
    }
}

/// Has the flow happen. Returns the operator.
async fn run(flow: Flow, world: &World) -> JoinSet<()> {
    let operator = flow.begin(world, &Calls::default(), |_| Verdict::Pass).await;
    flow.end(world).await;
    operator
}

#[rstest]
#[case::bound(Flow { kind: Kind::Generated, step: Step::Provide })]
#[case::granted(Flow { kind: Kind::Brownfield, step: Step::Provide })]
#[case::shared(Flow { kind: Kind::Shared, step: Step::Provide })]
#[case::shared_limited(Flow { kind: Kind::Shared, step: Step::Limit })]
#[case::repaired(Flow { kind: Kind::Generated, step: Step::Repair })]
#[case::limited(Flow { kind: Kind::Generated, step: Step::Limit })]
#[case::painted(Flow { kind: Kind::Generated, step: Step::Paint })]
#[case::deleted(Flow { kind: Kind::Generated, step: Step::Remove })]
#[case::kept(Flow { kind: Kind::IfEmpty, step: Step::Remove })]
#[case::scheduled(Flow { kind: Kind::Later, step: Step::Remove })]
#[case::undone(Flow { kind: Kind::Later, step: Step::Undo })]
#[case::adopted(Flow { kind: Kind::Generated, step: Step::Adopt })]
#[case::orphan_removed(Flow { kind: Kind::Generated, step: Step::RemoveOrphan })]
#[case::forgotten(Flow { kind: Kind::Generated, step: Step::Forget })]
#[tokio::test(start_paused = true)]
async fn a_stale_view_of_a_claim_changes_nothing(#[case] flow: Flow) {
    let world = flow.world();
    let before = world.api.version();
    drop(run(flow, &world).await);
    assert_unchanged_by_views_since(&world, before).await;
    let _operator = world.start(&Calls::default());
    flow.assert_well(&world, true).await;
}

/// A claim is not taken for an earlier one of its name, with the same bucket.
#[tokio::test(start_paused = true)]
async fn a_stale_view_of_an_earlier_claim_changes_nothing() {
    let earlier = Flow { kind: Kind::Named, step: Step::Remove };
    let flow = Flow { step: Step::Provide, ..earlier };
    let world = flow.world();
    let before = world.api.version();
    drop(run(earlier, &world).await);
    drop(run(flow, &world).await);
    world.use_bucket();
    assert_unchanged_by_views_since(&world, before).await;
    world.assert_bound();
}

/// Nothing is created for an earlier claim of a name while a new one waits to be seen, and the new one gets a bucket of its
/// own.
#[tokio::test(start_paused = true)]
async fn a_stale_view_of_an_earlier_claim_creates_nothing() {
    let flow = Flow { kind: Kind::Generated, step: Step::Provide };
    let earlier = Flow { step: Step::Remove, ..flow };
    let world = flow.world();
    let before = world.api.version();
    drop(run(earlier, &world).await);
    let versions = before..world.api.version();
    for version in versions {
        let world = flow.world();
        drop(run(earlier, &world).await);
        flow.submit(&world);
        let submitted = world.claim();
        freeze(&world, &["objectbucketclaims"], version);
        let _operator = world.start(&Calls::default());
        world.afterwards().await;
        assert_eq!(world.claim(), submitted, "at {version}");
        world.assert_left(&[], 0, &["objectbucketclaims photos"]);
        freeze(&world, &["objectbucketclaims"], None);
        flow.end(&world).await;
        flow.assert_well(&world, true).await;
    }
}

/// The Secret of a deleted claim comes back, because the operator does not see yet that the claim is deleted.
#[tokio::test(start_paused = true)]
async fn a_deletion_noticed_late_removes_what_was_repaired() {
    let flow = Flow { kind: Kind::Generated, step: Step::Provide };
    let world = flow.world();
    let _operator = run(flow, &world).await;
    world.api.freeze("objectbucketclaims", world.api.version());
    world.delete_claim();
    world.delete_secret();
    world.until("repaired", World::has_working_key).await;
    world.api.freeze("objectbucketclaims", None);
    world.until("deleted", |world| world.claim().is_none()).await;
    world.afterwards().await;
    world.assert_left(&[], 0, &[]);
}

/// An admin edits a claim and confirms that with the annotation, and the operator sees the annotation first.
#[tokio::test(start_paused = true)]
async fn an_annotation_waits_for_the_edit_that_it_confirms() {
    let flow = Flow { kind: Kind::Generated, step: Step::Provide };
    let world = flow.world();
    let _operator = run(flow, &world).await;
    world.api.freeze("objectbucketclaims", world.api.version());
    world.edit_claim(&json!({ "spec": { "additionalConfig": { "serviceAccountName": "web" } } }));
    world.set_action("adopt");
    world.afterwards().await;
    assert!(world.has_action(), "the edit is not seen yet");
    world.api.freeze("objectbucketclaims", None);
    world.until("followed", |world| !world.has_action()).await;
    flow.assert_well(&world, true).await;
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn late_events_change_no_outcome(
    #[values(Kind::Generated, Kind::Named, Kind::Brownfield, Kind::Shared, Kind::Retain, Kind::IfEmpty)] kind: Kind,
    #[values(Step::Provide, Step::Remove, Step::Repair, Step::Rotate)] step: Step,
) {
    let flow = Flow { kind, step };
    for lag in [10, 1_000, 20_000].map(Duration::from_millis) {
        let world = flow.world();
        world.api.set_lag(lag);
        let _operator = run(flow, &world).await;
        flow.assert_well(&world, true).await;
    }
}
