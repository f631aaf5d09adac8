//! What is on the wire: ObjectBucketClaim, ObjectBucket, and every name that other software also uses.
//!
//! The CRDs in `crds/` are generated from these types (`aws-s3-provisioner crds`). Reading is tolerant, because
//! clusters have CRDs and objects of several generations (Rook, NooBaa, lib-bucket-provisioner): every field that some
//! of them leave out is optional, and unknown fields are ignored.

mod bucket;
mod claim;
mod guard;
#[cfg(test)]
mod names;
mod status;
pub mod wire;

pub use bucket::{BucketEndpoint, BucketPhase, ClaimReference, ObjectBucket, ObjectBucketSpec, ObjectBucketStatus};
pub use claim::{ClaimPhase, ObjectBucketClaim, ObjectBucketClaimSpec, ObjectBucketClaimStatus};
pub(crate) use guard::{Guard, Unreadable};
pub(crate) use operator_runtime::name::object_name;
pub use status::{Condition, ConditionStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON};
use kube::CustomResourceExt as _;
use serde_json::json;

/// With a CustomResourceDefinition all claims are deleted, so neither Argo CD nor Flux nor Helm may delete it because it is
/// no longer among what they install.
const KEPT: [(&str, &str); 3] = [
    ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false"),
    ("helm.sh/resource-policy", "keep"),
    ("kustomize.toolkit.fluxcd.io/prune", "disabled"),
];

/// The CustomResourceDefinitions that the operator needs, with their file names in `crds/`.
pub fn crds() -> [(&'static str, CustomResourceDefinition); 2] {
    let kept = |mut crd: CustomResourceDefinition| {
        let annotations = crd.metadata.annotations.get_or_insert_default();
        annotations.extend(KEPT.map(|(key, value)| (key.to_owned(), value.to_owned())));
        crd
    };
    let claims = with_default_status(ObjectBucketClaim::crd());
    [("objectbucketclaims.yaml", kept(claims)), ("objectbuckets.yaml", kept(ObjectBucket::crd()))]
}

/// A claim that no operator has seen is not ready. Tools that wait for objects of any kind take one without conditions for
/// ready ("kstatus", sigs.k8s.io/cli-utils). It is the default of the whole status, so that provisioners whose statuses have no
/// conditions, such as Rook, replace it with their first one.
fn with_default_status(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas =
        crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    let statuses = schemas.filter_map(|schema| schema.properties.as_mut()?.get_mut("status"));
    for status in statuses {
        status.default = Some(JSON(json!({ "conditions": [{
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "message": "no operator has processed the claim yet; if this stays, no operator runs, or its StorageClass has another provisioner",
            "reason": status::NOT_REPORTED,
            "status": "Unknown",
            "type": status::READY,
        }]})));
    }
    crd
}
