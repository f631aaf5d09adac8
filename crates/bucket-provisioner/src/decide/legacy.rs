//! Incomplete records: those of the Go provisioner, and those that somebody deleted or damaged by hand. The claim's class,
//! if it still exists, provides what is missing. Pure.

use k8s_openapi::api::core::v1::ConfigMap;

use crate::api::wire;
use crate::decide::claim::{Claim, WantedBucket};
use crate::decide::class::{Class, ClassLookup};
use crate::decide::metadata::has_finalizer;
use crate::decide::plan;
use crate::decide::record::{Author, Stored};
use crate::decide::request::{self, Asked};
use crate::decide::sharing::{Creator, Creators};
use crate::error::Error;
use crate::store::{ClaimId, Mode, Plan, Provisioner};

/// Longest part of a prefix that the Go library used in a bucket's name.
const PREFIX_MAX: usize = 26;

/// Completes a record before it is used. Our own records are complete.
///
/// The Go provisioner recorded neither which credentials it used nor whether it created the bucket, and read both from
/// the class, also for a deletion. The class may have changed since then, so only a bucket whose name was generated for
/// the claim counts as created. Without the class, the operator's own identity is used.
///
/// # Errors
/// The class has parameters that cannot be used.
pub(crate) fn complete<P: Provisioner>(
    provisioner: &P,
    provisioner_name: &str,
    class: &ClassLookup,
    claim: &Claim,
    mut stored: Stored,
) -> Result<Stored, Error> {
    let class = match (stored.author, class) {
        (Author::GoProvisioner, ClassLookup::Found(class)) if class.provisioner == provisioner_name => class,
        _ => return Ok(stored),
    };
    let planned = plan_recorded(provisioner, class, &stored)?;
    let plan = &mut stored.record.plan;
    plan.mode = match planned.mode {
        Mode::Created if is_generated(claim, &plan.bucket) => Mode::Created,
        Mode::Created | Mode::Granted => Mode::Granted,
    };
    plan.owner = planned.owner;
    plan.endpoint.url = planned.endpoint.url;
    // What the Go provisioner recorded (user, policy) has precedence over today's plan.
    for (key, value) in planned.state {
        plan.state.entry(key).or_insert(value);
    }
    Ok(stored)
}

/// Whether the Go library generated this bucket name for the claim: its prefix, cut, and a UUID.
fn is_generated(claim: &Claim, bucket: &str) -> bool {
    let prefix = claim.spec().ok().and_then(|spec| spec.generate_bucket_name.as_deref()).unwrap_or_default();
    let cut = prefix.get(..PREFIX_MAX).unwrap_or(prefix);
    !cut.is_empty() && bucket.strip_prefix(cut).and_then(|rest| rest.strip_prefix('-')).is_some_and(is_uuid)
}

fn is_uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

/// The plan of the class for the recorded bucket.
fn plan_recorded<P: Provisioner>(provisioner: &P, class: &Class, stored: &Stored) -> Result<Plan, Error> {
    let planned = |wanted| request::plan(provisioner, class, &stored.record.claim, Asked::bucket(&wanted), None);
    match planned(WantedBucket::Unspecified) {
        Ok(plan) if plan.mode == Mode::Granted => Ok(plan),
        _ => planned(WantedBucket::Recorded(stored.record.plan.bucket.clone())),
    }
}

/// Reconstructs a record that was deleted by hand, from claim and class. Names are functions of the claim, and access is
/// removed only if it is proven to be the claim's, so a wrong guess harms nobody. The bucket is kept, because it is
/// unknown whether to retain it. `None` without a usable class.
pub(crate) fn reconstruct<P: Provisioner>(
    surroundings: &plan::Surroundings<'_, P>,
    claim: &Claim,
    name: String,
) -> Option<Stored> {
    let ClassLookup::Found(class) = surroundings.class else { return None };
    let plan::Surroundings { provisioner, provisioner_name, cluster, creators, .. } = *surroundings;
    let planned = |creators: &Creators<'_>| plan::record(provisioner, claim, class, (cluster, creators), None);
    // The claim whose bucket it shares may no longer exist, or share it.
    let assumed = || planned(&|_| Creator::assumed(claim));
    let record =
        (class.provisioner == provisioner_name).then(|| planned(creators).or_else(|_| assumed()).ok()).flatten()?;
    Some(Stored {
        name,
        uid: None,
        resource_version: None,
        author: Author::Us,
        record,
        status_is_bound: false,
        claim_was_bound: true,
        action: None,
        release: None,
        created: None,
        deleted: false,
        claim_ref: true,
        labelled: true,
    })
}

/// The note on the bucket of a claim whose record was deleted by hand.
pub(crate) fn not_recorded_note(stored: &Stored) -> Option<String> {
    let bucket = &stored.record.plan.bucket;
    (stored.record.plan.mode == Mode::Created).then(|| {
        format!(
            "bucket {bucket:?}, if it still exists, was left in place: ObjectBucket {:?} no longer exists, so its reclaimPolicy is unknown; delete the bucket by hand if it is unused",
            stored.name
        )
    })
}

/// The bucket in a ConfigMap of the Go provisioner, which is recognised by its finalizer. The Go provisioner wrote its
/// records last, so there may be none.
pub(crate) fn unfinished_bucket(config_map: &ConfigMap) -> Option<&str> {
    let bucket = config_map.data.as_ref()?.get(wire::config::BUCKET_NAME)?;
    has_finalizer(&config_map.metadata).then_some(bucket.as_str())
}

/// The note on a bucket without a record of the Go provisioner. Its name proves nothing, because the claim's user can
/// write it into the ConfigMap.
pub(crate) fn unfinished_note(bucket: &str) -> String {
    format!(
        "bucket {bucket:?} was left in place: the claim's ConfigMap named it, but no ObjectBucket does, so the Go provisioner probably did not finish it; if it is unused, delete it by hand, with the IAM user and the managed policy whose names begin with the bucket's name"
    )
}

/// The note on the record of a previous claim when a restored claim is deleted without having adopted it.
pub(crate) fn not_adopted_note(record: &str) -> String {
    format!(
        "ObjectBucket {record:?}, its bucket and the access to it are kept, because they belong to a previous claim of this name"
    )
}

/// The note on a bound claim without a record and without a class.
pub(crate) fn lost_note(claim: &Claim) -> String {
    let ClaimId { namespace, name, uid } = &claim.id;
    format!(
        "the ObjectBucket of claim {namespace}/{name} was deleted by hand, and its StorageClass no longer exists, so bucket and user may still exist in the store; search there for tags with the claim's uid {uid}"
    )
}

/// The note on a bucket of the Go provisioner that is left in place, because nothing proves that it was created for the
/// claim. No note if the class names the bucket: then it existed before.
pub(crate) fn unknown_origin_note(stored: &Stored, class: &ClassLookup, provisioner_name: &str) -> Option<String> {
    if stored.by_us() || stored.record.plan.mode == Mode::Created {
        return None;
    }
    let (bucket, class_name) = (&stored.record.plan.bucket, &stored.record.class_name);
    match class {
        ClassLookup::Found(class) if class.provisioner == provisioner_name => {
            let granted = class.parameters.get("bucketName") == Some(bucket);
            (!granted).then(|| {
                format!(
                    "bucket {bucket:?} was left in place: its name is not one that the Go provisioner generates for this claim, so nothing proves that it was created for this claim; delete it by hand if it is unused"
                )
            })
        }
        _ => {
            let user = stored.record.plan.user.as_deref().unwrap_or("none");
            Some(format!(
                "bucket {bucket:?} was left in place: its StorageClass {class_name:?} no longer exists, so it is unknown whether the Go provisioner created the bucket, and with which credentials; delete the bucket by hand if it is unused, and check that IAM user {user:?} no longer exists in its account"
            ))
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::{Guard, ObjectBucketClaim, ObjectBucketClaimSpec};

    const UUID: &str = "ff67fdea-a308-4ac0-973e-c511e96cabe8";

    fn claim(prefix: Option<&str>) -> Claim {
        let spec = ObjectBucketClaimSpec {
            generate_bucket_name: prefix.map(str::to_owned),
            ..ObjectBucketClaimSpec::default()
        };
        Claim::read(&Guard(Ok(ObjectBucketClaim::new("c2", spec))), "ours")
    }

    #[test]
    fn a_bucket_is_created_only_if_its_name_was_generated() {
        assert!(is_generated(&claim(Some("b2")), &format!("b2-{UUID}")));
        let long = "abcdefghijklmnopqrstuvwxyz0123";
        assert!(is_generated(&claim(Some(long)), &format!("abcdefghijklmnopqrstuvwxyz-{UUID}")));
        for (prefix, bucket) in [
            (None, format!("b2-{UUID}")),
            (Some(""), format!("-{UUID}")),
            (Some("b"), format!("b2-{UUID}")),
            (Some("b2"), "b2-backups".to_owned()),
            (Some("b2"), format!("b2-{}", UUID.replace('f', "g"))),
            (Some("b2"), UUID.to_owned()),
        ] {
            assert!(!is_generated(&claim(prefix), &bucket), "{prefix:?} {bucket}");
        }
    }
}
