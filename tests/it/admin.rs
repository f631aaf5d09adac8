//! What those who run the operator see: probes and metrics, by HTTP.

use std::net::SocketAddr;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use provisioner_conformance::free_address;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::operator::Binary;
use crate::support::proxy::{Gate, Verdict};
use crate::support::{PATIENCE, World, assert_contains, bucket_of};

/// An operator that shows what it does at this address.
fn start(world: &World, address: SocketAddr, args: &[&str]) -> Binary {
    let address = address.to_string();
    Binary::start(world, &[&["--admin-address", &address], args].concat(), &[])
}

/// The status and the text of an answer; `None` if there is none, because the server has not started.
async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut server = TcpStream::connect(address).await.ok()?;
    server.write_all(format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n").as_bytes()).await.ok()?;
    let mut answer = String::new();
    server.read_to_string(&mut answer).await.ok()?;
    let (head, text) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, text.to_owned()))
}

/// Asks until the answer is as wanted, and returns it.
pub(crate) async fn wait_for(address: SocketAddr, path: &str, wanted: impl Fn(u16, &str) -> bool) -> String {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut last = None;
    while tokio::time::Instant::now() < deadline {
        last = get(address, path).await;
        if let Some((_, text)) = last.as_ref().filter(|(status, text)| wanted(*status, text)) {
            return text.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{path} is not as wanted: {last:?}")
}

pub(crate) async fn wait_serving(address: SocketAddr) {
    wait_for(address, "/readyz", |status, text| status == 200 && text == "serving claims\n").await;
}

/// The value of a metric with these labels.
pub(crate) fn value(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn metrics_count_claims_and_calls_and_name_nobody() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class("greenfield").await;
    let _operator = start(&world, address, &[]);
    world.claim("photos", &class).await;
    let claim = world.wait_bound("photos").await;
    let is_bound = format!("obc_provisioner_claims{{class=\"{class}\",phase=\"Bound\",reason=\"Bound\"}}");
    // The attempt ends after the claim is seen to be Bound.
    let has_ended = |text: &str| value(text, "obc_provisioner_attempt_seconds_count{result=\"done\"}").is_some();
    let is_over = |text: &str| has_ended(text) && value(text, &is_bound) == Some(1.0);
    let metrics = wait_for(address, "/metrics", |_, text| is_over(text)).await;

    let count = |name: &str| value(&metrics, name).unwrap_or_default();
    assert_eq!(count(&format!("obc_provisioner_time_to_bound_seconds_count{{class=\"{class}\"}}")), 1.0, "{metrics}");
    let calls = |operation: &str| format!("obc_provisioner_store_calls_total{{{operation},outcome=\"ok\"}}");
    assert_eq!(count(&calls("service=\"s3\",operation=\"CreateBucket\"")), 1.0, "{metrics}");
    assert_eq!(count(&calls("service=\"iam\",operation=\"CreateUser\"")), 1.0, "{metrics}");
    assert!(count("obc_provisioner_store_call_seconds_count{service=\"iam\"}") >= 3.0, "{metrics}");
    assert_eq!(count("obc_provisioner_leading"), 1.0, "without leader election it works, too");
    assert!(count("process_resident_memory_bytes") > 1e6 && count("process_start_time_seconds") > 1e9, "{metrics}");
    assert!(count("process_cpu_seconds_total") > 0.0 && count("process_open_fds") > 3.0, "{metrics}");

    let environment = world.environment("photos").await;
    let (uid, bucket) = (claim.uid().unwrap(), bucket_of(&claim));
    // Its class has the name of its namespace in its own.
    let metrics = metrics.replace(&class, "");
    for tenants in [&world.namespace, &uid, &bucket, "photos", &environment["AWS_ACCESS_KEY_ID"]] {
        assert!(!metrics.contains(tenants), "{tenants} is in the metrics:\n{metrics}");
    }
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    wait_for(address, "/metrics", |_, text| value(text, &is_bound).is_none()).await;
}

/// With `--metrics-namespace-label`.
#[tokio::test]
async fn only_the_namespace_label_identifies_tenants_in_metrics() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class("greenfield").await;
    let _operator = start(&world, address, &["--metrics-namespace-label"]);
    let claim = world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let namespace = &world.namespace;
    let bound = format!(
        "obc_provisioner_claims{{class=\"{class}\",phase=\"Bound\",reason=\"Bound\",namespace=\"{namespace}\"}}"
    );
    let metrics = wait_for(address, "/metrics", |_, text| value(text, &bound) == Some(1.0)).await;
    let others: Vec<_> = metrics.lines().filter(|line| !line.starts_with("obc_provisioner_claims{")).collect();
    // Its class has the name of its namespace in its own.
    let others = others.join("\n").replace(&class, "");
    assert!(!others.contains(namespace.as_str()), "{others}");
    for tenants in [&claim.uid().unwrap(), &bucket, "photos"] {
        assert!(!metrics.contains(tenants), "{tenants} is in the metrics:\n{metrics}");
    }
}

#[tokio::test]
async fn keys_and_what_is_done_about_them_are_counted() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class_with("rotating", "Delete", &[("rotateKeysEvery", "2h")]).await;
    let _operator = start(&world, address, &[]);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    world.wait_bound("photos").await;
    let age = format!("obc_provisioner_oldest_key_seconds{{class=\"{class}\"}}");
    let metrics = wait_for(address, "/metrics", |_, text| value(text, &age).is_some()).await;
    assert!(value(&metrics, &age).is_some_and(|age| (0.0..600.0).contains(&age)), "{metrics}");
    assert_eq!(value(&metrics, &format!("obc_provisioner_key_rotation_seconds{{class=\"{class}\"}}")), Some(7200.0));

    // A user can write any time into the notes; no key is older than its claim.
    annotate(&world.secrets(), "photos", "objectbucket.io/keys-issued-at", "2001-01-01T00:00:00Z").await;
    let is_bounded = |text: &str| value(text, &age).is_none_or(|age| age < 600.0);
    let done = "obc_provisioner_key_rotations_total{trigger=\"age\",result=\"done\"}";
    let metrics = wait_for(address, "/metrics", |_, text| value(text, done) == Some(1.0)).await;
    assert!(is_bounded(&metrics), "{metrics}");

    // With this one and the previous one there are two keys, so a foreign one is deleted first.
    let user = world.account.users_with(&uid).await.pop().unwrap();
    let present = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    for key in world.account.keys(&user).await.iter().filter(|key| **key != present) {
        world.account.iam.delete_access_key().user_name(&user).access_key_id(key).send().await.unwrap();
    }
    world.account.iam.create_access_key().user_name(&user).send().await.unwrap();
    annotate(&world.claims(), "photos", "objectbucket.io/retry", "1").await;
    let repaired = "obc_provisioner_repairs_total{kind=\"key\"}";
    let metrics = wait_for(address, "/metrics", |_, text| value(text, repaired) == Some(1.0)).await;
    assert!(value(&metrics, "obc_provisioner_checks_total{result=\"done\"}") >= Some(1.0), "{metrics}");
    assert!(value(&metrics, "obc_provisioner_last_check_timestamp_seconds") > Some(1e9), "{metrics}");
    assert_eq!(value(&metrics, "obc_provisioner_check_overdue_seconds"), Some(0.0), "{metrics}");
}

#[tokio::test]
async fn refusals_repetitions_and_purged_objects_are_counted() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class("greenfield").await;
    let _operator = start(&world, address, &[]);
    let mut refused = 0;
    world.aws.inject(move |call| {
        refused += usize::from(call.name == "CreateUser");
        let slow =
            "<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>";
        match call.name == "CreateUser" && refused == 1 {
            true => Verdict::Answer(400, slow.to_owned()),
            false => Verdict::Pass,
        }
    });
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let throttled = "obc_provisioner_store_calls_total{service=\"iam\",operation=\"CreateUser\",outcome=\"throttled\"}";
    let metrics = wait_for(address, "/metrics", |_, text| value(text, throttled) == Some(1.0)).await;
    assert_eq!(value(&metrics, "obc_provisioner_store_retries_total{service=\"iam\"}"), Some(1.0), "{metrics}");
    assert!(value(&metrics, "obc_provisioner_workers_limit") > Some(3.0), "{metrics}");

    for key in ["a", "b", "c"] {
        world.account.put(&bucket, key).await.unwrap();
    }
    // A listing that fails at first is repeated by the SDK.
    let mut lists = 0;
    world.aws.inject(move |call| {
        lists += usize::from(call.name == "ListObjectVersions");
        match call.name == "ListObjectVersions" && lists == 1 {
            true => Verdict::Answer(503, String::new()),
            false => Verdict::Pass,
        }
    });
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    let metrics =
        wait_for(address, "/metrics", |_, text| value(text, "obc_provisioner_purged_objects_total") == Some(3.0)).await;
    assert_eq!(value(&metrics, "obc_provisioner_store_retries_total{service=\"s3\"}"), Some(1.0), "{metrics}");
}

#[tokio::test]
async fn orphans_are_counted_until_an_admin_decides() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class("greenfield").await;
    let operator = start(&world, address, &[]);
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let record = world.record_name("photos");
    operator.kill().await;
    let address = free_address();
    world.forget_object(&world.claims(), "photos").await;
    let _operator = start(&world, address, &[]);
    world.wait_orphaned(&record, "ClaimGone").await;
    let gone = "obc_provisioner_orphans{reason=\"ClaimGone\"}";
    wait_for(address, "/metrics", |_, text| value(text, gone) == Some(1.0)).await;
    world.set_action(&record, "remove").await;
    world.wait_record_gone(&record).await;
    wait_for(address, "/metrics", |_, text| !text.contains("obc_provisioner_orphans{")).await;
}

#[tokio::test]
async fn metrics_show_scheduled_deletions_and_the_next_one() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let _operator = start(&world, address, &[]);
    let next = "obc_provisioner_next_scheduled_deletion_timestamp_seconds";
    let shown = async |number: usize| {
        let is_counted = |text: &str| value(text, "obc_provisioner_scheduled_deletions") == Some(number as f64);
        value(&wait_for(address, "/metrics", |_, text| is_counted(text)).await, next).unwrap()
    };
    assert_eq!(shown(0).await, 0.0);
    for claim in ["first", "second"] {
        world.claim(claim, &class).await;
        world.wait_bound(claim).await;
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
    shown(2).await;
    let deletion = |claim: &str| {
        let record = world.record_name(claim);
        let world = &world;
        async move {
            let state = world.records().get(&record).await.unwrap().spec.additional_state.unwrap();
            seconds(&state["deleteAt"])
        }
    };
    assert_eq!(shown(2).await, deletion("first").await);
    wait_for(address, "/metrics", |_, text| !text.contains("obc_provisioner_orphans{")).await;

    // The deletion of the next one is refused: it is late since its time, which the operator knows.
    world.aws.inject(|call| match call.name.as_str() {
        "DeleteBucket" => Verdict::Answer(403, "<Error><Code>AccessDenied</Code></Error>".to_owned()),
        _ => Verdict::Pass,
    });
    let past = json!({ "spec": { "additionalState": { "deleteAt": "2026-01-01T00:00:00Z" } } });
    world.records().patch(&world.record_name("first"), &PatchParams::default(), &Patch::Merge(past)).await.unwrap();
    let is_late = |text: &str| value(text, next) == Some(seconds("2026-01-01T00:00:00Z"));
    world.wait_condition(&world.record_name("first"), "DeletionScheduled", "RemovalFailed").await;
    wait_for(address, "/metrics", |_, text| is_late(text)).await;
    world.aws.leave_alone();
    world.set_action(&world.record_name("first"), "remove").await;
    world.wait_record_gone(&world.record_name("first")).await;
    assert_eq!(shown(1).await, deletion("second").await);
}

/// Seconds since 1970.
fn seconds(text: &str) -> f64 {
    text.parse::<Timestamp>().unwrap().as_second() as f64
}

#[tokio::test]
async fn claims_of_deleted_classes_count_without_the_class_name() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class("greenfield").await;
    let _operator = start(&world, address, &[]);
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    world.delete_class(&class).await;
    let bound = "obc_provisioner_claims{class=\"\",phase=\"Bound\",reason=\"Bound\"}";
    wait_for(address, "/metrics", |_, text| value(text, bound) == Some(1.0)).await;
    let held = Gate::closed();
    world.aws.inject(move |call| match call.name.as_str() {
        "GetBucketTagging" | "GetUser" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    world.delete_claim("photos").await;
    let deleted = "obc_provisioner_oldest_deleted_claim_seconds{class=\"\",reason=\"Removing\"}";
    wait_for(address, "/metrics", |_, text| value(text, deleted) >= Some(1.0)).await;
    world.aws.leave_alone();
}

#[tokio::test]
async fn watches_that_fail_are_counted() {
    let (world, address) = (World::new().await, free_address());
    let mut refused = 0;
    world.kubernetes.inject(move |call| {
        refused += usize::from(call.name == "list objectbuckets");
        match call.name == "list objectbuckets" && refused <= 2 {
            true => Verdict::Answer(500, String::new()),
            false => Verdict::Pass,
        }
    });
    let _operator = start(&world, address, &[]);
    wait_serving(address).await;
    let failures = "obc_provisioner_watch_failures_total{resource=\"ObjectBuckets\"}";
    let metrics = wait_for(address, "/metrics", |_, text| value(text, failures) >= Some(1.0)).await;
    assert_eq!(value(&metrics, "obc_provisioner_watch_failures_total{resource=\"claims\"}"), Some(0.0), "{metrics}");
}

async fn annotate<K>(api: &Api<K>, name: &str, annotation: &str, text: &str)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = json!({ "metadata": { "annotations": { annotation: text } } });
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test]
async fn users_cannot_make_series() {
    let (world, address) = (World::new().await, free_address());
    let class = world.class("greenfield").await;
    world.claim("lost", &world.unique("no-such-class")).await;
    world.claim("photos", &class).await;
    let _operator = start(&world, address, &[]);
    world.wait_bound("photos").await;
    // What the operator would correct stays.
    let held = Gate::closed();
    world.kubernetes.inject(move |call| match call.name.starts_with("patch objectbucketclaims") {
        true => Verdict::Hold(held.clone()),
        false => Verdict::Pass,
    });
    let condition = json!({ "type": "Ready", "status": "True", "reason": "MadeUp", "message": "by a user",
        "lastTransitionTime": "2024-01-01T00:00:00Z" });
    let forged = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    world.claims().patch_status("photos", &PatchParams::default(), &forged).await.unwrap();
    let without = format!("obc_provisioner_claims{{class=\"{class}\",phase=\"Bound\",reason=\"\"}}");
    let metrics = wait_for(address, "/metrics", |_, text| value(text, &without) == Some(1.0)).await;
    assert!(!metrics.contains("MadeUp") && !metrics.contains("no-such-class"), "{metrics}");
}

#[tokio::test]
async fn an_operator_is_not_ready_before_it_has_read_the_cluster() {
    let (world, address, gate) = (World::new().await, free_address(), Gate::closed());
    let held = gate.clone();
    world.kubernetes.inject(move |call| match call.name.as_str() {
        "list objectbuckets" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    let _operator = start(&world, address, &[]);
    assert!(gate.reached().await, "it reads the ObjectBuckets");
    let (status, text) = get(address, "/readyz").await.unwrap();
    assert_eq!((status, text.as_str()), (503, "starting: reading the objects of the cluster\n"));
    assert_eq!(get(address, "/healthz").await, Some((200, "ok\n".to_owned())), "it works, although it waits");
    gate.open();
    wait_serving(address).await;
}

#[tokio::test]
async fn a_standby_is_ready_and_shows_the_lease_holder() {
    let (world, first, second) = (World::new().await, free_address(), free_address());
    let lease = ["--leader-elect=true", "--lease-namespace", &world.namespace];
    let leader = start(&world, first, &lease);
    wait_serving(first).await;
    let mut standby = start(&world, second, &lease);
    let report = wait_for(second, "/readyz", |status, text| status == 200 && text.starts_with("on standby: ")).await;
    assert!(report.ends_with(" holds the lease\n"), "{report}");
    wait_for(second, "/metrics", |_, text| value(text, "obc_provisioner_leading") == Some(0.0)).await;
    leader.terminate();
    wait_serving(second).await;
    wait_for(second, "/metrics", |_, text| value(text, "obc_provisioner_leading") == Some(1.0)).await;
    standby.terminate();
    standby.ended(PATIENCE).await;
}

/// Whoever installed it twice sees which one serves.
#[tokio::test]
async fn of_operators_in_two_namespaces_the_second_does_not_serve() {
    let (world, elsewhere) = (World::new().await, World::new().await);
    let (first, second) = (free_address(), free_address());
    let start_in = |namespace: &str, address| {
        let timing = ["--lease-duration=9s", "--lease-renew-deadline=6s", "--lease-retry-period=500ms"];
        start(&world, address, &[&["--leader-elect=true", "--lease-namespace", namespace], &timing[..]].concat())
    };
    let leader = start_in(&world.namespace, first);
    wait_serving(first).await;
    let mut other = start_in(&elsewhere.namespace, second);
    let report = wait_for(second, "/readyz", |status, text| status == 200 && text.starts_with("on standby: ")).await;
    assert!(report.starts_with(&format!("on standby: {}", world.namespace)), "{report}");
    wait_for(second, "/metrics", |_, text| value(text, "obc_provisioner_leading") == Some(0.0)).await;
    leader.terminate();
    wait_serving(second).await;
    other.terminate();
    other.ended(PATIENCE).await;
}

#[tokio::test]
async fn an_unusable_address_is_refused_only_if_it_was_chosen() {
    let world = World::new().await;
    let taken = TcpListener::bind(free_address()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let mut operator = start(&world, address, &[]);
    assert!(!operator.exit_status(PATIENCE).await.success());
    assert_contains(&operator.log(), &["--admin-address", &address.to_string(), "choose another one, or off"]);

    let odd = Binary::run(&world, &["run", "--admin-address=localhost:8080"]).await.unwrap_err();
    assert_contains(&odd, &["localhost:8080", "127.0.0.1:8080", "off"]);
}
