//! Removals: only what certainly no longer exists counts as removed, and the access ends first.

use serde_json::json;

use super::faults::Fault;
use super::run;
use super::steps::{Calls, Step, Times, at_each_step};
use crate::backend::{Ability, Backend, Inventory};
use crate::base::{patience, report};
use crate::stage::Stage;

/// The claim of these checks.
const CLAIM: &str = "photos";
const SEEN: [Ability; 2] = [Ability::Greenfield, Ability::Inventory];

/// The store fails at a call that reads, while a claim is deleted: that does not mean "not found". The claim stays, or all
/// that it had is removed nevertheless. For each call that reads.
pub fn a_failed_read_does_not_count_as_not_found<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(make, &SEEN, Calls::Reads, async |stage: &Stage<B>, step: &Step| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        let app = stage.bind(CLAIM, &class).await;
        stage.world.wait_event(CLAIM, "Bound").await;
        step.fail(stage, Times::Always, Fault::Status(500));
        stage.world.delete_claim(CLAIM).await;
        let is_kept = stage.is_kept(CLAIM, || step.failed() > 0).await;
        stage.leave_alone();
        if is_kept {
            stage.world.wait_gone(CLAIM).await;
        }
        stage.assert_store_empty("a call that failed was taken for \"not found\"").await;
        stage.assert_useless(&app).await;
    });
}

/// The store fails at a call that changes something, while a claim is deleted: as long as its keys work, its bucket is not
/// touched, and as long as the claim has anything, it exists. For each such call.
pub fn a_bucket_is_deleted_after_its_access<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(
        make,
        &[&SEEN[..], &[Ability::Apps]].concat(),
        Calls::Changes,
        async |stage: &Stage<B>, step: &Step| {
            let class = stage.greenfield().await;
            let operator = stage.start();
            let app = stage.bind(CLAIM, &class).await;
            stage.assert_usable(&app).await;
            stage.world.wait_event(CLAIM, "Bound").await;
            step.fail(stage, Times::Always, Fault::SlowStatus(500));
            stage.world.delete_claim(CLAIM).await;
            let is_kept = stage.is_kept(CLAIM, || step.failed() > 0).await;
            operator.kill().await;
            if is_kept {
                assert_bucket_outlives_access(stage, &app).await;
            }
            stage.leave_alone();
            let _operator = stage.start();
            stage.world.wait_gone(CLAIM).await;
            stage.assert_store_empty("something is left of a claim that no longer exists").await;
        },
    );
}

/// Requires that the bucket has its object as long as the keys work. No operator may run.
async fn assert_bucket_outlives_access<B: Backend>(stage: &Stage<B>, app: &crate::Outputs) {
    let name = &app["BUCKET_NAME"];
    let held = stage.inventory().await;
    if let Some(bucket) = held.buckets.get(name) {
        let works = stage.backend.list(app).await.is_ok();
        let is_whole = bucket.objects.iter().any(|object| object == "something");
        assert!(is_whole || !works, "the bucket is emptied, and its keys still work");
        return;
    }
    // Without the bucket nobody can see whether the keys work.
    stage.backend.create_bucket(name).await;
    let listed = stage.backend.list(app).await;
    let bucket = (name.clone(), crate::Bucket::default());
    stage.backend.remove(&Inventory { buckets: [bucket].into(), ..Inventory::default() }).await;
    assert!(listed.is_err(), "the bucket is deleted, and its keys still work");
}

/// The answer to a call is lost once, while a claim is deleted, though the store has done what was asked. All that the claim
/// had is removed, and the claim no longer exists. For each call that changes something.
pub fn a_removal_whose_answer_is_lost_is_completed<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(make, &SEEN, Calls::Changes, async |stage: &Stage<B>, step: &Step| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        stage.bind(CLAIM, &class).await;
        stage.world.wait_event(CLAIM, "Bound").await;
        step.fail(stage, Times::Once, Fault::LoseAnswer);
        stage.unbind(CLAIM).await;
        stage.assert_store_empty("something is left of a claim that no longer exists").await;
    });
}

/// A claim is deleted that another process has served, and whose class no longer exists: the ObjectBucket has all that is
/// needed.
pub fn a_claim_is_deleted_without_its_class<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Persistence], async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let mut operator = stage.start();
        let app = stage.bind(CLAIM, &class).await;
        stage.assert_usable(&app).await;
        operator.terminate();
        operator.ended(patience()).await;
        stage.world.delete_class(&class).await;
        let _operator = stage.start();
        stage.unbind(CLAIM).await;
        stage.assert_store_empty("something is left of a claim that no longer exists").await;
        stage.assert_useless(&app).await;
    });
}

/// The user of a claim was renamed, and its keys still work. While the claim has that access, it exists.
pub fn the_access_of_a_renamed_user_is_not_forgotten<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &SEEN, async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        let app = stage.bind(CLAIM, &class).await;
        let Some(user) = stage.only_user().await else { return };
        let other = stage.world.unique("renamed");
        if !stage.backend.rename_user(&user, &other).await {
            report("skipped, because the backend does not rename users");
            return;
        }
        stage.world.delete_claim(CLAIM).await;
        if stage.is_kept(CLAIM, || true).await {
            stage.backend.rename_user(&other, &user).await;
            stage.retry(CLAIM, "renamed").await;
            stage.world.wait_gone(CLAIM).await;
        }
        stage.assert_store_empty("access that still works was taken for removed").await;
        stage.assert_useless(&app).await;
    });
}

/// A user with the keys in the claim's Secret is the claim's own, even if it has no mark any more.
pub fn a_user_that_lost_its_marks_is_removed<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &SEEN, async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        let app = stage.bind(CLAIM, &class).await;
        let Some(user) = stage.only_user().await else { return };
        if !stage.backend.remove_marks(&user).await {
            report("skipped, because the backend does not remove marks");
            return;
        }
        stage.unbind(CLAIM).await;
        stage.assert_store_empty("the user with the claim's keys is left").await;
        stage.assert_useless(&app).await;
    });
}

/// Somebody has deleted the claim's bucket and created one of that name. It stays as it is when the claim is deleted.
pub fn a_foreign_bucket_that_replaced_the_claims_is_kept<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Tags, Ability::Inventory], async |stage: &Stage<B>| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        let _operator = stage.start();
        let bucket = world.unique("reports");
        world.claim_with(CLAIM, json!({ "storageClassName": class, "bucketName": bucket })).await;
        world.wait_bound(CLAIM).await;
        stage.replace_bucket(&bucket).await;
        let theirs = stage.inventory().await.buckets;
        world.delete_claim(CLAIM).await;
        stage.is_kept(CLAIM, || true).await;
        assert_eq!(
            stage.inventory().await.buckets,
            theirs,
            "somebody else's bucket has the claim's name, and is changed"
        );
    });
}

/// Somebody has deleted the claim's user and created one of that name. It stays as it is when the claim is deleted.
pub fn a_foreign_user_that_replaced_the_claims_is_kept<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &SEEN, async |stage: &Stage<B>| {
        let class = stage.greenfield().await;
        let _operator = stage.start();
        stage.bind(CLAIM, &class).await;
        if !stage.replace_user().await {
            return;
        }
        let theirs = stage.inventory().await.users;
        stage.world.delete_claim(CLAIM).await;
        stage.is_kept(CLAIM, || true).await;
        assert_eq!(
            stage.inventory().await.users,
            theirs,
            "somebody else's user has the name of the claim's, and is changed"
        );
    });
}

/// While no operator runs, somebody writes the key id of another claim of the same bucket into the Secret of a claim, and
/// deletes that claim. The other one keeps its access.
pub fn the_key_id_of_another_claim_revokes_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Brownfield, Ability::Apps, Ability::Persistence], async |stage: &Stage<B>| {
        let world = &stage.world;
        let bucket = world.unique("archive");
        stage.backend.create_bucket(&bucket).await;
        let class = stage.class("brownfield", "Delete", &[("bucketName", &bucket)]).await;
        let operator = stage.start();
        for claim in ["theirs", CLAIM] {
            world.claim_with(claim, json!({ "storageClassName": class })).await;
            world.wait_bound(claim).await;
        }
        let theirs = world.environment("theirs").await;
        operator.kill().await;
        let id = "AWS_ACCESS_KEY_ID";
        world.write_secret(CLAIM, [(id, &theirs[id])]).await;
        world.delete_claim(CLAIM).await;
        let _operator = stage.start();
        world.wait_gone(CLAIM).await;
        stage.assert_usable(&theirs).await;
    });
}

impl<B: Backend> Stage<B> {
    /// Deletes a bucket, and creates one of that name as somebody else.
    pub(super) async fn replace_bucket(&self, name: &str) {
        let bucket = (name.to_owned(), crate::Bucket::default());
        self.backend.remove(&Inventory { buckets: [bucket].into(), ..Inventory::default() }).await;
        self.backend.create_bucket(name).await;
    }

    /// Deletes the only user, and creates one of that name as somebody else; `false`, which is reported, if the backend cannot.
    pub(super) async fn replace_user(&self) -> bool {
        let held = self.inventory().await;
        let Some(user) = self.only_user().await else { return false };
        self.backend.remove(&Inventory { users: held.users, ..Inventory::default() }).await;
        let is_created = self.backend.create_user(&user).await;
        if !is_created {
            report("skipped, because the backend does not create users");
        }
        is_created
    }
}
