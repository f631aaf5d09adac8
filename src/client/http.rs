//! Connections: TLS by rustls with aws-lc, and the proxy that HTTPS_PROXY and NO_PROXY name. What is checked here also holds
//! for what the SDK sends by itself: calls for credentials.

use std::fmt;
use std::net::IpAddr;

use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::{Connector, tls};
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;

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
    /// A request that starts without the permit fails without being sent.
    pub(crate) fn new(permit: Permit) -> Self {
        let pooled = client(None, ProxyConfig::from_env());
        let of_node = client(None, ProxyConfig::disabled());
        let fresh = client(Some(0), ProxyConfig::from_env());
        let guarded = |client: &SharedHttpClient, longest| {
            let (client, of_node, permit) = (client.clone(), of_node.clone(), permit.clone());
            SharedHttpClient::new(Guarded { client, of_node, permit, longest })
        };
        Self {
            lists: guarded(&pooled, PAGE_MAX),
            pooled: guarded(&pooled, ANSWER_MAX),
            fresh: guarded(&fresh, ANSWER_MAX),
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

/// A client whose requests need a permit and whose answers have a limit.
#[derive(Clone)]
struct Guarded<T> {
    client: T,
    /// For the agent of Pod Identity and the instance's metadata. They are called by plain HTTP, with a token and for keys: a
    /// proxy for all pods (HTTP_PROXY) must see neither.
    of_node: T,
    permit: Permit,
    /// Reading an answer fails once it is longer, in bytes.
    longest: usize,
}

impl<T> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guarded")
    }
}

impl HttpClient for Guarded<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(Guarded {
            client: self.client.http_connector(settings, components),
            of_node: self.of_node.http_connector(settings, components),
            permit: self.permit.clone(),
            longest: self.longest,
        })
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.client.connector_metadata()
    }
}

impl HttpConnector for Guarded<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { client, of_node, permit, longest } = self.clone();
        // The permit is checked when the request is sent, not when it is built.
        HttpConnectorFuture::new(async move {
            if !permit.holds() {
                return Err(ConnectorError::user("this process must not call AWS now".into()));
            }
            let client = if is_of_node(request.uri()) { of_node } else { client };
            let mut response = client.call(request).await?;
            let body = std::mem::replace(response.body_mut(), SdkBody::empty());
            *response.body_mut() = SdkBody::from_body_1_x(Limited::new(body, longest));
            Ok(response)
        })
    }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use aws_smithy_http_client::test_util::infallible_client_fn;
    use aws_smithy_runtime_api::client::runtime_components::RuntimeComponentsBuilder;

    use super::*;
    use crate::class::environment::Environment;
    use crate::class::target::Target;
    use crate::client::call::Identity;
    use crate::client::clients::Clients;
    use crate::client::owner::{Owner, StaticKeys};
    use crate::client::store::Store;
    use crate::testing::record;

    fn guarded(client: SharedHttpClient, permit: Permit) -> SharedHttpClient {
        SharedHttpClient::new(Guarded { of_node: client.clone(), client, permit, longest: ANSWER_MAX })
    }

    async fn store(client: SharedHttpClient) -> Arc<Store> {
        let keys = StaticKeys { id: "AKIA1".to_owned(), secret: "a".to_owned().into(), token: None };
        let owner = Owner { identity: Identity::App, keys: Some(keys) };
        Clients::new(client.into()).store(&owner, &Target::of(&record(), &Environment::default())).await
    }

    #[tokio::test]
    async fn nothing_is_sent_while_it_is_not_allowed() {
        let (allowed, sent) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (holds, seen) = (Arc::clone(&allowed), Arc::clone(&sent));
        let server = infallible_client_fn(move |_| {
            seen.store(true, Ordering::SeqCst);
            http::Response::new("")
        });
        let store = store(guarded(server, Permit::new(move || holds.load(Ordering::SeqCst)))).await;
        for client in [&store.s3, &store.listing_s3] {
            allowed.store(true, Ordering::SeqCst);
            assert!(client.head_bucket().bucket("b").send().await.is_ok());
            assert!(sent.swap(false, Ordering::SeqCst));
            allowed.store(false, Ordering::SeqCst);
            assert!(client.head_bucket().bucket("b").send().await.is_err());
            assert!(!sent.load(Ordering::SeqCst));
        }
    }

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
        let answering =
            |status: u16| infallible_client_fn(move |_| http::Response::builder().status(status).body("").unwrap());
        let (client, of_node) = (answering(502), answering(200));
        let client = Guarded { client, of_node, permit: Permit::new(|| true), longest: ANSWER_MAX };
        let components = RuntimeComponentsBuilder::for_tests().build().unwrap();
        let connector = client.http_connector(&HttpConnectorSettings::builder().build(), &components);
        for (url, by) in [("http://169.254.170.23/v1/credentials", 200), ("http://sts.example.com/", 502)] {
            let answer = connector.call(HttpRequest::get(url).unwrap()).await.unwrap();
            assert_eq!(answer.status().as_u16(), by, "{url}");
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
        let store = store(guarded(server, Permit::new(|| true))).await;
        for (filler, is_read) in [(0, true), (ANSWER_MAX - 100, true), (ANSWER_MAX, false)] {
            length.store(filler, Ordering::SeqCst);
            assert_eq!(store.s3.list_objects_v2().bucket("b").send().await.is_ok(), is_read, "{filler}");
        }
    }
}
