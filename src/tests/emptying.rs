//! Emptying reaches the whole bucket, and ends.

use super::delete::{DELETED, full, no_uploads, not_deleted, versions};
use crate::testing::*;
use bucket_provisioner::store::{BucketRemoval, Content, Failure, FailureClass};

async fn delete(stage: &Stage) -> Result<Removed, crate::Error> {
    stage.delete(&record(), None, Content::Delete).await
}

fn removed(removal: Result<Removed, crate::Error>) -> Option<u64> {
    match removal.unwrap() {
        (_, BucketRemoval::Partial { deleted, .. }) => Some(deleted),
        _ => None,
    }
}

/// The answers to the calls that come before the content is listed again.
fn found_again() -> [(&'static str, Answer); 3] {
    [
        ("GetUser", iam_error(404, "NoSuchEntity")),
        ("GetBucketTagging", bucket_tags(OURS)),
        ("DeleteBucket", s3_error(409, "BucketNotEmpty")),
    ]
}

/// A page of objects that none may delete.
fn locked() -> [(&'static str, Answer); 2] {
    let keys: Vec<_> = (0..999).map(|number| format!("k{number}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let error = |key: &str, version: &str| {
        format!("<Error><Key>{key}</Key><VersionId>{version}</VersionId><Code>AccessDenied</Code></Error>")
    };
    let errors: String = keys.iter().map(|key| error(key, "v1")).collect();
    let errors = errors + &error("k0", "v2");
    [
        ("ListObjectVersions", versions(&keys, Some("k"))),
        ("DeleteObjects", ok(format!("<DeleteResult>{errors}</DeleteResult>"))),
    ]
}

// A call ends by the clock, too.
#[tokio::test(start_paused = true)]
async fn locked_objects_do_not_hide_what_lies_behind_them() {
    let first = (0..50).flat_map(|_| locked()).chain(found_again());
    let behind = [("ListObjectVersions", versions(&["z"], None)), ("DeleteObjects", ok(DELETED))];
    let again = found_again().into_iter().chain(locked());
    let z = "<ListVersionsResult><Version><Key>z</Key><VersionId>v1</VersionId></Version></ListVersionsResult>";
    let last = [("ListObjectVersions", ok(z)), ("DeleteObjects", not_deleted("z", "AccessDenied"))];
    let stage = full(first.chain(behind).chain(again).chain(last));

    assert_eq!(removed(delete(&stage).await), Some(0), "a whole call of locked objects");
    assert_eq!(removed(delete(&stage).await), Some(2), "and the one behind them");
    let listings = stage.all_sent("ListObjectVersions");
    assert!(listings.last().unwrap().contains("key-marker=k&"), "{:?}", listings.last());
    assert!(!listings.iter().skip(2).any(|query| query.contains("delimiter")), "folders are listed one after another");

    let error = delete(&stage).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("ObjectsNotDeleted", FailureClass::Terminal));
}

#[tokio::test]
async fn objects_that_keep_arriving_do_not_make_it_endless() {
    let pass = || {
        let listed = [("ListObjectVersions", versions(&["log"], None)), ("DeleteObjects", ok(DELETED))];
        let rest = [("ListMultipartUploads", no_uploads()), ("DeleteBucket", s3_error(409, "BucketNotEmpty"))];
        listed.into_iter().chain(rest)
    };
    let stage = full(pass().chain(found_again()).chain(pass()).chain(found_again()).chain(pass()));
    assert_eq!(removed(delete(&stage).await), Some(2));
    assert_eq!(removed(delete(&stage).await), Some(2));
    let error = delete(&stage).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("ObjectsKeepArriving", FailureClass::Terminal));
    insta::assert_snapshot!(error, @r#"bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" is not empty, although everything in it was deleted several times (2 objects the last time): stop what writes to it, such as server access logging or a replication rule; retrying"#);
}

fn access_points(names: &[&str]) -> Answer {
    let points: String = names
        .iter()
        .map(|name| format!("<AccessPoint><Name>{name}</Name><NetworkOrigin>Internet</NetworkOrigin><Bucket>b</Bucket></AccessPoint>"))
        .collect();
    ok(format!("<ListAccessPointsResult><AccessPointList>{points}</AccessPointList></ListAccessPointsResult>"))
}

#[tokio::test]
async fn access_points_are_found_before_anything_is_deleted() {
    let stage = full([("ListAccessPoints", access_points(&["reports", "audit"]))]);
    let error = delete(&stage).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("BucketHasAccessPoints", FailureClass::Terminal));
    insta::assert_snapshot!(error, @r#"bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" has the access points reports, audit: delete them, because S3 does not delete such a bucket"#);
    assert!(
        !stage.calls().iter().any(|call| call.starts_with("List") && call.contains("Object")),
        "{:?}",
        stage.calls()
    );
    assert!(stage.sent("ListAccessPoints").contains(&format!("bucket={}", record().plan.bucket)));

    // S3 answers the same for an empty bucket.
    let attached = ("DeleteBucket", s3_error(409, "BucketHasAccessPointsAttached"));
    let stage = super::revoke::without_user([("GetBucketTagging", bucket_tags(OURS)), attached]);
    assert_eq!(delete(&stage).await.unwrap_err().reason(), "BucketHasAccessPoints");
}

#[tokio::test]
async fn without_an_answer_about_access_points_the_bucket_is_deleted() {
    for answer in [access_points(&[]), s3_error(403, "AccessDenied"), Answer::Reset] {
        let rest = [
            ("ListAccessPoints", answer),
            ("ListObjectVersions", versions(&["a"], None)),
            ("DeleteObjects", ok(DELETED)),
            ("ListMultipartUploads", no_uploads()),
            ("DeleteBucket", bare(204)),
        ];
        assert!(matches!(delete(&full(rest)).await.unwrap(), (_, BucketRemoval::Deleted | BucketRemoval::NotEmpty)));
    }
}

#[tokio::test]
async fn another_store_is_not_asked_for_access_points() {
    let stage = full([]);
    let _ = stage.delete(&elsewhere(record()), None, Content::Delete).await;
    assert!(stage.calls().contains(&"ListObjectVersions".to_owned()));
    assert!(!stage.calls().contains(&"ListAccessPoints".to_owned()));
}

/// A large removal makes many calls: one that the store fails does not end it.
#[tokio::test(start_paused = true)]
async fn calls_about_objects_are_repeated_twice() {
    let failed = || ("ListObjectVersions", s3_error(500, "InternalError"));
    for (failures, expected) in [(2, Ok(())), (3, Err("StoreFailing"))] {
        let answers = std::iter::repeat_with(failed).take(failures);
        let stage = full(answers.chain([
            ("ListObjectVersions", ok("<ListVersionsResult/>")),
            ("ListMultipartUploads", no_uploads()),
            ("DeleteBucket", bare(204)),
        ]));
        let removal = stage.delete(&record(), None, Content::Delete).await;
        assert_eq!(removal.map(drop).map_err(|error| error.reason()), expected);
    }
}
