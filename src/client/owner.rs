//! The owner, in text "provisioning credentials": the AWS identity that the operator uses for a class.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use crate::client::call::Identity;
use crate::client::error::Error;
use bucket_provisioner::store::owner::word;
use bucket_provisioner::store::{AppCredentials, OwnerSource};

const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// Provisioning credentials, parsed.
#[derive(Debug)]
pub struct Owner {
    pub(crate) identity: Identity,
    /// `None` for the ambient identity.
    pub(crate) keys: Option<StaticKeys>,
}

/// An access key. It can be compared, and is never shown.
#[derive(Clone)]
pub(crate) struct StaticKeys {
    pub(crate) id: String,
    pub(crate) secret: SecretString,
    pub(crate) token: Option<SecretString>,
}

impl fmt::Debug for StaticKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticKeys(..)")
    }
}

impl PartialEq for StaticKeys {
    fn eq(&self, other: &Self) -> bool {
        let Self { id, secret, token } = self;
        *id == other.id
            && secret.expose_secret() == other.secret.expose_secret()
            && token.as_ref().map(ExposeSecret::expose_secret) == other.token.as_ref().map(ExposeSecret::expose_secret)
    }
}

impl From<&AppCredentials> for StaticKeys {
    fn from(credentials: &AppCredentials) -> Self {
        let AppCredentials { access_key_id, secret_access_key, session_token, .. } = credentials;
        Self { id: access_key_id.clone(), secret: secret_access_key.clone(), token: session_token.clone() }
    }
}

impl bucket_provisioner::store::Owner for Owner {
    fn parse(source: &OwnerSource) -> Result<Self, String> {
        match source {
            OwnerSource::Ambient => Ok(Self { identity: Identity::Ambient, keys: None }),
            OwnerSource::Secret { reference, data } => {
                Ok(Self { identity: Identity::Secret(reference.clone()), keys: Some(static_keys(data)?) })
            }
        }
    }
}

impl Owner {
    /// The provisioning credentials, for the app.
    ///
    /// # Errors
    /// The ambient identity cannot be shared, because its credentials are temporary.
    pub(crate) fn share(&self) -> Result<AppCredentials, Error> {
        let StaticKeys { id, secret, token } = self.keys.clone().ok_or(Error::NothingToShare)?;
        let credentials = AppCredentials::new(id, secret);
        Ok(match token {
            Some(token) => credentials.with_session_token(token),
            None => credentials,
        })
    }
}

fn static_keys(data: &BTreeMap<String, Vec<u8>>) -> Result<StaticKeys, String> {
    let entry = |key: &str| match data.get(key) {
        Some(value) => word(key, value).map(|word| Some(word.to_owned())),
        None => Ok(None),
    };
    let needed = |key: &str| entry(key)?.ok_or_else(|| format!("has no key {key}; add it"));
    Ok(StaticKeys {
        id: needed(ACCESS_KEY_ID)?,
        secret: needed(SECRET_ACCESS_KEY)?.into(),
        token: entry(SESSION_TOKEN)?.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bucket_provisioner::store::{Owner as _, SecretRef};

    fn owner(entries: &[(&str, &str)]) -> Result<Owner, String> {
        let data = entries.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let reference = SecretRef { namespace: "ops".into(), name: "keys".into() };
        Owner::parse(&OwnerSource::Secret { reference, data })
    }

    #[test]
    fn keys_are_read_and_never_shown() {
        let owner =
            owner(&[(ACCESS_KEY_ID, "AKIA1"), (SECRET_ACCESS_KEY, "hunter2"), (SESSION_TOKEN, "tok3n")]).unwrap();
        let shown = format!("{owner:?} {:?}", owner.share().unwrap());
        assert!(!shown.contains("hunter2") && !shown.contains("tok3n"), "{shown}");
        assert_eq!(owner.share().unwrap().secret_access_key.expose_secret(), "hunter2");
        assert_eq!(owner.share().unwrap().session_token.unwrap().expose_secret(), "tok3n");
    }

    #[test]
    fn a_missing_empty_or_padded_key_is_named_without_its_value() {
        for (entries, expected) in [
            (&[(ACCESS_KEY_ID, "a")][..], "has no key AWS_SECRET_ACCESS_KEY"),
            (&[(ACCESS_KEY_ID, ""), (SECRET_ACCESS_KEY, "b")], "an empty AWS_ACCESS_KEY_ID"),
            (&[(ACCESS_KEY_ID, "a"), (SECRET_ACCESS_KEY, "hunter2\n")], "white space around its AWS_SECRET_ACCESS_KEY"),
        ] {
            let message = owner(entries).unwrap_err();
            assert!(message.contains(expected) && !message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn the_ambient_identity_is_not_shared() {
        assert!(Owner { identity: Identity::Ambient, keys: None }.share().is_err());
    }
}
