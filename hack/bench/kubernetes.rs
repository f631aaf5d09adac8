//! The API server without types: paths and JSON. And claims, as far as work on them needs them.

use std::sync::Arc;

use http::{Method, Request};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::Failure;

pub(crate) const CLAIMS: &str = "/apis/objectbucket.io/v1alpha1/namespaces/bench/objectbucketclaims";
pub(crate) const RECORDS: &str = "/apis/objectbucket.io/v1alpha1/objectbuckets";
const VOLUME_CLAIMS: &str = "/api/v1/namespaces/bench/persistentvolumeclaims";
pub(crate) const CLASS: &str = "s3-buckets";
/// The class of claims without keys, and how many ServiceAccounts they have.
pub(crate) const KEYLESS: &str = "s3-keyless";
pub(crate) const SERVICE_ACCOUNTS: usize = 200;
/// Claims that are created or deleted at the same time.
const AT_ONCE: usize = 16;

/// What is claimed, and so which kind of claims there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Claimed {
    Buckets,
    Volumes,
}

#[derive(Clone)]
pub(crate) struct Kubernetes {
    pub(crate) client: Client,
    pub(crate) claimed: Claimed,
    turns: Arc<Semaphore>,
}

pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Claimed {
    /// The kind of the claims.
    pub(crate) fn claims(self) -> ApiResource {
        ApiResource::from_gvk(&match self {
            Self::Buckets => GroupVersionKind::gvk("objectbucket.io", "v1alpha1", "ObjectBucketClaim"),
            Self::Volumes => GroupVersionKind::gvk("", "v1", "PersistentVolumeClaim"),
        })
    }

    /// What a provisioner writes, as the metrics of the API server name it: the claims, and then the others.
    pub(crate) fn written(self) -> &'static [&'static str] {
        match self {
            Self::Buckets => &["objectbucketclaims", "objectbuckets", "secrets", "configmaps"],
            Self::Volumes => &["persistentvolumeclaims", "persistentvolumes"],
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Buckets => CLAIMS,
            Self::Volumes => VOLUME_CLAIMS,
        }
    }

    fn spec(self, class: &str) -> Value {
        match self {
            Self::Buckets => json!({ "storageClassName": class, "generateBucketName": "bench" }),
            Self::Volumes => json!({
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Mi" } },
            }),
        }
    }
}

impl Kubernetes {
    pub(crate) async fn new(claimed: Claimed) -> Result<Self, Failure> {
        Ok(Self { client: Client::try_default().await?, claimed, turns: Arc::new(Semaphore::new(AT_ONCE)) })
    }

    /// The claims, to watch them.
    pub(crate) fn watched(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), "bench", &self.claimed.claims())
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
        let ApiResource { api_version, kind, .. } = self.claimed.claims();
        let mut claim = json!({
            "apiVersion": api_version, "kind": kind, "metadata": { "name": name }, "spec": self.claimed.spec(class),
        });
        if class == KEYLESS {
            let number: usize = name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse()?;
            claim["spec"]["additionalConfig"] = json!({ "serviceAccountName": service_account(number) });
        }
        let path = self.claimed.path();
        let created: Value = serde_json::from_str(&self.send(Method::POST, path, Some(&claim)).await?)?;
        let uid = text(&created["metadata"]["uid"])?;
        Ok(Claim { name: name.to_owned(), uid })
    }

    pub(crate) async fn delete_claim(&self, name: &str) -> Result<(), Failure> {
        let _turn = self.turns.acquire().await?;
        self.send(Method::DELETE, &format!("{}/{name}", self.claimed.path()), None).await.map(drop)
    }

    pub(crate) async fn claims(&self) -> Result<Vec<Claim>, Failure> {
        let listed = self.get(self.claimed.path()).await?;
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

/// That of the claim with this number.
pub(crate) fn service_account(number: usize) -> String {
    format!("app-{}", number % SERVICE_ACCOUNTS)
}

fn text(value: &Value) -> Result<String, Failure> {
    Ok(value.as_str().ok_or("a field is missing in an answer of the API server")?.to_owned())
}
