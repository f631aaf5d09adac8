//! What a claim asks for, and whether the provisioner can be asked at all.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::class::Class;
use crate::quantity;
use crate::request::{SelectedNode, VolumeMode, VolumeRequest};
use crate::wire;
use operator_runtime::ParameterError;
use operator_runtime::parameters::{names_of, read};

/// Why a claim is refused before the provisioner is asked. The text is shown on the claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("StorageClass {class:?} does not exist; create it, or create a claim that names another class")]
    NoClass { class: String },
    #[error("StorageClass {class:?}: {problem}; an admin must delete the class and create it again")]
    Parameters { class: String, problem: ParameterError },
    #[error(
        "spec.selector selects volumes that exist, and {provisioner} creates new ones; create the claim without it"
    )]
    Selector { provisioner: String },
    #[error("spec.dataSource: {provisioner} creates empty volumes; create the claim without it")]
    DataSource { provisioner: String },
    #[error(
        "spec.volumeAttributesClassName: {provisioner} has no such classes, and Kubernetes would not bind the volume; create the claim without it"
    )]
    AttributesClass { provisioner: String },
    #[error(
        "spec.accessModes: {mode:?} cannot be had from {provisioner}; create the claim with one of: {}", .known.join(", ")
    )]
    AccessMode { mode: String, provisioner: String, known: &'static [&'static str] },
    #[error("spec.volumeMode: \"Block\" cannot be had from {provisioner}; create the claim with \"Filesystem\"")]
    Block { provisioner: String },
    #[error(
        "spec.resources.requests.storage: {quantity:?} is not a size in bytes below 16Ei; create the claim with one such as 1Gi"
    )]
    Capacity { quantity: String },
}

/// What a provisioner can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abilities {
    pub(crate) access_modes: &'static [&'static str],
    pub(crate) block: bool,
}

pub(crate) fn request<T: DeserializeOwned + JsonSchema>(
    claim: &Arc<PersistentVolumeClaim>,
    class: &Class,
    abilities: Abilities,
    selected_node: Option<SelectedNode>,
) -> Result<VolumeRequest<T>, Refusal> {
    let spec = claim.spec.clone().unwrap_or_default();
    let provisioner = || class.provisioner.clone();
    if spec.selector.is_some() {
        return Err(Refusal::Selector { provisioner: provisioner() });
    }
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        return Err(Refusal::DataSource { provisioner: provisioner() });
    }
    if spec.volume_attributes_class_name.is_some() {
        return Err(Refusal::AttributesClass { provisioner: provisioner() });
    }
    let access_modes = spec.access_modes.unwrap_or_default();
    if let Some(mode) = access_modes.iter().find(|mode| !abilities.access_modes.contains(&mode.as_str())) {
        let known = abilities.access_modes;
        return Err(Refusal::AccessMode { mode: mode.clone(), provisioner: provisioner(), known });
    }
    let volume_mode = match spec.volume_mode.as_deref() {
        Some("Block") if !abilities.block => return Err(Refusal::Block { provisioner: provisioner() }),
        Some("Block") => VolumeMode::Block,
        _ => VolumeMode::Filesystem,
    };
    let asked = spec.resources.and_then(|resources| resources.requests?.remove("storage"));
    let capacity = match asked {
        None => 0,
        Some(asked) => quantity::bytes(&asked.0).ok_or(Refusal::Capacity { quantity: asked.0 })?,
    };
    Ok(VolumeRequest {
        pv_name: wire::volume_name(claim.metadata.uid.as_deref().unwrap_or_default()),
        claim: Arc::clone(claim),
        class_name: class.name.clone(),
        parameters: parameters(class)?,
        capacity,
        access_modes,
        volume_mode,
        mount_options: class.mount_options.clone(),
        reclaim_policy: class.reclaim_policy,
        selected_node,
        allowed_topologies: class.allowed_topologies.clone(),
    })
}

fn parameters<T: DeserializeOwned + JsonSchema>(class: &Class) -> Result<T, Refusal> {
    let names = names_of::<T>();
    let unknown = class.parameters.keys().find(|name| !names.contains(&name.as_str()));
    let parsed = match unknown {
        Some(name) => {
            let known = if names.is_empty() { "(none)".to_owned() } else { names.join(", ") };
            Err(ParameterError::Unknown { name: name.clone(), known })
        }
        None => read(&class.parameters),
    };
    parsed.map_err(|problem| Refusal::Parameters { class: class.name.clone(), problem })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    struct Disk {
        block_size: u32,
    }

    const ABLE: Abilities = Abilities { access_modes: &["ReadWriteOnce"], block: false };

    fn asked(spec: Value, parameters: Value, abilities: Abilities) -> Result<VolumeRequest<Disk>, Refusal> {
        let claim = json!({ "metadata": { "name": "data", "uid": "1-2" }, "spec": spec });
        let class = json!({ "metadata": { "name": "disks" }, "provisioner": "example.com/disk",
            "parameters": parameters, "mountOptions": ["ro"], "reclaimPolicy": "Retain" });
        let class = Class::read(&serde_json::from_value(class).unwrap());
        request(&Arc::new(serde_json::from_value(claim).unwrap()), &class, abilities, None)
    }

    fn fine() -> Value {
        json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Ki" } } })
    }

    #[test]
    fn a_request_has_the_fields_of_claim_and_class() {
        let request = asked(fine(), json!({ "blockSize": "512" }), ABLE).unwrap();
        assert_eq!(request.pv_name, "pvc-1-2");
        assert_eq!((request.parameters, request.capacity), (Disk { block_size: 512 }, 1024));
        assert_eq!((request.class_name.as_str(), request.mount_options), ("disks", vec!["ro".to_owned()]));
        assert_eq!(request.reclaim_policy.as_str(), "Retain");
        assert_eq!(
            (request.access_modes, request.volume_mode.as_str()),
            (vec!["ReadWriteOnce".to_owned()], "Filesystem")
        );
    }

    #[test]
    fn a_refusal_names_field_value_and_remedy() {
        let with = |key: &str, value: Value| {
            let mut spec = fine();
            spec[key] = value;
            asked(spec, json!({ "blockSize": "512" }), ABLE).unwrap_err().to_string()
        };
        let refused = [
            with("selector", json!({})),
            with("dataSource", json!({ "kind": "VolumeSnapshot", "name": "yesterday" })),
            with("accessModes", json!(["ReadWriteMany"])),
            with("volumeMode", json!("Block")),
            with("resources", json!({ "requests": { "storage": "1e99" } })),
            asked(fine(), json!({ "blockSize": "512", "bloksize": "1" }), ABLE).unwrap_err().to_string(),
            asked(fine(), json!({ "blockSize": "much" }), ABLE).unwrap_err().to_string(),
            asked(fine(), json!({}), ABLE).unwrap_err().to_string(),
        ];
        let expected = [
            "spec.selector selects volumes that exist, and example.com/disk creates new ones; create the claim without it",
            "spec.dataSource: example.com/disk creates empty volumes; create the claim without it",
            "spec.accessModes: \"ReadWriteMany\" cannot be had from example.com/disk; create the claim with one of: ReadWriteOnce",
            "spec.volumeMode: \"Block\" cannot be had from example.com/disk; create the claim with \"Filesystem\"",
            "spec.resources.requests.storage: \"1e99\" is not a size in bytes below 16Ei; create the claim with one such as 1Gi",
            "StorageClass \"disks\": unknown parameter \"bloksize\" (do you mean \"blockSize\"?); an admin must delete the class and create it again",
            "StorageClass \"disks\": parameter blockSize: \"much\" is not a whole number of zero or more, or too large; an admin must delete the class and create it again",
            "StorageClass \"disks\": parameter blockSize is missing: the StorageClass must set it; an admin must delete the class and create it again",
        ];
        assert_eq!(refused, expected);
        let block = json!({ "accessModes": [], "volumeMode": "Block" });
        let able = Abilities { block: true, ..ABLE };
        assert_eq!(asked(block, json!({ "blockSize": "512" }), able).unwrap().volume_mode, VolumeMode::Block);
    }
}
