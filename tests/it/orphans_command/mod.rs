//! The command `orphans`: what no claim has, and what the operator does about it on an admin's request.
//!
//! Long, because the cases share one cluster with all kinds of orphans.

mod forget;
mod retained;
mod scheduled;
mod unseen;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::ResourceExt as _;
use rstest::rstest;
use serde_json::Value;

use crate::support::operator::{Binary, Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::tool::{Ended, Tool};
use crate::support::{PATIENCE, World};

const CLAIM: &str = "photos";

/// A claim that was bound and used, with its operator stopped.
struct Used {
    class: String,
    uid: String,
    bucket: String,
    record: String,
    user: String,
}

impl Used {
    async fn new(world: &World, reclaim_policy: &str) -> Self {
        let class = world.class_with("greenfield", reclaim_policy, &[]).await;
        let operator = Operator::start(world, Kind::InProcess).await;
        let uid = world.claim(CLAIM, &class).await.uid().unwrap();
        world.wait_reason(CLAIM, "Bound").await;
        let bucket = world.environment(CLAIM).await["BUCKET_NAME"].clone();
        let user = world.account.users_with(&uid).await.pop().unwrap();
        operator.stop().await;
        Self { class, uid, bucket, record: world.record_name(CLAIM), user }
    }

    async fn fill(&self, world: &World) {
        world.account.put(&self.bucket, "precious").await.unwrap();
    }

    /// Which of bucket and user there are.
    async fn left(&self, world: &World) -> (bool, bool) {
        (world.account.bucket_exists(&self.bucket).await, world.account.user_exists(&self.user).await)
    }
}

async fn found(world: &World) -> (i32, Value) {
    let ended = Tool::run(world, &["orphans", "--output", "json"], "").await;
    assert!(ended.code != 1, "{ended:?}");
    (ended.code, ended.json())
}

fn only(found: &Value) -> &Value {
    let all = found["orphans"].as_array().unwrap();
    assert_eq!(all.len(), 1, "{found:#}");
    &all[0]
}

async fn apply(world: &World, args: &[&str], answers: &str) -> Ended {
    Tool::run(world, &[&["orphans", "--apply"], args].concat(), answers).await
}

/// And the listing changes nothing.
#[tokio::test]
async fn what_has_its_claim_is_no_orphan() {
    let world = World::with_own_path().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    // Claims come and go meanwhile: at no moment does one look orphaned.
    let names: Vec<_> = (0..12).map(|number| format!("claim-{number}")).collect();
    for name in &names {
        world.claim(name, &class).await;
    }
    let done = AtomicBool::new(false);
    let come_and_go = async {
        for name in &names {
            world.wait_bound(name).await;
            world.delete_claim(name).await;
        }
        for name in &names {
            world.wait_gone(name).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    let look = async {
        while !done.load(Ordering::Relaxed) {
            let (code, found) = found(&world).await;
            assert!(code == 0 && found["orphans"] == serde_json::json!([]), "{found:#}");
        }
    };
    tokio::join!(come_and_go, look);
    operator.stop().await;

    world.aws.clear();
    world.kubernetes.clear();
    let shown = Tool::run(&world, &["orphans"], "").await;
    assert!(shown.code == 0 && shown.out.starts_with("no orphans"), "{shown:?}");
    assert_eq!((world.aws.writes(), world.kubernetes.writes()), (vec![], vec![]));
    for look in ["ListUsers", "GetBucketTagging"] {
        assert!(world.aws.names().iter().any(|name| name == look), "{look}: {:?}", world.aws.names());
    }
    assert!(!world.kubernetes.names().iter().any(|name| name.starts_with("watch")));
}

#[tokio::test]
async fn an_orphan_is_removed_after_plan_and_confirmation() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    used.fill(&world).await;
    world.forget_object(&world.claims(), CLAIM).await;
    let (code, found) = found(&world).await;
    let orphan = only(&found);
    assert_eq!((code, &orphan["kind"], &orphan["reason"]), (3, &"ObjectBucket".into(), &"ClaimGone".into()));
    assert_eq!((&orphan["bucket"], &orphan["user"]), (&used.bucket.as_str().into(), &used.user.as_str().into()));
    assert_eq!(orphan["actions"], serde_json::json!(["remove", "revoke", "forget"]));
    let shown = Tool::run(&world, &["orphans"], "").await.out;
    assert!(shown.contains(&used.record) && shown.contains("1 orphan"), "{shown}");

    // Nothing without the name of a bucket that has content, whoever confirms.
    world.aws.clear();
    for (args, answers) in [
        (&[][..], ""),
        (&[], "remove\nyes\nyes\n"),
        (&["--action", "remove", "--yes", "--wait=false"], ""),
        (&["--action", "remove", "--yes", "--wait=false", "--bucket", "another"], ""),
    ] {
        let ended = apply(&world, args, answers).await;
        assert_eq!(ended.code, 3, "{ended:?}");
    }
    let name = used.bucket.clone();
    let no = apply(&world, &[], &format!("remove\n{name}\nno\n")).await;
    assert!(no.code == 3 && no.out.contains(": 1 object, "), "{no:?}");
    assert_eq!(used.left(&world).await, (true, true));
    let record = world.records().get(&used.record).await.unwrap();
    assert!(record.annotations().is_empty(), "{:?}", record.annotations());
    assert_eq!(world.aws.writes(), [""; 0]);

    let operator = Operator::start(&world, Kind::InProcess).await;
    let done = apply(&world, &[], &format!("remove\n{name}\nyes\n")).await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("deletes bucket") && done.out.contains(": done"), "{done:?}");
    assert_eq!(used.left(&world).await, (false, false));
    assert_eq!(found_none(&world).await, 0);
    operator.stop().await;
}

/// Claims of which that could not be checked are named.
#[tokio::test]
async fn a_bound_claim_without_its_bucket_is_listed() {
    let world = World::with_own_path().await;
    let (class, retained) = (world.class("greenfield").await, world.class_with("retained", "Retain", &[]).await);
    let options = Operator::options(&world).with_resync(Duration::from_millis(500));
    let operator = Operator::with(&world, options);
    for (claim, class) in [(CLAIM, &class), ("videos", &class), ("letters", &retained)] {
        world.claim(claim, class).await;
        world.wait_bound(claim).await;
    }
    let mut gone = Vec::new();
    for claim in [CLAIM, "letters"] {
        let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
        world.account.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
        world.wait_reason(claim, "BucketGone").await;
        gone.push(bucket);
    }
    operator.stop().await;
    world.aws.clear();
    let (code, listed) = found(&world).await;
    let shown: Vec<_> = listed["orphans"].as_array().unwrap().iter().map(|orphan| orphan["bucket"].clone()).collect();
    assert_eq!((code, shown), (3, vec![gone[1].as_str().into(), gone[0].as_str().into()]), "{listed:#}");
    let orphan = &listed["orphans"][1];
    assert_eq!((&orphan["kind"], &orphan["reason"]), (&"ObjectBucketClaim".into(), &"BucketGone".into()));
    assert!(orphan["actions"].as_array().unwrap().is_empty() && listed["problems"].as_array().unwrap().is_empty());
    let asked = world.aws.names().iter().filter(|name| *name == "ListObjectVersions").count();
    assert_eq!(asked, 2, "the claim that is well costs no call: {:?}", world.aws.names());

    // Both are of one store.
    world.aws.inject(|call| match call.name.as_str() {
        "ListObjectVersions" => {
            Verdict::Answer(403, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>".into())
        }
        _ => Verdict::Pass,
    });
    let ended = Tool::run(&world, &["orphans", "--output", "json"], "").await;
    let listed = ended.json();
    let problems: Vec<_> = listed["problems"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    // A bucket can deny the call for itself, so each is asked for.
    assert_eq!((ended.code, problems.len(), &listed["isComplete"]), (1, 2, &false.into()), "{problems:?}");
    assert!(
        problems[0].contains("cannot check whether bucket") && problems[0].contains("ListBucketVersions"),
        "{problems:?}"
    );
}

async fn found_none(world: &World) -> i32 {
    found(world).await.0
}

#[rstest]
#[case::remove_what_is_retained("remove", "Retain", (true, false))]
#[case::revoke("revoke", "Delete", (true, false))]
#[case::forget("forget", "Delete", (true, true))]
#[tokio::test]
async fn other_actions_need_no_confirmed_bucket_name(
    #[case] action: &str,
    #[case] policy: &str,
    #[case] left: (bool, bool),
) {
    let world = World::with_own_path().await;
    let used = Used::new(&world, policy).await;
    used.fill(&world).await;
    world.forget_object(&world.claims(), CLAIM).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let ended = apply(&world, &["--action", action, "-o", "json"], "yes\n").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    let result = &ended.json()["results"][0];
    assert_eq!((&result["outcome"], &result["action"]), (&"done".into(), &action.into()), "{result}");
    assert_eq!(used.left(&world).await, left);
    assert!(world.records().get_opt(&used.record).await.unwrap().is_none());
    operator.stop().await;
}

/// An ObjectBucket is created from them first.
#[tokio::test]
async fn an_unrecorded_bucket_is_removed_by_its_tags() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    used.fill(&world).await;
    world.lose(CLAIM).await;
    let (code, found) = found(&world).await;
    let orphan = only(&found);
    assert_eq!((code, &orphan["kind"], &orphan["name"]), (3, &"Bucket".into(), &used.bucket.as_str().into()));
    assert_eq!((&orphan["user"], &orphan["claimUid"]), (&used.user.as_str().into(), &used.uid.as_str().into()));
    let operator = Operator::start(&world, Kind::InProcess).await;
    let left = apply(&world, &["--action", "remove", "--yes", "--wait=false"], "").await;
    assert!(left.code == 3 && left.err.is_empty(), "{left:?}");
    assert_eq!(used.left(&world).await, (true, true));
    let done = apply(&world, &["--action", "remove", "--bucket", &used.bucket], "yes\n").await;
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("writes the lost ObjectBucket"), "{done:?}");
    assert_eq!(used.left(&world).await, (false, false));
    assert!(world.records().get_opt(&used.record).await.unwrap().is_none());
    operator.stop().await;
}

#[tokio::test]
async fn a_user_without_its_bucket_is_revoked() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.lose(CLAIM).await;
    world.account.s3.delete_bucket().bucket(&used.bucket).send().await.unwrap();
    let (_, found) = found(&world).await;
    let orphan = only(&found);
    assert_eq!((&orphan["kind"], &orphan["name"]), (&"User".into(), &used.user.as_str().into()));
    assert_eq!(orphan["actions"], serde_json::json!(["revoke"]));
    let operator = Operator::start(&world, Kind::InProcess).await;
    let done = apply(&world, &["--action", "revoke"], "yes\n").await;
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(used.left(&world).await, (false, false));
    operator.stop().await;
}

#[tokio::test]
async fn what_another_cluster_created_is_shown_and_left_alone() {
    let world = World::with_own_path().await;
    world.class("greenfield").await;
    let tagged = async |bucket: &str, cluster: Option<&str>| {
        world.account.create_bucket(bucket).await;
        let mut tags = vec![
            ("objectbucket.io/managed-by", world.provisioner.as_str()),
            ("objectbucket.io/claim-namespace", &world.namespace),
            ("objectbucket.io/claim-name", CLAIM),
            ("objectbucket.io/claim-uid", "f30e0389-0689-48a2-bfaa-74d1bf1fd950"),
        ];
        tags.extend(cluster.map(|cluster| ("objectbucket.io/cluster-uid", cluster)));
        world.account.tag_bucket(bucket, &tags).await;
    };
    let (theirs, unknown) = (world.unique("theirs"), world.unique("unknown"));
    tagged(&theirs, Some("00000000-0000-0000-0000-000000000001")).await;
    tagged(&unknown, None).await;
    let (code, found) = found(&world).await;
    assert!(code == 0 && found["orphans"] == serde_json::json!([]), "{found:#}");
    let elsewhere: Vec<_> = found["ofOtherClusters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(elsewhere, [&theirs, &unknown]);
    let ended = apply(&world, &["--action", "remove", "--yes", "--bucket", &theirs], "").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(world.account.bucket_exists(&theirs).await && world.account.bucket_exists(&unknown).await);
}

#[tokio::test]
async fn an_orphan_that_gets_a_claim_after_the_plan_is_left_alone() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.forget_object(&world.claims(), CLAIM).await;
    let mut tool = Tool::start(&world, &["orphans", "--apply", "--action", "remove", "--timeout", "5s"]);
    tool.asks("Type yes to continue:").await;
    world.claim(CLAIM, &used.class).await;
    tool.types("yes\n").await;
    let ended = tool.end().await;
    assert!(ended.code == 1 && ended.out.contains("has changed since the plan was made"), "{ended:?}");
    let record = world.records().get(&used.record).await.unwrap();
    assert!(record.annotations().is_empty(), "{:?}", record.annotations());
    assert_eq!(used.left(&world).await, (true, true));
}

#[tokio::test]
async fn a_bucket_that_gets_content_after_the_plan_is_left_alone() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.forget_object(&world.claims(), CLAIM).await;
    let mut tool = Tool::start(&world, &["orphans", "--apply", "--action", "remove", "--timeout", "5s"]);
    tool.asks("Type yes to continue:").await;
    used.fill(&world).await;
    tool.types("yes\n").await;
    let ended = tool.end().await;
    assert!(ended.code == 1 && ended.out.contains("has content now: 1 object, "), "{ended:?}");
    let record = world.records().get(&used.record).await.unwrap();
    assert!(record.annotations().is_empty(), "{:?}", record.annotations());
}

/// One that came back after the plan, under another name.
#[tokio::test]
async fn a_bucket_that_another_object_bucket_names_is_left_alone() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    let mut backup = world.back_up(CLAIM).await;
    world.lose(CLAIM).await;
    let mut tool = Tool::start(&world, &["orphans", "--apply", "--action", "remove", "--timeout", "5s"]);
    tool.asks("Type yes to continue:").await;
    let name = world.unique("came-back");
    backup.record["metadata"]["name"] = name.as_str().into();
    world.restore(&backup.record).await;
    tool.types("yes\n").await;
    let ended = tool.end().await;
    assert!(ended.code == 1 && ended.out.contains("has changed since the plan was made"), "{ended:?}");
    assert!(world.records().get_opt(&used.record).await.unwrap().is_none(), "none was written beside it");
    world.forget_object(&world.records(), &name).await;
}

#[tokio::test]
async fn what_a_restored_claim_may_wait_for_is_deleted_only_by_name() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.forget_object(&world.claims(), CLAIM).await;
    world.claim(CLAIM, &used.class).await;
    for action in ["remove", "revoke"] {
        let left = apply(&world, &["--action", action, "--yes", "--wait=false"], "").await;
        assert!(left.code == 3 && left.out.contains(&format!("--only {}", used.record)), "{left:?}");
    }
    let record = world.records().get(&used.record).await.unwrap();
    assert!(record.annotations().is_empty(), "{:?}", record.annotations());
    let named = ["--action", "revoke", "--yes", "--wait=false", "--only", &used.record];
    let asked = apply(&world, &named, "").await;
    assert!(asked.code == 0 && asked.out.contains("warning: claim"), "{asked:?}");
}

#[tokio::test]
async fn a_claim_without_its_object_bucket_is_shown_with_the_remedy() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.forget_object(&world.records(), &used.record).await;
    let (code, found) = found(&world).await;
    assert_eq!(code, 3);
    let kinds: Vec<_> = found["orphans"].as_array().unwrap().iter().map(|orphan| &orphan["kind"]).collect();
    assert_eq!(kinds, ["Bucket", "ObjectBucketClaim"]);
    for orphan in found["orphans"].as_array().unwrap() {
        assert_eq!(orphan["actions"], serde_json::json!([]), "its claim lives: {orphan}");
    }
    assert!(found["orphans"][1]["message"].as_str().unwrap().contains("adopt"), "{found:#}");
}

#[tokio::test]
async fn without_an_operator_the_tool_reports_it_and_gives_up() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.forget_object(&world.claims(), CLAIM).await;
    let refused = apply(&world, &["--action", "revoke", "--yes"], "").await;
    assert!(refused.code == 3 && refused.out.contains("--wait=false"), "{refused:?}");
    let record = world.records().get(&used.record).await.unwrap();
    assert!(record.annotations().is_empty(), "{:?}", record.annotations());
    let ended = apply(&world, &["--action", "revoke", "--timeout", "1s"], "yes\n").await;
    assert!(ended.code == 1 && ended.out.contains("no operator holds the lease"), "{ended:?}");
    let way_back = format!("kubectl annotate ob {} objectbucket.io/orphan-", used.record);
    assert!(ended.out.contains(&way_back), "{ended:?}");
    let asked = apply(&world, &["--action", "revoke", "--yes"], "").await;
    assert!(asked.code == 3 && asked.out.contains("annotated with \"revoke\" already"), "{asked:?}");
    assert_eq!(used.left(&world).await, (true, true));
}

/// While an operator holds the lease.
#[tokio::test]
async fn a_script_removes_without_confirmation() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    used.fill(&world).await;
    world.forget_object(&world.claims(), CLAIM).await;
    let mut operator = Binary::start(&world, &["--leader-elect", "--lease-namespace", &world.namespace], &[]);
    world.wait_orphaned(&used.record, "ClaimGone").await;
    let args = ["--action", "remove", "--yes", "--bucket", &used.bucket, "--output", "json"];
    let done = apply(&world, &args, "").await;
    assert_eq!((done.code, &done.json()["results"][0]["outcome"]), (0, &"done".into()), "{done:?}");
    assert_eq!(used.left(&world).await, (false, false));
    operator.terminate();
    operator.ended(PATIENCE).await;
}
