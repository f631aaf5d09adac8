//! A restart of the operator makes no calls for bound claims.

use super::run;
use crate::backend::{Ability, Backend};
use crate::proxy::Call;
use crate::stage::Stage;

/// After a restart nothing is read or written for a bound claim, neither in the cluster nor in the store.
pub fn a_restart_makes_no_calls_for_bound_claims<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Persistence], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let versions = async || [world.versions("photos").await, world.versions("second").await];
        let mut operator = stage.start();
        let app = stage.bind("photos", &class).await;
        // When a second claim is bound, whatever the first one's own writes woke has been dealt with.
        stage.forget_store_calls();
        stage.bind("second", &class).await;
        let of_one_claim = stage.store_writes().len();
        operator.terminate();
        operator.ended(crate::base::patience()).await;
        let (before, held) = (versions().await, stage.inventory().await);

        world.kubernetes.clear();
        stage.forget_store_calls();
        let operator = stage.start();
        // When a new claim is bound, the others have been reconciled.
        stage.bind("third", &class).await;
        assert_eq!(versions().await, before, "objects of bound claims are written");
        // ObjectBuckets have no namespace, and those of other worlds may be read.
        let is_others = |target: &str| target.contains("/objectbuckets/") && !target.contains(&*world.namespace);
        let is_about = |call: &Call| {
            let names = ["photos", &app["BUCKET_NAME"]];
            names.iter().any(|name| call.target.contains(name)) && !is_others(&call.target)
        };
        let mut calls = world.kubernetes.calls();
        calls.extend(stage.store.iter().flat_map(|store| store.calls()));
        calls.retain(is_about);
        assert!(calls.is_empty(), "a bound claim costs calls: {calls:#?}");
        assert_eq!(stage.store_writes().len(), of_one_claim, "changes for more than the new claim");
        let now = stage.inventory().await;
        for (name, bucket) in &held.buckets {
            assert_eq!(now.buckets.get(name), Some(bucket), "{name}");
        }
        for (name, user) in &held.users {
            assert_eq!(now.users.get(name), Some(user), "{name}");
        }
        stage.assert_usable(&app).await;
        operator.kill().await;
    });
}
