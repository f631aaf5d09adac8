//! The account of the owner's credentials, as far as it is known.
//!
//! What is missing in another account is not gone. AWS says which account credentials belong to. A store that does not
//! know the question may tell with the ARN of a user; or never, and then everything is as it would be with one account.

use std::sync::OnceLock;

use tokio::sync::OnceCell;

/// What is known of the account of one owner's credentials. It is asked once for each version of them, because their
/// clients live no longer.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// What STS said; `None` inside: the store has none.
    pub(crate) asked: OnceCell<Option<String>>,
    /// What the ARN of a user said.
    learnt: OnceLock<String>,
}

impl Account {
    /// Takes in the ARN of a user that was made or read with these credentials.
    pub(crate) fn learn(&self, arn: Option<&str>) {
        if let Some(account) = arn.and_then(account_of) {
            self.learnt.get_or_init(|| account.to_owned());
        }
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
    fn an_arn_says_the_account_unless_the_store_leaves_it_out() {
        assert_eq!(account_of("arn:aws:iam::123456789012:user/team/photos"), Some("123456789012"));
        assert_eq!(account_of("arn:aws:iam:::user/photos"), None);
        assert_eq!(account_of("photos"), None);
    }
}
