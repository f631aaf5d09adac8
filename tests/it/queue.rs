//! Large removals: each piece of work waits in a queue that is fair to namespaces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bucket_provisioner::api::{ClaimPhase, ObjectBucketClaim};
use bucket_provisioner::controller::{self, Options};
use bucket_provisioner::store::{
    self, AccessRemoval, AppCredentials, BucketRemoval, Content, CreateError, Endpoint, Provisioner, Reason, StoreError,
};
use kube::Client;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use crate::support::proxy::Call;
use crate::support::{PATIENCE, World, phase, ready};

/// Pieces of work in which a bucket is emptied.
const PIECES: usize = 3;

/// A store in which buckets whose names begin with "large" are emptied in pieces; all but the first need a permit to
/// end, as does the deletion of a bucket whose name begins with "held".
#[derive(Clone)]
struct Heap {
    permits: Arc<Semaphore>,
    /// The buckets whose pieces began, in order.
    began: watch::Sender<Vec<String>>,
    ended: Arc<Mutex<HashMap<String, usize>>>,
}

impl Provisioner for Heap {
    type Parameters = ();
    type Owner = ();
    type Error = StoreError;

    const REASONS: &'static [&'static Reason] = &[];

    fn endpoint(&self, (): &()) -> Endpoint {
        Endpoint::new("heap", 80).with_region("here")
    }

    async fn create_bucket(&self, _: &store::Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        Ok(())
    }

    async fn grant(&self, call: &store::Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        Ok(AppCredentials::new(call.bucket(), "s".into()))
    }

    async fn revoke(&self, _: &store::Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        Ok(AccessRemoval::Deleted)
    }

    async fn delete_bucket(&self, call: &store::Call<'_, Self>, _: Content) -> Result<BucketRemoval, StoreError> {
        let bucket = call.bucket().to_owned();
        if bucket.starts_with("held") {
            self.permits.acquire().await.unwrap().forget();
        }
        if bucket.starts_with("large") {
            self.began.send_modify(|began| began.push(bucket.clone()));
            if self.ended.lock().unwrap().contains_key(&bucket) {
                self.permits.acquire().await.unwrap().forget();
            }
            let mut ended = self.ended.lock().unwrap();
            let pieces = ended.entry(bucket).or_default();
            *pieces += 1;
            if *pieces < PIECES {
                return Ok(BucketRemoval::partial(1000));
            }
        }
        Ok(BucketRemoval::Deleted)
    }
}

impl Heap {
    fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), began: watch::channel(Vec::new()).0, ended: Arc::default() }
    }

    /// Lets this many pieces end, and waits until so many more have begun.
    async fn go_on(&self, end: usize, begin: usize) -> Vec<String> {
        let wanted = self.began.borrow().len() + begin;
        self.permits.add_permits(end);
        self.until_begun(wanted).await
    }

    /// Waits until so many pieces have begun in all.
    async fn until_begun(&self, wanted: usize) -> Vec<String> {
        let begun = async { self.began.subscribe().wait_for(|began| began.len() >= wanted).await.unwrap().len() };
        tokio::time::timeout(PATIENCE, begun).await.expect("further pieces begin");
        self.began.borrow().clone()
    }
}

async fn bind(world: &World, class: &str, name: &str) {
    world.claim_with(name, json!({ "storageClassName": class, "generateBucketName": name })).await;
    world.wait_bound(name).await;
}

/// Serves the store with four workers, of which two empty buckets. Returns the store and the name of its class.
async fn serve(world: &World) -> (Heap, String) {
    let (heap, class) = (Heap::new(), world.unique("heap"));
    world.create_class(json!({ "metadata": { "name": class }, "provisioner": world.provisioner })).await;
    let options = Options::new(&world.provisioner).with_concurrency(4);
    let client = Client::try_from(world.config()).unwrap();
    tokio::spawn(controller::run(client, heap.clone(), options, std::future::pending()));
    (heap, class)
}

#[tokio::test]
async fn a_deleted_claim_that_waits_for_a_worker_is_not_ready() {
    let world = World::new().await;
    let (heap, class) = serve(&world).await;
    let crowd: Vec<_> = (0..7).map(|n| format!("held-{n}")).collect();
    for name in &crowd {
        bind(&world, &class, name).await;
    }
    for name in &crowd {
        world.delete_claim(name).await;
    }
    for name in &crowd {
        let removing = |claim: &ObjectBucketClaim| {
            phase(claim) == Some(ClaimPhase::Released) && ready(claim).is_some_and(|ready| ready.reason == "Removing")
        };
        world.wait_claim(name, "being removed", removing).await;
    }
    heap.permits.add_permits(crowd.len());
    for name in &crowd {
        world.wait_gone(name).await;
    }
}

/// The next in the queue is one of another namespace.
#[tokio::test]
async fn a_queued_removal_makes_no_calls() {
    let (world, neighbour) = (World::new().await, World::new().await);
    let (heap, class) = serve(&world).await;
    let crowd: Vec<_> = (0..10).map(|n| format!("large-{n}")).collect();
    for name in &crowd {
        bind(&world, &class, name).await;
    }
    bind(&neighbour, &class, "large-single").await;

    for name in &crowd {
        world.delete_claim(name).await;
    }
    // The first piece of each is like any removal; then two begin the next one, and the others wait.
    let began = heap.until_begun(crowd.len() + 2).await;
    let begun_once = |name: &&String| began.iter().filter(|bucket| bucket.starts_with(name.as_str())).count() == 1;
    let waiting: Vec<_> = crowd.iter().filter(begun_once).collect();
    assert_eq!(waiting.len(), crowd.len() - 2, "{began:?}");
    for name in &crowd {
        world.wait_reason(name, "Purging").await;
    }
    world.kubernetes.clear();
    for number in 0..10 {
        bind(&world, &class, &format!("small-{number}")).await;
    }
    let is_waiting = |call: &&Call| {
        waiting.iter().any(|name| call.target.contains(&format!("{name}-")) || call.target.ends_with(name.as_str()))
    };
    let calls = world.kubernetes.calls();
    let reads: Vec<_> = calls.iter().filter(|call| !call.mutates).filter(is_waiting).collect();
    assert!(reads.is_empty(), "{reads:?}");

    let begun = heap.began.borrow().len();
    neighbour.delete_claim("large-single").await;
    heap.until_begun(begun + 1).await;
    neighbour.wait_reason("large-single", "Purging").await;
    let mut pieces = 0;
    while !heap.go_on(1, 1).await.last().unwrap().starts_with("large-single") {
        pieces += 1;
        // One that began before it was in the queue, and one that was next.
        assert!(pieces <= 2, "the crowd does not go first: {:?}", heap.began.borrow());
    }
    heap.permits.add_permits(100);
    neighbour.wait_gone("large-single").await;
    for name in &crowd {
        world.wait_gone(name).await;
    }
}
