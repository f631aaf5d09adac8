//! The reconciler of ObjectBucketClaims: everything that does not depend on the store.
//!
//! ```text
//! watch ─► gate ─► resolve ─► plan ─► record ─► execute ─► outputs ─► report
//!         ours?   class,      pure    OB before  the store   Secret,    OB Bound,
//!                 parameters          the store              ConfigMap  claim Bound
//! ```

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use kube::runtime::controller::{self as kube_controller, Controller};
use kube::runtime::reflector;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Notify, oneshot};

use crate::decide::claim::Guarded;
use crate::objects::cluster;
pub use crate::options::Options;
pub(crate) use crate::reconcile::owner::{Owner, parameters as recorded_parameters, read as read_owner};
pub use crate::reconcile::recall::{RecallError, recall};
pub(crate) use crate::reconcile::recall::{of_claim, of_tags, would_be};
use crate::reconcile::{claim, orphans};
use crate::state::context::Context;
use crate::state::owner_secrets::OwnerSecrets;
use crate::store::Provisioner;
use crate::streams::Streams;
use operator_runtime::kubernetes::pages;
use operator_runtime::observe::Phase;

/// How long running reconciles may continue after a shutdown was requested.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);

/// How often watches that nobody needs are looked for.
const UNUSED_WATCHES: Duration = Duration::from_secs(60);

/// Serves claims until `shutdown` completes, then ends within 10 s. The next run finishes what is not finished by then.
/// If the cluster does not answer, or CRDs or permissions are missing, this is logged and retried.
pub async fn run<P: Provisioner>(
    client: Client,
    provisioner: P,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    tracing::info!(
        provisioner = options.provisioner_name,
        namespace = options.namespace.as_deref().unwrap_or("all"),
        concurrency = options.concurrency,
        "serving claims"
    );
    let shutdown = shutdown.boxed().shared();
    let client = pages::bounded(client);
    let Some(cluster) = cluster::uid(&client, shutdown.clone()).await else { return };

    let (claims, claim_writer) = reflector::store();
    let (owner_secrets, changed_secrets) = OwnerSecrets::new(options.observer.clone());
    let ctx = Arc::new(Context::new(client, provisioner, options, cluster, claims.clone(), owner_secrets));
    show(&ctx);
    let listed = Arc::new(Notify::new());
    let (orphan_check, orphan_checks) = unbounded_channel();
    let streams = Streams { ctx: Arc::clone(&ctx), listed: Arc::clone(&listed), orphan_check: orphan_check.clone() };

    let (stop, stopped) = oneshot::channel::<()>();
    let ending = Arc::clone(&ctx);
    let shutdown = shutdown.map(move |()| {
        tracing::info!("shutting down: running work is finished now or by the next run");
        ending.workers.close();
        // Fails only if the controller has already ended.
        let _ = stop.send(());
    });

    let controller = Controller::for_stream(streams.claims(claim_writer), claims)
        // Not bounded here: `Workers` decides which claim is next.
        .with_config(kube_controller::Config::default().concurrency(0))
        .watches_stream(streams.records(), crate::triggers::claims_of_record(Arc::clone(&ctx)))
        .watches_stream(streams.classes(), crate::triggers::claims_of_class(Arc::clone(&ctx)))
        .owns_stream(streams.secrets())
        .owns_stream(streams.config_maps())
        .reconcile_on(crate::triggers::claims_after_lists(listed, Arc::clone(&ctx)))
        .reconcile_on(crate::triggers::claims_of_secret(changed_secrets, Arc::clone(&ctx)))
        .reconcile_on(crate::triggers::claims_with_due_upkeep(Arc::clone(&ctx)))
        .graceful_shutdown_on(stopped.map(drop))
        .run(claim::reconcile, never, Arc::clone(&ctx))
        .for_each(async |outcome| log(&outcome));
    let deadline = shutdown.then(|()| grace(&ctx));
    let orphans = orphans::run(&ctx, orphan_checks, orphan_check);
    let serving = ctx.caches.filled().map(|()| drop(ctx.options.observer.health().set_phase(Phase::Serving)));
    tokio::select! {
        () = controller => {}
        () = end_unused_watches(&ctx) => {}
        () = orphans => {}
        () = deadline => {}
        // Never completes: only its beginning is reported.
        never = serving.then(|()| pending()) => never,
    }
    tracing::info!(remembered = ctx.memory.claims(), "stopped");
}

/// Ends the watches of Secrets that no claim needs any more.
async fn end_unused_watches<P>(ctx: &Context<P>) {
    // Without the records, all watches would look as if nobody needed them.
    ctx.caches.filled().await;
    loop {
        tokio::time::sleep(UNUSED_WATCHES).await;
        ctx.owner_secrets.end_unused(|secret| !ctx.caches.sharing(secret).is_empty());
    }
}

/// Shows the progress of the work: metrics, readiness.
fn show<P: Provisioner>(ctx: &Arc<Context<P>>) {
    let (observer, shown) = (&ctx.options.observer, Arc::downgrade(ctx));
    observer.metrics().upkeep.begin();
    observer.set_gauges(move |gauges| {
        if let Some(ctx) = shown.upgrade() {
            crate::gauges::set(&ctx, gauges);
        }
    });
}

/// How long running work may continue. Until all caches are filled, no work runs, but kube's controller would wait for
/// its cache.
async fn grace<P>(ctx: &Context<P>) {
    if ctx.caches.are_filled() {
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    }
}

/// Logs errors of kube's controller; the reconcile itself never fails.
fn log<T, E: std::error::Error>(outcome: &Result<T, kube_controller::Error<std::convert::Infallible, E>>) {
    match outcome {
        Ok(_) | Err(kube_controller::Error::ObjectNotFound(_)) => {}
        Err(kube_controller::Error::QueueError(error)) => {
            tracing::warn!(%error, "watching the cluster failed; retrying")
        }
        Err(error) => tracing::warn!(%error, "controller"),
    }
}

fn never<P>(_: Arc<Guarded>, error: &std::convert::Infallible, _: Arc<Context<P>>) -> kube_controller::Action {
    match *error {}
}
