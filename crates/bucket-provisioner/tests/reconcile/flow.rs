//! A kind of claim, and what happens to it while calls fail or the operator is stopped.

use bucket_provisioner::api::wire;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::calls::{Calls, Verdict};
use crate::store::COLOR;
use crate::world::{CREATOR, EXISTING, World};

/// What kind of claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new bucket with a generated name.
    Generated,
    /// A new bucket with the name in `spec.bucketName`.
    Named,
    /// Access to a bucket that exists.
    Brownfield,
    /// Access to the bucket that was created for another claim.
    Shared,
    /// A new bucket that outlives its claim.
    Retain,
    /// A new bucket that outlives its claim if it is not empty.
    IfEmpty,
    /// A new bucket that is deleted a while after its claim.
    Later,
}

/// What happens to the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is submitted.
    Provide,
    /// It is submitted, and is deleted while no operator runs.
    Abandon,
    /// It is bound, and is deleted.
    Remove,
    /// It is bound, and its Secret is deleted: new keys are issued.
    Repair,
    /// It is bound, and its user requests new keys; the previous ones are deleted at once.
    Rotate,
    /// It is bound, and its user asks for keys that only read.
    Limit,
    /// It is bound, and its user asks for another color of its bucket.
    Paint,
    /// It is submitted, and another bucket is asked for before it is bound.
    Edit,
    /// It is restored from a backup, and an admin's annotation has it adopt its bucket and user.
    Adopt,
    /// It was deleted by force, and an admin's annotation has its ObjectBucket cleaned up.
    RemoveOrphan,
    /// It is bound, and is deleted, while its ObjectBucket has the annotation `forget`: bucket and user are kept.
    Forget,
    /// It is bound, and is deleted without the operator.
    Vanish,
    /// It was deleted, and the time comes at which its bucket is deleted.
    DeleteLater,
    /// It was deleted, and is created again to have its bucket back.
    Undo,
}

#[derive(Debug, Clone, Copy)]
pub struct Flow {
    pub kind: Kind,
    pub step: Step,
}

impl Flow {
    pub fn world(self) -> World {
        let policy = if self.kind == Kind::Retain { "Retain" } else { "Delete" };
        let mut parameters = json!({ "keyGracePeriod": "0s" });
        if self.step == Step::Paint {
            parameters["claimsMaySet"] = json!(COLOR);
            parameters[COLOR] = json!("blue");
        }
        match self.kind {
            Kind::Brownfield => parameters["bucketName"] = json!(EXISTING),
            Kind::IfEmpty => parameters["onDelete"] = json!("ifEmpty"),
            Kind::Later => parameters["onDelete"] = json!("after:1h"),
            Kind::Shared => parameters["claimsMaySet"] = json!("bucketClaimName"),
            Kind::Generated | Kind::Named | Kind::Retain => {}
        }
        World::new(json!({ "reclaimPolicy": policy, "parameters": parameters }))
    }

    fn spec(self) -> Value {
        match self.kind {
            Kind::Generated | Kind::Retain | Kind::IfEmpty | Kind::Later => json!({ "generateBucketName": "photos" }),
            Kind::Named => json!({ "bucketName": "photos" }),
            Kind::Brownfield => json!({}),
            Kind::Shared => json!({ "additionalConfig": { "bucketClaimName": CREATOR } }),
        }
    }

    pub fn submit(self, world: &World) {
        world.submit(self.spec());
    }

    /// Has it happen. The rule decides about the calls from where the step begins. Returns the operator.
    pub async fn begin(
        self,
        world: &World,
        calls: &Calls,
        rule: impl FnMut(&str) -> Verdict + Send + 'static,
    ) -> JoinSet<()> {
        if self.kind == Kind::Shared {
            world.bind_creator().await;
        }
        if !self.is_bound_before() {
            self.submit(world);
            if self.step == Step::Edit {
                self.stop_after_grant(world).await;
                world.edit_claim(&json!({ "spec": { "bucketName": "pictures" } }));
            }
            calls.begin(rule);
            return world.start(calls);
        }
        let operator = world.start(calls);
        self.submit(world);
        world.until("bound", World::is_bound).await;
        world.afterwards().await;
        world.use_bucket();
        let operator = self.prepare(world, calls, operator).await;
        calls.begin(rule);
        self.act(world);
        operator
    }

    async fn stop_after_grant(self, world: &World) {
        let calls = Calls::default();
        calls.begin(|name| if name == "store grant" { Verdict::StopAfter } else { Verdict::Pass });
        let _operator = world.start(&calls);
        calls.stopped().await;
    }

    /// From a bound claim to where the step begins.
    async fn prepare(self, world: &World, calls: &Calls, operator: JoinSet<()>) -> JoinSet<()> {
        match self.step {
            Step::Adopt => {
                drop(operator);
                world.restore_from_backup();
                let operator = world.start(calls);
                world.until("waiting for an admin", |world| world.record_reports("ClaimReplaced")).await;
                world.afterwards().await;
                return operator;
            }
            Step::RemoveOrphan => {
                drop(operator);
                world.force_out_claim();
                let operator = world.start(calls);
                world.until("without its claim", |world| world.record_reports("ClaimGone")).await;
                world.api.collect_garbage();
                world.afterwards().await;
                return operator;
            }
            Step::Forget => {
                world.set_action("forget");
                world.afterwards().await;
            }
            Step::DeleteLater | Step::Undo => {
                world.delete_claim();
                world.until("scheduled", |world| world.claim().is_none()).await;
                world.afterwards().await;
            }
            _ => {}
        }
        operator
    }

    fn act(self, world: &World) {
        match self.step {
            // They begin with the start of the operator.
            Step::Provide | Step::Abandon | Step::Edit => {}
            Step::Remove | Step::Forget => world.delete_claim(),
            Step::Repair => world.delete_secret(),
            Step::Rotate => {
                world.edit_claim(&json!({ "metadata": { "annotations": { wire::annotation::ROTATE_KEYS: "now" } } }));
            }
            Step::Limit => {
                world.edit_claim(&json!({ "spec": { "additionalConfig": { "accessMode": "ReadOnly" } } }));
            }
            Step::Paint => world.edit_claim(&json!({ "spec": { "additionalConfig": { COLOR: "red" } } })),
            Step::Adopt => world.set_action("adopt"),
            Step::RemoveOrphan => world.set_action("remove"),
            Step::Vanish => world.force_out_claim(),
            Step::DeleteLater => world.set_deletion(&Timestamp::now()),
            Step::Undo => {
                self.submit(world);
                world.edit_claim(&json!({ "metadata": { "annotations": { wire::annotation::UNDO_DELETE: "yes" } } }));
            }
        }
    }

    /// What happens while no operator runs.
    pub fn meanwhile(self, world: &World) {
        if self.step == Step::Abandon {
            world.delete_claim();
        }
    }

    /// Waits until the claim is where the step takes it.
    pub async fn reach_end(self, world: &World) {
        match self.step {
            Step::Provide | Step::Edit | Step::Undo => {
                world.until("bound", World::is_bound).await;
                assert!(world.has_working_key(), "bound means usable");
            }
            Step::Repair => world.until("repaired", |world| world.is_bound() && world.has_working_key()).await,
            Step::Abandon | Step::Remove => world.until("deleted", |world| world.claim().is_none()).await,
            Step::Rotate => {
                let is_rotated = |world: &World| {
                    let secret = world.secret().unwrap_or_default();
                    let notes = &secret["metadata"]["annotations"];
                    notes[wire::annotation::ROTATE_KEYS] == "now" && notes[wire::annotation::RETIRING_KEY].is_null()
                };
                world.until("rotated", is_rotated).await;
            }
            Step::Limit => {
                world.until("limited", |world| world.is_bound() && world.only_reads()).await;
            }
            Step::Paint => world.until("painted", |world| world.is_bound() && world.is_red()).await,
            Step::Adopt => world.until("adopted", |world| world.is_bound() && !world.has_action()).await,
            Step::Forget | Step::RemoveOrphan | Step::DeleteLater => {
                world.until("deleted", |world| world.claim().is_none() && world.record().is_none()).await;
            }
            Step::Vanish => {
                let is_reported =
                    |world: &World| ["ClaimVanished", "ClaimGone"].iter().any(|r| world.record_reports(r));
                world.until("reported", is_reported).await;
            }
        }
    }

    /// The same, and lets what follows happen.
    pub async fn end(self, world: &World) {
        self.reach_end(world).await;
        world.afterwards().await;
    }

    /// A flow whose calls are those of this one until the operator is stopped.
    pub fn until_stopped(self) -> Self {
        // The first operator of a claim that is abandoned creates all for it.
        if self.step == Step::Abandon { Self { step: Step::Provide, ..self } } else { self }
    }

    /// Requires that all is well after the step, and when the claim was deleted. `was_published`: the keys of a claim that
    /// is deleted in this step.
    pub async fn assert_well(self, world: &World, was_published: bool) {
        if self.ends_bound() {
            world.assert_bound();
            world.use_bucket();
            world.delete_claim();
            world.until("deleted", |world| world.claim().is_none()).await;
            world.afterwards().await;
        }
        let (unused, used): (&[&[&str]], &[&[&str]]) = (&[&[]], &[&["mine"]]);
        match (self.step, self.kind) {
            (Step::Forget, _) => world.assert_left(used, 1, &[]),
            (Step::Vanish, _) => {
                world.api.collect_garbage();
                // An operator that has not seen it leaves the decision to an admin.
                let users = if world.record_reports("ClaimVanished") { 0 } else { world.stored().users.len().min(1) };
                world.assert_left(used, users, &["objectbuckets obc-shop-photos"]);
            }
            (Step::RemoveOrphan | Step::DeleteLater, _) => world.assert_left(&[], 0, &[]),
            (Step::Abandon, Kind::Retain) if was_published => world.assert_left(unused, 0, &[]),
            (Step::Abandon, _) => world.assert_left(&[], 0, &[]),
            (_, Kind::Retain) => world.assert_left(used, 0, &[]),
            (_, Kind::IfEmpty | Kind::Later) => world.assert_left(used, 0, &["objectbuckets obc-shop-photos"]),
            (_, Kind::Generated | Kind::Named | Kind::Brownfield | Kind::Shared) => world.assert_left(&[], 0, &[]),
        }
    }

    /// Whether the step begins with a bound claim, whose bucket is used.
    fn is_bound_before(self) -> bool {
        !matches!(self.step, Step::Provide | Step::Abandon | Step::Edit)
    }

    fn ends_bound(self) -> bool {
        matches!(
            self.step,
            Step::Provide
                | Step::Repair
                | Step::Rotate
                | Step::Limit
                | Step::Paint
                | Step::Edit
                | Step::Adopt
                | Step::Undo
        )
    }

    /// Whether the claim and its ObjectBucket belong together from the beginning to the end.
    pub fn has_one_claim(self) -> bool {
        !matches!(
            self.step,
            Step::Adopt | Step::RemoveOrphan | Step::Vanish | Step::DeleteLater | Step::Undo | Step::Forget
        )
    }
}
