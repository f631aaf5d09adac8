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

use futures::{FutureExt as _, StreamExt as _, stream};
use kube::Client;
use kube::runtime::reflector;
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;

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
use crate::triggers;
use operator_runtime::engine;
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
    run_shared(client, Arc::new(provisioner), options, shutdown).await;
}

/// As [`run`], with a store that serves the next run as well.
pub(crate) async fn run_shared<P: Provisioner>(
    client: Client,
    provisioner: Arc<P>,
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

    let ending = Arc::clone(&ctx);
    let shutdown = shutdown.map(move |()| {
        tracing::info!("shutting down: running work is finished now or by the next run");
        ending.workers.close();
    });
    let shutdown = shutdown.boxed().shared();

    let triggers = stream::select_all([
        triggers::of(streams.claims(claim_writer), triggers::claims_of_claim(Arc::clone(&ctx))),
        triggers::of(streams.records(), triggers::claims_of_record(Arc::clone(&ctx))),
        triggers::of(streams.classes(), triggers::claims_of_class(Arc::clone(&ctx))),
        triggers::of(streams.secrets(), |secret| triggers::claims_of_output(&secret)),
        triggers::of(streams.config_maps(), |config_map| triggers::claims_of_output(&config_map)),
        triggers::of(streams.service_accounts(), triggers::claims_of_service_account(Arc::clone(&ctx))),
        triggers::claims_after_lists(listed, Arc::clone(&ctx)).boxed(),
        triggers::claims_of_secret(changed_secrets, Arc::clone(&ctx)).boxed(),
        triggers::claims_with_due_upkeep(Arc::clone(&ctx)).boxed(),
    ]);
    let controller =
        engine::run(triggers, shutdown.clone(), |object, triggered| claim::reconcile(&ctx, object, triggered));
    let orphans = orphans::run(&ctx, orphan_checks, orphan_check, shutdown.clone());
    let deadline = shutdown.then(|()| grace(&ctx));
    let serving = ctx.caches.filled().map(|()| drop(ctx.options.observer.health().set_phase(Phase::Serving)));
    tokio::select! {
        _ = futures::future::join(controller, orphans) => {}
        () = end_unused_watches(&ctx) => {}
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

/// How long running work may continue. Until all caches are filled, what runs waits for them.
async fn grace<P>(ctx: &Context<P>) {
    if ctx.caches.are_filled() {
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    }
}
