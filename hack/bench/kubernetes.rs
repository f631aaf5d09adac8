//! The API server without types: paths and JSON. And claims, as far as work on them needs them.

use std::sync::Arc;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::Failure;

pub(crate) const CLAIMS: &str = "/apis/objectbucket.io/v1alpha1/namespaces/bench/objectbucketclaims";
pub(crate) const RECORDS: &str = "/apis/objectbucket.io/v1alpha1/objectbuckets";
pub(crate) const CLASS: &str = "s3-buckets";
/// Claims that are created or deleted at the same time.
const AT_ONCE: usize = 16;

#[derive(Clone)]
pub(crate) struct Kubernetes {
    pub(crate) client: Client,
    turns: Arc<Semaphore>,
}

pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Kubernetes {
    pub(crate) async fn new() -> Result<Self, Failure> {
        Ok(Self { client: Client::try_default().await?, turns: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// The answer is not parsed.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String, Failure> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("Content-Type", kind).body(body)?;
        Ok(self.client.request_text(request).await?)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_str(&self.send(Method::GET, path, None).await?)?)
    }

    pub(crate) async fn create_claim(&self, name: &str, class: &str) -> Result<Claim, Failure> {
        let _turn = self.turns.acquire().await?;
        let claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim", "metadata": { "name": name },
            "spec": { "storageClassName": class, "generateBucketName": "bench" },
        });
        let created: Value = serde_json::from_str(&self.send(Method::POST, CLAIMS, Some(&claim)).await?)?;
        let uid = text(&created["metadata"]["uid"])?;
        Ok(Claim { name: name.to_owned(), uid })
    }

    pub(crate) async fn delete_claim(&self, name: &str) -> Result<(), Failure> {
        let _turn = self.turns.acquire().await?;
        self.send(Method::DELETE, &format!("{CLAIMS}/{name}"), None).await.map(drop)
    }

    pub(crate) async fn claims(&self) -> Result<Vec<Claim>, Failure> {
        let listed = self.get(CLAIMS).await?;
        let items = listed["items"].as_array().ok_or("no list of claims")?.iter();
        let claim =
            |item: &Value| Ok(Claim { name: text(&item["metadata"]["name"])?, uid: text(&item["metadata"]["uid"])? });
        items.map(claim).collect()
    }

    /// Bucket and user of one of the claims.
    pub(crate) async fn bucket_and_user(&self) -> Result<(String, String), Failure> {
        let claims = self.get(&format!("{CLAIMS}?limit=1")).await?;
        let record = text(&claims["items"][0]["spec"]["objectBucketName"])?;
        let spec = &self.get(&format!("{RECORDS}/{record}")).await?["spec"];
        Ok((text(&spec["endpoint"]["bucketName"])?, text(&spec["additionalState"]["UserName"])?))
    }

    /// Fails if there is anything that belongs to a claim.
    pub(crate) async fn check_nothing_left(&self) -> Result<(), Failure> {
        let ours = "?labelSelector=bucket-provisioner";
        for path in [CLAIMS, RECORDS, "/api/v1/secrets", "/api/v1/configmaps"] {
            let left = self.get(&format!("{path}{ours}")).await?;
            if left["items"].as_array().is_none_or(|items| !items.is_empty()) {
                return Err(format!("left in the cluster: {path}").into());
            }
        }
        Ok(())
    }
}

fn text(value: &Value) -> Result<String, Failure> {
    Ok(value.as_str().ok_or("a field is missing in an answer of the API server")?.to_owned())
}
