//! What an examination of a class finds: [`Finding`].

use serde::Serialize;

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Claims work, but an admin should check it.
    Warning,
    /// Claims do not work, or will not.
    Bad,
    /// It cannot be seen without changing something, or without a permission that claims do not need.
    Unknown,
}

/// The result of one check: see [`Provisioner::examine`](super::Provisioner::examine).
///
/// The message is for an admin: it may name accounts and other tenants, and never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked, in a few words, such as `permissions`.
    pub what: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was seen, in a sentence without the remedy.
    pub message: String,
    /// What to do; empty if there is nothing to do.
    pub remedy: String,
}

/// What a [`Finding`] is about: see [`Finding::about`].
#[derive(Debug, Clone)]
pub struct About(String);

impl About {
    /// As it should be.
    pub fn good(self, message: impl Into<String>) -> Finding {
        self.found(Verdict::Good, message)
    }

    /// Claims work, but an admin should check it.
    pub fn warning(self, message: impl Into<String>) -> Finding {
        self.found(Verdict::Warning, message)
    }

    /// Claims do not work, or will not.
    pub fn bad(self, message: impl Into<String>) -> Finding {
        self.found(Verdict::Bad, message)
    }

    /// It cannot be seen.
    pub fn unknown(self, message: impl Into<String>) -> Finding {
        self.found(Verdict::Unknown, message)
    }

    /// A call failed. Its error is worded for claims, which are retried.
    pub fn failed(self, error: &dyn std::error::Error) -> Finding {
        let message = error.to_string();
        self.bad(message.strip_suffix("; retrying").unwrap_or(&message))
    }

    fn found(self, verdict: Verdict, message: impl Into<String>) -> Finding {
        Finding { what: self.0, verdict, message: message.into(), remedy: String::new() }
    }
}

impl Finding {
    /// A finding about this, in a few words:
    /// `Finding::about("quota").bad("the owner has no room").with_remedy("ask for more")`.
    pub fn about(what: impl Into<String>) -> About {
        About(what.into())
    }

    /// With what to do.
    pub fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: remedy.into(), ..self }
    }
}
