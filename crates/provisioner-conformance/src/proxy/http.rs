//! A store that speaks HTTP.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::http::request::Parts;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::{Described, Pending, Upstream};

/// A store at an address that begins with `http://`.
pub struct HttpStore {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
    describe: fn(&Parts, &Bytes) -> Described,
}

impl HttpStore {
    /// A store whose calls are described [by method and path](by_method).
    pub fn at(url: &str) -> Self {
        Self::described(url, by_method)
    }

    /// A store whose calls are described by this function, such as from a field of a form.
    pub fn described(url: &str, describe: fn(&Parts, &Bytes) -> Described) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { url: url.trim_end_matches('/').to_owned(), client, describe }
    }
}

/// What a call does, if all that change something are neither GET nor HEAD.
pub fn by_method(parts: &Parts, _: &Bytes) -> Described {
    let reads = matches!(parts.method.as_str(), "GET" | "HEAD");
    Described { name: format!("{} {}", parts.method, parts.uri.path()), mutates: !reads, note: None }
}

impl Upstream for HttpStore {
    fn describe(&self, parts: &Parts, body: &Bytes) -> Described {
        (self.describe)(parts, body)
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        // The Host header can be signed: it stays the proxy's, although the connection is to the store.
        let uri = format!("{}{target}", self.url).parse();
        let client = self.client.clone();
        Box::pin(async move {
            parts.uri = uri?;
            let answer = client.request(Request::from_parts(parts, body)).await?;
            Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}
