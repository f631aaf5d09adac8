//! Trying issued keys against the claim's bucket, once. A new key takes seconds to be known everywhere, and one host may
//! know it before the next: two calls are made, each on a connection of its own.

use super::call::{Call, CallError, Identity, Operation, Resource, observe};
use super::error::Error;
use super::target::Target;
use crate::provisioner::{Mode, Probe};

/// In front of the claim's uid: the key of an object that does not exist.
pub(crate) const NO_SUCH_KEY: &str = ".aws-s3-provisioner/tries-whether-keys-work/";

/// Lists at most one object with the app's keys, and reads one that does not exist: what every app needs.
pub(crate) async fn probe(app: &aws_sdk_s3::Client, target: &Target<'_>) -> Result<Probe, Error> {
    let bucket = target.bucket_ref();
    let call = |operation| Call {
        operation,
        resource: Resource::bucket(bucket.name),
        identity: whose(target),
        session: false,
    };
    let listed = app.list_objects_v2().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).max_keys(1);
    let key = format!("{NO_SUCH_KEY}{}", target.record.claim.uid);
    // Should it exist, nothing of it is read.
    let read = app.get_object().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).key(key);
    let (listed, read) = tokio::join!(
        observe(call(Operation::ListObjectsV2), listed.send()),
        observe(call(Operation::GetObject), read.send()),
    );
    let read = match read {
        // Who may not list a bucket is not told that an object is missing, but refused.
        Err(error) if error.status() == 404 && error.code() != "NoSuchBucket" => Ok(()),
        // A bucket that existed before may be one to write to only: the key is known, and what it may do is the bucket's
        // to say.
        Err(error) if target.record.plan.mode == Mode::Granted && error.code() == "AccessDenied" => Ok(()),
        answer => answer.map(drop),
    };
    let outcomes = [listed.map(drop), read].map(|answer| match answer {
        Ok(()) => Ok(Probe::Usable),
        // Keys that belong to a user which the operator made are right, and just not known yet. The
        // owner's own keys have been known for long: what is refused now stays refused.
        Err(error) if target.user.is_some() && may_pass(&error) => Ok(Probe::NotYet(said(&error))),
        Err(error) => Err(Error::from(error)),
    });
    let [listed, read] = outcomes;
    match (listed?, read?) {
        (Probe::Usable, read) => Ok(read),
        (not_yet, _) => Ok(not_yet),
    }
}

/// A claim without a user of its own shares the owner's keys, and lacks what the owner lacks.
fn whose(target: &Target<'_>) -> Identity {
    match (&target.user, &target.record.plan.owner_secret) {
        (None, Some(secret)) => Identity::Secret(secret.clone()),
        _ => Identity::App,
    }
}

fn may_pass(error: &CallError) -> bool {
    error.status() == 403
        || matches!(
            error.code(),
            "InvalidAccessKeyId" | "InvalidClientTokenId" | "SignatureDoesNotMatch" | "AccessDenied"
        )
}

fn said(error: &CallError) -> String {
    match error.code() {
        "" => error.status().to_string(),
        code => code.to_owned(),
    }
}
