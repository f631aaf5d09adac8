//! Names that a claim gives: what no object can have as its name never becomes a part of a request.

use bucket_provisioner::api::ObjectBucketClaim;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::other::{OtherCluster, ours};
use crate::support::{World, assert_contains, bucket_of, condition};

/// What the API server would read as another request, `CLASS` standing for the name of a class that exists.
const REQUESTS: [&str; 11] = [
    "?watch=true",
    "?",
    "CLASS?x=1",
    "CLASS/",
    "CLASS#a",
    "CLASS ",
    "CLASS%20",
    "..",
    "%2e%2e",
    "../../../../api/v1/namespaces/default/secrets/s3-owner",
    "é 🎉",
];

/// CRDs without rules for names.
fn without_patterns() -> [Value; 2] {
    let [mut claims, records] = ours();
    for field in ["storageClassName", "objectBucketName"] {
        let schema = &mut claims["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let rule = schema["properties"][field].as_object_mut().unwrap().remove("pattern");
        assert!(rule.is_some(), "our CRD has a rule for {field}");
    }
    [claims, records]
}

/// The requests for one StorageClass or ObjectBucket.
fn requests(world: &World) -> Vec<String> {
    let single = |target: &String| target.contains("/storageclasses/") || target.contains("/objectbuckets/");
    world.kubernetes.calls().into_iter().map(|call| call.target).filter(single).collect()
}

#[tokio::test]
async fn an_impossible_class_name_is_refused_without_a_request() {
    let other = OtherCluster::take().await;
    other.install(&without_patterns()).await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for (n, text) in REQUESTS.iter().enumerate() {
        let named = text.replace("CLASS", &class);
        let spec = json!({ "storageClassName": named, "generateBucketName": "photos" });
        world.claim_with(&format!("photos-{n}"), spec).await;
    }
    for (n, text) in REQUESTS.iter().enumerate() {
        let message = world.wait_reason(&format!("photos-{n}"), "StorageClassNotFound").await;
        assert_contains(&message, &[&format!("{:?}", text.replace("CLASS", &class)), "spec.storageClassName"]);
    }
    assert_eq!(requests(&world), [""; 0]);
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());
}

#[tokio::test]
async fn an_impossible_object_bucket_name_leads_to_no_request() {
    let other = OtherCluster::take().await;
    other.install(&without_patterns()).await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    for (n, text) in REQUESTS.iter().enumerate() {
        let spec = json!({
            "storageClassName": class,
            "generateBucketName": "photos",
            "objectBucketName": text.replace("CLASS", &class),
        });
        world.claim_with(&format!("photos-{n}"), spec).await;
    }
    for (n, text) in REQUESTS.iter().enumerate() {
        let message = world.wait_reason(&format!("photos-{n}"), "AdoptionNeeded").await;
        assert_contains(
            &message,
            &[&format!("{:?}", text.replace("CLASS", &class)), "create the claim without spec.objectBucketName"],
        );
    }
    let own = |target: &String| target.contains("/objectbuckets/obc-");
    let odd: Vec<String> = requests(&world).into_iter().filter(|target| !own(target)).collect();
    assert_eq!(odd, [""; 0]);
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());
}

#[tokio::test]
async fn our_crd_refuses_impossible_object_names() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    for text in REQUESTS {
        let text = text.replace("CLASS", &class);
        for field in ["storageClassName", "objectBucketName"] {
            let mut spec = json!({ "storageClassName": class, "generateBucketName": "photos" });
            spec[field] = json!(text);
            let claim = ObjectBucketClaim::new("photos", serde_json::from_value(spec).unwrap());
            let refused = world.claims().create(&Default::default(), &claim).await.unwrap_err();
            assert_contains(&refused.to_string(), &[&format!("spec.{field}"), "should match"]);
        }
    }
}

#[tokio::test]
async fn a_bucket_without_the_prefix_is_shown_in_the_claim() {
    let world = World::new().await;
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    let greenfield = world.class("greenfield").await;
    let brownfield = world.class_with("brownfield", "Delete", &[("bucketName", &archive)]).await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("dotted", json!({ "storageClassName": greenfield, "generateBucketName": "a." })).await;
    world.claim_with("granted", json!({ "storageClassName": brownfield, "generateBucketName": "photos" })).await;
    for claim in ["dotted", "granted"] {
        let bucket = bucket_of(&world.wait_bound(claim).await);
        let shown = world.claims().get(claim).await.unwrap().spec.bucket_name;
        assert_eq!(shown, Some(bucket), "{claim}");
    }
}

#[tokio::test]
async fn a_wrong_object_bucket_name_on_a_bound_claim_is_corrected() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    operator.stop().await;
    for name in [None, Some("obc-other-photos")] {
        let edit = Patch::Merge(json!({ "spec": { "objectBucketName": name } }));
        world.claims().patch("photos", &PatchParams::default(), &edit).await.unwrap();
    }
    let _operator = Operator::start(&world, Kind::InProcess).await;
    let record = world.record_name("photos");
    let corrected = |claim: &ObjectBucketClaim| claim.spec.object_bucket_name.as_deref() == Some(&record);
    let claim = world.wait_claim("photos", "corrected", corrected).await;
    assert_eq!(condition(&claim, "Ready").unwrap().reason, "Bound");
}
