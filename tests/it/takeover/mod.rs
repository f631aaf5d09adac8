//! Taking over from the Go provisioner: objects as it wrote them (`fixtures/go-provisioner`), with their AWS
//! side.

pub(crate) mod legacy;

use std::time::Duration;

use bucket_provisioner::api::ClaimPhase;
use kube::ResourceExt as _;
use kube::api::Patch;
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Kind, Operator};
use crate::support::other::{OtherCluster, fixture_crds};
use crate::support::proxy::Call;
use crate::support::tool::Tool;
use crate::support::{World, bucket_of, phase};

use legacy::{Legacy, Reached, Spelling, create, generated};

async fn versions(world: &World) -> Vec<Option<String>> {
    vec![
        world.claims().get("c2").await.unwrap().resource_version(),
        world.records().get(&world.record_name("c2")).await.unwrap().resource_version(),
        world.secrets().get("c2").await.unwrap().resource_version(),
        world.config_maps().get("c2").await.unwrap().resource_version(),
    ]
}

/// What the tool shows about the claim.
async fn status(world: &World) -> String {
    Tool::run(world, &["status", &format!("{}/c2", world.namespace)], "").await.out
}

/// They can be deleted completely.
#[rstest]
#[case::spelled_in_2019(Spelling::Upper)]
#[case::spelled_later(Spelling::Lower)]
#[tokio::test]
async fn claims_bound_by_the_go_provisioner_stay_as_they_are(#[case] spelling: Spelling) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, spelling).await;
    world.app("c2").await.put(&legacy.bucket, "a").await.unwrap();
    let before = versions(&world).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("new", &class).await;
    world.wait_bound("new").await;
    if let Spelling::Lower = spelling {
        assert_eq!(versions(&world).await, before, "nothing is written");
    }
    let of_legacy = |name: &str| world.aws.calls().iter().any(|call| call.target.contains(name));
    assert!(!of_legacy(&legacy.bucket), "AWS is not asked: {:#?}", world.aws.calls());

    let shown = status(&world).await;
    assert!(shown.contains(&format!("deletes bucket {:?} with all its content", legacy.bucket)), "{shown}");
    assert!(shown.contains("created for this claim") && !shown.contains("not been published"), "{shown}");
    assert!(!shown.contains("own identity"), "{shown}");
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    legacy.assert_gone(&world).await;
}

/// With an event that reports it.
#[tokio::test]
async fn without_its_class_access_is_removed_and_the_bucket_stays() {
    let world = World::new().await;
    let legacy = Legacy::install(&world, &world.unique("gone"), Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let shown = status(&world).await;
    assert!(shown.contains(&format!("keeps bucket {:?}", legacy.bucket)), "{shown}");
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(!world.account.user_exists(&legacy.user).await);
    assert!(!legacy.policy_exists(&world).await);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);
    let (type_, note) = world.wait_event("c2", "LeftInPlace").await;
    assert_eq!(type_, "Warning");
    assert!(note.contains(&legacy.bucket) && note.contains("no longer exists"), "{note}");
}

/// Its ObjectBucket does not record the credentials, and the class that its user names later may be of another account.
#[tokio::test]
async fn an_edited_class_does_not_change_whose_credentials_are_used() {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let other = world.class_with("other", "Delete", &[("secretName", "missing")]).await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let edit = json!({ "spec": { "storageClassName": other, "additionalConfig": { "serviceAccountName": "web" } } });
    world.claims().patch("c2", &Default::default(), &Patch::Merge(edit)).await.unwrap();
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    legacy.assert_gone(&world).await;
}

#[tokio::test]
async fn a_bucket_that_the_class_names_was_granted_and_stays() {
    let world = World::new().await;
    let bucket = generated(&world);
    let class = world.class_with("brownfield", "Delete", &[("bucketName", &bucket)]).await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    assert!(!world.account.user_exists(&legacy.user).await);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);
}

/// Why a bucket of the Go provisioner stays although its class names none today.
#[derive(Debug, Clone, Copy)]
enum Doubt {
    /// The claim chose the name. Another claim, or an admin, may have made the bucket before.
    ChosenName,
    /// Somebody put tags on it.
    Tags,
}

/// With an event that reports it.
#[rstest]
#[case(Doubt::ChosenName)]
#[case(Doubt::Tags)]
#[tokio::test]
async fn a_bucket_not_proven_to_be_the_claims_stays(#[case] doubt: Doubt) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let spec = match doubt {
        Doubt::ChosenName => json!({ "generateBucketName": null }),
        Doubt::Tags => json!({}),
    };
    if let Doubt::Tags = doubt {
        world.account.tag_bucket(&legacy.bucket, &[("team", "ledger")]).await;
    }
    let edit = Patch::Merge(json!({ "spec": spec }));
    world.claims().patch("c2", &Default::default(), &edit).await.unwrap();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let shown = status(&world).await;
    match doubt {
        Doubt::ChosenName => assert!(shown.contains("keeps bucket") && shown.contains("or existed before"), "{shown}"),
        Doubt::Tags => assert!(shown.contains("if it has tags, it is kept"), "{shown}"),
    }
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(!world.account.user_exists(&legacy.user).await);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);
    let (type_, note) = world.wait_event("c2", "LeftInPlace").await;
    assert!(type_ == "Warning" && note.contains(&legacy.bucket), "{note}");
    let (_, note) = world.wait_event("c2", "Removed").await;
    assert!(note.contains("access is deleted") && !note.contains("is deleted with all"), "{note}");
}

/// With a new key.
#[tokio::test]
async fn a_deleted_secret_of_the_go_provisioner_is_recreated() {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    let old = world.environment("c2").await["AWS_ACCESS_KEY_ID"].clone();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let unfinalized = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    world.secrets().patch("c2", &Default::default(), &unfinalized).await.unwrap();
    world.secrets().delete("c2", &Default::default()).await.unwrap();
    world.wait_secret("c2", |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
    world.app("c2").await.put(&legacy.bucket, "a").await.unwrap();
    assert_eq!(world.account.keys(&legacy.user).await.len(), 1);
}

#[rstest]
#[case(Reached::Record)]
#[case(Reached::RecordBound)]
#[case(Reached::ClaimNamed)]
#[tokio::test]
async fn an_unbound_object_bucket_of_the_go_provisioner_is_finished(#[case] reached: Reached) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install_up_to(&world, &class, Spelling::Lower, reached).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let key = world.environment("c2").await["AWS_ACCESS_KEY_ID"].clone();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_bound("c2").await;
    assert_eq!(world.environment("c2").await["BUCKET_NAME"], legacy.bucket);
    assert_eq!(world.environment("c2").await["AWS_ACCESS_KEY_ID"], key);
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);

    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    legacy.assert_gone(&world).await;
}

/// The Go provisioner set none, and what the class sets today could delete what is in the bucket. Nor does an edit of the
/// claim set any.
#[rstest]
#[case(Reached::Record)]
#[case(Reached::ClaimBound)]
#[tokio::test]
async fn a_bucket_of_the_go_provisioner_gets_no_settings(#[case] reached: Reached) {
    let world = World::new().await;
    let parameters = [
        ("expireAfter", "1d"),
        ("bucketVersioning", "Enabled"),
        ("publicAccess", "blocked"),
        ("tags", "env=prod"),
        ("claimsMaySet", "expireAfter"),
    ];
    let class = world.class_with("legacy", "Delete", &parameters).await;
    let legacy = Legacy::install_up_to(&world, &class, Spelling::Lower, reached).await;
    let s3 = &world.account.s3;
    s3.delete_public_access_block().bucket(&legacy.bucket).send().await.unwrap();
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let _operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(300)));
    world.wait_bound("c2").await;
    let edit = Patch::Merge(json!({ "spec": { "additionalConfig": { "expireAfter": "2d" } } }));
    world.claims().patch("c2", &Default::default(), &edit).await.unwrap();
    world.retry("c2", "now").await;
    // A new bucket of the class has them, and they are checked again and again.
    world.claim("new", &class).await;
    let new = bucket_of(&world.wait_bound("new").await);
    assert!(s3.get_bucket_lifecycle_configuration().bucket(&new).send().await.is_ok());
    let is_check = |call: &Call| call.name == "GetBucketLifecycleConfiguration" && call.target.contains(&new);
    let checked_twice = |calls: &[Call]| calls.iter().filter(|call| is_check(call)).count() > 2;
    world.aws.wait_until("checks of the new bucket", checked_twice).await;

    let mut calls = world.aws.calls();
    calls.retain(|call| call.mutates && call.target.contains(&legacy.bucket));
    assert!(calls.is_empty(), "{calls:?}");
    assert!(s3.get_bucket_lifecycle_configuration().bucket(&legacy.bucket).send().await.is_err());
    assert!(s3.get_public_access_block().bucket(&legacy.bucket).send().await.is_err());
    assert!(s3.get_bucket_tagging().bucket(&legacy.bucket).send().await.is_err(), "it is not tagged");
    assert_eq!(s3.get_bucket_versioning().bucket(&legacy.bucket).send().await.unwrap().status, None);
    let tags = world.account.iam.list_user_tags().user_name(&legacy.user).send().await.unwrap();
    assert!(tags.tags().is_empty(), "{tags:?}");
    assert_eq!(world.account.list(&legacy.bucket).await.unwrap(), ["kept"]);

    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    legacy.assert_gone(&world).await;
}

/// Nothing proves that what no ObjectBucket records is the claim's: not even its name, which the claim's user can write
/// into the ConfigMap. The claim gets a new bucket.
#[rstest]
#[case::and_goes_on(false)]
#[case::and_is_deleted(true)]
#[tokio::test]
async fn what_no_object_bucket_records_stays_and_is_named(#[case] delete: bool) {
    let world = World::new().await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install_up_to(&world, &class, Spelling::Lower, Reached::Outputs).await;
    let uid = world.claims().get("c2").await.unwrap().uid().unwrap();
    if delete {
        world.delete_claim("c2").await;
    }
    let _operator = Operator::start(&world, Kind::InProcess).await;
    if !delete {
        let bucket = bucket_of(&world.wait_bound("c2").await);
        assert_ne!(bucket, legacy.bucket);
        world.app("c2").await.put(&bucket, "a").await.unwrap();
        assert_eq!(world.account.users_with(&uid).await.len(), 1);
    }
    let (type_, note) = world.wait_event("c2", "LeftInPlace").await;
    assert_eq!(type_, "Warning");
    assert!(note.contains(&legacy.bucket), "{note}");
    if !delete {
        world.delete_claim("c2").await;
    }
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(world.account.bucket_exists(&legacy.bucket).await);
    assert!(world.account.user_exists(&legacy.user).await);
    assert!(world.account.users_with(&uid).await.is_empty());
    assert!(world.account.buckets_with(&uid).await.is_empty());
}

#[tokio::test]
async fn a_claim_with_only_the_go_finalizer_is_served() {
    let world = World::new().await;
    let class = world.class("legacy").await;
    Legacy::install_up_to(&world, &class, Spelling::Lower, Reached::Taken).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bucket_of(&world.wait_bound("c2").await);
    world.app("c2").await.put(&bucket, "a").await.unwrap();
    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(!world.account.bucket_exists(&bucket).await);
}

#[tokio::test]
async fn a_pruned_claim_reference_is_given_to_the_right_claim() {
    let other = OtherCluster::take().await;
    other.install(&fixture_crds(include_str!("../fixtures/crds/phase-only.yaml"))).await;
    // `obc-t-ID-x-c2` is what both `t-ID-x/c2` and `t-ID/x-c2` are recorded under.
    let thief = other.world().await;
    let world = other.world_called(&format!("{}-x", thief.id)).await;
    let class = world.class("legacy").await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    let name = world.record_name("c2");
    let record = world.records().get(&name).await.unwrap();
    assert_eq!(record.spec.claim_ref, Some(Default::default()), "it is pruned");
    world.app("c2").await.put(&legacy.bucket, "a").await.unwrap();
    let before = versions(&world).await;

    // As like the other as a user can make it: all but younger, by one second at least.
    let claim = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
        "metadata": {
            "name": "x-c2", "namespace": thief.namespace, "finalizers": ["objectbucket.io/finalizer"],
            "labels": { "bucket-provisioner": world.provisioner.replace('/', "-") },
        },
        "spec": { "storageClassName": class, "bucketName": legacy.bucket, "objectBucketName": name },
        "status": { "phase": "Bound" },
    });
    let born = record.creation_timestamp().unwrap();
    loop {
        create(&thief, &claim).await;
        if thief.claims().get("x-c2").await.unwrap().creation_timestamp().unwrap() > born {
            break;
        }
        let unfinalized = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        thief.claims().patch("x-c2", &Default::default(), &unfinalized).await.unwrap();
        thief.delete_claim("x-c2").await;
    }
    let _operator = Operator::with(&world, Operator::options(&world).with_namespace(None));
    thief.wait_event("x-c2", "AdoptionNeeded").await;
    thief.delete_claim("x-c2").await;
    thief.wait_gone("x-c2").await;
    world.claim("new", &class).await;
    world.wait_bound("new").await;
    assert_eq!(versions(&world).await, before, "nothing is written");
    assert_eq!(world.app("c2").await.list(&legacy.bucket).await.unwrap(), ["a"]);

    world.delete_claim("c2").await;
    world.wait_gone("c2").await;
    world.assert_no_objects("c2").await;
    assert!(world.records().get_opt(&name).await.unwrap().is_none());
    legacy.assert_gone(&world).await;
}

/// `team/prod-x` and `team-prod/x` have one name for their ObjectBuckets. Where a CRD pruned the reference to the
/// claim, nothing in the ObjectBucket distinguishes them, and what their users can write into a claim is no proof.
/// Until an admin sets which of the two it is of.
#[tokio::test]
async fn an_ambiguous_object_bucket_serves_no_claim() {
    let other = OtherCluster::take().await;
    other.install(&fixture_crds(include_str!("../fixtures/crds/phase-only.yaml"))).await;
    let rival = other.world().await;
    let world = other.world_called(&format!("{}-x", rival.id)).await;
    let class = world.class("legacy").await;
    // As old as the other, or older: the Go provisioner never came to serve it, for the name was taken.
    let claim = json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
        "metadata": { "name": "x-c2", "namespace": rival.namespace },
        "spec": { "storageClassName": class, "generateBucketName": "b2" },
    });
    create(&rival, &claim).await;
    let legacy = Legacy::install(&world, &class, Spelling::Lower).await;
    world.app("c2").await.put(&legacy.bucket, "kept").await.unwrap();
    let name = world.record_name("c2");
    let _operator = Operator::with(&world, Operator::options(&world).with_namespace(None));
    world.delete_claim("c2").await;
    let (type_, note) = world.wait_event("c2", "ObjectBucketAmbiguous").await;
    assert!(type_ == "Warning" && note.contains(&name) && note.contains("claimUID"), "{note}");
    assert!(world.claims().get("c2").await.is_ok());
    assert_eq!(world.app("c2").await.list(&legacy.bucket).await.unwrap(), ["kept"]);

    let uid = world.claims().get("c2").await.unwrap().uid().unwrap();
    let edit = Patch::Merge(json!({ "spec": { "additionalState": { "claimUID": uid } } }));
    world.records().patch(&name, &Default::default(), &edit).await.unwrap();
    world.wait_gone("c2").await;
    legacy.assert_gone(&world).await;
    rival.wait_claim("x-c2", "bound", |claim| phase(claim) == Some(ClaimPhase::Bound)).await;
}
