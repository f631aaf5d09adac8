//! The stack, and a world of its own for each test.

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod aws_backend;
pub(crate) mod aws_proxy;
pub(crate) mod footprint;
pub(crate) mod operator;
pub(crate) mod other;
pub(crate) mod owner_policy;
pub(crate) mod pods;
pub(crate) mod settings;
pub(crate) mod shipped;
pub(crate) mod terminal;
pub(crate) mod tool;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Deref;
use std::time::Duration;

use bucket_provisioner::api;
use futures::{StreamExt as _, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt as _};
use operator_runtime::cluster::ANSWER_LIMIT;
use provisioner_conformance::proxy::{ApiServer, Proxy};
pub(crate) use provisioner_conformance::{
    self, PATIENCE, assert_contains, bucket_of, condition, panic_text, phase, proxy, ready, seen,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::OnceCell;

use account::Account;
use aws_proxy::Aws;

/// Region of all classes unless a test sets another one.
pub(crate) const REGION: &str = "us-west-1";

/// The URL of the emulated AWS.
pub(crate) fn aws_url() -> String {
    needed("AWS_ENDPOINT_URL")
}

/// A store that the stack runs, and its provisioning keys.
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

    /// The second emulator, which takes any keys.
    pub(crate) fn moto() -> Self {
        Self { url: needed("MOTO_URL"), key: "test".to_owned(), secret: "test".to_owned() }
    }
}

pub(crate) fn needed(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: these tests need the local stack. Run hack/test.sh, which starts one, or start one \
             with `hack/stack.sh up --with-other --with-seaweedfs --with-moto` and use it in this shell with `eval \"$(hack/stack.sh env)\"`"
        )
    })
}

/// A client that is not counted: what tests look with.
pub(crate) async fn admin() -> Client {
    client(admin_config().await)
}

/// Of kube's own, a call could fail because the API server has just ended an unused connection.
fn client(config: Config) -> Client {
    operator_runtime::cluster::client(config, ANSWER_LIMIT).unwrap()
}

pub(crate) async fn admin_config() -> Config {
    needed("KUBECONFIG");
    Config::infer().await.expect("KUBECONFIG can be read")
}

/// Deletes what `which` selects one by one. The API server deletes a collection in one request, which lasts as long as all
/// of it.
pub(crate) async fn delete_each<K: Clone + Debug + DeserializeOwned>(api: &Api<K>, which: &ListParams) {
    let objects = api.list_metadata(which).await.unwrap().items;
    let delete = async |object: PartialObjectMeta<K>| {
        drop(api.delete(&object.metadata.name.unwrap(), &DeleteParams::default()).await.unwrap());
    };
    stream::iter(objects).for_each_concurrent(8, delete).await;
}

/// The API of an object of any kind, in its namespace.
pub(crate) fn api_of(client: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.clone().unwrap();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Our own CRDs, in place of whatever is there.
async fn install_our_crds(client: &Client) {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    INSTALLED
        .get_or_init(|| async {
            let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
            for (_, crd) in api::crds() {
                crds.patch(&crd.name_any(), &PatchParams::apply("tests").force(), &Patch::Apply(&crd)).await.unwrap();
            }
            provisioner_conformance::install_crds(client).await;
        })
        .await;
}

/// What one test works in: a world of the conformance kit, and an AWS.
pub(crate) struct World {
    world: provisioner_conformance::World,
    /// In front of AWS; operators go through it.
    pub(crate) aws: Proxy<Aws>,
    /// The provisioning account of AWS, past the proxy.
    pub(crate) account: Account,
    /// What replaces AWS.
    pub(crate) store: Store,
    /// How the tests reach the cluster.
    cluster: Config,
    /// The path of the users of its classes; empty for the default.
    iam_path: String,
}

impl Deref for World {
    type Target = provisioner_conformance::World;

    fn deref(&self) -> &provisioner_conformance::World {
        &self.world
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("calls to AWS: {}", self.aws.names().join(" "));
        }
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::at(Store::aws()).await
    }

    /// A world whose users have a path of their own: commands that list users find no others.
    pub(crate) async fn with_own_path() -> Self {
        Self::new().await.in_own_path()
    }

    /// The same world, with an IAM path that no other has.
    pub(crate) fn in_own_path(mut self) -> Self {
        self.iam_path = format!("/aws-s3-provisioner/{}/", self.id);
        self
    }

    /// A world whose AWS is this store.
    pub(crate) async fn at(store: Store) -> Self {
        let cluster = admin_config().await;
        let client = client(cluster.clone());
        install_our_crds(&client).await;
        Self::in_cluster(cluster, client, &provisioner_conformance::World::new_id(), store).await
    }

    async fn in_cluster(cluster: Config, client: Client, id: &str, store: Store) -> Self {
        let world = Self::with_aws(provisioner_conformance::World::in_cluster(client, id).await, cluster, store).await;
        let Store { key, secret, .. } = &world.store;
        world.owner_secret("owner", &[("AWS_ACCESS_KEY_ID", key), ("AWS_SECRET_ACCESS_KEY", secret)]).await;
        world
    }

    /// A world whose operators also have these rules.
    pub(crate) async fn with_rules(rules: &[serde_json::Value]) -> Self {
        let mut world = Self::new().await;
        let operators = shipped::client(&world.client, &world.cluster, rules).await;
        let tokens = world.tokens().clone();
        let server = ApiServer::behind(operators, &tokens.operator).and(world.client.clone(), &tokens.admin);
        world.world.kubernetes = Proxy::start(server).await;
        world
    }

    /// Another provisioner, with classes and proxies of its own, beside this one in the same namespace.
    pub(crate) async fn neighbour(&self) -> Self {
        let id = provisioner_conformance::World::new_id();
        let world = provisioner_conformance::World::in_namespace(self.client.clone(), &self.namespace, &id).await;
        Self::with_aws(world, self.cluster.clone(), self.store.clone()).await
    }

    /// Operators get no further than with the permissions that are shipped.
    async fn with_aws(mut world: provisioner_conformance::World, cluster: Config, store: Store) -> Self {
        let operators = shipped::client(&world.client, &cluster, &[]).await;
        let tokens = world.tokens().clone();
        let server = ApiServer::behind(operators, &tokens.operator).and(world.client.clone(), &tokens.admin);
        world.kubernetes = Proxy::start(server).await;
        Self {
            cluster,
            world,
            aws: Proxy::start(Aws::at(&store.url)).await,
            account: Account::owner_of(&store),
            store,
            iam_path: String::new(),
        }
    }

    /// Writes a Secret into the world's namespace, or rewrites it.
    pub(crate) async fn owner_secret(&self, name: &str, data: &[(&str, &str)]) {
        self.write_secret(name, data.iter().copied()).await;
    }

    /// A class that reaches AWS through the proxy with the provisioning credentials; returns its name.
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
            ("iamPath", &self.iam_path),
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

    /// An AWS account as an app with the claim's outputs has it.
    pub(crate) async fn app(&self, claim: &str) -> Account {
        self.account_of(&self.environment(claim).await)
    }

    /// An AWS account as an app with these outputs has it.
    pub(crate) fn account_of(&self, environment: &BTreeMap<String, String>) -> Account {
        Account::of(&self.store, environment)
    }
}

impl World {
    /// Waits until a user has these keys and no others.
    pub(crate) async fn wait_keys(&self, user: &str, wanted: &[&str]) {
        self.wait_keys_of(user, wanted, async || self.account.keys(user).await).await;
    }

    /// Waits until these keys of a user are active and no others.
    pub(crate) async fn wait_active_keys(&self, user: &str, wanted: &[&str]) {
        self.wait_keys_of(user, wanted, async || self.account.active_keys(user).await).await;
    }

    /// AWS has no watch, so it is polled.
    async fn wait_keys_of(&self, user: &str, wanted: &[&str], found: impl AsyncFn() -> Vec<String>) {
        let has_them = async {
            while found().await != wanted {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, has_them).await.is_err() {
            panic!("user {user} has the keys {:?}, not {wanted:?}", found().await);
        }
    }

    /// Has the operator try again at once what failed for a claim.
    pub(crate) async fn retry(&self, claim: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { "objectbucket.io/retry": value } } });
        self.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}
