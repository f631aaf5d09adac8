//! What a flow plays in, and what must be true of it.

use std::sync::Mutex;

use hyper::Response;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::flow::{Act, Flow, Kind, StoreKind};
use crate::support::footprint::Footprint;
use crate::support::operator::Binary;
use crate::support::proxy::{Call, Gate, Verdict};
use crate::support::{Store, World, seen};

/// The claim of every flow.
const CLAIM: &str = "photos";

/// A world with a class, and with things of others in it.
pub(super) struct Scene {
    pub(super) world: World,
    kind: Kind,
    act: Act,
    class: String,
    bucket: String,
    /// What there was before anything happened.
    before: Footprint,
    /// The claim that the backup was made of.
    former_uid: Mutex<Option<String>>,
}

impl Scene {
    pub(super) async fn set(flow: Flow) -> Self {
        let Flow { kind, act, aws, store } = flow;
        let world = World::at(match store {
            StoreKind::Emulator => Store::aws(),
            StoreKind::SeaweedFs => Store::seaweedfs(),
        })
        .await;
        world.plant_bystanders().await;
        let bucket = world.unique("photos");
        let class = match kind {
            Kind::Generated | Kind::Named => {
                let grace = if act == Act::Rotate { "0s" } else { "" };
                world.class_with("class", "Delete", &[("keyGracePeriod", grace)]).await
            }
            Kind::Retain => world.class_with("class", "Retain", &[]).await,
            Kind::SharedKeys => world.class_with("class", "Delete", &[("createBucketUser", "no")]).await,
            Kind::Brownfield => {
                world.account.create_bucket(&bucket).await;
                world.account.put(&bucket, "from-before").await.unwrap();
                world.class_with("class", "Delete", &[("bucketName", &bucket)]).await
            }
        };
        if let Some(strictness) = aws {
            world.aws.strict(strictness);
        }
        let before = world.footprint().await;
        Self { world, kind, act, class, bucket, before, former_uid: Mutex::new(None) }
    }

    /// Brings the claim to where the act begins; returns the operator, if one runs then.
    pub(super) async fn prepare(&self) -> Option<Binary> {
        let world = &self.world;
        let operator = start(world).await;
        match self.act {
            Act::Provide | Act::Abandon => {}
            Act::Remove | Act::Repair | Act::Rotate => self.bind().await,
            Act::Forget => {
                self.bind().await;
                world.say(&world.record_name(CLAIM), "forget").await;
                world.wait_orphaned(&world.record_name(CLAIM), "ClaimExists").await;
            }
            Act::Adopt => {
                self.bind().await;
                operator.kill().await;
                self.restore().await;
                let operator = start(world).await;
                world.wait_reason(CLAIM, "AdoptionNeeded").await;
                world.wait_event(CLAIM, "AdoptionNeeded").await;
                world.wait_orphaned(&world.record_name(CLAIM), "ClaimReplaced").await;
                return Some(operator);
            }
            Act::RemoveOrphan => {
                self.bind().await;
                operator.kill().await;
                world.forget_object(&world.claims(), CLAIM).await;
                let operator = start(world).await;
                world.wait_orphaned(&world.record_name(CLAIM), "ClaimGone").await;
                return Some(operator);
            }
            Act::Recover => {
                let gate = Gate::closed();
                let held = gate.clone();
                world.kubernetes.meddle(move |call| match call.name.as_str() {
                    "create secrets" => Verdict::Hold(held.clone()),
                    _ => Verdict::Pass,
                });
                self.submit().await;
                assert!(gate.reached().await, "the Secret is written: {:#?}", world.kubernetes.names());
                operator.kill().await;
                world.kubernetes.leave_alone();
                return None;
            }
            Act::Withdraw | Act::Edit => {
                world.aws.meddle(|call| match call.name.as_str() {
                    "CreateAccessKey" => Verdict::Distort(|_| {
                        let denied = "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>";
                        Response::builder().status(403).body(denied.into()).unwrap()
                    }),
                    _ => Verdict::Pass,
                });
                self.submit().await;
                // It takes minutes until this is tried again.
                world.wait_reason(CLAIM, "AccessDenied").await;
                world.wait_event(CLAIM, "AccessDenied").await;
                world.aws.leave_alone();
            }
        }
        Some(operator)
    }

    async fn bind(&self) {
        let world = &self.world;
        self.submit().await;
        world.wait_bound(CLAIM).await;
        // The last of the calls that binding makes.
        world.wait_event(CLAIM, "Bound").await;
        let environment = world.environment(CLAIM).await;
        world.account.put(&environment["BUCKET_NAME"], "something").await.unwrap();
    }

    /// Loses the claim and brings it back from a backup; the Secret of a brownfield claim is not in it.
    async fn restore(&self) {
        let world = &self.world;
        let backup = world.back_up(CLAIM).await;
        let uid = backup.claim["metadata"]["uid"].as_str().unwrap().to_owned();
        *self.former_uid.lock().unwrap() = Some(uid);
        world.lose(CLAIM).await;
        if self.kind != Kind::Brownfield {
            world.restore(&backup.secret).await;
        }
        for object in [&backup.config_map, &backup.record, &backup.claim] {
            world.restore(object).await;
        }
    }

    /// Has it happen.
    pub(super) async fn begin(&self) {
        match self.act {
            Act::Provide | Act::Abandon => self.submit().await,
            Act::Remove | Act::Withdraw | Act::Forget => self.world.delete_claim(CLAIM).await,
            Act::Repair => drop(self.world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap()),
            Act::Rotate => {
                let ask = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } });
                self.world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
            }
            // It begins with the start of an operator.
            Act::Recover => {}
            Act::Adopt => self.world.say(&self.world.record_name(CLAIM), "adopt").await,
            Act::RemoveOrphan => self.world.say(&self.world.record_name(CLAIM), "remove").await,
            Act::Edit => {
                let edit = json!({ "spec": { "bucketName": self.world.unique("pictures") } });
                self.world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
            }
        }
    }

    /// What happens while no operator runs.
    pub(super) async fn meanwhile(&self) {
        if self.act == Act::Abandon {
            self.world.delete_claim(CLAIM).await;
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

    /// Waits until the claim is where the act takes it.
    pub(super) async fn wait_for(&self) {
        match self.act {
            Act::Provide | Act::Recover | Act::Edit => drop(self.world.wait_bound(CLAIM).await),
            Act::Adopt => {
                self.world.wait_word_off(&self.world.record_name(CLAIM)).await;
                self.world.wait_bound(CLAIM).await;
            }
            Act::RemoveOrphan => self.world.wait_record_gone(&self.world.record_name(CLAIM)).await,
            Act::Forget => {
                self.world.wait_gone(CLAIM).await;
                self.world.wait_record_gone(&self.world.record_name(CLAIM)).await;
            }
            Act::Abandon | Act::Remove | Act::Withdraw => self.world.wait_gone(CLAIM).await,
            Act::Repair => self.world.wait_secret(CLAIM, |keys| keys.contains_key("AWS_ACCESS_KEY_ID")).await,
            Act::Rotate => {
                let rotated = |secret: Option<&Secret>| {
                    secret.is_some_and(|secret| {
                        let noted = secret.annotations();
                        noted.get("objectbucket.io/rotate-keys").is_some_and(|answered| answered == "now")
                            && !noted.contains_key("objectbucket.io/retiring-key")
                    })
                };
                seen(&self.world.secrets(), CLAIM, rotated).await.expect("the keys are replaced");
            }
        }
    }

    /// Waits until the last call of the act was made.
    pub(super) async fn wait_for_end(&self) {
        self.wait_for().await;
        match self.act {
            Act::Provide | Act::Recover | Act::Edit => drop(self.world.wait_event(CLAIM, "Bound").await),
            Act::Abandon | Act::Remove | Act::Withdraw | Act::Forget | Act::RemoveOrphan => {
                drop(self.world.wait_event(CLAIM, "Removed").await);
            }
            Act::Rotate => drop(self.world.wait_event(CLAIM, "KeysRetired").await),
            Act::Adopt => drop(self.world.wait_event(CLAIM, "Adopted").await),
            // Nothing is told of a repair that works. What follows the Secret is made before the operator stops.
            Act::Repair => {}
        }
    }

    /// Requires that all is well after the act, and once the claim is gone; returns what outlives it.
    pub(super) async fn assert_well(&self) -> Footprint {
        match self.act {
            Act::Abandon | Act::Remove | Act::Withdraw | Act::RemoveOrphan | Act::Forget => {}
            Act::Provide | Act::Recover | Act::Edit | Act::Repair | Act::Rotate | Act::Adopt => {
                self.assert_usable().await;
                self.world.delete_claim(CLAIM).await;
                self.world.wait_gone(CLAIM).await;
            }
        }
        let left = self.made().await;
        self.assert_nothing_left(&left).await;
        left
    }

    /// Makes it what it was when it was set: without what outlives a claim, and without what was told of the claim, for
    /// the next one has its name.
    pub(super) async fn reset(&self, left: Footprint) {
        self.world.remove(left).await;
        if self.kind == Kind::Brownfield {
            let delete = self.world.account.s3.delete_object().bucket(&self.bucket).key("something");
            delete.send().await.unwrap();
        }
        *self.former_uid.lock().unwrap() = None;
        let events: Api<Event> = Api::namespaced(self.world.client.clone(), &self.world.namespace);
        events.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    }

    /// Requires that the claim is bound and usable, with one bucket, one user and one key.
    async fn assert_usable(&self) {
        let world = &self.world;
        // A claim whose keys are new is not ready for a while.
        world.wait_reason(CLAIM, "Bound").await;
        let claim = world.claims().get(CLAIM).await.unwrap();
        let environment = world.environment(CLAIM).await;
        let (app, bucket) = (world.app(CLAIM).await, &environment["BUCKET_NAME"]);
        app.put(bucket, "something").await.expect("an app can write");
        let objects = app.list(bucket).await.expect("an app can list");
        assert!(objects.contains(&"something".to_owned()), "{objects:?}");

        // Names hold the uid of the claim for which they were made.
        let uid = self.former_uid.lock().unwrap().clone().unwrap_or_else(|| claim.uid().unwrap());
        let users = world.account.users_with(&uid).await;
        if self.kind == Kind::SharedKeys {
            assert!(users.is_empty(), "{users:?}");
            assert_eq!(environment["AWS_ACCESS_KEY_ID"], world.store.key, "the owner's own");
        } else {
            assert_eq!(users.len(), 1, "one user: {users:?}");
            world.wait_keys(&users[0], &[&environment["AWS_ACCESS_KEY_ID"]]).await;
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

    /// Requires that nothing is left of the claim but a bucket that outlives it, with all that is in it.
    async fn assert_nothing_left(&self, left: &Footprint) {
        if self.act == Act::Forget {
            let kinds: Vec<_> = left.keys().filter_map(|name| name.split(' ').next()).collect();
            assert_eq!(kinds, ["bucket", "user"], "{left:#?}");
            assert!(left.values().any(|bucket| bucket.contains("something")), "{left:#?}");
            return;
        }
        match self.kind {
            Kind::Retain => {
                let names: Vec<_> = left.keys().collect();
                assert!(matches!(*names, [name] if name.starts_with("bucket ")), "{left:#?}");
                assert!(left.values().all(|bucket| bucket.contains("something")), "{left:#?}");
            }
            Kind::Brownfield => {
                assert_eq!(left, &Footprint::new());
                let objects = self.world.account.list(&self.bucket).await.unwrap();
                let expected: &[_] = match self.act {
                    Act::Abandon | Act::Withdraw => &["from-before"],
                    _ => &["from-before", "something"],
                };
                assert_eq!(objects, expected, "it is as it was left");
            }
            Kind::Generated | Kind::Named | Kind::SharedKeys => assert_eq!(left, &Footprint::new()),
        }
    }
}

/// Starts an operator, and waits until it has begun to watch: what it calls from then on, it calls for a claim.
pub(super) async fn start(world: &World) -> Binary {
    let operator = Binary::start(world, &["-v=2"], &[]);
    let watched = ["objectbucketclaims", "objectbuckets", "storageclasses", "secrets", "configmaps"];
    let watches = |calls: &[Call], resource| calls.iter().any(|call| call.name == format!("watch {resource}"));
    let all = |calls: &[Call]| watched.iter().all(|resource| watches(calls, resource));
    world.kubernetes.wait_until("all watches", all).await;
    operator
}
