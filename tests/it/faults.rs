//! Every call of every flow, failed in every way. The calls are those of a clean run, so that a new one is
//! covered by itself. Whatever fails, the claim arrives, says meanwhile what it waits for, costs a bounded number
//! of calls, and holds nobody up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bucket_provisioner::aws::AwsProvisioner;
use bucket_provisioner::controller::{self, Options};
use bucket_provisioner::runtime;
use futures::{FutureExt as _, StreamExt as _};
use hyper::Response;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::support::operator::Operator;
use crate::support::other::OtherCluster;
use crate::support::proxy::{Aws, Call, Proxy, Verdict, expired, expired_in_stream};
use crate::support::{World, aws_url, ready};

/// The nth call of a name since the flow began, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Nth {
    name: String,
    nth: usize,
}

/// The calls of a clean run.
fn enumerate(names: Vec<String>) -> Vec<Nth> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut nth = |name: String| {
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        Nth { nth: *count - 1, name }
    };
    names.into_iter().map(&mut nth).collect()
}

/// Calls of one flow, failed in one way.
#[derive(Debug, Clone)]
struct Case<W, F> {
    flow: W,
    calls: Vec<Nth>,
    fault: F,
}

impl<W: fmt::Debug, F: fmt::Debug> fmt::Display for Case<W, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?}", self.flow, self.fault)?;
        self.calls.iter().try_for_each(|Nth { name, nth }| write!(f, ", {name} #{nth}"))
    }
}

/// Runs all cases, some at a time, and tells all that failed.
async fn run_all<W: fmt::Debug, F: fmt::Debug, T>(
    cases: Vec<Case<W, F>>,
    at_a_time: usize,
    run: impl AsyncFn(usize, &Case<W, F>) -> T,
) -> Vec<T> {
    let run = &run;
    let outcomes: Vec<_> = futures::stream::iter(cases.iter().enumerate())
        .map(async |(number, case)| {
            let outcome = std::panic::AssertUnwindSafe(run(number, case)).catch_unwind().await;
            outcome.map_err(|panic| {
                let message = panic.downcast_ref::<String>().map(String::as_str);
                format!("{case}: {}", message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked"))
            })
        })
        .buffer_unordered(at_a_time)
        .collect()
        .await;
    let (done, failed): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let failed: Vec<_> = failed.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), cases.len(), failed.join("\n\n"));
    done.into_iter().filter_map(Result::ok).collect()
}

// AWS.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Provision,
    Grant,
    Repair,
    Adopt,
    Delete,
    Revoke,
}

const FLOWS: [Flow; 6] = [Flow::Provision, Flow::Grant, Flow::Repair, Flow::Adopt, Flow::Delete, Flow::Revoke];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AwsFault {
    Throttled,
    Failing,
    Unavailable,
    Refused,
    Reset,
    Silent,
    /// AWS has done it, and its answer cannot be read.
    Garbled,
    Denied,
}

const AWS_FAULTS: [AwsFault; 8] = [
    // Those that take longest first.
    AwsFault::Silent,
    AwsFault::Throttled,
    AwsFault::Failing,
    AwsFault::Unavailable,
    AwsFault::Refused,
    AwsFault::Reset,
    AwsFault::Garbled,
    AwsFault::Denied,
];

impl AwsFault {
    fn verdict(self, call: &Call) -> Verdict {
        let is_iam = call.target == "/";
        let error = |status, code: &str| {
            let error = format!("<Error><Code>{code}</Code><Message>so it is</Message></Error>");
            Verdict::Answer(status, if is_iam { format!("<ErrorResponse>{error}</ErrorResponse>") } else { error })
        };
        match self {
            Self::Throttled if is_iam => error(400, "Throttling"),
            Self::Throttled => error(503, "SlowDown"),
            Self::Failing => error(500, "InternalError"),
            Self::Unavailable => Verdict::Answer(503, String::new()),
            Self::Denied => error(403, "AccessDenied"),
            Self::Reset => Verdict::Reset,
            // What refuses connections is the proxy itself: see `Meddler`.
            Self::Silent | Self::Refused => Verdict::Hang,
            Self::Garbled => Verdict::Distort(|answer| answer.map(|_| "neither here nor there".into())),
        }
    }

    /// Whether it is there until the claim says so. An answer that cannot be read may not have mattered, and a store
    /// that is not AWS may have no account to tell.
    fn lasts(self, operation: &str) -> bool {
        let has_no_sts = matches!(self, Self::Denied | Self::Unavailable) && operation == "GetCallerIdentity";
        self != Self::Garbled && !has_no_sts
    }

    /// What a claim may say of it.
    fn reasons(self) -> &'static [&'static str] {
        match self {
            Self::Throttled | Self::Unavailable => &["Throttled"],
            Self::Failing => &["StoreFailing"],
            Self::Refused | Self::Reset | Self::Silent => &["StoreUnreachable"],
            // New keys are denied while they are not known everywhere.
            Self::Denied => &["AccessDenied", "WaitingForCredentials"],
            Self::Garbled => &[],
        }
    }
}

/// A claim with a way to AWS of its own.
struct Cell<'a> {
    world: &'a World,
    aws: Proxy<Aws>,
    claim: String,
    class: String,
    flow: Flow,
}

impl<'a> Cell<'a> {
    /// Everything that the flow begins with.
    async fn prepare(world: &'a World, name: String, flow: Flow) -> Self {
        let aws = Proxy::start(Aws::at(&aws_url())).await;
        world.owner_secret(&format!("{name}-owner"), &OWNER).await;
        let archive = world.unique(&name);
        let mut parameters = vec![
            ("secretName", format!("{name}-owner")),
            ("s3Endpoint", aws.url.clone()),
            ("iamEndpoint", aws.url.clone()),
        ];
        if matches!(flow, Flow::Grant | Flow::Revoke) {
            world.account.create_bucket(&archive).await;
            parameters.push(("bucketName", archive));
        }
        let parameters: Vec<_> = parameters.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let class = world.class_with(&name, "Delete", &parameters).await;
        let cell = Self { world, aws, claim: name, class, flow };
        if !matches!(flow, Flow::Provision | Flow::Grant) {
            cell.submit().await;
            world.wait_bound(&cell.claim).await;
            let bucket = world.environment(&cell.claim).await["BUCKET_NAME"].clone();
            world.account.put(&bucket, "a").await.unwrap();
        }
        if flow == Flow::Adopt {
            cell.restore().await;
        }
        cell.aws.clear();
        cell
    }

    /// Takes the claim out of the cluster, and brings it back from a backup.
    async fn restore(&self) {
        let Self { world, claim, .. } = self;
        let backup = world.back_up(claim).await;
        let record = world.record_name(claim);
        world.say(&record, "forget").await;
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.wait_record_gone(&record).await;
        for object in [&backup.secret, &backup.config_map, &backup.record, &backup.claim] {
            world.restore(object).await;
        }
        world.wait_reason(claim, "AdoptionNeeded").await;
    }

    async fn submit(&self) {
        let mut spec = json!({ "storageClassName": self.class });
        if !matches!(self.flow, Flow::Grant | Flow::Revoke) {
            spec["generateBucketName"] = json!("b");
        }
        self.world.claim_with(&self.claim, spec).await;
    }

    /// Goes the way, with whatever the proxy does to it; `meanwhile` runs once it is begun.
    async fn run(&self, meanwhile: impl Future<Output = ()>) {
        let Self { world, claim, .. } = self;
        let user = format!("{}-{claim}-", world.namespace);
        let users = || world.account.users_with(&user);
        match self.flow {
            Flow::Provision | Flow::Grant => {
                self.submit().await;
                meanwhile.await;
                world.wait_bound(claim).await;
            }
            Flow::Repair => {
                let old = world.environment(claim).await["AWS_ACCESS_KEY_ID"].clone();
                world.secrets().delete(claim, &DeleteParams::default()).await.unwrap();
                meanwhile.await;
                world.wait_secret(claim, |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
                world.wait_reason(claim, "Bound").await;
            }
            Flow::Adopt => {
                world.say(&world.record_name(claim), "adopt").await;
                meanwhile.await;
                world.wait_bound(claim).await;
                world.wait_reason(claim, "Bound").await;
            }
            Flow::Delete | Flow::Revoke => {
                let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
                world.delete_claim(claim).await;
                meanwhile.await;
                world.wait_gone(claim).await;
                world.assert_no_objects(claim).await;
                assert!(users().await.is_empty(), "a user is left");
                assert_eq!(world.account.bucket_exists(&bucket).await, self.flow == Flow::Revoke, "{bucket}");
                return;
            }
        }
        let environment = world.environment(claim).await;
        world.app(claim).await.put(&environment["BUCKET_NAME"], "b").await.unwrap();
        let users = users().await;
        assert_eq!(users.len(), 1, "{users:?}");
        assert_eq!(world.account.keys(&users[0]).await, [environment["AWS_ACCESS_KEY_ID"].clone()]);
    }

    /// Waits until the claim says that something is in the way of this call; returns the reason, if it is in the way of
    /// the claim as well: one that adopts what was made goes on without tags that cannot be written now.
    async fn told_of(&self, call: &str) -> Option<String> {
        if self.flow == Flow::Adopt && !["ListObjectsV2", "GetObject"].contains(&call) {
            self.world.wait_event(&self.claim, "CheckFailed").await;
            return None;
        }
        Some(self.told().await)
    }

    /// Waits until the claim says that something is in the way; returns the reason.
    async fn told(&self) -> String {
        let in_order = |reason: &str| ["Bound", "AdoptionNeeded"].contains(&reason);
        let in_the_way = |claim: &_| ready(claim).is_some_and(|ready| !in_order(&ready.reason));
        let claim = self.world.wait_claim(&self.claim, "told why", in_the_way).await;
        ready(&claim).unwrap().reason.clone()
    }

    /// Has one call fail, until the claim says so where the fault lasts.
    async fn run_with(&self, call: &Nth, fault: AwsFault) -> Outcome {
        let (hit, lifted) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let mut seen = 0;
        // A bucket that existed before may be one to write to only.
        let may_be_so = (self.flow, fault, call.name.as_str()) == (Flow::Grant, AwsFault::Denied, "GetObject");
        let lasts = fault.lasts(&call.name) && !may_be_so;
        let name = call.name.clone();
        let (rule_hit, rule_lifted, call) = (Arc::clone(&hit), Arc::clone(&lifted), call.clone());
        self.aws.meddle(move |now| {
            if now.name != call.name {
                return Verdict::Pass;
            }
            seen += 1;
            if seen <= call.nth || rule_lifted.load(Ordering::SeqCst) {
                return Verdict::Pass;
            }
            rule_lifted.store(!lasts, Ordering::SeqCst);
            rule_hit.notify_one();
            fault.verdict(now)
        });
        let reason = std::cell::OnceCell::new();
        let meanwhile = async {
            if !lasts {
                return;
            }
            hit.notified().await;
            if fault == AwsFault::Refused {
                self.aws.down().await;
            }
            let told = self.told_of(&name).await;
            lifted.store(true, Ordering::SeqCst);
            if fault == AwsFault::Refused {
                self.aws.up();
            }
            if fault == AwsFault::Denied {
                // Permissions are mended where nothing watches; touching the Secret has the claim tried at once.
                let touch = Patch::Merge(json!({ "metadata": { "annotations": { "mended": "yes" } } }));
                let owner = format!("{}-owner", self.claim);
                self.world.secrets().patch(&owner, &PatchParams::default(), &touch).await.unwrap();
            }
            if let Some(told) = told {
                assert!(fault.reasons().contains(&told.as_str()), "told {told}");
                reason.set(told).unwrap();
            }
        };
        self.run(meanwhile).await;
        Outcome { reason: reason.into_inner(), calls: self.aws.calls().len() }
    }
}

struct Outcome {
    reason: Option<String>,
    calls: usize,
}

const OWNER: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_aws_call_of_every_flow_may_fail_in_every_way() {
    let world = World::new().await;
    let _operator = Operator::with(&world, Options { concurrency: 100, ..Operator::options(&world) });
    let mut cases = vec![];
    let mut clean = BTreeMap::new();
    for flow in FLOWS {
        let cell = Cell::prepare(&world, format!("clean-{flow:?}").to_lowercase(), flow).await;
        cell.run(async {}).await;
        let calls = enumerate(cell.aws.names());
        clean.insert(flow, calls.len());
        println!("{flow:?}: {} AWS calls × {} faults", calls.len(), AWS_FAULTS.len());
        for fault in AWS_FAULTS {
            cases.extend(calls.iter().map(|call| Case { flow, calls: vec![call.clone()], fault }));
        }
    }
    cases.sort_by_key(|case| case.fault != AwsFault::Silent);
    let total = cases.len();
    let most = AtomicUsize::new(0);
    let reasons = run_all(cases, 60, async |number, case| {
        let cell = Cell::prepare(&world, format!("c{number}"), case.flow).await;
        let Outcome { reason, calls } = cell.run_with(&case.calls[0], case.fault).await;
        most.fetch_max(calls, Ordering::SeqCst);
        assert!(calls <= 5 * clean[&case.flow], "{calls} calls: {:?}", cell.aws.names());
        reason
    })
    .await;
    let reasons: BTreeSet<_> = reasons.into_iter().flatten().collect();
    println!("{total} cases; the most calls of one: {most:?}; claims were told {reasons:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_calls_to_aws_all_fail_holds_nobody_up() {
    let all = futures::future::join_all(AWS_FAULTS.into_iter().filter(|fault| fault.lasts("")).map(async |fault| {
        let world = World::new().await;
        let _operator = Operator::with(&world, Options { concurrency: 1, ..Operator::options(&world) });
        let stuck = Cell::prepare(&world, "stuck".to_owned(), Flow::Provision).await;
        stuck.aws.meddle(move |call| fault.verdict(call));
        if fault == AwsFault::Refused {
            stuck.aws.down().await;
        }
        let class = world.class("greenfield").await;
        stuck.submit().await;
        if fault != AwsFault::Refused {
            stuck.aws.wait_until("a call", |calls| !calls.is_empty()).await;
        }
        for claim in ["one", "two"] {
            world.claim(claim, &class).await;
            world.wait_bound(claim).await;
        }
        let told = stuck.told().await;
        assert!(fault.reasons().contains(&told.as_str()), "{fault:?} is told as {told}");
        assert!(stuck.aws.calls().len() <= 12, "{fault:?}: {:?}", stuck.aws.names());
    }));
    all.await;
}

// Kubernetes.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KubernetesFault {
    Conflict,
    TooManyRequests,
    Failing,
    Silent,
    Reset,
    /// The API server goes, and all connections with it, and comes again.
    Restarted,
    /// A watch is ended as soon as it is begun.
    Closed,
    /// What a watch asks for is too old, until it is listed anew.
    Gone,
    GoneInStream,
}

impl KubernetesFault {
    const ANY: [Self; 6] =
        [Self::Silent, Self::Conflict, Self::TooManyRequests, Self::Failing, Self::Reset, Self::Restarted];
    const WATCH: [Self; 3] = [Self::Closed, Self::Gone, Self::GoneInStream];

    /// How often it is met.
    fn times(self) -> usize {
        match self {
            Self::TooManyRequests => 3,
            Self::Closed => 2,
            Self::Gone => usize::MAX,
            _ => 1,
        }
    }

    fn verdict(self) -> Verdict {
        let status = |code: u16, reason: &str| {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "so it is", "reason": reason, "code": code,
            });
            Verdict::Answer(code, status.to_string())
        };
        match self {
            Self::Conflict => status(409, "Conflict"),
            Self::TooManyRequests => status(429, "TooManyRequests"),
            Self::Failing => status(500, "InternalError"),
            Self::Silent | Self::Restarted => Verdict::Hang,
            Self::Reset => Verdict::Reset,
            Self::Closed => Verdict::AnswerWith(Response::new(String::new())),
            Self::Gone => expired(),
            Self::GoneInStream => expired_in_stream(),
        }
    }
}

/// How long these operators wait for Kubernetes: less than others, for there is much silence here.
const ANSWER_LIMIT: Duration = Duration::from_secs(8);

/// An operator that runs until what is returned is dropped.
fn operator(world: &World) -> JoinSet<()> {
    let config = kube::Config::new(world.kubernetes.url.parse().unwrap());
    let client = runtime::cluster::client(config, ANSWER_LIMIT).unwrap();
    let options = Operator::options(world);
    let provisioner = AwsProvisioner::new(&options.provisioner_name);
    let mut operator = JoinSet::new();
    operator.spawn(controller::run(client, provisioner, options, std::future::pending()));
    operator
}

/// A claim's whole life, from the start of the operator on; what it calls in between.
async fn life(world: &World) -> Vec<String> {
    let class = world.class("greenfield").await;
    let uid = world.claim("photos", &class).await.uid().unwrap();
    let _operator = operator(world);
    world.wait_bound("photos").await;
    let environment = world.environment("photos").await;
    world.app("photos").await.put(&environment["BUCKET_NAME"], "a").await.unwrap();
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    world.wait_secret("photos", |keys| keys["AWS_ACCESS_KEY_ID"] != environment["AWS_ACCESS_KEY_ID"]).await;
    world.wait_reason("photos", "Bound").await;
    world.app("photos").await.put(&environment["BUCKET_NAME"], "b").await.unwrap();
    let users = world.account.users_with(&uid).await;
    assert_eq!(users.len(), 1, "{users:?}");
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    assert_eq!(world.account.keys(&users[0]).await, [key]);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
    world.delete_class(&class).await;
    assert!(world.account.users_with(&uid).await.is_empty(), "the user is left");
    assert!(world.account.buckets_with(&uid).await.is_empty(), "the bucket is left");
    world.kubernetes.names()
}

/// Has calls fail when they come for the nth time; returns how many of them came, and all calls.
async fn life_with(world: &World, failing: &[Nth], fault: KubernetesFault) -> (usize, Vec<String>) {
    let (hit, hits) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (rule_hit, rule_hits) = (Arc::clone(&hit), Arc::clone(&hits));
    let mut failing: Vec<_> = failing.iter().map(|call| (call.clone(), 0, fault.times())).collect();
    world.kubernetes.meddle(move |now| {
        for (call, seen, left) in &mut failing {
            if fault == KubernetesFault::Gone && *seen > call.nth && now.name == call.name.replace("watch", "list") {
                *left = 0;
            }
            if now.name != call.name {
                continue;
            }
            *seen += 1;
            if *seen <= call.nth || *left == 0 {
                continue;
            }
            if *left == fault.times() {
                rule_hits.fetch_add(1, Ordering::SeqCst);
            }
            *left -= 1;
            rule_hit.notify_one();
            return fault.verdict();
        }
        Verdict::Pass
    });
    let restart = async {
        loop {
            hit.notified().await;
            if fault == KubernetesFault::Restarted {
                world.kubernetes.down().await;
                world.kubernetes.up();
            }
        }
    };
    let calls = tokio::select! {
        calls = life(world) => calls,
        () = restart => unreachable!(),
    };
    (hits.load(Ordering::SeqCst), calls)
}

/// Of the faults that cost no time, one life has several, far apart: a life is much work for two cores. Not
/// too many, for each failure in a row doubles the wait.
const IN_ONE_LIFE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kubernetes_call_of_a_whole_life_may_fail_in_every_way() {
    // Each operator watches all classes and ObjectBuckets of its cluster: here it sees those of this test only.
    let other = OtherCluster::take().await;
    let calls = enumerate(life(&other.world().await).await);
    let (clean, mut total) = (calls.len(), 0);
    let mut cases = vec![];
    for fault in KubernetesFault::ANY.into_iter().chain(KubernetesFault::WATCH) {
        let fits = |call: &&Nth| KubernetesFault::ANY.contains(&fault) || call.name.starts_with("watch");
        let failing: Vec<_> = calls.iter().filter(fits).cloned().collect();
        total += failing.len();
        let lives = if fault == KubernetesFault::Silent { failing.len() } else { failing.len().div_ceil(IN_ONE_LIFE) };
        cases.extend((0..lives).map(|first| {
            let calls = failing.iter().skip(first).step_by(lives).cloned().collect();
            Case { flow: "a whole life", calls, fault }
        }));
    }
    println!("a whole life: {clean} Kubernetes calls × {} faults, more for watches", KubernetesFault::ANY.len());
    let lives = cases.len();
    let outcomes = run_all(cases, 16, async |_, case| {
        let world = other.world().await;
        let (met, calls) = life_with(&world, &case.calls, case.fault).await;
        assert!(calls.len() <= 6 * clean, "{} calls: {calls:?}", calls.len());
        (met, calls.len())
    })
    .await;
    let met: usize = outcomes.iter().map(|(met, _)| met).sum();
    let most = outcomes.iter().map(|(_, calls)| calls).max().unwrap();
    println!("{total} cases in {lives} lives, {met} of them met; the most calls of one life: {most}");
    // Which call comes when differs a little from run to run.
    assert!(met * 10 >= total * 9, "{met} of {total}");
}
