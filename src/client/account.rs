//! The account of the provisioning credentials, if it is known.
//!
//! A bucket that another account does not have may still exist. STS returns the account of credentials. Another store
//! may show it in the ARN of a user, or not at all; then the operator behaves as if there were only one account.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use crate::client::clock::Clock;

/// What STS returns for credentials.
#[derive(Debug, Clone)]
pub(crate) struct CallerIdentity {
    pub(crate) account: Option<String>,
    pub(crate) arn: Option<String>,
}

/// What is known about the account of provisioning credentials. Lives as long as the clients for these credentials, so
/// STS is asked once for each version of them.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The answer of STS; `None` inside: the store has no STS.
    pub(crate) asked: OnceCell<Option<String>>,
    pub(crate) identity: OnceCell<CallerIdentity>,
    refused: AtomicBool,
    pub(crate) clock: Clock,
    /// From the ARN of a user.
    learnt: OnceLock<String>,
}

impl Account {
    /// Takes the account from the ARN of a user that was created or read with these credentials.
    pub(crate) fn learn(&self, arn: Option<&str>) {
        if let Some(account) = arn.and_then(account_of) {
            self.learnt.get_or_init(|| account.to_owned());
        }
    }

    /// Notes whether STS refused the credentials, or did not answer, when it was last asked.
    pub(crate) fn note_refusal(&self, refused: bool) {
        self.refused.store(refused, Ordering::Relaxed);
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// The account, if STS or the ARN of a user has shown it.
    pub(crate) fn known(&self) -> Option<String> {
        self.asked.get().cloned().flatten().or_else(|| self.learnt())
    }

    pub(crate) fn learnt(&self) -> Option<String> {
        self.learnt.get().cloned()
    }
}

/// `arn:<partition>:iam::<account>:user/<path><name>`.
pub(crate) fn account_of(arn: &str) -> Option<&str> {
    arn.split(':').nth(4).filter(|account| !account.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_has_the_account_unless_the_store_leaves_it_out() {
        assert_eq!(account_of("arn:aws:iam::123456789012:user/team/photos"), Some("123456789012"));
        assert_eq!(account_of("arn:aws:iam:::user/photos"), None);
        assert_eq!(account_of("photos"), None);
    }
}
