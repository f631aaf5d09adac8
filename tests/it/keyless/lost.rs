//! Access without keys whose ObjectBucket, or whose claim, is lost.

use rstest::rstest;
use serde_json::{Value, json};

use super::{bind, keyless, pod, policies, role, spec, wait_access};
use crate::adoption::recall::recorded;
use crate::support::operator::{Binary, Kind, Operator};
use crate::support::tool::Tool;
use crate::support::{World, bucket_of, seen};

/// Its apps notice nothing.
#[tokio::test]
async fn an_object_bucket_deleted_by_hand_is_recreated() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class, "photos").await;
    let (role, app) = (role(&world, "photos").await, pod(&world, "photos", "web").await);
    operator.stop().await;
    let record = world.record_name("photos");
    world.forget_object(&world.records(), &record).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    seen(&world.records(), &record, |record| record.is_some()).await.expect("it comes back");
    world.wait_reason("photos", "Bound").await;
    app.put(&bucket, "precious").await.unwrap();
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(policies(&world, &role).await, None);
    operator.stop().await;
}

/// From the tags of the bucket, the class, and the ServiceAccount that the claim names; and never with keys.
#[tokio::test]
async fn the_command_record_reconstructs_it() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class, "photos").await;
    let role = role(&world, "photos").await;
    operator.stop().await;
    let backup = world.back_up("photos").await;
    world.lose("photos").await;
    let name = format!("{}/photos", world.namespace);
    let mut none = backup.claim.clone();
    none["spec"].as_object_mut().unwrap().remove("additionalConfig");
    world.restore(&none).await;
    let refused = Binary::run(&world, &["record", &name]).await.unwrap_err();
    assert!(refused.contains("serviceAccountName"), "{refused}");
    world.forget_object(&world.claims(), "photos").await;

    world.restore(&backup.claim).await;
    let printed = Binary::run(&world, &["record", &name]).await.unwrap();
    let mut record: Value = serde_saphyr::from_str(&printed).unwrap();
    assert_eq!(recorded(&record), recorded(&backup.record), "it has the content of the lost one");
    record["metadata"]["annotations"] = json!({ "objectbucket.io/orphan": "adopt" });
    world.restore(&record).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_bound("photos").await;
    wait_access(&world, &bucket).await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(policies(&world, &role).await, None, "under the name that it had before");
    operator.stop().await;
}

pub(super) async fn orphans(world: &World) -> Vec<Value> {
    let ended = Tool::run(world, &["orphans", "--output", "json"], "").await;
    assert!(ended.code != 1, "{ended:?}");
    ended.json()["orphans"].as_array().unwrap().clone()
}

/// Has the operator that runs apply an action, for which the ObjectBucket of the claim is written again.
pub(super) async fn apply(world: &World, claim: &str, args: &[&str]) {
    let args = [&["orphans", "--apply", "--yes", "--wait=false"], args].concat();
    let ended = Tool::run(world, &args, "").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    world.wait_record_gone(&world.record_name(claim)).await;
}

/// Of two claims of a ServiceAccount, one is lost with its ObjectBucket.
#[rstest]
#[case::bucket_and_policy(true)]
#[case::policy(false)]
#[tokio::test]
async fn what_nobody_records_is_an_orphan(#[case] has_bucket: bool) {
    let (world, class) = keyless(&["web"]).await;
    // Classes with keys of the same store, before and after it in the alphabet.
    for name in ["a-class", "z-class"] {
        world.class(name).await;
    }
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec(&class, "web")).await;
    let uid = world.claim_with("lost", spec(&class, "web")).await.metadata.uid.unwrap();
    let kept = bucket_of(&world.wait_bound("photos").await);
    let bucket = bucket_of(&world.wait_bound("lost").await);
    let role = role(&world, "lost").await;
    operator.stop().await;
    assert!(orphans(&world).await.is_empty());
    world.forget_object(&world.claims(), "lost").await;
    world.forget_object(&world.records(), &world.record_name("lost")).await;
    if !has_bucket {
        world.account.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    }
    let found = orphans(&world).await;
    assert_eq!(found.len(), 1, "{found:#?}");
    let access = format!("{}/web/{uid}", world.namespace);
    let (kind, name) = if has_bucket { ("Bucket", &bucket) } else { ("Role", &access) };
    assert_eq!((&found[0]["kind"], &found[0]["name"]), (&json!(kind), &json!(name)), "{found:#?}");
    assert_eq!((&found[0]["user"], &found[0]["serviceAccount"]), (&json!(role), &json!("web")), "{found:#?}");

    let operator = Operator::start(&world, Kind::InProcess).await;
    let action = if has_bucket { "remove" } else { "revoke" };
    apply(&world, "lost", &["--only", name, "--action", action, "--bucket", &bucket]).await;
    let left = policies(&world, &role).await.unwrap();
    assert!(left.len() == 1 && left[0].starts_with("photos-"), "{left:?}");
    assert!(!world.account.bucket_exists(&bucket).await);
    pod(&world, "photos", "web").await.put(&kept, "precious").await.unwrap();
    operator.stop().await;
}

/// A class without keys of the same store, whatever its name, changes nothing for claims with keys.
#[rstest]
#[case("a-keyless")]
#[case("z-keyless")]
#[tokio::test]
async fn a_claim_with_keys_beside_it_can_be_removed(#[case] name: &str) {
    let (world, _) = keyless(&[]).await;
    let parameters = [("authentication", "ServiceAccount"), ("oidcProvider", &super::provider())];
    world.class_with(name, "Delete", &parameters).await;
    let class = world.class("keys").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    operator.stop().await;
    world.lose("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    apply(&world, "photos", &["--only", &bucket, "--action", "remove", "--bucket", &bucket]).await;
    assert!(!world.account.bucket_exists(&bucket).await && world.account.users_with(&uid).await.is_empty());
    operator.stop().await;
}
