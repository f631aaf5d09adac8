//! The floor: the AWS calls and Kubernetes writes of the operator, in the same order for each claim and for
//! as many claims at once, and nothing else. No reads of Kubernetes, no watches, no decisions.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;
use crate::load::{CLAIMS, Claim, Load, all};
use crate::store::Store;

/// `--concurrency` of the operator by default.
const AT_ONCE: usize = 32;
/// Objects in an answer to a list.
const PAGE: usize = 200;
const RECORDS: &str = "/apis/objectbucket.io/v1alpha1/objectbuckets";
const SECRETS: &str = "/api/v1/namespaces/bench/secrets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/bench/events";
const LABEL: &str = "aws-s3.io-bucket";
const FINALIZER: &str = "objectbucket.io/finalizer";

#[derive(Clone)]
pub(crate) struct Floor {
    load: Arc<Load>,
    store: Store,
    turns: Arc<Semaphore>,
}

impl Floor {
    pub(crate) async fn new() -> Result<Self, Failure> {
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        Ok(Self { load: Arc::new(Load::new().await?), store: Store::new()?, turns })
    }

    pub(crate) fn aws_calls(&self) -> usize {
        self.store.calls()
    }

    /// Creates `n` claims and binds them.
    pub(crate) async fn create(&self, n: usize) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for number in 1..=n {
            let floor = self.clone();
            tasks.spawn(async move {
                let claim = floor.load.create_one(number).await?;
                let _turn = floor.turns.acquire().await?;
                floor.bind(&claim).await
            });
        }
        all(tasks).await
    }

    pub(crate) async fn claims(&self) -> Result<Vec<Claim>, Failure> {
        self.load.claims().await
    }

    /// A claim that waits.
    pub(crate) async fn claim(&self) -> Result<Claim, Failure> {
        self.load.create_one(0).await
    }

    /// Lists what the operator watches, all kinds at once, and then binds a claim that waits.
    pub(crate) async fn restart(&self, waiting: &Claim) -> Result<(), Failure> {
        self.list().await?;
        self.bind(waiting).await
    }

    /// Deletes claims and lets them go.
    pub(crate) async fn delete(&self, claims: Vec<Claim>) -> Result<(), Failure> {
        let mut tasks = JoinSet::new();
        for claim in claims {
            let floor = self.clone();
            tasks.spawn(async move {
                floor.load.delete_one(&claim.name).await?;
                let _turn = floor.turns.acquire().await?;
                floor.release(&claim).await
            });
        }
        all(tasks).await
    }

    /// In pages, as memory for many claims bounds them.
    async fn list(&self) -> Result<(), Failure> {
        let ours = format!("&labelSelector=bucket-provisioner%3D{LABEL}");
        let kinds = [
            ("/apis/objectbucket.io/v1alpha1/objectbucketclaims", ""),
            (RECORDS, ""),
            ("/apis/storage.k8s.io/v1/storageclasses", ""),
            ("/api/v1/secrets", &ours),
            ("/api/v1/configmaps", &ours),
        ];
        let mut tasks = JoinSet::new();
        for (kind, selected) in kinds {
            let (floor, first) = (self.clone(), format!("{kind}?limit={PAGE}{selected}"));
            tasks.spawn(async move {
                let mut path = first.clone();
                loop {
                    let listed = floor.load.kubernetes.send(Method::GET, &path, None).await?;
                    let listed: Value = serde_json::from_str(&listed)?;
                    match listed["metadata"]["continue"].as_str() {
                        Some(next) if !next.is_empty() => path = format!("{first}&continue={next}"),
                        _ => return Ok(()),
                    }
                }
            });
        }
        all(tasks).await
    }

    async fn bind(&self, claim: &Claim) -> Result<(), Failure> {
        let Claim { name, uid } = claim;
        let (bucket, user, record) = names(claim);
        let path = format!("{CLAIMS}/{name}");
        self.patch(
            &path,
            json!({
                "metadata": { "finalizers": [FINALIZER], "labels": { "bucket-provisioner": LABEL } },
                "spec": { "bucketName": bucket },
            }),
        )
        .await?;
        self.post(RECORDS, self.record(claim)).await?;

        let tags = [
            ("objectbucket.io/managed-by", "aws-s3.io/bucket"),
            ("objectbucket.io/claim-namespace", "bench"),
            ("objectbucket.io/claim-name", name.as_str()),
            ("objectbucket.io/claim-uid", uid.as_str()),
        ];
        let (id, secret) = self.store.make(&bucket, &user, &tags).await?;
        let keys = json!({ "AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret });
        self.post(SECRETS, json!({ "metadata": output(claim), "type": "Opaque", "stringData": keys })).await?;
        self.store.probe(&bucket, &id, &secret).await?;
        let handed_over = json!({ "spec": { "additionalState": { "handedOver": "true" } } });
        self.patch(&format!("{RECORDS}/{record}"), handed_over).await?;
        let (region, url) = (self.store.region(), self.store.url());
        let data = json!({
            "BUCKET_NAME": bucket, "BUCKET_HOST": "127.0.0.1", "BUCKET_PORT": "4566", "BUCKET_REGION": region,
            "BUCKET_SUBREGION": "", "AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_ENDPOINT_URL_S3": url,
        });
        self.post(CONFIG_MAPS, json!({ "metadata": output(claim), "data": data })).await?;

        self.patch(&format!("{RECORDS}/{record}/status"), json!({ "status": { "phase": "Bound" } })).await?;
        self.patch(&path, json!({ "spec": { "objectBucketName": record } })).await?;
        let note =
            format!("bucket {bucket:?} is ready; Secret and ConfigMap of the claim's name hold what an app needs");
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "Bound", "message": note, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        self.patch(&format!("{path}/status"), json!({ "status": { "phase": "Bound", "conditions": [ready] } })).await?;
        self.event(claim, "Bound", &note).await
    }

    async fn release(&self, claim: &Claim) -> Result<(), Failure> {
        let (bucket, user, record) = names(claim);
        self.store.unmake(&bucket, &user).await?;
        let (secret, config_map) = (format!("{SECRETS}/{}", claim.name), format!("{CONFIG_MAPS}/{}", claim.name));
        tokio::try_join!(self.remove(&secret), self.remove(&config_map))?;
        let nothing = json!({ "metadata": { "finalizers": [] } });
        let record = format!("{RECORDS}/{record}");
        self.remove(&record).await?;
        self.patch(&record, nothing.clone()).await?;
        self.patch(&format!("{CLAIMS}/{}", claim.name), nothing).await?;
        self.event(
            claim,
            "Removed",
            &format!("the claim's access is deleted; bucket {bucket:?} is deleted with all that was in it"),
        )
        .await
    }

    fn record(&self, claim: &Claim) -> Value {
        let (bucket, user, record) = names(claim);
        let (region, url) = (self.store.region(), self.store.url());
        json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucket",
            "metadata": {
                "name": record, "labels": { "bucket-provisioner": LABEL }, "finalizers": [FINALIZER],
            },
            "spec": {
                "storageClassName": "s3-buckets", "reclaimPolicy": "Delete",
                "claimRef": {
                    "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "namespace": "bench",
                    "name": claim.name, "uid": claim.uid,
                },
                "endpoint": {
                    "bucketHost": "127.0.0.1", "bucketPort": 4566, "bucketName": bucket, "region": region,
                },
                "additionalState": {
                    "claimNamespace": "bench", "claimName": claim.name, "claimUID": claim.uid, "mode": "created",
                    "UserName": user, "endpointURL": url, "iamEndpoint": url, "iamPath": "/aws-s3-provisioner/",
                    "secretNamespace": "default", "secretName": "s3-owner",
                },
            },
        })
    }

    async fn event(&self, claim: &Claim, reason: &str, note: &str) -> Result<(), Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        self.post(
            EVENTS,
            json!({
                "metadata": { "name": format!("{}.{now:x}", claim.name) }, "eventTime": "2026-01-01T00:00:00.000000Z",
                "type": "Normal", "reason": reason, "note": note, "action": "Reconcile",
                "regarding": {
                    "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "namespace": "bench",
                    "name": claim.name, "uid": claim.uid,
                },
                "reportingController": "aws-s3.io/bucket", "reportingInstance": "aws-s3.io/bucket",
            }),
        )
        .await
    }

    async fn post(&self, path: &str, body: Value) -> Result<(), Failure> {
        self.load.kubernetes.send(Method::POST, path, Some(&body)).await.map(drop)
    }

    async fn patch(&self, path: &str, body: Value) -> Result<(), Failure> {
        self.load.kubernetes.send(Method::PATCH, path, Some(&body)).await.map(drop)
    }

    async fn remove(&self, path: &str) -> Result<(), Failure> {
        self.load.kubernetes.send(Method::DELETE, path, None).await.map(drop)
    }
}

/// Names of bucket, user and ObjectBucket.
fn names(Claim { name, uid }: &Claim) -> (String, String, String) {
    (format!("bench-{uid}"), format!("bench-{name}-{uid}"), format!("obc-bench-{name}"))
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
