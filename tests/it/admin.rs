//! What those who run the operator see: probes and metrics, by HTTP.

use std::net::SocketAddr;

use bucket_provisioner::conformance::free_address;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::operator::Binary;
use crate::support::proxy::{Gate, Verdict};
use crate::support::{PATIENCE, World, bucket_of, says};

/// An operator that shows what it does at this address.
fn start(world: &World, address: SocketAddr, args: &[&str]) -> Binary {
    let address = address.to_string();
    Binary::start(world, &[&["--admin-address", &address], args].concat(), &[])
}

/// The status and the text of an answer; `None` if there is none, because the server has not begun.
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
    let is_bound = format!("provisioner_claims{{class=\"{class}\",phase=\"Bound\",reason=\"Bound\"}}");
    // The attempt ends after the claim is seen to be Bound.
    let has_ended = |text: &str| value(text, "provisioner_attempt_seconds_count{result=\"done\"}").is_some();
    let is_over = |text: &str| has_ended(text) && value(text, &is_bound) == Some(1.0);
    let metrics = wait_for(address, "/metrics", |_, text| is_over(text)).await;

    let count = |name: &str| value(&metrics, name).unwrap_or_default();
    assert_eq!(count(&format!("provisioner_time_to_bound_seconds_count{{class=\"{class}\"}}")), 1.0, "{metrics}");
    let calls = |operation: &str| format!("provisioner_store_calls_total{{{operation},outcome=\"ok\"}}");
    assert_eq!(count(&calls("service=\"s3\",operation=\"CreateBucket\"")), 1.0, "{metrics}");
    assert_eq!(count(&calls("service=\"iam\",operation=\"CreateUser\"")), 1.0, "{metrics}");
    assert!(count("provisioner_store_call_seconds_count{service=\"iam\"}") >= 3.0, "{metrics}");
    assert_eq!(count("provisioner_leading"), 1.0, "without leader election it works, too");
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
    world.kubernetes.meddle(move |call| match call.name.starts_with("patch objectbucketclaims") {
        true => Verdict::Hold(held.clone()),
        false => Verdict::Pass,
    });
    let condition = json!({ "type": "Ready", "status": "True", "reason": "MadeUp", "message": "by a user",
        "lastTransitionTime": "2024-01-01T00:00:00Z" });
    let forged = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    world.claims().patch_status("photos", &PatchParams::default(), &forged).await.unwrap();
    let without = format!("provisioner_claims{{class=\"{class}\",phase=\"Bound\",reason=\"\"}}");
    let metrics = wait_for(address, "/metrics", |_, text| value(text, &without) == Some(1.0)).await;
    assert!(!metrics.contains("MadeUp") && !metrics.contains("no-such-class"), "{metrics}");
}

#[tokio::test]
async fn who_has_not_read_the_cluster_is_not_ready() {
    let (world, address, gate) = (World::new().await, free_address(), Gate::closed());
    let held = gate.clone();
    world.kubernetes.meddle(move |call| match call.name.as_str() {
        "list objectbuckets" => Verdict::Hold(held.clone()),
        _ => Verdict::Pass,
    });
    let _operator = start(&world, address, &[]);
    assert!(gate.reached().await, "it reads the ObjectBuckets");
    let (status, text) = get(address, "/readyz").await.unwrap();
    assert_eq!((status, text.as_str()), (503, "starting: what there is in the cluster is being read\n"));
    assert_eq!(get(address, "/healthz").await, Some((200, "ok\n".to_owned())), "it works, although it waits");
    gate.open();
    wait_serving(address).await;
}

#[tokio::test]
async fn who_stands_by_is_ready_and_says_for_whom() {
    let (world, first, second) = (World::new().await, free_address(), free_address());
    let lease = ["--leader-elect=true", "--lease-namespace", &world.namespace];
    let leader = start(&world, first, &lease);
    wait_serving(first).await;
    let mut standby = start(&world, second, &lease);
    let told = wait_for(second, "/readyz", |status, text| status == 200 && text.starts_with("standing by: ")).await;
    assert!(told.ends_with(" holds the lease\n"), "{told}");
    wait_for(second, "/metrics", |_, text| value(text, "provisioner_leading") == Some(0.0)).await;
    leader.terminate();
    wait_serving(second).await;
    wait_for(second, "/metrics", |_, text| value(text, "provisioner_leading") == Some(1.0)).await;
    standby.terminate();
    standby.ended(PATIENCE).await;
}

#[tokio::test]
async fn an_address_that_cannot_be_had_is_refused_only_if_it_was_chosen() {
    let world = World::new().await;
    let taken = TcpListener::bind(free_address()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let mut operator = start(&world, address, &[]);
    assert!(!operator.exit_status(PATIENCE).await.success());
    says(&operator.log(), &["--admin-address", &address.to_string(), "choose another one, or off"]);

    let odd = Binary::run(&world, &["run", "--admin-address=localhost:8080"]).await.unwrap_err();
    says(&odd, &["localhost:8080", "127.0.0.1:8080", "off"]);
}
