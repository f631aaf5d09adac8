//! Records that lost what the operator wrote into them: a typed client with a partial struct, or a hand edit. Who wrote
//! them is not guessed from what is missing.

use bucket_provisioner::api::ObjectBucket;
use bucket_provisioner::api::wire::BUCKET_LABEL;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::operator::{Kind, Operator};
use crate::support::{World, bucket_of, seen};

/// What is left of an ObjectBucket.
#[derive(Debug, Clone, Copy)]
enum Left {
    NoState,
    NoMode,
    OnlyTheUser,
}

impl Left {
    fn patch(self) -> Value {
        match self {
            Self::NoState => json!({ "spec": { "additionalState": null } }),
            Self::NoMode => json!({ "spec": { "additionalState": { "mode": null } } }),
            Self::OnlyTheUser => json!({ "spec": { "additionalState": {
                "mode": null, "claimUID": null, "claimName": null, "claimNamespace": null, "clusterUID": null,
                "accountID": null, "handedOver": null, "secretName": null, "secretNamespace": null,
                "endpointURL": null, "iamPath": null, "iamEndpoint": null,
            }}}),
        }
    }
}

struct Bound {
    uid: String,
    bucket: String,
    record: String,
    key: String,
}

async fn bind(world: &World, class: &str) -> Bound {
    let uid = world.claim("photos", class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    let key = world.environment("photos").await["AWS_ACCESS_KEY_ID"].clone();
    Bound { uid, bucket, record: world.record_name("photos"), key }
}

async fn damage(world: &World, bound: &Bound, patch: &Value) {
    world.records().patch(&bound.record, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[rstest]
#[case(Left::NoState)]
#[case(Left::NoMode)]
#[case(Left::OnlyTheUser)]
#[tokio::test]
async fn a_damaged_object_bucket_is_reported_and_restored(#[case] left: Left) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    let state = |record: &ObjectBucket| record.spec.additional_state.clone().unwrap_or_default();
    let before = state(&world.records().get(&bound.record).await.unwrap());
    damage(&world, &bound, &left.patch()).await;
    let whole = |record: Option<&ObjectBucket>| record.is_some_and(|record| state(record) == before);
    let restored = seen(&world.records(), &bound.record, whole).await;
    restored.unwrap_or_else(|_| panic!("it is not as it was: {before:#?}"));
    let (type_, note) = world.wait_event("photos", "Repaired").await;
    assert!(type_ == "Warning" && note.contains(&bound.record) && note.contains("is missing"), "{note}");
    let on_record = world.events_on_record(&bound.record).await;
    assert!(on_record.iter().any(|(_, reason, _)| reason == "Repaired"), "{on_record:?}");
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], bound.key);
    world.wait_reason("photos", "Bound").await;
    operator.stop().await;
}

/// When it is deleted.
#[rstest]
#[case(Left::NoState)]
#[case(Left::OnlyTheUser)]
#[tokio::test]
async fn a_claim_with_a_damaged_object_bucket_leaves_nothing(#[case] left: Left) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    damage(&world, &bound, &left.patch()).await;
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&bound.uid).await.is_empty(), "the user is left");
    assert!(!world.account.bucket_exists(&bound.bucket).await, "the bucket is left");
    world.assert_no_objects("photos").await;
    assert!(world.records().get_opt(&bound.record).await.unwrap().is_none());
    operator.stop().await;
}

/// And nothing is reported as removed.
#[tokio::test]
async fn damage_without_the_class_is_reported_and_removes_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    world.delete_class(&class).await;
    damage(&world, &bound, &Left::NoState.patch()).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let message = world.wait_reason("photos", "ObjectBucketDamaged").await;
    assert!(message.contains(&bound.record) && message.contains("spec.additionalState is missing"), "{message}");
    assert_eq!(
        crate::support::phase(&world.claims().get("photos").await.unwrap()),
        Some(bucket_provisioner::api::ClaimPhase::Bound)
    );
    world.delete_claim("photos").await;
    world
        .wait_claim("photos", "being removed", |claim| {
            crate::support::phase(claim) == Some(bucket_provisioner::api::ClaimPhase::Released)
        })
        .await;
    assert_eq!(world.account.users_with(&bound.uid).await.len(), 1);
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    // With the class back, all is known again.
    world.class("greenfield").await;
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&bound.uid).await.is_empty());
    assert!(!world.account.bucket_exists(&bound.bucket).await);
    operator.stop().await;
}

/// Contradictions to the claim and the class: nothing is overwritten.
#[tokio::test]
async fn contradictions_in_an_object_bucket_are_only_reported() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    let theirs = world.unique("theirs");
    world.account.create_bucket(&theirs).await;
    world.account.put(&theirs, "precious").await.unwrap();
    let edit = json!({ "spec": { "additionalState": null, "endpoint": { "bucketName": theirs } } });
    damage(&world, &bound, &edit).await;
    let message = world.wait_reason("photos", "ObjectBucketDamaged").await;
    assert!(message.contains("spec.endpoint.bucketName"), "{message}");
    world.wait_event_on_record(&bound.record, "ObjectBucketDamaged").await;
    let record = world.records().get(&bound.record).await.unwrap();
    assert_eq!(record.spec.endpoint.unwrap().bucket_name.as_deref(), Some(theirs.as_str()));
    assert!(record.spec.additional_state.is_none());

    // Deleted, the claim waits as well: nobody knows what was made for it.
    world.delete_claim("photos").await;
    let released = |claim: &_| crate::support::phase(claim) == Some(bucket_provisioner::api::ClaimPhase::Released);
    world.wait_claim("photos", "being removed", released).await;
    world.wait_reason("photos", "ObjectBucketDamaged").await;
    assert_eq!(world.account.users_with(&bound.uid).await.len(), 1);
    let mended = json!({ "spec": { "endpoint": { "bucketName": bound.bucket } } });
    world.records().patch(&bound.record, &PatchParams::default(), &Patch::Merge(mended)).await.unwrap();
    world.wait_gone("photos").await;
    assert_eq!(world.account.list(&theirs).await.unwrap(), ["precious"]);
    assert!(!world.account.bucket_exists(&bound.bucket).await);
    assert!(world.account.users_with(&bound.uid).await.is_empty());
    operator.stop().await;
}

/// What else was edited in an ObjectBucket that names another bucket.
#[derive(Debug, Clone, Copy)]
enum Edited {
    Nothing,
    LabelRemoved,
    /// And the ConfigMap was deleted, so that nothing shows the edit.
    LabelAndConfigMap,
}

#[rstest]
#[case(Edited::Nothing, "ObjectBucketDamaged")]
#[case(Edited::LabelRemoved, "BucketConflict")]
#[case(Edited::LabelAndConfigMap, "BucketConflict")]
#[tokio::test]
async fn an_object_bucket_edited_to_a_foreign_bucket_has_no_effect(#[case] edited: Edited, #[case] reason: &str) {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let theirs = world.unique("theirs");
    world.account.create_bucket(&theirs).await;
    world.account.put(&theirs, "precious").await.unwrap();
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    let label = match edited {
        Edited::Nothing => json!({}),
        Edited::LabelRemoved => json!({ BUCKET_LABEL: null }),
        Edited::LabelAndConfigMap => json!({ BUCKET_LABEL: theirs }),
    };
    let edit = json!({ "metadata": { "labels": label }, "spec": { "endpoint": { "bucketName": theirs } } });
    damage(&world, &bound, &edit).await;
    if matches!(edited, Edited::LabelAndConfigMap) {
        world.config_maps().delete("photos", &Default::default()).await.unwrap();
    }
    let operator = Operator::start(&world, Kind::InProcess).await;
    let message = world.wait_reason("photos", reason).await;
    assert!(message.contains(&bound.record) && !message.contains("claim-uid"), "{message}");
    let published = world.config_maps().get_opt("photos").await.unwrap().and_then(|map| map.data);
    assert!(published.is_none_or(|data| data["BUCKET_NAME"] != theirs), "it leads to no other bucket");

    world.delete_claim("photos").await;
    if matches!(edited, Edited::Nothing) {
        let mended = json!({ "spec": { "endpoint": { "bucketName": bound.bucket } } });
        damage(&world, &bound, &mended).await;
    }
    world.wait_gone("photos").await;
    assert_eq!(world.account.list(&theirs).await.unwrap(), ["precious"]);
    assert!(world.account.users_with(&bound.uid).await.is_empty(), "its access is revoked");
    // What became of the bucket that was the claim's is not forgotten either.
    let stays = !matches!(edited, Edited::Nothing);
    assert_eq!(world.records().get_opt(&bound.record).await.unwrap().is_some(), stays);
    assert_eq!(world.account.bucket_exists(&bound.bucket).await, stays);
    operator.stop().await;
}

#[tokio::test]
async fn a_lost_status_is_restored_and_nothing_is_forgotten() {
    let world = World::new().await;
    let class = world.class_with("greenfield", "Retain", &[]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    let none = Patch::Merge(json!({ "status": null }));
    world.records().patch_status(&bound.record, &PatchParams::default(), &none).await.unwrap();
    world.claims().patch_status("photos", &PatchParams::default(), &none).await.unwrap();
    let secret = world.secrets();
    secret.delete("photos", &Default::default()).await.unwrap();
    // Deleted before anybody looked: what is to be retained is.
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_gone("photos").await;
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    assert!(world.account.users_with(&bound.uid).await.is_empty());
    operator.stop().await;
}

#[tokio::test]
async fn a_lost_status_and_a_changed_class_delete_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    let none = Patch::Merge(json!({ "status": null }));
    world.records().patch_status(&bound.record, &PatchParams::default(), &none).await.unwrap();
    world.class_with("greenfield", "Delete", &[("iamPath", "/elsewhere/")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let has_phase = |record: Option<&ObjectBucket>| {
        record.and_then(|record| record.status.as_ref()).is_some_and(|status| status.phase.is_some())
    };
    seen(&world.records(), &bound.record, has_phase).await.expect("its phase is restored");
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], bound.key);
    assert_eq!(world.claims().get("photos").await.unwrap().uid().unwrap(), bound.uid);
    operator.stop().await;
}

/// What an earlier version did not write yet.
const EARLIER: [&str; 3] = ["clusterUID", "accountID", "handedOver"];

/// Even if the class has changed.
#[tokio::test]
async fn an_earlier_versions_lost_status_deletes_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    let lost = EARLIER.into_iter().map(|key| (key.to_owned(), json!(null))).collect::<serde_json::Map<_, _>>();
    damage(&world, &bound, &json!({ "spec": { "additionalState": lost } })).await;
    let none = Patch::Merge(json!({ "status": null }));
    world.records().patch_status(&bound.record, &PatchParams::default(), &none).await.unwrap();
    world.class_with("greenfield", "Delete", &[("iamPath", "/elsewhere/")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let whole = |record: Option<&ObjectBucket>| {
        let state = record.and_then(|record| record.spec.additional_state.clone()).unwrap_or_default();
        ["clusterUID", "handedOver"].iter().all(|key| state.contains_key(*key))
    };
    let waited = seen(&world.records(), &bound.record, whole).await;
    assert!(waited.is_ok(), "it is completed: {:#?}", world.records().get(&bound.record).await);
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    assert_eq!(world.environment("photos").await["AWS_ACCESS_KEY_ID"], bound.key);
    operator.stop().await;
}

#[tokio::test]
async fn forgetting_a_damaged_object_bucket_deletes_nothing() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    world.set_action(&bound.record, "forget").await;
    damage(&world, &bound, &Left::NoState.patch()).await;
    world.delete_claim("photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.wait_gone("photos").await;
    world.wait_record_gone(&bound.record).await;
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    assert_eq!(world.account.users_with(&bound.uid).await.len(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_damaged_orphan_is_reported_on_itself() {
    let world = World::new().await;
    let class = world.class("greenfield").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let bound = bind(&world, &class).await;
    operator.stop().await;
    damage(&world, &bound, &json!({ "spec": { "endpoint": null } })).await;
    world.forget_object(&world.claims(), "photos").await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let message = world.wait_orphaned(&bound.record, "RecordDamaged").await;
    assert!(message.contains("forget") && message.contains("spec.endpoint"), "{message}");
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    world.set_action(&bound.record, "forget").await;
    world.wait_record_gone(&bound.record).await;
    assert_eq!(world.account.list(&bound.bucket).await.unwrap(), ["precious"]);
    operator.stop().await;
}
