//! How the apps of claims prove who they are: with keys, or as a ServiceAccount. The class parameter, and what is recorded of
//! it. [`service_account`](crate::decide::service_account) decides what a claim gets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::capabilities::Capabilities;
use super::parameter::{Parameter, ParameterError, names_of, read, table_of};
use crate::api::wire::state::{SERVICE_ACCOUNT_NAME, TOKEN_AUDIENCE};

/// What an admin wrote.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Raw {
    /// How apps authenticate. `Key`: with the keys in the claim's Secret. `ServiceAccount`: without keys, as the
    /// [ServiceAccount that the claim names](#settings-of-a-claim); excludes `rotateKeysEvery`.
    #[schemars(extend("default" = "`Key`"))]
    authentication: Option<String>,
}

/// The class parameter.
pub(crate) const AUTHENTICATION: &str = "authentication";

/// How the apps of claims prove who they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Authentication {
    /// With keys in the claim's Secret.
    #[default]
    Key,
    /// As the ServiceAccount that the claim names; the store trusts the cluster.
    ServiceAccount,
}

impl Authentication {
    const ALL: [Self; 2] = [Self::Key, Self::ServiceAccount];

    /// The word in classes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "Key",
            Self::ServiceAccount => "ServiceAccount",
        }
    }

    pub(super) fn names(has: Capabilities) -> &'static [&'static str] {
        if has.service_accounts { names_of::<Raw>() } else { &[] }
    }

    pub(super) fn table(has: Capabilities) -> Vec<Parameter> {
        if has.service_accounts { table_of::<Raw>() } else { Vec::new() }
    }

    /// Parses what an admin wrote. Other parameters do not matter. `rotates`: the class has `rotateKeysEvery`.
    pub(super) fn parse(
        written: &BTreeMap<String, String>,
        has: Capabilities,
        rotates: bool,
    ) -> Result<Self, ParameterError> {
        if !has.service_accounts {
            return Ok(Self::default());
        }
        let raw: Raw = read(written)?;
        let Some(text) = raw.authentication else { return Ok(Self::default()) };
        let bad = |problem, remedy| Err(ParameterError::bad(AUTHENTICATION, &text, problem, remedy));
        match Self::ALL.into_iter().find(|known| known.as_str() == text) {
            Some(Self::ServiceAccount) if rotates => {
                bad("leaves claims without keys, but rotateKeysEvery rotates keys", "remove one of them")
            }
            Some(known) => Ok(known),
            None => bad("is not known", "write Key or ServiceAccount"),
        }
    }
}

/// The ServiceAccount as which the apps of a claim have access, in the claim's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceAccount {
    /// Its name.
    pub name: String,
    /// The audience of its tokens that the store accepts: the library requests one for
    /// [`probe`](super::Provisioner::probe). `None`: the store needs none.
    pub audience: Option<String>,
}

impl ServiceAccount {
    /// Whose tokens the store does not need.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), audience: None }
    }

    /// Whose tokens with this audience the store accepts.
    pub fn with_audience(self, audience: impl Into<String>) -> Self {
        Self { audience: Some(audience.into()), ..self }
    }

    /// What is recorded of it.
    pub(crate) fn recorded(this: Option<&Self>) -> impl Iterator<Item = (&'static str, String)> {
        let entries = |Self { name, audience }: &Self| {
            let audience = audience.clone().map(|audience| (TOKEN_AUDIENCE, audience));
            [Some((SERVICE_ACCOUNT_NAME, name.clone())), audience]
        };
        this.map(entries).into_iter().flatten().flatten()
    }

    /// Reads what is recorded, with a function that takes an entry.
    pub(crate) fn read_recorded(mut take: impl FnMut(&str) -> Option<String>) -> Option<Self> {
        let audience = take(TOKEN_AUDIENCE);
        take(SERVICE_ACCOUNT_NAME).map(|name| Self { name, audience })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HAS: Capabilities = Capabilities::NONE.with_service_accounts();

    fn parse(text: &str, rotates: bool) -> Result<Authentication, String> {
        let written = [(AUTHENTICATION.to_owned(), text.to_owned())].into();
        Authentication::parse(&written, HAS, rotates).map_err(|error| error.to_string())
    }

    #[test]
    fn a_class_says_how_apps_prove_who_they_are() {
        assert_eq!(Authentication::parse(&BTreeMap::new(), HAS, true), Ok(Authentication::Key));
        assert_eq!(parse("Key", true), Ok(Authentication::Key));
        assert_eq!(parse("ServiceAccount", false), Ok(Authentication::ServiceAccount));
        for (text, rotates, expected) in
            [("serviceaccount", false, "write Key or ServiceAccount"), ("ServiceAccount", true, "rotateKeysEvery")]
        {
            let refused = parse(text, rotates).unwrap_err();
            assert!(
                refused.contains(AUTHENTICATION) && refused.contains(text) && refused.contains(expected),
                "{refused}"
            );
        }
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let plain = ServiceAccount::new("web");
        for recorded in [None, Some(plain.clone()), Some(plain.with_audience("sts.example.com"))] {
            let mut entries: BTreeMap<_, _> = ServiceAccount::recorded(recorded.as_ref()).collect();
            assert_eq!(ServiceAccount::read_recorded(|key| entries.remove(key)), recorded);
        }
    }
}
