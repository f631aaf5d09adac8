//! The client of the API server.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Client;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::crypto::CryptoProvider;
use tower::retry::RetryLayer;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};

/// Longest time until an answer starts, including kube's own retries (429, 503, 504). The API server waits as long for
/// a webhook. Watches are answered at once, and stay open.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest pause within an answer. A watch without changes gets a bookmark every minute.
const PAUSE_LIMIT: Duration = Duration::from_secs(300);

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
        return Ok(ClientBuilder::try_from(config)?.with_layer(&limit).build());
    }
    if CryptoProvider::get_default().is_none() {
        // Fails only if somebody else has just chosen one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Otherwise the end of the TLS handshake waits some 40 ms for an acknowledgement that the API server delays.
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    let service = ServiceBuilder::new()
        .layer(limit)
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(RetryPolicy::server_retry()))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace))
}
