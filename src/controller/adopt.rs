//! Records that do not say all: those of the Go provisioner, and those that somebody deleted by hand. What
//! is missing is taken from the claim's class, if there still is one. Pure.

use k8s_openapi::api::core::v1::ConfigMap;

use super::claim::Claim;
use super::deletion::has_finalizer;
use super::error::Error;
use super::outputs::Current;
use super::plan;
use super::record::{Author, Stored};
use super::resolve::{Class, ClassLookup};
use crate::api::wire;
use crate::provisioner::{ClaimId, Mode, Plan, Provisioner, Request, WantedBucket};

/// Completes a record before it is acted upon. One of our own is complete.
///
/// The Go provisioner decided by its class whether a bucket had been created or granted, and with whose
/// credentials, at the time of deletion, too. With the class gone nobody can tell: the record stays one of a
/// bucket that existed before, which is never deleted, and the operator's own identity is all there is.
///
/// # Errors
/// The class has parameters that cannot be used.
pub(crate) fn adopt<P: Provisioner>(
    provisioner: &P,
    provisioner_name: &str,
    class: &ClassLookup,
    mut stored: Stored,
) -> Result<Stored, Error> {
    let class = match (stored.author, class) {
        (Author::GoProvisioner, ClassLookup::Found(class)) if class.provisioner == provisioner_name => class,
        _ => return Ok(stored),
    };
    let planned = plan_recorded(provisioner, class, &stored)?;
    let plan = &mut stored.record.plan;
    plan.mode = planned.mode;
    plan.owner_secret = planned.owner_secret;
    plan.endpoint.url = planned.endpoint.url;
    // What the Go provisioner did record (user, policy) comes before what would be planned now.
    for (key, value) in planned.state {
        plan.state.entry(key).or_insert(value);
    }
    Ok(stored)
}

/// What the class gives for the recorded bucket.
fn plan_recorded<P: Provisioner>(provisioner: &P, class: &Class, stored: &Stored) -> Result<Plan, Error> {
    let request = |bucket| Request {
        claim: &stored.record.claim,
        bucket,
        class_name: &class.name,
        parameters: &class.parameters,
    };
    let granted = provisioner.plan(&request(WantedBucket::Unspecified));
    match granted {
        Ok(plan) if plan.mode == Mode::Granted => Ok(plan),
        _ => provisioner.plan(&request(WantedBucket::Named(stored.record.plan.bucket.clone()))).map_err(Error::store),
    }
}

/// The record of a bound claim that somebody deleted by hand, as claim and class would have it written. Names
/// are functions of the claim, and nothing is removed that is not proven to be the claim's, so that a guess
/// that is wrong harms nobody. `None` without a class that can be planned by.
pub(crate) fn reconstruct<P: Provisioner>(
    provisioner: &P,
    provisioner_name: &str,
    class: &ClassLookup,
    claim: &Claim,
    name: String,
) -> Option<Stored> {
    let ClassLookup::Found(class) = class else { return None };
    let record =
        (class.provisioner == provisioner_name).then(|| plan::record(provisioner, claim, class).ok()).flatten()?;
    Some(Stored { name, uid: None, author: Author::Us, record, bound: true })
}

/// The bucket that a ConfigMap of the Go provisioner names; by its finalizer on the ConfigMap it is known. It wrote
/// its records last, so that it may stand alone.
pub(crate) fn begun_bucket(config_map: &Current<ConfigMap>) -> Option<&str> {
    let Current::Mine(config_map) = config_map else { return None };
    let bucket = config_map.data.as_ref()?.get(wire::config::BUCKET_NAME)?;
    has_finalizer(&config_map.metadata).then_some(bucket.as_str())
}

/// What there is to say of a bucket that the Go provisioner did not come to record. Its name proves nothing, for
/// the claim's user can write it into the ConfigMap.
pub(crate) fn begun(bucket: &str) -> String {
    format!(
        "bucket {bucket:?}, which the claim's ConfigMap named and no ObjectBucket records, was left in place: the Go provisioner seems to have begun it; delete it by hand if nobody needs it, and the IAM user and the managed policy whose names begin with its name"
    )
}

/// What there is to say of a bound claim without a record and without a class.
pub(crate) fn lost(claim: &Claim) -> String {
    let ClaimId { namespace, name, uid } = &claim.id;
    format!(
        "the ObjectBucket of claim {namespace}/{name} was deleted by hand and its StorageClass is gone: its bucket and its user may be left in the store; look for those tagged with the claim's uid {uid}"
    )
}

/// What there is to say after a record was undone whose class is gone.
pub(crate) fn unknown_origin(stored: &Stored, class: &ClassLookup, provisioner_name: &str) -> Option<String> {
    let gone = !matches!(class, ClassLookup::Found(class) if class.provisioner == provisioner_name);
    let user = stored.record.plan.user.as_deref().unwrap_or("none");
    (stored.author == Author::GoProvisioner && gone).then(|| {
        format!(
            "bucket {:?} was left in place: its StorageClass {:?} is gone, and with it the knowledge whether the Go provisioner created the bucket, and with whose credentials; delete it by hand if nobody needs it, and see that IAM user {user:?} is gone from its account",
            stored.record.plan.bucket, stored.record.class_name
        )
    })
}
