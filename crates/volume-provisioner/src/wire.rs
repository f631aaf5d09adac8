//! Names on the wire that the controller of volumes reads and writes, each written once.
//!
//! Those of Kubernetes are the ones of sig-storage-lib-external-provisioner, which provisioners written in Go use.

/// On a PersistentVolume: name of the provisioner that created it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim, set by Kubernetes: name of the provisioner that is to provision its volume.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same, as older clusters write it.
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: name of its StorageClass, instead of `spec.storageClassName`.
pub const STORAGE_CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// On a claim, set by the scheduler: the node on which its first pod will run.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Keeps a PersistentVolume until its volume is deleted.
pub const VOLUME_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Keeps a PersistentVolume while it is bound. Kubernetes sets and removes it.
pub(crate) const PROTECTION_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Keeps a claim while its volume is provisioned: until it is bound, or what was begun is undone.
pub const CLAIM_FINALIZER: &str = "volume.objectbucket.io/provisioning";
/// On a claim with [`CLAIM_FINALIZER`]: who provisions, by name and identity. Others leave the claim alone.
pub const HELD_BY: &str = "volume.objectbucket.io/held-by";
/// On a PersistentVolume: its own uid. A copy of the object, restored from a backup or in another cluster, has another
/// uid, so it does not delete the volume of the original.
pub const VOLUME_UID: &str = "volume.objectbucket.io/uid";

/// On a PersistentVolume: the identity of the instance that provisioned it. Others leave it alone.
pub const IDENTITY: &str = "volume.objectbucket.io/identity";

/// The value of [`HELD_BY`] for a provisioner with this identity.
pub(crate) fn holder(provisioner: &str, identity: &str) -> String {
    match identity {
        "" => provisioner.to_owned(),
        identity => format!("{provisioner} {identity}"),
    }
}

/// The name of the PersistentVolume of a claim, as all provisioners choose it.
pub(crate) fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}
