//! ObjectBuckets whose claims no longer exist, or that come from elsewhere: they are reported, and nothing is deleted
//! without an admin's annotation.

use bucket_provisioner::api::{ConditionStatus, ObjectBucket};
use kube::ResourceExt as _;
use rstest::rstest;

use crate::support::operator::{Kind, Operator};
use crate::support::other::OtherCluster;
use crate::support::proxy::Verdict;
use crate::support::{World, bucket_of, seen};

/// A claim that was bound, and an app that put something into its bucket.
struct Used {
    uid: String,
    bucket: String,
    record: String,
    user: String,
    key: String,
}

impl Used {
    async fn claim(world: &World, class: &str) -> Self {
        let uid = world.claim("photos", class).await.uid().unwrap();
        let bucket = bucket_of(&world.wait_bound("photos").await);
        world.app("photos").await.put(&bucket, "precious").await.unwrap();
        let user = world.account.users_with(&uid).await.pop().unwrap();
        let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
        Self { uid, bucket, record: world.record_name("photos"), user, key }
    }

    /// Requires that bucket, content, user and key are as they were.
    async fn assert_untouched(&self, world: &World) {
        assert_eq!(world.account.list(&self.bucket).await.unwrap(), ["precious"]);
        assert_eq!(world.account.keys(&self.user).await, std::slice::from_ref(&self.key));
        assert_eq!(world.account.bucket_tags(&self.bucket).await["objectbucket.io/claim-uid"], self.uid);
    }

    async fn assert_gone(&self, world: &World) {
        assert!(!world.account.bucket_exists(&self.bucket).await, "the bucket is left");
        assert!(!world.account.user_exists(&self.user).await, "the user is left");
    }
}

/// When an operator has served others, whatever it was to do for what was there before is done.
async fn serve_another(world: &World, class: &str, name: &str) {
    world.claim(name, class).await;
    world.wait_bound(name).await;
}

/// A finalizer can be taken off while no operator runs.
#[rstest]
#[case::and_nothing_replaces_it(false)]
#[case::and_another_claim_of_the_name_is_there_already(true)]
#[tokio::test]
async fn orphans_from_before_the_start_are_only_reported(#[case] replaced: bool) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    operator.stop().await;
    world.forget_object(&world.claims(), "photos").await;
    if replaced {
        world.claim("photos", &class).await;
    }
    world.aws.clear();
    let operator = Operator::start(&world, Kind::InProcess).await;
    let message = world.wait_orphaned(&used.record, if replaced { "ClaimReplaced" } else { "ClaimGone" }).await;
    assert!(message.contains(&used.bucket) && message.contains("objectbucket.io/orphan"), "{message}");
    if replaced {
        // A new claim that merely has the name gets a bucket of its own.
        let bucket = bucket_of(&world.wait_bound("photos").await);
        assert_ne!(bucket, used.bucket);
        assert_eq!(world.app("photos").await.list(&bucket).await.unwrap(), [""; 0]);
    }
    serve_another(&world, &class, "other").await;
    used.assert_untouched(&world).await;
    let of_orphan = |target: &str| target.contains(&used.bucket);
    assert!(!world.aws.calls().iter().any(|call| of_orphan(&call.target)), "AWS is not asked");
    let events = world.events_on_record(&used.record).await;
    assert_eq!(events.len(), 1, "it is reported once: {events:?}");
    operator.stop().await;

    // Nor by the next run, which does not report it again.
    let operator = Operator::start(&world, Kind::InProcess).await;
    serve_another(&world, &class, "later").await;
    used.assert_untouched(&world).await;
    assert_eq!(world.events_on_record(&used.record).await, events);
    operator.stop().await;
}

#[tokio::test]
async fn the_next_operator_revokes_the_access_of_a_vanished_claim() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    world.aws.inject(|call| match call.name.as_str() {
        "DeleteUserPolicy" | "DeleteAccessKey" => Verdict::Answer(503, String::new()),
        _ => Verdict::Pass,
    });
    force_out(&world, "photos").await;
    world.wait_orphaned(&used.record, "RemovalFailed").await;
    operator.stop().await;
    world.aws.leave_alone();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_orphaned(&used.record, "ClaimVanished").await;
    assert!(!world.account.user_exists(&used.user).await, "the user is left");
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}

/// Takes the finalizer off the claim and deletes it while the operator runs. The operator puts the finalizer back on
/// what is there, so both go in one go.
pub(crate) async fn force_out(world: &World, claim: &str) {
    world.kubernetes.inject(|call| match call.name.as_str() {
        "patch objectbucketclaims" => Verdict::Answer(503, String::new()),
        _ => Verdict::Pass,
    });
    world.forget_object(&world.claims(), claim).await;
    world.kubernetes.leave_alone();
}

/// The bucket can be adopted.
#[rstest]
#[case("Delete")]
#[case("Retain")]
#[tokio::test]
async fn a_vanished_claim_loses_access_and_keeps_its_data(#[case] policy: &str) {
    let world = World::new().await;
    let class = world.class_with("greenfield", policy, &[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    let (app, previous) = (world.app("photos").await, world.environment("photos").await);
    force_out(&world, "photos").await;

    let message = world.wait_orphaned(&used.record, "ClaimVanished").await;
    assert!(message.contains(&used.bucket) && message.contains("adopt"), "{message}");
    assert!(!world.account.user_exists(&used.user).await, "the user is left");
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
    app.list(&used.bucket).await.unwrap_err();
    operator.stop().await;

    // The next run changes nothing, and the next claim of the name gets its own bucket until an admin decides.
    let operator = Operator::start(&world, Kind::InProcess).await;
    serve_another(&world, &class, "other").await;
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
    world.set_action(&used.record, "adopt").await;
    world.wait_orphaned(&used.record, "AwaitsClaim").await;
    world.claim("photos", &class).await;
    assert_eq!(bucket_of(&world.wait_bound("photos").await), used.bucket);
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
    assert_ne!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], previous["AWS_ACCESS_KEY_ID"]);
    operator.stop().await;
}

#[rstest]
#[case::as_it_is("Delete")]
#[case::to_be_retained("Retain")]
#[tokio::test]
async fn an_object_bucket_restored_alone_is_only_reported(#[case] policy: &str) {
    let world = World::new().await;
    let class = world.class_with("greenfield", policy, &[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    let backup = world.back_up("photos").await;
    operator.stop().await;
    world.lose("photos").await;
    world.restore(&backup.record).await;

    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_orphaned(&used.record, "ClaimGone").await;
    serve_another(&world, &class, "other").await;
    used.assert_untouched(&world).await;
    operator.stop().await;
}

/// The action that an admin annotates, and what stays.
#[rstest]
#[case::remove("remove", "Delete", &[])]
#[case::remove_what_is_to_be_retained("remove", "Retain", &["bucket"])]
#[case::revoke("revoke", "Delete", &["bucket"])]
#[case::forget("forget", "Delete", &["bucket", "user"])]
#[tokio::test]
async fn an_admins_action_on_an_orphan_is_applied(#[case] action: &str, #[case] policy: &str, #[case] stays: &[&str]) {
    let world = World::new().await;
    let class = world.class_with("greenfield", policy, &[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    operator.stop().await;
    world.forget_object(&world.claims(), "photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_orphaned(&used.record, "ClaimGone").await;

    world.set_action(&used.record, action).await;
    world.wait_record_gone(&used.record).await;
    assert_eq!(world.account.bucket_exists(&used.bucket).await, stays.contains(&"bucket"));
    assert_eq!(world.account.user_exists(&used.user).await, stays.contains(&"user"));
    if stays.contains(&"bucket") {
        assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
    }
    operator.stop().await;
}

/// On an ObjectBucket in use, an action has no effect.
#[tokio::test]
async fn an_unknown_action_is_named_and_one_in_use_is_ignored() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    for action in ["remove", "revoke"] {
        world.set_action(&used.record, action).await;
        let message = world.wait_orphaned(&used.record, "ClaimExists").await;
        assert!(message.contains("delete the claim instead"), "{message}");
        // It would be followed some day, for a claim that nobody thought of: by a backup, say.
        world.wait_action_removed(&used.record).await;
    }
    world.set_action(&used.record, "delete").await;
    let message = world.wait_orphaned(&used.record, "UnknownAction").await;
    assert!(message.contains("\"delete\"") && message.contains("remove, revoke, forget, adopt"), "{message}");
    serve_another(&world, &class, "other").await;
    used.assert_untouched(&world).await;

    // The claim's own deletion is not affected.
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    used.assert_gone(&world).await;
    operator.stop().await;
}

/// On the ObjectBucket, as an admin requested it.
#[tokio::test]
async fn a_failed_removal_is_reported_and_retried() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    operator.stop().await;
    world.forget_object(&world.claims(), "photos").await;
    world.aws.inject(|call| match call.name.as_str() {
        "DeleteUser" => {
            Verdict::Answer(500, "<ErrorResponse><Error><Code>ServiceFailure</Code></Error></ErrorResponse>".to_owned())
        }
        _ => Verdict::Pass,
    });
    world.set_action(&used.record, "remove").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let message = world.wait_orphaned(&used.record, "RemovalFailed").await;
    assert!(message.contains("DeleteUser"), "{message}");
    serve_another(&world, &class, "other").await;
    // The condition on the ObjectBucket does not cause a retry at once.
    let tries = world.aws.names().iter().filter(|name| *name == "DeleteUser").count();
    let events = world.events_on_record(&used.record).await;
    assert!(tries <= 4 && events.len() <= 2, "{tries} tries, {events:#?}");
    world.aws.leave_alone();
    world.wait_record_gone(&used.record).await;
    used.assert_gone(&world).await;
    operator.stop().await;
}

#[tokio::test]
async fn object_buckets_copied_to_another_cluster_are_only_reported() {
    let other = OtherCluster::take().await;
    let here = World::new().await;
    let there = other.twin_of(&here).await;
    let class = here.class("greenfield").await;
    there.class("greenfield").await;
    let operator_here = Operator::start(&here, Kind::InProcess).await;
    let used = Used::claim(&here, &class).await;
    let backup = here.back_up("photos").await;

    // GitOps copies the ObjectBuckets, and with some luck the claims.
    there.restore(&backup.record).await;
    let operator_there = Operator::start(&there, Kind::InProcess).await;
    let message = there.wait_orphaned(&used.record, "OtherCluster").await;
    assert!(message.contains("another cluster"), "{message}");
    there.set_action(&used.record, "remove").await;
    let message = there.wait_orphaned(&used.record, "ActionRefused").await;
    assert!(message.contains("nothing is deleted from here"), "{message}");
    there.wait_action_removed(&used.record).await;
    there.set_action(&used.record, "revoke").await;
    there.wait_action_removed(&used.record).await;
    there.restore(&backup.claim).await;
    there.wait_reason("photos", "AdoptionNeeded").await;
    used.assert_untouched(&here).await;
    // The copy can be deleted: the claim, and its ObjectBucket.
    there.delete_claim("photos").await;
    there.wait_gone("photos").await;
    there.set_action(&used.record, "forget").await;
    there.wait_record_gone(&used.record).await;
    used.assert_untouched(&here).await;
    here.app("photos").await.put(&used.bucket, "later").await.unwrap();
    operator_there.stop().await;
    operator_here.stop().await;
}

#[tokio::test]
async fn an_earlier_versions_object_bucket_is_matched_by_uid() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    operator.stop().await;
    // As it was written before ObjectBuckets recorded where they were created.
    let patch = serde_json::json!({ "spec": { "additionalState": {
        "clusterUID": null, "accountID": null, "handedOver": null,
    }}});
    let merge = kube::api::Patch::Merge(patch);
    world.records().patch(&used.record, &Default::default(), &merge).await.unwrap();
    let before = world.records().get(&used.record).await.unwrap().resource_version();

    let operator = Operator::start(&world, Kind::InProcess).await;
    serve_another(&world, &class, "other").await;
    let record = world.records().get(&used.record).await.unwrap();
    assert_eq!(record.resource_version(), before, "a bound claim costs no write");
    used.assert_untouched(&world).await;
    // The next attempt completes the ObjectBucket.
    world.unready("photos").await;
    let whole = |record: Option<&ObjectBucket>| {
        let state = record.and_then(|record| record.spec.additional_state.clone()).unwrap_or_default();
        ["clusterUID", "accountID", "handedOver"].iter().all(|key| state.contains_key(*key))
    };
    seen(&world.records(), &used.record, whole).await.expect("it is completed");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    used.assert_gone(&world).await;
    operator.stop().await;
}

#[tokio::test]
async fn an_orphan_has_a_condition_on_its_object_bucket() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    let bound = world.records().get(&used.record).await.unwrap();
    assert!(bound.status.unwrap().conditions.is_empty(), "an ObjectBucket in use has no condition");
    operator.stop().await;
    world.forget_object(&world.claims(), "photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_orphaned(&used.record, "ClaimGone").await;
    let status = world.records().get(&used.record).await.unwrap().status.unwrap();
    assert_eq!(status.conditions[0].status, ConditionStatus::True);
    assert!(status.conditions[0].last_transition_time.is_some());
    assert!(status.phase.is_some(), "the phase stays");
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_with_a_forgotten_object_bucket_deletes_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, &class).await;
    world.set_action(&used.record, "forget").await;
    let message = world.wait_orphaned(&used.record, "ClaimExists").await;
    assert!(message.contains("are kept"), "{message}");
    used.assert_untouched(&world).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    world.wait_record_gone(&used.record).await;
    world.assert_no_objects("photos").await;
    used.assert_untouched(&world).await;
    let (_, note) = world.wait_event("photos", "Removed").await;
    assert!(note.contains("are kept, as the annotation of ObjectBucket"), "{note}");
    operator.stop().await;
}
