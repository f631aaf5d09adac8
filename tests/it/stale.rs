//! Stale caches of StorageClasses: a list returns an old state, the watch that follows is held back, and only a get by name
//! returns the current state. For those of other kinds see the tests of the library.

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Call;
use crate::support::{World, assert_contains, bucket_of, phase};
use provisioner_conformance::{View, Watched};

/// What is made in AWS for a claim.
const MADE: [&str; 4] = ["CreateBucket", "CreateUser", "PutUserPolicy", "CreateAccessKey"];

/// Starts an operator with this view, waits until it has acted on it, and then lets the watch continue. Returns the
/// changes that it requested of AWS and of Kubernetes meanwhile, except those for another claim, which is bound in the
/// end.
async fn settle(world: &World, view: View, class: &str, acts: impl Fn(&Call) -> bool) -> (Vec<String>, Vec<String>) {
    let gate = view.show(world);
    world.kubernetes.clear();
    world.aws.clear();
    let operator = Operator::start(world, Kind::InProcess).await;
    world.kubernetes.wait_until("an act on the old view", |calls| calls.iter().any(&acts)).await;
    gate.open();
    let later = world.claim("later", class).await.uid().unwrap();
    world.wait_bound("later").await;
    // What was begun is finished.
    operator.stop().await;
    world.kubernetes.leave_alone();
    let mut aws = world.aws.writes();
    for call in MADE {
        let at = aws.iter().position(|name| name == call).expect("a call for the other claim");
        aws.remove(at);
    }
    let record = world.record_name("later");
    let of_later = |call: &Call| call.target.split(['/', '?']).any(|part| part == "later" || part == record);
    let writes = world.kubernetes.calls().into_iter().filter(|call| call.mutates && !of_later(call));
    let mut writes: Vec<_> = writes.map(|call| call.name).collect();
    for call in ["create objectbuckets", "create secrets", "create configmaps", "create events"] {
        let at = writes.iter().position(|name| name == call).expect("a write for the other claim");
        writes.remove(at);
    }
    assert_eq!(world.account.users_with(&later).await.len(), 1);
    (aws, writes)
}

#[tokio::test]
async fn a_claim_follows_its_class_once_the_change_is_observed() {
    let world = World::new().await;
    let (wrong, right) = (world.unique("wrong"), world.unique("right"));
    world.account.create_bucket(&right).await;
    let class = world.class("greenfield").await;
    let brownfield = world.class_with("brownfield", "Delete", &[("bucketName", &wrong)]).await;
    let neighbours = world.neighbour().await;
    let credentials_published = world.unique("handed-over");
    let parameters = json!({ "secretName": "owner", "secretNamespace": world.namespace, "s3Endpoint": world.aws.url, "iamEndpoint": world.aws.url });
    let owned_by = |provisioner: &str| json!({ "metadata": { "name": credentials_published }, "provisioner": provisioner, "parameters": parameters });
    world.create_class(owned_by(&neighbours.provisioner)).await;
    let uid = world.claim_with("archive", json!({ "storageClassName": brownfield })).await.uid().unwrap();
    let before = View::of(&world, &[Watched::Classes]).await;
    world.class_with("brownfield", "Delete", &[("bucketName", &right)]).await;
    world.create_class(owned_by(&world.provisioner)).await;
    // Only now: while a class is replaced, any operator in the cluster may report that it is missing.
    world.claim("photos", &credentials_published).await;

    let gate = before.show(&world);
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason("archive", "BucketMissing").await;
    world.claim("later", &class).await;
    world.wait_bound("later").await;
    let untouched = world.claims().get("photos").await.unwrap();
    assert_eq!((phase(&untouched), untouched.finalizers()), (None, &[][..]), "it is another's, as far as can be seen");
    gate.open();
    assert_eq!(bucket_of(&world.wait_bound("archive").await), right);
    world.wait_bound("photos").await;
    operator.stop().await;
    assert_eq!(world.account.users_with(&uid).await.len(), 1);
}

#[tokio::test]
async fn a_stale_class_does_not_take_a_claim_of_another_operator() {
    let world = World::new().await;
    let neighbour = world.neighbour().await;
    let class = world.class("greenfield").await;
    let disputed = world.class("disputed").await;
    let before = View::of(&world, &[Watched::Classes]).await;
    let parameters = json!({ "secretName": "owner", "secretNamespace": world.namespace, "s3Endpoint": neighbour.aws.url, "iamEndpoint": neighbour.aws.url });
    let theirs =
        json!({ "metadata": { "name": disputed }, "provisioner": neighbour.provisioner, "parameters": parameters });
    world.create_class(theirs).await;
    let operator = Operator::start(&neighbour, Kind::InProcess).await;
    world.claim("photos", &disputed).await;
    world.wait_bound("photos").await;
    operator.stop().await;
    let (keys, bound) = (world.environment("photos").await, world.versions("photos").await);

    let (aws, writes) = settle(&world, before, &class, |call| call.name == "watch objectbucketclaims").await;
    assert_eq!((aws, writes), (vec![], vec![]));
    assert_eq!(world.versions("photos").await, bound);
    assert_eq!(world.environment("photos").await, keys);
}

/// Neither what a claim asked for before its edit, nor what was recorded then, comes back.
#[rstest]
#[case::of_the_claim(&[Watched::Claims])]
#[case::of_its_object_bucket(&[Watched::Records])]
#[tokio::test]
async fn a_stale_view_of_an_edited_claim_changes_nothing(#[case] kinds: &[Watched]) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let set = world.class_with("set", "Delete", &[("claimsMaySet", "expireAfter")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let config = json!({ "accessMode": "ReadWrite", "expireAfter": "7d" });
    let spec = json!({ "storageClassName": set, "generateBucketName": "photos", "additionalConfig": config });
    let user = world.claim_with("photos", spec).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let before = View::of(&world, kinds).await;
    let edit = json!({ "spec": { "additionalConfig": { "accessMode": "ReadOnly", "expireAfter": "30d" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    world.wait_event("photos", "AccessChanged").await;
    world.wait_event("photos", "SettingsApplied").await;
    operator.stop().await;
    let user = world.account.users_with(&user).await.pop().unwrap();
    let held = async || (world.account.settings(&bucket).await, world.account.policies(&user).await);
    let (bound, edited) = (world.versions("photos").await, held().await);
    assert_contains(&edited.0, &["days: Some(30)"]);

    let record = world.record_name("photos");
    let is_read = |call: &Call| {
        let reads = ["get objectbucketclaims", "get objectbuckets"].contains(&call.name.as_str());
        reads && (call.target.ends_with("/photos") || call.target.ends_with(&record))
    };
    let (aws, mut writes) = settle(&world, before, &class, is_read).await;
    assert_eq!((world.versions("photos").await, held().await), (bound, edited));
    // It names the version that was seen, so it changes nothing.
    writes.retain(|write| write != "patch objectbucketclaims/status");
    assert_eq!((aws, writes), (vec![], vec![]));
}
