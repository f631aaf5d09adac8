//! ObjectBucketClaim: what a user submits.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{Condition, known_or_none};
use operator_runtime::name::OBJECT_NAME;

/// What the user asks for.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "objectbucket.io",
    version = "v1alpha1",
    kind = "ObjectBucketClaim",
    plural = "objectbucketclaims",
    namespaced,
    shortname = "obc",
    shortname = "obcs",
    category = "storage",
    status = "ObjectBucketClaimStatus",
    doc = "A request for a bucket. The operator answers with a Secret and a ConfigMap of the claim's name.",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Storage-Class", type_ = "string", json_path = ".spec.storageClassName"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Bucket", type_ = "string", json_path = ".spec.bucketName"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "ObjectBucket", type_ = "string", json_path = ".spec.objectBucketName", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    )
)]
#[x_kube(
    // Like the Go library, the operator writes the name of the bucket into bucketName: a generated one, or that of the class.
    validation = ("!has(self.bucketName) || !has(self.generateBucketName) || has(self.objectBucketName) || self.bucketName.matches('-[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$')", "set either spec.bucketName or spec.generateBucketName, not both"),
    validation = ("!has(oldSelf.objectBucketName) || self.storageClassName == oldSelf.storageClassName || (has(self.additionalConfig) && 'serviceAccountName' in self.additionalConfig && self.additionalConfig['serviceAccountName'] != '') || (has(oldSelf.additionalConfig) && 'serviceAccountName' in oldSelf.additionalConfig && oldSelf.additionalConfig['serviceAccountName'] != '')", "spec.storageClassName cannot be changed once the claim is bound; create another claim and copy the data (deleting this claim can delete its bucket), or recreate a claim that has no bucket yet. To move it to a class without keys, set additionalConfig.serviceAccountName, too"),
    validation = ("!has(oldSelf.objectBucketName) || !has(oldSelf.bucketName) || !has(self.bucketName) || self.bucketName == oldSelf.bucketName", "spec.bucketName cannot be changed once the claim is bound; create another claim and copy the data (deleting this claim can delete its bucket), or recreate a claim that has no bucket yet"),
    validation = ("!has(oldSelf.objectBucketName) || !has(oldSelf.generateBucketName) || !has(self.generateBucketName) || self.generateBucketName == oldSelf.generateBucketName", "spec.generateBucketName cannot be changed once the claim is bound; create another claim and copy the data (deleting this claim can delete its bucket), or recreate a claim that has no bucket yet"),
    validation = ("!has(oldSelf.objectBucketName) || !has(self.objectBucketName) || self.objectBucketName == oldSelf.objectBucketName", "spec.objectBucketName is set by the operator and cannot be changed"),
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketClaimSpec {
    /// The StorageClass, which defines which provisioner creates the bucket, and how.
    #[schemars(length(min = 1, max = 253), extend("pattern" = OBJECT_NAME))]
    pub storage_class_name: String,
    /// Exact name of the new bucket. All AWS accounts share the names of buckets, so prefer generateBucketName. Not
    /// needed if the StorageClass names an existing bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub bucket_name: Option<String>,
    /// Prefix of the new bucket's name. Its first 26 characters and a UUID become the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub generate_bucket_name: Option<String>,
    /// Settings of the bucket and its access, as far as the class allows them (`claimsMaySet`). Keys for other provisioners
    /// have no effect.
    // The limits leave room for other provisioners: a bucket policy has up to 20 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32), transform = short_values)]
    pub additional_config: Option<BTreeMap<String, String>>,
    /// The ObjectBucket to which the claim is bound. Set by the operator.
    // Go libraries of 2019 wrote it with a capital O.
    #[serde(default, alias = "ObjectBucketName", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), extend("pattern" = format!("^$|{OBJECT_NAME}")))]
    pub object_bucket_name: Option<String>,
}

fn short_values(schema: &mut schemars::Schema) {
    schema.insert("additionalProperties".to_owned(), serde_json::json!({ "type": "string", "maxLength": 32_768 }));
}

/// Phase of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClaimPhase {
    /// The claim is being provisioned, or waits for what the Ready condition names.
    Pending,
    /// The Secret and the ConfigMap exist, and the credentials work.
    Bound,
    /// The claim is being deleted.
    Released,
    /// The claim itself must be changed, or another one created. The condition Ready reports why.
    Failed,
}

/// What the operator reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketClaimStatus {
    /// Phase of the claim.
    #[serde(default, deserialize_with = "known_or_none", skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// `Ready` reports whether the bucket can be used and, if not, why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
