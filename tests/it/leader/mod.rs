//! Of several operators one works: real processes on one cluster and one AWS, which tell who called when.

mod stage;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::SignedDuration;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use operator_runtime::lease;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::operator::{Binary, send_signal};
use crate::support::proxy::Verdict;
use crate::support::{PATIENCE, World, ready, seen};

use stage::{QUICK, SLOW, Stage, count, now, seconds, time};

#[tokio::test]
async fn of_three_operators_one_works_at_any_time_whatever_ends_it() {
    let stage = Stage::new().await;
    let first = stage.candidate("first", &QUICK).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &QUICK).await;
    let third = stage.candidate("third", &QUICK).await;
    second.wait_standby().await;
    third.wait_standby().await;
    let one = stage.claim_all(&["a", "b", "c"]).await;
    stage.assert_bound_once(&["a", "b", "c"], &one).await;

    // It gets SIGTERM while it works.
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
    stage.journal.assert_order(&["first", leader.name, last.name]);
    assert_eq!(stage.lease().await.lease_transitions, Some(2));
}

/// Within the lease duration and a retry period.
#[tokio::test]
async fn a_killed_leader_is_replaced_when_its_lease_expires() {
    let stage = Stage::new().await;
    // The next leader acquires the lease as soon as it expires; the long retry period is for slow machines.
    let timing = ["--lease-duration=9s", "--lease-renew-deadline=8s", "--lease-retry-period=6s"];
    let first = stage.candidate("first", &timing).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &timing).await;
    second.wait_standby().await;

    let claims = ["a", "b", "c", "d", "e", "f"];
    let uids = stage.claim_all(&claims).await;
    stage.wait_called("first CreateAccessKey", 1).await;
    first.binary.kill().await;
    let (last_renewal, next) = stage.transfer_from(&first_term).await;
    let took = time(&next.acquire_time).duration_since(time(&last_renewal.renew_time));
    println!("taken over {took:#} after the last renewal of the killed leader");
    assert!(took >= seconds(9), "too early: {took:#}");
    assert!(took <= seconds(9 + 6), "too late: {took:#}");
    stage.assert_bound_once(&claims, &uids).await;
    stage.journal.assert_order(&["first", "second"]);
}

#[tokio::test]
async fn a_stopped_leader_releases_the_lease_at_once() {
    let stage = Stage::new().await;
    let mut first = stage.candidate("first", &SLOW).await;
    let first_term = stage.wait_holder_after(None).await;
    let mut second = stage.candidate("second", &SLOW).await;
    second.wait_standby().await;
    let asked = now();
    first.binary.terminate();
    // With these times neither expiry nor the next look is seen within a test's patience.
    let second_term = stage.wait_holder_after(Some(&first_term)).await;
    println!("transferred {:#} after SIGTERM", time(&second_term.acquire_time).duration_since(asked));
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
async fn a_leader_keeps_the_lease_until_it_has_stopped() {
    let stage = Stage::new().await;
    let mut first = stage.candidate("first", &QUICK).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &QUICK).await;
    second.wait_standby().await;
    stage.aws.inject(|call| if call.name == "first CreateUser" { Verdict::Hang } else { Verdict::Pass });
    let uids = stage.claim_all(&["a"]).await;
    stage.wait_called("first CreateUser", 1).await;
    let asked = now();
    first.binary.terminate();
    first.binary.ended(Duration::from_secs(10)).await;
    let second_term = stage.wait_holder_after(Some(&first_term)).await;
    // Eight seconds of grace are longer than the six of the lease.
    let after = time(&second_term.acquire_time).duration_since(asked);
    println!("transferred {after:#} after SIGTERM, with a call that never returns");
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

/// It is cut off from the API server.
#[rstest]
#[case::calls_that_hang(Outage::Hanging)]
#[case::refused_connections(Outage::Refused)]
#[case::server_errors(Outage::Failing)]
#[tokio::test]
async fn a_disconnected_leader_ends_before_another_starts(#[case] outage: Outage) {
    // AWS stays open, and its calls take so long that there is work for longer than it may work.
    let stage = Stage::with_delay(Duration::from_secs(3)).await;
    let timing = ["--lease-duration=9s", "--lease-renew-deadline=5s", "--lease-retry-period=1s"];
    let mut first = stage.candidate("first", &timing).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &timing).await;
    second.wait_standby().await;
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
    stage.journal.assert_order(&["first", "second"]);
}

#[tokio::test]
async fn a_leader_suspended_too_long_makes_no_call_when_it_wakes() {
    let stage = Stage::new().await;
    let mut first = stage.candidate("first", &QUICK).await;
    let first_term = stage.wait_holder_after(None).await;
    let second = stage.candidate("second", &QUICK).await;
    second.wait_standby().await;
    // The answer to a call is there when it wakes, and would be followed by the next call.
    let pid = first.binary.pid();
    stage.aws.inject(move |call| {
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
    stage.journal.assert_order(&["first", "second"]);
    stage.assert_bound_once(&["a"], &uids).await;
}

/// When it did not renew for its lease duration.
#[rstest]
#[case::an_hour_ahead(3600)]
#[case::an_hour_behind(-3600)]
#[tokio::test]
async fn a_holder_with_a_wrong_clock_is_replaced_when_silent(#[case] skew: i64) {
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

/// A snapshot of etcd is restored under it, which one of its two leases shows first.
#[rstest]
#[case::the_lease_of_its_installation(None)]
#[case::the_lease_of_the_cluster(Some(lease::CLUSTER_NAMESPACE))]
#[tokio::test]
async fn a_process_serves_claims_again_in_a_restored_cluster(#[case] namespace: Option<&str>) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let args = [&["--leader-elect", "--lease-namespace", &world.namespace], &QUICK[..]].concat();
    let operator = Binary::start(&world, &args, &[]);
    world.claim("a", &class).await;
    world.wait_bound("a").await;
    let leases = format!("/namespaces/{}/leases/", namespace.unwrap_or(&world.namespace));
    let mut is_restored = false;
    world.kubernetes.inject(move |call| {
        if is_restored || call.name != "update leases" || !call.target.contains(&leases) {
            return Verdict::Pass;
        }
        is_restored = true;
        Verdict::Distort(with_an_early_version)
    });
    operator.wait_log("the cluster was set back to an earlier state").await;

    world.claim("b", &class).await;
    world.wait_bound("b").await;
    let edit = json!({ "spec": { "additionalConfig": { "color": "red" } } });
    let edited = world.claims().patch("a", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    let is_observed =
        |claim: &_| ready(claim).and_then(|ready| ready.observed_generation) == edited.metadata.generation;
    world.wait_claim("a", "observed as it was edited", is_observed).await;
    let log = operator.log();
    assert_eq!(log.matches("was set back").count(), 1, "{log}");
    assert_eq!(log.matches("serving claims").count(), 2, "{log}");
}

/// An answer with an object as it was before everything else.
fn with_an_early_version(answer: Response<Bytes>) -> Response<Bytes> {
    answer.map(|body| {
        let mut object: Value = serde_json::from_slice(&body).unwrap();
        object["metadata"]["resourceVersion"] = json!("1");
        object.to_string().into()
    })
}

/// Its log names the one that serves, and it serves when that one has been uninstalled.
#[tokio::test]
async fn of_two_installations_in_different_namespaces_one_serves() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let other = format!("{}-other", world.namespace);
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": other } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let install = |namespace: &str| {
        // Longer than a busy API server takes to answer: both serve the claims of all namespaces.
        let times = ["--lease-duration=20s", "--lease-renew-deadline=15s", "--lease-retry-period=1s"];
        let args = [&["--leader-elect", "--lease-namespace", namespace], &times[..]].concat();
        Binary::start_with(&world, &world.kubeconfig(), &args, &[])
    };
    let first = install(&world.namespace);
    world.claim("a", &class).await;
    world.wait_bound("a").await;
    let second = install(&other);
    second.wait_log(&format!("an operator in namespace {} serves", world.namespace)).await;
    world.claim("b", &class).await;
    world.wait_bound("b").await;
    assert!(!second.log().contains("serving claims"), "{}", second.log());
    first.kill().await;
    world.claim("c", &class).await;
    world.wait_bound("c").await;
    drop(second);
    let shared: Api<Lease> = Api::namespaced(world.client.clone(), lease::CLUSTER_NAMESPACE);
    shared
        .delete(&lease::cluster_name(&lease::name(&world.provisioner, None)), &DeleteParams::default())
        .await
        .unwrap();
    namespaces.delete(&other, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_problem_with_the_lease_is_logged_once_with_its_remedy() {
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
    assert!(log.contains("what the command `rbac` prints"), "{log}");
    assert_eq!(lines("serving claims"), 0, "{log}");

    candidate.kubernetes().leave_alone();
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let namespace = serde_json::from_value(json!({ "metadata": { "name": missing } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), &missing);
    seen(&leases, &stage.lease_name(), |lease| lease.is_some()).await.expect("it leads");
    namespaces.delete(&missing, &DeleteParams::default()).await.unwrap();
}
