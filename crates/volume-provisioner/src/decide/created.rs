//! The PersistentVolume of a volume that was provisioned.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::core::ObjectMeta;

use super::claim::Who;
use crate::request::VolumeRequest;
use crate::volume::ProvisionedVolume;
use crate::wire;
use operator_runtime::ReclaimPolicy;

/// The PersistentVolume to create. Kubernetes binds it to the claim that it names.
pub(crate) fn persistent_volume<T>(
    request: &VolumeRequest<T>,
    provisioned: ProvisionedVolume,
    who: &Who,
) -> PersistentVolume {
    let ProvisionedVolume { spec, mut annotations, labels, note: _ } = provisioned;
    annotations.insert(wire::PROVISIONED_BY.to_owned(), who.provisioner.clone());
    if !who.identity.is_empty() {
        annotations.insert(wire::IDENTITY.to_owned(), who.identity.clone());
    }
    let capacity = spec.capacity.clone().unwrap_or_else(|| {
        let asked = || request.claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned();
        let asked = asked().unwrap_or_else(|| Quantity(request.capacity.to_string()));
        [("storage".to_owned(), asked)].into()
    });
    let not_empty = |options: &Vec<String>| !options.is_empty();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(request.pv_name.clone()),
            annotations: Some(annotations),
            labels: Some(labels).filter(|labels: &BTreeMap<_, _>| !labels.is_empty()),
            finalizers: (request.reclaim_policy == ReclaimPolicy::Delete)
                .then(|| vec![wire::VOLUME_FINALIZER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(request.access_modes.clone()),
            capacity: Some(capacity),
            claim_ref: Some(reference(&request.claim)),
            mount_options: spec.mount_options.clone().or_else(|| Some(request.mount_options.clone())).filter(not_empty),
            persistent_volume_reclaim_policy: Some(request.reclaim_policy.as_str().to_owned()),
            storage_class_name: Some(request.class_name.clone()),
            volume_mode: Some(request.volume_mode.as_str().to_owned()),
            ..spec
        }),
        status: None,
    }
}

fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Whether a PersistentVolume with the right name is the claim's own, created by this provisioner.
pub(crate) fn is_of(volume: &PersistentVolume, claim_uid: &str, provisioner: &str) -> bool {
    is_for(volume, claim_uid) && is_by(volume, provisioner)
}

/// Whether a PersistentVolume was created by this provisioner, whichever claim it names now.
pub(crate) fn is_by(volume: &PersistentVolume, provisioner: &str) -> bool {
    let by = volume.metadata.annotations.as_ref().and_then(|all| all.get(wire::PROVISIONED_BY));
    by.map(String::as_str) == Some(provisioner)
}

/// Whether a PersistentVolume is the claim's, whoever created it.
pub(crate) fn is_for(volume: &PersistentVolume, claim_uid: &str) -> bool {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    claim.and_then(|claim| claim.uid.as_deref()) == Some(claim_uid)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::decide::class::Class;
    use crate::decide::request::{Abilities, request};

    #[test]
    fn a_persistent_volume_can_be_bound_and_deleted() {
        let claim = json!({
            "metadata": { "namespace": "shop", "name": "data", "uid": "1-2" },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } } },
        });
        let class =
            json!({ "metadata": { "name": "disks" }, "provisioner": "example.com/disk", "mountOptions": ["noatime"] });
        let class = Class::read(&serde_json::from_value(class).unwrap());
        let abilities = Abilities { access_modes: &["ReadWriteOnce"], block: false };
        let claim = Arc::new(serde_json::from_value(claim).unwrap());
        let request = request::<()>(&claim, &class, abilities, None).unwrap();
        let provisioned = ProvisionedVolume::host_path("/data/pvc-1-2")
            .on_nodes_with("kubernetes.io/hostname", "node-1")
            .with_annotation("diskIdentity", "node-1");
        let volume = persistent_volume(&request, provisioned.clone(), &Who::new("example.com/disk", "node-1"));
        let expected = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {
                "name": "pvc-1-2",
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": "example.com/disk", "diskIdentity": "node-1",
                    "volume.objectbucket.io/identity": "node-1",
                },
                "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "1Mi" },
                "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "1-2" },
                "hostPath": { "path": "/data/pvc-1-2", "type": "Directory" },
                "mountOptions": ["noatime"],
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"] },
                ] }] } },
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "disks",
                "volumeMode": "Filesystem",
            },
        });
        assert_eq!(serde_json::to_value(&volume).unwrap(), expected);
        assert!(is_of(&volume, "1-2", "example.com/disk"));
        assert!(!is_of(&volume, "1-3", "example.com/disk") && !is_of(&volume, "1-2", "example.com/other"));

        let who = Who::new("example.com/disk", "");
        let larger = persistent_volume(&request, provisioned.with_capacity(1 << 30), &who);
        assert!(!larger.metadata.annotations.unwrap().contains_key(wire::IDENTITY));
        assert_eq!(larger.spec.unwrap().capacity.unwrap()["storage"].0, "1073741824");
    }
}
