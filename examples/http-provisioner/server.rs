//! A store that speaks HTTP, in memory: `http-store 127.0.0.1:8090`, with the owner's token in `STORE_TOKEN`.
//!
//! | request | of | answer |
//! |---|---|---|
//! | `GET /account` | the owner | whose token it is |
//! | `GET /buckets`, `GET /users` | the owner | all of them |
//! | `PUT /buckets/B` with `claim` | the owner | 409 if it exists |
//! | `DELETE /buckets/B?content=keep` | the owner | 409 if it is not empty; with `content=delete` it is emptied |
//! | `PUT /users/U` with `claim` and `bucket` | the owner | 409 if it exists |
//! | `POST /users/U/password` | the owner | a new password, which replaces the previous one |
//! | `GET`, `DELETE` of a bucket or user | the owner | 404 if it does not exist |
//! | `GET /objects/B`, `PUT /objects/B/O` | the app of a user for B | all names; one more |
//!
//! The header is `Authorization: Bearer TOKEN`, with `USER:PASSWORD` of an app for TOKEN. Answers are JSON, and that of an
//! error has a `code`.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[derive(Serialize, Deserialize)]
struct Bucket {
    claim: Option<String>,
    #[serde(skip_deserializing)]
    objects: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct User {
    claim: Option<String>,
    bucket: String,
    /// Answers only show whether there is one.
    #[serde(skip_deserializing, serialize_with = "is_some")]
    password: Option<String>,
}

fn is_some<S: Serializer>(password: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(password.is_some())
}

#[derive(Default)]
struct Store {
    token: String,
    buckets: BTreeMap<String, Bucket>,
    users: BTreeMap<String, User>,
}

type Answer = Result<Value, StatusCode>;

fn json_of(value: impl Serialize) -> Answer {
    serde_json::to_value(value).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn create<T: DeserializeOwned>(all: &mut BTreeMap<String, T>, name: &str, body: &[u8]) -> Answer {
    if all.contains_key(name) {
        return Err(StatusCode::CONFLICT);
    }
    all.insert(name.to_owned(), serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)?);
    Ok(json!({}))
}

impl Store {
    /// The bucket, if this is the token of the owner or of a user for the bucket.
    fn open(&mut self, bucket: &str, token: &str) -> Result<&mut Bucket, StatusCode> {
        if token != self.token {
            let (user, password) = token.split_once(':').ok_or(StatusCode::UNAUTHORIZED)?;
            let user = self.users.get(user).filter(|user| user.password.as_deref() == Some(password));
            if user.ok_or(StatusCode::UNAUTHORIZED)?.bucket != bucket {
                return Err(StatusCode::FORBIDDEN);
            }
        }
        self.buckets.get_mut(bucket).ok_or(StatusCode::NOT_FOUND)
    }

    fn answer(&mut self, method: &Method, target: (&str, Option<&str>), token: &str, body: &[u8]) -> Answer {
        let (path, query) = target;
        let path: Vec<_> = path.trim_matches('/').split('/').collect();
        match (method.as_str(), path.as_slice()) {
            ("GET", ["objects", bucket]) => json_of(&self.open(bucket, token)?.objects),
            ("PUT", ["objects", bucket, object]) => {
                json_of(self.open(bucket, token)?.objects.insert((*object).to_owned()))
            }
            _ if token != self.token => Err(StatusCode::UNAUTHORIZED),
            ("GET", ["account"]) => Ok(json!({ "account": "example" })),
            ("GET", ["buckets"]) => json_of(&self.buckets),
            ("GET", ["users"]) => json_of(&self.users),
            ("PUT", ["buckets", name]) => create(&mut self.buckets, name, body),
            ("PUT", ["users", name]) => create(&mut self.users, name, body),
            ("GET", ["buckets", name]) => json_of(self.buckets.get(*name).ok_or(StatusCode::NOT_FOUND)?),
            ("GET", ["users", name]) => json_of(self.users.get(*name).ok_or(StatusCode::NOT_FOUND)?),
            ("POST", ["users", name, "password"]) => {
                let user = self.users.get_mut(*name).ok_or(StatusCode::NOT_FOUND)?;
                Ok(json!({ "password": user.password.insert(format!("{:032x}", rand::random::<u128>())) }))
            }
            ("DELETE", ["buckets", name]) => {
                let bucket = self.buckets.get(*name).ok_or(StatusCode::NOT_FOUND)?;
                if !bucket.objects.is_empty() && query != Some("content=delete") {
                    return Err(StatusCode::CONFLICT);
                }
                json_of(self.buckets.remove(*name).is_some())
            }
            ("DELETE", ["users", name]) => json_of(self.users.remove(*name).ok_or(StatusCode::NOT_FOUND)?),
            _ => Err(StatusCode::METHOD_NOT_ALLOWED),
        }
    }
}

async fn respond(store: &Mutex<Store>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = authorization.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    let target = (head.uri.path(), head.uri.query());
    let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
    let (status, answer) = match store.answer(&head.method, target, token, &body) {
        Ok(answer) => (StatusCode::OK, answer),
        // `NotFound` of "Not Found".
        Err(status) => (status, json!({ "code": status.canonical_reason().unwrap_or_default().replace(' ', "") })),
    };
    let mut response = Response::new(Full::from(answer.to_string()));
    *response.status_mut() = status;
    Ok(response)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: http-store ADDRESS, with the owner's token in STORE_TOKEN")?;
    let token = std::env::var("STORE_TOKEN").map_err(|_| "the variable STORE_TOKEN is not set: the owner's token")?;
    let store = Arc::new(Mutex::new(Store { token, ..Store::default() }));
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let store = Arc::clone(&store);
        let service = service_fn(move |request| {
            let store = Arc::clone(&store);
            async move { respond(&store, request).await }
        });
        // A connection that breaks is the client's business.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
