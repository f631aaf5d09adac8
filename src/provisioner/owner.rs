//! The owner's credentials.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;

use super::record::SecretRef;
use super::written::{self, Problem};

/// The owner's credentials, parsed and checked. Every struct that implements `serde::Deserialize` is such a type: each
/// field is a key of the owner's Secret; a `secrecy::SecretString` keeps its value out of logs. `()` is a store that needs
/// no credentials.
pub trait Owner: Sized + Send + Sync + 'static {
    /// Parses the credentials. Pure.
    ///
    /// # Errors
    /// What is wrong and the remedy, never a value, as in "has no key ACCESS_KEY; add it".
    fn parse(source: &OwnerSource) -> Result<Self, String>;
}

impl<T: DeserializeOwned + Send + Sync + 'static> Owner for T {
    fn parse(source: &OwnerSource) -> Result<Self, String> {
        if let OwnerSource::Secret { data, .. } = source {
            for key in written::fields::<T>() {
                data.get(*key).map_or(Ok(()), |value| padded(key, value))?;
            }
        }
        let texts = match source {
            OwnerSource::Ambient => BTreeMap::new(),
            OwnerSource::Secret { data, .. } => data
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), std::str::from_utf8(value).ok()?.to_owned())))
                .collect(),
        };
        written::read(&texts).map_err(|problem| match (problem, source) {
            (Problem::Missing(key), OwnerSource::Secret { data, .. }) if data.contains_key(&key) => {
                format!("has a {key} that is not text; set it again")
            }
            (Problem::Missing(key), _) => format!("has no key {key}; add it"),
            // The problem may repeat the value.
            (Problem::Bad(key, _), _) => format!("has a {key} that cannot be used; set it again"),
            (Problem::Other(_), _) => "cannot be read; create it again".to_owned(),
        })
    }
}

/// Refuses a value that is empty, or one line with white space around it.
fn padded(key: &str, value: &[u8]) -> Result<(), String> {
    let Ok(text) = std::str::from_utf8(value) else { return Ok(()) };
    let line = text.trim();
    if line.is_empty() {
        Err(format!("has an empty {key}; set it"))
    } else if line != text && !line.contains('\n') {
        Err(format!("has white space around its {key}; set it without (`echo` adds a line end, `printf` does not)"))
    } else {
        Ok(())
    }
}

/// Checks a key of a Secret that is a word: text without white space, as keys of stores are.
///
/// # Errors
/// What is wrong and the remedy, without the value.
pub fn word<'a>(key: &str, value: &'a [u8]) -> Result<&'a str, String> {
    let value = std::str::from_utf8(value).map_err(|_| format!("has a {key} that is not text; set it again"))?;
    if value.is_empty() {
        Err(format!("has an empty {key}; set it"))
    } else if value.contains(char::is_whitespace) {
        Err(format!("has white space in its {key}; set it without (`echo` adds a line end, `printf` does not)"))
    } else if value.contains(char::is_control) {
        Err(format!("has a control character in its {key}; set it again"))
    } else {
        Ok(value)
    }
}

/// The data of the owner's Secret, if the class names one; see [`Owner::parse`].
pub enum OwnerSource {
    /// The class names no Secret: the operator's own identity is used.
    Ambient,
    /// The Secret that the class names.
    Secret {
        /// Its name, for messages.
        reference: SecretRef,
        /// Its `data`, decoded from base64.
        data: BTreeMap<String, Vec<u8>>,
    },
}

impl fmt::Debug for OwnerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambient => f.write_str("Ambient"),
            Self::Secret { reference, .. } => write!(f, "Secret({reference})"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use secrecy::{ExposeSecret as _, SecretString};
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Admin {
        #[serde(rename = "TOKEN")]
        token: SecretString,
        #[serde(rename = "CA")]
        ca: Option<String>,
    }

    fn admin(entries: &[(&str, &str)]) -> Result<Admin, String> {
        let data = entries.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Admin::parse(&OwnerSource::Secret {
            reference: SecretRef { namespace: "ops".into(), name: "keys".into() },
            data,
        })
    }

    #[test]
    fn a_struct_is_read_and_other_keys_do_not_matter() {
        let admin = admin(&[("TOKEN", "t0ken"), ("CA", "-----\nline\n"), ("other", "")]).unwrap();
        assert_eq!((admin.token.expose_secret(), admin.ca.as_deref()), ("t0ken", Some("-----\nline\n")));
    }

    #[test]
    fn what_is_wrong_names_the_key_and_never_the_value() {
        for (entries, problem) in [
            (&[][..], "has no key TOKEN; add it"),
            (&[("TOKEN", "")], "has an empty TOKEN"),
            (&[("TOKEN", "hunter2\n")], "white space around its TOKEN"),
        ] {
            let refused = admin(entries).err().unwrap();
            assert!(refused.contains(problem) && !refused.contains("hunter2"), "{refused}");
        }
        assert_eq!(Admin::parse(&OwnerSource::Ambient).err().unwrap(), "has no key TOKEN; add it");
        assert!(<() as Owner>::parse(&OwnerSource::Ambient).is_ok());
    }
}
