//! What a flow plays in, and what must be true of it.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::support::footprint::Footprint;
use crate::support::{World, ready};
use bucket_provisioner::api::ConditionStatus;

/// The claim of every flow.
const CLAIM: &str = "photos";

/// What kind of claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new bucket with a generated name.
    Generated,
    /// A new bucket with a name that the claim says.
    Named,
    /// Access to a bucket that exists.
    Brownfield,
    /// A new bucket that outlives its claim.
    Retain,
    /// A new bucket with the owner's own keys.
    SharedKeys,
}

/// What happens to the claim while the operator is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// It is submitted.
    Provide,
    /// It is bound, and is deleted.
    Remove,
    /// It is bound, and its Secret is deleted: keys are issued anew.
    Repair,
}

/// A world with a class, and with things of others in it.
pub(super) struct Scene {
    pub(super) world: World,
    kind: Kind,
    class: String,
    bucket: String,
    /// What there was before anything happened.
    before: Footprint,
}

impl Scene {
    pub(super) async fn set(kind: Kind) -> Self {
        let world = World::new().await;
        world.plant_bystanders().await;
        let bucket = world.unique("photos");
        let class = match kind {
            Kind::Generated | Kind::Named => world.class("class").await,
            Kind::Retain => world.class_with("class", "Retain", &[]).await,
            Kind::SharedKeys => world.class_with("class", "Delete", &[("createBucketUser", "no")]).await,
            Kind::Brownfield => {
                world.account.create_bucket(&bucket).await;
                world.account.put(&bucket, "from-before").await.unwrap();
                world.class_with("class", "Delete", &[("bucketName", &bucket)]).await
            }
        };
        let before = world.footprint().await;
        Self { world, kind, class, bucket, before }
    }

    /// Brings the claim to where the act begins.
    pub(super) async fn prepare(&self, act: Act) {
        match act {
            Act::Provide => {}
            Act::Remove | Act::Repair => {
                self.submit().await;
                self.world.wait_bound(CLAIM).await;
                // The last of the calls that binding makes.
                self.world.wait_event(CLAIM, "Bound").await;
                self.put_something().await;
            }
        }
    }

    /// Has it happen.
    pub(super) async fn begin(&self, act: Act) {
        match act {
            Act::Provide => self.submit().await,
            Act::Remove => self.world.delete_claim(CLAIM).await,
            Act::Repair => drop(self.world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap()),
        }
    }

    async fn submit(&self) {
        let spec = match self.kind {
            Kind::Generated | Kind::Retain | Kind::SharedKeys => json!({ "generateBucketName": self.bucket }),
            Kind::Named => json!({ "bucketName": self.bucket }),
            Kind::Brownfield => json!({}),
        };
        let mut spec = spec;
        spec["storageClassName"] = json!(self.class);
        self.world.claim_with(CLAIM, spec).await;
    }

    async fn put_something(&self) {
        let environment = self.world.environment(CLAIM).await;
        self.world.app(CLAIM).await.put(&environment["BUCKET_NAME"], "something").await.unwrap();
    }

    /// Waits until the claim is where the act takes it.
    pub(super) async fn wait_for(&self, act: Act) {
        match act {
            Act::Provide => drop(self.world.wait_bound(CLAIM).await),
            Act::Remove => self.world.wait_gone(CLAIM).await,
            Act::Repair => self.world.wait_secret(CLAIM, |keys| keys.contains_key("AWS_ACCESS_KEY_ID")).await,
        }
    }

    /// Waits until the last call of the act was made.
    pub(super) async fn wait_for_end(&self, act: Act) {
        self.wait_for(act).await;
        match act {
            Act::Provide => drop(self.world.wait_event(CLAIM, "Bound").await),
            Act::Remove => drop(self.world.wait_event(CLAIM, "Removed").await),
            // Nothing is told of a repair that works. What follows the Secret is made before the operator stops.
            Act::Repair => {}
        }
    }

    /// Requires that the claim is bound and usable, with one bucket, one user and one key.
    pub(super) async fn assert_usable(&self) {
        let world = &self.world;
        let claim = world.claims().get(CLAIM).await.unwrap();
        assert_eq!(ready(&claim).map(|ready| ready.status), Some(ConditionStatus::True), "{claim:#?}");
        let environment = world.environment(CLAIM).await;
        let (app, bucket) = (world.app(CLAIM).await, &environment["BUCKET_NAME"]);
        app.put(bucket, "something").await.expect("an app can write");
        let objects = app.list(bucket).await.expect("an app can list");
        assert!(objects.contains(&"something".to_owned()), "{objects:?}");

        let uid = claim.uid().unwrap();
        let users = world.account.users_with(&uid).await;
        if self.kind == Kind::SharedKeys {
            assert!(users.is_empty(), "{users:?}");
            assert_eq!(environment["AWS_ACCESS_KEY_ID"], "test", "the owner's own");
        } else {
            assert_eq!(users.len(), 1, "one user: {users:?}");
            let keys = world.account.keys(&users[0]).await;
            assert_eq!(keys, [environment["AWS_ACCESS_KEY_ID"].clone()], "one key, which is in the Secret");
        }
        let made = self.made().await;
        let kinds: Vec<&str> = made.keys().filter_map(|name| name.split(' ').next()).collect();
        let mut expected = vec!["ConfigMap", "ObjectBucket", "ObjectBucketClaim", "Secret"];
        expected.extend((self.kind != Kind::Brownfield).then_some("bucket"));
        expected.extend((self.kind != Kind::SharedKeys).then_some("user"));
        assert_eq!(kinds, expected, "one of each: {made:#?}");
    }

    /// What there is now and was not before. What was before must be as it was.
    async fn made(&self) -> Footprint {
        let mut now = self.world.footprint().await;
        for (name, before) in &self.before {
            let is = now.remove(name);
            let is_shared = self.kind == Kind::Brownfield && *name == format!("bucket {}", self.bucket);
            if !is_shared {
                assert_eq!(is.as_ref(), Some(before), "{name}, which is somebody else's");
            }
        }
        now
    }

    pub(super) async fn remove(&self) {
        self.world.delete_claim(CLAIM).await;
        self.world.wait_gone(CLAIM).await;
    }

    /// Requires that nothing is left of the claim but a bucket that outlives it, with all that is in it.
    pub(super) async fn assert_nothing_left(&self) {
        let left = self.made().await;
        match self.kind {
            Kind::Retain => {
                let names: Vec<_> = left.keys().collect();
                assert!(matches!(*names, [name] if name.starts_with("bucket ")), "{left:#?}");
                assert!(left.values().all(|bucket| bucket.contains("something")), "{left:#?}");
            }
            Kind::Brownfield => {
                assert_eq!(left, BTreeMap::new());
                let objects = self.world.account.list(&self.bucket).await.unwrap();
                assert_eq!(objects, ["from-before", "something"], "it is as it was left");
            }
            Kind::Generated | Kind::Named | Kind::SharedKeys => assert_eq!(left, BTreeMap::new()),
        }
    }

    /// Removes the classes: all operators of the cluster see them.
    pub(super) async fn clear_away(&self) {
        let classes: Api<StorageClass> = Api::all(self.world.client.clone());
        for class in [&self.class, &self.world.unique("bystander")] {
            classes.delete(class, &DeleteParams::default()).await.unwrap();
        }
    }
}
