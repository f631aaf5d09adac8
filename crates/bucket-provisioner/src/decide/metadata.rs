//! The metadata of Kubernetes objects: finalizers, controllers, and who wrote what.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{ObjectMeta, PatchParams, PostParams};

use crate::api::wire;

/// The operator's name in `managedFields`.
#[derive(Debug, Clone)]
pub(crate) struct FieldManager(Arc<str>);

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

/// Whether an output has this entry, whoever wrote it.
pub(crate) fn has_entry(metadata: &ObjectMeta, key: &str) -> bool {
    metadata.managed_fields.iter().flatten().flat_map(entries).any(|written| written == key)
}

/// The entries of an output's data that are this writer's.
fn entries(writer: &ManagedFieldsEntry) -> impl Iterator<Item = &str> {
    let data = writer.fields_v1.as_ref().and_then(|fields| fields.0.get("f:data")?.as_object());
    data.into_iter().flat_map(|data| data.keys().filter_map(|key| key.strip_prefix("f:")))
}

impl FieldManager {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// For an object that is created.
    pub(crate) fn creates(&self) -> PostParams {
        PostParams { field_manager: Some(self.0.as_ref().to_owned()), ..PostParams::default() }
    }

    /// For an object that is merged.
    pub(crate) fn merges(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.0.as_ref().to_owned()), ..PatchParams::default() }
    }

    /// For an object that is applied, whoever else has its fields.
    pub(crate) fn applies(&self) -> PatchParams {
        PatchParams::apply(&self.0).force()
    }

    /// The entries of an output's data that nobody else has changed since the operator wrote them.
    ///
    /// `managedFields` shows this: the API server removes an entry from its writer when somebody else changes or removes it.
    pub(crate) fn written<'a>(&'a self, metadata: &'a ObjectMeta) -> impl Iterator<Item = &'a str> {
        self.writes(metadata).flat_map(entries)
    }

    fn writes<'a>(&'a self, metadata: &'a ObjectMeta) -> impl Iterator<Item = &'a ManagedFieldsEntry> {
        metadata.managed_fields.iter().flatten().filter(|writer| writer.manager.as_deref() == Some(&self.0))
    }

    /// Whether the operator has written anything of the object.
    pub(crate) fn has_written(&self, metadata: &ObjectMeta) -> bool {
        self.writes(metadata).next().is_some()
    }

    /// Whether these entries are all among them.
    pub(crate) fn wrote(&self, metadata: &ObjectMeta, keys: &[&str]) -> bool {
        keys.iter().all(|key| self.written(metadata).any(|written| written == *key))
    }
}
