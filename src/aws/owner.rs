//! The owner: the AWS identity that the operator uses for a class.

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};

use super::call::Identity;
use super::error::Error;
use crate::provisioner::{AppCredentials, OwnerSource, Record};

const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// Owner credentials, parsed.
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
        let AppCredentials { access_key_id, secret_access_key, session_token } = credentials;
        Self { id: access_key_id.clone(), secret: secret_access_key.clone(), token: session_token.clone() }
    }
}

impl Owner {
    /// Parses the source that a record refers to.
    ///
    /// # Errors
    /// A Secret without usable keys; and the ambient identity if the record names a Secret, because there is no silent
    /// fallback to the operator's own, often wider, permissions.
    pub(crate) fn parse(record: &Record, source: OwnerSource) -> Result<Self, Error> {
        match (source, &record.plan.owner_secret) {
            (OwnerSource::Ambient, None) => Ok(Self { identity: Identity::Ambient, keys: None }),
            (OwnerSource::Ambient, Some(reference)) => Err(Error::InvalidOwnerSecret {
                secret: reference.clone(),
                problem: "was not read, and the operator's own identity does not replace it".to_owned(),
            }),
            (OwnerSource::Secret { reference, data }, _) => {
                let keys = static_keys(&data)
                    .map_err(|problem| Error::InvalidOwnerSecret { secret: reference.clone(), problem })?;
                Ok(Self { identity: Identity::Secret(reference), keys: Some(keys) })
            }
        }
    }

    /// The owner's keys, for the app.
    ///
    /// # Errors
    /// The ambient identity cannot be shared, because its credentials are temporary.
    pub(crate) fn share(&self) -> Result<AppCredentials, Error> {
        let StaticKeys { id, secret, token } = self.keys.clone().ok_or(Error::NothingToShare)?;
        Ok(AppCredentials { access_key_id: id, secret_access_key: secret, session_token: token })
    }
}

fn static_keys(data: &BTreeMap<String, Vec<u8>>) -> Result<StaticKeys, String> {
    let entry = |key: &str| match data.get(key) {
        Some(value) => text(key, value).map(Some),
        None => Ok(None),
    };
    let needed = |key: &str| entry(key)?.ok_or_else(|| format!("has no key {key}; add it"));
    Ok(StaticKeys {
        id: needed(ACCESS_KEY_ID)?,
        secret: needed(SECRET_ACCESS_KEY)?.into(),
        token: entry(SESSION_TOKEN)?.map(Into::into),
    })
}

fn text(key: &str, value: &[u8]) -> Result<String, String> {
    let value = std::str::from_utf8(value).map_err(|_| format!("has a {key} that is not text; set it again"))?;
    if value.is_empty() {
        Err(format!("has an empty {key}; set it"))
    } else if value.contains(char::is_whitespace) {
        Err(format!("has white space in its {key}; set it without (`echo` adds a line end, `printf` does not)"))
    } else if value.contains(char::is_control) {
        Err(format!("has a control character in its {key}; set it again"))
    } else {
        Ok(value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aws::testing::record;
    use crate::provisioner::SecretRef;

    fn owner(entries: &[(&str, &str)]) -> Result<Owner, Error> {
        let data = entries.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let reference = SecretRef { namespace: "ops".into(), name: "keys".into() };
        Owner::parse(&record(), OwnerSource::Secret { reference, data })
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
            (&[(ACCESS_KEY_ID, "a")][..], "Secret ops/keys has no key AWS_SECRET_ACCESS_KEY"),
            (&[(ACCESS_KEY_ID, ""), (SECRET_ACCESS_KEY, "b")], "an empty AWS_ACCESS_KEY_ID"),
            (&[(ACCESS_KEY_ID, "a"), (SECRET_ACCESS_KEY, "hunter2\n")], "white space in its AWS_SECRET_ACCESS_KEY"),
        ] {
            let message = owner(entries).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn a_record_that_names_a_secret_is_never_served_with_the_ambient_identity() {
        let mut record = record();
        record.plan.owner_secret = Some(SecretRef { namespace: "ops".into(), name: "keys".into() });
        assert!(Owner::parse(&record, OwnerSource::Ambient).is_err());
    }

    #[test]
    fn the_ambient_identity_is_not_shared() {
        assert!(Owner { identity: Identity::Ambient, keys: None }.share().is_err());
    }
}
