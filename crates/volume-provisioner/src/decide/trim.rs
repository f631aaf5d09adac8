//! What the caches keep of an object. They hold all claims and PersistentVolumes of the cluster, most of which are none of
//! ours, and users can write large annotations.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use kube::core::ObjectMeta;

use super::claim::{class_of, has_finalizer, is_named, volume_of};
use crate::wire;

/// Longest value of an annotation, in bytes.
const LONGEST: usize = 4096;
/// Most that is kept of the annotations of an object, and of its labels, in bytes; beside them what the controller reads.
const MOST: usize = 16 * 1024;
/// What the controller reads.
const READ: [&str; 8] = [
    wire::PROVISIONED_BY,
    wire::STORAGE_PROVISIONER,
    wire::STORAGE_PROVISIONER_BETA,
    wire::STORAGE_CLASS_BETA,
    wire::SELECTED_NODE,
    wire::HELD_BY,
    wire::VOLUME_UID,
    wire::IDENTITY,
];

/// Of another provisioner's claim, only the fields that name that provisioner.
pub(crate) fn claim(claim: &mut PersistentVolumeClaim, provisioner: &str) {
    if !is_named(claim, provisioner) && !has_finalizer(claim) {
        claim.spec = Some(PersistentVolumeClaimSpec {
            volume_name: volume_of(claim).map(str::to_owned),
            storage_class_name: Some(class_of(claim).to_owned()),
            ..PersistentVolumeClaimSpec::default()
        });
        claim.status = None;
        bare(&mut claim.metadata);
    }
    short(&mut claim.metadata);
}

/// Of a PersistentVolume that is another provisioner's, only its name.
pub(crate) fn volume(volume: &mut PersistentVolume, provisioner: &str) {
    let by = volume.metadata.annotations.as_ref().and_then(|all| all.get(wire::PROVISIONED_BY));
    if by.map(String::as_str) != Some(provisioner) {
        (volume.spec, volume.status) = (None, None);
        bare(&mut volume.metadata);
    }
    short(&mut volume.metadata);
}

fn bare(metadata: &mut ObjectMeta) {
    *metadata = ObjectMeta {
        namespace: metadata.namespace.take(),
        name: metadata.name.take(),
        uid: metadata.uid.take(),
        resource_version: metadata.resource_version.take(),
        ..ObjectMeta::default()
    };
}

fn short(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    metadata.owner_references = None;
    if let Some(finalizers) = &mut metadata.finalizers {
        // They are written by name, so the others need not be known.
        let read = [wire::CLAIM_FINALIZER, wire::VOLUME_FINALIZER, wire::PROTECTION_FINALIZER];
        finalizers.retain(|name| read.contains(&name.as_str()));
    }
    for texts in [&mut metadata.annotations, &mut metadata.labels].into_iter().flatten() {
        let mut size = 0;
        texts.retain(|key, value| {
            let is_read = READ.contains(&key.as_str());
            size += if is_read { 0 } else { key.len() + value.len() };
            value.len() <= LONGEST && (is_read || size <= MOST)
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    const NAME: &str = "example.com/disk";

    fn trimmed(annotations: Value) -> PersistentVolumeClaim {
        let mut object: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": { "name": "data", "uid": "1", "annotations": annotations, "managedFields": [{}] },
            "spec": { "storageClassName": "disks", "accessModes": ["ReadWriteOnce"], "volumeName": "pv" },
            "status": { "phase": "Bound" },
        }))
        .unwrap();
        claim(&mut object, NAME);
        object
    }

    #[test]
    fn of_what_is_not_ours_only_that_is_kept() {
        let foreign = trimmed(json!({ wire::STORAGE_PROVISIONER: "example.com/other" }));
        let expected = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "uid": "1" },
            "spec": { "storageClassName": "disks", "volumeName": "pv" },
        });
        assert_eq!(serde_json::to_value(foreign).unwrap(), expected);
        let mut other = json!({ "metadata": { "name": "pv" }, "spec": { "storageClassName": "disks" } });
        other["metadata"]["annotations"] = json!({ wire::PROVISIONED_BY: "example.com/other" });
        let mut other = serde_json::from_value(other).unwrap();
        volume(&mut other, NAME);
        assert!(other.spec.is_none() && other.metadata.annotations.is_none());
    }

    #[test]
    fn of_ours_all_is_kept_but_what_is_too_long() {
        let ours = trimmed(json!({ wire::STORAGE_PROVISIONER: NAME, "short": "1", "long": "1".repeat(LONGEST + 1) }));
        let annotations = ours.metadata.annotations.unwrap();
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["short", wire::STORAGE_PROVISIONER]);
        assert!(ours.spec.unwrap().access_modes.is_some() && ours.metadata.managed_fields.is_none());
    }

    #[test]
    fn a_user_cannot_make_an_object_large() {
        let many = (0..100_000).map(|number| (format!("a{number}"), json!("1".repeat(60)))).collect();
        let mut annotations = Value::Object(many);
        annotations[wire::STORAGE_PROVISIONER] = json!(NAME);
        let mut object: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {
                "name": "data", "uid": "1", "annotations": annotations, "labels": annotations,
                "finalizers": (0..1000).map(|number| format!("example.com/{number}")).collect::<Vec<_>>(),
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "2" }],
            },
        }))
        .unwrap();
        claim(&mut object, NAME);
        let size = serde_json::to_string(&object).unwrap().len();
        assert!(size < 3 * MOST, "{size} bytes");
        assert!(object.metadata.annotations.unwrap().contains_key(wire::STORAGE_PROVISIONER));
    }
}
