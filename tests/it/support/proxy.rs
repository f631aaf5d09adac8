//! A reverse proxy that writes down every call and can meddle with it.
//!
//! It passes host, path and body on unchanged, so that AWS signatures hold, and streams answers through,
//! so that watches work. One stands in front of the API server, another in front of the emulated AWS.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Fault>>;
type Pending = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// One call that went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// What it does, such as `create secrets` or `CreateBucket`.
    pub(crate) name: String,
    /// Path and query.
    pub(crate) target: String,
    /// Whether it changes something.
    pub(crate) mutates: bool,
    /// The server has done it, and its answer was dropped.
    pub(crate) answer_lost: bool,
}

/// What becomes of a call.
pub(crate) enum Verdict {
    /// Nothing special.
    Pass,
    /// It is answered in the server's place.
    Answer(u16, String),
    /// The server gets another body.
    Rewrite(fn(&[u8]) -> Vec<u8>),
    /// It never reaches the server and is never answered.
    Hang,
    /// The server does what was asked, but its answer is lost: the connection ends.
    LoseAnswer,
}

type Rule = Box<dyn FnMut(&Call) -> Verdict + Send>;

struct Shared {
    calls: watch::Sender<Vec<Call>>,
    rule: Mutex<Option<Rule>>,
}

/// The proxy; dropping it ends it.
pub(crate) struct Proxy {
    /// Where it listens: `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server behind a proxy.
pub(crate) trait Upstream: Send + Sync + 'static {
    /// Names a call.
    fn describe(&self, parts: &Parts, body: &Bytes) -> (String, bool);
    /// Passes a call on.
    fn send(&self, request: Request<Full<Bytes>>) -> Pending;
}

impl Proxy {
    pub(crate) async fn start(upstream: impl Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { calls: watch::Sender::new(Vec::new()), rule: Mutex::new(None) });
        let (upstream, state) = (Arc::new(upstream), Arc::clone(&shared));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (upstream, state) = (Arc::clone(&upstream), Arc::clone(&state));
                connections.spawn(async move {
                    let service = service_fn(move |request| handle(Arc::clone(&upstream), Arc::clone(&state), request));
                    // A connection that breaks is the business of whoever made it.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { url, shared, task }
    }

    /// All calls so far, in the order of their arrival.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.shared.calls.borrow().clone()
    }

    /// The names of all calls so far that change something.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.calls().into_iter().filter(|call| call.mutates).map(|call| call.name).collect()
    }

    /// The names of all calls so far.
    pub(crate) fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.name).collect()
    }

    /// Starts the record anew.
    pub(crate) fn clear(&self) {
        self.shared.calls.send_modify(Vec::clear);
    }

    /// Decides from now on what becomes of each call.
    pub(crate) fn meddle(&self, rule: impl FnMut(&Call) -> Verdict + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// Lets every call pass again.
    pub(crate) fn leave_alone(&self) {
        *self.shared.rule.lock().unwrap() = None;
    }

    /// Waits until the record looks as wanted.
    pub(crate) async fn wait_until(&self, what: &str, wanted: impl Fn(&[Call]) -> bool) {
        let mut calls = self.shared.calls.subscribe();
        let seen = calls.wait_for(|calls| wanted(calls));
        if tokio::time::timeout(super::PATIENCE, seen).await.is_err() {
            panic!("not seen: {what}; calls were {:#?}", self.names());
        }
    }
}

async fn handle(
    upstream: Arc<impl Upstream>,
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Answer, Fault> {
    let (parts, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(plain(502, error.to_string())),
    };
    let (name, mutates) = upstream.describe(&parts, &body);
    let call = Call { name, mutates, target: parts.uri.to_string(), answer_lost: false };
    shared.calls.send_modify(|calls| calls.push(call.clone()));
    let verdict = shared.rule.lock().unwrap().as_mut().map_or(Verdict::Pass, |rule| rule(&call));
    match verdict {
        Verdict::Pass => {
            let answer = upstream.send(Request::from_parts(parts, Full::new(body))).await;
            Ok(answer.unwrap_or_else(|error| plain(502, error.to_string())))
        }
        Verdict::Rewrite(rewrite) => {
            let mut parts = parts;
            parts.headers.remove(hyper::header::CONTENT_LENGTH);
            upstream.send(Request::from_parts(parts, Full::new(rewrite(&body).into()))).await
        }
        Verdict::Answer(status, text) => Ok(plain(status, text)),
        Verdict::Hang => std::future::pending().await,
        Verdict::LoseAnswer => {
            upstream.send(Request::from_parts(parts, Full::new(body))).await?;
            shared.calls.send_modify(|calls| calls.push(Call { answer_lost: true, ..call }));
            Err("the answer is lost".into())
        }
    }
}

fn plain(status: u16, text: String) -> Answer {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// The Kubernetes API server, reached with the credentials of a client.
pub(crate) struct ApiServer(pub(crate) kube::Client);

impl Upstream for ApiServer {
    fn describe(&self, parts: &Parts, _: &Bytes) -> (String, bool) {
        let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        // /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]
        let rest = if path.first() == Some(&"api") { path.get(2..) } else { path.get(3..) }.unwrap_or_default();
        let rest = if rest.first() == Some(&"namespaces") && rest.len() > 2 { &rest[2..] } else { rest };
        let resource = rest.first().copied().unwrap_or("discovery");
        let is_named = rest.len() > 1;
        let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = match parts.method.as_str() {
            "GET" if is_watch => "watch",
            "GET" if is_named => "get",
            "GET" => "list",
            "POST" => "create",
            "PATCH" => "patch",
            "PUT" => "update",
            "DELETE" => "delete",
            other => other,
        };
        let subresource = rest.get(2).map(|sub| format!("/{sub}")).unwrap_or_default();
        (format!("{verb} {resource}{subresource}"), !matches!(verb, "get" | "list" | "watch"))
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let client = self.0.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            // The client fills in scheme, host and token of the cluster it knows.
            parts.uri = parts.uri.path_and_query().unwrap().as_str().parse()?;
            parts.headers.remove(hyper::header::HOST);
            parts.headers.remove(hyper::header::AUTHORIZATION);
            let bytes = body.collect().await?.to_bytes();
            let answer = client.send(Request::from_parts(parts, kube::client::Body::from(bytes.to_vec()))).await?;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}

/// The emulated AWS.
pub(crate) struct Aws {
    url: String,
    client: hyper_util::client::legacy::Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>>,
}

impl Aws {
    pub(crate) fn at(url: &str) -> Self {
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Self { url: url.trim_end_matches('/').to_owned(), client }
    }
}

impl Upstream for Aws {
    fn describe(&self, parts: &Parts, body: &Bytes) -> (String, bool) {
        let text = std::str::from_utf8(body).unwrap_or_default();
        if let Some(action) = text.split('&').find_map(|pair| pair.strip_prefix("Action=")) {
            let reads = action.starts_with("Get") || action.starts_with("List");
            return (action.to_owned(), !reads);
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
            (method, _) => return (format!("{method} {}", parts.uri), method != "GET"),
        };
        (name.to_owned(), !matches!(parts.method.as_str(), "GET" | "HEAD"))
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().unwrap().as_str();
        // The Host header is signed: it stays the proxy's, while the connection goes upstream.
        parts.uri = format!("{}{target}", self.url).parse().unwrap();
        let answer = self.client.request(Request::from_parts(parts, body));
        Box::pin(async move { Ok(answer.await?.map(|body| body.map_err(Into::into).boxed_unsync())) })
    }
}
