//! Other operators: of another name in the same cluster, and of the same name in another cluster with the same
//! AWS account.

use kube::ResourceExt as _;
use serde_json::json;

use crate::support::operator::{Kind, Operator};
use crate::support::other::OtherCluster;
use crate::support::{World, bucket_of};

/// They leave each other's claims alone.
#[tokio::test]
async fn operators_of_two_names_can_share_a_cluster() {
    let world = World::new().await;
    let neighbour = world.neighbour().await;
    let owner = [("secretNamespace", world.namespace.as_str())];
    let (ours, theirs) = (world.class("ours").await, neighbour.class_with("theirs", "Delete", &owner).await);
    let _ours = Operator::start(&world, Kind::InProcess).await;
    let _theirs = Operator::start(&neighbour, Kind::InProcess).await;

    let bucket = world.unique("contested");
    world.claim_with("ours", json!({ "storageClassName": ours, "bucketName": bucket })).await;
    let bound = world.wait_bound("ours").await;
    assert_eq!(bound.labels()["bucket-provisioner"], world.provisioner.replace('/', "-"));
    world.claim("theirs", &theirs).await;
    let bound = world.wait_bound("theirs").await;
    assert_eq!(bound.labels()["bucket-provisioner"], neighbour.provisioner.replace('/', "-"));
    world.claim_with("loser", json!({ "storageClassName": theirs, "bucketName": bucket })).await;
    world.wait_reason("loser", "BucketTaken").await;

    // A class that changes hands takes no bound claim along.
    let credentials_published = json!({
        "metadata": { "name": ours }, "provisioner": neighbour.provisioner,
        "parameters": { "secretName": "owner", "secretNamespace": world.namespace },
    });
    world.create_class(credentials_published).await;
    for claim in ["later", "yet-later"] {
        world.claim(claim, &theirs).await;
        world.wait_bound(claim).await;
    }
    for (operator, foreign) in [(&world, ["theirs", "loser"].as_slice()), (&neighbour, &["ours"])] {
        for call in operator.kubernetes.calls().iter().filter(|call| call.mutates) {
            let name = call.target.split(['/', '?']).find(|part| foreign.contains(part));
            assert_eq!(name, None, "{call:?}");
        }
    }

    neighbour.kubernetes.clear();
    for claim in ["loser", "ours"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.assert_no_objects(claim).await;
    }
    assert!(!world.account.bucket_exists(&bucket).await, "its claim was deleted");
    world.app("theirs").await.list(&bucket_of(&bound)).await.unwrap();
    let writes = neighbour.kubernetes.calls().into_iter().filter(|call| call.mutates && call.target.contains("ours"));
    assert_eq!(writes.count(), 0, "the one that bound the claim removes it");
}

/// They have the same name, and leave each other's buckets and users alone.
#[tokio::test]
async fn operators_of_two_clusters_can_share_an_account() {
    let other = OtherCluster::take().await;
    let here = World::new().await;
    let there = other.twin_of(&here).await;
    assert_eq!((&here.provisioner, &here.namespace), (&there.provisioner, &there.namespace));
    let (bucket, class) = (here.unique("contested"), here.class("greenfield").await);
    assert_eq!(there.class("greenfield").await, class);
    let _here = Operator::start(&here, Kind::InProcess).await;
    let _there = Operator::start(&there, Kind::InProcess).await;
    let spec = json!({ "storageClassName": class, "bucketName": bucket });

    let winner = here.claim_with("photos", spec.clone()).await.uid().unwrap();
    here.wait_bound("photos").await;
    here.app("photos").await.put(&bucket, "kept").await.unwrap();
    let loser = there.claim_with("photos", spec.clone()).await.uid().unwrap();
    let message = there.wait_reason("photos", "BucketTaken").await;
    assert!(message.contains(&bucket) && message.contains("another name"), "{message}");

    // The same name, and a bucket each.
    here.claim("videos", &class).await;
    there.claim("videos", &class).await;
    let (video_here, video_there) =
        (bucket_of(&here.wait_bound("videos").await), bucket_of(&there.wait_bound("videos").await));
    assert_ne!(video_here, video_there);
    assert_eq!(here.account.users_with("videos").await.iter().filter(|user| user.contains(&here.namespace)).count(), 2);

    for claim in ["photos", "videos"] {
        there.delete_claim(claim).await;
        there.wait_gone(claim).await;
        there.assert_no_objects(claim).await;
    }
    assert!(here.account.users_with(&loser).await.is_empty());
    assert!(!here.account.bucket_exists(&video_there).await);
    assert_eq!(here.account.users_with(&winner).await.len(), 1);
    assert_eq!(here.app("photos").await.list(&bucket).await.unwrap(), ["kept"]);
    here.app("videos").await.list(&video_here).await.unwrap();

    // What is free may be had.
    here.delete_claim("photos").await;
    here.wait_gone("photos").await;
    there.claim_with("photos", spec).await;
    there.wait_bound("photos").await;
}

#[tokio::test]
async fn of_two_clusters_that_create_one_bucket_one_succeeds() {
    let other = OtherCluster::take().await;
    let here = World::new().await;
    let there = other.twin_of(&here).await;
    // There, CreateBucket of a bucket that one has already is answered with 200.
    let parameters = [("region", "us-east-1")];
    let class = here.class_with("greenfield", "Delete", &parameters).await;
    there.class_with("greenfield", "Delete", &parameters).await;
    let _here = Operator::start(&here, Kind::InProcess).await;
    let _there = Operator::start(&there, Kind::InProcess).await;
    for round in ["one", "two", "three", "four"] {
        let spec = json!({ "storageClassName": class, "bucketName": here.unique(round) });
        tokio::join!(here.claim_with(round, spec.clone()), there.claim_with(round, spec.clone()));
        let decided = async |world: &World| {
            let decided = |claim: &_| crate::support::ready(claim).is_some_and(|c| c.reason != "StoreBusy");
            let claim = world.wait_claim(round, "decided", decided).await;
            crate::support::ready(&claim).unwrap().reason.clone()
        };
        let (one, two) = tokio::join!(decided(&here), decided(&there));
        let mut reasons = [one.as_str(), two.as_str()];
        reasons.sort_unstable();
        assert_eq!(reasons, ["Bound", "BucketTaken"], "{round}");
        let (winner, loser) = if one == "Bound" { (&here, &there) } else { (&there, &here) };
        loser.delete_claim(round).await;
        loser.wait_gone(round).await;
        winner.app(round).await.put(&here.unique(round), "a").await.unwrap();
    }
}
