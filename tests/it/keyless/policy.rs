//! The provisioning policies that `docs/` ships are enough for claims without keys, and no more than that.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::{keyless, pod, policies, provider, role, spec, wait_access};
use crate::permissions::aws::{allowed, needed};
use crate::support::operator::{Kind, Operator};
use crate::support::owner_policy::{BOUNDED, KEYLESS, PolicedOwner};
use crate::support::tool::Tool;
use crate::support::{bucket_of, seen};

#[tokio::test]
async fn the_shipped_policies_are_enough() {
    let (world, _) = keyless(&["web"]).await;
    let owner = PolicedOwner::new(&world, &[BOUNDED, KEYLESS]).await;
    let parameters = [
        ("authentication", "ServiceAccount"),
        ("oidcProvider", &provider()),
        ("permissionsBoundary", &owner.boundary),
        ("onDelete", "after:1h"),
    ];
    let class = world.class_with("bounded", "Delete", &parameters).await;
    let operator = Operator::with(&world, Operator::options(&world).with_resync(Duration::from_millis(500)));
    for claim in ["photos", "other"] {
        world.claim_with(claim, spec(&class, "web")).await;
    }
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let other = bucket_of(&world.wait_bound("other").await);
    let (shared, iam) = (role(&world, "photos").await, &world.account.iam);
    let made = iam.get_role().role_name(&shared).send().await.unwrap().role.unwrap();
    let boundary = made.permissions_boundary.unwrap().permissions_boundary_arn;
    assert_eq!(boundary.as_deref(), Some(owner.boundary.as_str()));
    pod(&world, "photos", "web").await.put(&bucket, "precious").await.unwrap();

    let nobody = json!({ "Version": "2012-10-17", "Statement": [] }).to_string();
    iam.update_assume_role_policy().role_name(&shared).policy_document(nobody).send().await.unwrap();
    world.aws.wait_until("repaired", |calls| calls.iter().any(|call| call.name == "UpdateAssumeRolePolicy")).await;

    let mode = json!({ "spec": { "additionalConfig": { "accessMode": "ReadOnly" } } });
    world.claims().patch("other", &PatchParams::default(), &Patch::Merge(mode)).await.unwrap();
    world.wait_event("other", "AccessChanged").await;
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    seen(&world.secrets(), "photos", |secret| secret.is_some()).await.expect("it is written again");
    world.delete_claim("other").await;
    world.wait_gone("other").await;
    wait_access(&world, &bucket).await;

    // The bucket is deleted when the role no longer exists.
    world.account.delete_object(&bucket, "precious").await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert_eq!(policies(&world, &shared).await, None);
    for claim in ["photos", "other"] {
        let record = world.record_name(claim);
        world.delete_in(&record, 0).await;
        world.wait_record_gone(&record).await;
    }
    assert!(!world.account.bucket_exists(&bucket).await && !world.account.bucket_exists(&other).await);
    let ended = Tool::run(&world, &["orphans"], "").await;
    assert!(ended.code == 0 && ended.out.starts_with("no orphans"), "{ended:?}");
    operator.stop().await;

    let calls = world.aws.upstream().sent();
    let of_roles =
        calls.iter().filter(|call| call.operation.contains("Role") && call.signer.as_deref() == Some(owner.key()));
    assert_eq!(needed(of_roles), allowed(KEYLESS), "needed, and allowed");
}

/// The message names the parameter.
#[tokio::test]
async fn a_class_without_the_boundary_gets_the_remedy() {
    let (world, class) = keyless(&["web"]).await;
    let _owner = PolicedOwner::new(&world, &[BOUNDED, KEYLESS]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim_with("photos", spec(&class, "web")).await;
    let message = world.wait_reason("photos", "AccessDenied").await;
    assert!(message.contains("iam:CreateRole") && message.contains("permissionsBoundary"), "{message}");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    operator.stop().await;
}
