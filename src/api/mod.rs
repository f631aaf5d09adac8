//! What is on the wire: ObjectBucketClaim, ObjectBucket, and every name the ecosystem agreed on.
//!
//! The CRDs in `crds/` are generated from these types (`aws-s3-provisioner crds`). Reading is tolerant:
//! clusters carry CRDs and objects of several generations (Rook, NooBaa, lib-bucket-provisioner), so
//! every field that some of them leave out is optional and unknown fields are ignored.

mod bucket;
mod claim;
mod condition;
pub mod wire;

pub use bucket::{BucketEndpoint, BucketPhase, ClaimReference, ObjectBucket, ObjectBucketSpec, ObjectBucketStatus};
pub use claim::{ClaimPhase, ObjectBucketClaim, ObjectBucketClaimSpec, ObjectBucketClaimStatus};
pub use condition::{Condition, ConditionStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The CustomResourceDefinitions that the operator needs, with the file name each has in `crds/`.
pub fn crds() -> [(&'static str, CustomResourceDefinition); 2] {
    [("objectbucketclaims.yaml", ObjectBucketClaim::crd()), ("objectbuckets.yaml", ObjectBucket::crd())]
}

/// Reads an optional enum without failing on a word that this version does not know: an unknown
/// phase is no phase. One odd status must not make a whole object unreadable.
fn known_or_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned,
{
    use serde::Deserialize as _;
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}
