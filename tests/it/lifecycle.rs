//! From claim to usable bucket and back.

use bucket_provisioner::api::{BucketPhase, wire};
use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Binary, Kind, Operator};
use crate::support::{World, bucket_of, ready};

/// It is usable as soon as the claim is bound.
#[tokio::test]
async fn a_generated_bucket_is_usable_and_deleted_with_its_claim() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::Binary).await;

    let submitted = world.claim("photos", &class).await;
    let claim = world.wait_bound("photos").await;
    let uid = submitted.uid().unwrap();
    let bucket = bucket_of(&claim);
    assert_eq!(bucket, format!("photos-{uid}"));
    assert_eq!(claim.spec.object_bucket_name.as_deref(), Some(world.record_name("photos").as_str()));
    assert_eq!(claim.finalizers(), [wire::FINALIZER]);
    assert_eq!(claim.labels()[wire::PROVISIONER_LABEL], world.provisioner.replace('/', "-"));

    let record = world.records().get(&world.record_name("photos")).await.unwrap();
    assert_eq!(record.status.unwrap().phase, Some(BucketPhase::Bound));

    let app = world.app("photos").await;
    app.put(&bucket, "a").await.unwrap();
    assert_eq!(app.list(&bucket).await.unwrap(), ["a"]);
    let other = world.unique("other");
    world.account.create_bucket(&other).await;
    assert_eq!(app.list(&other).await.unwrap_err(), "AccessDenied");
    assert_eq!(app.put(&other, "a").await.unwrap_err(), "AccessDenied");

    let tags = world.account.bucket_tags(&bucket).await;
    assert_eq!(tags["objectbucket.io/claim-uid"], uid);
    assert_eq!(tags["objectbucket.io/claim-namespace"], world.namespace);

    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    assert!(world.account.users_with(&uid).await.is_empty());
    assert!(world.account.bucket_exists(&other).await);
    world.wait_event("photos", "Removed").await;
    let reasons: Vec<_> = world.events("photos").await.into_iter().map(|(type_, reason, _)| (type_, reason)).collect();
    assert_eq!(reasons, [("Normal".into(), "Bound".into()), ("Normal".into(), "Removed".into())]);
}

/// With a warning.
#[rstest]
#[case::in_process(Kind::InProcess)]
#[case::binary(Kind::Binary)]
#[tokio::test]
async fn only_create_bucket_user_no_shares_the_provisioning_keys(#[case] kind: Kind) {
    let world = World::new().await;
    let class = world.class_with("shared", "Delete", &[("createBucketUser", "no")]).await;
    let _operator = Operator::start(&world, kind).await;

    let uid = world.claim("shared", &class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("shared").await);
    assert_eq!(world.environment("shared").await["AWS_ACCESS_KEY_ID"], "test");
    assert!(world.account.users_with(&uid).await.is_empty());
    let (type_, _) = world.wait_event("shared", "OwnerCredentialsShared").await;
    assert_eq!(type_, "Warning");

    world.delete_claim("shared").await;
    world.wait_gone("shared").await;
    assert!(!world.account.bucket_exists(&bucket).await);
}

#[tokio::test]
async fn a_class_without_a_secret_uses_the_operators_own_identity() {
    let world = World::new().await;
    let class = world.class_with("ambient", "Delete", &[("secretName", ""), ("secretNamespace", "")]).await;
    let identity =
        [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_EC2_METADATA_DISABLED", "true")];
    let _operator = Binary::start(&world, &[], &identity);

    let uid = world.claim("ambient", &class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("ambient").await);
    world.app("ambient").await.put(&bucket, "a").await.unwrap();
    assert_eq!(world.account.users_with(&uid).await.len(), 1);

    world.delete_claim("ambient").await;
    world.wait_gone("ambient").await;
    assert!(world.account.users_with(&uid).await.is_empty());
}

#[tokio::test]
async fn the_sdks_endpoint_variable_is_used_and_published_to_apps() {
    let world = World::new().await;
    let class = world.class_with("variable", "Delete", &[("s3Endpoint", ""), ("iamEndpoint", "")]).await;
    let _operator = Binary::start(&world, &[], &[("AWS_ENDPOINT_URL", &world.aws.url)]);

    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let environment = world.environment("photos").await;
    assert_eq!(environment["AWS_ENDPOINT_URL_S3"], world.aws.url);
    assert_eq!(environment["AWS_REGION"], "us-west-1");
    assert_eq!(environment["BUCKET_SUBREGION"], "");
}

#[tokio::test]
async fn claims_of_one_object_bucket_name_get_one_each() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;

    // `obc-NS-a` exists, and records another claim.
    let taken = world.record_name("a");
    let foreign = json!({
        "metadata": { "name": taken },
        "spec": { "storageClassName": "x", "additionalState": { "claimUID": "another" } },
    });
    world.records().create(&Default::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let uid = world.claim("a", &class).await.uid().unwrap();
    let claim = world.wait_bound("a").await;
    assert_eq!(claim.spec.object_bucket_name, Some(format!("{taken}-{uid}")));

    world.delete_claim("a").await;
    world.wait_gone("a").await;
    assert!(world.records().get_opt(&format!("{taken}-{uid}")).await.unwrap().is_none());
    let foreign = world.records().get(&taken).await.unwrap();
    assert_eq!(foreign.spec.additional_state.unwrap()["claimUID"], "another");
}

#[tokio::test]
async fn a_claim_deleted_while_it_cannot_be_finished_leaves_nothing() {
    use crate::support::proxy::Verdict;
    let world = World::new().await;
    let class = world.class("greenfield").await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateAccessKey" => Verdict::Answer(503, String::new()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;

    let uid = world.claim("stuck", &class).await.uid().unwrap();
    world.wait_claim("stuck", "reported with a reason", |claim| ready(claim).is_some()).await;
    assert_eq!(world.account.users_with(&uid).await.len(), 1);
    assert_eq!(world.account.buckets_with(&uid).await.len(), 1);

    world.delete_claim("stuck").await;
    world.wait_gone("stuck").await;
    world.assert_no_objects("stuck").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    assert!(world.account.buckets_with(&uid).await.is_empty());
}

#[tokio::test]
async fn an_unbound_claim_can_be_edited_and_what_was_begun_is_undone() {
    use crate::support::proxy::{Call, Verdict};
    use kube::api::{Patch, PatchParams};
    let world = World::new().await;
    let class = world.class("greenfield").await;
    world.aws.inject(|call| match call.name.as_str() {
        "CreateUser" => Verdict::Answer(503, String::new()),
        _ => Verdict::Pass,
    });
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let (first, second) = (world.unique("first"), world.unique("second"));
    world.claim_with("edited", json!({ "storageClassName": class, "bucketName": first })).await;
    world.wait_claim("edited", "reported with a reason", |claim| ready(claim).is_some()).await;
    assert!(world.account.bucket_exists(&first).await);

    let edit = Patch::Merge(json!({ "spec": { "bucketName": second } }));
    world.claims().patch("edited", &PatchParams::default(), &edit).await.unwrap();
    let begun = |calls: &[Call]| calls.iter().any(|c| c.name == "CreateBucket" && c.target.contains(&second));
    world.aws.wait_until("the second bucket", begun).await;
    world.aws.leave_alone();
    world.wait_bound("edited").await;
    assert_eq!(world.environment("edited").await["BUCKET_NAME"], second);
    assert!(world.account.bucket_exists(&second).await);
    assert!(!world.account.bucket_exists(&first).await);
}
