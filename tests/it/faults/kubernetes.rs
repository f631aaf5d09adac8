//! The calls to Kubernetes, failed in the ways that only a connection shows. For the answers of the API server see the
//! tests of the library, where each call of each flow fails in each way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_s3_provisioner::AwsProvisioner;
use bucket_provisioner::api::wire;
use bucket_provisioner::controller;
use hyper::Response;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use provisioner_conformance::sampled;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{Case, Nth, enumerate, run_all};
use crate::support::World;
use crate::support::operator::Operator;
use crate::support::other::OtherCluster;
use crate::support::proxy::{Verdict, expired, expired_in_stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KubernetesFault {
    TooManyRequests,
    Reset,
    /// The API server is restarted, and all connections end.
    Restarted,
    /// A watch is ended as soon as it is begun.
    Closed,
    /// What a watch asks for is too old, until it is listed again.
    Gone,
    GoneInStream,
}

impl KubernetesFault {
    const ANY: [Self; 3] = [Self::TooManyRequests, Self::Reset, Self::Restarted];
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
        match self {
            Self::TooManyRequests => {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "so it is", "reason": "TooManyRequests", "code": 429,
                });
                Verdict::Answer(429, status.to_string())
            }
            Self::Restarted => Verdict::Hang,
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
    let config = world.config();
    let client = operator_runtime::cluster::client(config, ANSWER_LIMIT).unwrap();
    let options = Operator::options(world);
    let mut operator = JoinSet::new();
    let store = AwsProvisioner::new(options.start(true));
    operator.spawn(controller::run(client, store, options, std::future::pending()));
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

/// The life of a claim whose bucket outlives it: its deletion is undone, and then done at its time.
async fn second_life(world: &World) -> Vec<String> {
    let class = world.class_with("later", "Delete", &[("onDelete", "after:1h")]).await;
    world.claim("photos", &class).await;
    let _operator = operator(world);
    world.wait_bound("photos").await;
    let bucket = world.environment("photos").await["BUCKET_NAME"].clone();
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    let record = world.record_name("photos");
    delete_for_later(world, &record).await;
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos" });
    world.create_again("photos", &spec).await;
    world.wait_bound("photos").await;
    world.wait_reason("photos", "Bound").await;
    assert_eq!(world.app("photos").await.list(&bucket).await.unwrap(), ["a"]);
    delete_for_later(world, &record).await;
    world.delete_in(&record, 0).await;
    world.wait_record_gone(&record).await;
    world.delete_class(&class).await;
    assert!(!world.account.bucket_exists(&bucket).await, "the bucket is left");
    let users = world.account.users_with(&format!("{}-photos-", world.namespace)).await;
    assert!(users.is_empty(), "{users:?}");
    world.kubernetes.names()
}

/// Deletes the claim, whose bucket stays for an hour.
async fn delete_for_later(world: &World, record: &str) {
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    let state = world.records().get(record).await.unwrap().spec.additional_state.unwrap();
    assert!(state.contains_key(wire::state::DELETE_AT), "{state:?}");
}

/// Has calls fail when they come for the nth time; returns how many of them came, and all calls.
async fn life_with(
    world: &World,
    life: &impl AsyncFn(&World) -> Vec<String>,
    failing: &[Nth],
    fault: KubernetesFault,
) -> (usize, Vec<String>) {
    let (hit, hits) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (rule_hit, rule_hits) = (Arc::clone(&hit), Arc::clone(&hits));
    let mut failing: Vec<_> = failing.iter().map(|call| (call.clone(), 0, fault.times())).collect();
    world.kubernetes.inject(move |now| {
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

/// One life has several faults, far apart: a life is much work for two cores. Not too many, because each failure in a row
/// doubles the wait.
const IN_ONE_LIFE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_calls_of_a_claim_may_fail_in_every_way() {
    may_fail_in_every_way("a whole life", life).await;
}

/// It is done afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubernetes_calls_of_an_undone_deletion_may_fail_in_every_way() {
    may_fail_in_every_way("undone, and deleted", second_life).await;
}

async fn may_fail_in_every_way(name: &'static str, life: impl AsyncFn(&World) -> Vec<String>) {
    // Each operator watches all classes and ObjectBuckets of its cluster: here it sees those of this test only.
    let other = OtherCluster::take().await;
    let calls = enumerate(life(&other.world().await).await);
    let clean = calls.len();
    let mut cases = vec![];
    for fault in KubernetesFault::ANY.into_iter().chain(KubernetesFault::WATCH) {
        let fits = |call: &&Nth| KubernetesFault::ANY.contains(&fault) || call.name.starts_with("watch");
        let failing: Vec<_> = calls.iter().filter(fits).cloned().collect();
        let lives = failing.len().div_ceil(IN_ONE_LIFE);
        let lives = (0..lives).map(|first| {
            let calls = failing.iter().skip(first).step_by(lives).cloned().collect();
            Case { flow: name, calls, fault }
        });
        cases.extend(sampled(&format!("{name}, {fault:?}"), lives.collect()));
    }
    println!("{name}: {clean} Kubernetes calls × {} faults, more for watches", KubernetesFault::ANY.len());
    let (lives, total) = (cases.len(), cases.iter().map(|case| case.calls.len()).sum::<usize>());
    let outcomes = run_all(cases, 16, async |_, case| {
        let world = other.world().await;
        let (met, calls) = life_with(&world, &life, &case.calls, case.fault).await;
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
