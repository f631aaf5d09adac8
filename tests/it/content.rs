//! Buckets whose keys were never published: what they contain is of others.

use bucket_provisioner::api::{BucketPhase, ObjectBucket, wire};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Binary, Kind, Operator};
use crate::support::proxy::{Call, Verdict};
use crate::support::{World, bucket_of, ready, seen};

/// A claim whose user cannot be created, while others of the account write into its bucket.
struct Stuck {
    bucket: String,
    record: String,
}

impl Stuck {
    async fn claim(world: &World, class: &str) -> Self {
        world.aws.inject(|call| match call.name.as_str() {
            "CreateUser" => Verdict::Answer(403, denied()),
            _ => Verdict::Pass,
        });
        let bucket = world.unique("logs");
        world.claim_with("stuck", json!({ "storageClassName": class, "bucketName": bucket })).await;
        world.wait_reason("stuck", "AccessDenied").await;
        assert!(world.account.bucket_exists(&bucket).await);
        Self { bucket, record: world.record_name("stuck") }
    }

    async fn fill(&self, world: &World, content: &str) {
        match content {
            "an object" => world.account.put(&self.bucket, "theirs").await.unwrap(),
            "a delete marker" => world.account.leave_a_delete_marker(&self.bucket).await,
            "an upload" => world.account.begin_upload(&self.bucket, "theirs").await,
            _ => unreachable!("{content}"),
        }
    }
}

fn denied() -> String {
    "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>".to_owned()
}

#[rstest]
#[case::to_be_deleted("Delete", "an object")]
#[case::to_be_retained("Retain", "an object")]
#[case::with_a_delete_marker("Delete", "a delete marker")]
#[case::with_an_upload("Delete", "an upload")]
#[tokio::test]
async fn an_unpublished_bucket_with_content_outlives_its_claim(#[case] policy: &str, #[case] content: &str) {
    let world = World::new().await;
    let class = world.class_with("greenfield", policy, &[]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let stuck = Stuck::claim(&world, &class).await;
    stuck.fill(&world, content).await;

    world.delete_claim("stuck").await;
    world.wait_gone("stuck").await;
    let message = world.wait_orphaned(&stuck.record, "BucketNotEmpty").await;
    assert!(message.contains(&stuck.bucket) && message.contains("objectbucket.io/orphan"), "{message}");
    assert!(world.account.bucket_exists(&stuck.bucket).await, "the bucket is deleted");
    let record = world.records().get(&stuck.record).await.unwrap();
    assert_eq!(record.status.unwrap().phase, Some(BucketPhase::Released));

    // An admin decides, and nothing is emptied that is not the claim's.
    if policy == "Delete" {
        world.set_action(&stuck.record, "remove").await;
        let answered = |record: Option<&ObjectBucket>| {
            record.is_none_or(|record| !record.annotations().contains_key(wire::annotation::ORPHAN))
        };
        seen(&world.records(), &stuck.record, answered).await.expect("the annotation is answered");
        let message = world.wait_orphaned(&stuck.record, "BucketNotEmpty").await;
        assert!(message.contains("empty it by hand"), "{message}");
        assert!(world.account.bucket_exists(&stuck.bucket).await, "the bucket is deleted");
    }
    world.set_action(&stuck.record, "forget").await;
    world.wait_record_gone(&stuck.record).await;
    assert!(world.account.bucket_exists(&stuck.bucket).await);
}

#[rstest]
#[case("Delete")]
#[case("Retain")]
#[tokio::test]
async fn an_empty_unpublished_bucket_is_deleted_with_its_claim(#[case] policy: &str) {
    let world = World::new().await;
    let class = world.class_with("greenfield", policy, &[]).await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let stuck = Stuck::claim(&world, &class).await;
    world.delete_claim("stuck").await;
    world.wait_gone("stuck").await;
    world.assert_no_objects("stuck").await;
    assert!(!world.account.bucket_exists(&stuck.bucket).await);
}

#[tokio::test]
async fn an_edit_before_binding_waits_for_a_bucket_with_content() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let stuck = Stuck::claim(&world, &class).await;
    stuck.fill(&world, "an object").await;

    let other = world.unique("other");
    let edit = Patch::Merge(json!({ "spec": { "bucketName": other } }));
    world.claims().patch("stuck", &PatchParams::default(), &edit).await.unwrap();
    let message = world.wait_reason("stuck", "BucketNotEmpty").await;
    assert!(message.contains(&stuck.bucket) && message.contains("undo the edit"), "{message}");
    world.wait_event("stuck", "BucketNotEmpty").await;
    assert_eq!(world.account.list(&stuck.bucket).await.unwrap(), ["theirs"]);
    assert!(!world.account.bucket_exists(&other).await);

    // The edit is undone: the claim gets its bucket.
    world.aws.leave_alone();
    let back = Patch::Merge(json!({ "spec": { "bucketName": stuck.bucket } }));
    world.claims().patch("stuck", &PatchParams::default(), &back).await.unwrap();
    world.wait_bound("stuck").await;
    assert_eq!(world.account.list(&stuck.bucket).await.unwrap(), ["theirs"]);
}

/// After a crash the ObjectBucket records that the bucket may be the claim's.
#[tokio::test]
async fn an_edit_before_binding_avoids_a_foreign_bucket() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let theirs = world.unique("theirs");
    world.account.create_bucket(&theirs).await;
    world.account.put(&theirs, "precious").await.unwrap();
    world.aws.inject(|call| match call.name.as_str() {
        "GetBucketTagging" | "CreateBucket" => Verdict::Hang,
        _ => Verdict::Pass,
    });
    let operator = Binary::start(&world, &[], &[]);
    let uid =
        world.claim_with("photos", json!({ "storageClassName": class, "bucketName": theirs })).await.uid().unwrap();
    world
        .aws
        .wait_until("a call about the bucket", |calls| calls.iter().any(|call| call.target.contains("theirs")))
        .await;
    operator.kill().await;
    world.aws.leave_alone();
    let _operator = Binary::start(&world, &[], &[]);
    world.wait_reason("photos", "BucketTaken").await;
    assert!(world.records().get_opt(&world.record_name("photos")).await.unwrap().is_some());

    let own = world.unique("own");
    let edit = Patch::Merge(json!({ "spec": { "bucketName": own } }));
    world.claims().patch("photos", &PatchParams::default(), &edit).await.unwrap();
    assert_eq!(bucket_of(&world.wait_bound("photos").await), own);
    assert_eq!(world.account.list(&theirs).await.unwrap(), ["precious"]);
    assert_eq!(world.account.users_with(&uid).await.len(), 1);
}

#[tokio::test]
async fn a_recreated_class_empties_no_bucket_of_its_claims() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    let stuck = Stuck::claim(&world, &class).await;
    stuck.fill(&world, "an object").await;

    // As the message about a missing boundary advises.
    let boundary = ("permissionsBoundary", "arn:aws:iam::000000000000:policy/boundary");
    world.class_with("greenfield", "Delete", &[boundary]).await;
    world.wait_reason("stuck", "BucketNotEmpty").await;
    assert_eq!(world.account.list(&stuck.bucket).await.unwrap(), ["theirs"]);

    // Without content the claim is planned again.
    world.account.delete_object(&stuck.bucket, "theirs").await;
    world.aws.leave_alone();
    let created = |calls: &[Call]| calls.iter().filter(|call| call.name == "CreateBucket").count() > 1;
    world.aws.wait_until("the bucket is created again", created).await;
    world.wait_claim("stuck", "planned again", |claim| ready(claim).is_none_or(|c| c.reason != "BucketNotEmpty")).await;
}

#[tokio::test]
async fn an_object_bucket_set_back_by_a_snapshot_empties_no_bucket() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let claim = world.wait_bound("photos").await;
    let bucket = crate::support::bucket_of(&claim);
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;

    world.set_back("photos").await;
    world.delete_claim("photos").await;
    let _operator = Operator::start(&world, Kind::Binary).await;
    world.wait_gone("photos").await;
    world.wait_orphaned(&world.record_name("photos"), "BucketNotEmpty").await;
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);
    assert!(world.account.users_with(&claim.uid().unwrap()).await.is_empty(), "the access is left");
    let is_released = |object: &ObjectBucket| {
        object.spec.additional_state.as_ref().is_some_and(|state| state["releaseReason"] == "BucketNotEmpty")
    };
    assert!(is_released(&world.records().get(&world.record_name("photos")).await.unwrap()));
}
