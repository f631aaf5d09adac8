//! A claim that requests its bucket in time gets it, whatever happens meanwhile.

use bucket_provisioner::api::{ObjectBucket, wire};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Used, create_again, delete, state};
use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::{Call, Gate, Verdict};

#[tokio::test]
async fn a_claim_gets_the_deleted_bucket_that_it_names() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let first = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    // GitOps creates the claim again, and gets a new and empty bucket for it.
    let uid = world.claim("photos", &class).await.uid().unwrap();
    let second = world.wait_bound("photos").await.spec.object_bucket_name.unwrap();
    let late = json!({ "metadata": { "annotations": { wire::annotation::UNDO_DELETE: "yes" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(late)).await.unwrap();
    let ignored =
        |claim: &_| crate::support::condition(claim, "UpToDate").is_some_and(|c| c.message.contains("no effect"));
    world.wait_claim("photos", "reported as without effect", ignored).await;
    delete(&world, "photos").await;

    create_again(&world, "photos", &class).await;
    let message = world.wait_reason("photos", "NothingToUndo").await;
    assert!(message.contains(&first.record) && message.contains(&second), "{message}");
    assert!(second.ends_with(&uid), "{second}");
    delete(&world, "photos").await;
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos", "objectBucketName": first.record });
    world.create_again("photos", &spec).await;
    world.wait_bound("photos").await;
    assert_eq!(world.app("photos").await.list(&first.bucket).await.unwrap(), ["precious"]);
}

/// Also while the claim cannot get its bucket yet.
#[tokio::test]
async fn an_undo_request_in_time_holds_the_deletion() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    world.wait_condition(&used.record, "DeletionScheduled", "Scheduled").await;
    // A backup of the app brought back its Secret only.
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "photos" } });
    world.secrets().create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    create_again(&world, "photos", &class).await;
    world.wait_reason("photos", "OutputExists").await;
    operator.stop().await;
    // Until after the claim was created.
    world.delete_in(&used.record, 1).await;
    let due = state(&world, &used.record, "deleteAt").await;
    let operator = Operator::start(&world, Kind::Binary).await;
    let message = world.wait_orphaned(&used.record, "AwaitsClaim").await;
    assert!(message.contains("undo-delete"), "{message}");
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
    // If the claim is deleted later, its user can still create it once more.
    let postponed = |record: Option<&ObjectBucket>| record.is_some_and(|record| delete_at(record) != due);
    let postponed = crate::support::seen(&world.records(), &used.record, postponed).await.expect("it has another time");
    let until: Timestamp = postponed.as_ref().and_then(delete_at).unwrap().parse().unwrap();
    assert!(until > Timestamp::now(), "{until}");

    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    let retry = json!({ "metadata": { "annotations": { "objectbucket.io/retry": "1" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(retry)).await.unwrap();
    world.wait_bound("photos").await;
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}

fn delete_at(record: &ObjectBucket) -> Option<String> {
    record.spec.additional_state.as_ref()?.get("deleteAt").cloned()
}

#[tokio::test]
async fn a_deletion_that_was_due_while_no_operator_ran_is_postponed() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    world.wait_condition(&used.record, "DeletionScheduled", "Scheduled").await;
    operator.stop().await;
    world.delete_in(&used.record, -4000).await;
    let overdue = state(&world, &used.record, "deleteAt").await.unwrap();
    // It does not count as known before the other time is written.
    let fails = std::sync::atomic::AtomicBool::new(true);
    world.kubernetes.inject(move |call| match call.name.as_str() {
        "patch objectbuckets" if fails.swap(false, std::sync::atomic::Ordering::SeqCst) => {
            Verdict::Answer(500, String::new())
        }
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::Binary).await;
    let postponed = |record: Option<&ObjectBucket>| record.and_then(delete_at).is_some_and(|at| at > overdue);
    crate::support::seen(&world.records(), &used.record, postponed).await.expect("it has another time");
    let at = state(&world, &used.record, "deleteAt").await.unwrap();
    let reported = |record: Option<&bucket_provisioner::api::ObjectBucket>| {
        let status = record.and_then(|record| record.status.clone()).unwrap_or_default();
        status.conditions.iter().any(|condition| condition.message.contains(&at))
    };
    crate::support::seen(&world.records(), &used.record, reported).await.expect("it is reported");
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
}

/// A deletion that this process has scheduled is never "late and unknown", also while the claim's own attempt still runs.
#[tokio::test]
async fn a_deletion_waits_for_its_claims_attempt_and_no_longer() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    let ended = Gate::closed();
    let rule = ended.clone();
    world.kubernetes.inject(move |call| match call.name.as_str() {
        "patch objectbucketclaims" => Verdict::HoldAnswer(rule.clone()),
        _ => Verdict::Pass,
    });
    delete(&world, "photos").await;
    world.kubernetes.clear();
    world.delete_in(&used.record, -4000).await;
    // Each check of the ObjectBucket asks for the claim.
    let checks = |calls: &[Call]| calls.iter().filter(|call| call.name == "get objectbucketclaims").count();
    world.kubernetes.wait_until("two checks", |calls| checks(calls) >= 2).await;
    assert!(world.account.bucket_exists(&used.bucket).await, "it was deleted beside the claim's own attempt");
    ended.open();
    world.wait_record_gone(&used.record).await;
    assert!(!world.account.bucket_exists(&used.bucket).await);
}
