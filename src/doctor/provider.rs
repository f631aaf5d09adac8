//! The identity provider that a class names.

use super::Examined;
use crate::class::target::RoleSpec;
use crate::client::call::{Operation, Resource};
use bucket_provisioner::store::Finding;

const WHAT: &str = "identity provider";

/// `issuer`: of the cluster's tokens, if it is known.
pub(crate) async fn examine(examined: &Examined<'_>, issuer: Option<&str>) -> Vec<Finding> {
    let Some(role) = &examined.target.role else { return Vec::new() };
    let of_cluster = issuer.and_then(|issuer| compared(role, issuer));
    let account = examined.caller.account().filter(|account| *account != role.provider.account());
    if let Some(account) = account {
        let message = format!(
            "the provider is in account {}, but the provisioning credentials are of {account}",
            role.provider.account()
        );
        let remedy = "recreate the class with a provider of the account of the provisioning credentials";
        return of_cluster.into_iter().chain([Finding::about(WHAT).bad(message).with_remedy(remedy)]).collect();
    }
    of_cluster.into_iter().chain([of_account(examined, role).await]).collect()
}

/// Whether the provider is that of the cluster's issuer; `None` if it is.
fn compared(role: &RoleSpec<'_>, issuer: &str) -> Option<Finding> {
    let (ours, theirs) = (issuer.trim_start_matches("https://"), role.provider.issuer());
    let message = format!("oidcProvider is for issuer {theirs}, but the tokens of this cluster are of {ours}");
    let remedy = "recreate the class with the provider of this cluster";
    (ours != theirs).then(|| Finding::about(WHAT).bad(message).with_remedy(remedy))
}

/// Whether the account has the provider, and it accepts the audience.
async fn of_account(Examined { store, .. }: &Examined<'_>, role: &RoleSpec<'_>) -> Finding {
    let (about, arn, audience) = (Finding::about(WHAT), role.provider.as_str(), role.audience);
    let send = || store.iam.get_open_id_connect_provider().open_id_connect_provider_arn(arn).send();
    match store.call(Operation::GetOpenIDConnectProvider, Resource::Account, send).await {
        Ok(found) if found.client_id_list().iter().any(|known| known == audience) => {
            about.good(format!("the provider exists, and accepts tokens for {audience:?}"))
        }
        Ok(found) => about
            .bad(format!("the provider accepts tokens for {:?}, but not for {audience:?}", found.client_id_list()))
            .with_remedy(
                "add it to the client ids of the provider (aws iam add-client-id-to-open-id-connect-provider), or recreate the class with another oidcAudience",
            ),
        Err(error) if error.code() == "NoSuchEntity" => about
            .bad(format!("the account has no identity provider {arn}"))
            .with_remedy("create it (docs/keyless.md), or recreate the class with the ARN of another one"),
        Err(error) if error.status() == 403 => about
            .unknown("whether the provider exists is unknown: the provisioning credentials may not call iam:GetOpenIDConnectProvider")
            .with_remedy(super::allow_doctor("iam:GetOpenIDConnectProvider")),
        Err(error) => super::failed(WHAT, error),
    }
}
