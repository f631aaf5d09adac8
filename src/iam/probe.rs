//! Trying a claim's keys on its bucket, once. It takes seconds until a new key works everywhere, and one host of the
//! store may accept it before the next one does. So there are two calls, each on its own connection.

use crate::class::target::Target;
use crate::client::call::{Call, CallError, Identity, Operation, Resource, observe};
use crate::client::clients::AppClients;
use crate::client::error::Error;
use bucket_provisioner::store::{Mode, Probe};

/// With the claim's uid behind it, the key of an object that does not exist.
pub(crate) const NO_SUCH_KEY: &str = ".aws-s3-provisioner/tries-whether-keys-work/";

/// Lists at most one object, and reads one that does not exist.
pub(crate) async fn probe(app: &AppClients, target: &Target<'_>) -> Result<Probe, Error> {
    let bucket = target.bucket_ref();
    let call = |operation| Call {
        operation,
        resource: Resource::bucket(bucket.name),
        identity: whose(target),
        session: false,
    };
    let listed = app.s3.list_objects_v2().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).max_keys(1);
    let key = format!("{NO_SUCH_KEY}{}", target.record.claim.uid);
    // If the object exists, its content is not read.
    let read = app.s3.get_object().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).key(key);
    let (listed, read) = tokio::join!(
        observe(&app.observer, call(Operation::ListObjectsV2), listed.send()),
        observe(&app.observer, call(Operation::GetObject), read.send()),
    );
    let read = match read {
        // The object does not exist. Keys that cannot list the bucket would get 403 instead.
        Err(error) if error.status() == 404 && error.code() != "NoSuchBucket" => Ok(()),
        // The key is known. A bucket that existed before can have a policy that allows only writing.
        Err(error) if target.record.plan.mode == Mode::Granted && error.code() == "AccessDenied" => Ok(()),
        answer => answer.map(drop),
    };
    let outcomes = [listed.map(drop), read].map(|answer| match answer {
        Ok(()) => Ok(Probe::Usable),
        // The keys of the claim's user are valid, and will work soon. The provisioning credentials are not new, so a
        // refusal is final.
        Err(error) if target.user.is_some() && is_unknown(&error) => Ok(Probe::NotYet(code_or_status(&error))),
        Err(error) if target.user.is_some() && error.status() == 403 => Ok(Probe::Denied(code_or_status(&error))),
        Err(error) => Err(Error::from(error)),
    });
    let [listed, read] = outcomes;
    match (listed?, read?) {
        (Probe::Usable, read) => Ok(read),
        // One host knows the key, and another one does not yet.
        (Probe::Denied(_), Probe::NotYet(code)) => Ok(Probe::NotYet(code)),
        (refused, _) => Ok(refused),
    }
}

/// A claim without its own user shares the provisioning credentials.
fn whose(target: &Target<'_>) -> Identity {
    match (&target.user, &target.record.plan.owner.secret) {
        (None, Some(secret)) => Identity::Secret(secret.clone()),
        _ => Identity::App,
    }
}

/// Whether the store does not know the key.
fn is_unknown(error: &CallError) -> bool {
    matches!(error.code(), "InvalidAccessKeyId" | "InvalidClientTokenId" | "SignatureDoesNotMatch")
}

fn code_or_status(error: &CallError) -> String {
    match error.code() {
        "" => error.status().to_string(),
        code => code.to_owned(),
    }
}
