//! Calls to the API server, as traces show them. Those that belong to no attempt, such as watches, are in no trace.

use std::fmt::{self, Display, Formatter};
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::Service;
use tracing::{Instrument as _, Span};

use crate::observe::spans;

const SERVICE: &str = "kubernetes";

/// A client, each of whose calls is a span.
#[derive(Debug, Clone)]
pub(super) struct Traced<S>(pub(super) S);

impl<S, B, A> Service<Request<B>> for Traced<S>
where
    S: Service<Request<B>, Response = Response<A>, Future: Send + 'static, Error: Display>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let target = Target(request.uri().path());
        let operation = Operation { method: request.method(), target };
        let span = spans::call(SERVICE, &operation, &target);
        let answer = self.0.call(request);
        async move {
            let answer = answer.instrument(span.clone()).await;
            match &answer {
                Ok(answer) => answered(&span, answer.status().as_u16()),
                Err(error) => spans::failed(&span, "no_answer", error),
            }
            answer
        }
        .boxed()
    }
}

/// Not there, or changed meanwhile: both are answers that callers expect.
fn answered(span: &Span, status: u16) {
    span.record("http.response.status_code", status);
    if status >= 400 && !matches!(status, 404 | 409) {
        let kind = if status < 500 { "refused" } else { "server_failed" };
        spans::failed(span, kind, &format_args!("the API server answered with HTTP status {status}"));
    }
}

/// A method and the kind that it is for in the plural, with the subresource: `put objectbuckets/status`.
struct Operation<'a> {
    method: &'a Method,
    target: Target<'a>,
}

impl Display for Operation<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (_, parts) = self.target.parts();
        let kind = [parts.first(), parts.get(2)].into_iter().flatten().copied().collect::<Vec<_>>().join("/");
        write!(f, "{} {kind}", self.method.as_str().to_ascii_lowercase())
    }
}

/// The object that the path of a call names: `namespace/name`, or the one of them that there is. It is read only where
/// somebody exports traces.
#[derive(Clone, Copy)]
struct Target<'a>(&'a str);

impl<'a> Target<'a> {
    /// The namespace, and then kind, name and subresource, of `/api/VERSION/…` or `/apis/GROUP/VERSION/…`.
    fn parts(self) -> (Option<&'a str>, Vec<&'a str>) {
        let mut parts = self.0.split('/').filter(|part| !part.is_empty());
        let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
        let mut parts: Vec<_> = parts.skip(skipped).collect();
        match parts[..] {
            ["namespaces", namespace, _, ..] => (Some(namespace), parts.split_off(2)),
            _ => (None, parts),
        }
    }
}

impl Display for Target<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (namespace, parts) = self.parts();
        let object = namespace.iter().chain(parts.get(1)).copied().collect::<Vec<_>>().join("/");
        f.write_str(&object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_kind_and_object() {
        let is = |path, kind: &str, object: &str| {
            let target = Target(path);
            let operation = Operation { method: &Method::PUT, target }.to_string();
            assert_eq!((operation, target.to_string()), (format!("put {kind}"), object.to_owned()), "{path}");
        };
        is(
            "/apis/objectbucket.io/v1alpha1/namespaces/shop/objectbucketclaims/photos",
            "objectbucketclaims",
            "shop/photos",
        );
        is("/apis/objectbucket.io/v1alpha1/objectbuckets/obc-a/status", "objectbuckets/status", "obc-a");
        is("/api/v1/namespaces/shop/secrets", "secrets", "shop");
        is("/api/v1/namespaces/kube-system", "namespaces", "kube-system");
        is("/version", "", "");
    }
}
