//! Credentials for people that somebody gave a user, which the emulator does not have: SSH keys, signing certificates and
//! service-specific credentials.
//!
//! | rule | source |
//! |---|---|
//! | a user with any of them is not deleted | DeleteUser in the IAM API reference |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use provisioner_conformance::proxy::{Answer, plain};

use super::AwsCall;

/// A kind of them: the operations that list and delete it, the element of the list, and that of the id.
struct Kind {
    list: &'static str,
    delete: &'static str,
    elements: &'static str,
    id: &'static str,
    /// The other elements that the SDK requires.
    rest: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        list: "ListSSHPublicKeys",
        delete: "DeleteSSHPublicKey",
        elements: "SSHPublicKeys",
        id: "SSHPublicKeyId",
        rest: "<Status>Active</Status><UploadDate>2024-01-01T00:00:00Z</UploadDate>",
    },
    Kind {
        list: "ListSigningCertificates",
        delete: "DeleteSigningCertificate",
        elements: "Certificates",
        id: "CertificateId",
        rest: "<CertificateBody>-</CertificateBody><Status>Active</Status>",
    },
    Kind {
        list: "ListServiceSpecificCredentials",
        delete: "DeleteServiceSpecificCredential",
        elements: "ServiceSpecificCredentials",
        id: "ServiceSpecificCredentialId",
        rest: "<Status>Active</Status><CreateDate>2024-01-01T00:00:00Z</CreateDate><ServiceName>codecommit.amazonaws.com</ServiceName>",
    },
];

/// The users with such credentials, and which kinds they have.
#[derive(Default)]
pub(super) struct People {
    kinds: Mutex<BTreeMap<String, BTreeSet<usize>>>,
}

impl People {
    /// Gives a user one of each kind.
    pub(super) fn give(&self, user: &str) {
        self.kinds.lock().unwrap().insert(user.to_owned(), (0..KINDS.len()).collect());
    }

    pub(super) fn has(&self, user: &str) -> bool {
        self.kinds.lock().unwrap().get(user).is_some_and(|kinds| !kinds.is_empty())
    }

    /// The answer to a call about such credentials; `None` if it is about something else.
    pub(super) fn answer(&self, call: &AwsCall) -> Option<Answer> {
        let user = call.user.as_deref()?;
        let (index, kind) =
            KINDS.iter().enumerate().find(|(_, kind)| [kind.list, kind.delete].contains(&call.operation.as_str()))?;
        let mut kinds = self.kinds.lock().unwrap();
        let Kind { list, elements, id, rest, .. } = kind;
        let result = if call.operation == *list {
            let has = kinds.get(user).is_some_and(|kinds| kinds.contains(&index));
            let name = format!("<UserName>{user}</UserName>");
            let member = format!("<member>{name}<{id}>{}</{id}>{rest}</member>", of(user, index));
            let members = if has { member } else { String::new() };
            format!("<{list}Result><{elements}>{members}</{elements}><IsTruncated>false</IsTruncated></{list}Result>")
        } else {
            assert!(call.body_contains(&format!("{id}={}", of(user, index))), "{} of another one", call.operation);
            kinds.entry(user.to_owned()).or_default().remove(&index);
            String::new()
        };
        let operation = &call.operation;
        Some(plain(200, format!("<{operation}Response>{result}</{operation}Response>")))
    }
}

/// The id of the one of a kind that a user has.
fn of(user: &str, index: usize) -> String {
    let letters = user.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_uppercase() as char);
    format!("AP{index}{}", letters.rev().take(16).collect::<String>())
}
