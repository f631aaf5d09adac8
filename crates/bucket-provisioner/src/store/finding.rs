//! What an examination of a class finds: [`Finding`].

/// How a finding is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Claims work, but somebody should look at it.
    Warning,
    /// Claims do not work, or will not.
    Bad,
    /// It cannot be seen without changing something, or without a permission that claims do not need.
    Unknown,
}

/// One thing that was looked at: see [`Provisioner::examine`](super::Provisioner::examine).
///
/// The message is for an admin: it may name accounts and other tenants, and never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in a few words, such as `permissions`.
    pub what: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was seen, in a sentence without the remedy.
    pub message: String,
    /// What to do; empty if there is nothing to do.
    pub remedy: String,
}

impl Finding {
    /// As it should be.
    pub fn good(what: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Verdict::Good, what, message, "")
    }

    /// Claims work, but somebody should look at it.
    pub fn warning(what: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Verdict::Warning, what, message, remedy)
    }

    /// Claims do not work, or will not.
    pub fn bad(what: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Verdict::Bad, what, message, remedy)
    }

    /// It cannot be seen.
    pub fn unknown(what: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(Verdict::Unknown, what, message, remedy)
    }

    /// A call failed. Its error is worded for claims, which are retried.
    pub fn failed(what: impl Into<String>, error: &dyn std::error::Error, remedy: impl Into<String>) -> Self {
        let message = error.to_string();
        Self::bad(what, message.strip_suffix("; retrying").unwrap_or(&message), remedy)
    }

    fn new(verdict: Verdict, what: impl Into<String>, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), verdict, message: message.into(), remedy: remedy.into() }
    }
}
