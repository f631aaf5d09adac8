//! `onDelete` of a class: buckets that are deleted later, or only if they are empty.
//!
//! Long, because the cases share the clock and the helpers of scheduled deletions.

mod in_time;

use std::time::Duration;

use bucket_provisioner::api::{BucketPhase, wire};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Binary, Kind, Operator};
use crate::support::other::OtherCluster;
use crate::support::proxy::Verdict;
use crate::support::{PATIENCE, World, bucket_of, ready, seen};

/// A claim that was bound, and that an app has used.
struct Used {
    bucket: String,
    record: String,
    user: String,
}

impl Used {
    async fn claim(world: &World, name: &str, class: &str) -> Self {
        let uid = world.claim(name, class).await.uid().unwrap();
        let bucket = bucket_of(&world.wait_bound(name).await);
        world.app(name).await.put(&bucket, "precious").await.unwrap();
        let user = world.account.users_with(&uid).await.pop().unwrap();
        Self { bucket, record: world.record_name(name), user }
    }

    /// Requires that access and outputs were deleted, and that the bucket is there with its content.
    async fn assert_kept(&self, world: &World, claim: &str) {
        assert!(world.claims().get_opt(claim).await.unwrap().is_none());
        assert!(world.secrets().get_opt(claim).await.unwrap().is_none());
        assert!(!world.account.user_exists(&self.user).await, "the access is left");
        assert_eq!(world.account.list(&self.bucket).await.unwrap(), ["precious"]);
        let record = world.records().get(&self.record).await.unwrap();
        assert_eq!(record.status.unwrap().phase, Some(BucketPhase::Released));
    }
}

async fn delete(world: &World, claim: &str) {
    world.delete_claim(claim).await;
    world.wait_gone(claim).await;
}

/// Creates a claim that asks for the bucket of the deleted one.
async fn create_again(world: &World, name: &str, class: &str) {
    let spec = json!({ "storageClassName": class, "generateBucketName": name });
    world.create_again(name, &spec).await;
}

async fn state(world: &World, record: &str, key: &str) -> Option<String> {
    world.records().get(record).await.unwrap().spec.additional_state.unwrap().get(key).cloned()
}

#[tokio::test]
async fn a_bucket_stays_for_the_time_that_its_class_sets() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    let (_, note) = world.wait_event_with("photos", "Removed", "undo-delete").await;
    assert!(note.contains("the claim's access is deleted"), "{note}");
    let message = world.wait_condition(&used.record, "DeletionScheduled", "Scheduled").await;
    used.assert_kept(&world, "photos").await;
    let at = state(&world, &used.record, "deleteAt").await.unwrap();
    assert_eq!(state(&world, &used.record, "onDelete").await.as_deref(), Some("after:7d"));
    assert!(message.contains(&at) && message.contains(&used.bucket), "{message}");
    let left = at.parse::<Timestamp>().unwrap().duration_since(Timestamp::now()).as_secs();
    assert!((6 * 86_400..=7 * 86_400).contains(&left), "{left} s");
    // A new claim of the name that asks for nothing gets a bucket of its own.
    world.claim("photos", &class).await;
    let other = bucket_of(&world.wait_bound("photos").await);
    assert_ne!(other, used.bucket);
    operator.stop().await;

    // The class may be deleted when the deletion is due, and another process may serve.
    world.delete_class(&class).await;
    world.delete_in(&used.record, 1).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    world.wait_record_gone(&used.record).await;
    assert!(!world.account.bucket_exists(&used.bucket).await);
    assert!(world.account.bucket_exists(&other).await, "the bucket of the new claim is deleted");
}

#[tokio::test]
async fn a_deletion_is_done_when_it_is_due() {
    let world = World::new().await;
    let class = world.class_with("soon", "Delete", &[("onDelete", "after:2s")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    world.wait_record_gone(&used.record).await;
    assert!(!world.account.bucket_exists(&used.bucket).await);
}

#[tokio::test]
async fn a_deletion_is_done_and_undone_under_the_next_leader() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let args = ["--leader-elect", "--lease-namespace", &world.namespace];
    let mut first = Binary::start(&world, &args, &[]);
    let (gone, undone) = (Used::claim(&world, "gone", &class).await, Used::claim(&world, "undone", &class).await);
    for name in ["gone", "undone"] {
        delete(&world, name).await;
    }
    let _second = Binary::start(&world, &args, &[]);
    first.terminate();
    first.ended(PATIENCE).await;
    world.delete_in(&gone.record, 1).await;
    world.wait_record_gone(&gone.record).await;
    assert!(!world.account.bucket_exists(&gone.bucket).await);
    create_again(&world, "undone", &class).await;
    world.wait_bound("undone").await;
    assert_eq!(world.app("undone").await.list(&undone.bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn a_recreated_claim_undoes_the_deletion() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    let previous = world.environment("photos").await;
    delete(&world, "photos").await;

    create_again(&world, "photos", &class).await;
    world.wait_bound("photos").await;
    let now = world.environment("photos").await;
    assert_eq!(now["BUCKET_NAME"], used.bucket);
    assert_ne!(now["AWS_ACCESS_KEY_ID"], previous["AWS_ACCESS_KEY_ID"]);
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
    world.wait_orphaned(&used.record, "Adopted").await;
    assert_eq!(state(&world, &used.record, "deleteAt").await, None);
    let uid = world.claims().get("photos").await.unwrap().uid().unwrap();
    assert_eq!(world.account.bucket_tags(&used.bucket).await["objectbucket.io/claim-uid"], uid);

    // It can be deleted and brought back again.
    delete(&world, "photos").await;
    create_again(&world, "photos", &class).await;
    world.wait_bound("photos").await;
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn a_failed_undo_creates_no_new_bucket() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let other_class = world.class_with("other", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    create_again(&world, "never", &class).await;
    let message = world.wait_reason("never", "NothingToUndo").await;
    assert!(message.contains("remove the annotation"), "{message}");

    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    create_again(&world, "photos", &other_class).await;
    let message = world.wait_reason("photos", "NothingToUndo").await;
    assert!(message.contains("another StorageClass"), "{message}");
    used.assert_kept_for(&world).await;

    // Without the annotation it gets a new one.
    let patch = json!({ "metadata": { "annotations": { wire::annotation::UNDO_DELETE: null } } });
    world.claims().patch("never", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    world.wait_bound("never").await;
}

impl Used {
    async fn assert_kept_for(&self, world: &World) {
        assert_eq!(world.account.list(&self.bucket).await.unwrap(), ["precious"]);
        assert!(state(world, &self.record, "deleteAt").await.is_some());
    }
}

#[tokio::test]
async fn a_later_namespace_of_the_name_does_not_get_the_bucket() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    // As if the namespace had been deleted and made again.
    let patch = json!({ "spec": { "additionalState": { "namespaceUID": "11111111-2222-3333-4444-555555555555" } } });
    world.records().patch(&used.record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    create_again(&world, "photos", &class).await;
    let message = world.wait_reason("photos", "NothingToUndo").await;
    assert!(message.contains("previous namespace"), "{message}");

    // An admin can give it the bucket all the same.
    world.set_action(&used.record, "adopt").await;
    world.wait_bound("photos").await;
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
}

/// It still has the annotation.
#[tokio::test]
async fn a_bound_claim_does_not_take_the_bucket_of_another_claim() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let first = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    world.claim("photos", &class).await;
    let second = world.wait_bound("photos").await.spec.object_bucket_name.unwrap();
    assert_ne!(second, first.record);
    delete(&world, "photos").await;
    let spec = json!({
        "storageClassName": class, "generateBucketName": "photos", "objectBucketName": first.record,
    });
    world.create_again("photos", &spec).await;
    assert_eq!(bucket_of(&world.wait_bound("photos").await), first.bucket);

    world.forget_object(&world.records(), &first.record).await;
    world.wait_reason("photos", "AdoptionNeeded").await;
    assert!(state(&world, &second, "deleteAt").await.is_some(), "the deletion of the other bucket is cancelled");
    assert_eq!(world.app("photos").await.list(&first.bucket).await.unwrap(), ["precious"]);
}

/// The ObjectBuckets still exist; only the claims are restored.
#[tokio::test]
async fn claims_of_a_deleted_namespace_can_be_restored() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    world.wait_reason("photos", "Bound").await;
    let backup = world.back_up("photos").await;
    delete(&world, "photos").await;
    let patch = json!({ "spec": { "additionalState": { "namespaceUID": "11111111-2222-3333-4444-555555555555" } } });
    world.records().patch(&used.record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    for object in [&backup.secret, &backup.config_map, &backup.claim] {
        world.restore(object).await;
    }
    world.wait_reason("photos", "AdoptionNeeded").await;
    used.assert_kept_for(&world).await;
    world.set_action(&used.record, "adopt").await;
    world.wait_bound("photos").await;
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn an_admin_decides_about_a_scheduled_deletion() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let [kept, removed, adopted] = ["kept", "removed", "adopted"];
    let mut used = Vec::new();
    for name in [kept, removed, adopted] {
        used.push(Used::claim(&world, name, &class).await);
        delete(&world, name).await;
    }
    let [of_kept, of_removed, of_adopted] = &used[..] else { unreachable!() };
    world.set_action(&of_kept.record, "forget").await;
    world.wait_record_gone(&of_kept.record).await;
    assert_eq!(world.account.list(&of_kept.bucket).await.unwrap(), ["precious"]);

    world.set_action(&of_removed.record, "remove").await;
    world.wait_record_gone(&of_removed.record).await;
    assert!(!world.account.bucket_exists(&of_removed.bucket).await);

    // The claim comes later, and not even the time takes its bucket away.
    world.set_action(&of_adopted.record, "adopt").await;
    world.wait_orphaned(&of_adopted.record, "AwaitsClaim").await;
    world.delete_in(&of_adopted.record, -60).await;
    world.claim("another", &class).await;
    world.wait_bound("another").await;
    world.claim(adopted, &class).await;
    world.wait_bound(adopted).await;
    assert_eq!(world.app(adopted).await.list(&of_adopted.bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn no_deletion_in_another_account_or_of_a_bucket_in_use() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    let shared = [("bucketName", used.bucket.as_str()), ("allowClaimedBucket", "yes")];
    let brownfield = world.class_with("shared", "Delete", &shared).await;
    world.claim("reader", &brownfield).await;
    world.wait_bound("reader").await;
    delete(&world, "photos").await;
    world.delete_in(&used.record, 1).await;
    let message = world.wait_condition(&used.record, "DeletionScheduled", "BucketInUse").await;
    assert!(message.contains("no other claim"), "{message}");
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
    operator.stop().await;

    // The Secret has keys of another account now.
    let patch = json!({ "spec": { "additionalState": { "accountID": "999999999999" } } });
    world.records().patch(&used.record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    let _operator = Operator::start(&world, Kind::Binary).await;
    delete(&world, "reader").await;
    let other_account = |record: Option<&bucket_provisioner::api::ObjectBucket>| {
        let conditions = record.and_then(|record| record.status.clone()).unwrap_or_default().conditions;
        conditions.iter().any(|c| c.type_ == "DeletionScheduled" && c.message.contains("another account"))
    };
    seen(&world.records(), &used.record, other_account).await.expect("it is reported");
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn a_copy_in_another_cluster_deletes_nothing_when_due() {
    let other = OtherCluster::take().await;
    let here = World::new().await;
    let there = other.twin_of(&here).await;
    let class = here.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&here, Kind::InProcess).await;
    let used = Used::claim(&here, "photos", &class).await;
    delete(&here, "photos").await;
    here.wait_condition(&used.record, "DeletionScheduled", "Scheduled").await;
    operator.stop().await;
    let copy = serde_json::to_value(here.records().get(&used.record).await.unwrap()).unwrap();
    there.restore(&copy).await;
    there.delete_in(&used.record, -60).await;
    let _operator = Operator::start(&there, Kind::InProcess).await;
    there.wait_orphaned(&used.record, "OtherCluster").await;
    assert_eq!(here.account.list(&used.bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn an_object_bucket_from_a_backup_deletes_nothing_when_due() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let used = Used::claim(&world, "photos", &class).await;
    delete(&world, "photos").await;
    world.wait_condition(&used.record, "DeletionScheduled", "Scheduled").await;
    operator.stop().await;
    let backup = serde_json::to_value(world.records().get(&used.record).await.unwrap()).unwrap();
    world.forget_object(&world.records(), &used.record).await;
    // Times are recorded in seconds.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.restore(&backup).await;
    world.delete_in(&used.record, -60).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_orphaned(&used.record, "ClaimGone").await;
    assert_eq!(world.account.list(&used.bucket).await.unwrap(), ["precious"]);
}

/// On the ObjectBucket.
#[tokio::test]
async fn a_failed_deletion_is_reported_and_retried() {
    let world = World::new().await;
    let class = world.class_with("soon", "Delete", &[("onDelete", "after:1s")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    world.aws.inject(|call| match call.name.as_str() {
        "DeleteBucket" | "DeleteObjects" => Verdict::Answer(500, String::new()),
        _ => Verdict::Pass,
    });
    delete(&world, "photos").await;
    let message = world.wait_condition(&used.record, "DeletionScheduled", "RemovalFailed").await;
    assert!(message.contains("retrying"), "{message}");
    // It has begun, so no claim gets what is left.
    create_again(&world, "photos", &class).await;
    let message = world.wait_reason("photos", "NothingToUndo").await;
    assert!(message.contains("scheduled deletion has passed"), "{message}");
    world.aws.leave_alone();
    world.wait_record_gone(&used.record).await;
    assert!(!world.account.bucket_exists(&used.bucket).await);
}

#[rstest]
#[case::empty(false)]
#[case::with_content(true)]
#[tokio::test]
async fn if_empty_deletes_an_empty_bucket_and_keeps_another(#[case] full: bool) {
    let world = World::new().await;
    let class = world.class_with("if-empty", "Delete", &[("onDelete", "ifEmpty")]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let used = Used::claim(&world, "photos", &class).await;
    if !full {
        world.app("photos").await.delete_object(&used.bucket, "precious").await;
    }
    delete(&world, "photos").await;
    if !full {
        world.wait_record_gone(&used.record).await;
        assert!(!world.account.bucket_exists(&used.bucket).await);
        return;
    }
    world.wait_orphaned(&used.record, "BucketNotEmpty").await;
    used.assert_kept(&world, "photos").await;
    // The same decisions of an admin as for a scheduled deletion.
    world.set_action(&used.record, "adopt").await;
    world.wait_orphaned(&used.record, "AwaitsClaim").await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    assert_eq!(world.app("photos").await.list(&used.bucket).await.unwrap(), ["precious"]);
    delete(&world, "photos").await;
    world.wait_orphaned(&used.record, "BucketNotEmpty").await;
    world.set_action(&used.record, "remove").await;
    world.wait_record_gone(&used.record).await;
    assert!(!world.account.bucket_exists(&used.bucket).await);
}

#[tokio::test]
async fn a_namespace_is_deleted_at_once_and_its_buckets_later() {
    let world = World::new().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let name = world.unique("tenant");
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let _operator = Binary::start_with(&world, &world.kubeconfig(), &[], &[]);
    let claims: Api<bucket_provisioner::api::ObjectBucketClaim> = Api::namespaced(world.client.clone(), &name);
    let mut claim = json!({
        "apiVersion": wire::API_VERSION, "kind": wire::CLAIM_KIND, "metadata": { "name": "photos" },
        "spec": { "storageClassName": class, "generateBucketName": "photos" },
    });
    claims.create(&PostParams::default(), &serde_json::from_value(claim.clone()).unwrap()).await.unwrap();
    let bound = |claim: Option<&bucket_provisioner::api::ObjectBucketClaim>| {
        claim.is_some_and(|claim| crate::support::phase(claim) == Some(bucket_provisioner::api::ClaimPhase::Bound))
    };
    let bucket = bucket_of(&seen(&claims, "photos", bound).await.unwrap().unwrap());
    world.account.put(&bucket, "precious").await.unwrap();
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    seen(&namespaces, &name, |found| found.is_none()).await.expect("the namespace is deleted");
    let record = format!("obc-{name}-photos");
    world.wait_condition(&record, "DeletionScheduled", "Scheduled").await;
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);

    // The namespace of that name may be of another tenant now.
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    claim["metadata"]["annotations"] = json!({ wire::annotation::UNDO_DELETE: "yes" });
    claims.create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    let refused = |claim: Option<&bucket_provisioner::api::ObjectBucketClaim>| {
        claim.and_then(ready).is_some_and(|ready| ready.reason == "NothingToUndo")
    };
    let claim = seen(&claims, "photos", refused).await.expect("it does not get the bucket").unwrap();
    assert!(ready(&claim).unwrap().message.contains("previous namespace"), "{claim:?}");
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);
}

#[tokio::test]
async fn on_delete_is_refused_where_it_has_no_effect() {
    let world = World::new().await;
    let retained = world.class_with("retained", "Retain", &[("onDelete", "after:7d")]).await;
    let brownfield = world.class_with("existing", "Delete", &[("onDelete", "ifEmpty"), ("bucketName", "any")]).await;
    let misspelt = world.class_with("misspelt", "Delete", &[("onDelete", "after: a week")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for (name, class, problem) in [
        ("a", &retained, "reclaimPolicy of the class is Retain"),
        ("b", &brownfield, "bucketName names an existing one"),
        ("c", &misspelt, "after:7d"),
    ] {
        world.claim(name, class).await;
        let message = world.wait_reason(name, "InvalidClassParameter").await;
        assert!(message.contains("onDelete") && message.contains(problem), "{message}");
    }
    world.delete_claim("a").await;
    world.wait_gone("a").await;
    world.assert_no_objects("a").await;
}
