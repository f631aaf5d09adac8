//! ObjectBuckets that are lost and in no backup. Their content is reconstructed from the claim, its class, and the tags
//! of bucket and user.

use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use super::{CLAIM, Lost, Made};
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::{World, bucket_of, seen};

/// Apps notice nothing.
#[rstest]
#[case::created(Made::Generated)]
#[case::named(Made::Named)]
#[case::granted(Made::Granted)]
#[tokio::test]
async fn an_object_bucket_deleted_by_hand_is_recreated(#[case] made: Made) {
    let world = World::new().await;
    let lost = Lost::bind(&world, made).await;
    world.forget_object(&world.records(), &lost.record).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    seen(&world.records(), &lost.record, |record| record.is_some()).await.expect("it comes back");
    let (type_, note) = world.wait_event(CLAIM, "Repaired").await;
    assert!(type_ == "Warning" && note.contains(&lost.record), "{note}");
    world.wait_reason(CLAIM, "Bound").await;
    assert_eq!(world.environment(CLAIM).await["AWS_ACCESS_KEY_ID"], lost.key);
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert_eq!(world.account.bucket_exists(&lost.bucket).await, made == Made::Granted);
    assert!(world.account.users_with(&lost.uid).await.is_empty());
    operator.stop().await;
}

/// What an ObjectBucket records, without what only Kubernetes knows.
pub(crate) fn recorded(record: &serde_json::Value) -> serde_json::Value {
    let mut spec = record["spec"].clone();
    spec["claimRef"].take();
    spec["additionalState"].as_object_mut().unwrap().remove("claimCreatedAt");
    spec
}

/// Who knows which bucket the claim had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    Claim,
    Admin,
}

#[rstest]
#[case::generated(Made::Generated, Knows::Claim)]
#[case::named(Made::Named, Knows::Claim)]
#[case::granted(Made::Granted, Knows::Claim)]
#[case::shared_keys(Made::SharedKeys, Knows::Claim)]
#[case::by_the_buckets_name(Made::Generated, Knows::Admin)]
#[tokio::test]
async fn an_object_bucket_is_recreated_from_the_tags_of_its_bucket(#[case] made: Made, #[case] knows: Knows) {
    let world = World::new().await;
    let lost = Lost::bind(&world, made).await;
    world.lose(CLAIM).await;
    let mut claim = lost.backup.claim.clone();
    if knows == Knows::Admin {
        claim["spec"].as_object_mut().unwrap().remove("bucketName");
    }
    world.restore(&claim).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let message = world.wait_reason(CLAIM, "AdoptionNeeded").await;
    assert!(message.contains("the command `adopt`"), "{message}");

    let name = format!("{}/{CLAIM}", world.namespace);
    let mut args = vec!["record", &name];
    if knows == Knows::Admin {
        let problem = Binary::run(&world, &args).await.unwrap_err();
        assert!(problem.contains("--bucket") || problem.contains("cannot be used"), "{problem}");
        args.extend(["--bucket", &lost.bucket]);
    }
    world.aws.clear();
    let printed = Binary::run(&world, &args).await.unwrap();
    let lists = world.aws.names().iter().filter(|name| *name == "ListUsers").count();
    assert_eq!(lists > 0, made == Made::Granted, "the tags of a claim's bucket tell the name of its user");
    let mut record: serde_json::Value = serde_saphyr::from_str(&printed).unwrap();
    assert_eq!(recorded(&record), recorded(&lost.backup.record), "it has the content of the lost one");
    assert_eq!(record["metadata"]["name"], lost.record);
    record["metadata"]["annotations"] = json!({ "objectbucket.io/orphan": "adopt" });
    world.restore(&record).await;
    lost.assert_adopted(&world, made).await;
    operator.stop().await;
}

#[tokio::test]
async fn an_untagged_user_is_recorded_and_no_keys_are_shared() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Named).await;
    world.lose(CLAIM).await;
    let user = world.account.users_with(&lost.uid).await.pop().unwrap();
    let iam = &world.account.iam;
    let untag = iam.untag_user().user_name(&user).tag_keys("objectbucket.io/claim-uid");
    untag.send().await.unwrap();
    world.restore(&lost.backup.claim).await;
    let name = format!("{}/{CLAIM}", world.namespace);
    let printed = Binary::run(&world, &["record", &name]).await.unwrap();
    assert!(printed.contains(&user), "it names the user that the claim had: {printed}");
}

/// Not every name is written into the claim.
#[tokio::test]
async fn a_bucket_that_the_claim_does_not_name_is_in_its_config_map() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim(CLAIM, &class).await;
    let bucket = bucket_of(&world.wait_bound(CLAIM).await);
    operator.stop().await;
    let unnamed = json!({ "spec": { "bucketName": null } });
    world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(unnamed)).await.unwrap();
    let name = format!("{}/{CLAIM}", world.namespace);
    let record = async || Binary::run(&world, &["record", &name]).await;
    assert!(record().await.unwrap().contains(&bucket));
    world.config_maps().delete(CLAIM, &DeleteParams::default()).await.unwrap();
    assert!(record().await.unwrap_err().contains("name it with --bucket"));
}

#[tokio::test]
async fn what_no_tag_shows_is_not_made_up() {
    let world = World::new().await;
    let lost = Lost::bind(&world, Made::Named).await;
    world.lose(CLAIM).await;
    let name = format!("{}/{CLAIM}", world.namespace);
    let record = async |args: &[&str]| Binary::run(&world, &[&["record", name.as_str()], args].concat()).await;
    assert!(record(&[]).await.unwrap_err().contains("restore it first"));
    world.restore(&lost.backup.claim).await;
    let plain = world.unique("plain");
    world.account.create_bucket(&plain).await;
    assert!(record(&["--bucket", &plain]).await.unwrap_err().contains("nothing shows for which claim"));
    world
        .account
        .tag_bucket(
            &plain,
            &[
                ("objectbucket.io/claim-uid", "u"),
                ("objectbucket.io/claim-namespace", "a"),
                ("objectbucket.io/claim-name", "b"),
            ],
        )
        .await;
    assert!(record(&["--bucket", &plain]).await.unwrap_err().contains("was created for claim a/b, not for"));
    world.delete_class(&lost.class).await;
    assert!(record(&[]).await.unwrap_err().contains("StorageClass"));
}
