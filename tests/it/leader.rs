//! Of several operators one works: real processes on one cluster and one AWS, which tell who called when.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bucket_provisioner::runtime::lease;
use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::http::request::Parts;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Binary, send_signal};
use crate::support::proxy::{Answer, ApiServer, Aws, Call, Fault, Proxy, Upstream, Verdict};
use crate::support::{PATIENCE, World, aws_url, seen};

/// A crash is noticed soon, and a machine under load still keeps its lease.
const QUICK: [&str; 3] = ["--lease-duration=6s", "--lease-renew-deadline=4s", "--lease-retry-period=1s"];
/// Whoever waits for one of these times is not done within a test's patience.
const SLOW: [&str; 3] = ["--lease-duration=10m", "--lease-renew-deadline=9m", "--lease-retry-period=5m"];

/// Who called when: one for all processes of a test.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<Entry>>>);

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

    fn work_of(&self, who: &str) -> Vec<(Instant, String)> {
        self.work().into_iter().filter(|(_, by, _)| *by == who).map(|(at, _, call)| (at, call)).collect()
    }

    /// Requires that the processes worked one after the other, in this order.
    fn assert_turns(&self, order: &[&str]) {
        let work = self.work();
        let mut turns: Vec<&str> = work.iter().map(|(_, who, _)| *who).collect();
        turns.dedup();
        let told: Vec<_> = work.iter().map(|(at, who, call)| format!("{:?} {who} {call}", *at - work[0].0)).collect();
        assert_eq!(turns, order, "{told:#?}");
    }
}

/// AWS as all operators of a test reach it: at one address, which the records of claims name. Who calls is
/// told by the key that signs, for each has one of its own; it stands in front of the call's name. What is
/// signed with the keys of claims is told of nobody.
#[derive(Clone)]
struct SharedAws {
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
    fn describe(&self, parts: &Parts, body: &Bytes) -> (String, bool) {
        let (call, mutates) = self.aws.describe(parts, body);
        let Some(caller) = self.caller(parts) else { return (call, mutates) };
        self.journal.note(caller, &call);
        (format!("{caller} {call}"), mutates)
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
struct Stage {
    world: World,
    shared: SharedAws,
    /// In front of the shared AWS.
    aws: Proxy<SharedAws>,
    journal: Journal,
    class: String,
}

impl Deref for Stage {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Stage {
    async fn new() -> Self {
        Self::with_delay(Duration::ZERO).await
    }

    async fn with_delay(delay: Duration) -> Self {
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
    async fn candidate(&self, name: &'static str, args: &[&str]) -> Candidate {
        let (id, secret) = self.owner_key(name).await;
        self.shared.names.lock().unwrap().insert(id.clone(), name);
        let kubernetes = Proxy::start(ApiServer::behind(self.client.clone())).await;
        let journal = self.journal.clone();
        kubernetes.meddle(move |call| {
            journal.note(name, &call.name);
            Verdict::Pass
        });
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": kubernetes.url } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": self.namespace } }],
        });
        let args = [&["--leader-elect", "--namespace", &self.namespace], args].concat();
        let keys = [("AWS_ACCESS_KEY_ID", &*id), ("AWS_SECRET_ACCESS_KEY", &*secret)];
        let binary = Binary::start_with(self, &kubeconfig, &args, &keys);
        Candidate { name, binary, kubernetes: Some(kubernetes), journal: self.journal.clone() }
    }

    /// A key that may do what the owner may.
    async fn owner_key(&self, name: &str) -> (String, String) {
        let (iam, user) = (&self.account.iam, self.unique(name));
        let all = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
        iam.create_user().user_name(&user).send().await.unwrap();
        iam.put_user_policy().user_name(&user).policy_name("all").policy_document(all).send().await.unwrap();
        let key = iam.create_access_key().user_name(&user).send().await.unwrap().access_key.unwrap();
        (key.access_key_id, key.secret_access_key)
    }

    /// Submits claims; returns their uids.
    async fn claim_all(&self, names: &[&str]) -> Vec<String> {
        let mut uids = Vec::new();
        for name in names {
            uids.push(self.claim(name, &self.class).await.uid().unwrap());
        }
        uids
    }

    /// How many times AWS was called so, such as `first CreateUser`.
    fn called(&self, call: &str) -> usize {
        count(&self.aws.calls(), call)
    }

    async fn wait_called(&self, call: &str, times: usize) {
        self.aws.wait_until(call, |calls| count(calls, call) >= times).await;
    }
}

fn count(calls: &[Call], name: &str) -> usize {
    calls.iter().filter(|call| call.name == name).count()
}

/// One operator with a lease, and the proxy that it alone goes through.
struct Candidate {
    name: &'static str,
    binary: Binary,
    /// Its end is the end of all its connections.
    kubernetes: Option<Proxy<ApiServer>>,
    journal: Journal,
}

impl Candidate {
    fn kubernetes(&self) -> &Proxy<ApiServer> {
        self.kubernetes.as_ref().expect("it is connected")
    }

    /// From now on, its calls to Kubernetes meet with this.
    fn cut_off(&self, verdict: fn() -> Verdict) {
        let (name, journal) = (self.name, self.journal.clone());
        self.kubernetes().meddle(move |call| {
            journal.note(name, &call.name);
            verdict()
        });
    }

    /// Waits until it has looked at the lease, and watches it.
    async fn stands_by(&self) {
        self.wait_called("watch leases", 1).await;
    }

    async fn wait_called(&self, call: &str, times: usize) {
        self.kubernetes().wait_until(call, |calls| count(calls, call) >= times).await;
    }

    /// Whether it was the one with this record.
    fn led(&self, term: &LeaseSpec) -> bool {
        let identity = term.holder_identity.as_deref().unwrap();
        self.binary.log().lines().any(|line| line.contains(" leading ") && line.contains(identity))
    }
}

impl World {
    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn lease_name(&self) -> String {
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

    /// Waits until somebody else than the one before holds the lease.
    async fn wait_holder_after(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let before = before.and_then(|record| record.holder_identity.clone());
        let is_new = |record: &LeaseSpec| {
            let holder = record.holder_identity.as_deref().unwrap_or_default();
            !holder.is_empty() && Some(holder) != before.as_deref()
        };
        self.wait_lease("held by the next one", is_new).await
    }

    async fn lease(&self) -> LeaseSpec {
        self.leases().get(&self.lease_name()).await.unwrap().spec.unwrap()
    }

    /// Waits until all are bound, and requires one bucket, one user and one key of each: the one it was given.
    async fn assert_bound_once(&self, names: &[&str], uids: &[String]) {
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

fn time(time: &Option<MicroTime>) -> Timestamp {
    time.as_ref().expect("the lease has this time").0
}

fn now() -> Timestamp {
    SystemTime::now().try_into().unwrap()
}

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

#[tokio::test]
async fn of_three_operators_one_works_at_any_time_whatever_ends_it() {
    let stage = Stage::new().await;
    let first = stage.candidate("first", &QUICK).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &QUICK).await;
    let third = stage.candidate("third", &QUICK).await;
    second.stands_by().await;
    third.stands_by().await;
    let one = stage.claim_all(&["a", "b", "c"]).await;
    stage.assert_bound_once(&["a", "b", "c"], &one).await;

    // It is told to stop while it works.
    let two = stage.claim_all(&["d", "e", "f"]).await;
    first.binary.terminate();
    let second_term = stage.wait_holder_after(Some(&first_term)).await;
    stage.assert_bound_once(&["d", "e", "f"], &two).await;
    let (leader, last) = if second.led(&second_term) { (second, third) } else { (third, second) };
    assert_eq!(stage.journal.work_of(last.name), [], "who stands by works nothing and watches nothing");

    // It is killed while it works.
    let create_user = format!("{} CreateUser", leader.name);
    let created = stage.called(&create_user);
    let three = stage.claim_all(&["g", "h", "i"]).await;
    stage.wait_called(&create_user, created + 1).await;
    leader.binary.kill().await;
    stage.wait_holder_after(Some(&second_term)).await;
    stage.assert_bound_once(&["g", "h", "i"], &three).await;
    let four = stage.claim_all(&["j"]).await;
    stage.assert_bound_once(&["j"], &four).await;
    stage.journal.assert_turns(&["first", leader.name, last.name]);
    assert_eq!(stage.lease().await.lease_transitions, Some(2));
}

#[tokio::test]
async fn a_killed_leader_is_replaced_within_the_lease_duration_and_a_retry_period() {
    let stage = Stage::new().await;
    let timing = ["--lease-duration=4s", "--lease-renew-deadline=3s", "--lease-retry-period=1s"];
    let first = stage.candidate("first", &timing).await;
    stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &timing).await;
    second.stands_by().await;

    let claims = ["a", "b", "c", "d", "e", "f"];
    let uids = stage.claim_all(&claims).await;
    stage.wait_called("first CreateAccessKey", 1).await;
    first.binary.kill().await;
    let last_renewal = stage.lease().await;
    let next = stage.wait_holder_after(Some(&last_renewal)).await;
    let took = time(&next.acquire_time).duration_since(time(&last_renewal.renew_time));
    println!("taken over {took:#} after the last renewal of the killed leader");
    assert!(took >= seconds(4), "too early: {took:#}");
    assert!(took <= seconds(4 + 1), "too late: {took:#}");
    stage.assert_bound_once(&claims, &uids).await;
    stage.journal.assert_turns(&["first", "second"]);
}

#[tokio::test]
async fn a_stopped_leader_hands_over_at_once() {
    let stage = Stage::new().await;
    let mut first = stage.candidate("first", &SLOW).await;
    let first_term = stage.wait_holder_after(None).await;
    let mut second = stage.candidate("second", &SLOW).await;
    second.stands_by().await;
    let asked = now();
    first.binary.terminate();
    // With these times neither expiry nor the next look is seen within a test's patience.
    let second_term = stage.wait_holder_after(Some(&first_term)).await;
    println!("handed over {:#} after SIGTERM", time(&second_term.acquire_time).duration_since(asked));
    first.binary.ended(PATIENCE).await;

    // With nobody to take it, one sees how it was given back.
    second.binary.terminate();
    second.binary.ended(PATIENCE).await;
    let released = stage.lease().await;
    assert_eq!(released.holder_identity.as_deref(), Some(""));
    assert_eq!(released.lease_duration_seconds, Some(1));
    assert_eq!(released.lease_transitions, Some(1));
    assert!(time(&released.renew_time) > time(&second_term.acquire_time));
    let _third = stage.candidate("third", &SLOW).await;
    stage.wait_holder_after(None).await;
}

#[tokio::test]
async fn a_leader_that_takes_its_time_to_stop_keeps_the_lease_until_then() {
    let stage = Stage::new().await;
    let mut first = stage.candidate("first", &QUICK).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &QUICK).await;
    second.stands_by().await;
    stage.aws.meddle(|call| if call.name == "first CreateUser" { Verdict::Hang } else { Verdict::Pass });
    let uids = stage.claim_all(&["a"]).await;
    stage.wait_called("first CreateUser", 1).await;
    let asked = now();
    first.binary.terminate();
    first.binary.ended(Duration::from_secs(10)).await;
    let second_term = stage.wait_holder_after(Some(&first_term)).await;
    // Eight seconds of grace are longer than the six of the lease.
    let after = time(&second_term.acquire_time).duration_since(asked);
    println!("handed over {after:#} after SIGTERM, with a call that never returns");
    assert!(after >= seconds(8), "taken over from a leader that worked still: {after:#}");
    stage.assert_bound_once(&["a"], &uids).await;
}

/// What becomes of the calls of a leader that is cut off.
#[derive(Debug, Clone, Copy)]
enum Outage {
    Hanging,
    Refused,
    Failing,
}

#[rstest]
#[case::calls_that_hang(Outage::Hanging)]
#[case::refused_connections(Outage::Refused)]
#[case::server_errors(Outage::Failing)]
#[tokio::test]
async fn a_leader_cut_off_from_the_api_server_has_ended_before_another_starts(#[case] outage: Outage) {
    // AWS stays open, and its calls take so long that there is work for longer than it may work.
    let stage = Stage::with_delay(Duration::from_secs(3)).await;
    let timing = ["--lease-duration=9s", "--lease-renew-deadline=5s", "--lease-retry-period=1s"];
    let mut first = stage.candidate("first", &timing).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &timing).await;
    second.stands_by().await;
    let uids = stage.claim_all(&["a"]).await;
    stage.wait_called("first CreateBucket", 1).await;
    match outage {
        Outage::Hanging => first.cut_off(|| Verdict::Hang),
        Outage::Failing => first.cut_off(|| Verdict::Answer(500, "broken".to_owned())),
        Outage::Refused => drop(first.kubernetes.take()),
    }
    let status = first.binary.exit_status(PATIENCE).await;
    let ended = now();
    assert_eq!(status.code(), Some(1), "{}", first.binary.log());
    assert!(first.binary.log().contains("could not be renewed within 5 s"), "{}", first.binary.log());

    let second_term = stage.wait_holder_after(Some(&first_term)).await;
    let margin = time(&second_term.acquire_time).duration_since(ended);
    println!("{outage:?}: the next one starts {margin:#} after the end of the one before");
    assert!(margin > SignedDuration::ZERO, "the next one started {margin:#} too early");
    assert_eq!(stage.called("first CreateUser"), 1, "it worked for as long as it might");
    stage.assert_bound_once(&["a"], &uids).await;
    stage.journal.assert_turns(&["first", "second"]);
}

#[tokio::test]
async fn a_leader_that_was_suspended_for_too_long_calls_nobody_when_it_wakes() {
    let stage = Stage::new().await;
    let mut first = stage.candidate("first", &QUICK).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &QUICK).await;
    second.stands_by().await;
    // The answer to a call is there when it wakes, and would be followed by the next call.
    let pid = first.binary.pid();
    stage.aws.meddle(move |call| {
        if call.name == "first CreateUser" {
            send_signal("STOP", pid);
        }
        Verdict::Pass
    });
    let uids = stage.claim_all(&["a"]).await;
    stage.wait_holder_after(Some(&first_term)).await;
    stage.assert_bound_once(&["a"], &uids).await;
    send_signal("CONT", pid);
    let status = first.binary.exit_status(PATIENCE).await;
    assert_eq!(status.code(), Some(1), "{}", first.binary.log());
    stage.journal.assert_turns(&["first", "second"]);
    stage.assert_bound_once(&["a"], &uids).await;
}

#[rstest]
#[case::an_hour_ahead(3600)]
#[case::an_hour_behind(-3600)]
#[tokio::test]
async fn a_holder_whose_clock_is_wrong_is_replaced_when_it_was_silent_for_its_duration(#[case] skew: i64) {
    let stage = Stage::new().await;
    let clock = Some(MicroTime(now() + seconds(skew)));
    let record = LeaseSpec {
        holder_identity: Some("nobody".to_owned()),
        lease_duration_seconds: Some(5),
        acquire_time: clock.clone(),
        renew_time: clock,
        lease_transitions: Some(3),
        ..LeaseSpec::default()
    };
    let mut preset = Lease { spec: Some(record.clone()), ..Lease::default() };
    preset.metadata.name = Some(stage.lease_name());
    let written = now();
    stage.leases().create(&PostParams::default(), &preset).await.unwrap();
    let candidate = stage.candidate("first", &QUICK).await;
    let next = stage.wait_holder_after(Some(&record)).await;
    let took = time(&next.acquire_time).duration_since(written);
    println!("clock {skew} s off: taken over {took:#} after it was written");
    assert!(took >= seconds(5), "too early: {took:#}");
    assert_eq!(next.lease_transitions, Some(4));
    assert!(candidate.binary.log().contains("nobody"), "{}", candidate.binary.log());
}

#[tokio::test]
async fn without_leader_election_no_lease_is_written() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let args = ["--leader-elect=false", "--lease-namespace", &world.namespace];
    let _operator = Binary::start(&world, &args, &[]);
    world.claim("a", &class).await;
    world.wait_bound("a").await;
    assert!(world.leases().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(!world.kubernetes.names().iter().any(|name| name.ends_with(" leases")));
}

#[tokio::test]
async fn operators_of_different_provisioners_work_side_by_side() {
    let (here, there) = (World::new().await, World::new().await);
    let args = [&["--leader-elect", "--lease-namespace", &here.namespace], &SLOW[..]].concat();
    let _operators = [Binary::start(&here, &args, &[]), Binary::start(&there, &args, &[])];
    for world in [&here, &there] {
        let class = world.class("greenfield").await;
        world.claim("a", &class).await;
        world.wait_bound("a").await;
    }
    let leases = here.leases().list(&ListParams::default()).await.unwrap();
    let names: BTreeSet<_> = leases.iter().map(|lease| lease.name_any()).collect();
    assert_eq!(names, [here.lease_name(), there.lease_name()].into());
}

#[tokio::test]
async fn what_is_in_the_way_of_the_lease_is_told_once_with_its_remedy() {
    let stage = Stage::new().await;
    let missing = format!("{}-missing", stage.namespace);
    let hasty = ["--lease-retry-period=100ms", "--lease-namespace", &missing];
    let candidate = stage.candidate("first", &hasty).await;
    candidate.wait_called("get leases", 5).await;
    let lines = |what: &str| candidate.binary.log().lines().filter(|line| line.contains(what)).count();
    let name = format!("{missing}/{}", stage.lease_name());
    let log = candidate.binary.log();
    assert_eq!(lines("not found"), 1, "{log}");
    assert!(log.contains(&name) && log.contains("create it, or choose another namespace"), "{log}");

    let forbidden = || {
        let status = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "leases is forbidden" });
        Verdict::Answer(403, status.to_string())
    };
    candidate.cut_off(forbidden);
    let tries = count(&candidate.kubernetes().calls(), "get leases");
    candidate.wait_called("get leases", tries + 5).await;
    let log = candidate.binary.log();
    assert_eq!(lines("leases is forbidden"), 1, "{log}");
    assert!(log.contains("deploy/operator.yaml"), "{log}");
    assert_eq!(lines("serving claims"), 0, "{log}");

    candidate.kubernetes().leave_alone();
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": missing } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), &missing);
    seen(&leases, &stage.lease_name(), |lease| lease.is_some()).await.expect("it leads");
    namespaces.delete(&missing, &DeleteParams::default()).await.unwrap();
}
