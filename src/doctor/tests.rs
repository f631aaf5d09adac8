//! What an examination of AWS finds, from canned answers. Long, because all tests share how these are made.
#![allow(clippy::unwrap_used)]

use rstest::rstest;

use super::linked;
use super::needs::{self, Scope};
use crate::class::environment::Environment;
use crate::class::target::Target;
use crate::testing::{
    ACCOUNT, Answer, FOREIGN, OTHERS, Stage, bare, bucket_tags, granted, iam_error, in_region, keyless, ok, record,
    s3_error,
};
use bucket_provisioner::store::{Finding, Mode, Record, Verdict};

const BOUNDARY: &str = "arn:aws:iam::123456789012:policy/bound";

/// What is called although nothing may change.
const READS: [&str; 16] = [
    "GetCallerIdentity",
    "SimulatePrincipalPolicy",
    "GetRole",
    "GetPolicy",
    "GetAccountSummary",
    "GetOpenIDConnectProvider",
    "ListRoles",
    "GetUser",
    "ListUsers",
    "ListAccessKeys",
    "GetUserPolicy",
    "ListAttachedUserPolicies",
    "ListGroupsForUser",
    "ListBuckets",
    "GetBucketTagging",
    "HeadBucket",
];

type Answers = Vec<(&'static str, Answer)>;

fn caller(resource: &str) -> (&'static str, Answer) {
    let service = if resource.starts_with("assumed-role") { "sts" } else { "iam" };
    let arn = format!("arn:aws:{service}::{ACCOUNT}:{resource}");
    let body = format!(
        "<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>{arn}</Arn><UserId>A</UserId>\
         <Account>{ACCOUNT}</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
    );
    ("GetCallerIdentity", ok(body))
}

/// What IAM answers to each simulation: the decision about an action, and more XML about it. Buckets of other names cannot
/// be deleted.
fn simulated(record: &Record, decide: impl Fn(Scope, &str) -> (&'static str, &'static str)) -> Answers {
    let environment = Environment::default();
    let needs = needs::of(&Target::of(record, &environment));
    let answers =
        needs.iter().map(|(scope, actions)| simulation(actions.iter().map(|action| (*action, decide(*scope, action)))));
    let others = (record.plan.mode == Mode::Created).then(|| delete_others("implicitDeny"));
    answers.chain(others).collect()
}

fn delete_others(decision: &'static str) -> (&'static str, Answer) {
    simulation([("s3:DeleteBucket", (decision, ""))])
}

fn simulation<'a>(
    decided: impl IntoIterator<Item = (&'a str, (&'static str, &'static str))>,
) -> (&'static str, Answer) {
    let results = decided.into_iter().map(|(action, (decision, more))| {
        format!(
            "<member><EvalActionName>{action}</EvalActionName><EvalDecision>{decision}</EvalDecision>{more}</member>"
        )
    });
    (
        "SimulatePrincipalPolicy",
        ok(format!(
            "<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>{}\
             </EvaluationResults><IsTruncated>false</IsTruncated></SimulatePrincipalPolicyResult>\
             </SimulatePrincipalPolicyResponse>",
            results.collect::<String>()
        )),
    )
}

fn all_allowed(record: &Record) -> Answers {
    simulated(record, |_, _| ("allowed", ""))
}

fn room(users: u32) -> Answers {
    let entry = |(key, value): (&str, u32)| format!("<entry><key>{key}</key><value>{value}</value></entry>");
    let entries = [("Users", users), ("UsersQuota", 5000), ("Roles", 900), ("RolesQuota", 1000)].map(entry);
    let summary = format!(
        "<GetAccountSummaryResponse><GetAccountSummaryResult><SummaryMap>{}</SummaryMap></GetAccountSummaryResult>\
         </GetAccountSummaryResponse>",
        entries.concat()
    );
    let buckets = "<ListAllMyBucketsResult><Buckets><Bucket><Name>a</Name></Bucket></Buckets></ListAllMyBucketsResult>";
    vec![("GetAccountSummary", ok(summary)), ("ListBuckets", ok(buckets))]
}

async fn examine(record: &Record, answers: impl IntoIterator<Item = Answers>) -> Vec<Finding> {
    examine_on(&Stage::answering(answers.into_iter().flatten()), record).await
}

async fn examine_on(stage: &Stage, record: &Record) -> Vec<Finding> {
    let findings = stage.examine(record, None).await;
    for call in stage.calls() {
        assert!(READS.contains(&call.as_str()) || call == "ListObjectsV2", "{call} could change something");
    }
    findings
}

fn about<'a>(findings: &'a [Finding], what: &str) -> Vec<&'a Finding> {
    findings.iter().filter(|finding| finding.what == what).collect()
}

#[track_caller]
fn one<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
    let [finding] = about(findings, what)[..] else { panic!("not one about {what}: {findings:#?}") };
    finding
}

#[test]
fn remedies_link_to_the_pages_of_this_version() {
    let finding = || Finding::about("role").bad("denied").with_remedy("allow it (docs/keyless.md)");
    assert_eq!(linked(finding(), None).remedy, "allow it (docs/keyless.md)");
    assert_eq!(linked(finding(), Some("")).remedy, "allow it (docs/keyless.md)");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        linked(finding(), Some("https://example.com/source")).remedy,
        format!("allow it (https://example.com/source/blob/v{version}/docs/keyless.md)")
    );
}

#[tokio::test]
async fn the_provisioning_policy_has_only_good_findings() {
    let record = record();
    let findings = examine(&record, [vec![caller("user/ops/owner")], all_allowed(&record), room(10)]).await;
    assert!(findings.iter().all(|finding| finding.verdict == Verdict::Good), "{findings:#?}");
    let number = needs::actions(&needs::of(&Target::of(&record, &Environment::default()))).len();
    let allowed = format!("IAM allows the provisioning credentials all {number} actions that claims need");
    assert_eq!(one(&findings, "permissions").message, allowed);
    assert_eq!(one(&findings, "quota of users").message, "10 IAM users, of 5000 that the account's quota allows");
    assert_eq!(one(&findings, "quota of buckets").message, "1 buckets, of 10000 that the default quota allows");
}

/// The policies that earlier versions shipped allowed it.
#[tokio::test]
async fn credentials_that_can_delete_all_buckets_are_warned_about() {
    let record = record();
    let mut answers = all_allowed(&record);
    answers.pop();
    answers.push(delete_others("allowed"));
    let findings = examine(&record, [vec![caller("user/ops/owner")], answers, room(10)]).await;
    let found = one(&findings, "buckets of others");
    assert_eq!(found.verdict, Verdict::Warning, "{found:?}");
    assert!(found.message.contains("may delete every bucket"), "{}", found.message);
    assert!(found.remedy.contains("bucketNamePrefix"), "{}", found.remedy);
}

/// IAM shows what it does not know beside the resource.
#[tokio::test]
async fn deleting_other_buckets_may_depend_on_the_request() {
    let record = record();
    let missing = "<ResourceSpecificResults><member><EvalResourceName>r</EvalResourceName><EvalResourceDecision>implicitDeny</EvalResourceDecision><MissingContextValues><member>aws:SourceVpce</member></MissingContextValues></member></ResourceSpecificResults>";
    let mut answers = all_allowed(&record);
    answers.pop();
    answers.push(simulation([("s3:DeleteBucket", ("implicitDeny", missing))]));
    let stage = Stage::answering([vec![caller("user/owner")], answers, room(10)].into_iter().flatten());
    let findings = examine_on(&stage, &record).await;
    let found = one(&findings, "buckets of others");
    assert_eq!(found.verdict, Verdict::Unknown, "{found:?}");
    assert!(found.message.contains("aws:SourceVpce"), "{}", found.message);
    let sent = stage.sent("SimulatePrincipalPolicy");
    assert!(sent.contains("aws%3AResourceAccount"), "{sent}");
}

#[tokio::test]
async fn what_classes_share_is_asked_once() {
    let (created, granted) = (record(), granted());
    let of_bucket = vec![("HeadBucket", in_region(200, "us-west-1")), ("HeadBucket", in_region(200, "us-west-1"))];
    let answers = [vec![caller("user/owner")], all_allowed(&created), all_allowed(&granted), room(10), of_bucket];
    let stage = Stage::answering(answers.into_iter().flatten());
    stage.account(&created).await.unwrap();
    let first = examine_on(&stage, &created).await;
    let second = examine_on(&stage, &granted).await;
    for what in ["identity", "permissions", "quota of users"] {
        assert_eq!((one(&first, what).verdict, one(&second, what).verdict), (Verdict::Good, Verdict::Good), "{what}");
    }
    for operation in ["GetCallerIdentity", "GetAccountSummary", "ListBuckets"] {
        assert_eq!(stage.all_sent(operation).len(), 1, "{operation}");
    }
    let simulations = stage.all_sent("SimulatePrincipalPolicy");
    let different: std::collections::BTreeSet<_> = simulations.iter().collect();
    assert_eq!(different.len(), simulations.len());
}

#[tokio::test]
async fn a_denial_names_the_actions_the_policy_and_the_remedy() {
    let record = record();
    let answers = simulated(&record, |_, action| match action {
        "s3:DeleteBucket" => ("implicitDeny", ""),
        "iam:CreateUser" => {
            ("implicitDeny", "<MissingContextValues><member>iam:PermissionsBoundary</member></MissingContextValues>")
        }
        "iam:CreateAccessKey" => ("explicitDeny", ""),
        "iam:DeleteUser" => (
            "implicitDeny",
            "<OrganizationsDecisionDetail><AllowedByOrganizations>false</AllowedByOrganizations></OrganizationsDecisionDetail>",
        ),
        "iam:GetUser" => (
            "implicitDeny",
            "<PermissionsBoundaryDecisionDetail><AllowedByPermissionsBoundary>false</AllowedByPermissionsBoundary></PermissionsBoundaryDecisionDetail>",
        ),
        "iam:ListUsers" => {
            ("implicitDeny", "<MissingContextValues><member>aws:SourceIp</member></MissingContextValues>")
        }
        _ => ("allowed", ""),
    });
    let findings = examine(&record, [vec![caller("user/owner")], answers, room(10)]).await;
    let messages: Vec<_> = about(&findings, "permissions").iter().map(|it| (it.verdict, it.message.clone())).collect();
    insta::assert_debug_snapshot!(messages, @r#"
    [
        (
            Bad,
            "no policy allows the provisioning credentials s3:DeleteBucket on arn:aws:s3:::*",
        ),
        (
            Unknown,
            "whether IAM allows iam:ListUsers on * depends on the condition keys aws:SourceIp",
        ),
        (
            Bad,
            "an explicit Deny statement denies the provisioning credentials iam:CreateAccessKey on arn:aws:iam::*:user/aws-s3-provisioner/*",
        ),
        (
            Bad,
            "a policy of the AWS organization denies the provisioning credentials iam:DeleteUser on arn:aws:iam::*:user/aws-s3-provisioner/*",
        ),
        (
            Bad,
            "no policy allows the provisioning credentials iam:CreateUser on arn:aws:iam::*:user/aws-s3-provisioner/*",
        ),
        (
            Bad,
            "the permissions boundary of the provisioning credentials does not allow iam:GetUser on arn:aws:iam::*:user/*",
        ),
    ]
    "#);
    let remedies: Vec<_> = about(&findings, "permissions").iter().map(|it| it.remedy.as_str()).collect();
    assert!(remedies.iter().all(|remedy| !remedy.is_empty()));
    assert!(remedies[4].contains("set permissionsBoundary in the class"), "{}", remedies[4]);
}

#[tokio::test]
async fn the_role_of_a_session_is_simulated_with_its_path() {
    let record = record();
    let role = format!("arn:aws:iam::{ACCOUNT}:role/team/buckets");
    let found = format!(
        "<GetRoleResponse><GetRoleResult><Role><Path>/team/</Path><RoleName>buckets</RoleName><RoleId>A</RoleId>\
         <Arn>{role}</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></Role></GetRoleResult></GetRoleResponse>"
    );
    let answers = [vec![caller("assumed-role/buckets/pod"), ("GetRole", ok(found))], all_allowed(&record), room(10)];
    let stage = Stage::answering(answers.into_iter().flatten());
    let findings = examine_on(&stage, &record).await;
    assert_eq!(one(&findings, "permissions").verdict, Verdict::Good);
    let sent = stage.sent("SimulatePrincipalPolicy");
    assert!(sent.contains("PolicySourceArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fteam%2Fbuckets"), "{sent}");
}

/// What reading cannot show is reported as unknown.
#[tokio::test]
async fn without_simulation_permissions_are_tried_by_reading() {
    let user = "<ListUsersResponse><ListUsersResult><Users><member><Path>/aws-s3-provisioner/</Path><UserName>u</UserName>\
        <UserId>A</UserId><Arn>arn:aws:iam::123456789012:user/u</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate></member>\
        </Users><IsTruncated>false</IsTruncated></ListUsersResult></ListUsersResponse>";
    let keys = "<ListAccessKeysResponse><ListAccessKeysResult><AccessKeyMetadata></AccessKeyMetadata>\
        <IsTruncated>false</IsTruncated></ListAccessKeysResult></ListAccessKeysResponse>";
    let answers = [
        vec![
            caller("user/owner"),
            ("SimulatePrincipalPolicy", iam_error(403, "AccessDenied")),
            ("GetUser", iam_error(404, "NoSuchEntity")),
            ("ListUsers", ok(user)),
            ("ListAccessKeys", ok(keys)),
            ("GetUserPolicy", iam_error(403, "AccessDenied")),
            ("GetBucketTagging", s3_error(404, "NoSuchBucket")),
        ],
        room(10),
        room(10),
    ];
    let findings = examine(&record(), answers).await;
    let permissions = about(&findings, "permissions");
    let [denied, allowed, open] = permissions[..] else { panic!("{permissions:#?}") };
    assert_eq!((denied.verdict, allowed.verdict, open.verdict), (Verdict::Bad, Verdict::Good, Verdict::Unknown));
    assert_eq!(denied.message, "AWS denied the provisioning credentials iam:GetUserPolicy");
    for action in ["s3:ListAllMyBuckets", "iam:GetUser", "iam:ListUsers", "iam:ListAccessKeys"] {
        assert!(allowed.message.contains(action), "{}", allowed.message);
    }
    for action in ["s3:CreateBucket", "s3:GetBucketTagging", "iam:CreateAccessKey"] {
        assert!(open.message.contains(action) && !allowed.message.contains(action), "{}", open.message);
    }
    let why = "the provisioning credentials may not call iam:SimulatePrincipalPolicy";
    assert!(open.message.starts_with(why), "{}", open.message);
    assert!(open.remedy.contains("docs/owner-iam-policy-doctor.json"), "{}", open.remedy);
}

#[rstest]
#[case::in_its_region(in_region(200, "us-west-1"), Verdict::Good, "can be reached")]
#[case::redirected(
    in_region(301, "eu-west-1"),
    Verdict::Bad,
    "is in region eu-west-1, but the class has region us-west-1"
)]
#[case::signed_for_another_region(in_region(400, "eu-west-1"), Verdict::Bad, "is in region eu-west-1")]
#[case::missing(bare(404), Verdict::Bad, "does not exist")]
#[case::forbidden(bare(403), Verdict::Bad, "the provisioning credentials may not use it")]
#[tokio::test]
async fn the_bucket_that_a_class_names_is_checked(
    #[case] answer: Answer,
    #[case] verdict: Verdict,
    #[case] message: &str,
) {
    let record = granted();
    let answers = vec![
        caller("user/owner"),
        ("HeadBucket", answer),
        ("HeadBucket", in_region(200, "us-west-1")),
        ("GetBucketTagging", bucket_tags(FOREIGN)),
    ];
    let findings = examine(&record, [answers, all_allowed(&record), room(10)]).await;
    let found = one(&findings, "bucket");
    assert!(found.verdict == verdict && found.message.contains(message), "{found:?}");
    assert_eq!(found.remedy.is_empty(), verdict == Verdict::Good);
}

/// A bucket of another account, and one that was created for a claim.
#[tokio::test]
async fn foreign_and_claimed_buckets_are_reported() {
    let record = granted();
    let answers = vec![
        caller("user/owner"),
        ("HeadBucket", in_region(200, "us-west-1")),
        ("HeadBucket", bare(403)),
        ("GetBucketTagging", bucket_tags(OTHERS)),
    ];
    let findings = examine(&record, [answers, all_allowed(&record), room(10)]).await;
    assert!(one(&findings, "bucket").message.contains("belongs to another account"));
    let claimed = one(&findings, "bucket's claim");
    assert!(claimed.verdict == Verdict::Bad && claimed.remedy.contains("allowClaimedBucket"), "{claimed:?}");
}

fn bounded(arn: &str) -> Record {
    let mut record = record();
    record.plan.state.insert("permissionsBoundary".into(), arn.into());
    record
}

fn create_user(decision: &'static str) -> (&'static str, Answer) {
    simulation([("iam:CreateUser", (decision, ""))])
}

#[tokio::test]
async fn a_boundary_has_to_exist_and_to_be_demanded() {
    let record = bounded(BOUNDARY);
    let policy = ok(format!(
        "<GetPolicyResponse><GetPolicyResult><Policy><Arn>{BOUNDARY}</Arn></Policy></GetPolicyResult></GetPolicyResponse>"
    ));
    let missing = iam_error(404, "NoSuchEntity");
    let unseen = iam_error(403, "AccessDenied");
    for (answer, decision, exists, demanded) in [
        (policy, "implicitDeny", Verdict::Good, Verdict::Good),
        (missing, "allowed", Verdict::Bad, Verdict::Warning),
        (unseen, "explicitDeny", Verdict::Unknown, Verdict::Good),
    ] {
        let first = vec![caller("user/owner"), ("GetPolicy", answer)];
        let answers = [first, all_allowed(&record), vec![create_user(decision)], room(10)];
        let stage = Stage::answering(answers.into_iter().flatten());
        let findings = examine_on(&stage, &record).await;
        assert_eq!(one(&findings, "boundary").verdict, exists);
        assert_eq!(one(&findings, "boundary demanded").verdict, demanded);
        let with_boundary =
            stage.all_sent("SimulatePrincipalPolicy").into_iter().filter(|sent| sent.contains("policy%2Fbound"));
        assert!(
            with_boundary.clone().count() == 1
                && with_boundary.into_iter().all(|sent| sent.contains("iam%3APutUserPolicy"))
        );
    }
}

#[rstest]
#[case::of_another_account("arn:aws:iam::210987654321:policy/bound", "in account 210987654321")]
#[case::of_another_partition("arn:aws-cn:iam::123456789012:policy/bound", "in partition aws-cn")]
#[tokio::test]
async fn a_boundary_of_another_account_or_partition_is_bad(#[case] arn: &str, #[case] problem: &str) {
    let record = bounded(arn);
    let answers = [vec![caller("user/owner")], all_allowed(&record), vec![create_user("implicitDeny")], room(10)];
    let findings = examine(&record, answers).await;
    let found = one(&findings, "boundary");
    assert!(found.verdict == Verdict::Bad && found.message.contains(problem), "{found:?}");
}

#[tokio::test]
async fn a_full_account_a_wrong_clock_and_the_root_user_are_reported() {
    let record = record();
    let (_, Answer::Status { body, .. }) = caller("root") else { panic!("an answer") };
    let header = Some(("date", "Thu, 01 Jan 2026 00:00:00 GMT"));
    let root = vec![("GetCallerIdentity", Answer::Status { status: 200, header, body })];
    let findings = examine(&record, [root, room(4_900)]).await;
    assert_eq!(one(&findings, "identity").verdict, Verdict::Warning);
    assert_eq!(one(&findings, "clock").verdict, Verdict::Bad);
    assert_eq!(one(&findings, "quota of users").verdict, Verdict::Warning);
    assert!(one(&findings, "permissions").message.contains("root user"));
}

#[tokio::test]
async fn with_refused_credentials_only_the_clock_is_checked() {
    let header = Some(("date", "Thu, 01 Jan 2026 00:00:00 GMT"));
    let Answer::Status { body, .. } = iam_error(403, "RequestTimeTooSkewed") else { panic!("an answer") };
    let refused = vec![("GetCallerIdentity", Answer::Status { status: 403, header, body })];
    let findings = examine(&record(), [refused]).await;
    let [clock] = &findings[..] else { panic!("{findings:#?}") };
    assert_eq!((clock.what.as_str(), clock.verdict), ("clock", Verdict::Bad));
}

fn provider(client_ids: &[&str]) -> (&'static str, Answer) {
    let ids: String = client_ids.iter().map(|id| format!("<member>{id}</member>")).collect();
    let body = format!(
        "<GetOpenIDConnectProviderResponse><GetOpenIDConnectProviderResult><ClientIDList>{ids}</ClientIDList>\
         </GetOpenIDConnectProviderResult></GetOpenIDConnectProviderResponse>"
    );
    ("GetOpenIDConnectProvider", ok(body))
}

#[rstest]
#[case::fits(provider(&["sts.amazonaws.com"]), "https://oidc.example.com/id", &[])]
#[case::of_another_cluster(provider(&["sts.amazonaws.com"]), "https://elsewhere", &["the tokens of this cluster are of elsewhere"])]
#[case::other_audience(provider(&["other"]), "https://oidc.example.com/id", &["but not for \"sts.amazonaws.com\""])]
#[case::missing(("GetOpenIDConnectProvider", iam_error(404, "NoSuchEntity")), "https://oidc.example.com/id", &["has no identity provider"])]
#[tokio::test]
async fn an_identity_provider_fits_cluster_and_class(
    #[case] answer: (&'static str, Answer),
    #[case] issuer: &str,
    #[case] problems: &[&str],
) {
    let record = keyless();
    let stage = Stage::answering(
        [vec![caller("user/ops/owner"), answer], all_allowed(&record), room(10)].into_iter().flatten(),
    );
    let findings = stage.examine(&record, Some(issuer)).await;
    let about: Vec<_> = findings.iter().filter(|finding| finding.what == "identity provider").collect();
    let bad: Vec<_> = about.iter().filter(|finding| finding.verdict == Verdict::Bad).collect();
    assert!(!about.is_empty() && bad.len() == problems.len(), "{findings:#?}");
    for (finding, problem) in bad.iter().zip(problems) {
        assert!(finding.message.contains(problem), "{finding:?}");
    }
    assert_eq!(one(&findings, "quota of roles").verdict, Verdict::Warning);
}
