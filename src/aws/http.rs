//! Connections: TLS by rustls with aws-lc, and the proxy that HTTPS_PROXY and NO_PROXY name.

use std::fmt;

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;

use super::fence::fence;
use crate::provisioner::Permit;

/// Limit for a page of a listing, in bytes: 1,000 objects with the longest keys, escaped, take some 6 MiB.
const PAGE_MAX: usize = 16 << 20;
/// Limit for all other answers, in bytes.
const ANSWER_MAX: usize = 2 << 20;

/// The HTTP clients.
pub(crate) struct Http {
    /// Keeps connections for the next request.
    pub(crate) pooled: SharedHttpClient,
    /// The same, with the limit for listings.
    pub(crate) lists: SharedHttpClient,
    /// Opens a new connection for each request, so that requests can reach different hosts of the store.
    pub(crate) fresh: SharedHttpClient,
}

impl Http {
    pub(crate) fn new() -> Self {
        let pooled = client(None);
        Self {
            lists: bounded(pooled.clone(), PAGE_MAX),
            pooled: bounded(pooled, ANSWER_MAX),
            fresh: bounded(client(Some(0)), ANSWER_MAX),
        }
    }

    /// The same, but a request that starts without the permit fails without being sent.
    pub(crate) fn only_while(self, permit: Permit) -> Self {
        Self {
            pooled: fence(self.pooled, permit.clone()),
            lists: fence(self.lists, permit.clone()),
            fresh: fence(self.fresh, permit),
        }
    }
}

#[cfg(test)]
impl From<SharedHttpClient> for Http {
    fn from(client: SharedHttpClient) -> Self {
        Self { pooled: client.clone(), lists: client.clone(), fresh: client }
    }
}

fn client(max_idle: Option<usize>) -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder()
            .proxy_config(ProxyConfig::from_env())
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc));
        connector.set_pool_max_idle_per_host(max_idle);
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector.build()
    })
}

/// `client`, but reading an answer fails once it is longer than `bytes`.
fn bounded(client: SharedHttpClient, bytes: usize) -> SharedHttpClient {
    SharedHttpClient::new(Bounded(client, bytes))
}

struct Bounded<T>(T, usize);

impl<T> fmt::Debug for Bounded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bounded")
    }
}

impl HttpClient for Bounded<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Bounded(self.0.http_connector(settings, components), self.1))
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

impl HttpConnector for Bounded<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, bytes) = (self.0.clone(), self.1);
        HttpConnectorFuture::new(async move {
            let mut response = inner.call(request).await?;
            let body = std::mem::replace(response.body_mut(), SdkBody::empty());
            *response.body_mut() = SdkBody::from_body_1_x(Limited::new(body, bytes));
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aws_smithy_http_client::test_util::infallible_client_fn;

    use super::*;
    use crate::aws::call::Identity;
    use crate::aws::clients::Clients;
    use crate::aws::environment::Environment;
    use crate::aws::owner::{Owner, StaticKeys};
    use crate::aws::target::Target;
    use crate::aws::testing::record;

    #[tokio::test]
    async fn an_answer_is_read_up_to_a_limit() {
        let length = Arc::new(AtomicUsize::new(0));
        let sent = Arc::clone(&length);
        let server = infallible_client_fn(move |_| {
            let filler = " ".repeat(sent.load(Ordering::SeqCst));
            http::Response::new(format!("<ListBucketResult>{filler}</ListBucketResult>"))
        });
        let clients = Clients::new(bounded(server, ANSWER_MAX).into());
        let keys = StaticKeys { id: "AKIA1".to_owned(), secret: "a".to_owned().into(), token: None };
        let owner = Owner { identity: Identity::App, keys: Some(keys) };
        let record = record();
        let store = clients.store(&owner, &Target::of(&record, &Environment::default())).await;
        for (filler, is_read) in [(0, true), (ANSWER_MAX - 100, true), (ANSWER_MAX, false)] {
            length.store(filler, Ordering::SeqCst);
            assert_eq!(store.s3.list_objects_v2().bucket("b").send().await.is_ok(), is_read, "{filler}");
        }
    }
}
