//! Delete: the bucket of a claim is emptied and deleted.
//!
//! Long, because each case is a short list of answers, and all are about one verb.

use std::time::Duration;

use tokio::time::Instant;

use super::revoke::{FAST, go_record, go_user_is_deleted, left, revoked, user_is_deleted, without_user};
use crate::testing::*;
use bucket_provisioner::store::{AccessRemoval, AppCredentials, BucketRemoval, Content, Failure, FailureClass, Mode};

/// User and bucket were removed.
fn deleted() -> Removed {
    (AccessRemoval::Deleted, BucketRemoval::Deleted)
}

/// The same, but IAM showed no user.
fn deleted_without_user() -> Removed {
    (AccessRemoval::NotFound, BucketRemoval::Deleted)
}

#[tokio::test]
async fn an_untagged_bucket_of_the_go_provisioner_is_deleted() {
    let more = [("GetBucketTagging", s3_error(404, "NoSuchTagSet")), ("DeleteBucket", bare(204))];
    let stage = Stage::answering(go_user_is_deleted().into_iter().chain(more));
    assert_eq!(stage.delete(&go_record(), None, Content::Delete).await.unwrap(), deleted());
}

#[tokio::test]
async fn an_empty_bucket_is_deleted_at_once() {
    let stage = without_user([("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", bare(204))]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
    assert_eq!(stage.calls(), ["GetUser", "GetBucketTagging", "DeleteBucket"]);
}

#[tokio::test]
async fn a_missing_bucket_counts_as_removed() {
    let missing = without_user([("GetBucketTagging", s3_error(404, "NoSuchBucket"))]);
    assert_eq!(
        missing.delete(&record(), None, Content::Delete).await.unwrap(),
        (AccessRemoval::NotFound, BucketRemoval::NotFound)
    );
    let stage =
        without_user([("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", s3_error(404, "NoSuchBucket"))]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
    // Perhaps of a gateway before the store.
    let stage = without_user([("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", bare(404))]);
    let unclear = stage.delete(&record(), None, Content::Delete).await.unwrap_err();
    assert!(unclear.to_string().contains("DeleteBucket"), "{unclear}");
}

#[tokio::test]
async fn a_bucket_that_is_not_proven_ours_stays_and_is_reported() {
    // A generated name proves nothing if the account is not known: after a deletion anybody can take the name.
    let unknown_account = || without_account(record());
    for (record, tags) in [
        (record(), OTHERS),
        (unknown_account(), FOREIGN),
        (unknown_account(), &[]),
        (named("us-west-1"), FOREIGN),
        (named("us-west-1"), &[]),
        (go_record(), OTHERS),
        (go_record(), FOREIGN),
    ] {
        let gone = || iam_error(404, "NoSuchEntity");
        let policy = [("ListPolicyVersions", gone()), ("DeletePolicy", gone())];
        let stage = without_user(policy.into_iter().chain([("GetBucketTagging", bucket_tags(tags))]));
        let left = left(stage.delete(&record, None, Content::Delete).await.unwrap());
        assert!(left[0].contains("was left in place"), "{left:?}");
        assert!(!stage.calls().contains(&"DeleteBucket".to_owned()));
    }
}

#[tokio::test]
async fn a_generated_name_is_proof_even_if_somebody_replaced_the_tags() {
    let stage = without_user([("GetBucketTagging", bucket_tags(FOREIGN)), ("DeleteBucket", bare(204))]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn an_adopted_bucket_is_deleted_with_its_new_claim() {
    let previous_owner = named("us-west-1").with_former_uids(["another".into()]);
    let stage = without_user([("GetBucketTagging", bucket_tags(OTHERS)), ("DeleteBucket", bare(204))]);
    assert_eq!(stage.delete(&previous_owner, None, Content::Delete).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn an_older_bucket_is_left_in_place_whatever_its_tags_say() {
    let answers =
        |buckets| [("GetBucketTagging", bucket_tags(OURS)), ("ListBuckets", buckets), ("DeleteBucket", bare(204))];
    let stage = without_user(answers(buckets_created_at("2025-01-01T00:00:00.000Z")));
    let removal = stage.delete(&named_in_2026(), None, Content::Delete).await.unwrap();
    assert!(left(removal)[0].contains("older than this claim"));
    assert!(!stage.calls().contains(&"DeleteBucket".to_owned()));
    for buckets in [buckets_created_at("2026-06-01T00:00:00.000Z"), s3_error(403, "AccessDenied")] {
        let stage = without_user(answers(buckets));
        let removal = stage.delete(&named_in_2026(), None, Content::Delete).await.unwrap();
        assert_eq!(removal, deleted_without_user());
    }
}

#[tokio::test]
async fn a_bucket_is_deleted_only_if_it_holds_nothing() {
    const VERSION: &str = "<Version><Key>a</Key><VersionId>1</VersionId></Version>";
    const MARKER: &str = "<DeleteMarker><Key>a</Key><VersionId>2</VersionId></DeleteMarker>";
    const UPLOAD: &str = "<Upload><Key>a</Key><UploadId>3</UploadId></Upload>";
    let delete = async |versions: &str, uploads: &str| {
        let stage = without_user([
            ("GetBucketTagging", bucket_tags(OURS)),
            ("ListObjectVersions", ok(format!("<ListVersionsResult>{versions}</ListVersionsResult>"))),
            ("ListMultipartUploads", ok(format!("<ListMultipartUploadsResult>{uploads}</ListMultipartUploadsResult>"))),
            ("DeleteBucket", bare(204)),
        ]);
        let removal = stage.delete(&record(), None, Content::Keep).await.unwrap();
        (removal, stage.calls())
    };
    for (versions, uploads) in [(VERSION, ""), (MARKER, ""), ("", UPLOAD)] {
        let (removal, calls) = delete(versions, uploads).await;
        assert_eq!(removal, (AccessRemoval::NotFound, BucketRemoval::NotEmpty));
        assert!(!calls.iter().any(|call| call.starts_with("Delete") && call != "DeleteUser"), "{calls:?}");
    }
    assert_eq!(delete("", "").await.0, deleted_without_user());
}

const BUCKETS: &str = "<ListAllMyBucketsResult><Buckets><Bucket><Name>photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950</Name></Bucket></Buckets></ListAllMyBucketsResult>";

/// If only a permission is missing, that is reported instead.
#[tokio::test]
async fn a_bucket_of_another_account_is_left_in_place() {
    let denied = || ("GetBucketTagging", s3_error(403, "AccessDenied"));
    let strangers = without_user([denied(), ("ListBuckets", ok("<ListAllMyBucketsResult/>"))]);
    let removed = strangers.delete(&record(), None, Content::Delete).await.unwrap();
    assert!(left(removed)[0].contains("somebody else has taken its name"));

    for buckets in [ok(BUCKETS), s3_error(403, "AccessDenied")] {
        let ours = without_user([denied(), ("ListBuckets", buckets)]);
        let error = ours.delete(&record(), None, Content::Delete).await.unwrap_err();
        assert_eq!(error.reason(), "AccessDenied");
    }
}

#[tokio::test]
async fn every_call_has_the_expected_bucket_owner() {
    let stage = full([
        ("ListObjectVersions", versions(&["a"], None)),
        ("DeleteObjects", s3_error(400, "MalformedXML")),
        ("DeleteObject", bare(204)),
        ("DeleteObject", bare(204)),
        (
            "ListMultipartUploads",
            ok(
                "<ListMultipartUploadsResult><Upload><Key>u</Key><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>",
            ),
        ),
        ("AbortMultipartUpload", bare(204)),
        ("DeleteBucket", bare(204)),
    ]);
    stage.delete(&record(), None, Content::Delete).await.unwrap();
    let owners = stage.expected_owners();
    assert!(owners.len() >= 9 && owners.iter().all(|(_, owner)| owner.as_deref() == Some(ACCOUNT)), "{owners:?}");
}

#[tokio::test]
async fn a_brownfield_bucket_is_not_touched_whoever_asks() {
    assert_eq!(granted().plan.mode, Mode::Granted);
    let stage = Stage::answering(user_is_deleted());
    assert_eq!(stage.delete(&granted(), None, Content::Delete).await.unwrap(), revoked());
    assert_eq!(stage.calls(), FAST);
}

pub(super) fn versions(keys: &[&str], next: Option<&str>) -> Answer {
    let entries: String =
        keys.iter().map(|key| format!("<Version><Key>{key}</Key><VersionId>v1</VersionId></Version>")).collect();
    let next = next.map_or_else(
        || "<IsTruncated>false</IsTruncated>".to_owned(),
        |key| format!("<IsTruncated>true</IsTruncated><NextKeyMarker>{key}</NextKeyMarker><NextVersionIdMarker>v1</NextVersionIdMarker>"),
    );
    ok(format!(
        "<ListVersionsResult>{entries}<DeleteMarker><Key>{}</Key><VersionId>v2</VersionId></DeleteMarker>{next}</ListVersionsResult>",
        keys[0]
    ))
}

pub(super) fn no_uploads() -> Answer {
    ok("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>")
}

pub(super) const DELETED: &str = "<DeleteResult/>";

pub(super) fn not_deleted(key: &str, code: &str) -> Answer {
    ok(format!(
        "<DeleteResult><Error><Key>{key}</Key><VersionId>v1</VersionId><Code>{code}</Code><Message>m</Message></Error></DeleteResult>"
    ))
}

pub(super) fn full(answers: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    let first = [("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", s3_error(409, "BucketNotEmpty"))];
    without_user(first.into_iter().chain(answers))
}

#[tokio::test]
async fn a_full_bucket_is_emptied_of_versions_markers_and_uploads() {
    let uploads = "<ListMultipartUploadsResult><Upload><Key>u</Key><UploadId>1</UploadId></Upload><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>";
    let stage = full([
        ("ListObjectVersions", versions(&["a"], Some("a"))),
        ("ListObjectVersions", versions(&["b"], None)),
        ("DeleteObjects", ok(DELETED)),
        ("DeleteObjects", ok(DELETED)),
        ("ListMultipartUploads", ok(uploads)),
        ("AbortMultipartUpload", s3_error(404, "NoSuchUpload")),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
    let body = stage.sent("DeleteObjects");
    assert!(body.contains("<Key>a</Key><VersionId>v1</VersionId>") && body.contains("<Quiet>true</Quiet>"), "{body}");
    assert!(body.contains("<VersionId>v2</VersionId>"), "delete markers go too: {body}");
}

/// Some policies allow only the listing of whole buckets.
#[tokio::test]
async fn a_bucket_whose_folders_may_not_be_listed_is_listed_in_a_row() {
    let folders =
        "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>";
    let stage = full([
        ("ListObjectVersions", versions(&["a"], Some("a"))),
        ("ListObjectVersions", ok(format!("<ListVersionsResult>{folders}</ListVersionsResult>"))),
        ("ListObjectVersions", s3_error(403, "AccessDenied")),
        ("ListObjectVersions", s3_error(403, "AccessDenied")),
        ("ListObjectVersions", versions(&["b/b"], None)),
        ("DeleteObjects", ok(DELETED)),
        ("DeleteObjects", ok(DELETED)),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
    assert!(stage.all_sent("DeleteObjects").iter().any(|body| body.contains("<Key>b/b</Key>")));
}

/// Asked what follows a key, some stores continue behind its folder.
#[tokio::test]
async fn the_folder_at_the_cursor_is_not_left_out() {
    let stage = full([
        ("ListObjectVersions", versions(&["b/1"], Some("b/1"))),
        ("ListObjectVersions", ok("<ListVersionsResult/>")),
        ("ListObjectVersions", versions(&["b/2"], None)),
        ("DeleteObjects", ok(DELETED)),
        ("DeleteObjects", ok(DELETED)),
    ]);
    let removal = stage.delete(&record(), None, Content::Delete).await.unwrap();
    assert_eq!(removal.1, BucketRemoval::partial(4));
}

/// What was listed by folder does not prove that nothing is left.
#[tokio::test]
async fn only_a_listing_of_the_whole_bucket_proves_it_empty() {
    let folders =
        "<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>";
    let stage = full([
        ("ListObjectVersions", versions(&["a"], Some("a"))),
        ("ListObjectVersions", ok(format!("<ListVersionsResult>{folders}</ListVersionsResult>"))),
        ("ListObjectVersions", versions(&["b/b"], None)),
        ("ListObjectVersions", s3_error(403, "AccessDenied")),
        ("DeleteObjects", ok(DELETED)),
        ("DeleteObjects", ok(DELETED)),
    ]);
    let removal = stage.delete(&record(), None, Content::Delete).await.unwrap();
    assert_eq!(removal.1, BucketRemoval::partial(4));
}

/// A call can be refused as a whole, or for some of its objects.
#[tokio::test(start_paused = true)]
async fn throttled_objects_are_deleted_later_and_alone() {
    let stage = full([
        ("ListObjectVersions", versions(&["a", "b"], None)),
        ("DeleteObjects", s3_error(503, "SlowDown")),
        ("DeleteObjects", not_deleted("b", "SlowDown")),
        // Without its version.
        ("DeleteObjects", ok("<DeleteResult><Error><Key>b</Key><Code>SlowDown</Code></Error></DeleteResult>")),
        ("DeleteObjects", ok(DELETED)),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
    let bodies = stage.all_sent("DeleteObjects");
    assert_eq!(bodies.iter().map(|body| body.matches("<Key>").count()).collect::<Vec<_>>(), [3, 3, 1, 1]);
    assert!(bodies[2..].iter().all(|body| body.contains("<Key>b</Key>")), "{bodies:?}");

    let removed = Ok(BucketRemoval::partial(1));
    for (answer, outcome) in [(not_deleted("a", "SlowDown"), removed), (s3_error(503, "SlowDown"), Err("Throttled"))] {
        let listed = [("ListObjectVersions", versions(&["a"], None))];
        let stage = full(listed.into_iter().chain(std::iter::repeat_n(("DeleteObjects", answer), 1000)));
        let began = Instant::now();
        let removal = stage.delete(&record(), None, Content::Delete).await;
        assert_eq!(removal.map(|(_, bucket)| bucket).map_err(|error| error.reason()), outcome);
        assert!((30..60).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        // Each waits for the rate limit: the SDK repeats none.
        assert!(stage.calls().len() < 20, "{}", stage.calls().len());
    }
}

#[tokio::test]
async fn a_store_without_versions_is_emptied_object_by_object() {
    let stage = full([
        ("ListObjectVersions", s3_error(501, "NotImplemented")),
        ("ListObjectsV2", ok("<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>")),
        ("DeleteObjects", ok(DELETED)),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn undeleted_objects_are_reported_despite_status_200() {
    let stage = full([
        (
            "ListObjectVersions",
            ok("<ListVersionsResult><Version><Key>a</Key><VersionId>v1</VersionId></Version></ListVersionsResult>"),
        ),
        ("DeleteObjects", not_deleted("a", "AccessDenied")),
    ]);
    let error = stage.delete(&record(), None, Content::Delete).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("ObjectsNotDeleted", FailureClass::Terminal));
    insta::assert_snapshot!(error, @r#"bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" cannot be emptied: 1 of its objects cannot be deleted, first "a" (AccessDenied): object lock or a bucket policy protects them, or the provisioning credentials lack s3:DeleteObjectVersion"#);
}

#[tokio::test]
async fn all_other_objects_are_deleted_before_the_report() {
    let stage =
        full([("ListObjectVersions", versions(&["a"], None)), ("DeleteObjects", not_deleted("a", "AccessDenied"))]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap().1, BucketRemoval::partial(1));
}

#[tokio::test]
async fn keys_that_vanish_meanwhile_count_as_removed() {
    let stage = full([
        ("ListObjectVersions", versions(&["a"], None)),
        ("DeleteObjects", not_deleted("a", "NoSuchVersion")),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
}

/// It does not loop forever.
#[tokio::test]
async fn an_empty_listing_of_a_full_bucket_ends_with_an_error() {
    let stage = full([
        ("ListObjectVersions", ok("<ListVersionsResult/>")),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", s3_error(409, "BucketNotEmpty")),
    ]);
    let error = stage.delete(&record(), None, Content::Delete).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("NotVisibleYet", FailureClass::Retryable));
}

/// Without a clock, because a call ends after some seconds, too.
#[tokio::test(start_paused = true)]
async fn a_call_ends_after_fifty_pages_so_that_others_get_their_turn() {
    let keys: Vec<String> = (0..999).map(|i| format!("k{i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let pages =
        (0..51).flat_map(|_| [("ListObjectVersions", versions(&keys, Some("k"))), ("DeleteObjects", ok(DELETED))]);
    let stage = full(pages);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap().1, BucketRemoval::partial(50_000));
}

#[tokio::test]
async fn keys_that_xml_cannot_carry_are_deleted_one_by_one() {
    let stage = full([
        ("ListObjectVersions", versions(&["a&#x1;"], None)),
        ("DeleteObjects", s3_error(400, "MalformedXML")),
        ("DeleteObject", bare(204)),
        ("DeleteObject", s3_error(404, "NoSuchVersion")),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.delete(&record(), None, Content::Delete).await.unwrap(), deleted_without_user());
}

/// Somebody else may own the bucket when a call has waited for the rate limit.
#[tokio::test(start_paused = true)]
async fn ownership_is_read_again_after_a_long_wait() {
    let deletion = |refusals: usize| {
        let user = [("GetUser", user_with_tags(OURS)), ("ListAccessKeys", access_keys(&["AKIA1"]))];
        let refused = std::iter::repeat_n(("DeleteAccessKey", iam_error(400, "Throttling")), refusals);
        let ended = [("DeleteAccessKey", ok("")), ("DeleteUserPolicy", ok("")), ("DeleteUser", ok(""))];
        let bucket = [
            ("GetBucketTagging", bucket_tags(OURS)),
            ("DeleteBucket", s3_error(409, "BucketNotEmpty")),
            ("GetBucketTagging", bucket_tags(OTHERS)),
        ];
        Stage::answering(user.into_iter().chain(refused).chain(ended).chain(bucket))
    };
    let late = deletion(7);
    let removal = late.delete(&record(), None, Content::Delete).await.unwrap();
    let (AccessRemoval::Deleted, BucketRemoval::LeftInPlace(why)) = removal else { panic!("{removal:?}") };
    assert!(why.contains("another claim"), "{why}");
    assert!(!late.calls().contains(&"DeleteBucket".to_owned()));

    let soon = deletion(0);
    soon.delete(&record(), None, Content::Delete).await.unwrap_err();
    assert_eq!(soon.calls().iter().filter(|call| *call == "GetBucketTagging").count(), 1);
    assert!(soon.calls().contains(&"ListObjectVersions".to_owned()));
}

/// What is found next time may be that nothing proves whose the user was: then everything is kept.
#[tokio::test(start_paused = true)]
async fn no_content_is_deleted_before_the_user_is() {
    let user = [("GetUser", user_with_tags(OURS)), ("ListAccessKeys", access_keys(&["AKIA1"]))];
    let ended = [("DeleteAccessKey", ok("")), ("DeleteUserPolicy", ok(""))];
    let slow = std::iter::repeat_n(("DeleteUser", iam_error(400, "Throttling")), 3);
    let refused = [("DeleteUser", iam_error(403, "AccessDenied"))];
    let bucket = [("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", s3_error(409, "BucketNotEmpty"))];
    let answers = user.into_iter().chain(ended).chain(slow).chain(refused).chain(bucket);
    let stage = Stage::answering(answers);
    let error = stage.delete(&record(), None, Content::Delete).await.unwrap_err();
    assert_eq!(error.reason(), "AccessDenied");
    assert!(!stage.calls().contains(&"ListObjectVersions".to_owned()), "{:?}", stage.calls());
}

/// What proves whose they are, then keys and policy, then the user beside the bucket.
#[tokio::test(start_paused = true)]
async fn a_removal_takes_three_round_trips() {
    let user = [("GetUser", user_with_tags(OURS)), ("ListAccessKeys", access_keys(&["AKIA1"]))];
    let ended = [("DeleteAccessKey", ok("")), ("DeleteUserPolicy", ok("")), ("DeleteUser", ok(""))];
    let bucket = [("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", bare(204))];
    let stage = Stage::answering(user.into_iter().chain(ended).chain(bucket));
    stage.delays(Duration::from_secs(1));
    let began = Instant::now();
    let present = AppCredentials::new("AKIA1", "hunter2".into());
    assert_eq!(stage.delete(&record(), Some(&present), Content::Delete).await.unwrap(), deleted());
    assert_eq!((began.elapsed().as_secs(), stage.calls().len()), (3, 7));
}

/// As long as a key works, the name of its bucket must not become free.
#[tokio::test]
async fn a_bucket_stays_until_nobody_has_access_to_it() {
    for refused in ["DeleteAccessKey", "DeleteUserPolicy"] {
        let answers = [
            ("GetUser", user_with_tags(OURS)),
            ("ListAccessKeys", access_keys(&["AKIA1"])),
            ("GetBucketTagging", bucket_tags(OURS)),
            (refused, iam_error(403, "AccessDenied")),
            ("DeleteAccessKey", ok("")),
            ("DeleteUserPolicy", ok("")),
        ];
        let stage = Stage::answering(answers);
        let error = stage.delete(&record(), None, Content::Delete).await.unwrap_err();
        assert_eq!(error.reason(), "AccessDenied");
        assert!(!stage.calls().contains(&"DeleteBucket".to_owned()), "{:?}", stage.calls());
    }
}
