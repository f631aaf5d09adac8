//! Buckets with something in them.

use std::time::Duration;

use futures::StreamExt as _;

use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;
use crate::support::terminal::Terminal;
use crate::support::{World, bucket_of};

/// Puts `count` objects, many at a time.
async fn fill(world: &World, bucket: &str, count: usize) {
    put_all(world, bucket, (0..count).map(|n| format!("object-{n}"))).await;
}

async fn put_all(world: &World, bucket: &str, keys: impl Iterator<Item = String>) {
    let puts = futures::stream::iter(keys).map(|key| async move { world.account.put(bucket, &key).await });
    let done: Vec<_> = puts.buffer_unordered(32).collect().await;
    assert!(done.into_iter().all(|put| put.is_ok()));
}

/// A claim that is bound, to a bucket that keeps versions; the operator that serves it, and the bucket.
async fn versioned(world: &World, claim: &str) -> (Operator, String) {
    let class = world.class("greenfield").await;
    let operator = Operator::start(world, Kind::InProcess).await;
    world.claim(claim, &class).await;
    let bucket = bucket_of(&world.wait_bound(claim).await);
    world.account.keep_versions(&bucket).await;
    (operator, bucket)
}

/// Delete markers, and unfinished multipart uploads.
#[tokio::test]
async fn a_bucket_is_deleted_with_versions_markers_and_uploads() {
    let world = World::new().await;
    let (_operator, bucket) = versioned(&world, "versioned").await;
    for _ in 0..2 {
        fill(&world, &bucket, 20).await;
    }
    world.account.s3.delete_object().bucket(&bucket).key("object-1").send().await.unwrap();
    world.account.s3.create_multipart_upload().bucket(&bucket).key("unfinished").send().await.unwrap();

    world.delete_claim("versioned").await;
    world.wait_gone("versioned").await;
    assert!(!world.account.bucket_exists(&bucket).await);
}

/// With progress on the claim, while other claims are served, and across a restart.
#[tokio::test]
async fn a_large_bucket_is_emptied_in_pieces() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("large", &class).await;
    let bucket = bucket_of(&world.wait_bound("large").await);
    fill(&world, &bucket, 12_000).await;

    // The first piece succeeds, and ends after its time; what comes after it is held up until the operator was
    // restarted.
    let (mut batches, mut lists) = (0, 0);
    world.aws.inject(move |call| {
        batches += usize::from(call.name == "DeleteObjects");
        lists += usize::from(call.name == "ListObjectVersions");
        match call.name.as_str() {
            "DeleteObjects" if batches > 6 => Verdict::Hang,
            "ListObjectVersions" if lists == 6 => Verdict::Delay(Duration::from_secs(9)),
            _ => Verdict::Pass,
        }
    });
    let mut admin = Terminal::start(&world, &["status", "--watch", "--interval", "100ms"]);
    world.delete_claim("large").await;
    let message = world.wait_reason("large", "Purging").await;
    assert!(message.contains(&bucket) && message.contains("so far: 6000"), "{message}");
    admin.shows(&[&format!("emptying {bucket}: 6,000 removed")]).await;
    operator.stop().await;
    assert!(world.claims().get_opt("large").await.unwrap().is_some(), "the finalizer is removed last");

    world.aws.leave_alone();
    world.aws.clear();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("small", &class).await;
    world.wait_bound("small").await;
    world.wait_gone("large").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    let batches = world.aws.names().iter().filter(|name| *name == "DeleteObjects").count();
    assert!((6..=8).contains(&batches), "what was left, in batches of a thousand: {batches}");
}

#[tokio::test]
async fn emptying_slows_down_only_when_s3_throttles() {
    let world = World::new().await;
    let (_operator, bucket) = versioned(&world, "folders").await;
    let folders = ["", "a/", "a/a/", "b/", "c c/", "d&d/", "é/"];
    for key in folders.iter().flat_map(|folder| (0..10).map(move |n| format!("{folder}{n}"))) {
        world.account.put(&bucket, &key).await.unwrap();
    }
    world.aws.clear();
    let mut refusals = 0;
    world.aws.inject(move |call| {
        refusals += usize::from(call.name == "DeleteObjects");
        let slow = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
        let refused = call.name == "DeleteObjects" && refusals <= 3;
        if refused { Verdict::Answer(503, slow.to_owned()) } else { Verdict::Pass }
    });
    world.delete_claim("folders").await;
    world.wait_gone("folders").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    let called = |name: &str| world.aws.names().iter().filter(|called| *called == name).count();
    assert_eq!(called("ListObjectVersions"), 1);
    assert_eq!(called("DeleteObjects"), 1 + 3, "only what was refused is repeated");
    assert_eq!(called("DeleteBucket"), 2, "in one attempt");
}

/// In sequence where the store does not support that.
#[tokio::test]
async fn a_large_bucket_is_listed_by_prefixes_in_parallel() {
    let folders = ["", "a a/", "b&b/", "c/c/", "é/"];
    for knows_folders in [true, false] {
        let world = World::new().await;
        let (_operator, bucket) = versioned(&world, "folders").await;
        let keys = || folders.iter().flat_map(|folder| (0..450).map(move |n| format!("{folder}{n}")));
        put_all(&world, &bucket, keys()).await;
        // Further versions of some, and those of a folder are hidden.
        put_all(&world, &bucket, keys().filter(|key| key.starts_with('c'))).await;
        for n in 0..20 {
            world.account.s3.delete_object().bucket(&bucket).key(format!("b&b/{n}")).send().await.unwrap();
        }
        world.aws.clear();
        world.aws.inject(move |call| {
            let asks = call.name == "ListObjectVersions" && call.target.contains("delimiter=");
            let refusal = "<Error><Code>NotImplemented</Code><Message>no delimiters</Message></Error>";
            if asks && !knows_folders { Verdict::Answer(501, refusal.to_owned()) } else { Verdict::Pass }
        });
        world.delete_claim("folders").await;
        world.wait_gone("folders").await;
        assert!(!world.account.bucket_exists(&bucket).await);
        let calls = world.aws.calls();
        let listed = |what: &str| {
            let lists = calls.iter().filter(|call| call.name == "ListObjectVersions");
            lists.filter(|call| call.target.contains(what)).count()
        };
        let deleted = calls.iter().filter(|call| call.name == "DeleteBucket").count();
        // The first thousand are listed before anything is known of folders: those of none, of one and of a part of
        // another.
        let folders_listed = if knows_folders { 3 } else { 0 };
        assert_eq!(
            (listed("prefix="), listed("delimiter="), deleted),
            (folders_listed, 1, 2),
            "{:?}",
            world.aws.names()
        );
        assert!(listed("") <= 6, "{} pages for 2,720 objects, versions and delete markers", listed(""));
    }
}

/// The bucket stays until it can.
#[tokio::test]
async fn an_object_that_cannot_be_deleted_is_named() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("locked", &class).await;
    let bucket = bucket_of(&world.wait_bound("locked").await);
    world.account.put(&bucket, "under-lock").await.unwrap();
    let refused = "<DeleteResult><Error><Key>under-lock</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error></DeleteResult>";
    world.aws.inject(move |call| match call.name.as_str() {
        "DeleteObjects" => Verdict::Answer(200, refused.to_owned()),
        _ => Verdict::Pass,
    });
    world.delete_claim("locked").await;
    let claim = world
        .wait_claim("locked", "reported with a reason", |claim| {
            crate::support::ready(claim).is_some_and(|c| c.message.contains("under-lock"))
        })
        .await;
    assert!(claim.metadata.deletion_timestamp.is_some());
    let (type_, _) = world.wait_event("locked", "ObjectsNotDeleted").await;
    assert_eq!(type_, "Warning");
    assert!(world.account.bucket_exists(&bucket).await);
}
