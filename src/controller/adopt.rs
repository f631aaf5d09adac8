//! Records of the Go provisioner: what they do not say is taken from the claim's class. Pure.

use super::error::Error;
use super::record::{Author, Stored};
use super::resolve::{Class, ClassLookup};
use crate::provisioner::{Mode, Provisioner, Request, WantedBucket};

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
    let planned = plan(provisioner, class, &stored)?;
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
fn plan<P: Provisioner>(provisioner: &P, class: &Class, stored: &Stored) -> Result<crate::provisioner::Plan, Error> {
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

/// What there is to say after a record was undone whose class is gone.
pub(crate) fn unknown_origin(stored: &Stored, class: &ClassLookup) -> Option<String> {
    let gone = !matches!(class, ClassLookup::Found(_));
    (stored.author == Author::GoProvisioner && gone).then(|| {
        format!(
            "bucket {:?} was left in place: its StorageClass {:?} is gone, and with it the knowledge whether the Go provisioner created the bucket; delete it by hand if nobody needs it",
            stored.record.plan.bucket, stored.record.class_name
        )
    })
}
