//! A session of the role of a ServiceAccount, as its pods get one: with a token of the cluster, and no key.

use crate::class::target::{RoleSpec, Target};
use crate::client::call::{Call, CallError, Cause, Identity, Operation, Resource, observe};
use crate::client::clients::Clients;
use crate::client::error::Error;
use crate::client::remedy::aws_message;
use crate::iam::session;
use bucket_provisioner::store::{AppCredentials, ExposeSecret as _, Probe, SecretString};

/// The codes with which STS refuses a token ("AssumeRoleWithWebIdentity", STS API reference).
const INVALID_TOKEN: &str = "InvalidIdentityToken";
const REJECTED_CLAIM: &str = "IDPRejectedClaim";
/// STS could not ask the issuer for its keys.
const NOT_REACHED: &str = "IDPCommunicationError";

/// Assumes the role; `Err` within `Ok`: it cannot be assumed yet.
pub(crate) async fn assume(
    clients: &Clients,
    target: &Target<'_>,
    role: &RoleSpec<'_>,
    token: &SecretString,
) -> Result<Result<AppCredentials, Probe>, Error> {
    let call = Call {
        operation: Operation::AssumeRoleWithWebIdentity,
        resource: Resource::role(role.name),
        identity: Identity::App,
        session: false,
    };
    let failed = |cause| Error::from(CallError { call: Box::new(call.clone()), cause });
    let Some(sts) = clients.anonymous_sts(target) else {
        return Err(failed(Cause::NotSent("the endpoint of STS is not known".to_owned())));
    };
    let request = sts.assume_role_with_web_identity().role_arn(role.arn()).role_session_name(session::NAME);
    let request = request.duration_seconds(session::LENGTH).web_identity_token(token.expose_secret());
    match observe(clients.observer(), call.clone(), request.send()).await {
        Ok(answer) => {
            let keys = answer.credentials.ok_or_else(|| failed(Cause::Unreadable))?;
            Ok(Ok(session::credentials(keys)))
        }
        // A role that is new, or whose trust policy is.
        Err(error) if error.code() == "AccessDenied" => Ok(Err(Probe::Denied(error.code().to_owned()))),
        Err(error) if error.code() == "ExpiredTokenException" => Ok(Err(Probe::NotYet(error.code().to_owned()))),
        Err(error) => Err(refused(error)),
    }
}

fn refused(error: CallError) -> Error {
    let message = error.message().map(str::to_owned);
    let has_no_provider = || message.as_deref().is_some_and(|message| message.contains("No OpenIDConnect provider"));
    match error.code() {
        INVALID_TOKEN if has_no_provider() => Error::OidcProviderMissing,
        INVALID_TOKEN | REJECTED_CLAIM => Error::OidcProviderMismatch { code: error.code().to_owned(), message },
        NOT_REACHED => Error::StoreFailing {
            operation: error.call.operation,
            resource: error.call.resource,
            problem: format!("{NOT_REACHED}{}", aws_message(&message)),
        },
        _ => error.into(),
    }
}
