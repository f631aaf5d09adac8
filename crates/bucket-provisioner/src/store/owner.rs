//! The provisioning credentials.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::DeserializeOwned;

use super::owner_ref::SecretRef;
use operator_runtime::parameters::written::{self, Problem};

/// The provisioning credentials, parsed and checked. Every struct that implements `serde::Deserialize` is such a type:
/// each field is a key of their Secret; a [`SecretString`](super::SecretString) keeps its value out of logs. `()` is a
/// store that needs no credentials.
///
/// ```
/// #[derive(serde::Deserialize)]
/// struct Admin {
///     #[serde(rename = "ADMIN_TOKEN")]
///     token: bucket_provisioner::store::SecretString,
/// }
///
/// fn authorization(owner: &Admin) -> String {
///     use bucket_provisioner::store::ExposeSecret as _;
///     format!("Bearer {}", owner.token.expose_secret())
/// }
/// # fn is_owner<T: bucket_provisioner::store::Owner>() {}
/// # is_owner::<Admin>();
/// # assert_eq!(authorization(&Admin { token: "secret".into() }), "Bearer secret");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the provisioning credentials",
    note = "derive `serde::Deserialize` for it, with a field for each key of the Secret"
)]
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
                data.get(*key).map(|value| text(key, value)).transpose()?;
            }
        }
        let texts = match source {
            OwnerSource::Ambient => BTreeMap::new(),
            OwnerSource::Secret { data, .. } => data
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), std::str::from_utf8(value).ok()?.to_owned())))
                .collect(),
        };
        written::read(&texts).map_err(|problem| match problem {
            Problem::Missing(key) => format!("has no key {key}; add it"),
            // The problem may repeat the value.
            Problem::Bad(key, _) => format!("has a {key} that cannot be used; set it again"),
            Problem::Other(_) => "cannot be read; create it again".to_owned(),
        })
    }
}

/// Checks a key of a Secret that is text: not empty, and if it is one line, without white space around it.
fn text<'a>(key: &str, value: &'a [u8]) -> Result<&'a str, String> {
    let text = std::str::from_utf8(value).map_err(|_| format!("has a {key} that is not text; set it again"))?;
    let line = text.trim();
    if line.is_empty() {
        Err(format!("has an empty {key}; set it"))
    } else if line != text && !line.contains('\n') {
        Err(format!("has white space around its {key}; set it without (`echo` adds a line end, `printf` does not)"))
    } else {
        Ok(text)
    }
}

/// Checks a value of a Secret that is one token: text without white space, as access keys are.
///
/// # Errors
/// What is wrong and the remedy, without the value.
pub fn word<'a>(key: &str, value: &'a [u8]) -> Result<&'a str, String> {
    let value = text(key, value)?;
    if value.contains(char::is_whitespace) {
        Err(format!("has white space in its {key}; set it without"))
    } else if value.contains(char::is_control) {
        Err(format!("has a control character in its {key}; set it again"))
    } else {
        Ok(value)
    }
}

/// The data of the Secret with the provisioning credentials, if the class names one; see [`Owner::parse`].
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
        let entries: Vec<_> = entries.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        admin_of(&entries)
    }

    fn admin_of(entries: &[(&str, &[u8])]) -> Result<Admin, String> {
        let data = entries.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec())).collect();
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
    fn a_word_has_no_white_space_at_all() {
        assert_eq!(word("TOKEN", b"t0ken"), Ok("t0ken"));
        for (value, problem) in [
            ("", "has an empty TOKEN"),
            (" ", "has an empty TOKEN"),
            ("hunter2\n", "has white space around its TOKEN"),
            ("hunter2 hunter2", "has white space in its TOKEN"),
            ("hunter2\nhunter2\n", "has white space in its TOKEN"),
            ("hunter2\u{7}", "has a control character in its TOKEN"),
        ] {
            let refused = word("TOKEN", value.as_bytes()).unwrap_err();
            assert!(refused.starts_with(problem) && !refused.contains("hunter2"), "{refused}");
        }
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
        for entries in [&[("TOKEN", &b"\xff"[..])][..], &[("TOKEN", b"t0ken"), ("CA", b"\xff")]] {
            assert!(admin_of(entries).err().unwrap().ends_with("that is not text; set it again"));
        }
        assert_eq!(Admin::parse(&OwnerSource::Ambient).err().unwrap(), "has no key TOKEN; add it");
        assert!(<() as Owner>::parse(&OwnerSource::Ambient).is_ok());
    }
}
