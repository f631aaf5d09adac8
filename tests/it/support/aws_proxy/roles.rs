//! Roles that trust the tokens of a cluster, as AWS has them and the emulator does not.
//!
//! | rule | source |
//! |---|---|
//! | the account has the identity provider, and the token is for one of its client ids | AssumeRoleWithWebIdentity, STS API reference |
//! | signature and expiry of the token are checked; here by the API server that signed it | the same |
//! | a role just created cannot be assumed for some seconds | "Changes that I make are not always immediately visible", IAM user guide |
//! | the inline policies of a role have 10,240 characters at most | "IAM and AWS STS quotas" |

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use provisioner_conformance::proxy::{Answer, plain};
use serde_json::Value;

use super::AwsCall;
use super::strict::refuse;
use crate::support::account::Account;
use crate::support::admin_config;

/// Of all inline policies of a role, without white space.
const POLICIES_MAX: usize = 10_240;

/// The roles that were created, and when.
#[derive(Default)]
pub(super) struct Roles {
    made: Mutex<HashMap<String, Instant>>,
}

impl Roles {
    /// Refuses a call as AWS would. `delay`: how long a new role cannot be assumed.
    pub(super) async fn refuse(&self, call: &AwsCall, delay: Duration, account: &Account) -> Option<Answer> {
        match call.operation.as_str() {
            "AssumeRoleWithWebIdentity" => self.refuse_token(call, delay, account).await,
            "PutRolePolicy" => is_full(call, account).await.then(|| refuse(call, 409, "LimitExceeded")),
            _ => None,
        }
    }

    /// Notes what was done.
    pub(super) fn done(&self, call: &AwsCall) {
        if let ("CreateRole", Some(role)) = (call.operation.as_str(), call.form("RoleName")) {
            self.made.lock().unwrap().insert(role, Instant::now());
        }
    }

    async fn refuse_token(&self, call: &AwsCall, delay: Duration, account: &Account) -> Option<Answer> {
        let (arn, token) = (call.form("RoleArn")?, call.form("WebIdentityToken")?);
        let role = arn.rsplit('/').next().unwrap();
        let made = self.made.lock().unwrap().get(role).copied();
        if made.is_some_and(|made| made.elapsed() < delay) {
            return Some(refuse(call, 403, "AccessDenied"));
        }
        // Without the role, the emulator refuses by itself.
        let found = account.iam.get_role().role_name(role).send().await.ok()?.role?;
        let trust: Value = decoded(&found.assume_role_policy_document?);
        let provider = trust["Statement"][0]["Principal"]["Federated"].as_str()?;
        let known = account.iam.get_open_id_connect_provider().open_id_connect_provider_arn(provider);
        let Ok(known) = known.send().await else {
            let problem = "No OpenIDConnect provider found in your account for the issuer of the token";
            return Some(invalid("InvalidIdentityToken", problem));
        };
        let review = reviewed(&token, known.client_id_list.unwrap_or_default()).await?;
        review.map(|problem| match problem.contains("expired") {
            true => invalid("ExpiredTokenException", "Token expired"),
            false => invalid("InvalidIdentityToken", "Couldn't verify the token, or its audience is not a client id"),
        })
    }
}

/// What is wrong with a token, by the API server.
async fn reviewed(token: &str, audiences: Vec<String>) -> Option<Option<String>> {
    let client = Client::try_from(admin_config().await).unwrap();
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(audiences) };
    let review = TokenReview { spec, ..TokenReview::default() };
    let status = Api::all(client).create(&PostParams::default(), &review).await.unwrap().status?;
    let is_valid = status.authenticated == Some(true) && status.audiences.is_some_and(|fit| !fit.is_empty());
    Some((!is_valid).then(|| status.error.unwrap_or_default()))
}

fn decoded(document: &str) -> Value {
    let document = percent_encoding::percent_decode_str(document).decode_utf8().unwrap();
    serde_json::from_str(&document).unwrap()
}

fn invalid(code: &str, problem: &str) -> Answer {
    let error = format!("<Error><Code>{code}</Code><Message>{problem}</Message></Error>");
    plain(400, format!("<ErrorResponse>{error}</ErrorResponse>"))
}

async fn is_full(call: &AwsCall, account: &Account) -> bool {
    let (Some(role), Some(name), Some(document)) =
        (call.form("RoleName"), call.form("PolicyName"), call.form("PolicyDocument"))
    else {
        return false;
    };
    let size = |document: &str| document.chars().filter(|c| !c.is_whitespace()).count();
    let mut all = size(&document);
    let listed = account.iam.list_role_policies().role_name(&role).send().await;
    for other in listed.map(|listed| listed.policy_names).unwrap_or_default().iter().filter(|other| **other != name) {
        let found = account.iam.get_role_policy().role_name(&role).policy_name(other).send().await;
        all += found.map(|found| size(&decoded(&found.policy_document).to_string())).unwrap_or_default();
    }
    all > POLICIES_MAX
}
