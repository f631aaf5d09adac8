//! Write a provisioner of volumes by implementing two verbs: provision and delete.
//!
//! A user of a Kubernetes cluster submits a PersistentVolumeClaim whose StorageClass names a provisioner outside of
//! Kubernetes. This module does everything in between that is the same for every store, and leaves what differs to a
//! [`VolumeProvisioner`]. [`VolumeOperator`] makes a program of it, in one call.
//!
//! ```text
//! claim ─► due ─► hold ─► provision ─► PersistentVolume ─► (Kubernetes binds the claim) ─► release
//! PersistentVolume, released ─► due ─► delete it, held by a finalizer ─► delete ─► remove the finalizer
//! ```
//!
//! # Guarantees
//! - A volume is neither provisioned twice nor lost, wherever the process ends. Before the first call to the store, the
//!   claim gets a finalizer and an annotation with the instance that provisions for it. Both are removed when the claim
//!   is bound. A claim that is deleted meanwhile waits until what was begun is undone.
//! - A volume is deleted only if its claim has released it, its reclaim policy is Delete, no new claim of that name names it,
//!   and the PersistentVolume is the one that was created for it: a copy that comes from a backup, or is in another cluster,
//!   has another uid. Before the volume, the PersistentVolume is deleted, which the finalizer holds: no claim can get it then.
//! - Of several instances, those with the same [identity](VolumeProvisioner::identity) share one lease. Those with
//!   different ones work side by side, and the annotation on the claim names the one that has it.
//!
//! The folders are those of the controller of buckets: `decide`, which is pure, returns what is due; `flow` does it,
//! with the writes in `objects`; `state` is what all share.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod decide;
mod error;
mod flow;
mod metrics;
mod objects;
mod options;
mod permissions;
mod program;
mod provisioner;
mod quantity;
mod request;
mod state;
mod streams;
#[allow(clippy::module_inception, reason = "the file is about volumes, as the module is")]
mod volume;
pub mod wire;

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, stream};
use kube::Client;
use kube::runtime::reflector;

/// The crates whose types this one's API has, in the versions that fit.
pub use {k8s_openapi, kube};

pub use self::decide::retry::Retry;
pub use self::error::{VolumeError, VolumeErrorKind};
use self::flow::{claim, volume as flow_volume};
pub use self::options::Options;
pub use self::program::VolumeOperator;
pub use self::provisioner::VolumeProvisioner;
pub use self::request::{SelectedNode, VolumeMode, VolumeRequest};
use self::state::Context;
use self::streams::{Streams, claims_after_lists, volumes_after_lists};
pub use self::volume::{ProvisionedVolume, VolumeToDelete};
pub use operator_runtime::ReclaimPolicy;
use operator_runtime::engine;
pub use operator_runtime::flags::NoFlags;
use operator_runtime::kubernetes::pages;
use operator_runtime::observe::Phase;

/// How long running work may continue after a shutdown was requested.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

/// Serves claims and PersistentVolumes until `shutdown` completes, then ends within 10 s. The next run finishes what is not
/// finished by then. If the cluster does not answer, or permissions are missing, this is logged and retried.
pub async fn run<P: VolumeProvisioner>(
    client: Client,
    provisioner: P,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    run_shared(client, Arc::new(provisioner), options, shutdown).await;
}

/// As [`run`], with a provisioner that serves the next run as well.
async fn run_shared<P: VolumeProvisioner>(
    client: Client,
    provisioner: Arc<P>,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let identity = provisioner.identity().to_owned();
    tracing::info!(provisioner = options.provisioner_name, identity, "serving claims");
    let (claims, claim_writer) = reflector::store();
    let (volumes, volume_writer) = reflector::store();
    let (classes, class_writer) = reflector::store();
    let client = pages::bounded(client);
    let ctx = Context::new(client, provisioner, &identity, options, claims.clone(), volumes.clone(), classes);
    let ctx = Arc::new(ctx);
    let observer = ctx.options.observer.clone();
    let (streams, listed) = Streams::new(Arc::clone(&ctx));

    let ending = Arc::clone(&ctx);
    let shutdown = shutdown.map(move |()| {
        tracing::info!("shutting down: running work is finished now or by the next run");
        ending.workers.close();
    });
    let shutdown = shutdown.boxed().shared();
    let claim_triggers = stream::select_all([
        streams::of(streams.claims(claim_writer)),
        streams.classes(class_writer).boxed(),
        claims_after_lists(listed.claims, Arc::clone(&ctx)).boxed(),
    ]);
    let volume_triggers = stream::select_all([
        streams::of(streams.volumes(volume_writer)),
        volumes_after_lists(listed.volumes, Arc::clone(&ctx)).boxed(),
    ]);
    let claim_work = engine::run(claim_triggers, shutdown.clone(), |object, _| claim::reconcile(&ctx, object));
    let volume_work = engine::run(volume_triggers, shutdown.clone(), |object, _| flow_volume::reconcile(&ctx, object));
    let work = futures::future::join(claim_work, volume_work);
    let deadline = shutdown.then(|()| tokio::time::sleep(SHUTDOWN_GRACE));
    let serving = ctx.filled().map(|()| drop(observer.health().set_phase(Phase::Serving)));
    tokio::select! {
        _ = work => {}
        () = deadline => {}
        // Never completes: only its beginning is reported.
        never = serving.then(|()| pending()) => never,
    }
    tracing::info!(remembered = ctx.memory.len(), "stopped");
}
