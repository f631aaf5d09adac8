//! What a flow plays in, and what must be true of it.

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::flow::{Act, Flow, Kind, Spoil};
use crate::backend::{Ability, Backend, Bucket, Inventory};
use crate::program::Running;
use crate::proxy::{Gate, Verdict};
use crate::stage::{Footprint, Stage};
use crate::world::seen;

/// The claim of every flow.
pub(super) const CLAIM: &str = "photos";

/// A stage with a class, and with things of others on it.
pub(super) struct Scene<B> {
    pub(super) stage: Stage<B>,
    pub(super) flow: Flow,
    /// `None` while it is not set.
    class: Option<String>,
    bucket: String,
    /// What there was before anything happened.
    before: Footprint,
}

impl<B: Backend> Scene<B> {
    pub(super) fn on(stage: Stage<B>, flow: Flow) -> Self {
        let bucket = stage.world.unique("photos");
        Self { stage, flow, class: None, bucket, before: Footprint::default() }
    }

    /// Sets the scene, if it is not.
    pub(super) async fn set(&mut self) {
        if self.class.is_some() {
            return;
        }
        let Self { stage, flow, bucket, .. } = self;
        stage.plant_bystanders().await;
        let mut parameters = flow.parameters.to_vec();
        if matches!(flow.act, Act::Rotate) {
            parameters.push(("keyGracePeriod", "0s"));
        }
        parameters.extend(flow.on_delete().map(|value| ("onDelete", value)));
        let policy = if flow.kind == Kind::Retain { "Retain" } else { "Delete" };
        if flow.kind == Kind::Brownfield {
            stage.backend.create_bucket(bucket).await;
            parameters.push(("bucketName", bucket));
        }
        self.class = Some(stage.class("class", policy, &parameters).await);
        self.before = stage.footprint().await;
    }

    /// Clears away what is there, as far as that goes.
    pub(super) async fn clear(self) {
        // Whatever fails here has been told by what failed before.
        let _ = std::panic::AssertUnwindSafe(self.stage.clear()).catch_unwind().await;
    }

    /// Brings the claim to where the act begins; returns the operator, if one runs then.
    pub(super) async fn prepare(&self) -> Option<Running> {
        let (stage, world) = (&self.stage, &self.stage.world);
        let record = world.record_name(CLAIM);
        let operator = stage.started().await;
        match self.flow.act {
            Act::Provide | Act::Abandon => {}
            Act::Remove | Act::Repair | Act::Rotate | Act::Vanish => self.bind().await,
            Act::DeleteLater | Act::Undo => {
                self.bind().await;
                world.delete_claim(CLAIM).await;
                world.wait_gone(CLAIM).await;
                world.wait_condition(&record, "DeletionScheduled", "Scheduled").await;
            }
            Act::SetBack => {
                self.bind().await;
                operator.kill().await;
                world.set_back(CLAIM).await;
                world.delete_claim(CLAIM).await;
                return None;
            }
            Act::Forget => {
                self.bind().await;
                world.say(&record, "forget").await;
                world.wait_orphaned(&record, "ClaimExists").await;
            }
            Act::Adopt => {
                self.bind().await;
                operator.kill().await;
                self.restore().await;
                let operator = stage.started().await;
                world.wait_reason(CLAIM, "AdoptionNeeded").await;
                world.wait_event(CLAIM, "AdoptionNeeded").await;
                world.wait_orphaned(&record, "ClaimReplaced").await;
                return Some(operator);
            }
            Act::RemoveOrphan => {
                self.bind().await;
                operator.kill().await;
                world.forget_object(&world.claims(), CLAIM).await;
                let operator = stage.started().await;
                world.wait_orphaned(&record, "ClaimGone").await;
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
            Act::Withdraw(spoil) | Act::Edit(spoil) => self.spoil(spoil).await,
        }
        Some(operator)
    }

    async fn spoil(&self, spoil: Spoil) {
        let store = self.stage.store();
        store.meddle(spoil.rule);
        self.submit().await;
        self.stage.world.wait_reason(CLAIM, spoil.reason).await;
        self.stage.world.wait_event(CLAIM, spoil.reason).await;
        store.leave_alone();
    }

    async fn bind(&self) {
        let world = &self.stage.world;
        self.submit().await;
        world.wait_bound(CLAIM).await;
        // The last of the calls that binding makes.
        world.wait_event(CLAIM, "Bound").await;
        if self.stage.can(Ability::Apps) {
            self.stage.backend.put(&world.environment(CLAIM).await, "something").await.unwrap();
        }
    }

    /// Loses the claim and brings it back from a backup; the Secret of a brownfield claim is not in it.
    async fn restore(&self) {
        let world = &self.stage.world;
        let backup = world.back_up(CLAIM).await;
        world.lose(CLAIM).await;
        if self.flow.kind != Kind::Brownfield {
            world.restore(&backup.secret).await;
        }
        for object in [&backup.config_map, &backup.record, &backup.claim] {
            world.restore(object).await;
        }
    }

    /// Has it happen. `operator`: the one that runs.
    pub(super) async fn begin(&self, operator: Option<&Running>) {
        match self.flow.act {
            Act::Provide | Act::Abandon => self.submit().await,
            Act::Remove | Act::Withdraw(_) | Act::Forget => self.stage.world.delete_claim(CLAIM).await,
            Act::Repair => drop(self.stage.world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap()),
            Act::Rotate => {
                let ask = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } });
                self.stage.world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
            }
            // It begins with the start of an operator.
            Act::Recover | Act::SetBack => {}
            Act::DeleteLater => self.stage.world.delete_in(&self.stage.world.record_name(CLAIM), 0).await,
            Act::Undo => self.stage.world.create_again(CLAIM, &self.spec()).await,
            Act::Vanish => self.force_out(operator.expect("one runs")).await,
            Act::Adopt => self.stage.world.say(&self.stage.world.record_name(CLAIM), "adopt").await,
            Act::RemoveOrphan => self.stage.world.say(&self.stage.world.record_name(CLAIM), "remove").await,
            Act::Edit(_) => {
                let edit = json!({ "spec": { "bucketName": self.stage.world.unique("pictures") } });
                self.stage.world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
            }
        }
    }

    /// What happens while no operator runs.
    pub(super) async fn meanwhile(&self) {
        if matches!(self.flow.act, Act::Abandon) {
            self.stage.world.delete_claim(CLAIM).await;
        }
    }

    async fn submit(&self) {
        self.stage.world.claim_with(CLAIM, self.spec()).await;
    }

    /// That of the claim.
    fn spec(&self) -> Value {
        let mut spec = match self.flow.kind {
            Kind::Generated | Kind::Retain | Kind::IfEmpty | Kind::Later => {
                json!({ "generateBucketName": self.bucket })
            }
            Kind::Named => json!({ "bucketName": self.bucket }),
            Kind::Brownfield => json!({}),
        };
        spec["storageClassName"] = json!(self.class);
        spec
    }

    /// Waits until the claim is where the act takes it.
    pub(super) async fn wait_for(&self) {
        match self.flow.act {
            Act::Provide | Act::Recover | Act::Edit(_) | Act::Undo => {
                drop(self.stage.world.wait_bound(CLAIM).await);
            }
            Act::Vanish => self.wait_reported(&["ClaimVanished", "ClaimGone"]).await,
            Act::SetBack => {
                self.stage.world.wait_gone(CLAIM).await;
                self.wait_reported(&["BucketNotEmpty"]).await;
            }
            Act::Adopt => {
                self.stage.world.wait_word_off(&self.stage.world.record_name(CLAIM)).await;
                self.stage.world.wait_bound(CLAIM).await;
            }
            Act::RemoveOrphan | Act::DeleteLater => {
                self.stage.world.wait_record_gone(&self.stage.world.record_name(CLAIM)).await
            }
            Act::Forget => {
                self.stage.world.wait_gone(CLAIM).await;
                self.stage.world.wait_record_gone(&self.stage.world.record_name(CLAIM)).await;
            }
            Act::Abandon | Act::Remove | Act::Withdraw(_) => self.stage.world.wait_gone(CLAIM).await,
            Act::Repair => self.stage.world.wait_secret(CLAIM, |keys| keys.contains_key("AWS_ACCESS_KEY_ID")).await,
            Act::Rotate => {
                let rotated = |secret: Option<&Secret>| {
                    secret.is_some_and(|secret| {
                        let noted = secret.annotations();
                        noted.get("objectbucket.io/rotate-keys").is_some_and(|answered| answered == "now")
                            && !noted.contains_key("objectbucket.io/retiring-key")
                    })
                };
                seen(&self.stage.world.secrets(), CLAIM, rotated).await.expect("the keys are replaced");
            }
        }
    }

    /// Waits until the last call of the act was made.
    pub(super) async fn wait_for_end(&self) {
        self.wait_for().await;
        match self.flow.act {
            Act::Provide | Act::Recover | Act::Edit(_) => drop(self.stage.world.wait_event(CLAIM, "Bound").await),
            Act::Vanish => self.wait_reported(&["ClaimVanished"]).await,
            Act::DeleteLater => drop(self.stage.world.wait_event_with(CLAIM, "Removed", "was deleted before").await),
            Act::Abandon | Act::Remove | Act::Withdraw(_) | Act::Forget | Act::RemoveOrphan | Act::SetBack => {
                drop(self.stage.world.wait_event(CLAIM, "Removed").await);
            }
            Act::Rotate => drop(self.stage.world.wait_event(CLAIM, "KeysRetired").await),
            Act::Adopt | Act::Undo => drop(self.stage.world.wait_event(CLAIM, "Adopted").await),
            // Nothing is told of a repair that works. What follows the Secret is made before the operator stops.
            Act::Repair => {}
        }
    }

    /// Requires that all is well after the act, and once the claim is gone; returns what outlives it.
    pub(super) async fn assert_well(&self) -> Footprint {
        if self.flow.ends_bound() {
            self.assert_bound().await;
            self.stage.world.delete_claim(CLAIM).await;
            self.stage.world.wait_gone(CLAIM).await;
        }
        let left = self.made().await;
        self.assert_nothing_left(&left).await;
        left
    }

    /// Makes it what it was when it was set: without what outlives a claim, and without what was told of the claim, for
    /// the next one has its name.
    pub(super) async fn reset(&self, mut left: Footprint) {
        let Self { stage, bucket, .. } = self;
        if self.flow.kind == Kind::Brownfield {
            left.store.buckets.insert(bucket.clone(), Bucket::default());
        }
        if stage.can(Ability::Inventory) {
            stage.backend.remove(&left.store).await;
        }
        self.forget_records(&left).await;
        if self.flow.kind == Kind::Brownfield {
            stage.backend.create_bucket(bucket).await;
        }
        let events: Api<Event> = Api::namespaced(stage.world.client.clone(), &stage.world.namespace);
        events.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    }

    /// Requires that the claim is bound and usable, with one bucket, one user and one key.
    async fn assert_bound(&self) {
        let (stage, world) = (&self.stage, &self.stage.world);
        // A claim whose keys are new is not ready for a while.
        world.wait_reason(CLAIM, "Bound").await;
        let app = world.environment(CLAIM).await;
        stage.assert_usable(&app).await;
        if self.flow.shares_keys {
            let owner = stage.backend.owner();
            assert!(owner.values().any(|value| *value == app["AWS_ACCESS_KEY_ID"]), "not the owner's own keys");
        }
        let made = self.made().await;
        let kinds: Vec<&str> = made.objects.keys().filter_map(|name| name.split(' ').next()).collect();
        assert_eq!(kinds, ["ConfigMap", "ObjectBucket", "ObjectBucketClaim", "Secret"], "one of each: {made:#?}");
        if stage.can(Ability::Inventory) {
            let buckets = usize::from(self.flow.kind != Kind::Brownfield);
            assert_eq!(made.store.buckets.len(), buckets, "buckets: {made:#?}");
            assert_eq!(made.store.users.len(), usize::from(!self.flow.shares_keys), "users: {made:#?}");
            self.wait_for_one_key(&app["AWS_ACCESS_KEY_ID"]).await;
        }
    }

    /// Waits until there is one key, or none where keys are shared. A store need not tell that a key was deleted, so it is
    /// asked again and again.
    async fn wait_for_one_key(&self, key: &str) {
        let wanted: Vec<&str> = if self.flow.shares_keys { Vec::new() } else { vec![key] };
        let has = |users: &Inventory| users.users.values().flat_map(|user| &user.keys).eq(&wanted);
        let looking = async {
            while !has(&self.made().await.store) {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(crate::base::patience(), looking).await.is_err() {
            panic!("not the keys {wanted:?} alone: {:#?}", self.made().await.store.users);
        }
    }

    /// What there is now and was not before. What was before must be as it was.
    async fn made(&self) -> Footprint {
        let mut now = self.stage.footprint().await;
        let mut before = self.before.clone();
        if self.flow.kind == Kind::Brownfield {
            let shared = (now.store.buckets.remove(&self.bucket), before.store.buckets.remove(&self.bucket));
            let settings = |bucket: Option<Bucket>| bucket.map(|bucket| bucket.settings);
            assert_eq!(settings(shared.0), settings(shared.1), "the bucket that existed is reconfigured");
        }
        now.beyond(&before)
    }

    /// Requires that nothing is left of the claim but a bucket that outlives it, with all that is in it.
    async fn assert_nothing_left(&self, left: &Footprint) {
        self.assert_objects_left(left);
        let (sees, uses) = (self.stage.can(Ability::Inventory), self.stage.can(Ability::Apps));
        let (buckets, users) = match (self.flow.act, self.flow.kind) {
            (Act::Forget, _) if sees => (1, 1),
            // Nobody saw that it went while the operator was away: an admin decides.
            (Act::Vanish, _) if sees => (1, self.users_of_vanished(left).await),
            (_, Kind::Retain) if sees => (1, 0),
            _ if sees && self.flow.keeps_record() => (1, 0),
            _ => (0, 0),
        };
        assert_eq!((left.store.buckets.len(), left.store.users.len()), (buckets, users), "{left:#?}");
        if uses {
            assert!(left.store.buckets.values().all(|bucket| bucket.objects == ["something"]), "{left:#?}");
        }
        if self.flow.kind == Kind::Brownfield {
            let was_used = uses && (self.flow.ends_bound() || matches!(self.flow.act, Act::Remove));
            let expected: &[_] = if was_used { &["something", "theirs"] } else { &["theirs"] };
            let now = self.stage.inventory().await;
            let objects = now.buckets.get(&self.bucket).map(|bucket| &bucket.objects);
            assert_eq!(objects.expect("the bucket that existed"), expected, "it is as it was left");
        }
    }
}
