//! Volumes that were provisioned: [`ProvisionedVolume`] and [`VolumeToDelete`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
    PersistentVolumeSpec, VolumeNodeAffinity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// A volume that was provisioned: the provisioner's part of the PersistentVolume. The rest (claim, class, access modes,
/// capacity, policy) is written by the controller.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "it is the answer of provision()"]
pub struct ProvisionedVolume {
    pub(crate) spec: PersistentVolumeSpec,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) note: Option<String>,
}

impl ProvisionedVolume {
    /// A volume whose source is set in `spec`. What else is set there is kept, unless the controller writes it.
    ///
    /// ```
    /// # use volume_provisioner::ProvisionedVolume;
    /// use volume_provisioner::k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolumeSpec};
    ///
    /// fn nfs_volume(server: &str, path: &str) -> ProvisionedVolume {
    ///     let nfs = NFSVolumeSource { server: server.to_owned(), path: path.to_owned(), read_only: None };
    ///     ProvisionedVolume::new(PersistentVolumeSpec { nfs: Some(nfs), ..Default::default() })
    /// }
    /// # let _volume = nfs_volume("nfs.example.com", "/exports/photos");
    /// ```
    pub fn new(spec: PersistentVolumeSpec) -> Self {
        Self { spec, ..Self::default() }
    }

    /// A directory on a node.
    pub fn host_path(path: impl Into<String>) -> Self {
        let source = HostPathVolumeSource { path: path.into(), type_: Some("Directory".to_owned()) };
        Self::new(PersistentVolumeSpec { host_path: Some(source), ..PersistentVolumeSpec::default() })
    }

    /// Pods with this volume can only run on nodes whose label has this value, such as `kubernetes.io/hostname`.
    pub fn on_nodes_with(mut self, label: impl Into<String>, value: impl Into<String>) -> Self {
        let requirement =
            NodeSelectorRequirement { key: label.into(), operator: "In".to_owned(), values: Some(vec![value.into()]) };
        let term = NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None };
        let required = Some(NodeSelector { node_selector_terms: vec![term] });
        self.spec.node_affinity = Some(VolumeNodeAffinity { required });
        self
    }

    /// Notes something that [`delete`](super::VolumeProvisioner::delete) needs later.
    pub fn with_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Labels the PersistentVolume.
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds a note for the user to the event that the volume was provisioned.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// The capacity in bytes, if it is larger than what was asked for.
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.spec.capacity.get_or_insert_default().insert("storage".to_owned(), Quantity(bytes.to_string()));
        self
    }
}

/// A volume that is to be deleted.
#[derive(Debug, Clone)]
pub struct VolumeToDelete {
    object: Arc<PersistentVolume>,
}

impl VolumeToDelete {
    /// The volume of a PersistentVolume.
    pub fn new(object: Arc<PersistentVolume>) -> Self {
        Self { object }
    }

    /// Name of the PersistentVolume.
    pub fn pv_name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// What [`provision`](super::VolumeProvisioner::provision) noted.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The spec of the PersistentVolume. An admin may have edited what Kubernetes allows to edit.
    pub fn spec(&self) -> &PersistentVolumeSpec {
        // A PersistentVolume without a spec is refused by the API server.
        static NONE: std::sync::LazyLock<PersistentVolumeSpec> = std::sync::LazyLock::new(Default::default);
        self.object.spec.as_ref().unwrap_or(&NONE)
    }

    /// The PersistentVolume.
    pub fn object(&self) -> &PersistentVolume {
        &self.object
    }
}
