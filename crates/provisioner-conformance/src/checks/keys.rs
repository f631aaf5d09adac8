//! Keys: to which user and for which bucket they are issued, and which are kept.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::faults::Fault;
use super::run;
use super::steps::{Calls, Step, Times, at_each_step, is_unready};
use crate::backend::{Ability, Backend};
use crate::stage::Stage;
use bucket_provisioner::api::ObjectBucketClaim;

const CLAIM: &str = "photos";
const KEY_ID: &str = "AWS_ACCESS_KEY_ID";

/// Somebody has deleted the claim's bucket and created one of that name. When the claim needs new keys, it gets none that
/// open this bucket, and is not ready.
pub fn no_keys_are_issued_for_a_foreign_bucket<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags, Ability::Inventory], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        let bucket = world.unique("reports");
        world.claim_with(CLAIM, json!({ "storageClassName": class, "bucketName": bucket })).await;
        world.wait_bound(CLAIM).await;
        stage.replace_bucket(&bucket).await;
        let theirs = stage.inventory().await.buckets;
        assert_no_new_keys(stage, "keys are issued for a bucket of somebody else").await;
        assert_eq!(stage.inventory().await.buckets, theirs, "the bucket of somebody else is changed");
    });
}

/// Somebody has deleted the claim's user and created one of that name. When the claim needs new keys, that user gets none,
/// and the claim is not ready.
pub fn no_keys_are_issued_to_a_foreign_user<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Inventory], async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        stage.bind(CLAIM, &class).await;
        if !stage.replace_user().await {
            return;
        }
        let theirs = stage.inventory().await.users;
        assert_no_new_keys(stage, "keys are issued to a user of somebody else").await;
        assert_eq!(stage.inventory().await.users, theirs, "the user of somebody else is changed");
    });
}

/// Deletes the claim's Secret, and requires that the claim gets no other one and is not ready.
async fn assert_no_new_keys<B: Backend>(stage: &Stage<B>, what: &str) {
    let world = &stage.world;
    world.wait_event(CLAIM, "Bound").await;
    world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap();
    let issued = world.wait_secret(CLAIM, |entries| entries.contains_key(KEY_ID));
    let not_ready = world.wait_claim(CLAIM, "not ready", is_unready);
    tokio::select! {
        () = issued => panic!("{what}"),
        _ = not_ready => {}
    }
}

/// Of a class that names another claim's bucket no claim gets access.
pub fn a_class_that_names_a_claims_bucket_is_refused<B: Backend>(make: &impl AsyncFn() -> B) {
    let needs = [Ability::Greenfield, Ability::Brownfield, Ability::Tags, Ability::Inventory];
    run(make, &needs, async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        let app = stage.bind("first", &class).await;
        stage.assert_usable(&app).await;
        let before = stage.inventory().await;
        let class = stage.class("thief", "Delete", &[("bucketName", &app["BUCKET_NAME"])]).await;
        assert_refused(stage, &class, &app["BUCKET_NAME"]).await;
        stage.unbind(CLAIM).await;
        assert_eq!(stage.inventory().await, before, "what the other claim has is changed");
        stage.assert_usable(&app).await;
    });
}

/// Of a class that names a bucket which does not exist no claim is bound, and nothing is created.
pub fn a_class_that_names_a_missing_bucket_is_refused<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Inventory], async |stage: &Stage<B>| {
        let bucket = stage.world.unique("missing");
        let class = stage.class("missing", "Delete", &[("bucketName", &bucket)]).await;
        let _operator = stage.start();
        assert_refused(stage, &class, &bucket).await;
        stage.unbind(CLAIM).await;
        stage.assert_store_empty("something is created").await;
    });
}

/// Requires that a claim of the class is not bound, and names the bucket.
async fn assert_refused<B: Backend>(stage: &Stage<B>, class: &str, bucket: &str) {
    use crate::world::{assert_contains, phase, ready};
    use bucket_provisioner::api::ClaimPhase;
    stage.world.claim_with(CLAIM, json!({ "storageClassName": class })).await;
    let is_over = |claim: &ObjectBucketClaim| phase(claim) == Some(ClaimPhase::Bound) || is_unready(claim);
    let claim = stage.world.wait_claim(CLAIM, "refused", is_over).await;
    assert_ne!(phase(&claim), Some(ClaimPhase::Bound), "the claim gets access to bucket {bucket}");
    assert_contains(&ready(&claim).expect("a Ready condition").message, &[bucket]);
}

/// A check of the store keeps the keys that were replaced as long as their time lasts.
pub fn a_check_keeps_keys_in_their_grace_period<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Rotation, Ability::Http], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        let previous = stage.bind(CLAIM, &class).await;
        let ask = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } });
        world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
        world.wait_secret(CLAIM, |keys| keys.get(KEY_ID).is_some_and(|id| *id != previous[KEY_ID])).await;
        world.wait_event(CLAIM, "KeysRotated").await;
        stage.check(CLAIM, "check").await;
        stage.assert_usable(&previous).await;
        stage.assert_usable(&world.environment(CLAIM).await).await;
    });
}

/// The store fails at a call that reads, while a bound claim is checked: its keys are not lost, and are not replaced. For
/// each such call.
pub fn a_failed_read_replaces_no_keys<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(make, &[Ability::Greenfield], Calls::Reads, async |stage: &Stage<B>, step: &Step| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        let before = stage.bind(CLAIM, &class).await;
        world.wait_event(CLAIM, "Bound").await;
        step.fail(stage, Times::Always, Fault::Status(500));
        let checked = async {
            stage.check(CLAIM, "failing").await;
            stage.leave_alone();
            stage.check(CLAIM, "again").await;
        };
        let replaced = world.wait_secret(CLAIM, |keys| keys.get(KEY_ID).is_some_and(|id| *id != before[KEY_ID]));
        tokio::select! {
            () = checked => {}
            () = replaced => panic!("keys were replaced because the store did not answer"),
        }
        stage.assert_usable(&before).await;
    });
}
