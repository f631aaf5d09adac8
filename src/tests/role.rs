//! The role of a ServiceAccount: which calls are made for it, and what is left alone.
//!
//! Long, because the cases share the answers of IAM about a role.

use crate::testing::{
    ACCOUNT, Answer, CLUSTER, ROLE, Stage, UID, bare, bucket_tags_of, iam_error, keyless, ok, s3_error,
};
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Content, Failure as _, FailureClass, Probe, Record, ServiceAccount,
};

const TAGS: &[(&str, &str)] =
    &[("objectbucket.io/claim-namespace", "shop"), ("objectbucket.io/service-account", "web")];
const OTHERS: &[(&str, &str)] =
    &[("objectbucket.io/claim-namespace", "shop"), ("objectbucket.io/service-account", "api")];

/// Percent-encoded, as IAM returns it.
fn encoded(document: &str) -> String {
    percent_encoding::utf8_percent_encode(document, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn trust(audience: &str) -> String {
    encoded(&format!(
        r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Principal":{{"Federated":"arn:aws:iam::{ACCOUNT}:oidc-provider/oidc.example.com/id"}},"Action":["sts:AssumeRoleWithWebIdentity"],"Condition":{{"StringEquals":{{"oidc.example.com/id:sub":"system:serviceaccount:shop:web"}},"ForAnyValue:StringEquals":{{"oidc.example.com/id:aud":["{audience}"]}}}}}}]}}"#
    ))
}

fn role(tags: &[(&str, &str)], trust: &str) -> Answer {
    let tags: String =
        tags.iter().map(|(key, value)| format!("<member><Key>{key}</Key><Value>{value}</Value></member>")).collect();
    ok(format!(
        "<GetRoleResponse><GetRoleResult><Role><Path>/aws-s3-provisioner/</Path><RoleName>{ROLE}</RoleName>\
         <RoleId>AROA1</RoleId><Arn>arn:aws:iam::{ACCOUNT}:role/aws-s3-provisioner/{ROLE}</Arn>\
         <CreateDate>2026-01-01T00:00:00Z</CreateDate><AssumeRolePolicyDocument>{trust}</AssumeRolePolicyDocument>\
         <Tags>{tags}</Tags></Role></GetRoleResult></GetRoleResponse>"
    ))
}

fn ours() -> Answer {
    role(TAGS, &trust("sts.amazonaws.com"))
}

fn created() -> Answer {
    ok(format!(
        "<CreateRoleResponse><CreateRoleResult><Role><Path>/</Path><RoleName>{ROLE}</RoleName><RoleId>AROA1</RoleId>\
         <Arn>arn:aws:iam::{ACCOUNT}:role/{ROLE}</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></Role>\
         </CreateRoleResult></CreateRoleResponse>"
    ))
}

fn policies(names: &[&str]) -> Answer {
    let names: String = names.iter().map(|name| format!("<member>{name}</member>")).collect();
    ok(format!(
        "<ListRolePoliciesResponse><ListRolePoliciesResult><PolicyNames>{names}</PolicyNames>\
         <IsTruncated>false</IsTruncated></ListRolePoliciesResult></ListRolePoliciesResponse>"
    ))
}

const EXISTS: &str = "EntityAlreadyExists";

/// IAM has the role, and then gives these answers.
fn existing(found: Answer, then: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    let answers = [("CreateBucket", bare(200)), ("CreateRole", iam_error(409, EXISTS)), ("GetRole", found)];
    Stage::answering(answers.into_iter().chain(then))
}

#[tokio::test]
async fn the_first_claim_creates_the_role() {
    let stage = Stage::answering([("CreateBucket", bare(200)), ("CreateRole", created()), ("PutRolePolicy", ok(""))]);
    let issued = stage.provision(&keyless()).await.unwrap();
    assert!(!issued.has_keys());
    assert_eq!(stage.calls(), ["CreateBucket", "CreateRole", "PutRolePolicy"]);
    let sent = stage.sent("CreateRole");
    for part in ["Path=%2Faws-s3-provisioner%2F", "objectbucket.io%2Fservice-account", "ForAnyValue", CLUSTER] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    assert!(!sent.contains(UID), "it is not that of one claim");
    assert!(stage.sent("PutRolePolicy").contains(&format!("PolicyName=photos-{UID}")));
}

#[tokio::test]
async fn later_claims_find_it() {
    let stage = existing(ours(), [("PutRolePolicy", ok(""))]);
    stage.provision(&keyless()).await.unwrap();
    assert_eq!(stage.calls(), ["CreateBucket", "CreateRole", "GetRole", "PutRolePolicy"]);
}

#[tokio::test]
async fn a_role_that_is_deleted_meanwhile_is_created_again() {
    let stage = existing(
        ours(),
        [("PutRolePolicy", iam_error(404, "NoSuchEntity")), ("CreateRole", created()), ("PutRolePolicy", ok(""))],
    );
    stage.provision(&keyless()).await.unwrap();
}

/// IAM denies a call about a role that does not exist, because the provisioning policy is limited to a path.
#[tokio::test]
async fn a_role_that_others_have_replaced_is_used() {
    let again = "<CreateDate>2026-02-02T00:00:00Z</CreateDate>";
    let Answer::Status { status, header, body } = ours() else { panic!() };
    let replaced =
        Answer::Status { status, header, body: body.replace("<CreateDate>2026-01-01T00:00:00Z</CreateDate>", again) };
    for (found, last) in [(replaced.clone(), "PutRolePolicy"), (iam_error(404, "NoSuchEntity"), "PutRolePolicy")] {
        let stage = existing(
            ours(),
            [
                ("PutRolePolicy", iam_error(403, "AccessDenied")),
                ("GetRole", found),
                ("CreateRole", created()),
                ("PutRolePolicy", ok("")),
            ],
        );
        stage.provision(&keyless()).await.unwrap();
        assert_eq!(stage.calls().last().map(String::as_str), Some(last));
    }
    let stage = existing(ours(), [("PutRolePolicy", iam_error(403, "AccessDenied")), ("GetRole", ours())]);
    assert_eq!(stage.provision(&keyless()).await.unwrap_err().reason(), "AccessDenied");
}

#[tokio::test]
async fn a_role_of_others_is_refused() {
    for tags in [&[][..], OTHERS, &[("team", "shop")]] {
        let stage = existing(role(tags, &trust("another")), []);
        let refused = stage.provision(&keyless()).await.unwrap_err();
        assert_eq!((refused.reason(), refused.class()), ("RoleTaken", FailureClass::Terminal));
        assert_eq!(stage.calls().last().map(String::as_str), Some("GetRole"));
    }
}

#[tokio::test]
async fn a_role_that_has_lost_its_tags_is_tagged_again() {
    let stage = existing(
        role(&[("team", "shop")], &trust("sts.amazonaws.com")),
        [("TagRole", ok("")), ("PutRolePolicy", ok(""))],
    );
    stage.provision(&keyless()).await.unwrap();
}

#[tokio::test]
async fn a_provider_of_another_account_is_refused_before_a_change() {
    let mut record = keyless();
    record.account = Some("999999999999".into());
    let stage = Stage::answering([("CreateBucket", bare(200))]);
    let refused = stage.provision(&record).await.unwrap_err();
    assert_eq!(refused.reason(), "InvalidClassParameter");
    assert!(!stage.calls().iter().any(|call| call == "CreateRole"), "{:?}", stage.calls());
}

#[tokio::test]
async fn a_full_role_names_its_service_account() {
    let stage = existing(ours(), [("PutRolePolicy", iam_error(409, "LimitExceeded"))]);
    let refused = stage.provision(&keyless()).await.unwrap_err();
    assert_eq!((refused.reason(), refused.class()), ("RoleFull", FailureClass::Terminal));
    assert!(refused.to_string().contains("ServiceAccount \"web\""), "{refused}");
}

#[tokio::test]
async fn where_roles_are_used_up_claims_share_those_that_exist() {
    let full = || iam_error(409, "LimitExceeded");
    let stage = Stage::answering([
        ("CreateBucket", bare(200)),
        ("CreateRole", full()),
        ("GetRole", iam_error(404, "NoSuchEntity")),
        ("CreateBucket", bare(200)),
        ("GetRole", ours()),
        ("CreateRole", iam_error(409, EXISTS)),
        ("GetRole", ours()),
        ("PutRolePolicy", ok("")),
    ]);
    assert_eq!(stage.provision(&keyless()).await.unwrap_err().reason(), "QuotaExceeded");
    stage.provision(&keyless()).await.unwrap();
}

/// A bucket whose check fails must not keep running sessions from losing what an edit takes from them.
#[tokio::test]
async fn an_edit_of_the_access_comes_before_all_checks() {
    let mut record = keyless();
    record.plan.changes.access = true;
    let stage = Stage::answering([
        ("GetRole", ours()),
        ("PutRolePolicy", ok("")),
        ("GetBucketTagging", s3_error(403, "AccessDenied")),
    ]);
    stage.check(&record, &[]).await.unwrap_err();
    assert_eq!(stage.calls()[..3], ["GetRole", "PutRolePolicy", "GetBucketTagging"]);
}

/// The answers of a bucket that is as it should be, and these.
fn checked(answers: impl IntoIterator<Item = (&'static str, Answer)>) -> Stage {
    let tags = ("GetBucketTagging", bucket_tags_of(&keyless()));
    Stage::answering([tags].into_iter().chain(answers))
}

fn policy(record: &Record) -> Answer {
    let stage = crate::class::target::Target::of(record, &Default::default());
    let document = encoded(&crate::iam::policy::of(&stage));
    ok(format!(
        "<GetRolePolicyResponse><GetRolePolicyResult><RoleName>{ROLE}</RoleName><PolicyName>{UID}</PolicyName>\
         <PolicyDocument>{document}</PolicyDocument></GetRolePolicyResult></GetRolePolicyResponse>"
    ))
}

/// All tags that the role gets.
fn whole() -> Vec<(&'static str, &'static str)> {
    let more = [("objectbucket.io/managed-by", "aws-s3.io/bucket"), ("objectbucket.io/cluster-uid", CLUSTER)];
    TAGS.iter().copied().chain(more).collect()
}

#[tokio::test]
async fn a_check_reads_role_and_policy() {
    let record = keyless();
    let stage = checked([("GetRole", role(&whole(), &trust("sts.amazonaws.com"))), ("GetRolePolicy", policy(&record))]);
    let checkup = stage.check(&record, &[]).await.unwrap();
    assert!(checkup.repaired.is_empty() && !checkup.keys_lost, "{checkup:?}");
    assert_eq!(stage.calls(), ["GetBucketTagging", "GetRole", "GetRolePolicy"]);
}

#[tokio::test]
async fn a_check_restores_trust_policy_and_tags() {
    let record = keyless();
    let mut other = keyless();
    other.plan.bucket = "another".into();
    let stage = checked([
        ("GetRole", role(&whole(), &trust("another"))),
        ("UpdateAssumeRolePolicy", ok("")),
        ("GetRolePolicy", policy(&other)),
        ("PutRolePolicy", ok("")),
    ]);
    assert_eq!(stage.check(&record, &[]).await.unwrap().repaired.len(), 2);

    let stage = checked([
        ("GetRole", role(&[("team", "shop")], &trust("sts.amazonaws.com"))),
        ("TagRole", ok("")),
        ("GetRolePolicy", policy(&record)),
    ]);
    let repaired = stage.check(&record, &[]).await.unwrap().repaired;
    assert!(repaired.iter().any(|what| what.contains("had lost its tags")), "{repaired:?}");
    assert!(!stage.sent("TagRole").contains("team"), "others' tags stay");
}

#[tokio::test]
async fn a_missing_role_is_reported_and_one_of_others_is_left() {
    let stage = checked([("GetRole", iam_error(404, "NoSuchEntity"))]);
    assert!(stage.check(&keyless(), &[]).await.unwrap().keys_lost);
    // The role of another claim of the ServiceAccount proves nothing, and nothing is written.
    let whole_role = role(&whole(), &trust("sts.amazonaws.com"));
    let stage = checked([("GetRole", whole_role), ("GetRolePolicy", iam_error(404, "NoSuchEntity"))]);
    assert!(stage.check(&keyless(), &[]).await.unwrap().keys_lost);
    assert_eq!(stage.calls().last().map(String::as_str), Some("GetRolePolicy"));
    let stage = checked([("GetRole", role(&[], &trust("another")))]);
    assert_eq!(stage.check(&keyless(), &[]).await.unwrap_err().reason(), "RoleTaken");
}

#[tokio::test]
async fn the_last_claim_deletes_the_role() {
    let stage = Stage::answering([("GetRole", ours()), ("DeleteRolePolicy", ok("")), ("DeleteRole", ok(""))]);
    let (access, _) = stage.revoke(&keyless(), None).await.unwrap();
    assert_eq!(access, AccessRemoval::Deleted);
    assert_eq!(stage.calls(), ["GetRole", "DeleteRolePolicy", "DeleteRole"]);
}

/// IAM would deny it, because it does not know the path of what does not exist.
#[tokio::test]
async fn nothing_is_asked_of_a_role_that_is_gone() {
    let stage = Stage::answering([("GetRole", iam_error(404, "NoSuchEntity"))]);
    assert_eq!(stage.revoke(&keyless(), None).await.unwrap().0, AccessRemoval::NotFound);
    assert_eq!(stage.calls(), ["GetRole"]);
}

/// IAM decides, because its lists may be behind.
#[tokio::test]
async fn other_claims_keep_the_role() {
    let stage = Stage::answering([
        ("DeleteRolePolicy", ok("")),
        ("GetRole", ours()),
        ("DeleteRole", iam_error(409, "DeleteConflict")),
        ("ListRolePolicies", policies(&["another"])),
    ]);
    assert_eq!(stage.revoke(&keyless(), None).await.unwrap().0, AccessRemoval::Deleted);
}

#[tokio::test]
async fn a_role_with_something_of_others_is_left_in_place() {
    let stage = Stage::answering([
        ("DeleteRolePolicy", ok("")),
        ("GetRole", ours()),
        ("DeleteRole", iam_error(409, "DeleteConflict")),
        ("ListRolePolicies", policies(&[])),
    ]);
    let (access, _) = stage.revoke(&keyless(), None).await.unwrap();
    assert!(matches!(access, AccessRemoval::LeftInPlace(_)), "{access:?}");
}

#[tokio::test]
async fn a_role_of_others_is_left_in_place() {
    let stage = Stage::answering([
        ("DeleteRolePolicy", iam_error(404, "NoSuchEntity")),
        ("GetRole", role(&[], &trust("another"))),
    ]);
    let (access, _) = stage.revoke(&keyless(), None).await.unwrap();
    assert!(matches!(access, AccessRemoval::LeftInPlace(_)), "{access:?}");
}

/// The bucket is deleted only when no session can use it.
#[tokio::test]
async fn access_ends_before_the_bucket_is_deleted() {
    let stage = Stage::answering([
        ("DeleteRolePolicy", ok("")),
        ("GetBucketTagging", bucket_tags_of(&keyless())),
        ("GetRole", ours()),
        ("DeleteRole", ok("")),
        ("DeleteBucket", bare(204)),
    ]);
    let removed = stage.delete(&keyless(), None, Content::Delete).await.unwrap();
    assert_eq!(removed, (AccessRemoval::Deleted, BucketRemoval::Deleted));
    let calls = stage.calls();
    let at = |name: &str| calls.iter().position(|call| call == name).unwrap();
    assert!(at("DeleteRolePolicy") < at("DeleteBucket"), "{calls:?}");

    let stage = Stage::answering([
        ("GetRole", ours()),
        ("DeleteRolePolicy", iam_error(403, "AccessDenied")),
        ("GetBucketTagging", bucket_tags_of(&keyless())),
    ]);
    stage.delete(&keyless(), None, Content::Delete).await.unwrap_err();
    assert!(!stage.calls().iter().any(|call| call == "DeleteBucket"), "{:?}", stage.calls());
}

fn assumed() -> Answer {
    ok("<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
        <AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>hunter2</SecretAccessKey><SessionToken>tok3n</SessionToken>\
        <Expiration>2030-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
        </AssumeRoleWithWebIdentityResponse>")
}

#[tokio::test]
async fn the_access_is_tried_with_a_token() {
    let none = AppCredentials::without_keys();
    let stage = Stage::answering([
        ("AssumeRoleWithWebIdentity", assumed()),
        ("ListObjectsV2", ok("<ListBucketResult/>")),
        ("GetObject", s3_error(404, "NoSuchKey")),
    ]);
    assert_eq!(stage.probe_with_token(&keyless(), &none, "eyJ").await.unwrap(), Probe::Usable);
    let sent = stage.sent("AssumeRoleWithWebIdentity");
    assert!(sent.contains("WebIdentityToken=eyJ") && sent.contains("DurationSeconds=900"), "{sent}");
    let signers = stage.signers();
    let of = |operation: &str| signers.iter().find(|(called, _)| called == operation).unwrap().1.clone();
    assert_eq!((of("AssumeRoleWithWebIdentity").as_str(), of("GetObject").as_str()), ("", "ASIA1"));

    let stage = Stage::answering([("AssumeRoleWithWebIdentity", iam_error(403, "AccessDenied"))]);
    let probe = stage.probe_with_token(&keyless(), &none, "eyJ").await.unwrap();
    assert!(matches!(probe, Probe::Denied(_)), "a new role is not known everywhere: {probe:?}");
    let stage = Stage::answering([("AssumeRoleWithWebIdentity", iam_error(400, "InvalidIdentityToken"))]);
    let refused = stage.probe_with_token(&keyless(), &none, "eyJ").await.unwrap_err();
    assert_eq!((refused.reason(), refused.class()), ("OidcProviderMismatch", FailureClass::Terminal));
    assert!(!refused.affects_all_claims() && !refused.to_string().contains("eyJ"), "{refused}");
}

/// Whether S3 and IAM answer is another matter.
#[tokio::test]
async fn without_sts_claims_with_keys_go_on() {
    let stage = Stage::answering([("AssumeRoleWithWebIdentity", Answer::Reset)]);
    let none = AppCredentials::without_keys();
    let refused = stage.probe_with_token(&keyless(), &none, "eyJ").await.unwrap_err();
    assert_eq!((refused.reason(), refused.affects_all_claims()), ("StoreUnreachable", false));
}

/// Not with those of the provisioning credentials, and not as a user of the role's name.
#[tokio::test]
async fn a_record_that_was_edited_gives_no_keys() {
    let edits: [fn(&mut Record); 3] = [
        |record| drop(record.plan.state.remove("oidcProvider")),
        |record| record.plan.service_account = None,
        |record| record.plan.service_account = Some(ServiceAccount::new("web")),
    ];
    for edit in edits {
        let mut record = keyless();
        edit(&mut record);
        let stage = Stage::answering([]);
        let refused = stage.provision(&record).await.unwrap_err();
        assert_eq!((refused.reason(), refused.class()), ("InvalidSetting", FailureClass::Terminal));
        stage.check(&record, &[]).await.unwrap_err();
        stage.revoke(&record, None).await.unwrap_err();
        assert_eq!(stage.calls(), [""; 0]);
    }
}
