//! Tokens of ServiceAccounts, with which the access of a claim's apps is tried.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount as Account;
use kube::Api;
use kube::api::PostParams;
use secrecy::SecretString;

use crate::error::Error;
use crate::state::context::Context;
use crate::state::memory::Awaited;
use crate::store::{Record, ServiceAccount};
use operator_runtime::kubernetes::answers::{describe, status_code};

/// The shortest life of a token that the API server grants.
const SECONDS: i64 = 600;

/// The answer to a request for a token.
pub(crate) enum Token {
    Issued(SecretString),
    /// The operator may not request one. With the API server's own sentence.
    Denied(String),
}

/// Requests a token of the claim's ServiceAccount, if the store accepts one with an audience.
///
/// # Errors
/// [`Error::ServiceAccountNotFound`], which a watch ends; and that the API server does not answer.
pub(crate) async fn request<P>(ctx: &Context<P>, record: &Record) -> Result<Option<Token>, Error> {
    let Some(ServiceAccount { name, audience: Some(audience) }) = &record.plan.service_account else { return Ok(None) };
    let namespace = &record.claim.namespace;
    let awaited = Awaited::ServiceAccount(namespace.clone(), name.clone());
    // Before it is requested, so that no later change is missed.
    ctx.memory.wait_for_account(&record.claim, Some(awaited));
    let accounts: Api<Account> = Api::namespaced(ctx.client.clone(), namespace);
    let spec = TokenRequestSpec {
        audiences: vec![audience.clone()],
        expiration_seconds: Some(SECONDS),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await;
    match answer {
        Ok(answer) => {
            ctx.memory.wait_for_account(&record.claim, None);
            let token = answer.status.map(|status| status.token).unwrap_or_default();
            Ok(Some(Token::Issued(token.into())))
        }
        Err(error) if status_code(&error) == Some(403) => {
            ctx.memory.wait_for_account(&record.claim, None);
            Ok(Some(Token::Denied(describe(&error))))
        }
        Err(error) if status_code(&error) == Some(404) => {
            ctx.watch_service_accounts();
            Err(Error::ServiceAccountNotFound { name: name.clone() })
        }
        Err(error) => Err(Error::kubernetes("request a token of the claim's ServiceAccount")(error)),
    }
}
