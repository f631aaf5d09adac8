//! The stack, and a world of its own for each test.

pub(crate) mod account;
pub(crate) mod backup;
pub(crate) mod footprint;
pub(crate) mod operator;
pub(crate) mod other;
pub(crate) mod owner_policy;
pub(crate) mod proxy;
mod waits;

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use bucket_provisioner::api::{
    self, ClaimPhase, Condition, ConditionStatus, ObjectBucket, ObjectBucketClaim, ObjectBucketClaimSpec,
};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition as _, conditions};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tokio::sync::OnceCell;

use account::Account;
use proxy::{ApiServer, Aws, Proxy};
pub(crate) use waits::seen;

/// How long a test waits for what must happen. Generous: it bounds failures, not successes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Region of all classes unless a test says otherwise.
pub(crate) const REGION: &str = "us-west-1";

/// The URL of the emulated AWS.
pub(crate) fn aws_url() -> String {
    needed("AWS_ENDPOINT_URL")
}

/// A store that the stack runs, and its owner's keys.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub(crate) url: String,
    pub(crate) key: String,
    pub(crate) secret: String,
}

impl Store {
    /// The emulated AWS.
    pub(crate) fn aws() -> Self {
        Self { url: aws_url(), key: "test".to_owned(), secret: "test".to_owned() }
    }

    /// SeaweedFS.
    pub(crate) fn seaweedfs() -> Self {
        Self {
            url: needed("SEAWEEDFS_URL"),
            key: needed("SEAWEEDFS_ACCESS_KEY_ID"),
            secret: needed("SEAWEEDFS_SECRET_ACCESS_KEY"),
        }
    }
}

pub(crate) fn needed(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: these tests need the local stack. Run hack/test.sh, which starts one, or start one \
             with `hack/stack.sh up --with-other --with-seaweedfs` and use it in this shell with `eval \"$(hack/stack.sh env)\"`"
        )
    })
}

/// A client that is not counted: what tests look with.
pub(crate) async fn admin() -> Client {
    needed("KUBECONFIG");
    let config = Config::infer().await.expect("KUBECONFIG can be read");
    Client::try_from(config).unwrap()
}

async fn install_crds(client: &Client) {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    INSTALLED
        .get_or_init(|| async {
            let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
            for (_, crd) in api::crds() {
                let name = crd.name_any();
                crds.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&crd)).await.unwrap();
                let established = conditions::is_crd_established();
                let seen = seen(&crds, &name, |crd| established.matches_object(crd)).await;
                seen.expect("the CRD is established");
            }
        })
        .await;
}

/// What one test works in.
pub(crate) struct World {
    /// Unique to this test.
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) provisioner: String,
    /// Not counted by the proxy.
    pub(crate) client: Client,
    /// In front of the API server; operators go through it.
    pub(crate) kubernetes: Proxy<ApiServer>,
    /// In front of AWS; operators go through it.
    pub(crate) aws: Proxy<Aws>,
    /// The owner's AWS account, past the proxy.
    pub(crate) account: Account,
    /// What stands for AWS.
    pub(crate) store: Store,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::at(Store::aws()).await
    }

    /// A world whose AWS is this store.
    pub(crate) async fn at(store: Store) -> Self {
        let client = admin().await;
        install_crds(&client).await;
        Self::in_cluster(client, &Self::new_id(), store).await
    }

    fn new_id() -> String {
        format!("{:08x}", rand::random::<u32>())
    }

    async fn in_cluster(client: Client, id: &str, store: Store) -> Self {
        let namespace = format!("t-{id}");
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = Namespace {
            metadata: ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        let world = Self::in_namespace(client, &namespace, id, store).await;
        let Store { key, secret, .. } = &world.store;
        world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)]).await;
        world
    }

    /// Another provisioner, with classes and proxies of its own, beside this one in the same namespace.
    pub(crate) async fn neighbour(&self) -> Self {
        Self::in_namespace(self.client.clone(), &self.namespace, &Self::new_id(), self.store.clone()).await
    }

    async fn in_namespace(client: Client, namespace: &str, id: &str, store: Store) -> Self {
        Self {
            provisioner: format!("t-{id}.example.com/bucket"),
            kubernetes: Proxy::start(ApiServer::behind(client.clone())).await,
            aws: Proxy::start(Aws::at(&store.url)).await,
            account: Account::owner_of(&store),
            store,
            id: id.to_owned(),
            namespace: namespace.to_owned(),
            client,
        }
    }

    /// A name that no other test uses, valid for buckets and classes.
    pub(crate) fn unique(&self, name: &str) -> String {
        format!("t-{}-{name}", self.id)
    }

    /// Writes a Secret into the world's namespace, or rewrites it.
    pub(crate) async fn owner_secret(&self, name: &str, data: &[(&str, &str)]) {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            data: Some(data.iter().map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec()))).collect()),
            ..Secret::default()
        };
        let apply = PatchParams::apply("tests").force();
        self.secrets().patch(name, &apply, &Patch::Apply(&secret)).await.unwrap();
    }

    /// A class that reaches AWS through the proxy with the owner's Secret; returns its name.
    pub(crate) async fn class(&self, name: &str) -> String {
        self.class_with(name, "Delete", &[]).await
    }

    /// As [`class`](Self::class), with parameters added or, where the value is empty, left out.
    pub(crate) async fn class_with(&self, name: &str, reclaim_policy: &str, parameters: &[(&str, &str)]) -> String {
        let name = self.unique(name);
        let mut all: BTreeMap<_, _> = [
            ("region", REGION),
            ("secretName", "owner"),
            ("secretNamespace", &self.namespace),
            ("s3Endpoint", &self.aws.url),
            ("iamEndpoint", &self.aws.url),
        ]
        .into_iter()
        .chain(parameters.iter().copied())
        .collect();
        all.retain(|_, value| !value.is_empty());
        let class = json!({
            "metadata": { "name": name },
            "provisioner": self.provisioner,
            "reclaimPolicy": reclaim_policy,
            "parameters": all,
        });
        self.create_class(class).await;
        name
    }

    /// Creates a class as it stands; parameters cannot be changed later, so a class of that name is
    /// replaced.
    pub(crate) async fn create_class(&self, class: serde_json::Value) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        let class: StorageClass = serde_json::from_value(class).unwrap();
        let _ = classes.delete(&class.name_any(), &DeleteParams::default()).await;
        classes.create(&PostParams::default(), &class).await.unwrap();
    }

    pub(crate) async fn delete_class(&self, class: &str) {
        let classes: Api<StorageClass> = Api::all(self.client.clone());
        classes.delete(class, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) fn claims(&self) -> Api<ObjectBucketClaim> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn records(&self) -> Api<ObjectBucket> {
        Api::all(self.client.clone())
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The name that a claim's record has by default.
    pub(crate) fn record_name(&self, claim: &str) -> String {
        format!("obc-{}-{claim}", self.namespace)
    }

    /// Submits a claim for a generated bucket name.
    pub(crate) async fn claim(&self, name: &str, class: &str) -> ObjectBucketClaim {
        self.claim_with(name, json!({ "storageClassName": class, "generateBucketName": name })).await
    }

    /// Submits a claim with this spec.
    pub(crate) async fn claim_with(&self, name: &str, spec: serde_json::Value) -> ObjectBucketClaim {
        let spec: ObjectBucketClaimSpec = serde_json::from_value(spec).unwrap();
        self.claims().create(&PostParams::default(), &ObjectBucketClaim::new(name, spec)).await.unwrap()
    }

    pub(crate) async fn delete_claim(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Says on a bound claim that it is not ready, as an operator does that meets trouble.
    pub(crate) async fn unready(&self, name: &str) {
        let mut conditions = self.claims().get(name).await.unwrap().status.unwrap().conditions;
        (conditions[0].status, conditions[0].reason) = (ConditionStatus::False, "KubernetesError".to_owned());
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
        self.claims().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Requires that nothing of a claim is left in the cluster.
    pub(crate) async fn assert_no_objects(&self, name: &str) {
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

    /// What the claim's Secret and ConfigMap put into an app's environment.
    pub(crate) async fn environment(&self, claim: &str) -> BTreeMap<String, String> {
        let secret = self.secrets().get(claim).await.expect("the claim's Secret");
        let config_map = self.config_maps().get(claim).await.expect("the claim's ConfigMap");
        entries(secret.data).into_iter().chain(config_map.data.unwrap_or_default()).collect()
    }

    /// An AWS account as an app with the claim's outputs has it.
    pub(crate) async fn app(&self, claim: &str) -> Account {
        self.account_of(&self.environment(claim).await)
    }

    /// An AWS account as an app with these outputs has it.
    pub(crate) fn account_of(&self, environment: &BTreeMap<String, String>) -> Account {
        Account::of(&self.store, environment)
    }
}

fn entries(data: Option<BTreeMap<String, ByteString>>) -> BTreeMap<String, String> {
    data.unwrap_or_default().into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
}

pub(crate) fn phase(claim: &ObjectBucketClaim) -> Option<ClaimPhase> {
    claim.status.as_ref()?.phase
}

pub(crate) fn condition<'a>(claim: &'a ObjectBucketClaim, type_: &str) -> Option<&'a Condition> {
    claim.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
}

pub(crate) fn ready(claim: &ObjectBucketClaim) -> Option<&Condition> {
    condition(claim, "Ready")
}

/// The bucket a bound claim says it has.
pub(crate) fn bucket_of(claim: &ObjectBucketClaim) -> String {
    claim.spec.bucket_name.clone().expect("spec.bucketName")
}

/// Requires every part to be in a message.
#[track_caller]
pub(crate) fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked")
}
