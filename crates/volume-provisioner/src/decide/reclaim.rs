//! What is due for a PersistentVolume.

use k8s_openapi::api::core::v1::PersistentVolume;

use crate::wire;

/// What is due for a PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing, or nothing of ours.
    Nothing,
    /// It lacks the finalizer, so its deletion by hand would leave the volume; or its uid, so a copy would not be
    /// recognized as one.
    Protect,
    /// It keeps its volume, so nothing is to be deleted with it.
    RemoveFinalizer,
    /// Its volume is deleted, and then it.
    Delete,
    /// Its volume would be deleted, but it may be somebody's.
    Keep(Doubt),
}

/// Why a volume is not deleted. The text is shown on the PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    #[error(
        "the volume is not deleted, because this PersistentVolume was restored or copied: its annotation {key} has the uid of another one. If the volume is to be deleted, write this one's metadata.uid there; if not, set spec.persistentVolumeReclaimPolicy to Retain",
        key = wire::VOLUME_UID
    )]
    Copied,
    #[error(
        "the volume is not deleted, because this PersistentVolume lacks the annotation {key}: another program provisioned it, or it was restored or copied. If the volume is to be deleted, write its metadata.uid there, or start the provisioner with --delete-unmarked-volumes; if not, set spec.persistentVolumeReclaimPolicy to Retain",
        key = wire::VOLUME_UID
    )]
    Unmarked,
    #[error(
        "the volume is not deleted, because claim {0} names this PersistentVolume. If that claim is to have the volume, remove uid and resourceVersion from spec.claimRef; if not, delete the claim"
    )]
    Named(String),
}

/// `named_by`: a claim that names the PersistentVolume, as `namespace/name`. `deletes_unmarked`: one without its uid is its
/// own, as before there was that annotation.
pub(crate) fn due(volume: &PersistentVolume, provisioner: &str, named_by: Option<&str>, deletes_unmarked: bool) -> Due {
    let annotations = volume.metadata.annotations.as_ref();
    let annotation = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    if annotation(wire::PROVISIONED_BY) != Some(provisioner) {
        return Due::Nothing;
    }
    let has_finalizer = volume.metadata.finalizers.iter().flatten().any(|name| name == wire::VOLUME_FINALIZER);
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    match (policy, phase) {
        (Some("Delete"), Some("Released")) if deleting && !has_finalizer => Due::Nothing,
        (Some("Delete"), Some("Released")) => match (named_by, annotation(wire::VOLUME_UID)) {
            (Some(claim), _) => Due::Keep(Doubt::Named(claim.to_owned())),
            (None, Some(uid)) if Some(uid) != volume.metadata.uid.as_deref() => Due::Keep(Doubt::Copied),
            (None, None) if !deletes_unmarked => Due::Keep(Doubt::Unmarked),
            (None, _) => Due::Delete,
        },
        (Some("Delete"), Some("Bound")) if !deleting && (!has_finalizer || annotation(wire::VOLUME_UID).is_none()) => {
            Due::Protect
        }
        (Some("Delete"), _) => Due::Nothing,
        _ if has_finalizer => Due::RemoveFinalizer,
        _ => Due::Nothing,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    const NAME: &str = "example.com/disk";

    fn volume(policy: &str, phase: &str) -> Value {
        json!({
            "metadata": {
                "name": "pvc-1", "uid": "its-own",
                "annotations": { wire::PROVISIONED_BY: NAME, wire::VOLUME_UID: "its-own" },
                "finalizers": ["kubernetes.io/pv-protection", wire::VOLUME_FINALIZER],
            },
            "spec": { "persistentVolumeReclaimPolicy": policy },
            "status": { "phase": phase },
        })
    }

    fn due_of(volume: Value) -> Due {
        due(&serde_json::from_value(volume).unwrap(), NAME, None, false)
    }

    #[test]
    fn only_a_released_volume_with_policy_delete_is_deleted() {
        assert_eq!(due_of(volume("Delete", "Released")), Due::Delete);
        for phase in ["Pending", "Available", "Bound", "Failed"] {
            assert_eq!(due_of(volume("Delete", phase)), Due::Nothing, "{phase}");
        }
        assert_eq!(
            due(&serde_json::from_value(volume("Delete", "Released")).unwrap(), "example.com/other", None, true),
            Due::Nothing
        );
        let mut other = volume("Delete", "Released");
        other["metadata"]["annotations"] = json!({});
        assert_eq!(due_of(other), Due::Nothing);
    }

    #[test]
    fn the_finalizer_is_there_while_there_is_something_to_delete() {
        for phase in ["Bound", "Released"] {
            assert_eq!(due_of(volume("Retain", phase)), Due::RemoveFinalizer, "{phase}");
        }
        let without = |policy, phase, deleting: bool| {
            let mut volume = volume(policy, phase);
            volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
            if deleting {
                volume["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
            }
            due_of(volume)
        };
        assert_eq!(without("Delete", "Bound", false), Due::Protect);
        let mut unmarked = volume("Delete", "Bound");
        unmarked["metadata"]["annotations"] = json!({ wire::PROVISIONED_BY: NAME });
        assert_eq!(due_of(unmarked), Due::Protect);
        assert_eq!(without("Delete", "Bound", true), Due::Nothing, "Kubernetes would refuse it");
        assert_eq!(without("Retain", "Bound", false), Due::Nothing);
        assert_eq!(without("Delete", "Released", false), Due::Delete);
        assert_eq!(without("Delete", "Released", true), Due::Nothing, "its volume is already deleted");
    }

    #[test]
    fn a_volume_that_may_be_somebodys_is_kept() {
        let mut copy = volume("Delete", "Released");
        copy["metadata"]["uid"] = json!("another");
        assert_eq!(due_of(copy.clone()), Due::Keep(Doubt::Copied));
        let named = due(&serde_json::from_value(copy.clone()).unwrap(), NAME, Some("shop/data"), true);
        assert_eq!(named, Due::Keep(Doubt::Named("shop/data".to_owned())), "whose message has the remedy");
        // One that was provisioned by another program has no annotation with its uid.
        copy["metadata"]["annotations"] = json!({ wire::PROVISIONED_BY: NAME });
        let unmarked = serde_json::from_value(copy).unwrap();
        assert_eq!(due(&unmarked, NAME, None, false), Due::Keep(Doubt::Unmarked));
        assert_eq!(due(&unmarked, NAME, None, true), Due::Delete, "an admin has vouched for all of them");
        let released = serde_json::from_value(volume("Delete", "Released")).unwrap();
        assert_eq!(due(&released, NAME, Some("shop/data"), true), Due::Keep(Doubt::Named("shop/data".to_owned())));
    }
}
