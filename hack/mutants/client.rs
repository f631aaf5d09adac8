//! The store's HTTP interface.

use std::fmt;
use std::time::Duration;

use bucket_provisioner::store::{ExposeSecret as _, SecretString};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Why there is no useful answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The store has refused the call, with this status (4xx): nothing has changed.
    Refused(StatusCode),
    /// The store has failed, with this status and this body. Whether something has changed is not known.
    Failed(StatusCode, String),
    /// No answer came.
    NoAnswer,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) | Self::Failed(status, _) => write!(f, "answers {}", status.as_u16()),
            Self::NoAnswer => f.write_str("does not answer"),
        }
    }
}

impl Problem {
    pub(crate) fn is(&self, status: StatusCode) -> bool {
        matches!(self, Self::Refused(refused) if *refused == status)
    }
}

/// Who calls.
#[derive(Clone, Copy)]
pub(crate) enum As<'a> {
    /// The provisioning credentials: the token.
    Owner(&'a SecretString),
    /// An app, with the id and the secret of its keys.
    App(&'a str, &'a SecretString),
}

/// A client of one store.
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

impl Http {
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// Makes a call. 404 is [`Problem::Refused`], as each other 4xx is but 408 and 429.
    pub(crate) async fn call(&self, who: As<'_>, method: Method, server: &str, path: &str) -> Result<Bytes, Problem> {
        let authorization = match who {
            As::Owner(token) => format!("Bearer {}", token.expose_secret()),
            As::App(id, secret) => format!("Key {id}:{}", secret.expose_secret()),
        };
        let request = Request::builder().method(method).uri(format!("{server}{path}"));
        let request = request.header(http::header::AUTHORIZATION, authorization).body(Full::default());
        let request = request.map_err(|_| Problem::NoAnswer)?;
        let answer = async {
            let answer = self.0.request(request).await.map_err(|_| Problem::NoAnswer)?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(|_| Problem::NoAnswer)?.to_bytes();
            Ok((status, body))
        };
        let (status, body) = tokio::time::timeout(LIMIT, answer).await.unwrap_or(Err(Problem::NoAnswer))?;
        let may_pass = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if status.is_success() {
            Ok(body)
        } else if status.is_client_error() && !may_pass {
            Err(Problem::Refused(status))
        } else {
            Err(Problem::Failed(status, String::from_utf8_lossy(&body).into_owned()))
        }
    }

    /// Reads; `None` if it does not exist.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        who: As<'_>,
        server: &str,
        path: &str,
    ) -> Result<Option<T>, Problem> {
        match self.call(who, Method::GET, server, path).await {
            Ok(body) => serde_json::from_slice(&body).map(Some).map_err(|_| Problem::NoAnswer),
            Err(problem) if problem.is(StatusCode::NOT_FOUND) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Deletes; whether it existed.
    pub(crate) async fn delete(&self, who: As<'_>, server: &str, path: &str) -> Result<bool, Problem> {
        match self.call(who, Method::DELETE, server, path).await {
            Ok(_) => Ok(true),
            Err(problem) if problem.is(StatusCode::NOT_FOUND) => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}

/// What the store shows of a bucket.
#[derive(Debug, Deserialize)]
pub(crate) struct Bucket {
    /// The uid of the claim for which it was created.
    pub(crate) uid: Option<String>,
    pub(crate) objects: usize,
}

/// What the store shows of a user.
#[derive(Debug, Deserialize)]
pub(crate) struct User {
    /// The uid of the claim for which it was created.
    pub(crate) uid: Option<String>,
    pub(crate) keys: Vec<String>,
}

/// Whose the keys are that a call was made with.
#[derive(Debug, Deserialize)]
pub(crate) struct Myself {
    pub(crate) user: String,
}

/// The account of the token.
#[derive(Debug, Deserialize)]
pub(crate) struct Account {
    pub(crate) account: String,
}

/// An issued key.
#[derive(Deserialize)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) secret: SecretString,
}
