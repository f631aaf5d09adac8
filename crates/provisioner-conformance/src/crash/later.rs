//! ObjectBuckets and buckets that outlive their claims.

use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use kube::api::DeleteParams;

use super::flow::Step;
use super::scene::{CLAIM, Scene};
use crate::backend::Backend;
use crate::program::{Running, send_signal};
use crate::stage::Footprint;
use crate::world::seen;
use bucket_provisioner::api::{ObjectBucket, wire};

impl<B: Backend> Scene<B> {
    /// Removes the claim's finalizer and deletes the claim. The operator is stopped meanwhile, because it would add the
    /// finalizer again.
    pub(super) async fn force_out(&self, operator: &Running) {
        send_signal("STOP", operator.pid());
        let world = &self.stage.world;
        let forced = AssertUnwindSafe(world.forget_object(&world.claims(), CLAIM)).catch_unwind().await;
        send_signal("CONT", operator.pid());
        if let Err(panic) = forced {
            std::panic::resume_unwind(panic);
        }
    }

    /// Waits until a condition of the ObjectBucket reports, with one of these reasons, that it has no claim.
    pub(super) async fn wait_reported(&self, reasons: &[&str]) {
        let records = self.stage.world.records();
        let is_reported = |record: Option<&ObjectBucket>| {
            let status = record.and_then(|record| record.status.as_ref());
            let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
            conditions.any(|condition| reasons.contains(&condition.reason.as_str()))
        };
        let record = self.stage.world.record_name(CLAIM);
        if seen(&records, &record, is_reported).await.is_err() {
            panic!("none of {reasons:?}: {:#?}", records.get_opt(&record).await);
        }
    }

    /// The users that may be left of a claim that vanished: none, if the operator saw it.
    pub(super) async fn users_of_vanished(&self, left: &Footprint) -> usize {
        let world = &self.stage.world;
        let record = world.records().get(&world.record_name(CLAIM)).await.unwrap();
        let state = record.spec.additional_state.unwrap_or_default();
        match state.contains_key(wire::state::RELEASE_REASON) {
            true => 0,
            false => left.store.users.len().min(1),
        }
    }

    /// Requires that of the claim's objects only the ObjectBucket is left, if that outlives it.
    pub(super) fn assert_objects_left(&self, left: &Footprint) {
        let kinds: Vec<&str> = left.objects.keys().filter_map(|name| name.split(' ').next()).collect();
        match self.flow.step {
            // The garbage collector takes the outputs of a claim that went unseen.
            Step::Vanish => assert!(kinds.contains(&"ObjectBucket"), "{left:#?}"),
            _ if self.flow.keeps_record() => assert_eq!(kinds, ["ObjectBucket"], "{left:#?}"),
            _ => assert!(kinds.is_empty(), "{left:#?}"),
        }
    }

    /// Deletes what outlives the claim in the cluster. No operator may run.
    pub(super) async fn forget_records(&self, left: &Footprint) {
        let world = &self.stage.world;
        for record in left.objects.keys().filter_map(|name| name.strip_prefix("ObjectBucket ")) {
            world.forget_object(&world.records(), record).await;
        }
        let outputs = left.objects.keys().any(|name| name.starts_with("Secret ") || name.starts_with("ConfigMap "));
        if outputs {
            let _ = world.secrets().delete(CLAIM, &DeleteParams::default()).await;
            let _ = world.config_maps().delete(CLAIM, &DeleteParams::default()).await;
        }
    }
}
