//! ObjectBucket: the cluster-scoped record of what was made for one claim.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;

/// What was made, where, for whom, and how it is undone.
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
    doc = "The record of one claim's bucket. Written by the operator; deletion works from it alone.",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(name = "Storage-Class", type_ = "string", json_path = ".spec.storageClassName"),
    printcolumn(name = "Claim-Namespace", type_ = "string", json_path = ".spec.claimRef.namespace"),
    printcolumn(name = "Claim", type_ = "string", json_path = ".spec.claimRef.name"),
    printcolumn(name = "Bucket", type_ = "string", json_path = ".spec.endpoint.bucketName"),
    printcolumn(name = "Reclaim-Policy", type_ = "string", json_path = ".spec.reclaimPolicy"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Orphaned", type_ = "string", json_path = ".status.conditions[?(@.type==\"Orphaned\")].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketSpec {
    /// The StorageClass of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// What becomes of a created bucket when its claim is deleted: Delete or Retain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim_policy: Option<String>,
    /// The claim, for people; additionalState.claimUID is what counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ClaimReference>,
    /// The bucket and where it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<BucketEndpoint>,
    /// All else that is needed to undo the claim. Holds no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_state: Option<BTreeMap<String, String>>,
}

/// A reference to a claim, in the shape of `core/v1.ObjectReference`.
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

/// A bucket and where it is reached.
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
    /// Not used; written empty by the Go library.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_region: Option<String>,
    /// Not used; the Go library copied the claim's settings here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_config: Option<BTreeMap<String, String>>,
}

/// Where a bucket record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BucketPhase {
    /// Everything recorded exists, and its claim was handed working credentials.
    Bound,
    /// Its claim is gone.
    Released,
    /// It could not be made or undone.
    Failed,
}

/// What the operator reports of a bucket record. No phase yet: recorded, not finished.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectBucketStatus {
    /// Where the record stands.
    #[serde(default, deserialize_with = "super::known_or_none", skip_serializing_if = "Option::is_none")]
    pub phase: Option<BucketPhase>,
    /// `Orphaned` says whether the claim of this record is missing, and what an admin can do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
