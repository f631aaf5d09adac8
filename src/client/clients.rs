//! SDK clients: one connection pool for all, and a few clients kept for the owners in use.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sdk_eks as eks;
use aws_sdk_iam as iam;
use aws_sdk_s3 as s3;
use aws_sdk_s3control as s3control;
use aws_sdk_sts as sts;
use aws_smithy_runtime_api::client::identity::SharedIdentityCache;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use secrecy::ExposeSecret;
use tokio::sync::OnceCell;

use crate::class::region::{Variants, is_host_of_aws, partition, region_in};
use crate::class::target::{AssumedRole, Eks, Endpoints, Sts, Target};
use crate::class::values::Addressing;
use crate::client::account::Account;
use crate::client::call::Identity;
use crate::client::http::Http;
use crate::client::limiter::Limiters;
use crate::client::owner::{Owner, StaticKeys};
use crate::client::quota::Quotas;
use crate::client::session::Session;
use crate::client::store::Store;
use crate::s3::budget::MemoryBudget;
use bucket_provisioner::store::Observer;

/// How many clients are kept: one for each owner and region in use. Others are recreated when needed.
const KEPT: usize = 256;
/// The same of sessions, which are small.
const SESSIONS_KEPT: usize = 1000;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates and keeps clients.
pub(crate) struct Clients {
    http: Http,
    observer: Observer,
    budget: MemoryBudget,
    limiters: Arc<Limiters>,
    quotas: Arc<Quotas>,
    /// Loaded once, when the first class needs it.
    ambient: OnceCell<SharedCredentialsProvider>,
    /// Never shown or logged, because they contain keys.
    kept: Kept<Key, Store>,
    sessions: Kept<SessionKey, Session>,
}

/// What was used most recently comes first.
struct Kept<K, V> {
    entries: Mutex<VecDeque<(K, Arc<V>)>>,
    most: usize,
}

impl<K: PartialEq, V> Kept<K, V> {
    fn new(most: usize) -> Self {
        Self { entries: Mutex::default(), most }
    }

    fn find(&self, key: &K) -> Option<Arc<V>> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|(known, _)| known == key)?;
        let entry = entries.remove(at)?;
        let value = Arc::clone(&entry.1);
        entries.push_front(entry);
        Some(value)
    }

    fn keep(&self, key: K, value: Arc<V>) {
        let mut entries = self.entries.lock();
        entries.push_front((key, value));
        entries.truncate(self.most);
    }
}

#[derive(Clone, PartialEq)]
struct Key {
    /// `None` is the ambient identity.
    keys: Option<StaticKeys>,
    identity: Identity,
    role: Option<AssumedRole>,
    endpoints: Endpoints,
}

/// What a session depends on.
#[derive(Clone, PartialEq)]
struct SessionKey {
    keys: Option<StaticKeys>,
    identity: Identity,
    role: AssumedRole,
    sts: Sts,
}

/// The clients of an app.
pub(crate) struct AppClients {
    pub(crate) observer: Observer,
    pub(crate) s3: s3::Client,
    pub(crate) sts: Option<sts::Client>,
}

impl Clients {
    pub(crate) fn new(http: Http) -> Self {
        Self {
            http,
            observer: Observer::default(),
            budget: MemoryBudget::default(),
            limiters: Arc::default(),
            quotas: Arc::default(),
            ambient: OnceCell::new(),
            kept: Kept::new(KEPT),
            sessions: Kept::new(SESSIONS_KEPT),
        }
    }

    /// The same, and each of their calls is counted.
    pub(crate) fn observed(self, observer: Observer) -> Self {
        Self { observer, ..self }
    }

    /// The clients of a record's owner.
    pub(crate) async fn store(&self, owner: &Owner, target: &Target<'_>) -> Arc<Store> {
        let Owner { identity, keys } = owner;
        let Target { endpoints, owner_role: role, .. } = target;
        let key =
            Key { keys: keys.clone(), identity: identity.clone(), role: role.clone(), endpoints: endpoints.clone() };
        if let Some(store) = self.kept.find(&key) {
            return store;
        }
        let (credentials, caching) = match keys {
            Some(keys) => (credentials(keys), Caching::Never),
            None => (self.ambient(endpoints).await, Caching::UntilExpiry),
        };
        let store = match role {
            Some(role) => {
                let session = self.session(owner, role, endpoints, (credentials, caching));
                let provider: Arc<dyn ProvideCredentials> = session.clone();
                let store = self.build(provider.into(), Caching::Never, Identity::Role, endpoints);
                Store { role: Some(session), ..store }
            }
            None => Store {
                key_id: keys.as_ref().map(|keys| keys.id.clone()),
                session: keys.as_ref().is_some_and(|keys| keys.token.is_some()),
                ..self.build(credentials, caching, identity.clone(), endpoints)
            },
        };
        let store = Arc::new(store);
        self.kept.keep(key, Arc::clone(&store));
        store
    }

    /// The session of a role, for all regions.
    fn session(
        &self,
        Owner { identity, keys }: &Owner,
        role: &AssumedRole,
        endpoints: &Endpoints,
        (credentials, caching): (SharedCredentialsProvider, Caching),
    ) -> Arc<Session> {
        let (keys, identity, role, sts) = (keys.clone(), identity.clone(), role.clone(), endpoints.sts.clone());
        let key = SessionKey { keys, identity, role, sts };
        self.sessions.find(&key).unwrap_or_else(|| {
            let endpoints = Endpoints { region: key.role.region.clone(), ..endpoints.clone() };
            let sts = self.sts(Some(credentials), caching, &endpoints);
            let session = Session::new(key.role.role.clone(), key.identity.clone(), sts, self.observer.clone());
            self.sessions.keep(key, Arc::clone(&session));
            session
        })
    }

    /// What counts the calls of apps.
    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// For calls that a token signs.
    pub(crate) fn anonymous_sts(&self, target: &Target<'_>) -> Option<sts::Client> {
        self.sts(None, Caching::Never, &target.endpoints)
    }

    /// Clients with an app's keys. They are used once, so they are not kept. Each call to S3 has its own connection.
    pub(crate) fn app(&self, keys: &StaticKeys, target: &Target<'_>) -> AppClients {
        let (keys, endpoints) = (credentials(keys), &target.endpoints);
        let s3 = self.s3(keys.clone(), Caching::Never, endpoints).to_builder();
        AppClients {
            observer: self.observer.clone(),
            s3: s3::Client::from_conf(s3.http_client(self.http.fresh.clone()).build()),
            sts: self.sts(Some(keys), Caching::Never, endpoints),
        }
    }

    /// The SDK's default chain: environment, IRSA, Pod Identity, instance role.
    async fn ambient(&self, endpoints: &Endpoints) -> SharedCredentialsProvider {
        let Endpoints { region, variants, .. } = endpoints;
        let load = async {
            // The region of the STS that is called. Pods with an IAM role have it in their environment.
            let region = ["AWS_REGION", "AWS_DEFAULT_REGION"]
                .into_iter()
                .find_map(|name| std::env::var(name).ok())
                .unwrap_or_else(|| region.clone());
            let chain = aws_config::default_provider::credentials::DefaultCredentialsChain::builder()
                .region(Region::new(region))
                .configure(
                    aws_config::provider_config::ProviderConfig::default()
                        .with_http_client(self.http.pooled.clone())
                        .with_use_fips(Some(variants.fips))
                        .with_use_dual_stack(Some(variants.dual_stack)),
                )
                .build()
                .await;
            SharedCredentialsProvider::new(chain)
        };
        self.ambient.get_or_init(|| load).await.clone()
    }

    fn build(
        &self,
        credentials: SharedCredentialsProvider,
        caching: Caching,
        identity: Identity,
        endpoints: &Endpoints,
    ) -> Store {
        let s3 = self.s3(credentials.clone(), caching, endpoints);
        let listing_s3 = s3.to_builder().http_client(self.http.lists.clone()).build();
        Store {
            s3: s3::Client::from_conf(s3),
            listing_s3: s3::Client::from_conf(listing_s3),
            control: self.control(credentials.clone(), caching, endpoints),
            iam: iam::Client::new(&self.global(
                Some(credentials.clone()),
                caching,
                endpoints,
                endpoints.iam.as_deref(),
            )),
            eks: self.eks(&credentials, caching, endpoints),
            sts: self.sts(Some(credentials), caching, endpoints),
            budget: self.budget.of_another_store(),
            account: Account::default(),
            endpoints: endpoints.clone(),
            quotas: Arc::clone(&self.quotas),
            creates_buckets: AtomicBool::new(false),
            refuses_tags: AtomicBool::new(false),
            denies_ownership: AtomicBool::new(false),
            limiters: Arc::clone(&self.limiters),
            observer: self.observer.clone(),
            identity,
            key_id: None,
            session: false,
            role: None,
        }
    }

    fn s3(&self, credentials: SharedCredentialsProvider, caching: Caching, endpoints: &Endpoints) -> s3::Config {
        let config = self.config(Some(credentials), caching, endpoints, (&endpoints.region, endpoints.s3.as_deref()));
        s3::config::Builder::from(&config).force_path_style(endpoints.addressing == Addressing::Path).build()
    }

    /// Its hosts are not those of S3, so it is AWS's own in the region, also beside a private endpoint of S3.
    fn control(
        &self,
        credentials: SharedCredentialsProvider,
        caching: Caching,
        endpoints: &Endpoints,
    ) -> Option<s3control::Client> {
        let config = || self.config(Some(credentials), caching, endpoints, (&endpoints.region, None));
        (!endpoints.s3_is_foreign()).then(|| s3control::Client::new(&config()))
    }

    fn eks(
        &self,
        credentials: &SharedCredentialsProvider,
        caching: Caching,
        endpoints: &Endpoints,
    ) -> Option<eks::Client> {
        let Eks { region, url } = endpoints.eks.as_ref()?;
        let config = self.config(Some(credentials.clone()), caching, endpoints, (region, url.as_deref()));
        Some(eks::Client::new(&config))
    }

    fn sts(
        &self,
        credentials: Option<SharedCredentialsProvider>,
        caching: Caching,
        endpoints: &Endpoints,
    ) -> Option<sts::Client> {
        let url = match &endpoints.sts {
            Sts::Aws => None,
            Sts::At(url) => Some(url.as_str()),
            Sts::Unknown => return None,
        };
        Some(sts::Client::new(&self.global(credentials, caching, endpoints, url)))
    }

    /// For IAM and STS.
    fn global(
        &self,
        credentials: Option<SharedCredentialsProvider>,
        caching: Caching,
        endpoints: &Endpoints,
        url: Option<&str>,
    ) -> SdkConfig {
        let region = url.map_or(endpoints.region.as_str(), |url| signing_region(url, &endpoints.region));
        self.config(credentials, caching, endpoints, (region, url))
    }

    fn config(
        &self,
        credentials: Option<SharedCredentialsProvider>,
        caching: Caching,
        endpoints: &Endpoints,
        (region, url): (&str, Option<&str>),
    ) -> SdkConfig {
        // There are none of them behind a custom endpoint.
        let Variants { fips, dual_stack } = if url.is_none() { endpoints.variants } else { Variants::default() };
        let mut config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(self.http.pooled.clone())
            .identity_cache(caching.identities())
            .region(Region::new(region.to_owned()))
            .use_fips(fips)
            .use_dual_stack(dual_stack)
            // Other stores do not support the checksums that the SDK adds by default.
            .request_checksum_calculation(s3::config::RequestChecksumCalculation::WhenRequired)
            .response_checksum_validation(s3::config::ResponseChecksumValidation::WhenRequired)
            // `Store` repeats some calls, and the controller a verb as a whole, with a backoff for each claim.
            .retry_config(RetryConfig::disabled())
            // Each call has a time limit.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(
                TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(CALL_TIMEOUT).build(),
            );
        config.set_credentials_provider(credentials);
        config.set_endpoint_url(url.map(str::to_owned)).set_app_name(app_name());
        config.build()
    }
}

/// Whether a client remembers what its credentials provider answered.
#[derive(Clone, Copy)]
enum Caching {
    /// For keys that do not change.
    Never,
    /// For temporary credentials, which are kept until shortly before they expire.
    UntilExpiry,
}

impl Caching {
    fn identities(self) -> SharedIdentityCache {
        match self {
            Self::Never => s3::config::IdentityCache::no_cache(),
            Self::UntilExpiry => s3::config::IdentityCache::lazy().build(),
        }
    }
}

/// The region for which a call to IAM or STS at this URL is signed: a regional endpoint of AWS accepts only its own, and one
/// without a region that of IAM. Other stores have one region.
fn signing_region<'a>(url: &'a str, region: &'a str) -> &'a str {
    match host_in(url).filter(|host| is_host_of_aws(host)) {
        Some(host) => region_in(host).unwrap_or(partition(region).iam_region),
        None => region,
    }
}

/// The host in a URL that was checked.
fn host_in(url: &str) -> Option<&str> {
    url.split_once("://")?.1.split(['/', ':']).next()
}

fn credentials(keys: &StaticKeys) -> SharedCredentialsProvider {
    let StaticKeys { id, secret, token } = keys;
    let token = token.as_ref().map(|token| token.expose_secret().to_owned());
    SharedCredentialsProvider::new(Credentials::new(id, secret.expose_secret(), token, None, "aws-s3-provisioner"))
}

fn app_name() -> Option<aws_config::AppName> {
    aws_config::AppName::new("aws-s3-provisioner").ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::environment::Environment;
    use crate::testing::record;
    use bucket_provisioner::store::Permit;

    fn owner(secret: &str) -> Owner {
        let keys = StaticKeys { id: "AKIA1".to_owned(), secret: secret.to_owned().into(), token: None };
        Owner { identity: Identity::App, keys: Some(keys) }
    }

    #[test]
    fn calls_are_signed_for_the_region_of_their_host() {
        for (url, region) in [
            ("https://sts.eu-west-1.amazonaws.com", "eu-west-1"),
            ("https://vpce-0a1b-2c3d.sts.eu-west-3.vpce.amazonaws.com:443/", "eu-west-3"),
            ("https://sts.amazonaws.com", "us-east-1"),
            ("https://iam.global.api.aws/", "us-east-1"),
            ("http://127.0.0.1:5810", "eu-central-1"),
            ("http://[::1]:5810", "eu-central-1"),
        ] {
            assert_eq!(signing_region(url, "eu-central-1"), region, "{url}");
        }
    }

    #[tokio::test]
    async fn an_owner_keeps_its_clients_until_its_key_changes() {
        let clients = Clients::new(Http::new(Permit::new(|| true)));
        let record = record();
        let target = Target::of(&record, &Environment::default());
        let first = clients.store(&owner("a"), &target).await;
        assert!(Arc::ptr_eq(&first, &clients.store(&owner("a"), &target).await));
        assert!(!Arc::ptr_eq(&first, &clients.store(&owner("b"), &target).await));
    }

    #[tokio::test]
    async fn another_region_has_clients_of_its_own() {
        let clients = Clients::new(Http::new(Permit::new(|| true)));
        let (here, mut there) = (record(), record());
        there.plan.endpoint.region = "eu-central-1".into();
        let environment = Environment::default();
        let here = clients.store(&owner("a"), &Target::of(&here, &environment)).await;
        assert!(!Arc::ptr_eq(&here, &clients.store(&owner("a"), &Target::of(&there, &environment)).await));
    }

    #[tokio::test]
    async fn the_number_of_kept_clients_is_limited() {
        let clients = Clients::new(Http::new(Permit::new(|| true)));
        let record = record();
        let target = Target::of(&record, &Environment::default());
        for n in 0..2 * KEPT {
            clients.store(&owner(&n.to_string()), &target).await;
        }
        assert_eq!(clients.kept.entries.lock().len(), KEPT);
    }
}
