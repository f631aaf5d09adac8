//! Clusters with CRDs of others: the whole life of claims on each, and no write too many.

use std::collections::BTreeMap;

use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use rstest::rstest;
use serde_json::json;

use crate::support::operator::{Binary, Kind, Operator};
use crate::support::other::{OtherCluster, fixture_crds, ours};
use crate::support::proxy::Call;
use crate::support::{PATIENCE, World, bucket_of, phase, ready};

const CLAIMS: [&str; 3] = ["generated", "named", "granted"];

/// What is bound is not written again.
#[rstest]
#[case::status_and_settings_keep_unknown_fields(include_str!("fixtures/crds/keeps-unknown.yaml"))]
#[case::status_is_a_phase_and_claim_ref_is_empty(include_str!("fixtures/crds/phase-only.yaml"))]
#[case::empty_strings_are_refused_and_names_immutable(include_str!("fixtures/crds/strict.yaml"))]
#[case::name_excludes_prefix_and_there_is_no_status_subresource(include_str!("fixtures/crds/exclusive.yaml"))]
#[tokio::test]
async fn claims_work_with_crds_of_others(#[case] text: &str) {
    let other = OtherCluster::take().await;
    other.install(&fixture_crds(text)).await;
    let world = other.world().await;
    let (named, archive) = (world.unique("reports"), world.unique("archive"));
    world.account.create_bucket(&archive).await;
    world.account.put(&archive, "kept").await.unwrap();
    let greenfield = world.class("greenfield").await;
    let brownfield = world.class_with("brownfield", "Delete", &[("bucketName", &archive)]).await;
    let broken = world.class_with("broken", "Delete", &[("secretName", "missing")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;

    // Provisioning, and how that ended. Where each write raises the generation, the first one shows that, and is corrected.
    let generated = world.claim("generated", &greenfield).await.uid().unwrap();
    world.wait_bound("generated").await;
    let reports = status_writes(&world, "generated");
    let most = if text.contains("subresources: { status: {} }") { 2 } else { 3 };
    assert!((1..=most).contains(&reports), "generated is reported {reports} times");
    world.claim_with("named", json!({ "storageClassName": greenfield, "bucketName": named })).await;
    world.claim_with("granted", json!({ "storageClassName": brownfield })).await;
    world.claim("unbindable", &broken).await;
    let mut buckets = BTreeMap::new();
    for claim in CLAIMS {
        let bound = world.wait_bound(claim).await;
        assert_eq!(bound.spec.object_bucket_name, Some(world.record_name(claim)));
        let bucket = world.environment(claim).await["BUCKET_NAME"].clone();
        world.app(claim).await.put(&bucket, claim).await.unwrap();
        buckets.insert(claim, bucket);
    }
    assert_eq!(buckets["generated"], format!("generated-{generated}"));
    assert_eq!((&buckets["named"], &buckets["granted"]), (&named, &archive));
    let (_, note) = world.wait_event("unbindable", "OwnerSecretNotFound").await;
    assert!(note.contains("missing"), "{note}");
    world.wait_claim("unbindable", "reported", |claim| phase(claim) == Some(ClaimPhase::Pending)).await;

    for claim in ["named", "granted", "unbindable"] {
        let reports = status_writes(&world, claim);
        assert!((1..=2).contains(&reports), "{claim} is reported {reports} times");
    }

    serve(&world, &greenfield, "before").await;
    let before = versions(&world).await;
    let reported = world.events("unbindable").await.len();
    world.kubernetes.clear();
    world.aws.clear();
    serve(&world, &greenfield, "meanwhile").await;
    assert_eq!(versions(&world).await, before);
    assert_eq!(writes_to_first(&world), [""; 0]);
    assert_eq!(world.events("unbindable").await.len(), reported, "it is reported once");
    operator.stop().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    serve(&world, &greenfield, "after").await;
    assert_eq!(versions(&world).await, before, "nor after a restart");
    assert_eq!(writes_to_first(&world), [""; 0]);
    let of_first = |target: &str| buckets.values().any(|bucket| target.contains(bucket));
    assert!(!world.aws.calls().iter().any(|call| of_first(&call.target)), "nor is AWS asked");

    for claim in CLAIMS {
        let edit = json!({ "spec": { "additionalConfig": { "color": "red" } } });
        world.claims().patch(claim, &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
        world.wait_claim(claim, "ready for `kubectl wait`", |claim| !is_waited_for(claim)).await;
    }

    let old = world.environment("generated").await["AWS_ACCESS_KEY_ID"].clone();
    world.secrets().delete("generated", &DeleteParams::default()).await.unwrap();
    world.wait_secret("generated", |keys| keys["AWS_ACCESS_KEY_ID"] != old).await;
    assert_eq!(world.app("generated").await.list(&buckets["generated"]).await.unwrap(), ["generated"]);

    assert_deleted_completely(&world, &buckets).await;
    operator.stop().await;
}

/// They are recorded where nothing prunes them.
#[rstest]
#[case::status_and_settings_keep_unknown_fields(include_str!("fixtures/crds/keeps-unknown.yaml"))]
#[case::status_is_a_phase_and_claim_ref_is_empty(include_str!("fixtures/crds/phase-only.yaml"))]
#[case::empty_strings_are_refused_and_names_immutable(include_str!("fixtures/crds/strict.yaml"))]
#[case::name_excludes_prefix_and_there_is_no_status_subresource(include_str!("fixtures/crds/exclusive.yaml"))]
#[tokio::test]
async fn what_claims_ask_for_works_with_crds_of_others(#[case] text: &str) {
    let other = OtherCluster::take().await;
    other.install(&fixture_crds(text)).await;
    let world = other.world().await;
    let may_set = ("claimsMaySet", "bucketClaimName,bucketVersioning,tags.*");
    let class = world.class_with("managed", "Delete", &[may_set, ("tags", "env=prod")]).await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    let asked = json!({ "bucketVersioning": "Enabled", "tags.team": "a", "accessMode": "WriteOnly" });
    let spec = json!({ "storageClassName": class, "generateBucketName": "photos", "additionalConfig": asked });
    world.claim_with("photos", spec).await;
    world.wait_bound("photos").await;
    let bucket = world.environment("photos").await["BUCKET_NAME"].clone();
    let edit = async |settings: serde_json::Value| {
        let edit = json!({ "spec": { "additionalConfig": settings } });
        world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(edit)).await.unwrap();
    };
    edit(json!({ "bucketVersioning": "Suspended", "tags.team": null })).await;
    world.wait_event("photos", "SettingsApplied").await;
    let versioning = world.account.s3.get_bucket_versioning().bucket(&bucket).send().await.unwrap();
    assert_eq!(versioning.status().map(|status| status.as_str()), Some("Suspended"));
    let tags = world.account.bucket_tags(&bucket).await;
    assert!(tags["env"] == "prod" && !tags.contains_key("team"), "{tags:?}");
    assert!(world.app("photos").await.list(&bucket).await.is_err());
    edit(json!({ "accessMode": "ReadWrite" })).await;
    world.wait_event("photos", "AccessChanged").await;
    assert!(world.app("photos").await.list(&bucket).await.is_ok());
    edit(json!({ "bucketVersioning": "perhaps" })).await;
    world.wait_event("photos", "EditIgnored").await;
    let asked = json!({ "bucketClaimName": "photos", "outputLabels": "team=shop" });
    world.claim_with("guest", json!({ "storageClassName": class, "additionalConfig": asked })).await;
    world.wait_bound("guest").await;
    assert_eq!(world.environment("guest").await["BUCKET_NAME"], bucket);
    assert_eq!(world.secrets().get("guest").await.unwrap().labels()["team"], "shop");
    operator.stop().await;
    let operator = Operator::start(&world, Kind::InProcess).await;
    world.claim("later", &class).await;
    world.wait_bound("later").await;
    for claim in ["guest", "photos", "later"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
    }
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.stop().await;
}

/// Deletes all claims, and requires that nothing is left of them but the bucket that existed before.
async fn assert_deleted_completely(world: &World, buckets: &BTreeMap<&str, String>) {
    for claim in CLAIMS.into_iter().chain(["unbindable"]) {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.assert_no_objects(claim).await;
    }
    assert!(!world.account.bucket_exists(&buckets["generated"]).await);
    assert!(!world.account.bucket_exists(&buckets["named"]).await);
    assert_eq!(world.account.list(&buckets["granted"]).await.unwrap(), ["granted", "kept"]);
    let users = world.account.users_with(&world.namespace).await;
    assert!(!users.iter().any(|user| CLAIMS.iter().any(|claim| user.contains(claim))), "{users:?}");
}

/// Binds three more claims: when they are bound, whatever the writes before woke has been dealt with.
async fn serve(world: &World, class: &str, name: &str) {
    for n in 0..3 {
        world.claim(&format!("{name}-{n}"), class).await;
        world.wait_bound(&format!("{name}-{n}")).await;
    }
}

async fn versions(world: &World) -> BTreeMap<String, Option<String>> {
    let mut versions = BTreeMap::new();
    let mut note = |kind: &str, claim: &str, version| versions.insert(format!("{kind} {claim}"), version);
    for claim in CLAIMS {
        note("claim", claim, world.claims().get(claim).await.unwrap().resource_version());
        note("record", claim, world.records().get(&world.record_name(claim)).await.unwrap().resource_version());
        note("Secret", claim, world.secrets().get(claim).await.unwrap().resource_version());
        note("ConfigMap", claim, world.config_maps().get(claim).await.unwrap().resource_version());
    }
    note("claim", "unbindable", world.claims().get("unbindable").await.unwrap().resource_version());
    versions
}

/// The writes to the bound claims and what belongs to them, as far as their targets name them. Creations do
/// not, but what exists cannot be created.
fn writes_to_first(world: &World) -> Vec<String> {
    let of_first = |target: &str| {
        target
            .split(['/', '?'])
            .any(|part| CLAIMS.iter().any(|claim| part == *claim || part == world.record_name(claim)))
    };
    let calls = world.kubernetes.calls().into_iter();
    calls.filter(|call| call.mutates && of_first(&call.target)).map(|call| call.name).collect()
}

/// Whether `kubectl wait --for=condition=Ready` and others wait for a claim that is bound: its condition has observed an
/// earlier generation.
fn is_waited_for(claim: &ObjectBucketClaim) -> bool {
    let observed = ready(claim).and_then(|ready| ready.observed_generation);
    observed.is_some_and(|observed| Some(observed) < claim.metadata.generation)
}

/// How often the status of a claim was written.
fn status_writes(world: &World, claim: &str) -> usize {
    let calls = world.kubernetes.calls();
    let of_claim = |call: &&Call| call.target.contains(&format!("objectbucketclaims/{claim}/status"));
    calls.iter().filter(|call| call.mutates).filter(of_claim).count()
}

/// The operator keeps running meanwhile.
#[tokio::test]
async fn missing_crds_are_reported_and_new_ones_are_served() {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let mut operator = Binary::start(&world, &[], &[("RUST_LOG", "info,kube_runtime=debug")]);
    let mut uids = vec![];
    for claim in ["one", "two"] {
        uids.push(world.claim(claim, &class).await.uid().unwrap());
        let bucket = bucket_of(&world.wait_bound(claim).await);
        world.app(claim).await.put(&bucket, "a").await.unwrap();
    }
    world.claim("nowhere", "no-such-class").await;
    world.wait_reason("nowhere", "StorageClassNotFound").await;

    // With the CRDs go all claims; their finalizers have the API server wait for the operator.
    other.confirm_deletion().await;
    other.delete_crds().await;
    other.wait_crds_gone().await;
    for uid in &uids {
        assert!(world.account.buckets_with(uid).await.is_empty());
        assert!(world.account.users_with(uid).await.is_empty());
    }
    for claim in ["one", "two"] {
        assert!(world.secrets().get_opt(claim).await.unwrap().is_none());
        assert!(world.config_maps().get_opt(claim).await.unwrap().is_none());
    }
    operator.wait_log("the CustomResourceDefinitions are missing").await;

    other.install(&ours()).await;
    world.claim("one", &class).await;
    let bucket = bucket_of(&world.wait_bound("one").await);
    world.app("one").await.put(&bucket, "a").await.unwrap();
    world.delete_claim("one").await;
    world.wait_gone("one").await;
    world.assert_no_objects("one").await;
    operator.terminate();
    operator.ended(PATIENCE).await;
}

/// Stops the operator and deletes the CRDs, so that the next test finds the cluster without them.
async fn end(mut operator: Binary, other: &OtherCluster) {
    operator.terminate();
    operator.ended(PATIENCE).await;
    other.delete_crds().await;
    other.wait_crds_gone().await;
}

/// What is done by mistake: with a CRD go all claims.
#[rstest]
#[case::of_claims("objectbucketclaims")]
#[case::of_object_buckets("objectbuckets")]
#[tokio::test]
async fn while_a_crd_is_deleted_nothing_is_deleted_at_the_store(#[case] plural: &str) {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let operator = Binary::start(&world, &[], &[]);
    let mut used = Vec::new();
    for claim in ["deleted", "kept"] {
        let uid = world.claim(claim, &class).await.uid().unwrap();
        let bucket = bucket_of(&world.wait_bound(claim).await);
        world.app(claim).await.put(&bucket, "precious").await.unwrap();
        used.push((claim, uid, bucket));
    }
    world.aws.clear();
    other.delete_crd(plural).await;
    // The CRD of claims deletes them; without that of ObjectBuckets, claims are deleted one by one.
    for (claim, ..) in &used {
        world.delete_claim(claim).await;
    }
    for (claim, uid, bucket) in &used {
        let message = world.wait_reason(claim, "CRDDeleting").await;
        assert!(message.contains(plural) && message.contains("objectbucket.io/confirm-deletion"), "{message}");
        assert_eq!(world.account.list(bucket).await.unwrap(), ["precious"]);
        assert_eq!(world.account.users_with(uid).await.len(), 1, "the user is deleted");
    }
    operator.wait_log("CRDDeleting").await;
    assert_eq!(world.aws.writes(), [""; 0]);

    // What an admin wants to keep is left as it is, and the claim is deleted.
    let (claim, uid, bucket) = &used[1];
    world.set_action(&world.record_name(claim), "forget").await;
    world.retry(claim, "1").await;
    world.wait_gone(claim).await;
    assert_eq!(world.account.list(bucket).await.unwrap(), ["precious"]);
    assert_eq!(world.account.users_with(uid).await.len(), 1, "the user is deleted");

    // The rest is deleted only after a confirmation.
    let (claim, uid, bucket) = &used[0];
    other.confirm_deletion().await;
    world.retry(claim, "1").await;
    world.wait_gone(claim).await;
    assert!(!world.account.bucket_exists(bucket).await);
    assert!(world.account.users_with(uid).await.is_empty());
    end(operator, &other).await;
}

/// An admin wants everything to go: the ObjectBuckets that outlive their claims can be decided about to the last.
#[tokio::test]
async fn leftovers_can_be_removed_before_the_crds_are_deleted() {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let mut operator = Binary::start(&world, &[], &[]);
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let record = world.record_name("photos");
    other.confirm_deletion().await;
    other.delete_crds().await;
    world.wait_condition(&record, "DeletionScheduled", "Scheduled").await;
    assert!(world.account.bucket_exists(&bucket).await);
    world.set_action(&record, "remove").await;
    other.wait_crds_gone().await;
    assert!(!world.account.bucket_exists(&bucket).await);
    operator.terminate();
    operator.ended(PATIENCE).await;
}

/// Of claims that stay.
#[tokio::test]
async fn no_key_is_replaced_while_the_object_bucket_crd_is_deleted() {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    let class = world.class("greenfield").await;
    let operator = Binary::start(&world, &[], &[]);
    let uid = world.claim("photos", &class).await.uid().unwrap();
    let bucket = bucket_of(&world.wait_bound("photos").await);
    let app = world.app("photos").await;
    other.delete_crd("objectbuckets").await;
    world.aws.clear();

    let rotate = json!({ "metadata": { "annotations": { "objectbucket.io/rotate-keys": "1" } } });
    world.claims().patch("photos", &PatchParams::default(), &Patch::Merge(rotate)).await.unwrap();
    let (_, note) = world.wait_event("photos", "RotationFailed").await;
    assert!(note.contains("objectbuckets") && note.contains("is being deleted"), "{note}");
    world.secrets().delete("photos", &DeleteParams::default()).await.unwrap();
    let message = world.wait_reason("photos", "CRDDeleting").await;
    assert!(message.contains("objectbucket.io/confirm-deletion"), "{message}");
    assert_eq!(world.aws.writes(), [""; 0]);
    app.put(&bucket, "a").await.expect("the key works");

    other.confirm_deletion().await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    assert!(world.account.users_with(&uid).await.is_empty());
    end(operator, &other).await;
}

#[tokio::test]
async fn no_bucket_that_is_due_is_deleted_while_a_crd_is_deleted() {
    let other = OtherCluster::take().await;
    let world = other.world().await;
    let class = world.class_with("later", "Delete", &[("onDelete", "after:7d")]).await;
    let operator = Binary::start(&world, &[], &[]);
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "precious").await.unwrap();
    let record = world.record_name("photos");
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    other.delete_crd("objectbuckets").await;
    world.aws.clear();
    // Longer than the operator takes an answer about the CRDs for true.
    world.delete_in(&record, 8).await;
    let message = world.wait_condition(&record, "DeletionScheduled", "CRDDeleting").await;
    assert!(message.contains("objectbucket.io/confirm-deletion"), "{message}");
    assert_eq!(world.account.list(&bucket).await.unwrap(), ["precious"]);
    assert_eq!(world.aws.writes(), [""; 0]);

    other.confirm_deletion().await;
    world.wait_record_gone(&record).await;
    assert!(!world.account.bucket_exists(&bucket).await);
    end(operator, &other).await;
}
