//! What one check works in: a namespace, a provisioner and a proxy in front of the API server, all its own.

mod backup;
mod deletion;
mod objects;
mod view;
mod waits;

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition as _, conditions};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

pub use self::backup::Backup;
pub use self::objects::assert_hidden;
pub use self::view::{View, Watched};
pub use self::waits::seen;
use super::proxy::{ApiServer, Proxy};
use bucket_provisioner::api::{
    self, ClaimPhase, Condition, ConditionStatus, ObjectBucket, ObjectBucketClaim, ObjectBucketClaimSpec,
};

/// What one check works in.
pub struct World {
    /// Part of the names of all that the check makes, and of nothing else: 8 hexadecimal digits.
    pub id: String,
    /// The namespace of its claims.
    pub namespace: String,
    /// The name under which its operator serves classes.
    pub provisioner: String,
    /// A client past the proxy.
    pub client: Client,
    /// In front of the API server; operators go through it.
    pub kubernetes: Proxy<ApiServer>,
    /// Whether the namespace was created for this world, and is deleted with it.
    owns_namespace: bool,
    /// Without one of these the proxy, which has the rights of `KUBECONFIG`, serves nobody.
    tokens: Tokens,
}

/// Who comes through a world's proxy.
#[derive(Clone)]
pub struct Tokens {
    /// Its operators.
    pub operator: String,
    /// An admin, with the commands of the program.
    pub admin: String,
}

impl Tokens {
    fn new() -> Self {
        let token = || format!("{:032x}", rand::random::<u128>());
        Self { operator: token(), admin: token() }
    }
}

/// Creates our CRDs where they are missing, and waits until they are served. Those that are there stay as they are.
pub async fn install_crds(client: &Client) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, crd) in api::crds() {
        let name = crd.name_any();
        match crds.create(&PostParams::default(), &crd).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("the CRD {name} cannot be created: {error}"),
        }
        let established = conditions::is_crd_established();
        let seen = seen(&crds, &name, |crd| established.matches_object(crd)).await;
        seen.expect("the CRD is established");
    }
}

impl World {
    /// An id that no other world has.
    pub fn new_id() -> String {
        format!("{:08x}", rand::random::<u32>())
    }

    /// A new world, with a namespace of its own.
    pub async fn in_cluster(client: Client, id: &str) -> Self {
        let namespace = format!("t-{id}");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = Namespace {
            metadata: ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        Self { owns_namespace: true, ..Self::in_namespace(client, &namespace, id).await }
    }

    /// A new world in a namespace that exists, and that stays.
    pub async fn in_namespace(client: Client, namespace: &str, id: &str) -> Self {
        let tokens = Tokens::new();
        let server = ApiServer::behind(client.clone(), &tokens.operator).and(client.clone(), &tokens.admin);
        Self {
            provisioner: format!("t-{id}.example.com/bucket"),
            kubernetes: Proxy::start(server).await,
            owns_namespace: false,
            tokens,
            id: id.to_owned(),
            namespace: namespace.to_owned(),
            client,
        }
    }

    /// A configuration with which a client of this process reaches the API server through the proxy.
    pub fn config(&self) -> kube::Config {
        let mut config = kube::Config::new(self.kubernetes.url.parse().unwrap());
        config.auth_info.token = Some(self.tokens.operator.clone().into());
        config
    }

    /// Who comes through the proxy.
    pub fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// A kubeconfig with which operators reach the API server through the proxy.
    pub fn kubeconfig(&self) -> serde_json::Value {
        self.kubeconfig_with(&self.tokens.operator)
    }

    /// The same for an admin.
    pub fn admin_kubeconfig(&self) -> serde_json::Value {
        self.kubeconfig_with(&self.tokens.admin)
    }

    fn kubeconfig_with(&self, token: &str) -> serde_json::Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": self.kubernetes.url } }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        })
    }

    /// A name that no other test uses, valid for buckets and classes.
    pub fn unique(&self, name: &str) -> String {
        format!("t-{}-{name}", self.id)
    }

    /// Writes a Secret into the world's namespace, or rewrites it.
    pub async fn write_secret<K: AsRef<str>, V: AsRef<str>>(&self, name: &str, data: impl IntoIterator<Item = (K, V)>) {
        let data = data.into_iter();
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some(
                data.map(|(k, v)| (k.as_ref().to_owned(), ByteString(v.as_ref().as_bytes().to_vec()))).collect(),
            ),
            ..Secret::default()
        };
        let apply = PatchParams::apply("tests").force();
        self.secrets().patch(name, &apply, &Patch::Apply(&secret)).await.unwrap();
    }

    /// Creates a class as it stands; parameters cannot be changed later, so a class of this world with that name is
    /// replaced.
    pub async fn create_class(&self, class: serde_json::Value) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let class: StorageClass = serde_json::from_value(class).unwrap();
        if class.name_any().contains(&self.id) {
            let _ = classes.delete(&class.name_any(), &DeleteParams::default()).await;
        }
        classes.create(&PostParams::default(), &class).await.unwrap();
    }

    /// Deletes a class.
    pub async fn delete_class(&self, class: &str) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        classes.delete(class, &DeleteParams::default()).await.unwrap();
    }

    /// The claims of the world's namespace.
    pub fn claims(&self) -> Api<ObjectBucketClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The ObjectBuckets of the cluster.
    pub fn records(&self) -> Api<ObjectBucket> {
        Api::all(self.client.clone())
    }

    /// The Secrets of the world's namespace.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The ConfigMaps of the world's namespace.
    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The name that a claim's record has by default.
    pub fn record_name(&self, claim: &str) -> String {
        format!("obc-{}-{claim}", self.namespace)
    }

    /// Submits a claim for a generated bucket name.
    pub async fn claim(&self, name: &str, class: &str) -> ObjectBucketClaim {
        self.claim_with(name, json!({ "storageClassName": class, "generateBucketName": name })).await
    }

    /// Submits a claim with this spec.
    pub async fn claim_with(&self, name: &str, spec: serde_json::Value) -> ObjectBucketClaim {
        let spec: ObjectBucketClaimSpec = serde_json::from_value(spec).unwrap();
        self.claims().create(&PostParams::default(), &ObjectBucketClaim::new(name, spec)).await.unwrap()
    }

    /// Deletes a claim, and does not wait until it no longer exists.
    pub async fn delete_claim(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Sets the Ready condition of a bound claim to False, as an operator does after an error.
    pub async fn unready(&self, name: &str) {
        let mut conditions = self.claims().get(name).await.unwrap().status.unwrap().conditions;
        (conditions[0].status, conditions[0].reason) = (ConditionStatus::False, "KubernetesError".to_owned());
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
        self.claims().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Requires that nothing of a claim is left in the cluster.
    pub async fn assert_no_objects(&self, name: &str) {
        assert!(self.claims().get_opt(name).await.unwrap().is_none(), "the claim is left");
        assert!(self.secrets().get_opt(name).await.unwrap().is_none(), "the Secret is left");
        assert!(self.config_maps().get_opt(name).await.unwrap().is_none(), "the ConfigMap is left");
        let records = self.records().list(&ListParams::default()).await.unwrap();
        let mine: Vec<_> = records.iter().filter(|r| self.is_record_of(r, name)).map(|r| r.name_any()).collect();
        assert!(mine.is_empty(), "bucket records are left: {mine:?}");
    }

    fn is_record_of(&self, record: &ObjectBucket, name: &str) -> bool {
        let state = record.spec.additional_state.clone().unwrap_or_default();
        state.get("claimNamespace") == Some(&self.namespace) && state.get("claimName").map(String::as_str) == Some(name)
    }

    /// The ServiceAccounts of the world's namespace.
    pub fn service_accounts(&self) -> Api<ServiceAccount> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The entries of a claim's Secret.
    pub async fn secret_entries(&self, claim: &str) -> BTreeMap<String, String> {
        entries(self.secrets().get(claim).await.expect("the claim's Secret").data)
    }

    /// The entries of a claim's ConfigMap.
    pub async fn config_map_entries(&self, claim: &str) -> BTreeMap<String, String> {
        self.config_maps().get(claim).await.expect("the claim's ConfigMap").data.unwrap_or_default()
    }

    /// What the claim's Secret and ConfigMap put into an app's environment.
    pub async fn environment(&self, claim: &str) -> BTreeMap<String, String> {
        let secret = self.secret_entries(claim).await;
        secret.into_iter().chain(self.config_map_entries(claim).await).collect()
    }
}

fn entries(data: Option<BTreeMap<String, ByteString>>) -> BTreeMap<String, String> {
    data.unwrap_or_default().into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
}

/// The phase in a claim's status.
pub fn phase(claim: &ObjectBucketClaim) -> Option<ClaimPhase> {
    claim.status.as_ref()?.phase
}

/// A condition of a claim, by its type.
pub fn condition<'a>(claim: &'a ObjectBucketClaim, type_: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
}

/// The Ready condition that an operator has written on a claim. Before that, the CRD has one by default.
pub fn ready(claim: &ObjectBucketClaim) -> Option<&Condition> {
    condition(claim, "Ready").filter(|ready| ready.reason != "Pending")
}

/// The bucket in the spec of a bound claim.
pub fn bucket_of(claim: &ObjectBucketClaim) -> String {
    claim.spec.bucket_name.clone().expect("spec.bucketName")
}

/// Requires every part to be in a message.
#[track_caller]
pub fn assert_contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked")
}
