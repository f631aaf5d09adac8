//! The account of the owner's credentials, and whether an app's credentials still work.
//!
//! What is missing in another account is not gone. AWS says which account credentials belong to, and refuses nobody
//! who asks (GetCallerIdentity, STS API reference). A store that does not know the question may tell with the ARN of a
//! user; or never, and then everything is as it would be with one account.

use std::sync::OnceLock;

use aws_sdk_sts::operation::get_caller_identity::GetCallerIdentityOutput;
use tokio::sync::OnceCell;

use super::call::{Call, CallError, Cause, Operation, Resource, observe};
use super::clients::{AppClients, Store};
use super::codes::{is_about_credentials, is_throttling};
use super::error::Error;
use super::owner::Identity;
use super::plan::{Sts, Target};

/// What is known of the account of one owner's credentials. It is asked once for each version of them, because their
/// clients live no longer.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// What STS said; `None` inside: the store has none.
    asked: OnceCell<Option<String>>,
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
}

/// `arn:<partition>:iam::<account>:user/<path><name>`.
fn account_of(arn: &str) -> Option<&str> {
    arn.split(':').nth(4).filter(|account| !account.is_empty())
}

/// The account of the owner's credentials, if the store says.
pub(crate) async fn of(store: &Store) -> Result<Option<String>, Error> {
    let Account { asked, learnt } = &store.account;
    let asked = match asked.get_or_try_init(|| ask(store)).await {
        Ok(known) => known.clone(),
        Err(Failed::ForNow) => None,
        Err(Failed::With(error)) => return Err(error),
    };
    Ok(asked.or_else(|| learnt.get().cloned()))
}

/// Why it could not be asked.
enum Failed {
    /// The answer cannot be read: it is asked again the next time.
    ForNow,
    With(Error),
}

async fn ask(store: &Store) -> Result<Option<String>, Failed> {
    let Some(sts) = &store.sts else { return Ok(None) };
    let sent = sts.get_caller_identity().send();
    match store.call(Operation::GetCallerIdentity, Resource::Account, sent).await {
        Ok(GetCallerIdentityOutput { account: Some(account), .. }) if !account.is_empty() => Ok(Some(account)),
        Ok(_) => Ok(None),
        Err(error) if store.endpoints.sts == Sts::Aws => Err(Failed::With(error.into())),
        Err(error) if is_unknown(&error) => Ok(None),
        Err(CallError { cause: Cause::Unreadable, .. }) => Err(Failed::ForNow),
        Err(error) => Err(Failed::With(error.into())),
    }
}

/// Whether a store that is not AWS does not know the question. They say so in many ways; but it is none of them that
/// the credentials are wrong, or that the store is busy.
fn is_unknown(error: &CallError) -> bool {
    let code = error.code();
    let is_known = is_about_credentials(code) || is_throttling(code);
    error.lacks_operation() || (400..=404).contains(&error.status()) && !is_known
}

/// Whether an app's credentials are good for anything.
pub(crate) async fn is_alive(app: &AppClients, target: &Target<'_>) -> Result<bool, Error> {
    if let Some(sts) = &app.sts {
        let call =
            Call { operation: Operation::GetCallerIdentity, resource: Resource::Account, identity: Identity::App };
        match observe(call, sts.get_caller_identity().send()).await {
            Ok(_) => return Ok(true),
            Err(error) if is_about_credentials(error.code()) => return Ok(false),
            Err(error) if target.endpoints.sts == Sts::Aws || !is_unknown(&error) => return Err(error.into()),
            Err(_has_no_sts) => {}
        }
    }
    let bucket = target.bucket();
    let call =
        Call { operation: Operation::ListObjectsV2, resource: Resource::bucket(bucket), identity: Identity::App };
    match observe(call, app.s3.list_objects_v2().bucket(bucket).max_keys(1).send()).await {
        Ok(_) => Ok(true),
        // Whatever it is that does not allow it: nothing can be done with them to the bucket.
        Err(error) if (400..=404).contains(&error.status()) => Ok(false),
        Err(error) => Err(error.into()),
    }
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
