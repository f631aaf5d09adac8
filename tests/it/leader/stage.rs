//! What the tests of leadership play in: several operators, and a journal of who called when.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::http::request::Parts;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Api, ResourceExt as _};
use operator_runtime::lease;
use serde_json::json;

use crate::support::aws_proxy::Aws;
use crate::support::operator::Binary;
use crate::support::proxy::{Answer, ApiServer, Call, Described, Fault, Proxy, Upstream, Verdict};
use crate::support::{World, aws_url, seen};

/// A crash is noticed soon, and a machine under load still keeps its lease.
pub(super) const QUICK: [&str; 3] = ["--lease-duration=6s", "--lease-renew-deadline=4s", "--lease-retry-period=1s"];
/// Whoever waits for one of these times is not done within a test's patience.
pub(super) const SLOW: [&str; 3] = ["--lease-duration=10m", "--lease-renew-deadline=9m", "--lease-retry-period=5m"];

/// Who called when: one for all processes of a test.
#[derive(Clone, Default)]
pub(super) struct Journal(Arc<Mutex<Vec<Entry>>>);

/// When who did what.
type Entry = (Instant, &'static str, String);

impl Journal {
    fn note(&self, who: &'static str, call: &str) {
        self.0.lock().unwrap().push((Instant::now(), who, call.to_owned()));
    }

    /// What was done that only a leader may do: everything but calls about leases.
    fn work(&self) -> Vec<(Instant, &'static str, String)> {
        let mut calls = self.0.lock().unwrap().clone();
        calls.retain(|(_, _, call)| !call.ends_with(" leases"));
        calls
    }

    pub(super) fn work_of(&self, who: &str) -> Vec<(Instant, String)> {
        self.work().into_iter().filter(|(_, by, _)| *by == who).map(|(at, _, call)| (at, call)).collect()
    }

    /// Requires that the processes worked one after the other, in this order.
    pub(super) fn assert_order(&self, order: &[&str]) {
        let work = self.work();
        let mut leaders: Vec<&str> = work.iter().map(|(_, who, _)| *who).collect();
        leaders.dedup();
        let shown: Vec<_> = work.iter().map(|(at, who, call)| format!("{:?} {who} {call}", *at - work[0].0)).collect();
        assert_eq!(leaders, order, "{shown:#?}");
    }
}

/// AWS as all operators of a test reach it: at one address, which the ObjectBuckets of claims name. Who calls is
/// known by the key that signs, because each has its own; its name is put before that of the call. Calls that are
/// signed with the keys of claims are attributed to no operator.
#[derive(Clone)]
pub(super) struct SharedAws {
    aws: Arc<Aws>,
    names: Arc<Mutex<BTreeMap<String, &'static str>>>,
    journal: Journal,
    /// How long a call of `first` takes to get there.
    delay: Duration,
}

impl SharedAws {
    fn caller(&self, parts: &Parts) -> Option<&'static str> {
        let signature = parts.headers.get("authorization")?.to_str().ok()?;
        let (_, credential) = signature.split_once("Credential=")?;
        self.names.lock().unwrap().get(credential.split('/').next()?).copied()
    }
}

impl Upstream for SharedAws {
    fn describe(&self, parts: &Parts, body: &Bytes) -> Described {
        let described = self.aws.describe(parts, body);
        let Some(caller) = self.caller(parts) else { return described };
        self.journal.note(caller, &described.name);
        Described { name: format!("{caller} {}", described.name), ..described }
    }

    fn send(&self, request: Request<Full<Bytes>>) -> Pin<Box<dyn Future<Output = Result<Answer, Fault>> + Send>> {
        let (parts, body) = request.into_parts();
        let delay = if self.caller(&parts) == Some("first") { self.delay } else { Duration::ZERO };
        let aws = Arc::clone(&self.aws);
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            aws.send(Request::from_parts(parts, body)).await
        })
    }
}

/// A world in which several operators serve the same claims.
pub(super) struct Stage {
    world: World,
    shared: SharedAws,
    /// In front of the shared AWS.
    pub(super) aws: Proxy<SharedAws>,
    pub(super) journal: Journal,
    pub(super) class: String,
}

impl Deref for Stage {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::with_delay(Duration::ZERO).await
    }

    pub(super) async fn with_delay(delay: Duration) -> Self {
        let (world, journal) = (World::new().await, Journal::default());
        let (aws, names) = (Arc::new(Aws::at(&aws_url())), Arc::default());
        let shared = SharedAws { aws, names, journal: journal.clone(), delay };
        let aws = Proxy::start(shared.clone()).await;
        // Without a Secret: signed with what each operator has in its environment.
        let parameters =
            [("secretName", ""), ("secretNamespace", ""), ("s3Endpoint", &*aws.url), ("iamEndpoint", &*aws.url)];
        let class = world.class_with("shared", "Delete", &parameters).await;
        Self { world, shared, aws, journal, class }
    }

    /// Starts an operator with a lease.
    pub(super) async fn candidate(&self, name: &'static str, args: &[&str]) -> Candidate {
        let (id, secret) = self.owner_key(name).await;
        self.shared.names.lock().unwrap().insert(id.clone(), name);
        let kubernetes = Proxy::start(ApiServer::behind(self.client.clone(), "candidate")).await;
        let journal = self.journal.clone();
        kubernetes.inject(move |call| {
            journal.note(name, &call.name);
            Verdict::Pass
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": kubernetes.url } }],
            "users": [{ "name": "u", "user": { "token": "candidate" } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": self.namespace } }],
        });
        let args = [&["--leader-elect", "--namespace", &self.namespace], args].concat();
        let keys = [("AWS_ACCESS_KEY_ID", &*id), ("AWS_SECRET_ACCESS_KEY", &*secret)];
        let binary = Binary::start_with(self, &kubeconfig, &args, &keys);
        Candidate { name, binary, kubernetes: Some(kubernetes), journal: self.journal.clone() }
    }

    /// A key with all permissions of the provisioning credentials.
    async fn owner_key(&self, name: &str) -> (String, String) {
        let (iam, user) = (&self.account.iam, self.unique(name));
        let all = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
        iam.create_user().user_name(&user).send().await.unwrap();
        iam.put_user_policy().user_name(&user).policy_name("all").policy_document(all).send().await.unwrap();
        let key = iam.create_access_key().user_name(&user).send().await.unwrap().access_key.unwrap();
        (key.access_key_id, key.secret_access_key)
    }

    /// Submits claims; returns their uids.
    pub(super) async fn claim_all(&self, names: &[&str]) -> Vec<String> {
        let mut uids = Vec::new();
        for name in names {
            uids.push(self.claim(name, &self.class).await.uid().unwrap());
        }
        uids
    }

    /// How many times AWS was called so, such as `first CreateUser`.
    pub(super) fn called(&self, call: &str) -> usize {
        count(&self.aws.calls(), call)
    }

    pub(super) async fn wait_called(&self, call: &str, times: usize) {
        self.aws.wait_until(call, |calls| count(calls, call) >= times).await;
    }
}

pub(super) fn count(calls: &[Call], name: &str) -> usize {
    calls.iter().filter(|call| call.name == name).count()
}

/// One operator with a lease, and the proxy that only it uses.
pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) binary: Binary,
    /// Its end is the end of all its connections.
    pub(super) kubernetes: Option<Proxy<ApiServer>>,
    journal: Journal,
}

impl Candidate {
    pub(super) fn kubernetes(&self) -> &Proxy<ApiServer> {
        self.kubernetes.as_ref().expect("it is connected")
    }

    /// From now on, its calls to Kubernetes meet with this.
    pub(super) fn cut_off(&self, verdict: fn() -> Verdict) {
        let (name, journal) = (self.name, self.journal.clone());
        self.kubernetes().inject(move |call| {
            journal.note(name, &call.name);
            verdict()
        });
    }

    /// Waits until it has read the lease, and watches it.
    pub(super) async fn wait_standby(&self) {
        self.wait_called("watch leases", 1).await;
    }

    pub(super) async fn wait_called(&self, call: &str, times: usize) {
        self.kubernetes().wait_until(call, |calls| count(calls, call) >= times).await;
    }

    /// Whether it was the holder in this record.
    pub(super) fn led(&self, term: &LeaseSpec) -> bool {
        let identity = term.holder_identity.as_deref().unwrap();
        self.binary.log().lines().any(|line| line.contains("holding the lease") && line.contains(identity))
    }
}

impl World {
    pub(super) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn lease_name(&self) -> String {
        lease::name(&self.provisioner, Some(&self.namespace))
    }

    /// Waits until the lease's record is as wanted.
    async fn wait_lease(&self, what: &str, wanted: impl Fn(&LeaseSpec) -> bool) -> LeaseSpec {
        let condition = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.as_ref()).is_some_and(&wanted);
        match seen(&self.leases(), &self.lease_name(), condition).await {
            Ok(lease) => lease.unwrap().spec.unwrap(),
            Err(_) => panic!("the lease is not {what}: {:#?}", self.leases().get_opt(&self.lease_name()).await),
        }
    }

    /// Waits until another process than the one before holds the lease.
    pub(super) async fn wait_holder_after(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let before = before.and_then(|record| record.holder_identity.clone());
        let is_new = |record: &LeaseSpec| {
            let holder = record.holder_identity.as_deref().unwrap_or_default();
            !holder.is_empty() && Some(holder) != before.as_deref()
        };
        self.wait_lease("held by the next one", is_new).await
    }

    /// Waits until somebody else than the one before holds the lease; returns the last record of the one before, too.
    /// A killed process may have a renewal under way, so the last one is the one that the next holder replaced.
    pub(super) async fn transfer_from(&self, before: &LeaseSpec) -> (LeaseSpec, LeaseSpec) {
        let last = Mutex::new(before.clone());
        let is_new = |record: &LeaseSpec| {
            let is_new = record.holder_identity != before.holder_identity;
            if !is_new {
                last.lock().unwrap().clone_from(record);
            }
            is_new
        };
        let next = self.wait_lease("held by the next one", is_new).await;
        (last.into_inner().unwrap(), next)
    }

    pub(super) async fn lease(&self) -> LeaseSpec {
        self.leases().get(&self.lease_name()).await.unwrap().spec.unwrap()
    }

    /// Waits until all are bound, and requires one bucket, one user and one key of each: the one it was given.
    pub(super) async fn assert_bound_once(&self, names: &[&str], uids: &[String]) {
        for (name, uid) in names.iter().zip(uids) {
            self.wait_bound(name).await;
            let users = self.account.users_with(uid).await;
            assert_eq!(users.len(), 1, "users of {name}");
            let key = self.environment(name).await["AWS_ACCESS_KEY_ID"].clone();
            assert_eq!(self.account.keys(&users[0]).await, [key], "keys of {name}");
            assert_eq!(self.account.buckets_with(uid).await.len(), 1, "buckets of {name}");
        }
    }
}

pub(super) fn time(time: &Option<MicroTime>) -> Timestamp {
    time.as_ref().expect("the lease has this time").0
}

pub(super) fn now() -> Timestamp {
    SystemTime::now().try_into().unwrap()
}

pub(super) fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}
