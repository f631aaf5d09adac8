//! What the keys of claims may do in the bucket: the class parameters, and what is recorded of them and of a claim's own
//! setting. [`access`](crate::decide::access) decides what a claim gets.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::capabilities::Capabilities;
use super::parameter::{Parameter, ParameterError, names_of, read, table_of};
use super::variables;
use crate::api::wire::state::{ACCESS_MODE, CLASS_ACCESS_MODE, PREFIX};

/// What an admin wrote about modes.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RawMode {
    /// The most that [apps may do](#what-an-app-may-do): `ReadWrite`, `ReadOnly` (needs `bucketName`) or `WriteOnly`.
    /// Claims may ask for less.
    #[schemars(extend("default" = "`ReadWrite`"))]
    access_mode: Option<String>,
}

/// What an admin wrote about prefixes.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct RawPrefix {
    /// Prefix of the object keys that a claim may use in `bucketName`, such as `teams/${namespace}/`, with `/` at the
    /// end. `${namespace}`, `${claim}` and `${uid}` are those of the claim.
    #[schemars(extend("default" = "none"))]
    prefix: Option<String>,
}

/// What keys may do with objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// Read, write and delete.
    #[default]
    ReadWrite,
    /// List and read.
    ReadOnly,
    /// Write, and nothing else. Objects can be overwritten.
    WriteOnly,
}

impl AccessMode {
    const ALL: [Self; 3] = [Self::ReadWrite, Self::ReadOnly, Self::WriteOnly];

    /// The word in classes, claims and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadWrite => "ReadWrite",
            Self::ReadOnly => "ReadOnly",
            Self::WriteOnly => "WriteOnly",
        }
    }

    /// Whether it allows all that the other mode allows.
    pub fn includes(self, other: Self) -> bool {
        self == Self::ReadWrite || self == other
    }

    /// What both allow; `None`: nothing.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        match () {
            () if self.includes(other) => Some(other),
            () if other.includes(self) => Some(self),
            () => None,
        }
    }

    /// Whether objects can be listed and read.
    pub fn reads(self) -> bool {
        self != Self::WriteOnly
    }

    /// Whether objects can be written.
    pub fn writes(self) -> bool {
        self != Self::ReadOnly
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The word is none of a mode. `Display` is the problem and the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an access mode; write ReadWrite, ReadOnly or WriteOnly")]
pub struct InvalidAccessMode;

impl FromStr for AccessMode {
    type Err = InvalidAccessMode;

    fn from_str(text: &str) -> Result<Self, InvalidAccessMode> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or(InvalidAccessMode)
    }
}

/// What the keys of a claim may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// With objects.
    pub mode: AccessMode,
    /// The most that the class allowed when the claim was planned.
    pub most: AccessMode,
    /// How the keys of these objects begin; ends with `/`. `None`: all objects of the bucket.
    pub prefix: Option<String>,
}

impl Access {
    /// Of a class that allows this mode at most, to all objects.
    pub fn of_mode(mode: AccessMode) -> Self {
        Self { mode, most: mode, ..Self::default() }
    }

    /// To objects whose keys begin with a prefix.
    pub fn with_prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: Some(prefix.into()), ..self }
    }

    /// Whether it is everything that a bucket has.
    pub fn is_full(&self) -> bool {
        self.mode == AccessMode::ReadWrite && self.prefix.is_none()
    }

    /// What is recorded of it; nothing of full access.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (&'static str, String)> {
        // Without `..`, so that a new field cannot be forgotten here.
        let Self { mode, most, prefix } = self;
        let unless_default = |key, mode: &AccessMode| (*mode != AccessMode::default()).then(|| (key, mode.to_string()));
        let entries = [
            unless_default(ACCESS_MODE, mode),
            unless_default(CLASS_ACCESS_MODE, most),
            prefix.clone().map(|prefix| (PREFIX, prefix)),
        ];
        entries.into_iter().flatten()
    }

    /// Reads what is recorded, with a function that takes an entry.
    ///
    /// # Errors
    /// The key and the value that cannot be used, and why.
    pub(crate) fn read_recorded(mut take: impl FnMut(&str) -> Option<String>) -> Result<Self, String> {
        let mut mode = |key: &str| match take(key) {
            None => Ok(AccessMode::default()),
            Some(value) => value.parse().map_err(|why| format!("spec.additionalState.{key} is {value:?}, which {why}")),
        };
        let (mode, most) = (mode(ACCESS_MODE)?, mode(CLASS_ACCESS_MODE)?);
        Ok(Self { mode, most, prefix: take(PREFIX) })
    }
}

/// `prefix`: a text with variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(String);

impl Prefix {
    fn parse(text: &str) -> Result<Self, ParameterError> {
        let rest = variables::removed(text);
        // Both can contain what stands between them.
        let is_ambiguous =
            |part: &str| part.contains("${namespace}") && part.contains("${claim}") && !part.contains("${uid}");
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!-_.'()/".contains(&byte);
        let problem = match text {
            _ if !text.ends_with('/') => "does not end with '/'",
            _ if text.starts_with('/') => "begins with '/'",
            _ if text.contains("//") => "has an empty part between two '/'",
            _ if text.split('/').any(is_ambiguous) => {
                "has ${namespace} and ${claim} in one part, so two claims can have the same"
            }
            _ if text.contains("${claim}") && !text.contains("${namespace}") && !text.contains("${uid}") => {
                "has ${claim} without ${namespace}, so claims of two namespaces can have the same"
            }
            _ if rest.contains('$') => "has a variable other than ${namespace}, ${claim} and ${uid}",
            // Others have a meaning in policies, or need to be encoded ("Naming Amazon S3 objects", S3 user guide).
            _ if !rest.bytes().all(is_plain) => "has a character other than letters, digits and !-_.'()/",
            _ => return Ok(Self(text.to_owned())),
        };
        Err(ParameterError::bad("prefix", text, problem, "write a prefix such as \"teams/${namespace}/\""))
    }

    /// The prefix for a claim.
    fn of(&self, claim: [&str; 3]) -> String {
        variables::replaced(&self.0, claim)
    }
}

/// The class parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassAccess {
    /// `accessMode`: the most that a claim gets.
    pub mode: AccessMode,
    /// `prefix`: which objects a claim gets; `None` for all.
    pub prefix: Option<Prefix>,
}

impl ClassAccess {
    pub(super) fn names(has: Capabilities) -> impl Iterator<Item = &'static str> {
        let modes = if has.access_modes { names_of::<RawMode>() } else { &[] };
        let prefixes = if has.prefixes { names_of::<RawPrefix>() } else { &[] };
        modes.iter().chain(prefixes).copied()
    }

    pub(super) fn table(has: Capabilities) -> impl Iterator<Item = Parameter> {
        let modes = has.access_modes.then(table_of::<RawMode>);
        let prefixes = has.prefixes.then(table_of::<RawPrefix>);
        [modes, prefixes].into_iter().flatten().flatten()
    }

    /// Parses what an admin wrote. Other parameters do not matter. `names_bucket`: the class has `bucketName`.
    pub(super) fn parse(
        written: &BTreeMap<String, String>,
        has: Capabilities,
        names_bucket: bool,
    ) -> Result<Self, ParameterError> {
        let (mut mode, mut prefix) = (AccessMode::default(), None);
        if let Some(text) =
            has.access_modes.then(|| read::<RawMode>(written)).transpose()?.and_then(|raw| raw.access_mode)
        {
            mode = text.parse().map_err(|InvalidAccessMode| {
                let remedy = "write ReadWrite, ReadOnly or WriteOnly";
                ParameterError::bad("accessMode", &text, "is not an access mode", remedy)
            })?;
            if mode == AccessMode::ReadOnly && !names_bucket {
                return Err(ParameterError::missing(
                    "bucketName",
                    "accessMode is ReadOnly, and nobody could write into a new bucket",
                ));
            }
        }
        if let Some(text) = has.prefixes.then(|| read::<RawPrefix>(written)).transpose()?.and_then(|raw| raw.prefix) {
            if !names_bucket {
                let why = "prefix applies only to an existing bucket that the class names";
                return Err(ParameterError::missing("bucketName", why));
            }
            prefix = Some(Prefix::parse(&text)?);
        }
        Ok(Self { mode, prefix })
    }

    /// What a claim of this namespace, name and uid gets that asks for nothing else.
    pub(crate) fn of(&self, claim: [&str; 3]) -> Access {
        let access = Access::of_mode(self.mode);
        Access { prefix: self.prefix.as_ref().map(|prefix| prefix.of(claim)), ..access }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ALL: Capabilities = Capabilities::NONE.with_access_modes().with_prefixes();

    fn parse(entries: &[(&str, &str)], names_bucket: bool) -> Result<ClassAccess, ParameterError> {
        let written = entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ClassAccess::parse(&written, ALL, names_bucket)
    }

    #[test]
    fn a_mode_includes_itself_and_the_full_one_all() {
        for mode in AccessMode::ALL {
            assert!(AccessMode::ReadWrite.includes(mode) && mode.includes(mode));
            assert_eq!(mode.as_str().parse(), Ok(mode));
        }
        assert!(!AccessMode::ReadOnly.includes(AccessMode::WriteOnly));
        assert!(!AccessMode::WriteOnly.includes(AccessMode::ReadWrite));
    }

    #[test]
    fn a_bad_value_names_parameter_value_and_remedy() {
        for (name, value, remedy) in [
            ("accessMode", "readOnly", "write ReadWrite, ReadOnly or WriteOnly"),
            ("prefix", "teams", "teams/${namespace}/"),
            ("prefix", "/teams/", "teams/${namespace}/"),
            ("prefix", "teams//a/", "teams/${namespace}/"),
            ("prefix", "${team}/", "${namespace}, ${claim} and ${uid}"),
            ("prefix", "teams*/", "letters, digits"),
            ("prefix", "${namespace}-${claim}/", "two claims can have the same"),
            ("prefix", "teams/${claim}/", "claims of two namespaces can have the same"),
        ] {
            let message = parse(&[(name, value)], true).unwrap_err().to_string();
            assert!(message.starts_with(&format!("parameter {name}: {value:?} ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
        for given in [("accessMode", "ReadOnly"), ("prefix", "teams/")] {
            let message = parse(&[given], false).unwrap_err().to_string();
            assert!(message.starts_with("parameter bucketName is missing"), "{message}");
        }
        assert_eq!(parse(&[("accessMode", "WriteOnly")], false).unwrap().mode, AccessMode::WriteOnly);
    }

    #[test]
    fn the_variables_of_a_prefix_are_those_of_the_claim() {
        let prefix = parse(&[("prefix", "a/${namespace}/${claim}-${uid}/")], true).unwrap().prefix.unwrap();
        assert_eq!(prefix.of(["shop", "photos", "u-1"]), "a/shop/photos-u-1/");
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let limited = Access { mode: AccessMode::ReadOnly, ..Access::default() };
        for access in [Access::default(), Access::of_mode(AccessMode::WriteOnly), limited.with_prefix("a/")] {
            let mut state: BTreeMap<_, _> = access.recorded().collect();
            assert_eq!(Access::read_recorded(|key| state.remove(key)), Ok(access));
        }
        let bad = Access::read_recorded(|key| (key == ACCESS_MODE).then(|| "Read".to_owned())).unwrap_err();
        assert!(bad.starts_with("spec.additionalState.accessMode is \"Read\", which is not an access mode"), "{bad}");
    }
}
