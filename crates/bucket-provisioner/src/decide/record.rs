//! The record of a claim, a write-ahead log: its names, and to which claim it belongs. Pure.
//!
//! A record is written before the first call to the store, and contains everything that is needed to undo the claim.

use k8s_openapi::jiff::Timestamp;

use crate::api::{BucketPhase, ObjectBucket, object_name, wire};
use crate::decide::action::Action;
use crate::decide::claim::{Claim, LabelOwner};
use crate::decide::release::Release;
use crate::store::{ClaimId, Record};

/// Longest name of a Kubernetes object (RFC 1123 subdomain).
const MAX_NAME: usize = 253;

/// The default name of a claim's record, and the name with the uid, for the case that the default name is too long or
/// taken: two claims can share a default name (`a-b/c` and `a/b-c`), but not a uid.
pub(crate) fn names(claim: &ClaimId) -> (Option<String>, String) {
    let plain = format!("obc-{}-{}", claim.namespace, claim.name);
    let room = MAX_NAME - 1 - claim.uid.len().min(MAX_NAME / 2);
    let cut = plain.get(..room).unwrap_or(&plain).trim_end_matches(['-', '.']);
    let unique = format!("{cut}-{}", claim.uid);
    ((plain.len() <= MAX_NAME).then_some(plain), unique)
}

/// Who wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    /// This operator: the record is complete.
    Us,
    /// The Go provisioner that this operator replaces. It recorded neither which credentials it used nor whether it
    /// created the bucket; see `legacy.rs`. Until the record is completed, its bucket counts as one that existed before.
    GoProvisioner,
}

/// A record in the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) name: String,
    /// `metadata.uid` of the ObjectBucket, so that no write changes a newer one of the same name.
    pub(crate) uid: Option<String>,
    /// Guards writes that depend on everything that was read.
    pub(crate) resource_version: Option<String>,
    pub(crate) author: Author,
    pub(crate) record: Record,
    /// `status.phase` is Bound.
    pub(crate) status_is_bound: bool,
    /// The claim has a sign of binding, which its user can write.
    pub(crate) claim_was_bound: bool,
    /// What an admin requests, in case it is orphaned.
    pub(crate) action: Option<Action>,
    /// Why it outlives its claim.
    pub(crate) release: Option<Release>,
    /// When the ObjectBucket was created, or restored from a backup.
    pub(crate) created: Option<Timestamp>,
    /// Somebody has deleted the ObjectBucket, and its finalizer keeps it.
    pub(crate) deleted: bool,
    /// Its `spec.claimRef` names a claim.
    pub(crate) claim_ref: bool,
    /// It has the label with its bucket's name, which the operator wrote, so nobody has edited that name.
    pub(crate) labelled: bool,
}

impl Stored {
    /// Whether this operator wrote it. What the Go provisioner wrote stays as it is.
    pub(crate) fn by_us(&self) -> bool {
        self.author == Author::Us
    }

    /// Whether an app may use the bucket, so that the claim keeps what it has. Backups leave out the status, and earlier
    /// versions wrote only the status.
    pub(crate) fn bound(&self) -> bool {
        self.published() || self.claim_was_bound || self.is_being_adopted() || !self.record.former_uids.is_empty()
    }

    /// Whether the ObjectBucket proves that the claim's credentials were published. Only then may the bucket be emptied. The
    /// Go provisioner wrote its records last.
    pub(crate) fn published(&self) -> bool {
        self.record.credentials_published || self.status_is_bound || !self.by_us()
    }

    /// Whether the ObjectBucket was created again after its claim was deleted: it comes from a backup, and
    /// may be outdated.
    pub(crate) fn is_restored(&self) -> bool {
        match (&self.release, self.created) {
            (Some(release), Some(created)) => created > release.at,
            _ => false,
        }
    }

    /// Whether it was reconstructed from claim and class, because there is no ObjectBucket.
    pub(crate) fn is_reconstructed(&self) -> bool {
        self.uid.is_none()
    }

    /// Whether its adoption is not finished: it belongs to its claim now, but still has the admin's annotation.
    pub(crate) fn is_being_adopted(&self) -> bool {
        self.action == Some(Action::Adopt)
    }
}

pub(crate) fn name(object: &ObjectBucket) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// UID of the claim that an ObjectBucket records, even if the rest is damaged.
pub(crate) fn claim_uid(object: &ObjectBucket) -> Option<&str> {
    state(object, wire::state::CLAIM_UID).or_else(|| object.spec.claim_ref.as_ref()?.uid.as_deref())
}

/// UID of the cluster in which an ObjectBucket was created or adopted.
pub(crate) fn cluster_uid(object: &ObjectBucket) -> Option<&str> {
    state(object, wire::state::CLUSTER_UID)
}

/// Whether the status of an ObjectBucket shows that the claim's credentials were published.
pub(crate) fn status_is_bound(object: &ObjectBucket) -> bool {
    object.status.as_ref().and_then(|status| status.phase) == Some(BucketPhase::Bound)
}

/// The label with the name of an ObjectBucket's bucket.
pub(crate) fn bucket_label(object: &ObjectBucket) -> Option<&str> {
    object.metadata.labels.as_ref()?.get(wire::BUCKET_LABEL).map(String::as_str)
}

/// The bucket that an ObjectBucket records.
pub(crate) fn bucket(object: &ObjectBucket) -> Option<&str> {
    object.spec.endpoint.as_ref()?.bucket_name.as_deref()
}

/// Whether the claimRef of an ObjectBucket names a claim.
pub(crate) fn has_claim_ref(object: &ObjectBucket) -> bool {
    object.spec.claim_ref.as_ref().is_some_and(|reference| reference.name.is_some())
}

/// Whether an ObjectBucket names its claim not only in its claimRef, which some CRDs prune.
pub(crate) fn names_its_claim(object: &ObjectBucket) -> bool {
    [wire::state::CLAIM_NAMESPACE, wire::state::CLAIM_NAME, wire::state::CLAIM_UID]
        .into_iter()
        .all(|key| state(object, key).is_some())
}

/// Whether an ObjectBucket was written by this provisioner, or by a Go provisioner of the same name.
pub(crate) fn is_ours(object: &ObjectBucket, provisioner: &str) -> bool {
    let labels = object.metadata.labels.as_ref();
    let label = labels.and_then(|labels| labels.get(wire::PROVISIONER_LABEL));
    label.is_some_and(|label| *label == wire::provisioner_label(provisioner))
        && state(object, wire::state::PROVISIONER).is_none_or(|name| name == provisioner)
}

/// Whether an ObjectBucket records a claim in the cluster with this uid. The claim's uid in it decides, because only
/// admins can write it.
pub(crate) fn is_owned(object: &ObjectBucket, claim: &Claim, cluster: &str) -> bool {
    let here = cluster_uid(object).is_none_or(|recorded| recorded == cluster);
    here && claim_uid(object) == Some(&claim.id.uid)
}

/// Whether it records an earlier claim of this namespace and name, or this one in another cluster.
pub(crate) fn is_predecessors(object: &ObjectBucket, claim: &Claim, cluster: &str) -> bool {
    claim_uid(object).is_some()
        && !is_owned(object, claim, cluster)
        && claim_name(object) == Some((&claim.id.namespace, &claim.id.name))
}

/// Whether it no longer names its claim, because some CRDs prune that, and everything else in it fits this claim.
pub(crate) fn seems_owned(object: &ObjectBucket, claim: &Claim) -> bool {
    claim_uid(object).is_none() && fits(object, claim)
}

/// Whether a record with a pruned claimRef may be the claim's: its name, class and bucket are those of the claim. A user
/// can write all of these into a claim, and two claims can share the name; but the right claim is older than the record,
/// and nobody can create an older claim now.
fn fits(object: &ObjectBucket, claim: &Claim) -> bool {
    let Ok(spec) = claim.spec() else { return false };
    let name = object.metadata.name.as_deref();
    let bucket = bucket(object);
    is_older(claim, object)
        && claim.label == LabelOwner::Ours
        && names(&claim.id).0.as_deref() == name
        && spec.object_bucket_name.as_deref() == name
        && spec.bucket_name.as_deref() == bucket
        && Some(spec.storage_class_name.as_str()) == object.spec.storage_class_name.as_deref()
}

/// Whether the claim is older than the record.
pub(crate) fn is_older(claim: &Claim, object: &ObjectBucket) -> bool {
    match (&claim.created, &object.metadata.creation_timestamp) {
        (Some(claim), Some(record)) => claim <= record,
        _ => false,
    }
}

/// Namespace and name of the claim that an ObjectBucket records.
pub(crate) fn claim_name(object: &ObjectBucket) -> Option<(&str, &str)> {
    let reference = object.spec.claim_ref.as_ref();
    let namespace = state(object, wire::state::CLAIM_NAMESPACE).or_else(|| reference?.namespace.as_deref())?;
    let name = state(object, wire::state::CLAIM_NAME).or_else(|| reference?.name.as_deref())?;
    Some((object_name(namespace)?, object_name(name)?))
}

/// An entry of its `spec.additionalState`.
pub(crate) fn state<'a>(object: &'a ObjectBucket, key: &str) -> Option<&'a str> {
    object.spec.additional_state.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::decide::codec;
    use crate::decide::testing::record;

    #[test]
    fn a_record_of_a_provisioner_with_the_same_label_is_not_ours() {
        let object = codec::to_object(&record(), "obc-shop-photos", "example.com/s3");
        assert!(is_ours(&object, "example.com/s3"));
        assert!(!is_ours(&object, "example.com-s3"), "its label is the same");
        let mut of_go_provisioner = object;
        of_go_provisioner.spec.additional_state.as_mut().unwrap().remove("provisioner");
        assert!(is_ours(&of_go_provisioner, "example.com/s3"));
    }

    proptest! {
        #[test]
        fn record_names_are_valid_and_those_with_the_uid_differ(
            namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?",
        ) {
            let claim = |uid: &str| ClaimId { namespace: namespace.clone(), name: name.clone(), uid: uid.into() };
            let (one, other) = ("f30e0389-0689-48a2-bfaa-74d1bf1fd950", "00000000-0689-48a2-bfaa-74d1bf1fd950");
            let (plain, unique) = names(&claim(one));
            prop_assert!(unique.len() <= MAX_NAME && unique.ends_with(one));
            prop_assert!(plain.as_ref().is_none_or(|plain| plain.len() <= MAX_NAME));
            prop_assert_eq!(&names(&claim(one)), &(plain, unique.clone()));
            prop_assert_ne!(names(&claim(other)).1, unique);
        }
    }
}
