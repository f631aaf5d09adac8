//! Creations that fail: nothing is left of them, nothing is created twice, and the claim's message stays the same.

use kube::ResourceExt as _;
use serde_json::json;

use super::faults::Fault;
use super::steps::{Calls, Step, Times, at_each_step, is_unready};
use super::{run, steps};
use crate::backend::{Ability, Backend};
use crate::stage::Stage;
use crate::world::{assert_hidden, phase, ready};
use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};

/// The answer to a call is lost each time, though the store has done what was asked, and the claim is deleted. Nothing is
/// left. For each call that changes something.
///
/// After a lost answer nothing is certain: it is never
/// [`CreateError::Refused`](bucket_provisioner::store::CreateError::Refused).
pub fn a_creation_whose_answer_is_lost_leaves_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(make, &GREENFIELD, Calls::Changes, async |stage: &Stage<B>, step: &Step| {
        withdraw(stage, step, Fault::LoseAnswer, &[]).await;
    });
}

/// The store fails at a call, and the claim is deleted. Nothing is left of what was created before that call. For each call
/// that changes something.
pub fn a_creation_that_fails_leaves_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(make, &GREENFIELD, Calls::Changes, async |stage: &Stage<B>, step: &Step| {
        withdraw(stage, step, Fault::Status(500), &[]).await;
    });
}

/// The same for access to a bucket that existed before, which stays as it is, also if the store refuses the call.
pub fn access_that_is_not_granted_leaves_nothing<B: Backend>(make: &impl AsyncFn() -> B) {
    // A refusal is not always one of the first call.
    for status in [500, 403] {
        at_each_step(make, &BROWNFIELD, Calls::Changes, async |stage: &Stage<B>, step: &Step| {
            let bucket = stage.world.unique("archive");
            stage.backend.create_bucket(&bucket).await;
            withdraw(stage, step, Fault::Status(status), &[("bucketName", &bucket)]).await;
        });
    }
}

const GREENFIELD: [Ability; 2] = [Ability::Greenfield, Ability::Inventory];
const BROWNFIELD: [Ability; 2] = [Ability::Brownfield, Ability::Inventory];

/// Submits a claim whose `step` fails, and deletes it. The store holds what it held before.
async fn withdraw<B: Backend>(stage: &Stage<B>, step: &Step, fault: Fault, parameters: &[(&str, &str)]) {
    let (world, class) = (&stage.world, stage.class("class", "Delete", parameters).await);
    let before = stage.inventory().await;
    step.fail(stage, Times::Always, fault);
    let _operator = stage.start();
    match parameters {
        [] => stage.claim("photos", &class).await,
        _ => world.claim_with("photos", json!({ "storageClassName": class })).await,
    };
    let is_over =
        |claim: &ObjectBucketClaim| phase(claim) == Some(ClaimPhase::Bound) || (is_unready(claim) && step.failed() > 0);
    world.wait_claim("photos", "bound or not ready", is_over).await;
    world.delete_claim("photos").await;
    stage.leave_alone();
    world.wait_gone("photos").await;
    assert_eq!(stage.inventory().await, before, "something is left in the store of a claim that no longer exists");
    world.assert_no_objects("photos").await;
}

/// The answer to a call is lost once, though the store has done what was asked. The claim is bound, with one bucket, one user
/// and one key. For each call that changes something.
pub fn a_lost_answer_creates_nothing_twice<B: Backend>(make: &impl AsyncFn() -> B) {
    at_each_step(make, &GREENFIELD, Calls::Changes, async |stage: &Stage<B>, step: &Step| {
        let (world, class) = (&stage.world, stage.greenfield().await);
        step.fail(stage, Times::Once, Fault::LoseAnswer);
        let _operator = stage.start();
        stage.claim("photos", &class).await;
        stage.wait_bound_or_failed("photos").await;
        world.wait_reason("photos", "Bound").await;
        let (app, held) = (world.environment("photos").await, stage.inventory().await);
        assert!(held.buckets.keys().eq([&app["BUCKET_NAME"]]), "not one bucket: {held:#?}");
        assert!(held.users.len() <= 1, "not one user: {held:#?}");
        let keys: Vec<_> = held.users.values().flat_map(|user| &user.keys).collect();
        assert_eq!(keys, [&app["AWS_ACCESS_KEY_ID"]], "not one key, the one that apps have: {held:#?}");
        stage.assert_usable(&app).await;
        stage.unbind("photos").await;
        stage.assert_store_empty("something is left").await;
    });
}

/// A claim that cannot be finished has the same ObjectBucket after further attempts:
/// [`plan`](bucket_provisioner::Provisioner::plan) always gives the same answer.
pub fn a_failing_claim_keeps_its_plan<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Http], async |stage: &Stage<B>| {
        let Some((step, _operator)) = failing(stage).await else { return };
        let records = stage.world.records();
        let name = stage.world.record_name("photos");
        let before = records.get(&name).await.unwrap();
        stage.attempt_again("photos", &step).await;
        let after = records.get_opt(&name).await.unwrap();
        let after = after.expect("the ObjectBucket of a claim that may have something is kept");
        assert_eq!(after.uid(), before.uid(), "it was planned again, and has another ObjectBucket");
        assert_eq!(
            serde_json::to_value(&after.spec).unwrap(),
            serde_json::to_value(&before.spec).unwrap(),
            "its ObjectBucket has another plan"
        );
    });
}

/// A claim that fails in the same way again has the same message: without ids of requests, and without times.
pub fn a_failing_claim_repeats_its_message<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield, Ability::Http], async |stage: &Stage<B>| {
        let Some((step, _operator)) = failing(stage).await else { return };
        let message = async || {
            let claim = stage.world.claims().get("photos").await.unwrap();
            ready(&claim).map(|ready| (ready.reason.clone(), ready.message.clone()))
        };
        let first = message().await;
        stage.attempt_again("photos", &step).await;
        assert_eq!(message().await, first, "the message is another one for the same cause");
        let reason = first.expect("a Ready condition").0;
        let mut notes: Vec<_> = stage.world.events("photos").await;
        notes.retain(|(_, of, _)| *of == reason);
        notes.dedup();
        assert!(notes.len() <= 1, "the events are others for the same cause: {notes:#?}");
    });
}

/// A claim whose second change of the store fails, each time; and its operator. `None` if there is no such change.
async fn failing<B: Backend>(stage: &Stage<B>) -> Option<(Step, crate::program::Running)> {
    let (class, step) = (stage.greenfield().await, Step::second());
    step.fail(stage, Times::Always, Fault::Status(500));
    let operator = stage.start();
    stage.claim("photos", &class).await;
    let is_over =
        |claim: &ObjectBucketClaim| phase(claim) == Some(ClaimPhase::Bound) || (is_unready(claim) && step.failed() > 0);
    stage.world.wait_claim("photos", "bound or not ready", is_over).await;
    let has_failed = step.failed() > 0;
    if !has_failed {
        crate::base::report("skipped, because the store is changed by one call only");
    }
    has_failed.then_some((step, operator))
}

/// The reasons of claims that fail are among those that the command `reasons` prints.
pub fn reasons_of_failures_are_in_the_command_reasons<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Greenfield], async |stage: &Stage<B>| {
        let world = &stage.world;
        let page = stage.backend.program().args(["reasons"]).run(world).await.expect("the command reasons");
        let class = stage.greenfield().await;
        let _operator = stage.start();
        if stage.can(Ability::Http) {
            steps::fail_all(stage.store(), Fault::Status(500));
            stage.claim("failing", &class).await;
            world.wait_claim("failing", "not ready", is_unready).await;
            stage.leave_alone();
        }
        if stage.can(Ability::Tags) && stage.can(Ability::Inventory) {
            let bucket = world.unique("precious");
            stage.backend.create_bucket(&bucket).await;
            world.claim_with("taken", json!({ "storageClassName": class, "bucketName": bucket })).await;
            world.wait_claim("taken", "not ready", is_unready).await;
        }
        if stage.can(Ability::Brownfield) {
            let missing = stage.class("missing", "Delete", &[("bucketName", &world.unique("missing"))]).await;
            world.claim_with("missing", json!({ "storageClassName": missing })).await;
            world.wait_claim("missing", "not ready", is_unready).await;
        }
        for claim in world.claims().list(&kube::api::ListParams::default()).await.unwrap() {
            let name = claim.name_any();
            let reported = world.events(&name).await.into_iter().map(|(_, reason, _)| reason);
            for reason in reported.chain(ready(&claim).map(|ready| ready.reason.clone())) {
                let is_there = page.contains(&format!("\n### {reason}\n"));
                assert!(
                    is_there,
                    "{reason}, of claim {name}, is not printed by the command `reasons`: add it to REASONS"
                );
            }
        }
    });
}

/// If the store refuses the provisioning credentials, the message of the claim contains none of their values.
pub fn a_wrong_owner_secret_is_in_no_message<B: Backend>(make: &impl AsyncFn() -> B) {
    run(make, &[Ability::Owner, Ability::Greenfield], async |stage: &Stage<B>| {
        let (world, wrong) = (&stage.world, stage.backend.wrong_owner());
        if wrong.is_empty() {
            crate::base::report("skipped, because the backend has no `wrong_owner`");
            return;
        }
        let class = stage.class("wrong", "Delete", &[("secretName", "wrong")]).await;
        world.write_secret("wrong", wrong.clone()).await;
        let operator = stage.start();
        stage.claim("photos", &class).await;
        world.wait_claim("photos", "refused", is_unready).await;
        let claim = world.claims().get("photos").await.unwrap();
        assert_ne!(phase(&claim), Some(ClaimPhase::Bound), "the store accepts the credentials of `wrong_owner`");
        let mut places = world.in_plain_sight().await;
        places.push(("the log".to_owned(), operator.log()));
        drop(operator);
        let right = stage.backend.owner();
        for secret in wrong.iter().filter(|(key, value)| right.get(*key) != Some(value)).map(|(_, value)| value) {
            assert_hidden(secret, &places);
        }
        stage.assert_store_empty("something is created with credentials that the store refuses").await;
    });
}
