//! What a provisioner is asked for: [`VolumeRequest`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TopologySelectorTerm};

use operator_runtime::ReclaimPolicy;

/// The volume that a claim needs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VolumeRequest<T> {
    /// Name of the PersistentVolume: `pvc-` and the uid of the claim. A name for the volume, too, since no other claim
    /// has it, and all calls for this claim do.
    pub pv_name: String,
    /// The claim, without its managed fields, its owners, and all but 16 KiB of its annotations and of its labels. Users can
    /// write anything there.
    pub claim: Arc<PersistentVolumeClaim>,
    /// Name of its StorageClass.
    pub class_name: String,
    /// The parameters of the class.
    pub parameters: T,
    /// How many bytes the volume must have at least. 0 if the claim does not set it.
    pub capacity: u64,
    /// The access modes that the volume must have.
    pub access_modes: Vec<String>,
    /// Whether apps see a directory or a device.
    pub volume_mode: VolumeMode,
    /// The mount options of the class.
    pub mount_options: Vec<String>,
    /// What becomes of the volume when its claim is deleted.
    pub reclaim_policy: ReclaimPolicy,
    /// The node on which the first pod will run, if the class waits for one.
    pub selected_node: Option<SelectedNode>,
    /// Where the class allows volumes; empty for anywhere.
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelectedNode {
    /// Its name.
    pub name: String,
    /// Its labels, which say where it is. Empty if the node no longer exists; then the volume is provisioned only to be
    /// deleted.
    pub labels: BTreeMap<String, String>,
}

/// Whether apps see a directory or a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeMode {
    /// A directory.
    #[default]
    Filesystem,
    /// A device.
    Block,
}

impl VolumeMode {
    /// As it is written in specs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}
