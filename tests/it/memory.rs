//! What tenants write does not fill the operator's memory.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::support::operator::Binary;
use crate::support::other::OtherCluster;
use crate::support::{World, delete_each};

/// Claims that are served, and claims of another provisioner.
const SERVED: usize = 20;
const OTHERS: usize = 280;
const SECRETS: usize = 1000;
/// Half of the limit that is shipped in `deploy/`.
const LIMIT_MIB: usize = 128;

/// Line `name` of the status of a process in Linux, in MiB.
fn memory(process: u32, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

/// Claims with 1 MB of settings each.
async fn submit_large_claims(world: &World, class: &str, names: &str, count: usize) {
    let settings: serde_json::Map<_, _> =
        (0..31).map(|number| (format!("setting-{number}"), json!("x".repeat(32_000)))).collect();
    let settings = &settings;
    let submit = |number: usize| async move {
        let spec = json!({ "storageClassName": class, "generateBucketName": "large", "additionalConfig": settings });
        world.claim_with(&format!("{names}-{number}"), spec).await;
    };
    stream::iter(0..count).map(submit).buffer_unordered(8).collect::<()>().await;
}

/// Secrets that carry our label and belong to no claim, with 200 KiB of annotations each.
async fn submit_labelled_secrets(world: &World) {
    let label = bucket_provisioner::api::wire::provisioner_label(&world.provisioner);
    let submit = |number: usize| {
        let secret: Secret = serde_json::from_value(json!({ "metadata": {
            "name": format!("noise-{number}"),
            "labels": { "bucket-provisioner": label },
            "annotations": { "noise": "x".repeat(200 << 10), "objectbucket.io/retiring-key": "x".repeat(10_000) },
        }}))
        .unwrap();
        let secrets = world.secrets();
        async move { secrets.create(&PostParams::default(), &secret).await.map(drop) }
    };
    stream::iter(0..SECRETS).map(submit).buffer_unordered(8).try_collect::<()>().await.unwrap();
}

#[tokio::test]
async fn large_claims_and_secrets_of_others_do_not_fill_the_memory() {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    submit_large_claims(&world, &class, "large", SERVED).await;
    let another = world.unique("another");
    world.create_class(json!({ "metadata": { "name": another }, "provisioner": "example.com/another" })).await;
    submit_large_claims(&world, &another, "other", OTHERS).await;
    submit_labelled_secrets(&world).await;

    let operator = Binary::start(&world, &[], &[]);
    for number in 0..SERVED {
        world.wait_bound(&format!("large-{number}")).await;
    }
    let at_start = memory(operator.pid(), "VmHWM");
    delete_each(&world.claims(), &ListParams::default()).await;
    for number in 0..SERVED {
        world.wait_gone(&format!("large-{number}")).await;
    }
    let most = memory(operator.pid(), "VmHWM");
    println!("resident at most: {at_start} MiB until all were bound, {most} MiB until all were gone");
    assert!(most < LIMIT_MIB, "{at_start} MiB until all were bound, {most} MiB until all were gone");
    delete_each(&world.secrets(), &ListParams::default()).await;
}
