//! The metadata of Kubernetes objects: finalizers, controllers, and who wrote what.

use kube::api::ObjectMeta;

use crate::api::wire;

/// Our name in `managedFields`.
pub(crate) const FIELD_MANAGER: &str = "aws-s3-provisioner";

/// Longest annotation that is read. A user can write a hundred kilobytes.
pub(crate) const NOTE_MAX: usize = 253;

/// Whether an object has our finalizer.
pub(crate) fn has_finalizer(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.as_ref().is_some_and(|all| all.iter().any(|f| f == wire::FINALIZER))
}

/// Uid of the controller of an object; the API server allows only one.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

/// The entries of an output's data that nobody else has changed since the operator wrote them.
///
/// `managedFields` shows this: the API server removes an entry from its writer when somebody else changes or removes it.
pub(crate) fn written(metadata: &ObjectMeta) -> impl Iterator<Item = &str> {
    metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(|writer| writer.manager.as_deref() == Some(FIELD_MANAGER))
        .filter_map(|writer| writer.fields_v1.as_ref()?.0.get("f:data")?.as_object())
        .flat_map(|data| data.keys().filter_map(|key| key.strip_prefix("f:")))
}

/// Whether these entries are all among them.
pub(crate) fn wrote(metadata: &ObjectMeta, keys: &[&str]) -> bool {
    keys.iter().all(|key| written(metadata).any(|written| written == *key))
}
