//! The emulated AWS.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::http::request::Parts;
use hyper_util::rt::TokioExecutor;

use super::demands::Demands;
use super::strict::{Strict, Strictness};
use super::{Pending, Proxy, Upstream};

/// The emulated AWS, as lax as it is or with AWS's own strictness.
pub(crate) struct Aws {
    url: String,
    client: Client,
    strict: Mutex<Option<Arc<Strict>>>,
    pub(super) demands: Mutex<Option<Demands>>,
}

type Client = hyper_util::client::legacy::Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>;

impl Aws {
    pub(crate) fn at(url: &str) -> Self {
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Self { url: url.trim_end_matches('/').to_owned(), client, strict: Mutex::default(), demands: Mutex::default() }
    }
}

impl Proxy<Aws> {
    /// Makes it as strict as AWS from now on. What went through before counts as done long ago.
    pub(crate) fn strict(&self, strictness: Strictness) {
        *self.upstream.strict.lock().unwrap() = Some(Arc::new(Strict::new(strictness)));
    }
}

impl Upstream for Aws {
    fn describe(&self, parts: &Parts, body: &Bytes) -> (String, bool) {
        let name = operation(parts, body);
        let reads = match form_field(body, "Action") {
            Some(action) => action.starts_with("Get") || action.starts_with("List"),
            None => matches!(parts.method.as_str(), "GET" | "HEAD"),
        };
        (name, !reads)
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().unwrap().as_str().to_owned();
        let asked = parts.clone();
        // The Host header is signed: it stays the proxy's, while the connection goes upstream.
        parts.uri = format!("{}{target}", self.url).parse().unwrap();
        let (client, strict) = (self.client.clone(), self.strict.lock().unwrap().clone());
        let demands = self.demands.lock().unwrap().clone();
        Box::pin(async move {
            let body = body.collect().await?.to_bytes();
            let call = || AwsCall::read(&asked, &body);
            if let Some(demands) = demands
                && let Some(refusal) = demands.refuse(&call()).await
            {
                return Ok(refusal);
            }
            let forward = async {
                let answer = client.request(Request::from_parts(parts, Full::new(body.clone()))).await?;
                Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            };
            match strict {
                Some(strict) => strict.send(&call(), forward).await,
                None => forward.await,
            }
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
}

impl AwsCall {
    fn read(parts: &Parts, body: &Bytes) -> Self {
        let bucket = parts.uri.path().split('/').nth(1).filter(|name| !name.is_empty()).map(str::to_owned);
        let authorization = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        let scope = authorization.and_then(|text| text.split_once("Credential=")).map(|(_, scope)| scope);
        Self {
            operation: operation(parts, body),
            bucket,
            user: form_field(body, "UserName"),
            path: form_field(body, "Path"),
            boundary: form_field(body, "PermissionsBoundary"),
            signer: scope.and_then(|scope| scope.split('/').next()).map(str::to_owned),
        }
    }

    /// Whether it goes to IAM, which is asked with forms.
    pub(super) fn is_iam(&self) -> bool {
        self.bucket.is_none()
    }
}

fn form_field(body: &Bytes, name: &str) -> Option<String> {
    url::form_urlencoded::parse(body).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn operation(parts: &Parts, body: &Bytes) -> String {
    if let Some(action) = form_field(body, "Action") {
        return action;
    }
    let key = parts.uri.path().trim_matches('/').contains('/');
    let query = parts.uri.query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let name = match (parts.method.as_str(), key) {
        ("PUT", false) if has("tagging") => "PutBucketTagging",
        ("PUT", false) => "CreateBucket",
        ("GET", false) if has("tagging") => "GetBucketTagging",
        ("GET", false) if has("versions") => "ListObjectVersions",
        ("GET", false) if has("uploads") => "ListMultipartUploads",
        ("GET", false) if has("location") => "GetBucketLocation",
        ("GET", false) => "ListObjectsV2",
        ("HEAD", false) => "HeadBucket",
        ("POST", false) if has("delete") => "DeleteObjects",
        ("DELETE", false) => "DeleteBucket",
        ("DELETE", true) if has("uploadId") => "AbortMultipartUpload",
        ("PUT", true) => "PutObject",
        ("GET", true) => "GetObject",
        ("DELETE", true) => "DeleteObject",
        (method, _) => return format!("{method} {}", parts.uri),
    };
    name.to_owned()
}
