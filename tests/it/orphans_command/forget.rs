//! `forget` deletes the ObjectBucket alone: what it recorded stays, and is listed until nothing has the claim's tags.

use super::{CLAIM, Used, apply, found, only};
use crate::support::World;
use crate::support::operator::{Kind, Operator};

/// What the plan shows of something that has the claim's tags.
const LISTED: &str = "it stays as it is; from then on `orphans` lists it without an ObjectBucket (RecordMissing), until it is deleted or its tags are removed";

/// Has the operator forget the one orphan; returns the plan.
async fn forget(world: &World) -> String {
    let operator = Operator::start(world, Kind::InProcess).await;
    let ended = apply(world, &["--action", "forget"], "yes\n").await;
    assert_eq!(ended.code, 0, "{ended:?}");
    operator.stop().await;
    ended.out
}

async fn remove_tags_of_user(world: &World, user: &str) {
    let iam = &world.account.iam;
    let tags = iam.list_user_tags().user_name(user).send().await.unwrap().tags;
    let keys = tags.into_iter().map(|tag| tag.key).collect();
    iam.untag_user().user_name(user).set_tag_keys(Some(keys)).send().await.unwrap();
}

#[tokio::test]
async fn bucket_and_user_are_listed_until_their_tags_are_removed() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Delete").await;
    world.forget_object(&world.claims(), CLAIM).await;
    let plan = forget(&world).await;
    for kept in [format!("keeps bucket {:?}", used.bucket), format!("keeps user {:?}", used.user)] {
        assert!(plan.contains(&format!("{kept}: {LISTED}")), "{plan}");
    }
    assert_eq!(used.left(&world).await, (true, true));

    let (code, listed) = found(&world).await;
    let orphan = only(&listed);
    assert_eq!((code, &orphan["kind"], &orphan["reason"]), (3, &"Bucket".into(), &"RecordMissing".into()));
    assert_eq!((&orphan["name"], &orphan["user"]), (&used.bucket.as_str().into(), &used.user.as_str().into()));
    world.account.s3.delete_bucket_tagging().bucket(&used.bucket).send().await.unwrap();
    let (code, listed) = found(&world).await;
    let orphan = only(&listed);
    assert_eq!((code, &orphan["kind"], &orphan["name"]), (3, &"User".into(), &used.user.as_str().into()));
    remove_tags_of_user(&world, &used.user).await;
    let (code, listed) = found(&world).await;
    assert_eq!((code, &listed["orphans"]), (0, &serde_json::json!([])));
    assert_eq!(used.left(&world).await, (true, true));
}

#[tokio::test]
async fn of_a_bucket_that_existed_before_only_the_user_is_listed() {
    let world = World::with_own_path().await;
    let archive = world.unique("archive");
    world.account.create_bucket(&archive).await;
    let class = world.class_with("brownfield", "Retain", &[("bucketName", &archive)]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim(CLAIM, &class).await;
    world.wait_bound(CLAIM).await;
    operator.stop().await;
    world.forget_object(&world.claims(), CLAIM).await;
    let user = only(&found(&world).await.1)["user"].as_str().unwrap().to_owned();
    let plan = forget(&world).await;
    assert!(plan.contains(&format!("keeps bucket {archive:?}: it stays as it is\n")), "{plan}");
    assert!(plan.contains(&format!("keeps user {user:?}: {LISTED}")), "{plan}");
    let (code, listed) = found(&world).await;
    let orphan = only(&listed);
    let wanted = (3, &"User".into(), &user.as_str().into(), &"RecordMissing".into());
    assert_eq!((code, &orphan["kind"], &orphan["name"], &orphan["reason"]), wanted);
}
