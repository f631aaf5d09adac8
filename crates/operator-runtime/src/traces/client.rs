//! The HTTP client of the exporter. Each request has a connection of its own: there is one every few seconds.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Runtime;

use crate::program::chain;

/// How long a request may take, if OTEL_EXPORTER_OTLP_TIMEOUT is not set.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const ANSWER_MAX: usize = 64 << 10;

/// The client. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Its own, for the thread that exports: it works also when that of the operator is busy, or has ended.
    runtime: Runtime,
    timeout: Duration,
    /// Why the last request failed. The exporter keeps that to itself.
    problem: Mutex<Option<String>>,
}

impl Client {
    /// # Errors
    /// No runtime can be had, or the certificates cannot be read.
    pub(super) fn new(url: &Uri) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        let tls = tls(url.scheme_str() == Some("https"))?;
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector.wrap_connector(tcp));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let timeout = either("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
        let timeout = timeout.and_then(|text| text.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
        Ok(Self(Arc::new(Inner { http, runtime, timeout, problem: Mutex::default() })))
    }

    /// Why the last request failed.
    pub(super) fn problem(&self) -> Option<String> {
        self.0.problem.lock().take()
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let answered = async {
            let answer = self.0.http.request(request.map(Full::new)).await.map_err(|error| chain(&error))?;
            let (head, body) = answer.into_parts();
            // The status shows whether the collector accepted them; some servers end the connection within the body.
            let body = Limited::new(body, ANSWER_MAX).collect().await.map(Collected::to_bytes);
            Ok(Response::from_parts(head, body.unwrap_or_default()))
        };
        let answer = tokio::time::timeout(self.0.timeout, answered).await;
        answer.unwrap_or_else(|_elapsed| Err(format!("no answer within {:?}", self.0.timeout)))
    }
}

#[async_trait]
impl HttpClient for Client {
    /// Blocks its thread, which is that of the exporter.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.0.runtime.block_on(self.send(request));
        let problem = match &answer {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("the collector answered with HTTP status {}", answer.status())),
            Err(problem) => Some(problem.clone()),
        };
        *self.0.problem.lock() = problem;
        answer.map_err(HttpError::from)
    }
}

/// Trusts the certificate that the variables of OpenTelemetry name, else those of the system.
fn tls(is_used: bool) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let named = either("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE");
    match named.filter(|_| is_used) {
        Some(file) => {
            let unusable = |problem: &dyn std::fmt::Display| {
                format!(
                    "OTEL_EXPORTER_OTLP_CERTIFICATE: {file:?} has no usable certificates: {problem}; name a PEM file"
                )
            };
            for certificate in CertificateDer::pem_file_iter(&file).map_err(|error| unusable(&error))? {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
            if roots.is_empty() {
                return Err(unusable(&"it has none"));
            }
        }
        None if is_used => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The first of two variables that is set.
fn either(first: &str, second: &str) -> Option<String> {
    [first, second].into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}
