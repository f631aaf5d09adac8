//! The values of class parameters, checked when they are parsed.

use url::Url;

use bucket_provisioner::store::{ParameterError, RoleRef};

/// A region: of AWS, or whatever name the store behind an `s3Endpoint` uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(String);

impl Region {
    pub(crate) fn parse(value: &str, store: Option<&EndpointUrl>) -> Result<Self, ParameterError> {
        let remedy = "write a region such as eu-central-1";
        let plain = (1..=63).contains(&value.len())
            && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !value.starts_with('-')
            && !value.ends_with('-');
        if !plain {
            return Err(ParameterError::bad("region", value, "does not look like a region", remedy));
        }
        // Other stores name their regions freely ("garage", "default").
        if store.is_none() && !looks_like_aws(value) {
            return Err(ParameterError::bad("region", value, "does not look like an AWS region", remedy));
        }
        Ok(Self(value.to_owned()))
    }

    /// The region's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `<letters>-<words>-<number>`, as every AWS region is named.
fn looks_like_aws(region: &str) -> bool {
    let parts: Vec<&str> = region.split('-').collect();
    let letters = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
    match parts.as_slice() {
        [words @ .., number] => {
            words.len() >= 2
                && words.iter().all(letters)
                && (1..=2).contains(&number.len())
                && number.bytes().all(|b| b.is_ascii_digit())
        }
        [] => false,
    }
}

/// An absolute http or https URL without query, fragment and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointUrl {
    url: Url,
}

impl EndpointUrl {
    /// Parses the value of the parameter or environment variable called `name`.
    ///
    /// # Errors
    /// Names the parameter, and the value unless it may hold a password.
    pub fn parse(name: &'static str, value: &str) -> Result<Self, ParameterError> {
        let remedy = "write an absolute URL such as https://s3.example.com:9000";
        // There may be a password before an '@'.
        let shown = if value.contains('@') { "(not shown)" } else { value };
        let refused = |problem: &str| ParameterError::bad(name, shown, problem, remedy);
        let url = Url::parse(value).map_err(|error| refused(&format!("is not a URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("is neither an http nor an https URL"));
        }
        if value.contains('@') {
            return Err(refused("contains credentials, which belong in the class's Secret"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("contains a query or a fragment"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refused("has no host"));
        }
        Ok(Self { url })
    }

    /// The URL without a slash at its end, as SDKs expect it.
    pub fn as_str(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// DNS name or address, an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// TCP port; the default one of the scheme if the URL has none.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(443)
    }
}

/// The path of an IAM user: begins and ends with `/`, at most 512 characters (IAM API reference, CreateUser).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IamPath(String);

impl IamPath {
    pub(crate) fn parse(value: &str) -> Result<Self, ParameterError> {
        let remedy = "write a path such as /aws-s3-provisioner/";
        let problem = if !(value.starts_with('/') && value.ends_with('/')) {
            "does not begin and end with '/'"
        } else if value.len() > 512 {
            "is longer than 512 characters"
        } else if !value.bytes().all(|b| (b'!'..=b'~').contains(&b)) {
            "contains white space or a character outside ASCII"
        } else {
            return Ok(Self(value.to_owned()));
        };
        Err(ParameterError::bad("iamPath", value, problem, remedy))
    }

    /// The path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The ARN of an IAM policy, managed by the customer or by AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyArn(String);

impl PolicyArn {
    pub(crate) fn parse(value: &str) -> Result<Self, ParameterError> {
        let is_owner = |account: &str| account == "aws" || is_account(account);
        if is_arn_of_iam(value, "policy/", &is_owner) && !value.ends_with('/') {
            Ok(Self(value.to_owned()))
        } else {
            let remedy = "write an ARN such as arn:aws:iam::123456789012:policy/bucket-users";
            Err(unshown("permissionsBoundary", "is not the ARN of an IAM policy", remedy))
        }
    }

    /// The ARN.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The role that the provisioning credentials assume: `ownerRole` and `ownerRoleExternalId`. `None`: no role is assumed.
/// `partition`: that of the class's region, if it is one of AWS.
pub(crate) fn owner_role(
    arn: Option<String>,
    external_id: Option<String>,
    partition: Option<&str>,
) -> Result<Option<RoleRef>, ParameterError> {
    if arn.as_deref().is_some_and(|arn| !is_arn_of_iam(arn, "role/", &is_account) || arn.ends_with('/')) {
        let remedy = "write an ARN such as arn:aws:iam::123456789012:role/buckets";
        return Err(unshown("ownerRole", "is not the ARN of an IAM role", remedy));
    }
    let of_arn = arn.as_deref().and_then(partition_of);
    if of_arn.zip(partition).is_some_and(|(of_arn, partition)| of_arn != partition) {
        return Err(unshown("ownerRole", OTHER_PARTITION, "name a role of the same partition"));
    }
    // AssumeRole, STS API reference.
    let is_external_id = |id: &str| {
        (2..=1224).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+=,.@:/-".contains(&byte))
    };
    if external_id.as_deref().is_some_and(|id| !is_external_id(id)) {
        let problem = "is not 2 to 1,224 letters, digits and _+=,.@:/-";
        return Err(unshown("ownerRoleExternalId", problem, "write what the trust policy of the role demands"));
    }
    match (arn.map(RoleRef::new), external_id) {
        (None, Some(_)) => {
            Err(ParameterError::missing("ownerRole", "ownerRoleExternalId applies only to a role that is assumed"))
        }
        (role, None) => Ok(role),
        (role, Some(id)) => Ok(role.map(|role| role.with_external_id(id))),
    }
}

/// The partition of an ARN.
pub(crate) fn partition_of(arn: &str) -> Option<&str> {
    arn.split(':').nth(1)
}

/// About a value that is not repeated, because it may name an account.
pub(crate) fn unshown(name: &'static str, problem: &str, remedy: &'static str) -> ParameterError {
    ParameterError::Unshown { name: name.into(), problem: problem.to_owned(), remedy: remedy.into() }
}

/// The problem of an ARN.
pub(crate) const OTHER_PARTITION: &str =
    "is of another partition than the region of the class, and AWS shares nothing between them";

/// `arn:<partition>:iam::<account>:<kind><path and name>`.
pub(crate) fn is_arn_of_iam(value: &str, kind: &str, is_owner: &dyn Fn(&str) -> bool) -> bool {
    let parts: Vec<&str> = value.splitn(6, ':').collect();
    matches!(parts.as_slice(), ["arn", partition, "iam", "", account, resource]
        if (*partition == "aws" || partition.starts_with("aws-"))
            && is_owner(account)
            && resource.strip_prefix(kind).is_some_and(|name| !name.is_empty())
            && resource.bytes().all(|b| b.is_ascii_graphic()))
}

pub(crate) fn is_account(value: &str) -> bool {
    value.len() == 12 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a claim gets access to a bucket that was created for another claim: `allowClaimedBucket`.
///
/// A tenant could create the bucket that an admin's class names before the admin does. The tenant could then read what
/// others write into it, and the bucket would be deleted with the tenant's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimedBucket {
    /// "no", the default.
    Refused,
    /// "yes": the admin knows whose it is.
    Allowed,
}

/// Whose keys a claim's app gets: `createBucketUser`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialsMode {
    /// "yes": an IAM user of its own.
    OwnUser,
    /// "no": the provisioning credentials.
    ShareOwner,
}

/// How buckets are addressed: `forcePathStyle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// By host name, `bucket.s3.example`; the default.
    Host,
    /// By path, `s3.example/bucket`.
    Path,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for url in ["https://me:hunter2@s3.example", "me:hunter2@s3.example", "https://me:hunter2@s3 example"] {
            let message = EndpointUrl::parse("s3Endpoint", url).unwrap_err().to_string();
            assert!(message.starts_with("parameter s3Endpoint"), "{message}");
            assert!(!message.contains("hunter2") && !message.contains("me:"), "{message}");
        }
    }

    #[test]
    fn an_endpoint_has_a_host_and_a_port() {
        let url = EndpointUrl::parse("s3Endpoint", "http://127.0.0.1:5810/").unwrap();
        assert_eq!((url.as_str(), url.host(), url.port()), ("http://127.0.0.1:5810", "127.0.0.1", 5810));
        let url = EndpointUrl::parse("s3Endpoint", "https://s3.example").unwrap();
        assert_eq!((url.host(), url.port()), ("s3.example", 443));
    }
}
