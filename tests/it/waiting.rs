//! Claims that wait for a change by an admin are requeued when it is made, without polling AWS.

use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;

#[tokio::test]
async fn a_new_class_requeues_the_claims_that_name_it() {
    let world = World::new().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let class = world.unique("late");
    world.claim("early", &class).await;
    let message = world.wait_reason("early", "StorageClassNotFound").await;
    assert!(message.contains(&format!("StorageClass {class:?} does not exist")), "{message}");
    assert!(world.claims().get("early").await.unwrap().metadata.finalizers.is_none(), "nothing holds it");

    world.class("late").await;
    world.wait_bound("early").await;
}

#[tokio::test]
async fn a_fixed_class_requeues_the_claims_that_name_it() {
    let world = World::new().await;
    let class = world.class_with("typo", "Delete", &[("secretname", "owner")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("early", &class).await;
    world.wait_reason("early", "InvalidClassParameter").await;
    world.class("typo").await;
    world.wait_bound("early").await;
}

#[tokio::test]
async fn a_new_or_fixed_provisioning_secret_requeues_claims() {
    let world = World::new().await;
    let class = world.class_with("late-secret", "Delete", &[("secretName", "late")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("early", &class).await;
    let message = world.wait_reason("early", "OwnerSecretNotFound").await;
    assert!(message.contains(&format!("{}/late", world.namespace)), "{message}");

    world.owner_secret("late", &[("AWS_ACCESS_KEY_ID", "test")]).await;
    let message = world.wait_reason("early", "InvalidOwnerSecret").await;
    assert!(message.contains("AWS_SECRET_ACCESS_KEY"), "{message}");
    assert!(world.aws.names().is_empty(), "AWS is not asked meanwhile: {:?}", world.aws.names());

    world.owner_secret("late", &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")]).await;
    world.wait_bound("early").await;
}

#[tokio::test]
async fn a_class_with_the_wrong_bucket_can_be_fixed() {
    let world = World::new().await;
    let (wrong, right) = (world.unique("wrong"), world.unique("right"));
    world.account.create_bucket(&right).await;
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &wrong)]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("archive", serde_json::json!({ "storageClassName": class })).await;
    world.wait_reason("archive", "BucketMissing").await;
    world.class_with("brownfield", "Delete", &[("bucketName", &right)]).await;
    let claim = world.wait_bound("archive").await;
    assert_eq!(claim.spec.bucket_name, Some(right));
}

/// The claim can be deleted meanwhile.
#[tokio::test]
async fn a_wrong_endpoint_can_be_fixed() {
    let world = World::new().await;
    let nowhere = [("s3Endpoint", "http://127.0.0.1:1"), ("iamEndpoint", "http://127.0.0.1:1")];
    let class = world.class_with("nowhere", "Delete", &nowhere).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for claim in ["mended", "deleted"] {
        world.claim(claim, &class).await;
        world.wait_reason(claim, "StoreUnreachable").await;
    }
    world.delete_claim("deleted").await;
    world.wait_gone("deleted").await;
    world.class("nowhere").await;
    world.wait_bound("mended").await;
}

#[tokio::test]
async fn a_claim_that_never_got_anywhere_can_be_deleted_at_once() {
    let world = World::new().await;
    let class = world.class_with("no-secret", "Delete", &[("secretName", "missing")]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("stuck", &class).await;
    world.wait_reason("stuck", "OwnerSecretNotFound").await;
    world.claim("nowhere", "no-such-class").await;
    world.wait_reason("nowhere", "StorageClassNotFound").await;
    for claim in ["stuck", "nowhere"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
}

/// Until then it holds no worker.
#[tokio::test]
async fn a_claim_binds_only_when_its_credentials_work() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let refused = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "ListObjectsV2" if call.target.contains("slow") => Verdict::Answer(403, refused.to_owned()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for n in 0..40 {
        world.claim(&format!("slow-{n}"), &class).await;
    }
    for n in 0..40 {
        world.wait_reason(&format!("slow-{n}"), "WaitingForCredentials").await;
    }
    assert!(world.config_maps().get_opt("slow-0").await.unwrap().is_none(), "no app can start yet");
    // More claims wait than there are workers, and yet another one is served.
    world.claim("quick", &class).await;
    world.wait_bound("quick").await;

    world.aws.leave_alone();
    for n in 0..40 {
        world.wait_bound(&format!("slow-{n}")).await;
    }
    let keys = world.aws.names().iter().filter(|name| *name == "CreateAccessKey").count();
    assert_eq!(keys, 41, "waiting mints no keys");
}

/// More often than the claim is attempted.
#[tokio::test]
async fn new_keys_are_tried_often_until_the_claim_is_deleted() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let refused = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";
    let mut tries = 0;
    world.aws.inject(move |call| {
        let is_try = call.name == "ListObjectsV2";
        tries += usize::from(is_try && call.target.contains("photos"));
        let is_refused = is_try && (tries <= 20 || call.target.contains("never"));
        if is_refused { Verdict::Answer(403, refused.to_owned()) } else { Verdict::Pass }
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let called = |name: &str| world.aws.names().iter().filter(|called| *called == name).count();
    assert_eq!(called("CreateAccessKey"), 1, "so many refused attempts would have replaced it");
    assert_eq!(called("ListObjectsV2"), 21, "not tried again by the attempt after the wait");

    world.claim("never", &class).await;
    world.wait_reason("never", "WaitingForCredentials").await;
    world.delete_claim("never").await;
    world.wait_gone("never").await;
    let tried = called("ListObjectsV2");
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    assert_eq!(called("ListObjectsV2"), tried + 1);
}
