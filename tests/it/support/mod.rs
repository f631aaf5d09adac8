//! The stack, and a world of its own for each test.

pub(crate) mod account;
pub(crate) mod backup;
pub(crate) mod footprint;
pub(crate) mod operator;
pub(crate) mod other;
pub(crate) mod owner_policy;
pub(crate) mod proxy;

use std::collections::BTreeMap;
use std::time::Duration;

use bucket_provisioner::api::{
    self, ClaimPhase, Condition, ConditionStatus, ObjectBucket, ObjectBucketClaim, ObjectBucketClaimSpec,
};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition as _, await_condition, conditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::json;
use tokio::sync::OnceCell;

use account::Account;
use proxy::{ApiServer, Aws, Proxy};

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

/// Waits until an object, or its absence, is as wanted, and returns it. A watch that the API server ends, as
/// it does when a CRD changes, is begun anew.
pub(crate) async fn seen<K>(
    api: &Api<K>,
    name: &str,
    wanted: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>, tokio::time::error::Elapsed>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    let watching = async {
        loop {
            if let Ok(found) = await_condition(api.clone(), name, &wanted).await {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, watching).await
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

    /// Waits until a claim looks as wanted, and returns it.
    pub(crate) async fn wait_claim(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&ObjectBucketClaim) -> bool + Send + Sync,
    ) -> ObjectBucketClaim {
        let condition = |claim: Option<&ObjectBucketClaim>| claim.is_some_and(&wanted);
        match seen(&self.claims(), name, condition).await {
            Ok(claim) => claim.unwrap(),
            Err(_) => {
                let claim = self.claims().get_opt(name).await;
                panic!("claim {name} is not {what}: {claim:#?}\nAWS calls: {:#?}", self.aws.names())
            }
        }
    }

    pub(crate) async fn wait_bound(&self, name: &str) -> ObjectBucketClaim {
        self.wait_claim(name, "bound", |claim| phase(claim) == Some(ClaimPhase::Bound)).await
    }

    /// Waits until the Ready condition gives this reason; returns its message.
    pub(crate) async fn wait_reason(&self, name: &str, reason: &str) -> String {
        let has_reason = |claim: &ObjectBucketClaim| ready(claim).is_some_and(|c| c.reason == reason);
        let claim = self.wait_claim(name, &format!("told {reason}"), has_reason).await;
        ready(&claim).unwrap().message.clone()
    }

    /// Waits until a claim is gone altogether.
    pub(crate) async fn wait_gone(&self, name: &str) {
        let gone = |claim: Option<&ObjectBucketClaim>| claim.is_none();
        if seen(&self.claims(), name, gone).await.is_err() {
            let claim = self.claims().get_opt(name).await;
            panic!("claim {name} is still there: {claim:#?}\nAWS calls: {:#?}", self.aws.names());
        }
    }

    /// Waits until the claim's Secret exists and its entries are as wanted.
    pub(crate) async fn wait_secret(
        &self,
        name: &str,
        wanted: impl Fn(&BTreeMap<String, String>) -> bool + Send + Sync,
    ) {
        let condition = |secret: Option<&Secret>| secret.is_some_and(|s| wanted(&entries(s.data.clone())));
        let waited = seen(&self.secrets(), name, condition).await;
        waited.unwrap_or_else(|_| panic!("the Secret {name} is not as wanted"));
    }

    /// Says on a bound claim that it is not ready, as an operator does that meets trouble.
    pub(crate) async fn unready(&self, name: &str) {
        let mut conditions = self.claims().get(name).await.unwrap().status.unwrap().conditions;
        (conditions[0].status, conditions[0].reason) = (ConditionStatus::False, "KubernetesError".to_owned());
        let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
        self.claims().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until the claim's ConfigMap exists and its entries are as wanted.
    pub(crate) async fn wait_config_map(
        &self,
        name: &str,
        wanted: impl Fn(&BTreeMap<String, String>) -> bool + Send + Sync,
    ) {
        let condition = |map: Option<&ConfigMap>| map.and_then(|map| map.data.as_ref()).is_some_and(&wanted);
        let waited = seen(&self.config_maps(), name, condition).await;
        waited.unwrap_or_else(|_| panic!("the ConfigMap {name} is not as wanted"));
    }

    /// Waits until a user has these keys and no others. AWS tells of no changes, so it is asked again and again.
    pub(crate) async fn wait_keys(&self, user: &str, wanted: &[&str]) {
        let has_them = async {
            while self.account.keys(user).await != wanted {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, has_them).await.is_err() {
            panic!("user {user} has the keys {:?}, not {wanted:?}", self.account.keys(user).await);
        }
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

    /// Waits for an event on a claim with this reason, and returns the latest such.
    pub(crate) async fn wait_event(&self, claim: &str, reason: &str) -> (String, String) {
        self.wait_event_with(claim, reason, "").await
    }

    /// As [`wait_event`](Self::wait_event), with this text in its note.
    pub(crate) async fn wait_event_with(&self, claim: &str, reason: &str, text: &str) -> (String, String) {
        self.wait_event_about(&self.namespace, claim, reason, text).await
    }

    /// Waits for an event on an ObjectBucket with this reason. It has no namespace.
    pub(crate) async fn wait_event_on_record(&self, record: &str, reason: &str) {
        self.wait_event_about("default", record, reason, "").await;
    }

    async fn wait_event_about(&self, namespace: &str, name: &str, reason: &str, text: &str) -> (String, String) {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut watch = watcher(events, watcher::Config::default()).applied_objects().boxed();
        let seen = async {
            loop {
                // A watch that ends with an error is begun anew by the next look at it.
                let _ = watch.try_next().await;
                let mut told = self.events_about(namespace, name).await.into_iter();
                if let Some((type_, _, note)) = told.rfind(|(_, r, n)| r == reason && n.contains(text)) {
                    return (type_, note);
                }
            }
        };
        match tokio::time::timeout(PATIENCE, seen).await {
            Ok(found) => found,
            Err(_) => panic!("no event {reason} on {name}: {:?}", self.events_about(namespace, name).await),
        }
    }

    /// All events on a claim, as `(type, reason, note)`, oldest first.
    pub(crate) async fn events(&self, claim: &str) -> Vec<(String, String, String)> {
        self.events_about(&self.namespace, claim).await
    }

    /// All events on an ObjectBucket, as `(type, reason, note)`, oldest first.
    pub(crate) async fn events_on_record(&self, record: &str) -> Vec<(String, String, String)> {
        self.events_about("default", record).await
    }

    async fn events_about(&self, namespace: &str, name: &str) -> Vec<(String, String, String)> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let mut found: Vec<_> = events.list(&ListParams::default()).await.unwrap().items;
        found.retain(|e| e.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(name)));
        found.sort_by_key(|e| e.event_time.clone().map(|t| t.0));
        found
            .into_iter()
            .map(|e| (e.type_.unwrap_or_default(), e.reason.unwrap_or_default(), e.note.unwrap_or_default()))
            .collect()
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
