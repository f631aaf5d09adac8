//! A StorageClass, as far as provisioning needs it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TopologySelectorTerm;
use k8s_openapi::api::storage::v1::StorageClass;

use operator_runtime::ReclaimPolicy;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) provisioner: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) mount_options: Vec<String>,
    pub(crate) reclaim_policy: ReclaimPolicy,
    /// Whether a volume is provisioned only when the scheduler has selected a node.
    pub(crate) waits_for_pod: bool,
    pub(crate) allowed_topologies: Vec<TopologySelectorTerm>,
}

impl Class {
    pub(crate) fn read(class: &StorageClass) -> Self {
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            provisioner: class.provisioner.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
            mount_options: class.mount_options.clone().unwrap_or_default(),
            reclaim_policy: ReclaimPolicy::of_class(class.reclaim_policy.as_deref()),
            waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            allowed_topologies: class.allowed_topologies.clone().unwrap_or_default(),
        }
    }
}
