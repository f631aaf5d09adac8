//! The account of the provisioning credentials, and whether an app's keys still work. On AWS everybody can call
//! GetCallerIdentity (STS API reference); other stores may not support it.

use crate::class::target::Target;
use crate::client::account::{CallerIdentity, account_of};
use crate::client::call::{Call, CallError, Cause, Identity, Operation, Resource, observe};
use crate::client::clients::AppClients;
use crate::client::codes::{is_about_credentials, is_throttling};
use crate::client::error::Error;
use crate::client::store::Store;
use bucket_provisioner::store::Access;

/// The account of the provisioning credentials, if the store returns it.
pub(crate) async fn account(store: &Store) -> Result<Option<String>, Error> {
    let asked = match store.account.asked.get_or_try_init(|| ask(store)).await {
        Ok(known) => known.clone(),
        Err(Failed::ForNow) => None,
        Err(Failed::With(error)) => return Err(error),
    };
    Ok(asked.or_else(|| store.account.learnt()))
}

/// The HTTP status of a busy store, and of SeaweedFS when its STS is off.
const UNAVAILABLE: u16 = 503;

/// Why the account is not known.
enum Failed {
    /// The answer was unclear; the next call asks again.
    ForNow,
    With(Error),
}

async fn ask(store: &Store) -> Result<Option<String>, Failed> {
    let Some(sts) = &store.sts else { return Ok(None) };
    match ask_sts(store, sts).await? {
        StsAnswer::Account(account) => Ok(Some(account)),
        StsAnswer::None => Ok(ask_iam(store).await.ok().flatten()),
        // Without STS a store can answer like a busy one; but then its IAM is not busy.
        StsAnswer::Unavailable => match ask_iam(store).await {
            Err(error) if !is_unknown(&error) => Err(Failed::With(error.into())),
            Ok(Some(account)) => Ok(Some(account)),
            // Perhaps STS was only busy.
            Ok(None) | Err(_) => Err(Failed::ForNow),
        },
    }
}

enum StsAnswer {
    Account(String),
    /// The store has no STS, or STS names no account.
    None,
    Unavailable,
}

/// A store without STS may give the ARN of the user whose credentials these are.
async fn ask_iam(store: &Store) -> Result<Option<String>, CallError> {
    let sent = store.iam.get_user().send();
    let answer = store.call_once(Operation::GetUser, Resource::Account, sent).await?;
    Ok(answer.user.and_then(|user| account_of(user.arn()).map(str::to_owned)))
}

async fn ask_sts(store: &Store, sts: &aws_sdk_sts::Client) -> Result<StsAnswer, Failed> {
    match identity(store, sts).await {
        Ok(CallerIdentity { account: Some(account), .. }) if !account.is_empty() => {
            Ok(StsAnswer::Account(account.clone()))
        }
        Ok(_) => Ok(StsAnswer::None),
        Err(error) if store.endpoints.sts.is_of_aws() => Err(Failed::With(error.into())),
        Err(error) if is_unknown(&error) => Ok(StsAnswer::None),
        Err(error) if error.status() == UNAVAILABLE => Ok(StsAnswer::Unavailable),
        Err(CallError { cause: Cause::Unreadable, .. }) => Err(Failed::ForNow),
        Err(error) => Err(Failed::With(error.into())),
    }
}

/// Whose credentials these are. Kept, because an examination needs more of the answer than the account.
///
/// # Errors
/// STS refused or did not answer. The next call asks again.
pub(crate) async fn identity<'a>(store: &'a Store, sts: &aws_sdk_sts::Client) -> Result<&'a CallerIdentity, CallError> {
    let ask = async || {
        let sent = sts.get_caller_identity().customize().interceptor(store.account.clock.clone()).send();
        let answer = store.call_once(Operation::GetCallerIdentity, Resource::Account, sent).await?;
        Ok(CallerIdentity { account: answer.account, arn: answer.arn })
    };
    let answer = store.account.identity.get_or_try_init(ask).await;
    store.account.note_refusal(answer.as_ref().is_err_and(|error| is_over(store, error)));
    answer
}

/// Whether nothing else needs to be asked. Everybody may ask AWS who they are; other stores have many answers for what they
/// do not know.
pub(crate) fn is_over(store: &Store, error: &CallError) -> bool {
    store.endpoints.sts.is_of_aws() || error.status() == 0 || is_about_credentials(error.code())
}

/// Whether another store than AWS does not support the call. Stores have many answers for this, but in none of them are
/// the credentials invalid or the store busy.
fn is_unknown(error: &CallError) -> bool {
    let code = error.code();
    let is_known = is_about_credentials(code) || is_throttling(code);
    error.lacks_operation() || (400..=404).contains(&error.status()) && !is_known
}

/// Whether an app's keys still work.
pub(crate) async fn keys_work(app: &AppClients, target: &Target<'_>) -> Result<bool, Error> {
    if let Some(sts) = &app.sts {
        let call = Call {
            operation: Operation::GetCallerIdentity,
            resource: Resource::Account,
            identity: Identity::App,
            session: false,
        };
        match observe(&app.observer, call, sts.get_caller_identity().send()).await {
            Ok(_) => return Ok(true),
            Err(error) if is_about_credentials(error.code()) => return Ok(false),
            // The call about the bucket will show whether the store is busy.
            Err(error)
                if !target.endpoints.sts.is_of_aws() && (is_unknown(&error) || error.status() == UNAVAILABLE) => {}
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
    let access = &target.record.plan.access;
    if !access.mode.reads() {
        return can_write(app, bucket, access).await;
    }
    let list = app.s3.list_objects_v2().bucket(bucket).set_prefix(access.prefix.clone()).max_keys(1);
    match observe(&app.observer, call, list.send()).await {
        Ok(_) => Ok(true),
        // Whatever the reason: these keys cannot use the bucket.
        Err(error) if (400..=404).contains(&error.status()) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether keys that only write still work: an upload can be begun, and is aborted.
async fn can_write(app: &AppClients, bucket: &str, access: &Access) -> Result<bool, Error> {
    let call =
        |operation| Call { operation, resource: Resource::bucket(bucket), identity: Identity::App, session: false };
    let key = format!("{}.aws-s3-provisioner/keys-still-work", access.prefix.as_deref().unwrap_or_default());
    let begin = app.s3.create_multipart_upload().bucket(bucket).key(&key).send();
    match observe(&app.observer, call(Operation::CreateMultipartUpload), begin).await {
        Ok(begun) => {
            let abort = app.s3.abort_multipart_upload().bucket(bucket).key(&key).set_upload_id(begun.upload_id).send();
            let _ = observe(&app.observer, call(Operation::AbortMultipartUpload), abort).await;
            Ok(true)
        }
        Err(error) if (400..=404).contains(&error.status()) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
