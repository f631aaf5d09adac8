//! Buckets whose deletion is scheduled: they need no decision, and an admin has to name one to delete it early.

use kube::ResourceExt as _;
use serde_json::json;

use super::{CLAIM, apply, found, only};
use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::tool::Tool;

#[tokio::test]
async fn a_scheduled_deletion_is_done_early_only_by_name() {
    let world = World::with_own_path().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim(CLAIM, &class).await;
    world.wait_bound(CLAIM).await;
    let bucket = world.environment(CLAIM).await["BUCKET_NAME"].clone();
    world.account.put(&bucket, "precious").await.unwrap();
    let record = world.record_name(CLAIM);
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    operator.stop().await;

    let (code, listed) = found(&world).await;
    let orphan = only(&listed);
    assert_eq!((code, &orphan["reason"], &orphan["name"]), (0, &json!("Scheduled"), &json!(record)), "{orphan:#}");
    assert_eq!(orphan["actions"], json!(["remove", "forget"]));
    let shown = Tool::run(&world, &["orphans"], "").await;
    assert!(shown.code == 0 && shown.out.contains(&record) && shown.out.contains("Scheduled"), "{shown:?}");

    // The name of the bucket alone is what a script gives for orphans.
    let args = ["--action", "remove", "--yes", "--wait=false", "--bucket", &bucket];
    let ended = apply(&world, &args, "").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(world.records().get(&record).await.unwrap().annotations().is_empty(), "{ended:?}");

    let operator = Operator::start(&world, Kind::InProcess).await;
    let done = apply(&world, &[&args[..2], &["--only", &record]].concat(), &format!("{bucket}\nyes\n")).await;
    assert!(done.code == 0 && done.out.contains(": 1 object, "), "{done:?}");
    world.wait_record_gone(&record).await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}
