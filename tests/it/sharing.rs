//! Buckets with more than one user: a created bucket stays as long as another claim uses it, and one that a tenant
//! created is not given to others unless the class allows it.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::json;

use bucket_provisioner::api::ObjectBucket;
use bucket_provisioner::api::wire::BUCKET_LABEL;

use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::other::{OtherCluster, ours};
use crate::support::proxy::{Call, Ending, Verdict};

/// Until the other claim that uses it is deleted.
#[tokio::test]
async fn a_bucket_in_use_is_neither_emptied_nor_deleted() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("shared");
    let brownfield =
        world.class_with("brownfield", "Delete", &[("bucketName", &bucket), ("allowClaimedBucket", "yes")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let creator = world.claim_with("creator", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("creator").await;
    for guest in ["guest", "visitor"] {
        world.claim_with(guest, json!({ "storageClassName": brownfield })).await;
        world.wait_bound(guest).await;
    }
    world.app("guest").await.put(&bucket, "precious").await.unwrap();

    world.delete_claim("creator").await;
    let message = world.wait_reason("creator", "BucketInUse").await;
    assert!(message.contains(&bucket) && !message.contains("guest"), "it names nobody else: {message}");
    assert!(world.account.users_with(&creator.uid().unwrap()).await.is_empty(), "its access is revoked at once");
    operator.stop().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("visitor").await;
    world.wait_gone("visitor").await;
    world.wait_reason("creator", "BucketInUse").await;
    assert_eq!(world.app("guest").await.list(&bucket).await.unwrap(), ["precious"]);

    // It is deleted with the last claim.
    world.delete_claim("guest").await;
    world.wait_gone("guest").await;
    world.wait_gone("creator").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    world.assert_no_objects("creator").await;
    operator.stop().await;
}

#[tokio::test]
async fn the_name_that_a_class_waits_for_cannot_be_squatted() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("audit");
    let brownfield = world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    // A tenant is faster than the admin.
    world.claim_with("squatter", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("squatter").await;
    let uid = world.claim_with("writer", json!({ "storageClassName": brownfield })).await.uid().unwrap();
    let message = world.wait_reason("writer", "BucketClaimed").await;
    assert!(message.contains(&bucket) && message.contains("allowClaimedBucket"), "{message}");
    assert!(!message.contains("squatter"), "it names nobody else: {message}");
    assert!(world.account.users_with(&uid).await.is_empty());

    // Once the tenant's claim and bucket are deleted and the admin has made the bucket, it is served.
    world.delete_claim("squatter").await;
    world.wait_gone("squatter").await;
    world.account.create_bucket(&bucket).await;
    world.delete_class(&brownfield).await;
    world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    world.wait_bound("writer").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_rival_claim_does_not_delay_the_deletion_of_a_bucket() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("photos");
    let operator = Operator::start(&world, Kind::InProcess).await;
    let spec = json!({ "storageClassName": class, "bucketName": bucket });
    world.claim_with("creator", spec.clone()).await;
    world.wait_bound("creator").await;
    // It is cut off, so it is unknown whether something was created for it: its ObjectBucket stays.
    world.aws.clear();
    world.aws.inject(|_| Verdict::Hang);
    world.claim_with("rival", spec).await;
    world.aws.wait_until("a call", |calls| !calls.is_empty()).await;
    operator.stop().await;
    world.aws.leave_alone();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("rival", "BucketTaken").await;
    let rival = world.record_name("rival");
    assert!(world.records().get_opt(&rival).await.unwrap().is_some(), "it is recorded");
    world.delete_claim("creator").await;
    world.wait_gone("creator").await;
    operator.stop().await;
}

/// That of the claim that created it.
#[tokio::test]
async fn a_bucket_in_use_stays_if_its_object_bucket_is_damaged() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("shared");
    let brownfield =
        world.class_with("brownfield", "Delete", &[("bucketName", &bucket), ("allowClaimedBucket", "yes")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("creator", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("creator").await;
    world.claim_with("guest", json!({ "storageClassName": brownfield })).await;
    world.wait_bound("guest").await;
    world.app("guest").await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;
    // Only the ObjectBucket of the guest still names the bucket; or it cannot be read.
    let no_endpoint = Patch::Merge(json!({ "spec": { "endpoint": null, "additionalState": null } }));
    world.records().patch(&world.record_name("creator"), &PatchParams::default(), &no_endpoint).await.unwrap();
    let unreadable = Patch::Merge(json!({ "spec": { "additionalState": null } }));
    world.delete_claim("creator").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("creator", "BucketInUse").await;
    operator.stop().await;
    world.records().patch(&world.record_name("guest"), &PatchParams::default(), &unreadable).await.unwrap();
    world.delete_class(&brownfield).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("guest", "ObjectBucketDamaged").await;
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);
    world.claims().get("creator").await.expect("it waits");
    operator.stop().await;
}

#[tokio::test]
async fn a_bucket_stays_while_an_unreadable_object_bucket_names_it() {
    let other = OtherCluster::take().await;
    // Our CRD lets no such ObjectBucket in; those that others installed do.
    let [claims, mut records] = ours();
    let schema = &mut records["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"] = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    other.install(&[claims, records]).await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("shared");
    let operator = Operator::start(&world, Kind::InProcess).await;
    let spec = json!({ "storageClassName": class, "bucketName": bucket });
    world.claim_with("creator", spec).await;
    world.wait_bound("creator").await;
    world.app("creator").await.put(&bucket, "precious").await.unwrap();
    // Of a guest, whose ObjectBucket somebody edited.
    let resource = ApiResource::erase::<ObjectBucket>(&());
    let raw: Api<DynamicObject> = Api::all_with(world.client.clone(), &resource);
    let guest = world.unique("guest");
    let object = serde_json::from_value(json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": guest },
        "spec": { "endpoint": { "bucketName": bucket, "bucketPort": "https" } },
    }));
    raw.create(&PostParams::default(), &object.unwrap()).await.unwrap();
    operator.stop().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("creator").await;
    let message = world.wait_reason("creator", "BucketInUse").await;
    assert!(message.contains(&bucket), "{message}");
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);

    raw.delete(&guest, &DeleteParams::default()).await.unwrap();
    world.wait_gone("creator").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

#[tokio::test]
async fn a_bucket_of_the_same_name_in_another_store_does_not_count() {
    let world = World::new().await;
    let neighbour = world.neighbour().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("shared");
    // The same bucket at another endpoint: according to the ObjectBuckets, another store.
    let elsewhere = [
        ("bucketName", bucket.as_str()),
        ("allowClaimedBucket", "yes"),
        ("s3Endpoint", neighbour.aws.url.as_str()),
        ("iamEndpoint", neighbour.aws.url.as_str()),
    ];
    let elsewhere = world.class_with("elsewhere", "Delete", &elsewhere).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("creator", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("creator").await;
    world.claim_with("guest", json!({ "storageClassName": elsewhere })).await;
    world.wait_bound("guest").await;
    world.delete_claim("creator").await;
    world.wait_gone("creator").await;
    operator.stop().await;
}

#[rstest]
#[case::as_written(true)]
// As earlier versions wrote it.
/// The watch of ObjectBuckets fails.
#[case::without_its_label(false)]
#[tokio::test]
async fn a_bucket_in_use_is_found_without_the_watch(#[case] labelled: bool) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let bucket = world.unique("shared");
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("creator", json!({ "storageClassName": class, "bucketName": bucket })).await;
    world.wait_bound("creator").await;
    // From now on its watch of ObjectBuckets is refused.
    world.kubernetes.clear();
    world.kubernetes.inject(|call| match call.name.as_str() {
        "watch objectbuckets" => Verdict::Answer(403, String::new()),
        "list objectbuckets" if !call.target.contains("labelSelector") => Verdict::Answer(403, String::new()),
        _ => Verdict::Pass,
    });
    world.kubernetes.end_watches(Ending::Closed);
    let refused = |calls: &[Call]| calls.iter().any(|call| call.name.ends_with(" objectbuckets"));
    world.kubernetes.wait_until("the watch is refused", refused).await;

    // Another operator on the same account serves a claim of the same bucket.
    let other = world.neighbour().await;
    let guests = [
        ("bucketName", bucket.as_str()),
        ("allowClaimedBucket", "yes"),
        ("secretNamespace", &world.namespace),
        ("s3Endpoint", &world.aws.url),
        ("iamEndpoint", &world.aws.url),
    ];
    let brownfield = other.class_with("brownfield", "Delete", &guests).await;
    let other_operator = Operator::start(&other, Kind::InProcess).await;
    other.claim_with("guest", json!({ "storageClassName": brownfield })).await;
    other.wait_bound("guest").await;
    other.app("guest").await.put(&bucket, "precious").await.unwrap();
    // It would write the label again.
    other_operator.stop().await;
    if !labelled {
        let unlabelled = Patch::Merge(json!({ "metadata": { "labels": { BUCKET_LABEL: null } } }));
        other.records().patch(&other.record_name("guest"), &PatchParams::default(), &unlabelled).await.unwrap();
    }

    world.delete_claim("creator").await;
    world.wait_reason("creator", "BucketInUse").await;
    assert_eq!(other.app("guest").await.list(&bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}
