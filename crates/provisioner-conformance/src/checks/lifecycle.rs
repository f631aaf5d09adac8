//! From claim to usable bucket and back.

use kube::ResourceExt as _;
use serde_json::json;

use super::run;
use crate::backend::{Ability, Backend, Inventory};
use crate::stage::Stage;
use crate::world::{assert_contains, bucket_of, phase};
use bucket_provisioner::api::wire;
use bucket_provisioner::api::{BucketPhase, ClaimPhase};

/// A bucket can be used when its claim is bound, and is deleted with it, as is its user.
pub fn a_bucket_is_usable_when_bound_and_deleted_with_its_claim<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        stage.create_unrelated_objects().await;
        let before = stage.footprint().await;
        let _operator = stage.start();
        let app = stage.bind("photos", &class).await;
        let claim = world.claims().get("photos").await.unwrap();
        assert_eq!(bucket_of(&claim), app["BUCKET_NAME"]);
        assert_eq!(claim.spec.object_bucket_name.as_deref(), Some(world.record_name("photos").as_str()));
        assert_eq!(claim.finalizers(), [wire::FINALIZER]);
        let record = world.records().get(&world.record_name("photos")).await.unwrap();
        assert_eq!(record.status.unwrap().phase, Some(BucketPhase::Bound));
        for key in ["BUCKET_HOST", "BUCKET_PORT", "BUCKET_NAME", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
            assert!(app.get(key).is_some_and(|value| !value.is_empty()), "apps have no {key}");
        }
        stage.assert_usable(&app).await;
        if stage.can(Ability::Inventory) {
            let made = stage.footprint().await.beyond(&before).store;
            assert!(made.buckets.keys().eq([&app["BUCKET_NAME"]]), "one bucket, not {made:?}");
            assert!(made.users.len() <= 1, "one user, not {made:?}");
            let keys: Vec<_> = made.users.values().flat_map(|user| &user.keys).collect();
            assert_eq!(keys, [&app["AWS_ACCESS_KEY_ID"]], "one key");
        }
        stage.unbind("photos").await;
        stage.assert_useless(&app).await;
        assert_eq!(stage.footprint().await, before, "only what was there before is left, as it was");
        world.wait_event("photos", "Removed").await;
        let events = world.events("photos").await;
        assert!(events.iter().all(|(type_, ..)| type_ == "Normal"), "{events:?}");
    });
}

/// A claim can choose the name of its bucket.
pub fn a_bucket_has_exactly_the_name_that_its_claim_chose<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        let bucket = world.unique("reports");
        world.claim_with("reports", json!({ "storageClassName": class, "bucketName": bucket })).await;
        assert_eq!(bucket_of(&world.wait_bound("reports").await), bucket);
        stage.assert_usable(&world.environment("reports").await).await;
        stage.unbind("reports").await;
        assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
    });
}

/// The keys of one claim do not open the bucket of another.
pub fn keys_open_no_bucket_of_another_claim<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Apps], async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        let (first, second) = (stage.bind("first", &class).await, stage.bind("second", &class).await);
        assert_ne!(first["BUCKET_NAME"], second["BUCKET_NAME"]);
        assert_ne!(first["AWS_ACCESS_KEY_ID"], second["AWS_ACCESS_KEY_ID"]);
        stage.assert_usable(&first).await;
        stage.assert_usable(&second).await;
        stage.backend.put(&first, "own").await.unwrap();
        // The keys of the first, and all else of the second.
        let mut thief = first.clone();
        thief.extend(stage.world.config_map_entries("second").await);
        thief.insert("BUCKET_NAME".to_owned(), second["BUCKET_NAME"].clone());
        let listed = stage.backend.list(&thief).await;
        if let Ok(objects) = &listed {
            let is_own = objects.contains(&"own".to_owned());
            assert!(
                !is_own,
                "the backend's `list` does not use BUCKET_NAME, which the kit has replaced: it lists {objects:?}"
            );
        }
        assert!(listed.is_err(), "keys of one claim list the bucket of another: {listed:?}");
        let put = stage.backend.put(&thief, "theft").await;
        assert!(put.is_err(), "keys of one claim write into the bucket of another, or `put` does not use BUCKET_NAME");
        // Deleting one claim leaves the other one's access in place.
        stage.unbind("first").await;
        stage.assert_usable(&second).await;
    });
}

/// Each claim of a class that names a bucket gets keys of its own; the bucket stays as it is, and outlives the claims.
pub fn claims_share_an_existing_bucket_with_separate_keys<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], async |stage: &Stage<B>| {
        let world = &stage.world;
        let bucket = world.unique("archive");
        stage.backend.create_bucket(&bucket).await;
        let before = stage.inventory().await;
        let class = stage.class("brownfield", "Delete", &[("bucketName", &bucket)]).await;
        let _operator = stage.start();
        let mut apps = Vec::new();
        for claim in ["first", "second"] {
            world.claim_with(claim, json!({ "storageClassName": class })).await;
            world.wait_bound(claim).await;
            apps.push(world.environment(claim).await);
        }
        assert!(apps.iter().all(|app| app["BUCKET_NAME"] == bucket));
        assert_ne!(apps[0]["AWS_ACCESS_KEY_ID"], apps[1]["AWS_ACCESS_KEY_ID"]);
        if stage.can(Ability::Apps) {
            for app in &apps {
                assert_eq!(stage.backend.list(app).await, Ok(vec!["theirs".to_owned()]));
            }
        }
        stage.assert_usable(&apps[0]).await;
        stage.unbind("first").await;
        stage.assert_useless(&apps[0]).await;
        if stage.can(Ability::Apps) {
            stage.backend.list(&apps[1]).await.expect("the other claim's keys still work");
        }
        stage.unbind("second").await;
        stage.assert_useless(&apps[1]).await;
        let mut left = stage.inventory().await;
        if stage.can(Ability::Apps) {
            let objects = &mut left.buckets.get_mut(&bucket).expect("the bucket").objects;
            assert_eq!(*objects, ["something", "theirs"], "it is as its claims left it");
            objects.remove(0);
        }
        assert_eq!(left, before, "the bucket is as it was");
    });
}

/// A claim that names another one has keys of its own for the bucket of that one. Whichever is deleted first, the other keeps
/// its access, and the bucket is deleted with the last.
pub fn claims_share_a_created_bucket_until_the_last_is_deleted<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::SharedBuckets, Ability::Greenfield, Ability::Inventory], async |stage: &Stage<B>| {
        let world = &stage.world;
        let class = stage.class("shared", "Delete", &[("claimsMaySet", "bucketClaimName")]).await;
        let before = stage.inventory().await;
        let _operator = stage.start();
        let share = async |guest: &str, creator: &str| {
            let config = json!({ "bucketClaimName": creator });
            world.claim_with(guest, json!({ "storageClassName": class, "additionalConfig": config })).await;
        };
        // The order of the claims does not matter.
        share("guest", "creator").await;
        world.wait_reason("guest", "BucketClaimNotFound").await;
        let creator = stage.bind("creator", &class).await;
        world.wait_bound("guest").await;
        let guest = world.environment("guest").await;
        assert_eq!(guest["BUCKET_NAME"], creator["BUCKET_NAME"]);
        assert_ne!(guest["AWS_ACCESS_KEY_ID"], creator["AWS_ACCESS_KEY_ID"]);
        stage.assert_usable(&creator).await;
        if stage.can(Ability::Apps) {
            assert_eq!(stage.backend.list(&guest).await, Ok(vec!["something".to_owned()]));
        }
        share("visitor", "creator").await;
        world.wait_bound("visitor").await;
        stage.unbind("visitor").await;
        // The bucket is in use.
        world.delete_claim("creator").await;
        world.wait_reason("creator", "BucketInUse").await;
        stage.assert_useless(&creator).await;
        stage.assert_usable(&guest).await;
        stage.unbind("guest").await;
        world.wait_gone("creator").await;
        assert_eq!(stage.inventory().await, before, "all is deleted with the last claim");
    });
}

/// With the reclaim policy Retain, access is revoked with the claim, and the bucket with all its objects stays.
pub fn retain_revokes_the_access_and_keeps_the_bucket<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], async |stage: &Stage<B>| {
        let class = stage.class("retain", "Retain", &[]).await;
        let _operator = stage.start();
        let app = stage.bind("ledger", &class).await;
        stage.assert_usable(&app).await;
        let with_claim = stage.inventory().await;
        stage.unbind("ledger").await;
        stage.assert_useless(&app).await;
        let left = stage.inventory().await;
        assert!(left.users.is_empty(), "the user is left: {left:?}");
        let objects = |inventory: &Inventory| inventory.buckets[&app["BUCKET_NAME"]].objects.clone();
        assert_eq!(objects(&left), objects(&with_claim), "it is as its claim left it");
        let (_, note) = stage.world.wait_event("ledger", "Removed").await;
        assert_contains(&note, &["Retain", &app["BUCKET_NAME"]]);
    });
}

/// A bucket that holds something is kept where the operator asks for that ([`Content::Keep`](bucket_provisioner::store::Content::Keep)), and an
/// empty one is deleted.
pub fn on_delete_if_empty_keeps_a_bucket_with_objects<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory, Ability::Apps], async |stage: &Stage<B>| {
        let world = &stage.world;
        let class = stage.class("if-empty", "Delete", &[("onDelete", "ifEmpty")]).await;
        let _operator = stage.start();
        let (empty, full) = (stage.bind("empty", &class).await, stage.bind("full", &class).await);
        stage.backend.put(&full, "precious").await.unwrap();
        for claim in ["empty", "full"] {
            world.delete_claim(claim).await;
            world.wait_gone(claim).await;
        }
        stage.assert_useless(&full).await;
        let kept = stage.inventory().await.buckets.remove(&full["BUCKET_NAME"]);
        assert_eq!(kept.expect("the bucket with content is kept").objects, ["precious"], "its content is kept");
        let record = world.record_name("full");
        assert_contains(&world.wait_orphaned(&record, "BucketNotEmpty").await, &[&full["BUCKET_NAME"]]);
        let left = stage.inventory().await;
        assert!(left.users.is_empty(), "a user is left: {left:?}");
        assert!(!left.buckets.contains_key(&empty["BUCKET_NAME"]), "the empty bucket is left");
        assert_eq!(left.buckets[&full["BUCKET_NAME"]].objects, ["precious"]);
        world.set_action(&record, "remove").await;
        world.wait_record_gone(&record).await;
        assert!(stage.inventory().await.is_empty(), "{:?}", stage.inventory().await);
    });
}

/// Claims of other provisioners are not touched.
pub fn a_claim_of_another_provisioner_is_ignored<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, ours) = (&stage.world, stage.greenfield().await);
        let theirs = world.unique("theirs");
        let class = json!({ "metadata": { "name": theirs }, "provisioner": "another.example.com/bucket" });
        world.create_class(class).await;
        let _operator = stage.start();
        let foreign = stage.claim("foreign", &theirs).await;
        // Once a later claim is bound, the foreign one has been reconciled.
        stage.bind("own", &ours).await;
        let now = world.claims().get("foreign").await.unwrap();
        assert_eq!(now.resource_version(), foreign.resource_version());
        assert!(world.events("foreign").await.is_empty());
        assert_eq!(phase(&now), None::<ClaimPhase>);
    });
}
