//! Reverse proxies in front of the API server and of a store, which record every call and can inject faults.
//!
//! They pass host, path and body on unchanged, so that signatures hold, and stream answers through, so that watches
//! work.

mod fault;
mod gate;
mod http;
mod kubernetes;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

pub use fault::Verdict;
pub use gate::Gate;
pub use http::{HttpStore, by_method};
pub use kubernetes::{ApiServer, Ending, expired, expired_in_stream};

/// Why a call could not be passed on.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;
/// What the server answers.
pub type Answer = Response<UnsyncBoxBody<Bytes, Fault>>;
/// An answer that is under way.
pub type Pending = Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>>;

/// One call that went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What it does, such as `create secrets` or `CreateBucket`.
    pub name: String,
    /// Path and query.
    pub target: String,
    /// Whether it changes something.
    pub mutates: bool,
    /// The server has done it, and its answer was dropped.
    pub answer_lost: bool,
    /// What else its server's upstream noted of it.
    pub note: Option<String>,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// See [`Call::name`].
    pub name: String,
    /// See [`Call::mutates`].
    pub mutates: bool,
    /// See [`Call::note`].
    pub note: Option<String>,
}

/// How long the kernel may take to close a listener.
const CLOSING: Duration = Duration::from_secs(5);

type Rule = Box<dyn FnMut(&Call) -> Verdict + Send>;

struct Shared {
    calls: watch::Sender<Vec<Call>>,
    rule: Mutex<Option<Rule>>,
}

/// A server behind a proxy.
pub trait Upstream: Send + Sync + 'static {
    /// What a call does.
    fn describe(&self, parts: &Parts, body: &Bytes) -> Described;
    /// Passes a call on.
    fn send(&self, request: Request<Full<Bytes>>) -> Pending;
}

impl<T: Upstream + ?Sized> Upstream for Arc<T> {
    fn describe(&self, parts: &Parts, body: &Bytes) -> Described {
        (**self).describe(parts, body)
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        (**self).send(request)
    }
}

/// The proxy; dropping it ends it.
pub struct Proxy<U> {
    /// Where it listens: `http://IP:PORT`.
    pub url: String,
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
    /// Listens at an address of its own: at the port of an earlier proxy, the calls of that one's clients would be counted.
    pub async fn start(upstream: U) -> Self {
        let port = socket_at(SocketAddr::from((crate::base::unique_ip(), 0))).unwrap();
        let address = port.local_addr().unwrap();
        let shared = Arc::new(Shared { calls: watch::Sender::new(Vec::new()), rule: Mutex::new(None) });
        let url = format!("http://{address}");
        let proxy = Self { url, upstream: Arc::new(upstream), shared, address, _port: port, serving: Mutex::default() };
        proxy.up();
        proxy
    }

    /// The server behind it.
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Accepts connections (again), if it does not.
    pub fn up(&self) {
        // Held until it listens: two callers would otherwise take the port twice.
        let mut running = self.serving.lock().unwrap();
        if running.is_some() {
            return;
        }
        // The kernel may close the previous listener a moment after its file is closed.
        let end = Instant::now() + CLOSING;
        let listener = loop {
            match socket_at(self.address).and_then(|socket| socket.listen(1024)) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                listener => break listener.unwrap(),
            }
        };
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
        *running = Some(serving);
    }

    /// Breaks all connections and refuses new ones, until [`up`](Self::up).
    pub async fn down(&self) {
        let serving = self.serving.lock().unwrap().take();
        if let Some(serving) = serving {
            serving.abort();
            // The only error is the abortion.
            let _ = serving.await;
        }
    }

    /// All calls so far, in the order of their arrival.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.borrow().clone()
    }

    /// The names of all calls so far that change something.
    pub fn writes(&self) -> Vec<String> {
        self.calls().into_iter().filter(|call| call.mutates).map(|call| call.name).collect()
    }

    /// The names of all calls so far.
    pub fn names(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.name).collect()
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        self.shared.calls.send_modify(Vec::clear);
    }

    /// Decides from now on what becomes of each call.
    pub fn inject(&self, rule: impl FnMut(&Call) -> Verdict + Send + 'static) {
        *self.shared.rule.lock().unwrap() = Some(Box::new(rule));
    }

    /// Lets every call pass again.
    pub fn leave_alone(&self) {
        *self.shared.rule.lock().unwrap() = None;
    }

    /// Waits until the calls so far are as wanted.
    pub async fn wait_until(&self, what: &str, wanted: impl Fn(&[Call]) -> bool) {
        let mut calls = self.shared.calls.subscribe();
        let seen = calls.wait_for(|calls| wanted(calls));
        if tokio::time::timeout(crate::base::patience(), seen).await.is_err() {
            panic!("not seen: {what}; calls were {:#?}", self.names());
        }
    }
}

/// Two such sockets can have the same port as long as one of them listens at most.
fn socket_at(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // A port that is chosen here must be nobody else's: others that do not listen yet would share theirs.
    socket.set_reuseaddr(address.port() != 0)?;
    socket.bind(address)?;
    socket.set_reuseaddr(true)?;
    Ok(socket)
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
    let Described { name, mutates, note } = upstream.describe(&parts, &body);
    let call = Call { name, mutates, target: parts.uri.to_string(), answer_lost: false, note };
    shared.calls.send_modify(|calls| calls.push(call.clone()));
    let verdict = shared.rule.lock().unwrap().as_mut().map_or(Verdict::Pass, |rule| rule(&call));
    let lost = || shared.calls.send_modify(|calls| calls.push(Call { answer_lost: true, ..call.clone() }));
    fault::apply(verdict, &*upstream, Request::from_parts(parts, Full::new(body)), lost).await
}

/// An answer with nothing but status and text.
pub fn plain(status: u16, text: String) -> Answer {
    respond(Response::builder().status(status).body(text).unwrap())
}

/// An answer whose body is known.
pub fn respond(answer: Response<impl Into<Bytes>>) -> Answer {
    answer.map(|body| Full::new(body.into()).map_err(|never| match never {}).boxed_unsync())
}
