//! The values of class parameters, checked when they are parsed, and what is wrong with a value.

use std::fmt;

use url::Url;

/// Why the parameters of a class cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ParameterError {
    /// A parameter that does not exist. `known` lists all that do.
    #[error("unknown parameter {name:?}; remove it, or use one of: {known}")]
    Unknown { name: String, known: String },
    /// A value that cannot be used. `value` is shown, so it must contain no secret.
    #[error("parameter {name}: {value:?} {problem}; {remedy}")]
    Bad { name: &'static str, value: String, problem: String, remedy: &'static str },
    /// A value that cannot be used and is not repeated on claims, because it may name an account or other tenants.
    #[error("parameter {name} {problem}; {remedy}")]
    Unshown { name: &'static str, problem: String, remedy: &'static str },
    /// A parameter without another one that it needs.
    #[error("parameter {missing} is missing: {because}")]
    Missing { missing: &'static str, because: &'static str },
    /// Any other error of serde. Parameters are strings, so this should not happen.
    #[error("the parameters cannot be read: {0}")]
    Unreadable(String),
}

impl serde::de::Error for ParameterError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Unreadable(message.to_string())
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::Unknown { name: field.to_owned(), known: expected.join(", ") }
    }
}

pub(super) fn bad(name: &'static str, value: &str, problem: impl Into<String>, remedy: &'static str) -> ParameterError {
    ParameterError::Bad { name, value: value.to_owned(), problem: problem.into(), remedy }
}

/// Reads a parameter that is "yes" or "no"; `default` counts where it is left out.
pub(super) fn yes_or_no(name: &'static str, value: Option<&str>, default: bool) -> Result<bool, ParameterError> {
    match value {
        None => Ok(default),
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(other) => Err(bad(name, other, "is neither yes nor no", "write \"yes\" or \"no\"")),
    }
}

/// A region: of AWS, or whatever name the store behind an `s3Endpoint` uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(String);

impl Region {
    pub(super) fn parse(value: &str, store: Option<&EndpointUrl>) -> Result<Self, ParameterError> {
        let remedy = "write a region such as eu-central-1";
        let plain = (1..=63).contains(&value.len())
            && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !value.starts_with('-')
            && !value.ends_with('-');
        if !plain {
            return Err(bad("region", value, "does not look like a region", remedy));
        }
        // Other stores name their regions freely ("garage", "default").
        if store.is_none() && !looks_like_aws(value) {
            return Err(bad("region", value, "does not look like an AWS region", remedy));
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
        let refused = |problem: &str| bad(name, shown, problem, remedy);
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
    pub(super) fn parse(value: &str) -> Result<Self, ParameterError> {
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
        Err(bad("iamPath", value, problem, remedy))
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
    pub(super) fn parse(value: &str) -> Result<Self, ParameterError> {
        let parts: Vec<&str> = value.splitn(6, ':').collect();
        let is_arn = matches!(parts.as_slice(), ["arn", partition, "iam", "", account, resource]
            if (*partition == "aws" || partition.starts_with("aws-"))
                && (*account == "aws" || (account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit())))
                && resource.strip_prefix("policy/").is_some_and(|name| !name.is_empty() && !name.ends_with('/'))
                && resource.bytes().all(|b| b.is_ascii_graphic()));
        if is_arn {
            Ok(Self(value.to_owned()))
        } else {
            Err(ParameterError::Unshown {
                name: "permissionsBoundary",
                problem: "is not the ARN of an IAM policy".to_owned(),
                remedy: "write an ARN such as arn:aws:iam::123456789012:policy/bucket-users",
            })
        }
    }

    /// The ARN.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Namespaces by name or prefix: `allowedNamespaces`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces(Vec<String>);

impl Namespaces {
    pub(super) fn parse(value: &str) -> Result<Self, ParameterError> {
        let patterns: Vec<_> = value.split(',').map(|pattern| pattern.trim().to_owned()).collect();
        let fits = |pattern: &String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            !pattern.is_empty()
                && name.len() <= 63
                && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        match patterns.iter().position(|pattern| !fits(pattern)) {
            None => Ok(Self(patterns)),
            Some(index) => Err(ParameterError::Unshown {
                name: "allowedNamespaces",
                problem: format!(
                    "cannot be used: entry {} is neither the name of a namespace nor a prefix with '*'",
                    index + 1
                ),
                remedy: "write names and prefixes, separated by commas, such as \"shop,team-*\"",
            }),
        }
    }

    /// Whether a namespace is one of these.
    pub fn contain(&self, namespace: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => namespace.starts_with(prefix),
            None => namespace == pattern,
        })
    }
}

/// How claims can name their new buckets: `explicitNames` and `bucketNamePrefix`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// Whether a claim can choose the whole name.
    pub explicit: bool,
    /// What each name must start with; empty for anything.
    pub prefix: String,
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
    /// "no": the owner's keys.
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
