//! A reverse proxy that writes down every call and can meddle with it. One stands in front of the API
//! server, another in front of the emulated AWS.
//!
//! It passes host, path and body on unchanged, so that AWS signatures hold, and streams answers through,
//! so that watches work.
//!
//! | file | what it holds |
//! |---|---|
//! | `mod.rs` | the proxy, and the record of its calls |
//! | `fault` | what can become of a call |
//! | `gate` | where a call waits until the test lets it go |
//! | `kubernetes` | the API server, and what becomes of its watches |
//! | `aws` | the emulated AWS |
//! | `strict` | what AWS refuses, delays and shows late, where the emulator does not |
//! | `demands` | what a policy demands of users, where the emulator does not know how to ask for it |

mod aws;
mod demands;
mod fault;
mod gate;
mod kubernetes;
mod strict;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) use aws::Aws;
pub(crate) use demands::Demands;
pub(crate) use fault::Verdict;
pub(crate) use gate::Gate;
pub(crate) use kubernetes::{ApiServer, Ending, expired, expired_in_stream};
pub(crate) use strict::Strictness;

pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Fault>>;
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

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
    /// The account that has to own the bucket, as the call says.
    pub(crate) expected_owner: Option<String>,
}

type Rule = Box<dyn FnMut(&Call) -> Verdict + Send>;

struct Shared {
    calls: watch::Sender<Vec<Call>>,
    rule: Mutex<Option<Rule>>,
}

/// A server behind a proxy.
pub(crate) trait Upstream: Send + Sync + 'static {
    /// Names a call, and says whether it changes something.
    fn describe(&self, parts: &Parts, body: &Bytes) -> (String, bool);
    /// Passes a call on.
    fn send(&self, request: Request<Full<Bytes>>) -> Pending;
}

/// The proxy; dropping it ends it.
pub(crate) struct Proxy<U> {
    /// Where it listens: `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    upstream: Arc<U>,
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Never listens; keeps the port while the proxy is down.
    _port: TcpSocket,
    /// `None` while the proxy is down.
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl<U> Drop for Proxy<U> {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.lock().unwrap().take() {
            serving.abort();
        }
    }
}

impl<U: Upstream> Proxy<U> {
    pub(crate) async fn start(upstream: U) -> Self {
        let port = socket_at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = port.local_addr().unwrap();
        let shared = Arc::new(Shared { calls: watch::Sender::new(Vec::new()), rule: Mutex::new(None) });
        let url = format!("http://{address}");
        let proxy = Self { url, upstream: Arc::new(upstream), shared, address, _port: port, serving: Mutex::default() };
        proxy.up();
        proxy
    }

    /// Accepts connections (again).
    pub(crate) fn up(&self) {
        let listener = socket_at(self.address).listen(1024).unwrap();
        let (upstream, shared) = (Arc::clone(&self.upstream), Arc::clone(&self.shared));
        let serving = tokio::spawn(async move {
            // Dropped, and with it all connections, when this task is aborted.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (upstream, shared) = (Arc::clone(&upstream), Arc::clone(&shared));
                connections.spawn(async move {
                    let service =
                        service_fn(move |request| handle(Arc::clone(&upstream), Arc::clone(&shared), request));
                    // A connection that breaks is the business of whoever made it.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        *self.serving.lock().unwrap() = Some(serving);
    }

    /// Breaks all connections and refuses new ones, until [`up`](Self::up).
    pub(crate) async fn down(&self) {
        let serving = self.serving.lock().unwrap().take();
        if let Some(serving) = serving {
            serving.abort();
            // The only error is the abortion.
            let _ = serving.await;
        }
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

/// Two such sockets can have the same port as long as one of them listens at most.
fn socket_at(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
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
    let expected_owner = parts.headers.get("x-amz-expected-bucket-owner").and_then(|value| value.to_str().ok());
    let expected_owner = expected_owner.map(str::to_owned);
    let call = Call { name, mutates, target: parts.uri.to_string(), answer_lost: false, expected_owner };
    shared.calls.send_modify(|calls| calls.push(call.clone()));
    let verdict = shared.rule.lock().unwrap().as_mut().map_or(Verdict::Pass, |rule| rule(&call));
    let lost = || shared.calls.send_modify(|calls| calls.push(Call { answer_lost: true, ..call.clone() }));
    fault::apply(verdict, &*upstream, Request::from_parts(parts, Full::new(body)), lost).await
}

/// An answer with nothing but status and text.
fn plain(status: u16, text: String) -> Answer {
    whole(Response::builder().status(status).body(text).unwrap())
}

fn whole(answer: Response<impl Into<Bytes>>) -> Answer {
    answer.map(|body| Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
}
