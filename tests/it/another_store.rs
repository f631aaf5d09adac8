//! The library with another store than AWS: whoever writes one implements the trait, and gets the rest.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bucket_provisioner::api::ClaimPhase;
use bucket_provisioner::controller::{self, Options};
use bucket_provisioner::provisioner::{
    AppCredentials, Endpoint, Fate, Provisioner, Reason, Record, Removal, Removed, StoreError, Topic,
};
use kube::{Client, Config};
use serde_json::json;

use crate::support::{World, phase};

/// Buckets and users that are names in a set. A bucket whose name begins with "slow" is built step by step.
#[derive(Clone, Default)]
struct Shelf {
    things: Arc<Mutex<BTreeSet<String>>>,
}

const TAKEN: Reason = Reason::new("Taken", Topic::Claim, "the name is on the shelf already", "choose another");
const BUILDING: Reason = Reason::new("Building", Topic::Progress, "the shelf is being built", "wait");

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

fn user(record: &Record) -> &str {
    record.plan.user.as_deref().unwrap()
}

impl Provisioner for Shelf {
    type Parameters = ();
    type Owner = ();
    type Error = StoreError;

    fn endpoint(&self, (): &()) -> Endpoint {
        Endpoint { host: "shelf".into(), port: 80, region: "here".into(), url: None }
    }

    async fn provision(&self, record: &Record, owner: &()) -> Result<AppCredentials, StoreError> {
        let bucket = &record.plan.bucket;
        if bucket.starts_with("slow") && self.put(&format!("{bucket}, half")) {
            return Err(StoreError::in_progress(&BUILDING, "half of the shelf is built"));
        }
        self.take(&format!("{bucket}, half"));
        if !self.put(&record.plan.bucket) {
            let name = &record.plan.bucket;
            let message = format!("spec.bucketName {name:?} is on the shelf already; choose another");
            return Err(StoreError::terminal(&TAKEN, message).untouched());
        }
        self.grant(record, owner).await
    }

    async fn grant(&self, record: &Record, _: &()) -> Result<AppCredentials, StoreError> {
        self.put(user(record));
        Ok(AppCredentials { access_key_id: user(record).into(), secret_access_key: "s".into(), session_token: None })
    }

    async fn revoke(&self, record: &Record, _: &(), _: Option<&AppCredentials>) -> Result<Removal, StoreError> {
        self.take(user(record));
        Ok(Removal::Done(Removed { access: Fate::Removed, bucket: Fate::Kept }))
    }

    async fn delete(&self, record: &Record, _: &(), _: Option<&AppCredentials>) -> Result<Removal, StoreError> {
        self.take(user(record));
        self.take(&record.plan.bucket);
        Ok(Removal::Done(Removed { access: Fate::Removed, bucket: Fate::Removed }))
    }
}

#[tokio::test]
async fn a_store_that_implements_the_verbs_gets_claims_records_outputs_and_reports() {
    let world = World::new().await;
    let class = world.unique("shelf");
    world.create_class(json!({ "metadata": { "name": class }, "provisioner": world.provisioner })).await;
    let shelf = Shelf::default();
    let options = Options { namespace: Some(world.namespace.clone()), ..Options::new(&world.provisioner) };
    let client = Client::try_from(Config::new(world.kubernetes.url.parse().unwrap())).unwrap();
    tokio::spawn(controller::run(client, shelf.clone(), options, std::future::pending()));

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
