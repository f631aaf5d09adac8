//! A kind of claim, and what happens to it while calls fail or the operator is stopped.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::calls::{Calls, Verdict};
use crate::world::{EXISTING, World};

/// What kind of claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new bucket with a generated name.
    Generated,
    /// A new bucket with the name in `spec.bucketName`.
    Named,
    /// Access to a bucket that exists.
    Brownfield,
    /// A new bucket that outlives its claim.
    Retain,
    /// A new bucket that outlives its claim if it is not empty.
    IfEmpty,
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
        match self.kind {
            Kind::Brownfield => parameters["bucketName"] = json!(EXISTING),
            Kind::IfEmpty => parameters["onDelete"] = json!("ifEmpty"),
            Kind::Generated | Kind::Named | Kind::Retain => {}
        }
        World::new(json!({ "reclaimPolicy": policy, "parameters": parameters }))
    }

    fn spec(self) -> Value {
        match self.kind {
            Kind::Generated | Kind::Retain | Kind::IfEmpty => json!({ "generateBucketName": "photos" }),
            Kind::Named => json!({ "bucketName": "photos" }),
            Kind::Brownfield => json!({}),
        }
    }

    /// Has it happen. The rule decides about the calls from where the step begins. Returns the operator.
    pub async fn begin(
        self,
        world: &World,
        calls: &Calls,
        rule: impl FnMut(&str) -> Verdict + Send + 'static,
    ) -> JoinSet<()> {
        if !self.is_bound_before() {
            calls.begin(rule);
            world.submit(self.spec());
            return world.start(calls);
        }
        let operator = world.start(calls);
        world.submit(self.spec());
        world.until("bound", World::is_bound).await;
        world.afterwards().await;
        world.use_bucket();
        calls.begin(rule);
        match self.step {
            Step::Provide | Step::Abandon => {}
            Step::Remove => world.delete_claim(),
            Step::Repair => world.delete_secret(),
            Step::Rotate => {
                world.edit_claim(&json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "now" } } }));
            }
        }
        operator
    }

    /// What happens while no operator runs.
    pub fn meanwhile(self, world: &World) {
        if self.step == Step::Abandon {
            world.delete_claim();
        }
    }

    /// Waits until the claim is where the step takes it.
    pub async fn end(self, world: &World) {
        match self.step {
            Step::Provide => {
                world.until("bound", World::is_bound).await;
                assert!(world.has_working_key(), "bound means usable");
            }
            Step::Repair => world.until("repaired", |world| world.is_bound() && world.has_working_key()).await,
            Step::Abandon | Step::Remove => world.until("deleted", |world| world.claim().is_none()).await,
            Step::Rotate => {
                let is_rotated = |world: &World| {
                    let secret = world.secret().unwrap_or_default();
                    let notes = &secret["metadata"]["annotations"];
                    notes["objectbucket.io/rotate-keys"] == "now" && notes["objectbucket.io/retiring-key"].is_null()
                };
                world.until("rotated", is_rotated).await;
            }
        }
        world.afterwards().await;
    }

    /// Requires that all is well after the step, and when the claim was deleted. `was_published`: the keys of a claim that
    /// is deleted in this step.
    pub async fn assert_well(self, world: &World, was_published: bool) {
        let is_deleted = matches!(self.step, Step::Abandon | Step::Remove);
        if !is_deleted {
            world.assert_bound();
            world.delete_claim();
            world.until("deleted", |world| world.claim().is_none()).await;
            world.afterwards().await;
        }
        match self.kind {
            Kind::Retain if was_published || !is_deleted => world.assert_gone(1, &[]),
            Kind::IfEmpty if self.is_bound_before() => world.assert_gone(1, &["objectbuckets obc-shop-photos"]),
            _ => world.assert_gone(0, &[]),
        }
    }

    /// Whether the step begins with a bound claim, whose bucket is used.
    fn is_bound_before(self) -> bool {
        !matches!(self.step, Step::Provide | Step::Abandon)
    }
}
