//! What the floor writes for a claim: as large as what the operator writes, so that it costs as much.

use serde_json::{Value, json};

use crate::Failure;
use crate::kubernetes::Claim;
use crate::store::Store;

pub(crate) const FINALIZER: &str = "objectbucket.io/finalizer";
pub(crate) const LABEL: &str = "aws-s3.io-bucket";

/// Names of bucket, user and ObjectBucket.
pub(crate) fn names(Claim { name, uid }: &Claim) -> (String, String, String) {
    (format!("bench-{uid}"), format!("bench-{name}-{uid}"), format!("obc-bench-{name}"))
}

/// Of the bucket and of the user.
pub(crate) fn tags(Claim { name, uid }: &Claim) -> [(&'static str, &str); 4] {
    [
        ("objectbucket.io/managed-by", "aws-s3.io/bucket"),
        ("objectbucket.io/claim-namespace", "bench"),
        ("objectbucket.io/claim-name", name),
        ("objectbucket.io/claim-uid", uid),
    ]
}

/// The finalizer on the claim, and the name of its bucket.
pub(crate) fn taken_on(bucket: &str) -> Value {
    json!({
        "metadata": { "finalizers": [FINALIZER], "labels": { "bucket-provisioner": LABEL } },
        "spec": { "bucketName": bucket },
    })
}

pub(crate) fn record(claim: &Claim, store: &Store) -> Value {
    let (bucket, user, record) = names(claim);
    let (region, url) = (store.region(), store.url());
    json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
        "metadata": { "name": record, "labels": { "bucket-provisioner": LABEL }, "finalizers": [FINALIZER] },
        "spec": {
            "storageClassName": "s3-buckets", "reclaimPolicy": "Delete",
            "claimRef": reference(claim),
            "endpoint": { "bucketHost": "127.0.0.1", "bucketPort": 4566, "bucketName": bucket, "region": region },
            "additionalState": {
                "claimNamespace": "bench", "claimName": claim.name, "claimUID": claim.uid, "mode": "created",
                "UserName": user, "endpointURL": url, "iamEndpoint": url, "iamPath": "/aws-s3-provisioner/",
                "secretNamespace": "aws-s3-provisioner", "secretName": "example-owner",
            },
        },
    })
}

pub(crate) fn secret(claim: &Claim, id: &str, key: &str) -> Value {
    let keys = json!({ "AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": key });
    json!({ "metadata": output(claim), "type": "Opaque", "stringData": keys })
}

pub(crate) fn config_map(claim: &Claim, bucket: &str, store: &Store) -> Value {
    let (region, url) = (store.region(), store.url());
    let data = json!({
        "BUCKET_NAME": bucket, "BUCKET_HOST": "127.0.0.1", "BUCKET_PORT": "4566", "BUCKET_REGION": region,
        "BUCKET_SUBREGION": "", "AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_ENDPOINT_URL_S3": url,
    });
    json!({ "metadata": output(claim), "data": data })
}

pub(crate) fn bound(note: &str) -> Value {
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Bound", "message": note, "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({ "status": { "phase": "Bound", "conditions": [ready] } })
}

pub(crate) fn event(claim: &Claim, reason: &str, note: &str) -> Result<Value, Failure> {
    let now = std::time::UNIX_EPOCH.elapsed()?.as_nanos();
    Ok(json!({
        "metadata": { "name": format!("{}.{now:x}", claim.name) }, "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal", "reason": reason, "note": note, "action": "Reconcile", "regarding": reference(claim),
        "reportingController": "aws-s3.io/bucket", "reportingInstance": "aws-s3.io/bucket",
    }))
}

fn reference(claim: &Claim) -> Value {
    json!({
        "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "namespace": "bench",
        "name": claim.name, "uid": claim.uid,
    })
}

/// Metadata of Secret and ConfigMap.
fn output(Claim { name, uid }: &Claim) -> Value {
    json!({
        "name": name, "labels": { "bucket-provisioner": LABEL },
        "annotations": { "objectbucket.io/keys-issued-at": "2026-01-01T00:00:00Z" },
        "ownerReferences": [{
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }],
    })
}
