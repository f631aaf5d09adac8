//! The store: buckets and users in the memory of the test, behind HTTP for the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What there is in the store.
#[derive(Debug, Default)]
pub(crate) struct Shelves {
    pub(crate) buckets: BTreeMap<String, Bucket>,
    pub(crate) users: BTreeMap<String, User>,
}

#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// The uid of the claim for which it was created.
    pub(crate) uid: Option<String>,
    pub(crate) is_limited: bool,
    pub(crate) objects: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct User {
    /// The uid of the claim for which it was created.
    pub(crate) uid: Option<String>,
    /// The bucket that it can use, or `*`.
    pub(crate) bucket: String,
    /// Secrets by the ids of keys.
    pub(crate) keys: BTreeMap<String, String>,
}

impl Shelves {
    /// Name and user of these keys, if they work.
    pub(crate) fn user_of(&self, id: &str, secret: &str) -> Option<(&String, &User)> {
        self.users.iter().find(|(_, user)| user.keys.get(id).is_some_and(|known| known == secret))
    }
}

/// The store; dropping it ends it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    shelves: Arc<Mutex<Shelves>>,
    serving: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock(shelves: &Mutex<Shelves>) -> MutexGuard<'_, Shelves> {
    shelves.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shelves, token) = (listener.local_addr().unwrap(), Arc::default(), random());
        let serving = tokio::spawn(serve(listener, Arc::clone(&shelves), token.clone()));
        Self { address, token, shelves, serving }
    }

    pub(crate) fn shelves(&self) -> MutexGuard<'_, Shelves> {
        lock(&self.shelves)
    }
}

async fn serve(listener: TcpListener, shelves: Arc<Mutex<Shelves>>, token: String) {
    while let Ok((stream, _)) = listener.accept().await {
        let (shelves, token) = (Arc::clone(&shelves), token.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let answer = answer(&mut lock(&shelves), &token, &request);
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn answer(shelves: &mut Shelves, token: &str, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, body) = match respond(shelves, token, request) {
        Ok(body) => (200, body.to_string()),
        Err(status) => (status, String::new()),
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
    response
}

/// The body of the answer, or its status.
fn respond(shelves: &mut Shelves, token: &str, request: &Request<Incoming>) -> Result<Value, u16> {
    let authorization = request.headers().get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default();
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let query = |name: &str| {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    if let Some((id, secret)) = authorization.strip_prefix("Key ").and_then(|keys| keys.split_once(':')) {
        let (user, _) = shelves.user_of(id, secret).ok_or(401u16)?;
        return if path == ["myself"] { Ok(json!({ "user": user })) } else { Err(403) };
    }
    if authorization != format!("Bearer {token}") {
        return Err(401);
    }
    let done = Ok(Value::Null);
    match (request.method().as_str(), &*path) {
        ("GET", ["account"]) => Ok(json!({ "account": "lockers" })),
        ("PUT", ["buckets", name]) => {
            if shelves.buckets.contains_key(*name) {
                return Err(409);
            }
            shelves.buckets.insert((*name).to_owned(), Bucket { uid: query("uid"), ..Bucket::default() });
            done
        }
        ("GET", ["buckets", name]) => {
            let bucket = shelves.buckets.get(*name).ok_or(404u16)?;
            Ok(json!({ "uid": bucket.uid, "objects": bucket.objects.len() }))
        }
        ("PUT", ["buckets", name, "limit"]) => {
            shelves.buckets.get_mut(*name).ok_or(404u16)?.is_limited = true;
            done
        }
        ("DELETE", ["buckets", name, "objects"]) => {
            shelves.buckets.get_mut(*name).ok_or(404u16)?.objects.clear();
            done
        }
        ("DELETE", ["buckets", name]) => {
            if !shelves.buckets.get(*name).ok_or(404u16)?.objects.is_empty() {
                return Err(409);
            }
            shelves.buckets.remove(*name);
            done
        }
        ("PUT", ["users", name]) => {
            if shelves.users.contains_key(*name) {
                return Err(409);
            }
            let bucket = query("bucket").ok_or(400u16)?;
            shelves.users.insert((*name).to_owned(), User { uid: query("uid"), bucket, ..User::default() });
            done
        }
        ("GET", ["users", name]) => {
            let user = shelves.users.get(*name).ok_or(404u16)?;
            Ok(json!({ "uid": user.uid, "keys": user.keys.keys().collect::<Vec<_>>() }))
        }
        ("DELETE", ["users", name]) => shelves.users.remove(*name).map(|_| Value::Null).ok_or(404),
        ("POST", ["users", name, "keys"]) => {
            let user = shelves.users.get_mut(*name).ok_or(404u16)?;
            let (id, secret) = (random(), query("secret").unwrap_or_else(random));
            user.keys.insert(id.clone(), secret.clone());
            Ok(json!({ "id": id, "secret": secret }))
        }
        ("DELETE", ["users", name, "keys", id]) => {
            let user = shelves.users.get_mut(*name).ok_or(404u16)?;
            user.keys.remove(*id).map(|_| Value::Null).ok_or(404)
        }
        _ => Err(400),
    }
}
