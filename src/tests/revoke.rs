//! Revoke: the user of a claim is removed.

use crate::testing::*;
use bucket_provisioner::store::{AccessRemoval, AppCredentials, BucketRemoval, Content, Failure, FailureClass, Record};

pub(super) const FAST: [&str; 5] = ["GetUser", "ListAccessKeys", "DeleteAccessKey", "DeleteUserPolicy", "DeleteUser"];

pub(super) fn user_is_deleted() -> Vec<(&'static str, Answer)> {
    vec![
        ("GetUser", user_with_tags(OURS)),
        ("ListAccessKeys", access_keys(&["AKIA1"])),
        ("DeleteAccessKey", ok("")),
        ("DeleteUserPolicy", ok("")),
        ("DeleteUser", ok("")),
    ]
}

/// The user was removed, and the bucket stays.
pub(super) fn revoked() -> Removed {
    (AccessRemoval::Deleted, BucketRemoval::Kept)
}

/// The keys in the claim's Secret.
fn present(id: &str) -> AppCredentials {
    AppCredentials::new(id, "hunter2".into())
}

/// Why access and bucket were left in place.
pub(super) fn left((access, bucket): Removed) -> Vec<String> {
    let access = if let AccessRemoval::LeftInPlace(why) = access { Some(why) } else { None };
    let bucket = if let BucketRemoval::LeftInPlace(why) = bucket { Some(why) } else { None };
    [access, bucket].into_iter().flatten().collect()
}

pub(super) fn without_user(answers: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    Stage::answering([("GetUser", iam_error(404, "NoSuchEntity"))].into_iter().chain(answers))
}

#[tokio::test]
async fn a_user_is_deleted_in_five_calls_keys_first() {
    let stage = Stage::answering(user_is_deleted());
    assert_eq!(stage.revoke(&record(), None).await.unwrap(), revoked());
    assert_eq!(stage.calls(), FAST);
}

/// Three changes, beside two reads.
#[tokio::test(start_paused = true)]
async fn reads_of_iam_take_no_turns_of_changes() {
    let stage = Stage::answering(user_is_deleted());
    let mut slow = record();
    slow.plan.state.insert("iamCallsPerSecond".into(), "1".into());
    let since = tokio::time::Instant::now();
    stage.revoke(&slow, None).await.unwrap();
    assert!((1900..2500).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_missing_user_counts_as_removed() {
    let stage = without_user([]);
    assert_eq!(stage.revoke(&record(), None).await.unwrap(), (AccessRemoval::NotFound, BucketRemoval::Kept));
    assert_eq!(stage.calls(), ["GetUser"]);
}

#[tokio::test]
async fn a_user_that_is_not_proven_ours_stays_and_is_reported() {
    let stage = Stage::answering([("GetUser", user_with_tags(OTHERS))]);
    let left = left(stage.revoke(&record(), None).await.unwrap());
    assert!(left[0].contains("was left in place"), "{left:?}");
    assert_eq!(stage.calls(), ["GetUser"]);
    // Somebody has to decide; until then its keys do not work.
    for tags in [FOREIGN, &[]] {
        let answers = [
            ("GetUser", user_with_tags(tags)),
            ("ListAccessKeys", access_keys(&["AKIA1"])),
            ("UpdateAccessKey", ok("")),
        ];
        let stage = Stage::answering(answers.clone());
        unproven(stage.revoke(&record(), None).await.unwrap());
        assert_eq!(stage.calls(), ["GetUser", "ListAccessKeys", "UpdateAccessKey"]);
        // Not even its name has to do with the claim.
        let mut other = record();
        other.plan.user = Some("ci-deployer".into());
        let stage = Stage::answering(answers);
        unproven(stage.revoke(&other, None).await.unwrap());
        assert_eq!(stage.calls(), ["GetUser", "ListAccessKeys"]);
    }
}

fn unproven(removal: Removed) {
    let (AccessRemoval::Unproven(why), BucketRemoval::Kept) = removal else { panic!("{removal:?}") };
    assert!(why.contains("was left in place"), "{why}");
}

#[tokio::test]
async fn path_name_and_account_prove_a_user_without_tags() {
    let at = |path: &str| {
        let mut answers = user_is_deleted();
        answers[0] = ("GetUser", user_at(path));
        answers
    };
    let stage = Stage::answering(at("/aws-s3-provisioner/"));
    assert_eq!(stage.revoke(&record(), None).await.unwrap(), revoked());
    let unknown_account = without_account(record());
    let mut other_name = record();
    other_name.plan.user = Some("photos".into());
    for (record, path) in
        [(record(), "/"), (unknown_account, "/aws-s3-provisioner/"), (other_name, "/aws-s3-provisioner/")]
    {
        let stage = Stage::answering(at(path));
        let removal = stage.delete(&record, None, Content::Delete).await;
        assert!(
            !stage.calls().iter().any(|call| call.starts_with("Delete")),
            "{path}: {:?} {removal:?}",
            stage.calls()
        );
    }
}

#[tokio::test]
async fn the_claims_key_proves_a_user_that_lost_its_tags() {
    for tags in [FOREIGN, &[]] {
        let answers = || {
            let mut answers = user_is_deleted();
            answers[0] = ("GetUser", user_with_tags(tags));
            answers.insert(1, ("ListAccessKeys", access_keys(&["AKIA1"])));
            answers.push(("UpdateAccessKey", ok("")));
            answers
        };
        let stage = Stage::answering(answers());
        let removed = stage.revoke(&record(), Some(&present("AKIA1"))).await.unwrap();
        assert_eq!(removed, revoked());

        let stage = Stage::answering(answers());
        let removed = stage.revoke(&record(), Some(&present("AKIA2"))).await.unwrap();
        unproven(removed);
        assert_eq!(stage.calls(), ["GetUser", "ListAccessKeys", "UpdateAccessKey"]);
    }
    // Tags that name another claim count more than a key.
    let stage = Stage::answering([("GetUser", user_with_tags(OTHERS))]);
    let removed = stage.revoke(&record(), Some(&present("AKIA1"))).await.unwrap();
    assert!(left(removed)[0].contains("its tags name another claim"));
}

#[tokio::test]
async fn an_adopted_user_is_deleted_with_its_new_claim() {
    let mut answers = user_is_deleted();
    answers[0] = ("GetUser", user_with_tags(OTHERS));
    let stage = Stage::answering(answers);
    let previous_owner = record().with_former_uids(["another".into()]);
    assert_eq!(stage.revoke(&previous_owner, None).await.unwrap(), revoked());
}

#[tokio::test]
async fn working_keys_without_a_visible_user_fail_the_deletion() {
    let credentials_published = record().with_credentials_published();
    let caller = "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>210987654321</Account></GetCallerIdentityResult></GetCallerIdentityResponse>";
    let keys = present("AKIA1");
    let stage = without_user([("GetCallerIdentity", ok(caller))]);
    let error = stage.delete(&credentials_published, Some(&keys), Content::Delete).await.unwrap_err();
    assert_eq!((error.reason(), error.class()), ("AccessStillWorks", FailureClass::Retryable));
    let looks = ["GetUser", "ListAccessKeys", "GetBucketTagging", "GetCallerIdentity"];
    assert_eq!(stage.calls(), looks, "nothing is changed");

    let stage = without_user([("GetCallerIdentity", iam_error(403, "InvalidClientTokenId"))]);
    let removed = stage.revoke(&credentials_published, Some(&keys)).await.unwrap();
    assert_eq!(removed, (AccessRemoval::NotFound, BucketRemoval::Kept));

    let stage = without_user([("GetCallerIdentity", Answer::Reset)]);
    assert!(stage.revoke(&credentials_published, Some(&keys)).await.is_err(), "it is not known");
}

const IN_A_GROUP: &str = "<ListGroupsForUserResponse><ListGroupsForUserResult><Groups><member><Path>/</Path><GroupName>g</GroupName><GroupId>G</GroupId><Arn>a</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></member></Groups></ListGroupsForUserResult></ListGroupsForUserResponse>";

const LOOKS_AT_CREDENTIALS: [&str; 4] =
    ["ListMFADevices", "ListSSHPublicKeys", "ListSigningCertificates", "ListServiceSpecificCredentials"];

/// Nobody gave the user any, or the provisioning policy is that of an earlier version.
fn without_credentials_of_people() -> impl Iterator<Item = (&'static str, Answer)> {
    LOOKS_AT_CREDENTIALS.into_iter().map(|look| (look, iam_error(403, "AccessDenied")))
}

/// Then the denial is the reason, not that AWS objects.
#[tokio::test]
async fn credentials_that_may_not_be_looked_for_are_named() {
    let conflict = || ("DeleteUser", iam_error(409, "DeleteConflict"));
    let nothing = |operation: &str| {
        let result = format!("<{operation}Response><{operation}Result></{operation}Result></{operation}Response>");
        ok(result)
    };
    let mut answers = user_is_deleted();
    answers[4] = conflict();
    answers.extend([("ListAccessKeys", access_keys(&[])), ("DeleteLoginProfile", iam_error(404, "NoSuchEntity"))]);
    answers.extend(without_credentials_of_people());
    answers.extend(
        ["ListUserPolicies", "ListAttachedUserPolicies", "ListGroupsForUser"].map(|look| (look, nothing(look))),
    );
    answers.push(conflict());
    let error = Stage::answering(answers).revoke(&record(), None).await.unwrap_err().to_string();
    assert!(error.contains("iam:ListMFADevices"), "{error}");
}

#[tokio::test]
async fn what_people_signed_in_with_is_removed() {
    let list = |operation: &str, inner: &str| {
        ok(format!("<{operation}Response><{operation}Result>{inner}</{operation}Result></{operation}Response>"))
    };
    let mut answers = user_is_deleted();
    answers[4] = ("DeleteUser", iam_error(409, "DeleteConflict"));
    let of = |list: &str, id: &str, rest: &str| {
        format!("<{list}><member><UserName>u</UserName>{id}{rest}</member></{list}>")
    };
    let [mfa, ssh, certificate, service] = [
        of(
            "MFADevices",
            "<SerialNumber>arn:aws:iam::1:mfa/m</SerialNumber>",
            "<EnableDate>2026-01-01T00:00:00Z</EnableDate>",
        ),
        of(
            "SSHPublicKeys",
            "<SSHPublicKeyId>APKA1</SSHPublicKeyId>",
            "<Status>Active</Status><UploadDate>2026-01-01T00:00:00Z</UploadDate>",
        ),
        of(
            "Certificates",
            "<CertificateId>CERT1</CertificateId>",
            "<CertificateBody>b</CertificateBody><Status>Active</Status>",
        ),
        of(
            "ServiceSpecificCredentials",
            "<ServiceSpecificCredentialId>ACCA1</ServiceSpecificCredentialId>",
            "<Status>Active</Status><ServiceName>s</ServiceName><CreateDate>2026-01-01T00:00:00Z</CreateDate>",
        ),
    ];
    let removals =
        ["DeactivateMFADevice", "DeleteSSHPublicKey", "DeleteSigningCertificate", "DeleteServiceSpecificCredential"];
    answers.extend([("ListAccessKeys", access_keys(&[])), ("DeleteLoginProfile", iam_error(404, "NoSuchEntity"))]);
    answers.extend(
        LOOKS_AT_CREDENTIALS
            .into_iter()
            .zip([&mfa, &ssh, &certificate, &service])
            .map(|(look, found)| (look, list(look, found))),
    );
    answers.extend(removals.map(|removal| (removal, ok(""))));
    answers.extend(
        ["ListUserPolicies", "ListAttachedUserPolicies", "ListGroupsForUser"].map(|look| (look, list(look, ""))),
    );
    answers.push(("DeleteUser", ok("")));
    let stage = Stage::answering(answers);
    assert_eq!(stage.revoke(&record(), None).await.unwrap(), revoked());
    for (removal, id) in removals.into_iter().zip(["mfa%2Fm", "APKA1", "CERT1", "ACCA1"]) {
        assert!(stage.sent(removal).contains(id), "{}", stage.sent(removal));
    }
    assert_eq!(stage.calls().last().unwrap(), "DeleteUser");
}

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
    ].into_iter().chain(without_credentials_of_people()));
    assert_eq!(stage.revoke(&record(), None).await.unwrap(), revoked());
    assert_eq!(
        stage.calls()[4..],
        [
            "ListAccessKeys",
            "DeleteLoginProfile",
            "ListMFADevices",
            "ListSSHPublicKeys",
            "ListSigningCertificates",
            "ListServiceSpecificCredentials",
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

/// By then its keys, its password and its policies are deleted.
#[tokio::test]
async fn a_denied_group_removal_is_reported_with_its_remedy() {
    for denied in ["ListGroupsForUser", "RemoveUserFromGroup"] {
        let mut answers = user_is_deleted();
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
        answers.extend(without_credentials_of_people());
        let stage = Stage::answering(answers);
        let error = stage.revoke(&record(), None).await.unwrap_err();
        assert_eq!((error.reason(), error.class()), ("AccessDenied", FailureClass::Terminal));
        assert!(error.to_string().contains(&format!("allow iam:{denied}")), "{error}");
        assert_eq!(error.to_string().contains("by hand"), denied == "RemoveUserFromGroup", "{error}");
        assert!(!error.to_string().contains("\"g\""), "the claim does not show its groups: {error}");
        assert!(stage.calls().contains(&"DeleteLoginProfile".to_owned()));
        assert_eq!(stage.calls().last().unwrap(), denied);
    }
}

pub(super) fn go_record() -> Record {
    let mut record = record();
    record.plan.bucket = "b2-ff67fdea-a308-4ac0-973e-c511e96cabe8".into();
    record.plan.user = Some("b2-ff67-wb4Vy".into());
    record.plan.state = [("ARN".into(), "arn:aws:iam::000000000000:policy/b2-ff67-wb4Vy".into())].into();
    record
}

pub(super) fn go_user_is_deleted() -> Vec<(&'static str, Answer)> {
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
    let stage = Stage::answering(go_user_is_deleted());
    assert_eq!(stage.revoke(&go_record(), None).await.unwrap(), revoked());
    assert_eq!(
        stage.calls(),
        [
            "GetUser",
            "ListAccessKeys",
            "DetachUserPolicy",
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
    let stage = Stage::answering(go_user_is_deleted());
    stage.revoke(&record, None).await.unwrap();
    assert_eq!(stage.calls().last().unwrap(), "DeleteUser");
}

#[tokio::test]
async fn a_tagged_user_is_not_the_go_provisioners() {
    let stage = Stage::answering([("GetUser", user_with_tags(FOREIGN)), ("ListAccessKeys", access_keys(&["AKIA1"]))]);
    unproven(stage.revoke(&go_record(), None).await.unwrap());
    assert_eq!(stage.calls(), ["GetUser", "ListAccessKeys"]);
}
