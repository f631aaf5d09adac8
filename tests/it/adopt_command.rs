//! The command `adopt`: restored claims get back what they had.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use rstest::rstest;

use crate::support::operator::{Kind, Operator};
use crate::support::tool::Tool;
use crate::support::{World, assert_contains};

const CLAIM: &str = "photos";

/// A claim that was bound, lost with the cluster, and restored.
struct Restored {
    bucket: String,
    key: String,
    record: serde_json::Value,
}

impl Restored {
    async fn new(world: &World, with_record: bool) -> Self {
        let class = world.class("greenfield").await;
        let operator = Operator::start(world, Kind::InProcess).await;
        world.claim(CLAIM, &class).await;
        world.wait_reason(CLAIM, "Bound").await;
        let environment = world.environment(CLAIM).await;
        let bucket = environment["BUCKET_NAME"].clone();
        world.app(CLAIM).await.put(&bucket, "precious").await.unwrap();
        operator.stop().await;
        let backup = world.back_up(CLAIM).await;
        world.lose(CLAIM).await;
        world.restore(&backup.secret).await;
        world.restore(&backup.claim).await;
        if with_record {
            world.restore(&backup.record).await;
        }
        Self { bucket, key: environment["AWS_ACCESS_KEY_ID"].clone(), record: backup.record }
    }

    /// Requires that the claim has what it had.
    async fn assert_back(&self, world: &World) {
        let environment = world.environment(CLAIM).await;
        assert_eq!((&environment["BUCKET_NAME"], &environment["AWS_ACCESS_KEY_ID"]), (&self.bucket, &self.key));
        assert_eq!(world.app(CLAIM).await.list(&self.bucket).await.unwrap(), ["precious"]);
    }
}

#[rstest]
#[case::with_its_record(true, &["adopt", CLAIM])]
#[case::without_its_record(false, &["adopt", CLAIM])]
#[case::all(true, &["adopt", "--all"])]
#[tokio::test]
async fn a_restored_claim_adopts_its_bucket_and_keys(#[case] with_record: bool, #[case] args: &[&str]) {
    let world = World::new().await;
    let restored = Restored::new(&world, with_record).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    let no = Tool::run(&world, args, "no\n").await;
    assert!(no.code == 1 && no.out.contains("nothing was adopted"), "{no:?}");
    assert!(no.out.contains(&restored.bucket), "the plan names the bucket: {no:?}");
    let record = world.records().get_opt(&world.record_name(CLAIM)).await.unwrap();
    assert!(record.is_none_or(|record| record.annotations().is_empty()), "nothing was annotated");

    let yes = Tool::run(&world, args, "yes\n").await;
    assert!(yes.code == 0 && yes.out.contains("has its bucket back and is Ready"), "{yes:?}");
    restored.assert_back(&world).await;
    let again = Tool::run(&world, args, "").await;
    assert_eq!(again.code, 0, "{again:?}");
    operator.stop().await;
}

#[tokio::test]
async fn scripts_get_what_was_adopted() {
    let world = World::new().await;
    let restored = Restored::new(&world, true).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    let adopted = Tool::run(&world, &["adopt", CLAIM, "--yes", "--output", "json"], "").await;
    assert_eq!(adopted.code, 0, "{adopted:?}");
    let result = &adopted.json()["results"][0];
    assert_eq!((&result["name"], &result["outcome"]), (&CLAIM.into(), &"done".into()), "{adopted:?}");
    assert_eq!(result["objectBucket"], world.record_name(CLAIM));
    restored.assert_back(&world).await;
    let again = Tool::run(&world, &["adopt", CLAIM, "--yes", "--output", "name"], "").await;
    assert_eq!((again.code, again.out.as_str()), (0, ""), "{again:?}");
    operator.stop().await;
}

#[tokio::test]
async fn what_cannot_be_adopted_is_reported() {
    let world = World::new().await;
    let missing = Tool::run(&world, &["adopt", "nothing"], "").await;
    assert!(missing.code == 1 && missing.err.contains("does not exist"), "{missing:?}");
    let class = world.class("greenfield").await;
    world.claim("new", &class).await;
    let new = Tool::run(&world, &["adopt", "new", "--yes"], "").await;
    assert!(new.code == 1 && new.err.contains("--bucket"), "{new:?}");
    let neither = Tool::run(&world, &["adopt"], "").await;
    assert_eq!(neither.code, 2, "{neither:?}");
}

#[tokio::test]
async fn adopting_from_another_cluster_needs_the_name_of_it() {
    let world = World::new().await;
    let restored = Restored::new(&world, false).await;
    let other = "00000000-0000-0000-0000-000000000001";
    let mut record = restored.record.clone();
    record["spec"]["additionalState"]["clusterUID"] = other.into();
    world.restore(&record).await;
    for (args, answers) in [
        (&["adopt", CLAIM, "--yes"][..], ""),
        (&["adopt", "--all", "--yes"], ""),
        (&["adopt", "--all"], &*format!("{other}\nyes\n")),
        (&["adopt", CLAIM], "yes\nyes\n"),
        (&["adopt", CLAIM, "--yes", "--from-cluster", "another"], ""),
    ] {
        let left = Tool::run(&world, args, answers).await;
        assert!(left.code == 1 && left.err.contains(&format!("--from-cluster {other}")), "{args:?}: {left:?}");
    }
    let record = world.records().get(&world.record_name(CLAIM)).await.unwrap();
    assert!(record.annotations().is_empty(), "{:?}", record.annotations());
    let operator = Operator::start(&world, Kind::InProcess).await;
    // It writes that on the ObjectBucket, which must not change between the plan and the annotation.
    world.wait_orphaned(&world.record_name(CLAIM), "OtherCluster").await;
    let done = Tool::run(&world, &["adopt", CLAIM], &format!("{other}\nyes\n")).await;
    assert_eq!(done.code, 0, "{done:?}");
    restored.assert_back(&world).await;
    operator.stop().await;
}

#[tokio::test]
async fn the_operators_refusal_is_shown() {
    let world = World::new().await;
    Restored::new(&world, true).await;
    let mut tool = Tool::start(&world, &["adopt", CLAIM]);
    tool.asks("Type yes to continue:").await;
    tool.types("yes\n").await;
    // The claim is deleted before an operator can apply the annotation.
    let record = world.record_name(CLAIM);
    let annotated = |record: Option<&bucket_provisioner::api::ObjectBucket>| {
        record.is_some_and(|record| !record.annotations().is_empty())
    };
    crate::support::seen(&world.records(), &record, annotated).await.expect("the annotation is set");
    world.forget_object(&world.claims(), CLAIM).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let ended = tool.end().await;
    assert!(ended.code == 1 && ended.out.contains("refuses") && ended.out.contains("ActionRefused"), "{ended:?}");
    operator.stop().await;
}

#[tokio::test]
async fn what_prevents_the_adoption_is_shown() {
    let world = World::new().await;
    let restored = Restored::new(&world, true).await;
    world.account.delete_object(&restored.bucket, "precious").await;
    world.account.s3.delete_bucket().bucket(&restored.bucket).send().await.unwrap();
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_reason(CLAIM, "AdoptionNeeded").await;
    let shown = Tool::run(&world, &["adopt", CLAIM, "--yes", "--timeout", "30s"], "").await;
    assert!(shown.code == 1 && shown.out.contains("the claim reports BucketGone"), "{shown:?}");
    let again = Tool::run(&world, &["adopt", CLAIM], "").await;
    assert!(again.out.contains("nothing to adopt; it reports BucketGone"), "{again:?}");
    operator.stop().await;
}

#[tokio::test]
async fn the_plan_shows_which_keys_the_claim_will_have() {
    let world = World::new().await;
    Restored::new(&world, true).await;
    let plan = async || Tool::run(&world, &["adopt", CLAIM], "no\n").await.out;
    assert_contains(&plan().await, &["keys: those in the claim's Secret"]);
    world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap();
    assert_contains(&plan().await, &["keys: new ones"]);
    let metadata = ObjectMeta { name: Some(CLAIM.to_owned()), ..ObjectMeta::default() };
    let foreign = Secret { metadata, ..Secret::default() };
    world.secrets().create(&PostParams::default(), &foreign).await.unwrap();
    assert_contains(&plan().await, &["keys: none while a Secret of the claim"]);
}
