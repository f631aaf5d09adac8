//! The proxy in front of the emulated AWS.
//!
//! | file | what it holds |
//! |---|---|
//! | `strict` | what AWS refuses, delays and shows late, where the emulator does not |
//! | `buckets` | the same of S3 |
//! | `eks` | the calls of EKS |
//! | `people` | credentials for people that hang on users |
//! | `roles` | roles that trust the tokens of a cluster |
//! | `policies` | policies with conditions, and with the paths of users |

mod buckets;
mod eks;
mod people;
mod policies;
mod roles;
mod strict;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::http::request::Parts;
use provisioner_conformance::proxy::{Described, HttpStore, Pending, Upstream};
use serde_json::Value;

use crate::support::REGION;
use policies::Policies;
pub(crate) use policies::for_emulator;
use strict::Strict;
pub(crate) use strict::Strictness;

/// The emulated AWS, as lax as it is or with AWS's own strictness.
pub(crate) struct Aws {
    store: Arc<HttpStore>,
    strict: Mutex<Option<Arc<Strict>>>,
    policies: Arc<Policies>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

/// A call that was passed on, and how it was answered.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    /// As in the API reference.
    pub(crate) operation: String,
    /// The IAM user that it is about.
    pub(crate) user: Option<String>,
    /// Id of the key that signs.
    pub(crate) signer: Option<String>,
    /// HTTP status of the answer.
    pub(crate) status: u16,
}

impl Aws {
    pub(crate) fn at(url: &str) -> Self {
        Self {
            store: Arc::new(HttpStore::described(url, describe)),
            strict: Mutex::default(),
            policies: Arc::default(),
            sent: Arc::default(),
        }
    }

    /// The calls so far that were answered by AWS, or as AWS would have.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// Makes it as strict as AWS from now on. What went through before counts as done long ago.
    pub(crate) fn strict(&self, strictness: Strictness) {
        *self.strict.lock().unwrap() = Some(Arc::new(Strict::new(strictness)));
    }

    /// Gives a user an SSH key, a signing certificate and a service-specific credential.
    pub(crate) fn give_credentials(&self, user: &str) {
        let strict = self.strict.lock().unwrap();
        strict.as_ref().expect("only AWS as it is knows them").people.give(user);
    }

    /// From now on these policies hold for a user of this account, whose key this is.
    pub(crate) fn hold(&self, account: &str, user: &str, key: &str, documents: Vec<Value>) {
        self.policies.hold(account, user, key, documents);
    }
}

fn describe(parts: &Parts, body: &Bytes) -> Described {
    let name = operation(parts, body);
    let reads = match form_field(body, "Action") {
        Some(action) => ["Get", "List", "Simulate"].iter().any(|verb| action.starts_with(verb)),
        None => matches!(parts.method.as_str(), "GET" | "HEAD"),
    };
    // The account that has to own the bucket, from the header of the call.
    let owner = parts.headers.get("x-amz-expected-bucket-owner").and_then(|value| value.to_str().ok());
    Described { name, mutates: !reads, note: owner.map(str::to_owned) }
}

impl Upstream for Aws {
    fn describe(&self, parts: &Parts, body: &Bytes) -> Described {
        self.store.describe(parts, body)
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let (store, strict) = (Arc::clone(&self.store), self.strict.lock().unwrap().clone());
        let (policies, sent) = (Arc::clone(&self.policies), Arc::clone(&self.sent));
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let received = body.collect().await?.to_bytes();
            let call = AwsCall::read(&parts, &received);
            let refusal = policies.refuse(&call).await;
            let body = match policies.rewritten(&call) {
                Some(other) => {
                    parts.headers.remove(hyper::header::CONTENT_LENGTH);
                    other
                }
                None => received,
            };
            let forward = store.send(Request::from_parts(parts, Full::new(body)));
            let answer = match (refusal, strict) {
                (Some(refusal), _) => refusal,
                (None, Some(strict)) => strict.send(&call, forward).await?,
                (None, None) => forward.await?,
            };
            let answer = policies.noted(&call, answer).await?;
            let AwsCall { operation, user, signer, .. } = call;
            sent.lock().unwrap().push(Sent { operation, user, signer, status: answer.status().as_u16() });
            Ok(answer)
        })
    }
}

/// What a call to AWS is about.
pub(super) struct AwsCall {
    /// As in the API reference.
    pub(super) operation: String,
    pub(super) bucket: Option<String>,
    pub(super) user: Option<String>,
    /// Path and permissions boundary of a user to be made.
    pub(super) path: Option<String>,
    pub(super) boundary: Option<String>,
    /// Id of the key that signs.
    pub(super) signer: Option<String>,
    /// It is signed for another region than that of its endpoint.
    pub(super) is_misdirected: bool,
    /// The canned ACL of what is put.
    pub(super) acl: Option<String>,
    /// The ownership of objects in a bucket to be made.
    pub(super) ownership: Option<String>,
    /// `/` and the key of an object, if it is about one.
    pub(super) key: String,
    /// The account that has to own the bucket.
    pub(super) expected_owner: Option<String>,
    pub(super) query: String,
    /// The name of the EKS cluster that it is about.
    pub(super) cluster: Option<String>,
    body: Bytes,
}

impl AwsCall {
    fn read(parts: &Parts, body: &Bytes) -> Self {
        let bucket = parts.uri.path().split('/').nth(1).filter(|name| !name.is_empty() && !eks::is_for(parts));
        let bucket = bucket.map(str::to_owned);
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let authorization = header("authorization");
        // That of AWS has one endpoint for all regions of its partition.
        let is_global = header("host").is_some_and(|host| host.starts_with("iam.amazonaws.com"));
        let region = if is_global { "us-east-1" } else { REGION };
        let scope = authorization.and_then(|text| text.split_once("Credential=")).map(|(_, scope)| scope);
        Self {
            operation: operation(parts, body),
            bucket,
            user: form_field(body, "UserName"),
            path: form_field(body, "Path"),
            boundary: form_field(body, "PermissionsBoundary"),
            signer: scope.and_then(|scope| scope.split('/').next()).map(str::to_owned),
            is_misdirected: scope.and_then(|scope| scope.split('/').nth(2)).is_some_and(|signed| signed != region),
            acl: header("x-amz-acl").map(str::to_owned),
            ownership: header("x-amz-object-ownership").map(str::to_owned),
            key: object_of(parts.uri.path()),
            expected_owner: header("x-amz-expected-bucket-owner").map(str::to_owned),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            cluster: eks::is_for(parts).then(|| eks::cluster(parts)),
            body: body.clone(),
        }
    }

    /// Whether its body has this text.
    pub(super) fn body_contains(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.body).contains(text)
    }

    /// A field of a request to EKS.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        body[name].as_str().map(str::to_owned)
    }

    /// A field of a request to IAM or STS.
    pub(super) fn form(&self, name: &str) -> Option<String> {
        form_field(&self.body, name)
    }

    /// Whether it is sent to IAM, whose requests are forms.
    pub(super) fn is_iam(&self) -> bool {
        form_field(&self.body, "Action").is_some()
    }
}

/// `/` and the key of an object; empty for a bucket.
fn object_of(path: &str) -> String {
    let key = path[1..].split_once('/').map(|(_, key)| key).filter(|key| !key.is_empty());
    key.map(|key| format!("/{key}")).unwrap_or_default()
}

fn form_field(body: &Bytes, name: &str) -> Option<String> {
    url::form_urlencoded::parse(body).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// What of a bucket has an address of its own, and how its operations are called.
const SUB_RESOURCES: [(&str, &str); 12] = [
    ("tagging", "BucketTagging"),
    ("abac", "BucketAbac"),
    ("versioning", "BucketVersioning"),
    ("encryption", "BucketEncryption"),
    ("lifecycle", "BucketLifecycleConfiguration"),
    ("ownershipControls", "BucketOwnershipControls"),
    ("publicAccessBlock", "PublicAccessBlock"),
    ("logging", "BucketLogging"),
    ("policy", "BucketPolicy"),
    ("object-lock", "ObjectLockConfiguration"),
    ("cors", "BucketCors"),
    ("notification", "BucketNotificationConfiguration"),
];

fn operation(parts: &Parts, body: &Bytes) -> String {
    if eks::is_for(parts) {
        return eks::operation(parts).to_owned();
    }
    if let Some(action) = form_field(body, "Action") {
        return action;
    }
    let key = parts.uri.path().trim_matches('/').contains('/');
    let query = parts.uri.query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    if let Some((_, sub_resource)) = SUB_RESOURCES.iter().find(|(name, _)| !key && has(name)) {
        return match (parts.method.as_str(), *sub_resource) {
            ("GET", sub_resource) => format!("Get{sub_resource}"),
            ("DELETE", "BucketLifecycleConfiguration") => "DeleteBucketLifecycle".to_owned(),
            ("DELETE", sub_resource) => format!("Delete{sub_resource}"),
            (_, sub_resource) => format!("Put{sub_resource}"),
        };
    }
    let name = match (parts.method.as_str(), key) {
        ("GET", false) if parts.uri.path() == "/" => "ListBuckets",
        ("PUT", false) => "CreateBucket",
        ("GET", false) if has("versions") => "ListObjectVersions",
        ("GET", false) if has("uploads") => "ListMultipartUploads",
        ("POST", true) if has("uploads") => "CreateMultipartUpload",
        ("GET", false) if has("location") => "GetBucketLocation",
        ("GET", false) => "ListObjectsV2",
        ("HEAD", false) => "HeadBucket",
        ("POST", false) if has("delete") => "DeleteObjects",
        ("DELETE", false) => "DeleteBucket",
        ("DELETE", true) if has("uploadId") => "AbortMultipartUpload",
        ("PUT", true) if has("partNumber") => "UploadPart",
        ("PUT", true) => "PutObject",
        ("GET", true) if has("retention") => "GetObjectRetention",
        ("GET", true) if has("legal-hold") => "GetObjectLegalHold",
        ("GET", true) => "GetObject",
        ("DELETE", true) => "DeleteObject",
        (method, _) => return format!("{method} {}", parts.uri),
    };
    name.to_owned()
}
