//! A claim that comes back from a backup.

use kube::ResourceExt as _;

use super::run;
use crate::backend::{Ability, Backend};
use crate::stage::Stage;

/// A claim and its ObjectBucket are restored from a backup, with other uids. They wait for an admin's annotation, and then
/// keep bucket, user and keys. Nothing is recreated, and all of it is deleted with the claim.
pub fn a_restored_claim_waits_for_its_annotation_and_adopts<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Persistence], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let operator = stage.start();
        let app = stage.bind("photos", &class).await;
        stage.assert_usable(&app).await;
        let record = world.record_name("photos");
        operator.kill().await;
        let (held, backup) = (stage.inventory().await, world.back_up("photos").await);
        world.lose("photos").await;

        let operator = stage.start();
        for object in [&backup.secret, &backup.config_map, &backup.record, &backup.claim] {
            world.restore(object).await;
        }
        world.wait_reason("photos", "AdoptionNeeded").await;
        world.wait_orphaned(&record, "ClaimReplaced").await;
        stage.bind("other", &class).await;
        stage.unbind("other").await;
        assert_eq!(stage.inventory().await, held, "nothing was done meanwhile");

        world.set_action(&record, "adopt").await;
        world.wait_action_removed(&record).await;
        world.wait_reason("photos", "Bound").await;
        world.wait_event("photos", "Adopted").await;
        let adopted = world.environment("photos").await;
        assert_eq!(adopted["BUCKET_NAME"], app["BUCKET_NAME"]);
        assert_eq!(adopted["AWS_ACCESS_KEY_ID"], app["AWS_ACCESS_KEY_ID"], "apps keep their keys");
        stage.assert_usable(&adopted).await;
        if stage.can(Ability::Inventory) {
            let now = stage.inventory().await;
            assert!(now.buckets.keys().eq(held.buckets.keys()), "no second bucket: {now:?}");
            assert!(now.users.keys().eq(held.users.keys()), "no second user: {now:?}");
        }
        stage.unbind("photos").await;
        stage.assert_useless(&app).await;
        assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
        operator.kill().await;
    });
}

/// A claim was deleted by force, and another one of its name is created: it gets a bucket of its own.
pub fn a_new_claim_with_an_old_name_inherits_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Persistence], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let operator = stage.start();
        let app = stage.bind("photos", &class).await;
        stage.assert_usable(&app).await;
        operator.kill().await;
        world.forget_object(&world.claims(), "photos").await;
        let operator = stage.start();
        let uid = stage.claim("photos", &class).await.uid().unwrap();
        world.wait_bound("photos").await;
        let own = world.environment("photos").await;
        assert_ne!(own["BUCKET_NAME"], app["BUCKET_NAME"]);
        world.wait_orphaned(&world.record_name("photos"), "ClaimReplaced").await;
        world.delete_claim("photos").await;
        world.wait_gone("photos").await;
        if stage.can(Ability::Inventory) {
            let left = stage.inventory().await;
            assert!(left.buckets.contains_key(&app["BUCKET_NAME"]), "the previous claim's bucket is kept: {left:?}");
            assert!(left.users.keys().all(|user| !user.contains(&uid)), "{left:?}");
        }
        operator.kill().await;
    });
}
