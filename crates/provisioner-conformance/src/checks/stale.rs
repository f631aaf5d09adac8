//! Lists and watches that lag behind.

use super::run;
use crate::backend::{Ability, Backend};
use crate::base::patience;
use crate::proxy::Call;
use crate::stage::Stage;
use crate::world::{View, Watched};

/// The views of a claim that lag: each kind on its own, and all of them.
const VIEWS: [&[Watched]; 5] = [
    &[Watched::Claims],
    &[Watched::Records],
    &[Watched::Secrets],
    &[Watched::ConfigMaps],
    &[Watched::Claims, Watched::Records, Watched::Secrets, Watched::ConfigMaps],
];

/// If the operator sees an earlier state of a bound claim or of its outputs, it changes nothing and creates nothing twice.
pub fn a_stale_view_of_a_bound_claim_changes_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Persistence], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        stage.claim("photos", &class).await;
        let mut views = Vec::new();
        for kinds in VIEWS {
            views.push(View::of(world, kinds).await);
        }
        let operator = stage.start();
        world.wait_bound("photos").await;
        world.wait_event("photos", "Bound").await;
        operator.kill().await;
        let events = world.events("photos").await;
        let (app, bound, held) =
            (world.environment("photos").await, world.versions("photos").await, stage.inventory().await);
        for view in views {
            settle(stage, view, &class).await;
            assert_eq!(world.versions("photos").await, bound);
            assert!(world.environment("photos").await == app, "its outputs are others");
            assert_eq!(world.events("photos").await, events);
            assert_eq!(stage.inventory().await, held);
        }
    });
}

/// If the operator still sees a claim that no longer exists, it creates nothing.
pub fn a_stale_view_of_a_deleted_claim_creates_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Persistence], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let operator = stage.start();
        stage.bind("photos", &class).await;
        let mut views = Vec::new();
        let outputs = [Watched::Claims, Watched::Secrets, Watched::ConfigMaps];
        for kinds in [&[Watched::Claims][..], &[Watched::Claims, Watched::Records], &outputs] {
            views.push(View::of(world, kinds).await);
        }
        stage.unbind("photos").await;
        world.wait_event("photos", "Removed").await;
        operator.kill().await;
        let events = world.events("photos").await;
        for view in views {
            settle(stage, view, &class).await;
            world.assert_no_objects("photos").await;
            assert_eq!(world.events("photos").await, events);
            assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
        }
    });
}

/// Starts an operator with this view, waits until it has acted on it, and then lets it see what is, and serve another
/// claim.
async fn settle<B: Backend>(stage: &Stage<B>, view: View, class: &str) {
    let world = &stage.world;
    let gate = view.show(world);
    world.kubernetes.clear();
    let mut operator = stage.start();
    let record = format!("/{}", world.record_name("photos"));
    let acts = |call: &Call| match call.name.as_str() {
        "get objectbuckets" => call.target.ends_with(&record),
        "patch objectbucketclaims" => call.target.contains("/photos"),
        _ => false,
    };
    world.kubernetes.wait_until("a call for the claim", |calls| calls.iter().any(acts)).await;
    gate.open();
    stage.bind("later", class).await;
    stage.unbind("later").await;
    operator.terminate();
    operator.ended(patience()).await;
    world.kubernetes.leave_alone();
}
