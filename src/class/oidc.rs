//! The identity provider of a class whose apps have access as ServiceAccounts: `oidcProvider` and `oidcAudience`.
//!
//! IAM trusts the issuer of the cluster's tokens, which must be public, by an identity provider of the account ("OIDC
//! federation", IAM user guide). Each ServiceAccount gets a role there.

use sha2::{Digest as _, Sha256};

use crate::class::values::{OTHER_PARTITION, is_account, is_arn_of_iam, partition_of, unshown};
use bucket_provisioner::store::names::uid_in;
use bucket_provisioner::store::{Authentication, ClaimId, ParameterError};

/// The audience of tokens if the class names none; that of EKS.
pub const DEFAULT_AUDIENCE: &str = "sts.amazonaws.com";
/// Where pods have the token; EKS mounts it there, too.
pub(crate) const TOKEN_FILE: &str = "/var/run/secrets/eks.amazonaws.com/serviceaccount/token";

const PROVIDER: &str = "oidcProvider";
const AUDIENCE: &str = "oidcAudience";

/// Longest name of a role, in characters (CreateRole, IAM API reference).
const ROLE_MAX: usize = 64;
/// Longest name of an inline policy, in characters (PutRolePolicy, IAM API reference).
const POLICY_MAX: usize = 128;
/// Characters of a role's name that tell ServiceAccounts apart.
const DIGEST: usize = 12;

/// The identity provider of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oidc {
    /// ARN of the provider.
    pub provider: ProviderArn,
    /// Audience of the tokens.
    pub audience: String,
}

/// The ARN of an identity provider: `arn:PARTITION:iam::ACCOUNT:oidc-provider/ISSUER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderArn(String);

impl ProviderArn {
    pub(crate) fn parse(value: &str) -> Option<Self> {
        // It becomes part of a trust policy.
        let is_arn = is_arn_of_iam(value, "oidc-provider/", &is_account) && !value.contains(['"', '\\']);
        is_arn.then(|| Self(value.to_owned()))
    }

    /// The ARN.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The partition.
    pub(crate) fn partition(&self) -> &str {
        partition_of(&self.0).unwrap_or_default()
    }

    /// The account that has the provider, and the roles that trust it.
    pub(crate) fn account(&self) -> &str {
        self.0.split(':').nth(4).unwrap_or_default()
    }

    /// The issuer, without its scheme.
    pub(crate) fn issuer(&self) -> &str {
        self.0.split_once('/').map(|(_, issuer)| issuer).unwrap_or_default()
    }
}

impl Oidc {
    /// Name of the role of a ServiceAccount (its namespace and its name): both, as far as they fit, and a digest of all that
    /// makes the role. The same in all clusters whose tokens the provider accepts, because AWS cannot tell them apart.
    pub(crate) fn role_name(
        &self,
        [namespace, name]: [&str; 2],
        path: &str,
        permissions_boundary: Option<&str>,
    ) -> String {
        let boundary = permissions_boundary.unwrap_or_default();
        let provider = self.provider.as_str();
        // No part can contain the separator.
        let made_of = [provider, &self.audience, path, boundary, namespace, name].join("\n");
        let digest =
            Sha256::digest(made_of).iter().take(DIGEST / 2).map(|byte| format!("{byte:02x}")).collect::<String>();
        let shown: String = format!("{namespace}-{name}").chars().take(ROLE_MAX - DIGEST - 1).collect();
        format!("{shown}-{digest}")
    }
}

/// Name of the policy of a claim on the role of its ServiceAccount: its name, as far as it fits, and its uid.
pub(crate) fn policy_name(claim: &ClaimId) -> String {
    let room = POLICY_MAX.saturating_sub(claim.uid.len() + 1);
    let name: String = claim.name.chars().take(room).collect();
    format!("{name}-{}", claim.uid)
}

/// The name and the uid of a claim, by the name of its policy.
pub(crate) fn claim_of(policy: &str) -> Option<(&str, &str)> {
    let uid = uid_in(policy)?;
    Some((policy.strip_suffix(uid)?.strip_suffix('-')?, uid))
}

/// The ARN of a role in the account of a provider.
pub(crate) fn role_arn(provider: &ProviderArn, path: &str, name: &str) -> String {
    format!("arn:{}:iam::{}:role{path}{name}", provider.partition(), provider.account())
}

/// Parses the parameters. `partition`: that of the class's region, if it is one of AWS. `is_elsewhere`: the class has EKS Pod
/// Identity instead.
pub(crate) fn oidc(
    authentication: Authentication,
    (provider, audience): (Option<&str>, Option<String>),
    partition: Option<&str>,
    is_elsewhere: bool,
) -> Result<Option<Oidc>, ParameterError> {
    match (authentication, provider) {
        (Authentication::Key, None) if audience.is_none() => return Ok(None),
        (Authentication::Key, _) => {
            let name = if provider.is_some() { PROVIDER } else { AUDIENCE };
            let problem = "applies only to apps without keys, and authentication is not ServiceAccount";
            return Err(unshown(name, problem, "remove it, or add authentication ServiceAccount"));
        }
        (Authentication::ServiceAccount, None) if is_elsewhere && audience.is_none() => return Ok(None),
        (Authentication::ServiceAccount, None) if is_elsewhere => {
            return Err(unshown(AUDIENCE, "applies only to oidcProvider, and the class has eksCluster", "remove it"));
        }
        (Authentication::ServiceAccount, _) => {}
    }
    let Some(provider) = provider else {
        return Err(ParameterError::missing(
            PROVIDER,
            "authentication is ServiceAccount, and IAM trusts the tokens of a cluster only by an identity provider; on EKS, eksCluster and podRole can replace it",
        ));
    };
    let Some(provider) = ProviderArn::parse(provider) else {
        let remedy = "write an ARN such as arn:aws:iam::123456789012:oidc-provider/oidc.example.com/id";
        return Err(unshown(PROVIDER, "is not the ARN of an identity provider of IAM", remedy));
    };
    if partition.is_some_and(|partition| partition != provider.partition()) {
        return Err(unshown(PROVIDER, OTHER_PARTITION, "name a provider of the same partition"));
    }
    // AddClientIDToOpenIDConnectProvider, IAM API reference.
    let is_audience =
        |text: &String| (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    if let Some(audience) = audience.as_ref().filter(|audience| !is_audience(audience)) {
        let problem = "is not 1 to 255 characters without white space";
        return Err(ParameterError::bad(AUDIENCE, audience, problem, "write one of the provider's client ids"));
    }
    Ok(Some(Oidc { provider, audience: audience.unwrap_or_else(|| DEFAULT_AUDIENCE.to_owned()) }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ARN: &str = "arn:aws:iam::123456789012:oidc-provider/oidc.eks.eu-central-1.amazonaws.com/id/ABC";

    fn parse(provider: Option<&str>, audience: Option<&str>) -> Result<Option<Oidc>, String> {
        let parsed = oidc(Authentication::ServiceAccount, (provider, audience.map(str::to_owned)), Some("aws"), false);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn a_provider_is_an_arn_of_iam() {
        let parsed = parse(Some(ARN), None).unwrap().unwrap();
        assert_eq!(parsed.audience, DEFAULT_AUDIENCE);
        let provider = parsed.provider;
        assert_eq!(
            (provider.partition(), provider.account(), provider.issuer()),
            ("aws", "123456789012", "oidc.eks.eu-central-1.amazonaws.com/id/ABC")
        );
        for (provider, audience, expected) in [
            (None, None, PROVIDER),
            (Some("https://oidc.example.com"), None, "not the ARN"),
            (Some("arn:aws:iam::1234:oidc-provider/x"), None, "not the ARN"),
            (Some("arn:aws:iam::123456789012:role/x"), None, "not the ARN"),
            (Some("arn:aws:iam::123456789012:oidc-provider/a\"b"), None, "not the ARN"),
            (Some("arn:aws-cn:iam::123456789012:oidc-provider/x"), None, "another partition"),
            (Some(ARN), Some("a b"), AUDIENCE),
        ] {
            let refused = parse(provider, audience).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn the_policy_of_a_claim_names_it() {
        let uid = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";
        let claim = |name: String| ClaimId { namespace: "shop".into(), name, uid: uid.into() };
        let name = policy_name(&claim("raw.photos".into()));
        assert_eq!(claim_of(&name), Some(("raw.photos", uid)));
        let long = policy_name(&claim("n".repeat(253)));
        assert_eq!((long.len(), claim_of(&long).map(|(_, uid)| uid)), (POLICY_MAX, Some(uid)));
        assert_eq!((claim_of("by-hand"), claim_of(uid)), (None, None));
    }

    #[test]
    fn keys_need_no_provider() {
        let with_keys = |provider, audience: Option<&str>| {
            oidc(Authentication::Key, (provider, audience.map(str::to_owned)), None, false)
                .map_err(|error| error.to_string())
        };
        assert_eq!(with_keys(None, None), Ok(None));
        assert!(with_keys(Some(ARN), None).unwrap_err().contains(PROVIDER));
        assert!(with_keys(None, Some("x")).unwrap_err().contains(AUDIENCE));
    }

    #[test]
    fn each_service_account_has_a_role_of_its_own() {
        let oidc = parse(Some(ARN), None).unwrap().unwrap();
        let of = |account: [&str; 2]| oidc.role_name(account, "/buckets/", None);
        let name = of(["shop", "web"]);
        assert!(name.starts_with("shop-web-") && name.len() == "shop-web-".len() + DIGEST, "{name}");
        assert_eq!(name, of(["shop", "web"]));
        assert_ne!(of(["shop-web", "x"]), of(["shop", "web-x"]), "they look alike");
        let elsewhere = parse(Some(&format!("{ARN}D")), None).unwrap().unwrap();
        let audience = parse(Some(ARN), Some("other")).unwrap().unwrap();
        for other in [
            elsewhere.role_name(["shop", "web"], "/buckets/", None),
            audience.role_name(["shop", "web"], "/buckets/", None),
            oidc.role_name(["shop", "web"], "/", None),
            oidc.role_name(["shop", "web"], "/buckets/", Some("boundary")),
        ] {
            assert_ne!(other, name);
        }
        assert_eq!(of([&"n".repeat(63), &"s".repeat(253)]).len(), ROLE_MAX);
    }
}
