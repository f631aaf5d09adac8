//! What is refused: by the class, by the cluster, and by AWS.

use rstest::rstest;
use serde_json::json;

use super::{bind, keyless, pod, policies, role, spec};
use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::Verdict;

/// What the API server answers without `rbac --keyless`.
pub(super) fn deny_tokens(world: &World) {
    const DENIED: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,
        "message":"serviceaccounts \"web\" is forbidden: cannot create resource \"serviceaccounts/token\""}"#;
    world.kubernetes.inject(|call| match call.name.as_str() {
        "create serviceaccounts/token" => Verdict::Answer(403, DENIED.to_owned()),
        _ => Verdict::Pass,
    });
}

#[tokio::test]
async fn without_a_permission_for_tokens_access_is_not_tried() {
    let (world, class) = keyless(&["web"]).await;
    deny_tokens(&world);
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bucket = bind(&world, &class, "photos").await;
    let (_, note) = world.wait_event("photos", "NotTried").await;
    assert!(note.contains("serviceaccounts"), "{note}");
    world.kubernetes.leave_alone();
    pod(&world, "photos", "web").await.put(&bucket, "precious").await.unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn a_claim_must_name_a_service_account() {
    let (world, keyless) = keyless(&[]).await;
    let with_keys = world.class("fast").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("none", &keyless).await;
    world.wait_reason("none", "ServiceAccountMissing").await;
    world.claim_with("elsewhere", spec(&keyless, "other/web")).await;
    world.wait_reason("elsewhere", "InvalidSetting").await;
    world.claim_with("useless", spec(&with_keys, "web")).await;
    let message = world.wait_reason("useless", "SettingNotAllowed").await;
    assert!(message.contains("gives apps keys"), "{message}");
    assert!(world.aws.names().is_empty(), "{:?}", world.aws.names());
    operator.stop().await;
}

#[tokio::test]
async fn a_foreign_role_is_not_touched() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("probe", spec(&class, "web")).await;
    world.wait_bound("probe").await;
    let name = role(&world, "probe").await;
    world.delete_claim("probe").await;
    world.wait_gone("probe").await;

    let iam = &world.account.iam;
    let document = json!({ "Version": "2012-10-17", "Statement": [] }).to_string();
    iam.create_role().role_name(&name).assume_role_policy_document(&document).send().await.unwrap();
    world.claim_with("photos", spec(&class, "web")).await;
    world.wait_reason("photos", "RoleTaken").await;
    assert_eq!(policies(&world, &name).await, Some(Vec::new()));
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    let found = iam.get_role().role_name(&name).send().await.unwrap().role.unwrap();
    assert!(found.tags().is_empty());
    iam.delete_role().role_name(&name).send().await.unwrap();
    operator.stop().await;
}

#[rstest]
#[case::no_provider("InvalidIdentityToken", "No OpenIDConnect provider found in your account", "OidcProviderMissing")]
#[case::other_audience("InvalidIdentityToken", "Incorrect token audience", "OidcProviderMismatch")]
#[tokio::test]
async fn a_token_that_aws_refuses_is_explained(#[case] code: &str, #[case] text: &str, #[case] reason: &str) {
    let (world, class) = keyless(&["web"]).await;
    let answer = format!("<ErrorResponse><Error><Code>{code}</Code><Message>{text}</Message></Error></ErrorResponse>");
    world.aws.inject(move |call| match call.name.as_str() {
        "AssumeRoleWithWebIdentity" => Verdict::Answer(400, answer.clone()),
        _ => Verdict::Pass,
    });
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec(&class, "web")).await;
    world.wait_reason("photos", reason).await;
    world.aws.leave_alone();
    world.retry("photos", "now").await;
    world.wait_bound("photos").await;
    operator.stop().await;
}

/// AWS knows the issuer's keys, and no token that the cluster did not sign, or that has expired, is worth anything.
#[tokio::test]
async fn without_an_identity_provider_nothing_is_bound() {
    let (world, _) = keyless(&["web"]).await;
    let nowhere = "arn:aws:iam::000000000000:oidc-provider/nowhere.example.com";
    let parameters = [("authentication", "ServiceAccount"), ("oidcProvider", nowhere)];
    let class = world.class_with("wrong", "Delete", &parameters).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec(&class, "web")).await;
    let message = world.wait_reason("photos", "OidcProviderMissing").await;
    assert!(message.contains("oidcProvider"), "{message}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    operator.stop().await;
}

#[tokio::test]
async fn a_role_without_room_for_a_policy_is_reported() {
    let (world, class) = keyless(&["web"]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    bind(&world, &class, "photos").await;
    let (role, iam) = (role(&world, "photos").await, &world.account.iam);
    let long = json!({ "Version": "2012-10-17", "Statement": [
        { "Effect": "Deny", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{}/*", "x".repeat(9_000)) },
    ] });
    let put = iam.put_role_policy().role_name(&role).policy_name("by-hand");
    put.policy_document(long.to_string()).send().await.unwrap();
    world.claim_with("second", spec(&class, "web")).await;
    let message = world.wait_reason("second", "RoleFull").await;
    assert!(message.contains("\"web\""), "{message}");
    world.delete_claim("second").await;
    world.wait_gone("second").await;

    // What somebody added by hand stays, and so does the role.
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(policies(&world, &role).await, Some(vec!["by-hand".to_owned()]));
    iam.delete_role_policy().role_name(&role).policy_name("by-hand").send().await.unwrap();
    iam.delete_role().role_name(&role).send().await.unwrap();
    operator.stop().await;
}
