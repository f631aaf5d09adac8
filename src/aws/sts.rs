//! Whose credentials these are: the account of the owner's, and whether an app's still work. AWS refuses nobody who asks
//! (GetCallerIdentity, STS API reference); other stores may not know the question.

use aws_sdk_sts::operation::get_caller_identity::GetCallerIdentityOutput;

use super::account::account_of;
use super::call::{Call, CallError, Cause, Identity, Operation, Resource, observe};
use super::clients::{AppClients, Store};
use super::codes::{is_about_credentials, is_throttling};
use super::error::Error;
use super::target::{Sts, Target};

/// The account of the owner's credentials, if the store says.
pub(crate) async fn account(store: &Store) -> Result<Option<String>, Error> {
    let asked = match store.account.asked.get_or_try_init(|| ask(store)).await {
        Ok(known) => known.clone(),
        Err(Failed::ForNow) => None,
        Err(Failed::With(error)) => return Err(error),
    };
    Ok(asked.or_else(|| store.account.learnt()))
}

/// The status of a store that is busy, and that of SeaweedFS where it has no STS.
const UNAVAILABLE: u16 = 503;

/// Why it could not be asked.
enum Failed {
    /// The answer cannot be read: it is asked again the next time.
    ForNow,
    With(Error),
}

async fn ask(store: &Store) -> Result<Option<String>, Failed> {
    let Some(sts) = &store.sts else { return Ok(None) };
    match ask_sts(store, sts).await? {
        Said::Account(account) => Ok(Some(account)),
        Said::Nothing => Ok(ask_iam(store).await.ok().flatten()),
        // A store that has no STS may say so in the words of one that is busy; then its IAM is not.
        Said::Unavailable => match ask_iam(store).await {
            Err(error) if !is_unknown(&error) => Err(Failed::With(error.into())),
            Ok(Some(account)) => Ok(Some(account)),
            // Perhaps it was busy after all.
            Ok(None) | Err(_) => Err(Failed::ForNow),
        },
    }
}

/// What STS says, or that there seems to be none.
enum Said {
    Account(String),
    Nothing,
    Unavailable,
}

/// A store without STS may say whose credentials they are, and in which account. That it does not is no failure.
async fn ask_iam(store: &Store) -> Result<Option<String>, CallError> {
    let sent = store.iam.get_user().send();
    let answer = store.call(Operation::GetUser, Resource::Account, sent).await?;
    Ok(answer.user.and_then(|user| account_of(user.arn()).map(str::to_owned)))
}

async fn ask_sts(store: &Store, sts: &aws_sdk_sts::Client) -> Result<Said, Failed> {
    let sent = sts.get_caller_identity().send();
    match store.call(Operation::GetCallerIdentity, Resource::Account, sent).await {
        Ok(GetCallerIdentityOutput { account: Some(account), .. }) if !account.is_empty() => Ok(Said::Account(account)),
        Ok(_) => Ok(Said::Nothing),
        Err(error) if store.endpoints.sts == Sts::Aws => Err(Failed::With(error.into())),
        Err(error) if is_unknown(&error) => Ok(Said::Nothing),
        Err(error) if error.status() == UNAVAILABLE => Ok(Said::Unavailable),
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
        let call = Call {
            operation: Operation::GetCallerIdentity,
            resource: Resource::Account,
            identity: Identity::App,
            session: false,
        };
        match observe(call, sts.get_caller_identity().send()).await {
            Ok(_) => return Ok(true),
            Err(error) if is_about_credentials(error.code()) => return Ok(false),
            // Whether it is busy the bucket says.
            Err(error) if target.endpoints.sts != Sts::Aws && (is_unknown(&error) || error.status() == UNAVAILABLE) => {
            }
            Err(error) => return Err(error.into()),
        }
    }
    let bucket = target.bucket();
    let call = Call {
        operation: Operation::ListObjectsV2,
        resource: Resource::bucket(bucket),
        identity: Identity::App,
        session: false,
    };
    match observe(call, app.s3.list_objects_v2().bucket(bucket).max_keys(1).send()).await {
        Ok(_) => Ok(true),
        // Whatever it is that does not allow it: nothing can be done with them to the bucket.
        Err(error) if (400..=404).contains(&error.status()) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
