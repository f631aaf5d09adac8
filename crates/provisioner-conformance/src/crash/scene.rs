//! The environment of a flow.

use futures::FutureExt as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::flow::{Corruption, Flow, Kind, Step};
use crate::backend::{Ability, Backend, Bucket, Outputs};
use crate::program::Running;
use crate::proxy::{Gate, Verdict};
use crate::stage::{Footprint, Stage};
use crate::world::seen;

/// The claim of every flow.
pub(super) const CLAIM: &str = "photos";
/// The claim whose bucket it shares.
const CREATOR: &str = "creator";
/// The ServiceAccount of a claim without keys.
const SERVICE_ACCOUNT: &str = "web";
/// Beside the outputs of such a claim: what is in the file that `AWS_WEB_IDENTITY_TOKEN_FILE` names.
const TOKEN: &str = "AWS_WEB_IDENTITY_TOKEN";

/// A stage with a class, and with foreign objects on it.
pub(super) struct Scene<B> {
    pub(super) stage: Stage<B>,
    pub(super) flow: Flow,
    /// `None` while it is not set.
    class: Option<String>,
    pub(super) bucket: String,
    /// What there was before anything happened.
    pub(super) before: Footprint,
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
        stage.create_unrelated_objects().await;
        let mut parameters = flow.parameters.to_vec();
        if matches!(flow.step, Step::Rotate) {
            parameters.push(("keyGracePeriod", "0s"));
        }
        parameters.extend(flow.on_delete().map(|value| ("onDelete", value)));
        let policy = if flow.kind == Kind::Retain { "Retain" } else { "Delete" };
        if flow.kind == Kind::Brownfield {
            stage.backend.create_bucket(bucket).await;
            parameters.push(("bucketName", bucket));
        }
        if flow.kind == Kind::Shared {
            parameters.push(("claimsMaySet", "bucketClaimName"));
        }
        if flow.audience.is_some() {
            let account = json!({ "metadata": { "name": SERVICE_ACCOUNT } });
            let account: ServiceAccount = serde_json::from_value(account).unwrap();
            stage.world.service_accounts().create(&PostParams::default(), &account).await.unwrap();
        }
        let class = stage.class("class", policy, &parameters).await;
        if flow.kind == Kind::Shared {
            let mut operator = stage.started().await;
            let app = stage.bind(CREATOR, &class).await;
            stage.backend.put(&app, "theirs").await.unwrap();
            bucket.clone_from(&app["BUCKET_NAME"]);
            stage.world.wait_event(CREATOR, "Bound").await;
            operator.terminate();
            operator.ended(crate::base::patience()).await;
        }
        self.class = Some(class);
        self.before = stage.footprint().await;
    }

    /// Removes what exists, as far as possible.
    pub(super) async fn clear(self) {
        // A failure here follows from one that is reported already.
        let _ = std::panic::AssertUnwindSafe(self.stage.clear()).catch_unwind().await;
    }

    /// Brings the claim to where the step begins; returns the operator, if one runs then.
    pub(super) async fn prepare(&self) -> Option<Running> {
        let (stage, world) = (&self.stage, &self.stage.world);
        let record = world.record_name(CLAIM);
        let operator = stage.started().await;
        match self.flow.step {
            Step::Provide | Step::Abandon => {}
            Step::Remove | Step::Repair | Step::Rotate | Step::Vanish => self.bind().await,
            Step::Configure(_) => self.bind_unused().await,
            Step::DeleteLater | Step::Undo => {
                self.bind().await;
                world.delete_claim(CLAIM).await;
                world.wait_gone(CLAIM).await;
                world.wait_condition(&record, "DeletionScheduled", "Scheduled").await;
                world.wait_event(CLAIM, "Removed").await;
            }
            Step::SetBack => {
                self.bind().await;
                operator.kill().await;
                world.set_back(CLAIM).await;
                world.delete_claim(CLAIM).await;
                return None;
            }
            Step::Forget => {
                self.bind().await;
                world.set_action(&record, "forget").await;
                world.wait_orphaned(&record, "ClaimExists").await;
            }
            Step::Adopt => {
                self.bind().await;
                operator.kill().await;
                self.restore().await;
                let operator = stage.started().await;
                world.wait_reason(CLAIM, "AdoptionNeeded").await;
                world.wait_event(CLAIM, "AdoptionNeeded").await;
                world.wait_orphaned(&record, "ClaimReplaced").await;
                return Some(operator);
            }
            Step::RemoveOrphan => {
                self.bind().await;
                operator.kill().await;
                world.forget_object(&world.claims(), CLAIM).await;
                let operator = stage.started().await;
                world.wait_orphaned(&record, "ClaimGone").await;
                return Some(operator);
            }
            Step::Recover => {
                let gate = Gate::closed();
                let held = gate.clone();
                world.kubernetes.inject(move |call| match call.name.as_str() {
                    "create secrets" => Verdict::Hold(held.clone()),
                    _ => Verdict::Pass,
                });
                self.submit().await;
                assert!(gate.reached().await, "the Secret is written: {:#?}", world.kubernetes.names());
                operator.kill().await;
                world.kubernetes.leave_alone();
                return None;
            }
            Step::Withdraw(corruption) | Step::Edit(corruption) => self.corrupt(corruption).await,
        }
        Some(operator)
    }

    async fn corrupt(&self, corruption: Corruption) {
        let store = self.stage.store();
        store.inject(corruption.rule);
        self.submit().await;
        self.stage.world.wait_reason(CLAIM, corruption.reason).await;
        self.stage.world.wait_event(CLAIM, corruption.reason).await;
        store.leave_alone();
    }

    async fn bind_unused(&self) {
        let world = &self.stage.world;
        self.submit().await;
        world.wait_bound(CLAIM).await;
        // The last of the calls that binding makes.
        world.wait_event(CLAIM, "Bound").await;
    }

    async fn bind(&self) {
        self.bind_unused().await;
        if self.stage.can(Ability::Apps) {
            self.stage.backend.put(&self.app().await, "something").await.unwrap();
        }
    }

    /// What an app of the claim has.
    pub(super) async fn app(&self) -> Outputs {
        let world = &self.stage.world;
        let mut app = world.environment(CLAIM).await;
        if let Some(audience) = self.flow.audience {
            let request = json!({ "spec": { "audiences": [audience] } });
            let request: TokenRequest = serde_json::from_value(request).unwrap();
            let accounts = world.service_accounts();
            let answer =
                accounts.create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request).await.unwrap();
            app.insert(TOKEN.to_owned(), answer.status.unwrap().token);
        }
        app
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
        match self.flow.step {
            Step::Provide | Step::Abandon => self.submit().await,
            Step::Remove | Step::Withdraw(_) | Step::Forget => self.stage.world.delete_claim(CLAIM).await,
            Step::Repair => drop(self.stage.world.secrets().delete(CLAIM, &DeleteParams::default()).await.unwrap()),
            Step::Rotate => {
                let ask = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } });
                self.stage.world.claims().patch(CLAIM, &PatchParams::default(), &Patch::Merge(ask)).await.unwrap();
            }
            // It begins with the start of an operator.
            Step::Recover | Step::SetBack => {}
            Step::DeleteLater => self.stage.world.delete_in(&self.stage.world.record_name(CLAIM), 0).await,
            Step::Undo => self.stage.world.create_again(CLAIM, &self.spec()).await,
            Step::Vanish => self.force_out(operator.expect("one runs")).await,
            Step::Adopt => self.stage.world.set_action(&self.stage.world.record_name(CLAIM), "adopt").await,
            Step::RemoveOrphan => self.stage.world.set_action(&self.stage.world.record_name(CLAIM), "remove").await,
            Step::Edit(_) => self.edit(json!({ "bucketName": self.stage.world.unique("pictures") })).await,
            Step::Configure(edit) => self.edit(json!({ "additionalConfig": config(edit.after) })).await,
        }
    }

    async fn edit(&self, spec: Value) {
        let edit = Patch::Merge(json!({ "spec": spec }));
        self.stage.world.claims().patch(CLAIM, &PatchParams::default(), &edit).await.unwrap();
    }

    /// What happens while no operator runs.
    pub(super) async fn meanwhile(&self) {
        if matches!(self.flow.step, Step::Abandon) {
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
            Kind::Shared => json!({ "additionalConfig": { "bucketClaimName": CREATOR } }),
        };
        if let Step::Configure(edit) = self.flow.step {
            spec["additionalConfig"] = config(edit.before);
        }
        if self.flow.audience.is_some() {
            spec["additionalConfig"]["serviceAccountName"] = json!(SERVICE_ACCOUNT);
        }
        spec["storageClassName"] = json!(self.class);
        spec
    }

    /// Waits until the claim is where the step takes it.
    pub(super) async fn wait_for(&self) {
        match self.flow.step {
            Step::Provide | Step::Recover | Step::Edit(_) | Step::Undo => {
                drop(self.stage.world.wait_bound(CLAIM).await);
            }
            Step::Configure(_) => self.wait_configured().await,
            Step::Vanish => self.wait_reported(&["ClaimVanished", "ClaimGone"]).await,
            Step::SetBack => {
                self.stage.world.wait_gone(CLAIM).await;
                self.wait_reported(&["BucketNotEmpty"]).await;
            }
            Step::Adopt => {
                self.stage.world.wait_action_removed(&self.stage.world.record_name(CLAIM)).await;
                self.stage.world.wait_bound(CLAIM).await;
            }
            Step::RemoveOrphan | Step::DeleteLater => {
                self.stage.world.wait_record_gone(&self.stage.world.record_name(CLAIM)).await
            }
            Step::Forget => {
                self.stage.world.wait_gone(CLAIM).await;
                self.stage.world.wait_record_gone(&self.stage.world.record_name(CLAIM)).await;
            }
            Step::Abandon | Step::Remove | Step::Withdraw(_) => self.stage.world.wait_gone(CLAIM).await,
            Step::Repair => {
                let is_keyless = self.flow.audience.is_some();
                let has = |keys: &Outputs| is_keyless || keys.contains_key("AWS_ACCESS_KEY_ID");
                self.stage.world.wait_secret(CLAIM, has).await;
            }
            Step::Rotate => {
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

    /// Waits until the last call of the step was made.
    pub(super) async fn wait_for_end(&self) {
        self.wait_for().await;
        match self.flow.step {
            Step::Provide | Step::Recover | Step::Edit(_) => drop(self.stage.world.wait_event(CLAIM, "Bound").await),
            Step::Configure(_) => drop(self.stage.world.wait_event(CLAIM, "SettingsApplied").await),
            Step::Vanish => self.wait_reported(&["ClaimVanished"]).await,
            Step::DeleteLater => drop(self.stage.world.wait_event_with(CLAIM, "Removed", "was deleted before").await),
            Step::Abandon | Step::Remove | Step::Withdraw(_) | Step::Forget | Step::RemoveOrphan | Step::SetBack => {
                drop(self.stage.world.wait_event(CLAIM, "Removed").await);
            }
            Step::Rotate => drop(self.stage.world.wait_event(CLAIM, "KeysRetired").await),
            Step::Adopt | Step::Undo => drop(self.stage.world.wait_event(CLAIM, "Adopted").await),
            // A repair that works has no event. What follows the Secret is written before the operator stops.
            Step::Repair => {}
        }
    }

    /// Restores the initial state: deletes what outlives a claim, and the events of the claim, because the next one has its
    /// name.
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
}

fn config(settings: &[(&str, &str)]) -> Value {
    settings.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
}
