//! ObjectBucket: the cluster-scoped record of what was created for one claim.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::{Condition, known_or_none};

/// What was created, where and for which claim, and how to remove it.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "objectbucket.io",
    version = "v1alpha1",
    kind = "ObjectBucket",
    plural = "objectbuckets",
    shortname = "ob",
    shortname = "obs",
    category = "storage",
    status = "ObjectBucketStatus",
    doc = "The state of one claim's bucket. The operator writes it, and needs nothing else to delete the bucket.",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Storage-Class", type_ = "string", json_path = ".spec.storageClassName"),
    printcolumn(name = "Claim-Namespace", type_ = "string", json_path = ".spec.claimRef.namespace"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".spec.claimRef.name"),
    printcolumn(name = "Bucket", type_ = "string", json_path = ".spec.endpoint.bucketName"),
    printcolumn(name = "Reclaim-Policy", type_ = "string", json_path = ".spec.reclaimPolicy"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Orphaned", type_ = "string", json_path = ".status.conditions[?(@.type==\"Orphaned\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Delete-At", type_ = "string", json_path = ".spec.additionalState.deleteAt", priority = 1),
    printcolumn(name = "User", type_ = "string", json_path = ".spec.additionalState.UserName", priority = 1),
    printcolumn(name = "Region", type_ = "string", json_path = ".spec.endpoint.region", priority = 1),
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.endpoint.bucketHost", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Orphaned\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketSpec {
    /// The StorageClass of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// What happens to a created bucket when its claim is deleted: Delete or Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<String>,
    /// The claim, for people. The operator uses additionalState.claimUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimReference>,
    /// The bucket and its endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<BucketEndpoint>,
    /// Everything else that is needed to remove what was created. Contains no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_state: Option<BTreeMap<String, String>>,
}

/// A reference to a claim, like `core/v1.ObjectReference`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimReference {
    /// API version of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Namespace of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// UID of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// A bucket and its endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BucketEndpoint {
    /// Host of the endpoint, without scheme and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_host: Option<String>,
    /// TCP port of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_port: Option<i32>,
    /// Name of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket_name: Option<String>,
    /// Region of the bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Not used. The Go library wrote it empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_region: Option<String>,
    /// Not used. The Go library copied the claim's settings here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_config: Option<BTreeMap<String, String>>,
}

/// Phase of a bucket record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BucketPhase {
    /// Everything recorded exists, and the claim has working credentials.
    Bound,
    /// The claim no longer exists.
    Released,
    /// Creating or removing it has failed.
    Failed,
}

/// What the operator reports about a bucket record. Without a phase, it is recorded but not finished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketStatus {
    /// Phase of the record.
    #[serde(default, deserialize_with = "known_or_none", skip_serializing_if = "Option::is_none")]
    pub phase: Option<BucketPhase>,
    /// `Orphaned` reports whether the claim of this ObjectBucket is missing, and what an admin can do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
