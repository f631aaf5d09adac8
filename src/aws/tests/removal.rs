//! Revoke and delete.

use crate::aws::testing::*;
use crate::provisioner::{AppCredentials, Failure, FailureClass, Fate, Mode, Provisioner, Record, Removal, Removed};

const FAST: [&str; 5] = ["GetUser", "ListAccessKeys", "DeleteAccessKey", "DeleteUserPolicy", "DeleteUser"];

fn user_goes() -> Vec<(&'static str, Answer)> {
    vec![
        ("GetUser", user_with_tags(OURS)),
        ("ListAccessKeys", access_keys(&["AKIA1"])),
        ("DeleteAccessKey", ok("")),
        ("DeleteUserPolicy", ok("")),
        ("DeleteUser", ok("")),
    ]
}

fn done(access: Fate, bucket: Fate) -> Removal {
    Removal::Done(Removed { access, bucket })
}

/// The user goes, and the bucket stays.
fn revoked() -> Removal {
    done(Fate::Removed, Fate::Kept)
}

/// Both go.
fn deleted() -> Removal {
    done(Fate::Removed, Fate::Removed)
}

/// As [`deleted`], where IAM showed no user.
fn deleted_without_user() -> Removal {
    done(Fate::Missing, Fate::Removed)
}

/// The keys in the claim's Secret.
fn present(id: &str) -> AppCredentials {
    AppCredentials { access_key_id: id.into(), secret_access_key: "hunter2".into(), session_token: None }
}

/// Why access and bucket were left in place.
fn left(removal: Removal) -> Vec<String> {
    match removal {
        Removal::Done(removed) => removed.left().map(str::to_owned).collect(),
        Removal::Partial { .. } => panic!("{removal:?}"),
    }
}

fn without_user(answers: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    Stage::answering([("GetUser", iam_error(404, "NoSuchEntity"))].into_iter().chain(answers))
}

#[tokio::test]
async fn an_ordinary_user_goes_in_five_calls_keys_first() {
    let stage = Stage::answering(user_goes());
    assert_eq!(stage.provisioner.revoke(&record(), &stage.owner, None).await.unwrap(), revoked());
    assert_eq!(stage.calls(), FAST);
}

#[tokio::test]
async fn a_user_that_is_gone_counts_as_removed() {
    let stage = without_user([]);
    assert_eq!(stage.provisioner.revoke(&record(), &stage.owner, None).await.unwrap(), done(Fate::Missing, Fate::Kept));
    assert_eq!(stage.calls(), ["GetUser"]);
}

#[tokio::test]
async fn a_user_that_is_not_proven_ours_stays_and_is_told_of() {
    for tags in [OTHERS, FOREIGN, &[]] {
        let stage = Stage::answering([("GetUser", user_with_tags(tags))]);
        let left = left(stage.provisioner.revoke(&record(), &stage.owner, None).await.unwrap());
        assert!(left[0].contains("was left in place"), "{left:?}");
        assert_eq!(stage.calls(), ["GetUser"]);
    }
}

#[tokio::test]
async fn a_user_that_lost_its_tags_goes_if_it_holds_the_claims_key() {
    for tags in [FOREIGN, &[]] {
        let answers = || {
            let mut answers = user_goes();
            answers[0] = ("GetUser", user_with_tags(tags));
            answers.insert(1, ("ListAccessKeys", access_keys(&["AKIA1"])));
            answers
        };
        let stage = Stage::answering(answers());
        let removed = stage.provisioner.revoke(&record(), &stage.owner, Some(&present("AKIA1"))).await.unwrap();
        assert_eq!(removed, revoked());

        let stage = Stage::answering(answers());
        let removed = stage.provisioner.revoke(&record(), &stage.owner, Some(&present("AKIA2"))).await.unwrap();
        assert!(left(removed)[0].contains("nor the key in the claim's Secret"));
        assert_eq!(stage.calls(), ["GetUser", "ListAccessKeys"]);
    }
    // Whoever holds which key: tags that name another claim say whose it is.
    let stage = Stage::answering([("GetUser", user_with_tags(OTHERS))]);
    let removed = stage.provisioner.revoke(&record(), &stage.owner, Some(&present("AKIA1"))).await.unwrap();
    assert!(left(removed)[0].contains("its tags name another claim"));
}

#[tokio::test]
async fn a_user_of_a_former_claim_goes_with_the_claim_that_adopted_its_record() {
    let mut answers = user_goes();
    answers[0] = ("GetUser", user_with_tags(OTHERS));
    let stage = Stage::answering(answers);
    let heir = Record { former_uids: vec!["another".into()], ..record() };
    assert_eq!(stage.provisioner.revoke(&heir, &stage.owner, None).await.unwrap(), revoked());
}

#[tokio::test]
async fn access_that_still_works_is_not_gone_though_its_user_is_not_found() {
    let handed_over = Record { handed_over: true, ..record() };
    let caller = "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>210987654321</Account></GetCallerIdentityResult></GetCallerIdentityResponse>";
    let keys = present("AKIA1");
    let stage = without_user([("GetCallerIdentity", ok(caller))]);
    let error = stage.provisioner.delete(&handed_over, &stage.owner, Some(&keys)).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("AccessStillWorks", FailureClass::Retryable));
    assert_eq!(stage.calls(), ["GetUser", "GetCallerIdentity"], "the bucket is not touched");

    let stage = without_user([("GetCallerIdentity", iam_error(403, "InvalidClientTokenId"))]);
    let removed = stage.provisioner.revoke(&handed_over, &stage.owner, Some(&keys)).await.unwrap();
    assert_eq!(removed, done(Fate::Missing, Fate::Kept));

    let stage = without_user([("GetCallerIdentity", Answer::Reset)]);
    assert!(stage.provisioner.revoke(&handed_over, &stage.owner, Some(&keys)).await.is_err(), "nobody knows");
}

const IN_A_GROUP: &str = "<ListGroupsForUserResponse><ListGroupsForUserResult><Groups><member><Path>/</Path><GroupName>g</GroupName><GroupId>G</GroupId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></member></Groups></ListGroupsForUserResult></ListGroupsForUserResponse>";

#[tokio::test]
async fn what_others_added_to_a_user_is_cleared_only_if_aws_objects() {
    let stage = Stage::answering([
        ("GetUser", user_with_tags(OURS)),
        ("ListAccessKeys", access_keys(&[])),
        ("DeleteUserPolicy", ok("")),
        ("DeleteUser", iam_error(409, "DeleteConflict")),
        ("ListAccessKeys", access_keys(&[])),
        ("DeleteLoginProfile", iam_error(404, "NoSuchEntity")),
        (
            "ListUserPolicies",
            ok(
                "<ListUserPoliciesResponse><ListUserPoliciesResult><PolicyNames><member>extra</member></PolicyNames></ListUserPoliciesResult></ListUserPoliciesResponse>",
            ),
        ),
        ("DeleteUserPolicy", ok("")),
        (
            "ListAttachedUserPolicies",
            ok(
                "<ListAttachedUserPoliciesResponse><ListAttachedUserPoliciesResult><AttachedPolicies><member><PolicyName>p</PolicyName><PolicyArn>arn:aws:iam::aws:policy/ReadOnlyAccess</PolicyArn></member></AttachedPolicies></ListAttachedUserPoliciesResult></ListAttachedUserPoliciesResponse>",
            ),
        ),
        ("DetachUserPolicy", ok("")),
        ("ListGroupsForUser", ok(IN_A_GROUP)),
        ("RemoveUserFromGroup", ok("")),
        ("DeleteUser", ok("")),
    ]);
    assert_eq!(stage.provisioner.revoke(&record(), &stage.owner, None).await.unwrap(), revoked());
    assert_eq!(
        stage.calls()[4..],
        [
            "ListAccessKeys",
            "DeleteLoginProfile",
            "ListUserPolicies",
            "DeleteUserPolicy",
            "ListAttachedUserPolicies",
            "DetachUserPolicy",
            "ListGroupsForUser",
            "RemoveUserFromGroup",
            "DeleteUser"
        ]
    );
}

/// What is attached to the user is gone by then: its keys, its password and its policies.
#[tokio::test]
async fn a_user_that_may_not_be_taken_out_of_its_groups_is_told_of_with_the_remedy() {
    for denied in ["ListGroupsForUser", "RemoveUserFromGroup"] {
        let mut answers = user_goes();
        answers[4] = ("DeleteUser", iam_error(409, "DeleteConflict"));
        answers.extend([
            ("ListAccessKeys", access_keys(&[])),
            ("DeleteLoginProfile", ok("")),
            ("ListUserPolicies", ok("<ListUserPoliciesResponse><ListUserPoliciesResult/></ListUserPoliciesResponse>")),
            ("ListAttachedUserPolicies", ok("<ListAttachedUserPoliciesResponse><ListAttachedUserPoliciesResult/></ListAttachedUserPoliciesResponse>")),
        ]);
        if denied == "RemoveUserFromGroup" {
            answers.push(("ListGroupsForUser", ok(IN_A_GROUP)));
        }
        answers.push((denied, iam_error(403, "AccessDenied")));
        let stage = Stage::answering(answers);
        let error = stage.provisioner.revoke(&record(), &stage.owner, None).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), ("AccessDenied", FailureClass::Terminal));
        assert!(error.to_string().contains(&format!("allow iam:{denied}")), "{error}");
        assert_eq!(error.to_string().contains("by hand"), denied == "RemoveUserFromGroup", "{error}");
        assert!(!error.to_string().contains("\"g\""), "groups are none of a claim's business: {error}");
        assert!(stage.calls().contains(&"DeleteLoginProfile".to_owned()));
        assert_eq!(stage.calls().last().unwrap(), denied);
    }
}

fn go_record() -> Record {
    let mut record = record();
    record.plan.bucket = "b2-ff67fdea-a308-4ac0-973e-c511e96cabe8".into();
    record.plan.user = Some("b2-ff67-wb4Vy".into());
    record.plan.state = [("ARN".into(), "arn:aws:iam::000000000000:policy/b2-ff67-wb4Vy".into())].into();
    record
}

fn go_user_goes() -> Vec<(&'static str, Answer)> {
    vec![
        ("GetUser", user_with_tags(&[])),
        ("DetachUserPolicy", ok("")),
        ("ListAccessKeys", access_keys(&["AKIA1"])),
        ("DeleteAccessKey", ok("")),
        ("DeleteUserPolicy", iam_error(404, "NoSuchEntity")),
        ("DeleteUser", ok("")),
        (
            "ListPolicyVersions",
            ok(
                "<ListPolicyVersionsResponse><ListPolicyVersionsResult><Versions><member><VersionId>v1</VersionId><IsDefaultVersion>false</IsDefaultVersion></member><member><VersionId>v2</VersionId><IsDefaultVersion>true</IsDefaultVersion></member></Versions></ListPolicyVersionsResult></ListPolicyVersionsResponse>",
            ),
        ),
        ("DeletePolicyVersion", ok("")),
        ("DeletePolicy", ok("")),
    ]
}

#[tokio::test]
async fn the_user_and_the_policy_of_the_go_provisioner_go_together() {
    let stage = Stage::answering(go_user_goes());
    assert_eq!(stage.provisioner.revoke(&go_record(), &stage.owner, None).await.unwrap(), revoked());
    assert_eq!(
        stage.calls(),
        [
            "GetUser",
            "DetachUserPolicy",
            "ListAccessKeys",
            "DeleteAccessKey",
            "DeleteUserPolicy",
            "DeleteUser",
            "ListPolicyVersions",
            "DeletePolicyVersion",
            "DeletePolicy"
        ]
    );
}

#[tokio::test]
async fn a_policy_of_another_name_is_detached_but_not_deleted() {
    let mut record = go_record();
    record.plan.state.insert("ARN".into(), "arn:aws:iam::000000000000:policy/everyone".into());
    let stage = Stage::answering(go_user_goes());
    stage.provisioner.revoke(&record, &stage.owner, None).await.unwrap();
    assert_eq!(stage.calls().last().unwrap(), "DeleteUser");
}

#[tokio::test]
async fn a_tagged_user_is_not_the_go_provisioners() {
    let stage = Stage::answering([("GetUser", user_with_tags(FOREIGN))]);
    stage.provisioner.revoke(&go_record(), &stage.owner, None).await.unwrap();
    assert_eq!(stage.calls(), ["GetUser"]);
}

#[tokio::test]
async fn an_untagged_bucket_of_the_go_provisioner_is_deleted() {
    let more = [("GetBucketTagging", s3_error(404, "NoSuchTagSet")), ("DeleteBucket", bare(204))];
    let stage = Stage::answering(go_user_goes().into_iter().chain(more));
    assert_eq!(stage.provisioner.delete(&go_record(), &stage.owner, None).await.unwrap(), deleted());
}

#[tokio::test]
async fn an_empty_bucket_goes_at_once() {
    let stage = without_user([("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", bare(204))]);
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), deleted_without_user());
    assert_eq!(stage.calls(), ["GetUser", "GetBucketTagging", "DeleteBucket"]);
}

#[tokio::test]
async fn a_bucket_that_is_gone_counts_as_removed() {
    let gone = without_user([("GetBucketTagging", s3_error(404, "NoSuchBucket"))]);
    assert_eq!(
        gone.provisioner.delete(&record(), &gone.owner, None).await.unwrap(),
        done(Fate::Missing, Fate::Missing)
    );
    let goes = without_user([("GetBucketTagging", bucket_tags(OURS)), ("DeleteBucket", s3_error(404, "NoSuchBucket"))]);
    assert_eq!(goes.provisioner.delete(&record(), &goes.owner, None).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn a_bucket_that_is_not_proven_ours_stays_and_is_told_of() {
    // Of a generated name anybody may have made a bucket since it was deleted, unless it can be only in one account.
    let unknown_account = || Record { account: None, ..record() };
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
        let left = left(stage.provisioner.delete(&record, &stage.owner, None).await.unwrap());
        assert!(left[0].contains("was left in place"), "{left:?}");
        assert!(!stage.calls().contains(&"DeleteBucket".to_owned()));
    }
}

#[tokio::test]
async fn a_generated_name_is_proof_even_if_somebody_replaced_the_tags() {
    let stage = without_user([("GetBucketTagging", bucket_tags(FOREIGN)), ("DeleteBucket", bare(204))]);
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn a_bucket_of_a_former_claim_goes_with_the_claim_that_adopted_its_record() {
    let heir = Record { former_uids: vec!["another".into()], ..named("us-west-1") };
    let stage = without_user([("GetBucketTagging", bucket_tags(OTHERS)), ("DeleteBucket", bare(204))]);
    assert_eq!(stage.provisioner.delete(&heir, &stage.owner, None).await.unwrap(), deleted_without_user());
}

const BUCKETS: &str = "<ListAllMyBucketsResult><Buckets><Bucket><Name>photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950</Name></Bucket></Buckets></ListAllMyBucketsResult>";

#[tokio::test]
async fn a_name_that_a_stranger_has_taken_since_is_left_in_place_and_a_missing_permission_is_said() {
    let denied = || ("GetBucketTagging", s3_error(403, "AccessDenied"));
    let strangers = without_user([denied(), ("ListBuckets", ok("<ListAllMyBucketsResult/>"))]);
    let removed = strangers.provisioner.delete(&record(), &strangers.owner, None).await.unwrap();
    assert!(left(removed)[0].contains("somebody else has taken its name"));

    for buckets in [ok(BUCKETS), s3_error(403, "AccessDenied")] {
        let ours = without_user([denied(), ("ListBuckets", buckets)]);
        let error = ours.provisioner.delete(&record(), &ours.owner, None).await.unwrap_err();
        assert_eq!(error.reason(), "AccessDenied");
    }
}

#[tokio::test]
async fn every_call_about_a_created_bucket_names_the_account_that_it_has_to_be_in() {
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
    stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap();
    let owners = stage.expected_owners();
    assert!(owners.len() >= 9 && owners.iter().all(|(_, owner)| owner.as_deref() == Some(ACCOUNT)), "{owners:?}");
}

#[tokio::test]
async fn a_brownfield_bucket_is_not_touched_whoever_asks() {
    assert_eq!(granted().plan.mode, Mode::Granted);
    let stage = Stage::answering(user_goes());
    assert_eq!(stage.provisioner.delete(&granted(), &stage.owner, None).await.unwrap(), revoked());
    assert_eq!(stage.calls(), FAST);
}

fn versions(keys: &[&str], next: Option<&str>) -> Answer {
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

fn no_uploads() -> Answer {
    ok("<ListMultipartUploadsResult><IsTruncated>false</IsTruncated></ListMultipartUploadsResult>")
}

const DELETED: &str = "<DeleteResult/>";

fn not_deleted(key: &str, code: &str) -> Answer {
    ok(format!(
        "<DeleteResult><Error><Key>{key}</Key><VersionId>v1</VersionId><Code>{code}</Code><Message>m</Message></Error></DeleteResult>"
    ))
}

fn full(answers: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
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
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), deleted_without_user());
    let body = stage.sent("DeleteObjects");
    assert!(body.contains("<Key>a</Key><VersionId>v1</VersionId>") && body.contains("<Quiet>true</Quiet>"), "{body}");
    assert!(body.contains("<VersionId>v2</VersionId>"), "delete markers go too: {body}");
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
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn objects_that_the_store_keeps_are_named_although_it_answers_200() {
    let stage = full([
        (
            "ListObjectVersions",
            ok("<ListVersionsResult><Version><Key>a</Key><VersionId>v1</VersionId></Version></ListVersionsResult>"),
        ),
        ("DeleteObjects", not_deleted("a", "AccessDenied")),
    ]);
    let error = stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("ObjectsNotDeleted", FailureClass::Terminal));
    insta::assert_snapshot!(error, @r#"bucket "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950" cannot be emptied: 1 of its objects cannot be deleted, first "a" (AccessDenied): object lock or a bucket policy protects them, or the owner lacks s3:DeleteObjectVersion"#);
}

#[tokio::test]
async fn what_can_be_deleted_goes_before_the_rest_is_complained_about() {
    let stage =
        full([("ListObjectVersions", versions(&["a"], None)), ("DeleteObjects", not_deleted("a", "AccessDenied"))]);
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), Removal::Partial { removed: 1 });
}

#[tokio::test]
async fn keys_that_are_gone_meanwhile_count_as_removed() {
    let stage = full([
        ("ListObjectVersions", versions(&["a"], None)),
        ("DeleteObjects", not_deleted("a", "NoSuchVersion")),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", bare(204)),
    ]);
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), deleted_without_user());
}

#[tokio::test]
async fn a_bucket_that_lists_nothing_and_yet_is_not_empty_is_no_endless_loop() {
    let stage = full([
        ("ListObjectVersions", ok("<ListVersionsResult/>")),
        ("ListMultipartUploads", no_uploads()),
        ("DeleteBucket", s3_error(409, "BucketNotEmpty")),
    ]);
    let error = stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("BucketNotEmpty", FailureClass::Retryable));
}

#[tokio::test]
async fn a_slice_ends_after_ten_pages_so_that_others_get_their_turn() {
    let keys: Vec<String> = (0..999).map(|i| format!("k{i}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let pages =
        (0..11).flat_map(|_| [("ListObjectVersions", versions(&keys, Some("k"))), ("DeleteObjects", ok(DELETED))]);
    let stage = full(pages);
    assert_eq!(
        stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(),
        Removal::Partial { removed: 10_000 }
    );
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
    assert_eq!(stage.provisioner.delete(&record(), &stage.owner, None).await.unwrap(), deleted_without_user());
}
