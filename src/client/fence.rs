//! Blocks requests while they are not allowed. The fence is directly in front of the connection, so it also blocks what
//! the SDK sends by itself: retries, and calls for credentials.

use std::fmt;

use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

use bucket_provisioner::store::Permit;

/// `client`, but a request that starts without the permit fails without being sent.
pub(crate) fn fence(client: SharedHttpClient, permit: Permit) -> SharedHttpClient {
    SharedHttpClient::new(Fenced { inner: client, permit })
}

struct Fenced<T> {
    inner: T,
    permit: Permit,
}

impl<T> fmt::Debug for Fenced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fenced")
    }
}

impl HttpClient for Fenced<SharedHttpClient> {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let inner = self.inner.http_connector(settings, components);
        SharedHttpConnector::new(Fenced { inner, permit: self.permit.clone() })
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.inner.connector_metadata()
    }
}

impl HttpConnector for Fenced<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (inner, permit) = (self.inner.clone(), self.permit.clone());
        // Checked when the request is sent, not when it is built.
        HttpConnectorFuture::new(async move {
            if !permit.holds() {
                return Err(ConnectorError::user("this process must not call AWS now".into()));
            }
            inner.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use aws_smithy_http_client::test_util::infallible_client_fn;

    use super::*;
    use crate::class::environment::Environment;
    use crate::class::target::Target;
    use crate::client::call::Identity;
    use crate::client::clients::Clients;
    use crate::client::owner::{Owner, StaticKeys};
    use crate::testing::record;

    #[tokio::test]
    async fn nothing_is_sent_while_it_is_not_allowed() {
        let (allowed, sent) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let (asked, seen) = (Arc::clone(&allowed), Arc::clone(&sent));
        let server = infallible_client_fn(move |_| {
            seen.store(true, Ordering::SeqCst);
            http::Response::new("")
        });
        let clients = Clients::new(fence(server, Permit::new(move || asked.load(Ordering::SeqCst))).into());
        let keys = StaticKeys { id: "AKIA1".to_owned(), secret: "a".to_owned().into(), token: None };
        let owner = Owner { identity: Identity::App, keys: Some(keys) };
        let record = record();
        let store = clients.store(&owner, &Target::of(&record, &Environment::default())).await;
        for store in [&store.s3, &store.retrying_s3] {
            allowed.store(true, Ordering::SeqCst);
            assert!(store.head_bucket().bucket("b").send().await.is_ok());
            assert!(sent.swap(false, Ordering::SeqCst));
            allowed.store(false, Ordering::SeqCst);
            assert!(store.head_bucket().bucket("b").send().await.is_err());
            assert!(!sent.load(Ordering::SeqCst));
        }
    }
}
