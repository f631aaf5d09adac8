//! Trying issued keys against the claim's bucket, once. A new key takes seconds to be known everywhere.

use super::call::{Call, CallError, Operation, Resource, observe};
use super::error::Error;
use super::owner::Identity;
use super::plan::Target;
use crate::provisioner::Probe;

/// Lists at most one object with the app's keys, which needs what every app needs.
pub(crate) async fn probe(app: &aws_sdk_s3::Client, target: &Target<'_>) -> Result<Probe, Error> {
    let bucket = target.bucket_ref();
    let call =
        Call { operation: Operation::ListObjectsV2, resource: Resource::bucket(bucket.name), identity: Identity::App };
    let listed = app.list_objects_v2().bucket(bucket.name).set_expected_bucket_owner(bucket.account()).max_keys(1);
    match observe(call, listed.send()).await {
        Ok(_) => Ok(Probe::Usable),
        // Keys that belong to a user which the operator made are right, and just not known yet. The
        // owner's own keys have been known for long: what is refused now stays refused.
        Err(error) if target.user.is_some() && may_pass(&error) => Ok(Probe::NotYet(said(&error))),
        Err(error) => Err(error.into()),
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
