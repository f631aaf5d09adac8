//! Backups of claims, and what becomes of them: objects come back with other uids, and without what a backup leaves
//! out.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{World, seen};
use bucket_provisioner::api::ObjectBucket;

/// One claim with its ObjectBucket and outputs.
#[derive(Debug, Clone)]
pub struct Backup {
    /// The claim.
    pub claim: Value,
    /// Its ObjectBucket.
    pub record: Value,
    /// Its Secret.
    pub secret: Value,
    /// Its ConfigMap.
    pub config_map: Value,
}

/// What Velero takes off an object before it creates it again: it keeps name, namespace, labels, annotations and
/// finalizers, and leaves out owner references and the status ("Restore reference").
fn as_velero_restores(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| ["name", "namespace", "labels", "annotations", "finalizers"].contains(&key.as_str()));
    object
}

/// An object with its type, which lists and single objects leave out.
async fn read<K>(api: &Api<K>, name: &str) -> Value
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let mut object = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object
}

impl World {
    /// Reads a claim, its ObjectBucket and its outputs.
    pub async fn back_up(&self, claim: &str) -> Backup {
        let record = self.claims().get(claim).await.unwrap().spec.object_bucket_name.expect("it is bound");
        Backup {
            claim: read(&self.claims(), claim).await,
            record: read(&self.records(), &record).await,
            secret: read(&self.secrets(), claim).await,
            config_map: read(&self.config_maps(), claim).await,
        }
    }

    /// Deletes a claim, its ObjectBucket and its outputs by force, as if the cluster had been lost: the store is not
    /// called. No operator may run.
    pub async fn lose(&self, claim: &str) {
        let record = self.claims().get(claim).await.unwrap().spec.object_bucket_name.expect("it is bound");
        self.forget_object(&self.records(), &record).await;
        self.forget_object(&self.claims(), claim).await;
        let no_secret = |secret: Option<&Secret>| secret.is_none();
        seen(&self.secrets(), claim, no_secret).await.expect("the garbage collector takes it");
        let no_config_map = |config_map: Option<&ConfigMap>| config_map.is_none();
        seen(&self.config_maps(), claim, no_config_map).await.expect("the garbage collector takes it");
    }

    /// Deletes an object by force.
    pub async fn forget_object<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    {
        self.strip_finalizers(api, name).await;
        let _ = api.delete(name, &DeleteParams::default()).await;
        // One that was being deleted no longer exists, or an operator has put its finalizer back.
        let _ = api.patch_metadata(name, &PatchParams::default(), &unfinalized()).await;
        seen(api, name, |object| object.is_none()).await.expect("it is deleted");
    }

    /// Takes the finalizers off an object.
    pub async fn strip_finalizers<K>(&self, api: &Api<K>, name: &str)
    where
        K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
    {
        api.patch_metadata(name, &PatchParams::default(), &unfinalized()).await.unwrap();
    }

    /// Creates an object from a backup, as Velero would; returns its uid.
    pub async fn restore(&self, object: &Value) -> String {
        let object: DynamicObject = serde_json::from_value(as_velero_restores(object)).unwrap();
        self.dynamic(&object).create(&PostParams::default(), &object).await.unwrap().uid().unwrap()
    }

    fn dynamic(&self, object: &DynamicObject) -> Api<DynamicObject> {
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Sets an admin's annotation on an ObjectBucket.
    pub async fn set_action(&self, record: &str, action: &str) {
        let patch = json!({ "metadata": { "annotations": { "objectbucket.io/orphan": action } } });
        self.records().patch(record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the condition `Orphaned` of an ObjectBucket has this reason; returns the message.
    pub async fn wait_orphaned(&self, record: &str, reason: &str) -> String {
        self.wait_condition(record, "Orphaned", reason).await
    }

    /// Waits until a condition of an ObjectBucket has this reason; returns its message.
    pub async fn wait_condition(&self, record: &str, type_: &str, reason: &str) -> String {
        let find = |object: &ObjectBucket| {
            let conditions = object.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
            conditions.into_iter().find(|c| c.type_ == type_ && c.reason == reason)
        };
        let waited = seen(&self.records(), record, |object| object.is_some_and(|object| find(object).is_some())).await;
        match waited {
            Ok(object) => {
                // It is written after the condition.
                self.wait_event_on_record(record, reason).await;
                find(&object.unwrap()).unwrap().message
            }
            Err(_) => panic!("not {reason}: {:#?}", self.records().get_opt(record).await),
        }
    }

    /// Waits until the operator has removed an admin's annotation from an ObjectBucket.
    pub async fn wait_action_removed(&self, record: &str) {
        let is_off = |object: Option<&ObjectBucket>| {
            object.is_some_and(|object| !object.annotations().contains_key("objectbucket.io/orphan"))
        };
        let off = seen(&self.records(), record, is_off).await;
        assert!(off.is_ok(), "the annotation is not removed: {:#?}", self.records().get_opt(record).await);
    }

    /// Waits until an ObjectBucket no longer exists.
    pub async fn wait_record_gone(&self, record: &str) {
        let gone = seen(&self.records(), record, |object| object.is_none()).await;
        assert!(gone.is_ok(), "it is still there: {:#?}", self.records().get_opt(record).await);
    }
}

pub(super) fn unfinalized() -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "finalizers": null } }))
}
