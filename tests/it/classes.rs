//! Classes that go, and come back as something else; and that leave something out.

use bucket_provisioner::api::ClaimPhase;
use kube::ResourceExt as _;
use kube::api::DeleteParams;

use crate::support::operator::{Binary, IAM_OF_AWS, Kind, Operator};
use crate::support::proxy::{Call, Verdict};
use crate::support::{World, bucket_of, phase, ready};

#[tokio::test]
async fn only_unbound_claims_follow_changes_of_their_class() {
    let world = World::new().await;
    let class = world.class("mutable").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("bound", &class).await;
    let bucket = bucket_of(&world.wait_bound("bound").await);
    let configured = world.environment("bound").await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(503, String::new()),
        _ => Verdict::Pass,
    });
    let unbound = world.claim("unbound", &class).await.uid().unwrap();
    world.wait_claim("unbound", "reported with a reason", |claim| ready(claim).is_some()).await;

    // Another region, another way to AWS, other keys, another policy.
    let elsewhere = world.neighbour().await;
    world.owner_secret("second", &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]).await;
    let parameters = [
        ("region", "eu-central-1"),
        ("secretName", "second"),
        ("s3Endpoint", elsewhere.aws.url.as_str()),
        ("iamEndpoint", &elsewhere.aws.url),
    ];
    world.class_with("mutable", "Retain", &parameters).await;
    world.wait_bound("unbound").await;
    world.aws.leave_alone();
    let environment = world.environment("unbound").await;
    assert_eq!(environment["BUCKET_REGION"], "eu-central-1");
    assert_eq!(environment["AWS_ENDPOINT_URL_S3"], elsewhere.aws.url);
    assert_eq!(world.account.users_with(&unbound).await.len(), 1);
    let of_unbound = |call: &Call| call.target.contains(&unbound);
    let undone = world.aws.calls().into_iter().filter(of_unbound).map(|call| call.name).next_back();
    assert_eq!(undone.as_deref(), Some("GetBucketTagging"), "what was begun where it was is undone there");

    world.aws.clear();
    elsewhere.aws.clear();
    world.kubernetes.clear();
    let old = configured["AWS_ACCESS_KEY_ID"].clone();
    world.secrets().delete("bound", &DeleteParams::default()).await.unwrap();
    world.wait_secret("bound", |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
    world.wait_reason("bound", "Bound").await;
    let mut repaired = world.environment("bound").await;
    for key in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        repaired.insert(key.to_owned(), configured[key].clone());
    }
    assert_eq!(repaired, configured, "the rest is as it was");
    world.app("bound").await.put(&bucket, "a").await.unwrap();
    // A restart forgets nothing of it.
    operator.stop().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("bound").await;
    world.wait_gone("bound").await;
    assert!(!world.account.bucket_exists(&bucket).await, "the policy of its time was Delete");
    assert!(elsewhere.aws.names().is_empty(), "{:?}", elsewhere.aws.names());
    let secrets = world.kubernetes.calls().into_iter().filter(|call| call.name == "get secrets");
    let read: Vec<_> = secrets.filter(|call| call.target.ends_with("/second")).collect();
    assert_eq!(read, [], "the keys of its time were used");
}

/// They report the reason.
#[tokio::test]
async fn deleting_a_class_affects_only_unbound_claims() {
    let world = World::new().await;
    let class = world.class("gone").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("bound", &class).await;
    let bucket = bucket_of(&world.wait_bound("bound").await);
    world.aws.inject(|call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(503, String::new()),
        _ => Verdict::Pass,
    });
    let mut uids = vec![];
    for claim in ["deleted", "waiting"] {
        uids.push(world.claim(claim, &class).await.uid().unwrap());
        world.wait_claim(claim, "reported with a reason", |claim| ready(claim).is_some()).await;
    }
    world.delete_class(&class).await;
    for claim in ["deleted", "waiting"] {
        let message = world.wait_reason(claim, "StorageClassNotFound").await;
        assert!(message.contains(&class), "{message}");
    }
    world.aws.leave_alone();
    operator.stop().await;
    let before = world.claims().get("bound").await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("deleted").await;
    world.wait_gone("deleted").await;
    assert!(world.account.users_with(&uids[0]).await.is_empty());
    assert!(world.account.buckets_with(&uids[0]).await.is_empty());
    let old = world.environment("bound").await["AWS_ACCESS_KEY_ID"].clone();
    assert_eq!(world.claims().get("bound").await.unwrap().resource_version(), before.resource_version());
    world.secrets().delete("bound", &DeleteParams::default()).await.unwrap();
    world.wait_secret("bound", |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
    assert_eq!(phase(&world.claims().get("bound").await.unwrap()), Some(ClaimPhase::Bound));
    world.app("bound").await.put(&bucket, "a").await.unwrap();
    world.delete_claim("bound").await;
    world.wait_gone("bound").await;
    assert!(!world.account.bucket_exists(&bucket).await);

    world.class("gone").await;
    world.wait_bound("waiting").await;
    assert_eq!(world.account.users_with(&uids[1]).await.len(), 1);
    assert_eq!(world.account.buckets_with(&uids[1]).await.len(), 1);
}

/// With an event on the class.
#[tokio::test]
async fn a_class_without_a_region_is_warned_about() {
    let world = World::new().await;
    let parameters = [("region", ""), ("s3Endpoint", "http://s3.us-west-1.amazonaws.com"), IAM_OF_AWS];
    let class = world.class_with("anywhere", "Delete", &parameters).await;
    let _operator = Binary::start_at_aws(&world);
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    world.wait_event_on_record(&class, "RegionNotNamed").await;
}
