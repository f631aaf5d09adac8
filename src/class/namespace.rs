//! `bucketNamespace`: buckets whose names only one account can have ("Namespaces for general purpose buckets", Amazon S3 user
//! guide).

use crate::class::values::{Region, is_account, unshown};
use bucket_provisioner::store::ParameterError;

pub(crate) const NAMESPACE: &str = "bucketNamespace";
const ACCOUNT: &str = "accountId";
pub(crate) const ACCOUNT_REGIONAL: &str = "account-regional";
/// Regions without account-regional namespaces.
const WITHOUT: [&str; 2] = ["me-south-1", "me-central-1"];

/// The namespace of an account in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRegional {
    account: String,
    region: String,
}

impl AccountRegional {
    /// What the names of its buckets end in.
    pub(crate) fn suffix(&self) -> String {
        format!("-{}-{}-an", self.account, self.region)
    }
}

/// The account in the end of a bucket's name.
pub(crate) fn account_of(suffix: &str) -> Option<&str> {
    suffix.strip_prefix('-')?.split('-').next().filter(|account| is_account(account))
}

/// The namespace that a class sets. `arns`: of what is in the account of its buckets.
///
/// # Errors
/// A value that cannot be used, or what is missing.
pub(crate) fn namespace(
    value: Option<&str>,
    account: Option<String>,
    region: Option<&Region>,
    arns: [Option<&str>; 4],
) -> Result<Option<AccountRegional>, ParameterError> {
    match value {
        None | Some("global") if account.is_some() => {
            return Err(ParameterError::missing(NAMESPACE, "accountId applies only to account-regional"));
        }
        None | Some("global") => return Ok(None),
        Some(ACCOUNT_REGIONAL) => {}
        Some(other) => {
            let problem = "is not a namespace of buckets";
            return Err(ParameterError::bad(NAMESPACE, other, problem, "write global or account-regional"));
        }
    }
    let Some(region) = region else {
        return Err(ParameterError::missing("region", "names of account-regional buckets contain it"));
    };
    if WITHOUT.contains(&region.as_str()) {
        let problem = format!("does not exist in {}", region.as_str());
        return Err(ParameterError::bad(NAMESPACE, ACCOUNT_REGIONAL, &problem, "remove it, or use another region"));
    }
    if account.as_deref().is_some_and(|account| !is_account(account)) {
        return Err(unshown(ACCOUNT, "is not the id of an account", "write the 12 digits of the account"));
    }
    let of_arns =
        arns.into_iter().flatten().filter_map(|arn| arn.split(':').nth(4)).find(|account| is_account(account));
    match account.or_else(|| of_arns.map(str::to_owned)) {
        Some(account) => Ok(Some(AccountRegional { account, region: region.as_str().to_owned() })),
        None => Err(ParameterError::missing(ACCOUNT, "names of account-regional buckets contain it")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(account: Option<&str>, region: Option<&str>, arn: Option<&str>) -> Result<Option<String>, String> {
        let region = region.map(|region| Region::parse(region, None).unwrap());
        let found =
            namespace(Some(ACCOUNT_REGIONAL), account.map(str::to_owned), region.as_ref(), [arn, None, None, None]);
        found.map(|found| found.map(|found| found.suffix())).map_err(|error| error.to_string())
    }

    #[test]
    fn the_account_is_that_of_the_class() {
        let suffix = Ok(Some("-123456789012-eu-west-1-an".to_owned()));
        let role = "arn:aws:iam::123456789012:role/buckets";
        assert_eq!(parsed(Some("123456789012"), Some("eu-west-1"), None), suffix);
        assert_eq!(parsed(None, Some("eu-west-1"), Some(role)), suffix);
        assert_eq!(parsed(Some("123456789012"), Some("eu-west-1"), Some("arn:aws:iam::210987654321:role/x")), suffix);
        assert_eq!(account_of("-123456789012-eu-west-1-an"), Some("123456789012"));
        for (account, region, arn, part) in [
            (None, Some("eu-west-1"), None, "accountId"),
            (None, Some("eu-west-1"), Some("arn:aws:iam::aws:policy/x"), "accountId"),
            (Some("12345"), Some("eu-west-1"), None, "12 digits"),
            (Some("123456789012"), None, None, "region"),
            (Some("123456789012"), Some("me-south-1"), None, "another region"),
        ] {
            let message = parsed(account, region, arn).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
        assert!(namespace(Some("regional"), None, None, [None; 4]).is_err());
        assert!(namespace(None, Some("123456789012".into()), None, [None; 4]).is_err());
        assert_eq!(namespace(Some("global"), None, None, [None; 4]), Ok(None));
    }
}
