//! A store, its operator and a world for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::{DeleteParams, ListParams};
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;
use tokio::sync::OnceCell;

use super::backend::{Ability, Backend, Inventory, Outputs};
use super::base::report;
use super::program::Running;
use super::proxy::{Call, Proxy, Upstream};
use super::world::{World, install_crds, seen};
use bucket_provisioner::api::ObjectBucketClaim;

/// The environment of one check.
pub struct Stage<B> {
    /// The store.
    pub backend: B,
    /// The cluster.
    pub world: World,
    /// In front of the store, if operators reach it over HTTP.
    pub store: Option<Proxy<Arc<dyn Upstream>>>,
}

/// All that a stage has in the cluster and in the store, to be compared with what it had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Kind and name of each object, and its version.
    pub objects: BTreeMap<String, String>,
    /// What the store holds; nothing if that cannot be seen.
    pub store: Inventory,
}

impl Footprint {
    /// What is here beyond `before`. All of that must be unchanged, because it is foreign.
    pub fn beyond(mut self, before: &Self) -> Self {
        take_out(&mut self.objects, &before.objects, "");
        take_out(&mut self.store.buckets, &before.store.buckets, "bucket ");
        take_out(&mut self.store.users, &before.store.users, "user ");
        self
    }
}

fn take_out<T: PartialEq + std::fmt::Debug>(now: &mut BTreeMap<String, T>, before: &BTreeMap<String, T>, kind: &str) {
    for (name, before) in before {
        assert_eq!(now.remove(name).as_ref(), Some(before), "{kind}{name}, which is foreign, has changed");
    }
}

/// A client for the cluster of `KUBECONFIG`.
async fn client() -> Client {
    assert!(
        std::env::var_os("KUBECONFIG").is_some(),
        "KUBECONFIG is not set: it has to name a cluster in which namespaces t-*, StorageClasses and claims can be created"
    );
    let config = Config::infer().await.expect("KUBECONFIG can be read");
    Client::try_from(config).unwrap()
}

/// Whether a backend has an ability. If not, the part of the check that needs it is skipped, which is reported.
pub(super) fn has(backend: &impl Backend, ability: Ability) -> bool {
    let has = backend.abilities().contains(&ability);
    if !has {
        report(&format!("skipped in part, for want of {ability}"));
    }
    has
}

impl<B: Backend> Stage<B> {
    /// Sets a stage in the cluster of `KUBECONFIG`. CRDs that are missing there are created, and stay.
    pub async fn set(backend: B) -> Self {
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let client = client().await;
        INSTALLED.get_or_init(|| install_crds(&client)).await;
        let world = World::in_cluster(client, &World::new_id()).await;
        let store = match backend.upstream() {
            Some(upstream) => Some(Proxy::start(upstream).await),
            None => None,
        };
        let owner = backend.owner();
        if !owner.is_empty() {
            world.write_secret("owner", owner).await;
        }
        Self { backend, world, store }
    }

    /// Whether the backend has an ability. If not, the part of the check that needs it is skipped, which is reported.
    pub fn can(&self, ability: Ability) -> bool {
        has(&self.backend, ability)
    }

    /// The proxy in front of the store, of a backend that has [`Ability::Http`].
    pub fn store(&self) -> &Proxy<Arc<dyn Upstream>> {
        self.store.as_ref().expect("a backend with Ability::Http has an upstream")
    }

    /// Creates a class for the operator; returns its name. Parameters are added or, where the value is empty, left out.
    pub async fn class(&self, name: &str, reclaim_policy: &str, parameters: &[(&str, &str)]) -> String {
        let name = self.world.unique(name);
        let mut all = self.backend.parameters(self.store.as_ref().map(|store| store.url.as_str()));
        if !self.backend.owner().is_empty() {
            all.insert("secretName".to_owned(), "owner".to_owned());
            all.insert("secretNamespace".to_owned(), self.world.namespace.clone());
        }
        all.extend(parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        all.retain(|_, value| !value.is_empty());
        let class = json!({
            "metadata": { "name": name },
            "provisioner": self.world.provisioner,
            "reclaimPolicy": reclaim_policy,
            "parameters": all,
        });
        self.world.create_class(class).await;
        name
    }

    /// A class as most checks need it.
    pub async fn greenfield(&self) -> String {
        self.class("greenfield", "Delete", &[]).await
    }

    /// Starts the operator.
    pub fn start(&self) -> Running {
        self.backend.program().args(["-v=2"]).start(&self.world)
    }

    /// Starts the operator, and waits until it has begun to watch: what it calls from then on, it calls for a claim.
    pub async fn started(&self) -> Running {
        let operator = self.start();
        self.watched().await;
        operator
    }

    /// Waits until an operator has begun to watch, since calls were last forgotten. A store in the program serves by then.
    pub async fn watched(&self) {
        let watched = ["objectbucketclaims", "objectbuckets", "storageclasses", "secrets", "configmaps"];
        let watches = |calls: &[Call], resource| calls.iter().any(|call| call.name == format!("watch {resource}"));
        let all = |calls: &[Call]| watched.iter().all(|resource| watches(calls, resource));
        self.world.kubernetes.wait_until("all watches", all).await;
    }

    /// Submits a claim for a generated bucket name, which contains the world's id.
    pub async fn claim(&self, name: &str, class: &str) -> ObjectBucketClaim {
        let spec = json!({ "storageClassName": class, "generateBucketName": self.world.unique(name) });
        self.world.claim_with(name, spec).await
    }

    /// Submits a claim and waits until it is bound; returns what an app has of it.
    pub async fn bind(&self, claim: &str, class: &str) -> Outputs {
        self.claim(claim, class).await;
        self.world.wait_bound(claim).await;
        self.world.environment(claim).await
    }

    /// Deletes a claim, waits until it no longer exists, and requires that nothing of it is left in the cluster.
    pub async fn unbind(&self, claim: &str) {
        self.world.delete_claim(claim).await;
        self.world.wait_gone(claim).await;
        self.world.assert_no_objects(claim).await;
    }

    /// Requires that the app with these outputs can use its bucket, if apps can be played.
    pub async fn assert_usable(&self, app: &Outputs) {
        if self.can(Ability::Apps) {
            self.backend.put(app, "something").await.expect("an app can write");
            let objects = self.backend.list(app).await.expect("an app can list");
            assert!(objects.contains(&"something".to_owned()), "{objects:?}");
        }
    }

    /// Requires that these outputs open nothing any more, if apps can be played.
    pub async fn assert_useless(&self, app: &Outputs) {
        if self.can(Ability::Apps) {
            let put = self.backend.put(app, "later").await;
            assert!(put.is_err(), "the keys still work: an object was written");
            let listed = self.backend.list(app).await;
            assert!(listed.is_err(), "the keys still work: they list {listed:?}");
        }
    }

    /// What the store holds of this stage; nothing if that cannot be seen.
    pub async fn inventory(&self) -> Inventory {
        if !self.can(Ability::Inventory) {
            return Inventory::default();
        }
        let (found, id) = (self.backend.inventory(&self.world.id).await, &self.world.id);
        let mut names = found.buckets.keys().chain(found.users.keys());
        if let Some(name) = names.find(|name| !name.contains(id)) {
            panic!(
                "the backend's inventory shows {name:?}, which is not of this check: show only names with {id:?} in them"
            );
        }
        found
    }

    /// The calls so far that changed something in the store, if operators reach it over HTTP.
    pub fn store_writes(&self) -> Vec<String> {
        if self.can(Ability::Http) { self.store().writes() } else { Vec::new() }
    }

    /// Lets every call pass again.
    pub(super) fn leave_alone(&self) {
        self.world.kubernetes.leave_alone();
        if let Some(store) = &self.store {
            store.leave_alone();
        }
    }

    /// Forgets the calls to the store so far.
    pub fn forget_store_calls(&self) {
        if let Some(store) = &self.store {
            store.clear();
        }
    }

    /// Everything with the world's id in its name, and everything in its namespace.
    pub async fn footprint(&self) -> Footprint {
        Footprint { objects: self.world.objects().await, store: self.inventory().await }
    }

    /// Creates foreign objects that look like those of the operator: in the cluster, and in the store a bucket and what else
    /// the backend [plants](Backend::plant).
    pub async fn create_unrelated_objects(&self) {
        let foreign = self.world.unique("bystander");
        let abilities = self.backend.abilities();
        if abilities.contains(&Ability::Inventory) {
            self.backend.create_bucket(&foreign).await;
            self.backend.plant(&foreign).await;
        }
        self.world.create_unrelated_objects().await;
    }

    /// Removes all that the stage has left, in the cluster and in the store. No operator may run.
    ///
    /// Without [`Ability::Inventory`] the kit cannot remove things in the store: an operator does it, for the claims that
    /// there still are.
    pub async fn clear(&self) {
        self.leave_alone();
        if let Some(store) = &self.store {
            store.up();
        }
        let abilities = self.backend.abilities();
        if !abilities.contains(&Ability::Inventory) && abilities.contains(&Ability::Persistence) {
            self.let_claims_go().await;
        }
        self.world.clear().await;
        if abilities.contains(&Ability::Inventory) {
            let mut left = self.backend.inventory(&self.world.id).await;
            // Whatever the backend shows: nothing else is touched.
            left.buckets.retain(|name, _| name.contains(&self.world.id));
            left.users.retain(|name, _| name.contains(&self.world.id));
            self.backend.remove(&left).await;
        }
    }

    async fn let_claims_go(&self) {
        let claims = self.world.claims();
        let left = claims.list_metadata(&ListParams::default()).await.into_iter().flatten().collect::<Vec<_>>();
        if left.is_empty() {
            return;
        }
        let operator = self.start();
        for claim in left {
            let _ = claims.delete(&claim.name_any(), &DeleteParams::default()).await;
            let _ = seen(&claims, &claim.name_any(), |claim| claim.is_none()).await;
        }
        operator.kill().await;
    }
}
