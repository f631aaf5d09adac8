//! The permissions boundary that a class names.

use super::Examined;
use super::caller::Caller;
use crate::client::account::account_of;
use crate::client::call::{Operation, Resource};
use bucket_provisioner::store::Finding;

const WHAT: &str = "boundary";

pub(crate) async fn examine(Examined { store, target, caller, .. }: &Examined<'_>) -> Vec<Finding> {
    let Some(boundary) = target.iam_identity().and_then(|identity| identity.permissions_boundary) else {
        return Vec::new();
    };
    if let Some(problem) = misplaced(boundary, caller) {
        let remedy = "recreate the class with the ARN of a policy in the account of the provisioning credentials; docs/permissions-boundary.json is such a policy";
        return vec![
            Finding::about(WHAT).bad(format!("the permissions boundary {boundary} is {problem}")).with_remedy(remedy),
        ];
    }
    let send = || store.iam.get_policy().policy_arn(boundary).send();
    vec![match store.call(Operation::GetPolicy, Resource::policy(boundary), send).await {
        Ok(_) => Finding::about(WHAT).good(format!("the permissions boundary {boundary} exists")),
        Err(error) if error.code() == "NoSuchEntity" => Finding::about(WHAT).bad(format!("the permissions boundary {boundary} does not exist")).with_remedy("create the policy from docs/permissions-boundary.json, or recreate the class with the ARN of another one"),
        Err(error) if error.status() == 403 => Finding::about(WHAT).unknown(format!(
                "whether the permissions boundary {boundary} exists is unknown: the provisioning credentials may not call iam:GetPolicy"
            )).with_remedy(super::allow_doctor("iam:GetPolicy")),
        Err(error) if target.endpoints.iam_is_foreign() && error.status() != 0 => Finding::about(WHAT).unknown(format!("the store does not show whether the permissions boundary {boundary} exists ({})", error.status())).with_remedy("submit a claim to see whether it works"),
        Err(error) => super::failed(WHAT, error),
    }]
}

/// A boundary is a policy of the user's own account, or one that AWS manages ("CreateUser", IAM API reference).
fn misplaced(boundary: &str, caller: &Caller) -> Option<String> {
    let partition = boundary.split(':').nth(1)?;
    if let Some(ours) = caller.partition().filter(|ours| *ours != partition) {
        return Some(format!("in partition {partition}, but the provisioning credentials are of {ours}"));
    }
    let (theirs, ours) = (account_of(boundary)?, caller.account()?);
    (theirs != "aws" && theirs != ours)
        .then(|| format!("in account {theirs}, but the provisioning credentials are of {ours}"))
}
