//! Claims that were deleted and whose buckets are still there, and clusters that were set back.

use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::World;
use bucket_provisioner::api::wire;

impl World {
    /// Creates a claim that asks for the bucket of the deleted one.
    pub async fn create_again(&self, name: &str, spec: &Value) {
        let claim = json!({
            "apiVersion": wire::API_VERSION, "kind": wire::CLAIM_KIND,
            "metadata": { "name": name, "annotations": { wire::annotation::UNDO_DELETE: "yes" } },
            "spec": spec,
        });
        self.claims().create(&PostParams::default(), &serde_json::from_value(claim).unwrap()).await.unwrap();
    }

    /// Moves the time at which the bucket of an ObjectBucket is deleted.
    pub async fn delete_in(&self, record: &str, seconds: i64) {
        let at = Timestamp::from_second(Timestamp::now().as_second() + seconds).unwrap();
        let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let patch = json!({ "spec": { "additionalState": { wire::state::DELETE_AT: at } } });
        self.records().patch(record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Restores the state of a snapshot of etcd from before the claim was bound: the ObjectBucket as it was first written, and
    /// no outputs. No operator may run.
    pub async fn set_back(&self, claim: &str) {
        let (records, claims, params) = (self.records(), self.claims(), PatchParams::default());
        let record = self.record_name(claim);
        let begun = json!({
            "spec": { "additionalState": { wire::state::HANDED_OVER: null } },
            "status": { "phase": null },
        });
        records.patch(&record, &params, &Patch::Merge(&begun)).await.unwrap();
        records.patch_status(&record, &params, &Patch::Merge(&begun)).await.unwrap();
        let unbound = json!({ "spec": { "objectBucketName": null } });
        claims.patch(claim, &params, &Patch::Merge(&unbound)).await.unwrap();
        let pending = json!({ "status": { "phase": "Pending", "conditions": [] } });
        claims.patch_status(claim, &params, &Patch::Merge(&pending)).await.unwrap();
        self.secrets().delete(claim, &DeleteParams::default()).await.unwrap();
        self.config_maps().delete(claim, &DeleteParams::default()).await.unwrap();
    }
}
