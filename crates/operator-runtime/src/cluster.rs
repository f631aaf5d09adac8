//! The client of the API server.

use std::task::{self, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::Request;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Client;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::crypto::CryptoProvider;
use tower::layer::layer_fn;
use tower::retry::RetryLayer;
use tower::steer::Steer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Service, ServiceBuilder};

use super::calls::Traced;

/// Longest time until an answer starts, including kube's own retries (429, 503, 504). The API server waits as long for
/// a webhook. Watches are answered at once, and stay open.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest pause within an answer over HTTP/1.1. A watch without changes gets a bookmark every minute.
const PAUSE_LIMIT: Duration = Duration::from_secs(300);
/// How often the API server is asked over HTTP/2 whether it is still there, and how long it may take to answer that.
const PING: Duration = Duration::from_secs(5);
/// How long an unused connection is kept. The API server ends it after 90 seconds.
const IDLE: Duration = Duration::from_secs(60);

/// A client whose calls fail without an answer after `answer_limit` (the operator uses [`ANSWER_LIMIT`]). The default
/// client of kube waits forever for an API server that cannot be reached any longer.
///
/// # Errors
/// The configuration cannot be used.
pub fn client(mut config: kube::Config, answer_limit: Duration) -> Result<Client, kube::Error> {
    config.read_timeout = Some(PAUSE_LIMIT);
    let limit = TimeoutLayer::new(answer_limit);
    // Of these kube alone knows how to use a proxy, and when a certificate from a program expires.
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        return Ok(ClientBuilder::try_from(config)?.with_layer(&limit).with_layer(&layer_fn(Traced)).build());
    }
    if CryptoProvider::get_default().is_none() {
        // Fails only if somebody else has just chosen one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let calls = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        // They share one connection. One that died silently must not stop them longer than its own would stop each.
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        // Before the API server ends it, because that could fail a call.
        .pool_idle_timeout(IDLE)
        .build::<_, Body>(connector(&config, Versions::All)?);
    // A watch or a page that waits to be read takes room on its connection, and must not hold up a call.
    let long = legacy::Client::builder(TokioExecutor::new()).build(connector(&config, Versions::Http1)?);
    let service = ServiceBuilder::new()
        .layer(layer_fn(Traced))
        .layer(limit)
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Steer::new([Calls(calls), Calls(long)], |call: &Request<Body>, _: &[_]| usize::from(is_long(call))));
    Ok(Client::new(service, config.default_namespace))
}

/// Calls, of which each takes its connection out of use if it is given up. Otherwise those that share it would wait, too,
/// for an API server that answers nothing but pings.
#[derive(Clone)]
struct Calls<C>(legacy::Client<C, Body>);

impl<C> Service<Request<Body>> for Calls<C>
where
    legacy::Client<C, Body>: Service<Request<Body>, Future: Send + 'static>,
{
    type Response = <legacy::Client<C, Body> as Service<Request<Body>>>::Response;
    type Error = <legacy::Client<C, Body> as Service<Request<Body>>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let asked = Asked(Some(capture_connection(&mut request)));
        let answer = Service::call(&mut self.0, request);
        async move {
            let answer = answer.await;
            asked.answered();
            answer
        }
        .boxed()
    }
}

/// The connection of a call, until that is answered.
struct Asked(Option<CaptureConnection>);

impl Asked {
    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(captured) = &self.0
            && let Some(connection) = captured.connection_metadata().as_ref()
        {
            connection.poison();
        }
    }
}

/// The versions of HTTP that are asked for; the API server chooses one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Versions {
    Http1,
    All,
}

fn connector(
    config: &kube::Config,
    versions: Versions,
) -> Result<TimeoutConnector<HttpsConnector<HttpConnector>>, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Otherwise the end of the TLS handshake waits some 40 ms for an acknowledgement that the API server delays.
    tcp.set_nodelay(true);
    // With another name of the server, kube alone knows how to check it.
    let https = if versions == Versions::Http1 || config.tls_server_name.is_some() {
        config.rustls_https_connector_with_connector(tcp)?
    } else {
        let tls = config.rustls_client_config()?;
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions().wrap_connector(tcp)
    };
    let mut connector = TimeoutConnector::new(https);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    Ok(connector)
}

/// Whether the answer may be long: that of a watch, or a page of a list.
fn is_long(call: &Request<Body>) -> bool {
    let query = call.uri().query().unwrap_or_default();
    query.split('&').any(|part| part == "watch=true" || part.starts_with("limit="))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::Response;
    use http_body_util::Empty;
    use hyper::body::Bytes;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use hyper_util::server::conn::auto;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_its_connection_to_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            // The first connection answers nothing but pings.
            for number in 0.. {
                let (connection, _) = listener.accept().await.unwrap();
                let count = Arc::clone(&count);
                let service = service_fn(move |_| {
                    count.fetch_add(1, Ordering::SeqCst);
                    async move {
                        if number == 0 {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
                    }
                });
                tokio::spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        let client = legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(HttpConnector::new());
        let mut calls = Calls(client);
        let mut call = || calls.call(Request::get(&url).body(Body::empty()).unwrap());
        let mut first = call();
        while asked.load(Ordering::SeqCst) == 0 {
            assert!((&mut first).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(first);
        for _ in 0..3 {
            tokio::time::timeout(Duration::from_secs(30), call()).await.unwrap().unwrap();
        }
    }
}
