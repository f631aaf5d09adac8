//! A bucket that was kept on purpose has no ObjectBucket, as one whose ObjectBucket was lost: an admin has to name it.

use super::{CLAIM, Used, apply, found, only};
use crate::support::World;
use crate::support::operator::{Kind, Operator};

#[tokio::test]
async fn a_retained_bucket_is_removed_only_by_name() {
    let world = World::with_own_path().await;
    let used = Used::new(&world, "Retain").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.delete_claim(CLAIM).await;
    world.wait_gone(CLAIM).await;
    assert_eq!(used.left(&world).await, (true, false));

    let (code, listed) = found(&world).await;
    let orphan = only(&listed);
    assert_eq!((code, &orphan["reason"], &orphan["name"]), (3, &"RecordMissing".into(), &used.bucket.as_str().into()));
    assert!(orphan["message"].as_str().unwrap().contains("perhaps the bucket was kept on purpose"), "{orphan}");
    let deleting = world.class_with("deleting", "Delete", &[]).await;
    let args = ["--action", "remove", "--class", &deleting];
    let left = apply(&world, &[&args[..], &["--yes", "--bucket", &used.bucket]].concat(), "").await;
    assert!(left.code == 3 && left.out.contains(&format!("--only {}", used.bucket)), "{left:?}");
    assert_eq!(used.left(&world).await, (true, false), "an empty one, too");

    let removed = apply(&world, &[&args[..], &["--only", &used.bucket]].concat(), "yes\n").await;
    assert!(
        removed.code == 0 && removed.out.contains("warning: no user or role of its claim was found"),
        "{removed:?}"
    );
    let why = format!("the reclaimPolicy of StorageClass {deleting:?} is Delete");
    assert!(removed.out.contains(&why) && removed.out.contains("with its keys, if it still exists"), "{removed:?}");
    assert_eq!(used.left(&world).await, (false, false));
    operator.stop().await;
}
