//! The library with another store than AWS: its author implements the trait, and gets the rest.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bucket_provisioner::api::ClaimPhase;
use bucket_provisioner::controller::{self, Options};
use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Capabilities, Checkup, Content, CreateError, Endpoint, Plan,
    Provisioner, Reason, Request, StoreError, Topic,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::orphans::force_out;
use crate::support::{PATIENCE, World, assert_contains, phase, seen};

/// Buckets and users that are names in a set. A bucket whose name begins with "slow" is built step by step. Apps get a
/// format and a secret, under keys that cannot be used if the bucket's name begins with "standard" or "twice". Keys are
/// never rotated. Whether a bucket is still there is found in two steps. The first call that revokes access to a bucket
/// whose name begins with "buggy" panics.
#[derive(Clone, Default)]
struct Shelf {
    things: Arc<Mutex<BTreeSet<String>>>,
    rotations: Arc<AtomicUsize>,
    checks: Arc<AtomicUsize>,
}

const TAKEN: Reason =
    Reason::new("Taken", Topic::Claim).meaning("the name is on the shelf already").remedy("choose another");
const JAMMED: Reason = Reason::new("Jammed", Topic::Store).meaning("the shelf is jammed").remedy("repair it");
const GONE: Reason = Reason::new("Gone", Topic::Store).meaning("the bucket is not on the shelf").remedy("look for it");
const BUILDING: Reason = Reason::new("Building", Topic::Progress).meaning("the shelf is being built").remedy("wait");

impl Shelf {
    fn has(&self, thing: &str) -> bool {
        self.things.lock().unwrap().contains(thing)
    }

    fn put(&self, thing: &str) -> bool {
        self.things.lock().unwrap().insert(thing.to_owned())
    }

    fn take(&self, thing: &str) {
        self.things.lock().unwrap().remove(thing);
    }
}

impl Provisioner for Shelf {
    type Parameters = ();
    type Owner = ();
    type Error = StoreError;

    const REASONS: &'static [&'static Reason] = &[&TAKEN, &JAMMED, &GONE, &BUILDING];
    const CAPABILITIES: Capabilities = Capabilities::NONE.with_rotation();

    fn endpoint(&self, (): &()) -> Endpoint {
        Endpoint::new("shelf", 80).with_region("here")
    }

    fn plan(&self, request: &Request<'_, ()>) -> Result<Plan, StoreError> {
        let key = if request.bucket.starts_with("standard") { "AWS_REGION" } else { "FORMAT" };
        Ok(request.plan(self.endpoint(request.parameters)).with_output(key, "parquet"))
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        let bucket = call.bucket();
        if bucket.starts_with("slow") && self.put(&format!("{bucket}, half")) {
            return Err(StoreError::in_progress(&BUILDING, "half of the shelf is built").into());
        }
        self.take(&format!("{bucket}, half"));
        if !self.put(bucket) {
            let message = format!("spec.bucketName {bucket:?} is on the shelf already; choose another");
            return Err(CreateError::Refused(StoreError::terminal(&TAKEN, message)));
        }
        Ok(())
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        self.put(call.user());
        let key = if call.bucket().starts_with("twice") { "FORMAT" } else { "PASSPHRASE" };
        Ok(AppCredentials::new(call.user(), "s".into()).with_output(key, "sesame".into()))
    }

    async fn rotate(&self, _: &Call<'_, Self>, _: &str) -> Result<Option<AppCredentials>, StoreError> {
        self.rotations.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::terminal(&JAMMED, "the shelf is jammed; repair it"))
    }

    async fn check(&self, call: &Call<'_, Self>, _: &[&str]) -> Result<Checkup, StoreError> {
        self.checks.fetch_add(1, Ordering::SeqCst);
        let (bucket, looking) = (call.bucket(), format!("{}, looking", call.bucket()));
        if self.put(&looking) {
            return Err(StoreError::in_progress(&BUILDING, "half of the shelf is searched"));
        }
        self.take(&looking);
        match self.has(bucket) {
            true => Ok(Checkup::default()),
            false => Err(StoreError::lost(&GONE, format!("bucket {bucket:?} is not on the shelf; look for it"))),
        }
    }

    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        let bucket = call.bucket();
        assert!(!bucket.starts_with("buggy") || !self.put(&format!("{bucket}, panicked")), "a mistake of the author");
        self.take(&format!("{bucket}, panicked"));
        self.take(call.user());
        Ok(AccessRemoval::Deleted)
    }

    async fn delete_bucket(&self, call: &Call<'_, Self>, _: Content) -> Result<BucketRemoval, StoreError> {
        self.take(call.bucket());
        Ok(BucketRemoval::Deleted)
    }
}

/// A class of the shelf, and an operator for it.
async fn serve(world: &World) -> (Shelf, String) {
    let class = world.unique("shelf");
    world.create_class(json!({ "metadata": { "name": class }, "provisioner": world.provisioner })).await;
    let shelf = Shelf::default();
    let options = Options::new(&world.provisioner).with_namespace(world.namespace.clone());
    let client = Client::try_from(world.config()).unwrap();
    tokio::spawn(controller::run(client, shelf.clone(), options, std::future::pending()));
    (shelf, class)
}

/// With ObjectBuckets, outputs and reports.
#[tokio::test]
async fn a_store_that_implements_the_verbs_serves_claims() {
    let world = World::new().await;
    let (shelf, class) = serve(&world).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    world.wait_bound("photos").await;
    let environment = world.environment("photos").await;
    assert_eq!(environment["BUCKET_NAME"], format!("photos-{uid}"));
    assert_eq!(environment["BUCKET_HOST"], "shelf");
    assert!(shelf.has(&format!("{}-photos-{uid}", world.namespace)));

    shelf.put("classics");
    world.claim_with("thief", json!({ "storageClassName": class, "bucketName": "classics" })).await;
    let message = world.wait_reason("thief", "Taken").await;
    assert_eq!(message, "spec.bucketName \"classics\" is on the shelf already; choose another");
    assert_eq!(phase(&world.claims().get("thief").await.unwrap()), Some(ClaimPhase::Failed));

    world.claim("slow", &class).await;
    assert_eq!(world.wait_reason("slow", "Building").await, "half of the shelf is built");
    assert_eq!(phase(&world.claims().get("slow").await.unwrap()), Some(ClaimPhase::Pending));
    world.wait_bound("slow").await;

    for claim in ["photos", "thief", "slow"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.assert_no_objects(claim).await;
    }
    assert_eq!(shelf.things.lock().unwrap().iter().collect::<Vec<_>>(), ["classics"]);
}

/// Its mistakes in them are reported by name.
#[tokio::test]
async fn outputs_of_a_store_are_written_and_repaired() {
    let world = World::new().await;
    let (shelf, class) = serve(&world).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    let environment = world.environment("photos").await;
    assert_eq!((environment["FORMAT"].as_str(), environment["PASSPHRASE"].as_str()), ("parquet", "sesame"));
    let record = world.records().get(&world.record_name("photos")).await.unwrap();
    assert!(!serde_json::to_string(&record).unwrap().contains("sesame"), "the record holds a secret");

    let edit = Patch::Merge(json!({ "data": { "FORMAT": "csv" } }));
    world.config_maps().patch("photos", &PatchParams::default(), &edit).await.unwrap();
    world.wait_config_map("photos", |data| data["FORMAT"] == "parquet").await;
    let edit = Patch::Merge(json!({ "metadata": { "labels": { "bucket-provisioner": null } } }));
    world.secrets().patch("photos", &PatchParams::default(), &edit).await.unwrap();
    let label = |secret: &Secret| {
        secret.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("bucket-provisioner"))
    };
    seen(&world.secrets(), "photos", |secret| secret.is_some_and(label)).await.unwrap();
    assert_eq!(world.environment("photos").await, environment, "a rewritten Secret has what the store added");

    world.claim("standard", &class).await;
    assert_contains(&world.wait_reason("standard", "InvalidOutput").await, &["AWS_REGION", "standard key"]);
    assert_eq!(phase(&world.claims().get("standard").await.unwrap()), Some(ClaimPhase::Pending));
    assert!(world.secrets().get_opt("standard").await.unwrap().is_none());

    world.claim("twice", &class).await;
    world.wait_bound("twice").await;
    for event in 1..=2 {
        let in_secret = world.secrets().get("twice").await.unwrap().data.unwrap();
        assert!(!in_secret.contains_key("FORMAT"), "the ConfigMap has it");
        assert_eq!(world.environment("twice").await["FORMAT"], "parquet");
        let (severity, note) = world.wait_event("twice", "InvalidOutput").await;
        assert_eq!(severity, "Warning");
        assert_contains(&note, &["FORMAT", "ConfigMap"]);
        let events = world.events("twice").await;
        assert_eq!(events.iter().filter(|(_, reason, _)| reason == "InvalidOutput").count(), event, "{events:?}");
        // A Secret that somebody deletes comes back, with new keys.
        let uid = world.secrets().get("twice").await.unwrap().metadata.uid;
        world.secrets().delete("twice", &DeleteParams::default()).await.unwrap();
        let is_new = |secret: Option<&Secret>| secret.is_some_and(|secret| secret.metadata.uid != uid);
        seen(&world.secrets(), "twice", is_new).await.unwrap();
    }
    for claim in ["photos", "standard", "twice"] {
        world.delete_claim(claim).await;
        world.wait_gone(claim).await;
        world.assert_no_objects(claim).await;
    }
    assert!(shelf.things.lock().unwrap().is_empty(), "{:?}", shelf.things);
}

/// Neither of a claim nor of an ObjectBucket without its claim, and no other claim notices.
#[tokio::test]
async fn a_panic_in_a_verb_ends_only_its_attempt() {
    let world = World::new().await;
    let (shelf, class) = serve(&world).await;
    let claims = ["buggy-claim", "buggy-orphan"];
    for claim in claims {
        world.claim(claim, &class).await;
        world.wait_bound(claim).await;
    }
    force_out(&world, "buggy-orphan").await;
    let record = world.record_name("buggy-orphan");
    assert_contains(&world.wait_orphaned(&record, "RemovalFailed").await, &["this is a bug"]);
    world.wait_orphaned(&record, "ClaimVanished").await;
    world.claim("other", &class).await;
    world.wait_bound("other").await;
    world.delete_claim("buggy-claim").await;
    world.wait_gone("buggy-claim").await;
    let is_access = |thing: &&String| thing.contains("buggy") && thing.starts_with(&world.namespace);
    assert_eq!(shelf.things.lock().unwrap().iter().find(is_access), None, "a user is left");
}

async fn annotate(world: &World, claim: &str, annotations: serde_json::Value) {
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    world.claims().patch(claim, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_failed_rotation_backs_off_despite_a_requested_retry() {
    let world = World::new().await;
    let (shelf, class) = serve(&world).await;
    world.claim("photos", &class).await;
    world.wait_bound("photos").await;
    annotate(&world, "photos", json!({ "objectbucket.io/rotate-keys": "1", "objectbucket.io/retry": "1" })).await;
    world.wait_event("photos", "RotationFailed").await;
    // Less than the wait after such a failure.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(shelf.rotations.load(Ordering::SeqCst), 1);
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
}

#[tokio::test]
async fn a_lost_bucket_is_reported_while_the_store_searches_it() {
    let world = World::new().await;
    let (shelf, class) = serve(&world).await;
    let uid = world.claim("photos", &class).await.metadata.uid.unwrap();
    world.wait_bound("photos").await;
    shelf.take(&format!("photos-{uid}"));
    annotate(&world, "photos", json!({ "objectbucket.io/retry": "1" })).await;
    assert_contains(&world.wait_reason("photos", "Gone").await, &["not on the shelf"]);
    annotate(&world, "photos", json!({ "objectbucket.io/retry": "2" })).await;
    let twice = async {
        while shelf.checks.load(Ordering::SeqCst) < 4 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, twice).await.expect("the store is asked until it knows");
    let events = world.events("photos").await;
    assert_eq!(events.iter().filter(|(_, reason, _)| reason == "Bound").count(), 1, "{events:?}");
    world.wait_reason("photos", "Gone").await;
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
}
