//! CRDs that others installed keep less than ours: what was written and does not come back must not be
//! written again and again. A proxy drops it, as the API server would.

use kube::ResourceExt as _;

use crate::support::World;
use crate::support::operator::{Kind, Operator};
use crate::support::proxy::{Call, Verdict};

/// As a CRD does whose status holds a phase only, and whose ObjectBucket has an empty claimRef.
fn prune(call: &Call) -> Verdict {
    match call.name.as_str() {
        "patch objectbucketclaims/status" | "create objectbuckets" => Verdict::Rewrite(|body| {
            let mut object: serde_json::Value = serde_json::from_slice(body).unwrap();
            if let Some(status) = object.pointer_mut("/status").and_then(|s| s.as_object_mut()) {
                status.remove("conditions");
            }
            if let Some(spec) = object.pointer_mut("/spec").and_then(|s| s.as_object_mut()) {
                spec.insert("claimRef".into(), serde_json::json!({}));
            }
            object.to_string().into_bytes()
        }),
        _ => Verdict::Pass,
    }
}

/// It prunes the conditions and the reference to the claim.
#[tokio::test]
async fn a_crd_that_prunes_fields_causes_no_loop() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "CreateBucket" if call.target.contains("denied") => Verdict::Answer(403, denied.to_owned()),
        _ => Verdict::Pass,
    });
    world.kubernetes.inject(prune);
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bound = world.wait_bound("photos").await;
    assert!(bound.status.unwrap().conditions.is_empty(), "they are pruned");
    world.claim("denied", &class).await;
    world.wait_event("denied", "AccessDenied").await;
    serve_others(&world, &class, "first").await;

    let statuses = |claim: &str| {
        let of_claim = |call: &&Call| call.name.ends_with("/status") && call.target.contains(claim);
        world.kubernetes.calls().iter().filter(of_claim).count()
    };
    assert_eq!(statuses("objectbucketclaims/photos"), 1);
    assert_eq!(statuses("objectbucketclaims/denied"), 1);
    assert_eq!(world.events("denied").await.len(), 1);

    let version = world.claims().get("photos").await.unwrap().resource_version();
    operator.stop().await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    serve_others(&world, &class, "second").await;
    assert_eq!(world.claims().get("photos").await.unwrap().resource_version(), version, "nor after a restart");

    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
}

/// When others were served since, whatever the operator's own writes woke has been dealt with.
async fn serve_others(world: &World, class: &str, name: &str) {
    for n in 0..3 {
        world.claim(&format!("{name}-{n}"), class).await;
        world.wait_bound(&format!("{name}-{n}")).await;
    }
}
