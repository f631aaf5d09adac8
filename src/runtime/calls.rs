//! Calls to the API server, as traces show them. Those that belong to no attempt, such as watches, are in no trace.

use std::fmt::Display;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
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
        let Target { kind, object } = Target::of(request.uri().path());
        let method = request.method().as_str().to_ascii_lowercase();
        let span = spans::call(SERVICE, &format_args!("{method} {kind}"), &object);
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

/// What the path of a call names.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    /// The kind in the plural, and the subresource, such as `objectbuckets/status`.
    kind: String,
    /// `namespace/name`, or the one of them that there is.
    object: String,
}

impl Target {
    /// Of `/api/VERSION/…` or `/apis/GROUP/VERSION/…`.
    fn of(path: &str) -> Self {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
        let parts: Vec<&str> = parts.skip(skipped).collect();
        let (namespace, rest) = match parts[..] {
            ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() => (Some(namespace), rest),
            ref rest => (None, rest),
        };
        let kind = [rest.first(), rest.get(2)].into_iter().flatten().copied().collect::<Vec<_>>().join("/");
        let object = [namespace.as_ref(), rest.get(1)].into_iter().flatten().copied().collect::<Vec<_>>().join("/");
        Self { kind, object }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_kind_and_object() {
        let is = |path, kind: &str, object: &str| {
            assert_eq!(Target::of(path), Target { kind: kind.into(), object: object.into() }, "{path}");
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
