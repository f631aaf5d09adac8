//! The Kubernetes API server, reached with the credentials of a client; and the ends that its watches take.

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::Request;
use hyper::body::Frame;
use hyper::http::request::Parts;
use serde_json::json;
use tokio::sync::watch;

use super::{Answer, Described, Fault, Pending, Proxy, Upstream, Verdict};

/// The API server.
pub struct ApiServer {
    /// What calls have to present, and the client that sends them on.
    clients: Vec<(String, kube::Client)>,
    /// Sent to all watches that are open.
    ending: watch::Sender<Option<Ending>>,
}

/// How open watches end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As the API server ends them after some minutes.
    Closed,
    /// The connection breaks.
    Broken,
    /// With an `ERROR` event: the resource version is too old (410).
    Expired,
}

impl ApiServer {
    /// The one that a client reaches, for callers that present this bearer token: others must not get the client's rights.
    pub fn behind(client: kube::Client, token: &str) -> Self {
        Self { clients: Vec::new(), ending: watch::Sender::new(None) }.and(client, token)
    }

    /// The same, and for callers that present this other token with the rights of this other client.
    pub fn and(mut self, client: kube::Client, token: &str) -> Self {
        self.clients.push((format!("Bearer {token}"), client));
        self
    }
}

impl Proxy<ApiServer> {
    /// Ends all watches that are open.
    pub fn end_watches(&self, ending: Ending) {
        self.upstream.ending.send_replace(Some(ending));
    }
}

/// How a watch is refused whose resource version is too old.
pub fn expired() -> Verdict {
    Verdict::Answer(410, status_expired().to_string())
}

/// How a watch is begun and at once ended whose resource version is too old.
pub fn expired_in_stream() -> Verdict {
    Verdict::Answer(200, event_expired())
}

fn status_expired() -> serde_json::Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version",
    })
}

fn event_expired() -> String {
    format!("{}\n", json!({ "type": "ERROR", "object": status_expired() }))
}

fn is_watch(parts: &Parts) -> bool {
    parts.uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))
}

impl Upstream for ApiServer {
    fn describe(&self, parts: &Parts, _: &Bytes) -> Described {
        let path: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
        // /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]
        let rest = if path.first() == Some(&"api") { path.get(2..) } else { path.get(3..) }.unwrap_or_default();
        let rest = if rest.first() == Some(&"namespaces") && rest.len() > 2 { &rest[2..] } else { rest };
        let resource = rest.first().copied().unwrap_or("discovery");
        let is_named = rest.len() > 1;
        let verb = match parts.method.as_str() {
            "GET" if is_watch(parts) => "watch",
            "GET" if is_named => "get",
            "GET" => "list",
            "POST" => "create",
            "PATCH" => "patch",
            "PUT" => "update",
            "DELETE" => "delete",
            other => other,
        };
        let subresource = rest.get(2).map(|sub| format!("/{sub}")).unwrap_or_default();
        let is_dry = parts.uri.query().is_some_and(|query| query.contains("dryRun=All"));
        Described {
            name: format!("{verb} {resource}{subresource}{}", if is_dry { " (dry run)" } else { "" }),
            mutates: !is_dry && !matches!(verb, "get" | "list" | "watch"),
            note: None,
        }
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pending {
        let presented = request.headers().get(hyper::header::AUTHORIZATION);
        let presents = |token: &str| presented.is_some_and(|presented| presented.as_bytes() == token.as_bytes());
        let Some((_, client)) = self.clients.iter().find(|(token, _)| presents(token)) else {
            return Box::pin(async { Ok(super::plain(401, "this proxy is for its world's operator".to_owned())) });
        };
        let client = client.clone();
        let ending = self.ending.subscribe();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            let is_watch = is_watch(&parts);
            // The client fills in scheme, host and token of the cluster it knows.
            parts.uri = parts.uri.path_and_query().unwrap().as_str().parse()?;
            parts.headers.remove(hyper::header::HOST);
            parts.headers.remove(hyper::header::AUTHORIZATION);
            let bytes = body.collect().await?.to_bytes();
            let answer = client.send(Request::from_parts(parts, kube::client::Body::from(bytes.to_vec()))).await?;
            let answer: Answer = answer.map(|body| body.map_err(Into::into).boxed_unsync());
            Ok(if is_watch { answer.map(|body| until(body, ending).boxed_unsync()) } else { answer })
        })
    }
}

/// The body of a watch, which continues until `ending` is sent.
fn until(
    body: impl hyper::body::Body<Data = Bytes, Error = Fault> + Send + 'static,
    mut ending: watch::Receiver<Option<Ending>>,
) -> impl hyper::body::Body<Data = Bytes, Error = Fault> + Send + 'static {
    let events = http_body_util::BodyDataStream::new(body).map(|data| data.map(Frame::data));
    let (sender, end) = tokio::sync::oneshot::channel();
    let requested = async move {
        if ending.changed().await.is_err() {
            std::future::pending().await
        }
        let _ = sender.send(*ending.borrow());
    };
    // Exists only if the end was requested; a stream that ended by itself has dropped the sender.
    let last = futures::stream::once(end).filter_map(|end| async move {
        match end.ok().flatten()? {
            Ending::Closed => None,
            Ending::Broken => Some(Err(Fault::from("the connection breaks"))),
            Ending::Expired => Some(Ok(Frame::data(Bytes::from(event_expired())))),
        }
    });
    StreamBody::new(events.take_until(Box::pin(requested)).chain(last))
}
