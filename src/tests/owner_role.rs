//! The role that the provisioning credentials assume: its session signs everything else, and is replaced in time.

use std::time::{Duration, SystemTime};

use super::provision::user_is_made;
use crate::class::environment::Environment;
use crate::class::values::Region;
use crate::testing::*;
use aws_smithy_types::DateTime;
use aws_smithy_types::date_time::Format;
use bucket_provisioner::store::{Failure as _, FailureClass, Record, RoleRef};

const ROLE: &str = "arn:aws:iam::210987654321:role/team/buckets";
const MINUTE: Duration = Duration::from_secs(60);

/// A claim of a class with a role.
fn in_role() -> Record {
    let mut record = without_account(record());
    record.plan.owner.role = Some(RoleRef::new(ROLE).with_external_id("kept-by-us"));
    record
}

/// A session that ends after this time.
fn session(key_id: &str, left: Duration) -> (&'static str, Answer) {
    let end = DateTime::from(SystemTime::now() + left).fmt(Format::DateTime).unwrap();
    let credentials = format!(
        "<Credentials><AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>s3cret</SecretAccessKey>\
         <SessionToken>t0ken</SessionToken><Expiration>{end}</Expiration></Credentials>"
    );
    let body = format!("<AssumeRoleResponse><AssumeRoleResult>{credentials}</AssumeRoleResult></AssumeRoleResponse>");
    ("AssumeRole", ok(body))
}

fn signers(stage: &Stage) -> Vec<String> {
    stage.signers().iter().map(|(operation, key_id)| format!("{operation} {key_id}")).collect()
}

#[tokio::test]
async fn the_session_of_the_role_signs_all_other_calls() {
    let (first, second) = (in_role(), planned_as(in_role(), in_role().plan));
    let mut elsewhere = second;
    elsewhere.plan.endpoint.region = "eu-central-1".into();
    let twice = || [("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let region = Some(Region::parse("eu-west-3", None).unwrap());
    let environment = Environment { region, ..Environment::default() };
    let answers = [session("ASIA1", 60 * MINUTE)].into_iter().chain(twice()).chain(twice());
    let stage = Stage::in_environment(environment, answers);
    stage.provision(&first).await.unwrap();
    stage.provision(&elsewhere).await.unwrap();
    let expected = ["CreateBucket ASIA1", "CreateUser ASIA1", "PutUserPolicy ASIA1", "CreateAccessKey ASIA1"];
    assert_eq!(signers(&stage), [&["AssumeRole AKIAOWNER"][..], &expected, &expected].concat());
    let sent = stage.sent("AssumeRole");
    for part in ["DurationSeconds=3600", "ExternalId=kept-by-us", "role%2Fteam%2Fbuckets"] {
        assert!(sent.contains(part), "{sent}");
    }
}

#[tokio::test]
async fn a_session_that_expired_early_is_replaced_once() {
    for code in ["ExpiredToken", "ExpiredTokenException"] {
        let answers = [session("ASIA1", 60 * MINUTE), ("CreateBucket", ok("")), ("CreateUser", iam_error(403, code))];
        let answers = answers.into_iter().chain([session("ASIA2", 60 * MINUTE)]).chain(user_is_made());
        let stage = Stage::answering(answers);
        stage.provision(&in_role()).await.unwrap();
        assert_eq!(
            signers(&stage)[2..],
            [
                "CreateUser ASIA1",
                "AssumeRole AKIAOWNER",
                "CreateUser ASIA2",
                "PutUserPolicy ASIA2",
                "CreateAccessKey ASIA2"
            ]
        );
    }
}

#[tokio::test]
async fn a_session_is_replaced_before_its_end_if_possible() {
    let made = || [("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let brief = [session("ASIA1", 4 * MINUTE), ("AssumeRole", iam_error(500, "InternalFailure"))];
    let stage = Stage::answering(brief.into_iter().chain(made()));
    stage.provision(&in_role()).await.unwrap();
    let used: Vec<_> = signers(&stage).into_iter().skip(1).collect();
    assert_eq!(used[..2], ["CreateBucket ASIA1", "AssumeRole AKIAOWNER"]);
    assert_eq!(used[2..], ["CreateUser ASIA1", "PutUserPolicy ASIA1", "CreateAccessKey ASIA1"], "not tried each time");
}

#[tokio::test]
async fn a_refused_role_is_named_and_assumed_later() {
    let refused = iam_error(403, "AccessDenied");
    let made = [session("ASIA1", 60 * MINUTE), ("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let stage = Stage::answering([("AssumeRole", refused)].into_iter().chain(made));
    let refusal = stage.provision(&in_role()).await.unwrap_err();
    assert!(refusal.changed_nothing && refusal.affects_all_claims());
    assert_eq!((refusal.reason(), refusal.class()), ("OwnerRoleRefused", FailureClass::Terminal));
    let message = refusal.to_string();
    assert!(message.contains("Secret ops/keys") && message.contains("role \"buckets\""), "{message}");
    assert!(!message.contains("210987654321") && !message.contains("kept-by-us"), "{message}");
    stage.provision(&in_role()).await.unwrap();
    assert_eq!(signers(&stage)[..3], ["AssumeRole AKIAOWNER", "AssumeRole AKIAOWNER", "CreateBucket ASIA1"]);
}

/// After it was deleted and created again, sessions of before are refused until their end.
#[tokio::test]
async fn a_refused_session_is_replaced_once() {
    let refused = || ("CreateBucket", s3_error(403, "InvalidAccessKeyId"));
    let made = [session("ASIA2", 60 * MINUTE), ("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let stage = Stage::answering([session("ASIA1", 60 * MINUTE), refused()].into_iter().chain(made));
    stage.provision(&in_role()).await.unwrap();
    assert_eq!(signers(&stage)[2..4], ["AssumeRole AKIAOWNER", "CreateBucket ASIA2"]);
    let sessions = ["ASIA1", "ASIA2"].map(|key_id| session(key_id, 60 * MINUTE));
    let stage = Stage::answering(sessions.into_iter().chain([refused(), refused()]));
    assert_eq!(stage.provision(&in_role()).await.unwrap_err().reason(), "CredentialsRefused");
    assert_eq!(signers(&stage).len(), 4);
}

/// What a store answers about the role is not its answer about the user.
#[tokio::test]
async fn a_role_that_is_missing_is_not_a_missing_user() {
    let stage = Stage::answering([("AssumeRole", iam_error(404, "NoSuchEntity"))]);
    let error = stage.revoke(&in_role(), None).await.unwrap_err();
    assert_eq!(error.reason(), "NotVisibleYet");
    assert_eq!(signers(&stage), ["AssumeRole AKIAOWNER"]);
}

/// STS of the region of the class may not know the account of the operator.
#[tokio::test]
async fn roles_are_assumed_in_the_region_of_the_operator() {
    let region = Some(Region::parse("eu-west-3", None).unwrap());
    let environment = Environment { region, ..Environment::default() };
    let answers = [session("ASIA1", 60 * MINUTE), ("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let stage = Stage::in_environment(environment, answers);
    stage.provision(&in_role()).await.unwrap();
    assert_eq!(stage.addressed("AssumeRole"), ("sts.eu-west-3.amazonaws.com".to_owned(), "eu-west-3".to_owned()));
}

/// Somebody may have revoked it.
#[tokio::test(start_paused = true)]
async fn an_old_session_that_is_denied_is_replaced() {
    let made = || [("CreateBucket", ok(""))].into_iter().chain(user_is_made());
    let denied = || ("CreateBucket", s3_error(403, "AccessDenied"));
    let answers =
        [session("ASIA1", 60 * MINUTE)].into_iter().chain(made()).chain([denied(), denied(), denied(), denied()]);
    let stage = Stage::answering(answers.chain([session("ASIA2", 60 * MINUTE)]).chain(made()));
    let claim = |uid: &str| {
        let mut record = in_role();
        (record.claim.uid, record.plan.bucket) = (uid.to_owned(), format!("photos-{uid}"));
        record
    };
    stage.provision(&claim("1")).await.unwrap();
    assert_eq!(stage.provision(&claim("2")).await.unwrap_err().reason(), "AccessDenied", "it is new");
    tokio::time::advance(6 * MINUTE).await;
    assert_eq!(stage.provision(&claim("2")).await.unwrap_err().reason(), "AccessDenied");
    stage.provision(&claim("2")).await.unwrap();
    let assumed = signers(&stage).iter().filter(|call| call.starts_with("AssumeRole")).count();
    assert_eq!(assumed, 2);
}
