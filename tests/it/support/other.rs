//! The other cluster: for tests that change CRDs, which all claims of a cluster share, and for those of two
//! clusters on one AWS account.

use std::time::Duration;

use bucket_provisioner::api;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::ApiResource;
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::{PATIENCE, Store, World, needed, seen};

const PLURALS: [&str; 2] = ["objectbucketclaims", "objectbuckets"];

/// The other cluster. One test at a time has it, and finds it without claims and with our own CRDs.
pub(crate) struct OtherCluster {
    pub(crate) client: Client,
    config: Config,
    _guard: MutexGuard<'static, ()>,
}

impl OtherCluster {
    pub(crate) async fn take() -> Self {
        static IN_USE: Mutex<()> = Mutex::const_new(());
        let kubeconfig = Kubeconfig::read_from(needed("OTHER_KUBECONFIG")).expect("OTHER_KUBECONFIG can be read");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let guard = IN_USE.lock().await;
        let cluster = Self { client: Client::try_from(config.clone()).unwrap(), config, _guard: guard };
        cluster.clear().await;
        cluster.install(&ours()).await;
        cluster
    }

    /// A world in this cluster.
    pub(crate) async fn world(&self) -> World {
        self.world_called(&provisioner_conformance::World::new_id()).await
    }

    /// A world in this cluster whose names are made from `id`.
    pub(crate) async fn world_called(&self, id: &str) -> World {
        World::in_cluster(self.config.clone(), self.client.clone(), id, Store::aws()).await
    }

    /// A world in this cluster whose namespace, classes and provisioner have the names of those of `world`.
    pub(crate) async fn twin_of(&self, world: &World) -> World {
        self.world_called(&world.id).await
    }

    /// Puts these CRDs in place of those that are there, and waits until they are served.
    pub(crate) async fn install(&self, crds: &[Value]) {
        for crd in crds {
            let served = self.install_one(crd.clone()).await;
            let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
            self.until(&format!("the CRD of {plural} is served"), async || {
                self.columns(plural).await.contains(&served)
            })
            .await;
        }
    }

    /// The API server takes a moment to serve a changed CRD and reports nowhere when it does. A printer column,
    /// which changes nothing else, shows it; returns its name.
    async fn install_one(&self, mut crd: Value) -> String {
        let served = format!("{:08x}", rand::random::<u32>());
        let columns = crd["spec"]["versions"][0].as_object_mut().unwrap().entry("additionalPrinterColumns");
        let column = json!({ "name": served, "type": "string", "jsonPath": ".metadata.name", "priority": 1 });
        columns.or_insert_with(|| json!([])).as_array_mut().unwrap().push(column);
        let mut crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
        let name = crd.name_any();
        match self.crds().get_opt(&name).await.unwrap() {
            Some(found) => {
                crd.metadata.resource_version = found.metadata.resource_version;
                self.crds().replace(&name, &PostParams::default(), &crd).await.unwrap();
            }
            None => {
                self.crds().create(&PostParams::default(), &crd).await.unwrap();
            }
        }
        served
    }

    /// Deletes the CRDs, and with them all claims and ObjectBuckets, as soon as finalizers let them go.
    pub(crate) async fn delete_crds(&self) {
        for plural in PLURALS {
            self.delete_crd(plural).await;
        }
    }

    /// Deletes the CRD of one kind, if it is there.
    pub(crate) async fn delete_crd(&self, plural: &str) {
        match self.crds().delete(&format!("{plural}.objectbucket.io"), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => drop(answer.unwrap()),
        }
    }

    /// Annotates the CRDs, as an admin who wants everything to be deleted.
    pub(crate) async fn confirm_deletion(&self) {
        let patch =
            Patch::Merge(json!({ "metadata": { "annotations": { "objectbucket.io/confirm-deletion": "yes" } } }));
        for plural in PLURALS {
            let name = format!("{plural}.objectbucket.io");
            // One may be deleted by now.
            let _ = self.crds().patch(&name, &PatchParams::default(), &patch).await;
        }
    }

    pub(crate) async fn wait_crds_gone(&self) {
        for plural in PLURALS {
            let gone = |crd: Option<&CustomResourceDefinition>| crd.is_none();
            let gone = seen(&self.crds(), &format!("{plural}.objectbucket.io"), gone).await;
            gone.unwrap_or_else(|_| panic!("the CRD of {plural} is still there"));
        }
    }

    fn crds(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// The printer columns of a kind, none while it is not served.
    async fn columns(&self, plural: &str) -> Vec<String> {
        let request = hyper::Request::get(format!("/apis/objectbucket.io/v1alpha1/{plural}?limit=1"))
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())
            .unwrap();
        let Ok(table) = self.client.request::<Value>(request).await else { return Vec::new() };
        let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
        columns.iter().filter_map(|column| column["name"].as_str().map(str::to_owned)).collect()
    }

    /// Removes what earlier tests left, of whatever shape.
    async fn clear(&self) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        for class in classes.list_metadata(&ListParams::default()).await.unwrap() {
            if class.name_any().starts_with("t-") {
                classes.delete(&class.name_any(), &DeleteParams::default()).await.unwrap();
            }
        }
        for (plural, kind) in PLURALS.into_iter().zip(["ObjectBucketClaim", "ObjectBucket"]) {
            let gvk = kube::core::GroupVersionKind::gvk("objectbucket.io", "v1alpha1", kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
            let all: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            // Without a CRD there is nothing.
            let Ok(left) = all.list(&ListParams::default()).await else { continue };
            for object in left {
                let api = match object.namespace() {
                    Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
                    None => all.clone(),
                };
                let name = object.name_any();
                let unfinalized = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
                let _ = api.delete(&name, &DeleteParams::default()).await;
                let _ = api.patch_metadata(&name, &PatchParams::default(), &unfinalized).await;
                seen(&api, &name, |object| object.is_none()).await.expect("what a test left is deleted");
            }
        }
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let trying = async {
            while !holds().await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, trying).await.unwrap_or_else(|_| panic!("not so in time: {what}"));
    }
}

/// Our own CRDs.
pub(crate) fn ours() -> [Value; 2] {
    api::crds().map(|(_, crd)| serde_json::to_value(crd).unwrap())
}

/// Those in `fixtures/crds`, written after what is met in clusters.
pub(crate) fn fixture_crds(text: &str) -> Vec<Value> {
    text.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}
