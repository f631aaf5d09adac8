//! What was deleted or edited by hand is restored.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use bucket_provisioner::api::{ClaimPhase, ObjectBucket};

use crate::support::aws_proxy::Strictness;
use crate::support::operator::{Kind, Operator};
use crate::support::other::{OtherCluster, fixture_crds};
use crate::support::proxy::Verdict;
use crate::support::{World, bucket_of, phase, seen};

#[tokio::test]
async fn a_claim_is_not_ready_again_before_its_new_keys_work() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let refused = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";
    world.aws.inject(move |call| match call.name.as_str() {
        "ListObjectsV2" => Verdict::Answer(403, refused.to_owned()),
        _ => Verdict::Pass,
    });
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    world.wait_reason("photos", "WaitingForCredentials").await;
    assert_eq!(
        phase(&world.claims().get("photos").await.unwrap()),
        Some(ClaimPhase::Bound),
        "its outputs were published"
    );
    // Nor does a restart forget that they were not seen to work.
    operator.stop().await;
    world.aws.clear();
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.aws.wait_until("a probe", |calls| calls.iter().any(|call| call.name == "ListObjectsV2")).await;
    world.aws.leave_alone();
    world.wait_reason("photos", "Bound").await;
    assert!(!world.aws.names().contains(&"CreateAccessKey".to_owned()), "{:?}", world.aws.names());
}

#[rstest]
#[case::in_one_run(false)]
#[case::by_the_next_run(true)]
#[tokio::test]
async fn new_keys_are_awaited_while_iam_shows_only_previous_ones(#[case] restarts: bool) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let claim = world.wait_bound("photos").await;
    operator.stop().await;
    // So that the next run asks the store whether all is there.
    world.unready("photos").await;
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    let time = Duration::from_secs(3);
    world.aws.upstream().strict(Strictness { key_delay: time, lag: time, ..Strictness::PROMPT });
    world.aws.clear();

    let mut operator = Operator::start(&world, Kind::InProcess).await;
    if restarts {
        world.aws.wait_until("a probe", |calls| calls.iter().any(|call| call.name == "ListObjectsV2")).await;
        operator.stop().await;
        operator = Operator::start(&world, Kind::InProcess).await;
    }
    world.wait_reason("photos", "Bound").await;
    let names = world.aws.names();
    assert_eq!(names.iter().filter(|name| *name == "CreateAccessKey").count(), 1, "{names:?}");
    let user = world.account.users_with(&claim.metadata.uid.unwrap()).await.pop().unwrap();
    assert_eq!(world.account.keys(&user).await, [world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone()]);
    operator.stop().await;
}

#[tokio::test]
async fn a_lost_label_or_entry_of_an_output_is_restored() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let unlabel = json!({ "metadata": { "labels": { "bucket-provisioner": null } } });
    world.secrets().patch("photos", &PatchParams::default(), &Patch::Merge(unlabel)).await.unwrap();
    let labelled = |secret: Option<&k8s_openapi::api::core::v1::Secret>| {
        secret.and_then(|s| s.metadata.labels.as_ref()).is_some_and(|l| l.contains_key("bucket-provisioner"))
    };
    seen(&world.secrets(), "photos", labelled).await.unwrap();

    let drop = json!({ "data": { "BUCKET_HOST": null } });
    world.config_maps().patch("photos", &PatchParams::default(), &Patch::Merge(drop)).await.unwrap();
    let whole = |map: Option<&k8s_openapi::api::core::v1::ConfigMap>| {
        map.and_then(|m| m.data.as_ref()).is_some_and(|data| data.contains_key("BUCKET_HOST"))
    };
    seen(&world.config_maps(), "photos", whole).await.unwrap();
}

#[rstest]
#[case::by_our_crd(None)]
#[case::unless_the_crd_prunes_it(Some(include_str!("fixtures/crds/phase-only.yaml")))]
#[tokio::test]
async fn a_lost_claim_reference_is_restored(#[case] crds: Option<&str>) {
    let other = OtherCluster::take().await;
    if let Some(text) = crds {
        other.install(&fixture_crds(text)).await;
    }
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let record = world.record_name("photos");
    world.kubernetes.clear();
    let dropped = Patch::Merge(json!({ "spec": { "claimRef": null } }));
    world.records().patch(&record, &PatchParams::default(), &dropped).await.unwrap();
    if crds.is_none() {
        let named = |object: Option<&ObjectBucket>| {
            object.is_some_and(|object| object.spec.claim_ref.as_ref().is_some_and(|claim| claim.name.is_some()))
        };
        seen(&world.records(), &record, named).await.expect("the claimRef is written again");
    }
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    let writes = world.kubernetes.calls().into_iter();
    let writes = writes.filter(|call| call.mutates && call.target.contains(&format!("/objectbuckets/{record}")));
    assert_eq!(writes.count(), usize::from(crds.is_none()));
}

#[tokio::test]
async fn a_bucket_deleted_by_hand_is_reported_and_not_recreated() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.account.s3.delete_bucket().bucket(&bucket).send().await.unwrap();
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    let message = world.wait_reason("photos", "BucketGone").await;
    assert!(message.contains(&bucket), "{message}");
    assert!(!world.account.bucket_exists(&bucket).await);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
}

/// The claim reports what becomes of its bucket.
#[tokio::test]
async fn a_claim_without_its_object_bucket_leaves_no_access() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    operator.stop().await;
    let name = world.record_name("photos");
    world.forget_object(&world.records(), &name).await;
    world.delete_claim("photos").await;

    let _operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    // Whether it was to be retained was recorded only in the ObjectBucket.
    assert!(world.account.bucket_exists(&bucket).await);
    let (_, note) = world.wait_event_with("photos", "LeftInPlace", &bucket).await;
    assert!(note.contains(&name) && note.contains("no longer exists"), "{note}");
    let (_, note) = world.wait_event("photos", "Removed").await;
    assert!(note.contains("if it still exists, is left in place"), "{note}");
}

#[rstest]
#[case::while_it_runs(false)]
#[case::before_it_starts(true)]
#[tokio::test]
async fn a_removed_ready_condition_is_restored(#[case] restarts: bool) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let mut running = Some(Operator::start(&world, Kind::InProcess).await);
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    if restarts {
        running.take().unwrap().stop().await;
    }
    // As a typed client writes a status that it knows the phase of.
    let dropped = Patch::Merge(json!({ "status": { "conditions": null } }));
    world.claims().patch_status("photos", &PatchParams::default(), &dropped).await.unwrap();
    world.kubernetes.clear();
    let operator = match running {
        Some(operator) => operator,
        None => Operator::start(&world, Kind::InProcess).await,
    };
    world.wait_reason("photos", "Bound").await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    let statuses = world.kubernetes.calls().into_iter().filter(|call| {
        call.mutates && call.name == "patch objectbucketclaims/status" && call.target.contains("/photos/")
    });
    assert_eq!(statuses.count(), 1, "it is written once");
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], key);
    operator.stop().await;
}
