//! The values that class parameters can have; none can exist in a wrong state.

use std::fmt;

use url::Url;

/// Why the parameters of a class cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// A key that no parameter has.
    #[error("unknown parameter {name:?}; remove it, or use one of: {known}")]
    Unknown {
        /// The key, as written.
        name: String,
        /// All known keys, separated by commas.
        known: String,
    },
    /// A value that cannot be used.
    #[error("parameter {name}: {value:?} {problem}; {remedy}")]
    Bad {
        /// The key.
        name: &'static str,
        /// The value as written, less what may be secret.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What to write instead.
        remedy: &'static str,
    },
    /// A value that cannot be used, and that claims must not repeat: it may name an account or other tenants.
    #[error("parameter {name} {problem}; {remedy}")]
    Unshown {
        /// The key.
        name: &'static str,
        /// What is wrong with the value.
        problem: String,
        /// What to write instead.
        remedy: &'static str,
    },
    /// A parameter without the one that it needs.
    #[error("parameter {missing} is missing: {because}")]
    Missing {
        /// The key that is missing.
        missing: &'static str,
        /// Which other parameter asks for it.
        because: &'static str,
    },
    /// What serde says where nothing above fits; parameters are strings, so this should not be seen.
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

/// A region: an AWS region's name, or whatever the store behind an `s3Endpoint` calls its own.
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
        // Stores of other makers name their regions freely ("garage", "default").
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
        // What stands before an '@' may be a password.
        let shown = if value.contains('@') { "(not shown)" } else { value };
        let refused = |problem: &str| bad(name, shown, problem, remedy);
        let url = Url::parse(value).map_err(|error| refused(&format!("is no URL ({error})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused("is neither an http nor an https URL"));
        }
        if value.contains('@') {
            return Err(refused("holds credentials, which belong into the class's Secret"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refused("holds a query or a fragment"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refused("names no host"));
        }
        Ok(Self { url })
    }

    /// The URL without a slash at its end, as SDKs take it.
    pub fn as_str(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// DNS name or address. An IPv6 address stands in brackets.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// TCP port, that of the scheme if the URL has none.
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
            "holds a character outside '!' to '~'"
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

/// The ARN of an IAM policy, customer managed or of AWS.
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
