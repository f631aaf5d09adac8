//! Several instances that want the same claim, in time that the tests control.
#![allow(clippy::unwrap_used)]

use std::future::Future;
use std::net::SocketAddr;

use futures::future::join_all;
use kube::runtime::reflector::{self, store::Writer};
use kube::runtime::watcher;
use kube::{Client, Config};
use operator_runtime::cluster::{self, ANSWER_LIMIT};
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::time::{Instant, sleep};

use super::*;
use crate::{Options, ProvisionedVolume, VolumeRequest, VolumeToDelete};

const PROVISIONER: &str = "example.com/disk";

/// How long it takes until all instances see that a claim is held.
const SEEN_AFTER: Duration = Duration::from_millis(100);

/// It has this identity, and provisions nothing.
struct Idle(&'static str);

impl VolumeProvisioner for Idle {
    type Parameters = ();

    fn identity(&self) -> &str {
        self.0
    }

    async fn provision(&self, _: &VolumeRequest<()>) -> Result<ProvisionedVolume, VolumeError> {
        Err(VolumeError::retryable("nothing"))
    }

    async fn delete(&self, _: &VolumeToDelete) -> Result<(), VolumeError> {
        Ok(())
    }
}

/// An instance, and what its cache shows.
struct Instance {
    ctx: Context<Idle>,
    cache: Mutex<Writer<PersistentVolumeClaim>>,
}

impl Instance {
    fn new(identity: &'static str, client: &Client) -> Self {
        let (claims, cache) = reflector::store();
        let ((volumes, _), (classes, _)) = (reflector::store(), reflector::store());
        let (client, options) = (client.clone(), Options::new(PROVISIONER));
        let ctx = Context::new(client, Arc::new(Idle(identity)), identity, options, claims, volumes, classes);
        Self { ctx, cache: Mutex::new(cache) }
    }

    fn show(&self, claim: &PersistentVolumeClaim) {
        self.cache.lock().apply_watcher_event(&watcher::Event::Apply(claim.clone()));
    }

    /// Whether it calls Kubernetes to hold the claim, which fails, rather than to leave it to another one.
    async fn tries_to_hold(&self, claim: &PersistentVolumeClaim) -> bool {
        match provide(&self.ctx, &Arc::new(claim.clone()), Some(class())).await {
            Ok(()) => false,
            Err(Failed::Kubernetes("hold the claim", _)) => true,
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn class() -> Class {
    let class = json!({ "metadata": { "name": "disks" }, "provisioner": PROVISIONER });
    Class::read(&serde_json::from_value(class).unwrap())
}

fn claim(uid: &str, holder: Option<&str>) -> PersistentVolumeClaim {
    let finalizers: Vec<_> = holder.iter().map(|_| wire::CLAIM_FINALIZER).collect();
    let claim = json!({
        "metadata": {
            "namespace": "ns", "name": uid, "uid": uid,
            "finalizers": finalizers, "annotations": holder.map(|holder| json!({ wire::HELD_BY: holder })),
        },
        "spec": { "storageClassName": "disks", "accessModes": ["ReadWriteOnce"] },
    });
    serde_json::from_value(claim).unwrap()
}

/// Of an API server that refuses all connections for as long as the socket exists.
fn refused() -> (Client, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let config = Config::new(format!("http://{}", socket.local_addr().unwrap()).parse().unwrap());
    (cluster::client(config, ANSWER_LIMIT).unwrap(), socket)
}

/// Each tries at a time of its own, and most find the claim held by then.
#[tokio::test(start_paused = true)]
async fn of_many_instances_few_try_to_hold_the_same_claim() {
    let (client, _socket) = refused();
    let instances = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|identity| Instance::new(identity, &client));
    let (mut tries, claims) = (0, 20);
    for number in 0..claims {
        let uid = format!("uid-{number}");
        let (free, held) = (claim(&uid, None), claim(&uid, Some("another instance")));
        instances.iter().for_each(|instance| instance.show(&free));
        let tried = join_all(instances.iter().map(async |instance| {
            let has_tried = instance.tries_to_hold(&free).await;
            if has_tried {
                sleep(SEEN_AFTER).await;
                instances.iter().for_each(|instance| instance.show(&held));
            }
            has_tried
        }));
        let tried = tried.await.into_iter().filter(|has_tried| *has_tried).count();
        assert!(tried >= 1, "somebody tries");
        tries += tried;
    }
    // A third of one in addition, on average: seven others, each of which tries within 100 of 2000 ms.
    assert!(tries <= 2 * claims, "{tries} tries of {} instances to hold {claims} claims", instances.len());
}

/// There is none to compete with.
#[tokio::test(start_paused = true)]
async fn an_instance_without_an_identity_does_not_wait() {
    let ((client, _socket), began) = (refused(), Instant::now());
    let instance = Instance::new("", &client);
    for number in 0..20 {
        let free = claim(&format!("uid-{number}"), None);
        instance.show(&free);
        assert!(instance.tries_to_hold(&free).await);
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

fn size<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
    size_of::<F>()
}

/// Ten thousand of them are ten thousand of these futures.
#[test]
fn a_claim_that_waits_for_a_worker_is_small() {
    let bytes = size::<&'static Context<Idle>, _, _>(work);
    assert!(bytes < 4096, "{bytes} bytes");
}
