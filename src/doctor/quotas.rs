//! How much room the account has.

use aws_sdk_iam::types::SummaryKeyType;

use super::Examined;
use crate::client::call::{CallError, Operation, Resource};
use crate::s3::bucket::PAGE;
use bucket_provisioner::store::{Finding, Mode};

/// A quota is near when this part of it is used, in percent.
const NEAR: u64 = 80;
/// The default quota of an account ("Amazon S3 endpoints and quotas", AWS General Reference). AWS raises it on request, and
/// S3 does not return it.
const BUCKETS: u64 = 10_000;

const MORE_BUCKETS: &str = "ask AWS to raise the quota (Service Quotas), or delete what is not needed; a raised quota of buckets cannot be seen here";
const MORE_USERS: &str =
    "delete users that nobody needs, or use a class for another account: AWS does not raise the quota of users";
const MORE_ROLES: &str = "delete roles that nobody needs, or ask AWS to raise the quota (Service Quotas), up to 5,000";

pub(crate) async fn examine(examined: &Examined<'_>) -> Vec<Finding> {
    let Examined { asked, target, has_iam, .. } = examined;
    let users = async {
        match target.user.filter(|_| *has_iam) {
            Some(_) => asked.users.get_or_init(|| users(examined)).await.clone(),
            None => None,
        }
    };
    let buckets = async {
        match target.record.plan.mode {
            Mode::Created => Some(asked.buckets.get_or_init(|| buckets(examined)).await.clone()),
            Mode::Granted => None,
        }
    };
    let roles = async {
        match target.role.as_ref().filter(|_| *has_iam) {
            Some(_) => asked.roles.get_or_init(|| roles(examined)).await.clone(),
            None => None,
        }
    };
    let (users, roles, buckets) = tokio::join!(users, roles, buckets);
    users.into_iter().chain(roles).chain(buckets).collect()
}

async fn users(examined: &Examined<'_>) -> Option<Finding> {
    let keys = [SummaryKeyType::Users, SummaryKeyType::UsersQuota];
    of_iam(examined, ("quota of users", "IAM users"), keys, MORE_USERS).await
}

async fn roles(examined: &Examined<'_>) -> Option<Finding> {
    // The SDK has no names for them ("GetAccountSummary", IAM API reference).
    let keys = ["Roles", "RolesQuota"].map(SummaryKeyType::from);
    of_iam(examined, ("quota of roles", "IAM roles"), keys, MORE_ROLES).await
}

async fn of_iam(
    Examined { store, target, .. }: &Examined<'_>,
    (what, things): (&str, &str),
    [used, quota]: [SummaryKeyType; 2],
    remedy: &str,
) -> Option<Finding> {
    let send = || store.iam.get_account_summary().send();
    match store.call(Operation::GetAccountSummary, Resource::Account, send).await {
        Ok(answer) => {
            let summary = answer.summary_map()?;
            let number = |key| summary.get(&key).and_then(|number| u64::try_from(*number).ok());
            Some(room(what, things, number(used)?, number(quota)?, ("the account's quota", remedy)))
        }
        // Only AWS is known to have such a quota.
        Err(_) if target.endpoints.iam_is_foreign() => None,
        Err(error) if error.status() == 403 => Some(
            Finding::about(what)
                .unknown(format!(
                    "how many {things} the account has is unknown: the provisioning credentials may not call iam:GetAccountSummary"
                ))
                .with_remedy(super::allow_doctor("iam:GetAccountSummary")),
        ),
        Err(error) => Some(super::failed(what, error)),
    }
}

async fn buckets(examined: &Examined<'_>) -> Finding {
    const WHAT: &str = "quota of buckets";
    match count(examined).await {
        Ok(used) if examined.target.endpoints.s3_is_foreign() => {
            Finding::about("buckets").good(format!("the provisioning credentials own {used} buckets at this store"))
        }
        Ok(used) => room(WHAT, "buckets", used, BUCKETS, ("the default quota", MORE_BUCKETS)),
        Err(error) if error.status() == 403 && error.code() == "AccessDenied" => Finding::about(WHAT)
            .unknown("how many buckets the account has is unknown: the provisioning credentials may not call s3:ListAllMyBuckets")
            .with_remedy("allow it, as the provisioning policy in docs/permissions.md does"),
        Err(error) => super::failed("S3", error),
    }
}

/// Far above the default quota nobody needs the exact number.
async fn count(Examined { store, .. }: &Examined<'_>) -> Result<u64, CallError> {
    let list = || async {
        let mut pages = store.listing_s3.list_buckets().into_paginator().page_size(PAGE).send();
        let mut number = 0;
        while number <= 2 * BUCKETS
            && let Some(page) = pages.next().await
        {
            number += u64::try_from(page?.buckets().len()).unwrap_or(u64::MAX);
        }
        Ok(number)
    };
    store.call(Operation::ListBuckets, Resource::Account, list).await
}

fn room(what: &str, things: &str, used: u64, quota: u64, (whose, remedy): (&str, &str)) -> Finding {
    let message = format!("{used} {things}, of {quota} that {whose} allows");
    if used * 100 >= quota * NEAR {
        return Finding::about(what).warning(message).with_remedy(remedy);
    }
    Finding::about(what).good(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bucket_provisioner::store::Verdict;

    #[test]
    fn a_quota_is_near_at_four_fifths() {
        for (used, verdict) in [(0, Verdict::Good), (3_999, Verdict::Good), (4_000, Verdict::Warning)] {
            assert_eq!(room("q", "users", used, 5_000, ("the quota", "")).verdict, verdict, "{used}");
        }
        assert_eq!(room("q", "users", 0, 0, ("the quota", "")).verdict, Verdict::Warning);
    }
}
