//! The StorageClass of a claim.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;

use crate::store::ReclaimPolicy;

/// The parts of a StorageClass that a plan needs.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) provisioner: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) reclaim_policy: ReclaimPolicy,
}

impl Class {
    pub(crate) fn read(class: &StorageClass) -> Self {
        Self {
            name: class.metadata.name.clone().unwrap_or_default(),
            uid: class.metadata.uid.clone(),
            provisioner: class.provisioner.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
            reclaim_policy: ReclaimPolicy::of_class(class.reclaim_policy.as_deref()),
        }
    }
}

/// A claim's class, as far as known.
#[derive(Debug, Clone)]
pub(crate) enum ClassLookup {
    Found(Class),
    Missing { name: String },
    Unnamed,
}

/// Whose claim it is, by its StorageClass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassOwner {
    /// The class names this provisioner.
    Ours,
    /// The class names another provisioner.
    Foreign,
    /// The class does not exist.
    Missing,
    /// The claim cannot be read, and no class name is found in it.
    Unnamed,
}

impl ClassLookup {
    pub(crate) fn owner(&self, provisioner: &str) -> ClassOwner {
        match self {
            Self::Found(class) if class.provisioner == provisioner => ClassOwner::Ours,
            Self::Found(_) => ClassOwner::Foreign,
            Self::Missing { .. } => ClassOwner::Missing,
            Self::Unnamed => ClassOwner::Unnamed,
        }
    }
}
