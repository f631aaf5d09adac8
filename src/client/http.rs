//! Connections: TLS by rustls with aws-lc, and the proxy that HTTPS_PROXY and NO_PROXY name.

use std::fmt;
use std::net::IpAddr;

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

use crate::client::fence::fence;
use bucket_provisioner::store::Permit;

/// Limit for a page of a listing, in bytes: 1,000 objects with the longest keys, escaped, take some 6 MiB.
const PAGE_MAX: usize = 16 << 20;
/// Limit for all other answers, in bytes.
const ANSWER_MAX: usize = 2 << 20;

/// The HTTP clients.
pub(crate) struct Http {
    /// Keeps connections open for the next request.
    pub(crate) pooled: SharedHttpClient,
    /// The same, with the limit for listings.
    pub(crate) lists: SharedHttpClient,
    /// Opens a new connection for each request, so that requests can reach different hosts of the store.
    pub(crate) fresh: SharedHttpClient,
}

impl Http {
    pub(crate) fn new() -> Self {
        let pooled = client(None, ProxyConfig::from_env());
        let of_node = client(None, ProxyConfig::disabled());
        Self {
            lists: bounded(pooled.clone(), PAGE_MAX),
            pooled: past_proxy(bounded(pooled, ANSWER_MAX), bounded(of_node, ANSWER_MAX)),
            fresh: bounded(client(Some(0), ProxyConfig::from_env()), ANSWER_MAX),
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

fn client(max_idle: Option<usize>, proxy: ProxyConfig) -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().build_with_connector_fn(move |settings, components| {
        let mut connector = Connector::builder()
            .proxy_config(proxy.clone())
            .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::AwsLc));
        connector.set_pool_max_idle_per_host(max_idle);
        connector.set_connector_settings(settings.cloned());
        connector.set_sleep_impl(components.and_then(|components| components.sleep_impl()));
        connector.build()
    })
}

/// `client`, but for the services of the node `of_node`.
fn past_proxy(client: SharedHttpClient, of_node: SharedHttpClient) -> SharedHttpClient {
    SharedHttpClient::new(PastProxy { client, of_node })
}

/// The agent of Pod Identity and the instance's metadata are asked by plain HTTP, with a token and for keys: a proxy for all
/// pods (HTTP_PROXY) must see neither.
#[derive(Debug)]
struct PastProxy<T> {
    client: T,
    of_node: T,
}

/// Where a node serves its pods: addresses that no network routes, and those that AWS has chosen for IPv6.
fn is_of_node(url: &str) -> bool {
    let host = url.parse::<http::Uri>().ok().and_then(|url| url.host().map(str::to_owned)).unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(address)) => matches!(address.segments(), [0xfd00, 0xec2, 0, 0, 0, 0, 0, _]),
        Err(_) => false,
    }
}

impl HttpClient for PastProxy<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let connector = |client: &SharedHttpClient| client.http_connector(settings, components);
        SharedHttpConnector::new(PastProxy { client: connector(&self.client), of_node: connector(&self.of_node) })
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.client.connector_metadata()
    }
}

impl HttpConnector for PastProxy<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if is_of_node(request.uri()) { self.of_node.call(request) } else { self.client.call(request) }
    }
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
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aws_smithy_http_client::test_util::infallible_client_fn;
    use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;

    use super::*;
    use crate::class::environment::Environment;
    use crate::class::target::Target;
    use crate::client::call::Identity;
    use crate::client::clients::Clients;
    use crate::client::owner::{Owner, StaticKeys};
    use crate::testing::record;

    #[test]
    fn services_of_the_node_are_asked_past_the_proxy() {
        for url in [
            "http://169.254.170.23/v1/credentials",
            "http://169.254.169.254/",
            "http://[fd00:ec2::23]/v1",
            "http://[fd00:ec2::254]/",
        ] {
            assert!(is_of_node(url), "{url}");
        }
        for url in [
            "https://sts.amazonaws.com/",
            "http://127.0.0.1:80/",
            "http://10.0.0.1/",
            "http://[fd00:ec3::23]/",
            "http://169.254.170.23.example.com/",
        ] {
            assert!(!is_of_node(url), "{url}");
        }
    }

    #[tokio::test]
    async fn requests_to_the_node_bypass_the_proxy() {
        let answering = |text: &'static str| infallible_client_fn(move |_| http::Response::new(text.to_owned()));
        let client = past_proxy(answering("proxy"), answering("node"));
        let components = RuntimeComponentsBuilder::for_tests().build().unwrap();
        let connector = client.http_connector(&HttpConnectorSettings::builder().build(), &components);
        for (url, by) in [("http://169.254.170.23/v1/credentials", "node"), ("http://sts.example.com/", "proxy")] {
            let answer = connector.call(HttpRequest::get(url).unwrap()).await.unwrap();
            assert_eq!(answer.body().bytes(), Some(by.as_bytes()), "{url}");
        }
    }

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
