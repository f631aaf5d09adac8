//! The reconciler of ObjectBucketClaims: everything that is the same for every store.
//!
//! ```text
//! watch ─► gate ─► resolve ─► plan ─► record ─► execute ─► outputs ─► report
//!         ours?   class,      pure    OB before  the store   Secret,    OB Bound,
//!                 parameters          the store              ConfigMap  claim Bound
//! ```
//!
//! `reconcile.rs` and `provide.rs` are the table of contents; each step is in the file of its name. What decides
//! (`decide`, `gate`, `plan`, `steps`, `keys`, `backoff`) has no client; what does I/O decides nothing. Deletion
//! (`teardown.rs`) goes the same way back, from the record alone. `upkeep.rs` looks after bound claims,
//! `flow/orphans.rs` after records whose claims are gone, `flow/adoption.rs` after those that a claim takes over;
//! `model` explores what decides.

mod backoff;
mod cache;
mod claim;
mod cluster;
mod context;
mod decide;
mod deletion;
mod error;
mod flow;
mod gate;
mod keys;
mod mark;
mod memory;
#[cfg(test)]
mod model;
mod objects;
mod outputs;
mod owner_secrets;
mod plan;
mod provide;
mod reconcile;
mod report;
mod resolve;
mod state;
mod steps;
mod teardown;
mod upkeep;
mod watch;

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::controller::{self as kube_controller, Controller};
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use self::cache::Cache;
use self::claim::{Claim, Guarded};
use self::context::{Caches, Context, OutputFacts};
use self::decide::record;
use self::flow::orphans::{self, Look};
pub use self::flow::recall::{RecallError, recall};
use self::memory::Memory;
use self::owner_secrets::OwnerSecrets;
use self::state::conditions::Conditions;
use self::state::pages;
use self::state::workers::Workers;
use self::watch::watch;
use crate::api::{ObjectBucket, wire};
use crate::provisioner::Provisioner;

/// How long running reconciles may go on after a shutdown was asked for.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);
/// Objects in an answer to a list: what bounds the memory that lists take while they are read.
const PAGE: u32 = 200;
/// How many stores at least can be worked with at the same time.
const STORES_AT_ONCE: usize = 4;
/// How many claims are told at the same time what they wait for.
const TELLERS: usize = 8;
/// How exactly the time of upkeep is kept.
const LOOKS: Duration = Duration::from_secs(1);
const CRDS_MISSING: &str = "the CustomResourceDefinitions are missing; install them with `aws-s3-provisioner crds | kubectl apply -f -`; waiting for them";
const PERMISSIONS_MISSING: &str = "the operator lacks permissions; see deploy/; waiting for them";

/// What the operator is told by its command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// `StorageClass.provisioner` of the classes it serves.
    pub provisioner_name: String,
    /// The one namespace whose claims it serves; all if `None`.
    pub namespace: Option<String>,
    /// How many claims of one store and owner are worked on at the same time, at least 1; in all it is four times as many.
    /// A claim that waits does not count.
    pub concurrency: u16,
    /// How often the store is asked whether all is as it was made for a bound claim, give or take a tenth;
    /// never if `None`. A claim's first time lies anywhere within the interval, so that a restart asks nothing
    /// at once.
    pub resync: Option<Duration>,
}

/// [`Options::resync`] by default.
pub const DEFAULT_RESYNC: Duration = Duration::from_secs(10 * 60 * 60);

impl Default for Options {
    fn default() -> Self {
        Self {
            provisioner_name: wire::DEFAULT_PROVISIONER.to_owned(),
            namespace: None,
            concurrency: 32,
            resync: Some(DEFAULT_RESYNC),
        }
    }
}

/// Serves claims until `shutdown` completes; then finishes or abandons what runs within 10 s. What is
/// abandoned is finished by the next run. A cluster that cannot be reached, CRDs that are missing and permissions
/// that lack are told in the log, and waited for.
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

    let label = wire::provisioner_label(&options.provisioner_name);
    let concurrency = options.concurrency.max(1);
    let all = watcher::Config::default().page_size(PAGE);
    let outputs = all.clone().labels(&format!("{}={label}", wire::PROVISIONER_LABEL));

    let shutdown = shutdown.boxed().shared();
    let client = pages::bounded(client);
    let Some(cluster) = cluster::uid(&client, shutdown.clone()).await else { return };

    let (claims, claim_writer) = reflector::store();
    let (owner_secrets, changed_secrets) = OwnerSecrets::new();

    let ctx = Arc::new(Context {
        client: client.clone(),
        provisioner,
        label,
        cluster,
        caches: Caches::of(claims.clone(), options.namespace.clone()),
        memory: Memory::default(),
        conditions: Conditions::default(),
        workers: Workers::new(STORES_AT_ONCE * usize::from(concurrency)),
        tellers: tokio::sync::Semaphore::new(TELLERS),
        large_removals: tokio::sync::Semaphore::new(usize::from(concurrency / 4).max(1)),
        owner_secrets,
        options,
    });
    let namespace = ctx.options.namespace.as_deref();

    let (after_relist, relists) = unbounded_channel();
    let (look, looks) = unbounded_channel();
    let (look_again, look_everywhere) = (look.clone(), look.clone());
    let look_at_record = look.clone();
    let (shown, relisted_in) = (Arc::clone(&ctx), Arc::clone(&ctx));
    let claim_stream = watch("claims", namespaced::<Guarded>(&client, namespace), all.clone())
        .modify(claim::trim)
        .inspect_ok({
            let ctx = Arc::clone(&ctx);
            move |event| {
                if let watcher::Event::Apply(claim) | watcher::Event::InitApply(claim) = event
                    && let Ok(claim) = &claim.0
                    && let Some(status) = &claim.status
                {
                    ctx.conditions.shown(status);
                }
            }
        })
        .inspect_ok(move |event| {
            let claim = match event {
                watcher::Event::Delete(claim) => {
                    let claim = Claim::read(claim, &shown.label);
                    shown.memory.forget(&claim.id.uid);
                    claim
                }
                // A new one: it may stand in the place of another.
                watcher::Event::Apply(claim) => match Claim::read(claim, &shown.label) {
                    claim if claim.status.phase.is_none() => claim,
                    _ => return,
                },
                _ => return,
            };
            for record in orphans::records_of(&shown, &claim) {
                // The other end is gone only when the operator ends.
                let _ = look.send(Look::now(record));
            }
        })
        .reflect(claim_writer)
        .inspect_ok(relisted(&after_relist))
        .inspect_ok(move |event| {
            if let watcher::Event::InitDone = event {
                let uids = relisted_in.caches.claims.state().iter().filter_map(|claim| claim.uid()).collect();
                relisted_in.memory.keep_only(&uids);
                let _ = look_everywhere.send(Look::Everywhere);
            }
        })
        .applied_objects();
    let cached_records = Arc::clone(&ctx);
    let record_stream = changes(
        watch("ObjectBuckets", Api::<DeserializeGuard<ObjectBucket>>::all(client.clone()), all.clone())
            .inspect_ok(move |event| {
                cached_records.caches.records.apply(event);
                let look = match event {
                    watcher::Event::Apply(record) => Look::now(record.name_any()),
                    watcher::Event::InitDone => Look::Everywhere,
                    _ => return,
                };
                let _ = look_at_record.send(look);
            })
            .inspect_ok(relisted(&after_relist)),
    );
    let class_stream = watch("StorageClasses", Api::<StorageClass>::all(client.clone()), all)
        .inspect_ok(cached(&ctx, |caches| &caches.classes, |class: &StorageClass| Some(class.clone())))
        .touched_objects();
    let secret_stream = changes(
        watch("Secrets", namespaced::<PartialObjectMeta<Secret>>(&client, namespace), outputs.clone())
            .inspect_ok(cached(&ctx, |caches| &caches.secrets, OutputFacts::of_secret))
            .inspect_ok(relisted(&after_relist)),
    );
    let config_map_stream = changes(
        watch("ConfigMaps", namespaced::<PartialObjectMeta<ConfigMap>>(&client, namespace), outputs)
            .inspect_ok(cached(&ctx, |caches| &caches.config_maps, OutputFacts::of_config_map))
            .inspect_ok(relisted(&after_relist)),
    );

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let ending = Arc::clone(&ctx);
    let shutdown = async move {
        shutdown.await;
        tracing::info!("shutting down: running work is finished or left to the next run");
        ending.workers.close();
        // The other end is dropped only once the controller has ended by itself.
        let _ = stop.send(());
    }
    .shared();

    let controller = Controller::for_stream(claim_stream, claims.clone())
        // Not bounded here: claims wait for a worker in turn, and not in the order in which they came.
        .with_config(kube_controller::Config::default().concurrency(0))
        .watches_stream(record_stream, claims_of_record(Arc::clone(&ctx)))
        .watches_stream(class_stream, claims_of_class(Arc::clone(&ctx)))
        .owns_stream(secret_stream)
        .owns_stream(config_map_stream)
        .reconcile_all_on(from_channel(relists))
        .reconcile_on(claims_of_secret(changed_secrets, Arc::clone(&ctx)))
        .reconcile_on(claims_to_look_at(Arc::clone(&ctx)))
        .graceful_shutdown_on(stopped.map(drop))
        .run(reconcile::reconcile, never, Arc::clone(&ctx))
        .for_each(|outcome| async move {
            match outcome {
                Ok(_) | Err(kube_controller::Error::ObjectNotFound(_)) => {}
                Err(kube_controller::Error::QueueError(error)) => {
                    tracing::warn!(%error, "watching the cluster; trying again")
                }
                Err(error) => tracing::warn!(%error, "controller"),
            }
        });
    let shared = Arc::clone(&ctx);
    let deadline = shutdown.then(|()| async move {
        // Before all caches are filled nothing runs that could be finished, and kube's controller waits for its own.
        if shared.caches.are_filled() {
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        }
    });
    let (controller, orphans) = (pin!(controller), pin!(orphans::look_after(&ctx, looks, look_again)));
    let work = futures::future::select(controller, orphans);
    futures::future::select(work, pin!(deadline)).await;
    tracing::info!(remembered = ctx.memory.claims(), "stopped");
}

fn namespaced<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn never<P>(_: Arc<Guarded>, error: &std::convert::Infallible, _: Arc<Context<P>>) -> kube_controller::Action {
    match *error {}
}

/// The claim of a record; and where a record that somebody else names goes, whoever waits for its bucket. A record that
/// is not its claim's ends the wait of that claim, for it may be given to it now; and so does one that may have been
/// mended.
fn claims_of_record<P: Provisioner>(
    ctx: Arc<Context<P>>,
) -> impl Fn(DeserializeGuard<ObjectBucket>) -> Vec<ObjectRef<Guarded>> {
    move |record| {
        let Ok(record) = record.0 else { return Vec::new() };
        let bucket = record.spec.endpoint.as_ref().and_then(|endpoint| endpoint.bucket_name.as_deref());
        let mut woken = bucket.map(|bucket| ctx.memory.wake_for_bucket(bucket)).unwrap_or_default();
        if let (None, Some(uid)) = (record::claim_name(&record), record::claim_uid(&record)) {
            // Some CRDs prune the name; an admin may have said by the uid whose it is.
            ctx.memory.wake(uid);
            woken.insert(uid.to_owned());
        }
        let mut claims = with_uids(&ctx.caches.claims, &woken);
        if let Some((namespace, name)) = record::claim_name(&record) {
            let claim = ObjectRef::new(name).within(namespace);
            let uid = ctx.caches.claims.get(&claim).and_then(|shown| shown.uid());
            match uid {
                Some(uid) if record::claim_uid(&record) == Some(&uid) => {
                    ctx.memory.wake_if_told(&uid, &error::MENDED_IN_THE_RECORD);
                }
                Some(uid) => ctx.memory.wake(&uid),
                None => {}
            }
            claims.push(claim);
        }
        claims
    }
}

/// A class that appears or changes ends the wait of its claims.
fn claims_of_class<P: Provisioner>(ctx: Arc<Context<P>>) -> impl Fn(StorageClass) -> Vec<ObjectRef<Guarded>> {
    move |class| {
        let name = class.name_any();
        let names_class = |claim: &Guarded| match &claim.0 {
            Ok(claim) => claim.spec.storage_class_name == name,
            Err(_unreadable) => false,
        };
        refs(&ctx.caches.claims, names_class)
            .map(|(uid, claim)| {
                ctx.memory.wake(&uid);
                claim
            })
            .collect()
    }
}

/// A Secret with owner's credentials that appears or changes ends the wait of the claims that need it.
fn claims_of_secret<P: Provisioner>(
    changes: UnboundedReceiver<owner_secrets::Change>,
    ctx: Arc<Context<P>>,
) -> impl Stream<Item = ObjectRef<Guarded>> {
    from_channel(changes).flat_map(move |(secret, version)| {
        let mut woken = ctx.memory.wake_dependants(&secret, version.as_deref());
        woken.extend(ctx.caches.sharing(&secret));
        stream::iter(with_uids(&ctx.caches.claims, &woken))
    })
}

/// Claims whose upkeep is due, once it is.
fn claims_to_look_at<P: Provisioner>(ctx: Arc<Context<P>>) -> impl Stream<Item = ObjectRef<Guarded>> {
    let ticks = stream::unfold(tokio::time::interval(LOOKS), |mut interval| async {
        interval.tick().await;
        Some(((), interval))
    });
    ticks.flat_map(move |()| stream::iter(with_uids(&ctx.caches.claims, &ctx.memory.to_be_looked_at())))
}

/// Keeps in the cache that `of` picks what `facts` says of each object.
fn cached<P, K: Resource, F, Of, Facts>(
    ctx: &Arc<Context<P>>,
    of: Of,
    facts: Facts,
) -> impl FnMut(&watcher::Event<K>) + use<P, K, F, Of, Facts>
where
    Of: Fn(&Caches) -> &Cache<F>,
    Facts: Fn(&K) -> Option<F>,
{
    let ctx = Arc::clone(ctx);
    move |event| of(&ctx.caches).apply(event, &facts)
}

/// Says when a whole list has come in anew. While it comes in, the cache still shows the old one, and what
/// was deleted meanwhile is told by no event of its own: every claim is looked at again, which costs a
/// steady one nothing. The first list says nothing: no claim is looked at before it is there.
fn relisted<K>(after: &UnboundedSender<()>) -> impl FnMut(&watcher::Event<K>) + use<K> {
    let (after, mut is_first) = (after.clone(), true);
    move |event| {
        if let watcher::Event::InitDone = event
            && !std::mem::take(&mut is_first)
        {
            // The other end is gone only when the operator ends.
            let _ = after.send(());
        }
    }
}

/// The objects that change. What is listed is in the cache when [every claim is looked at](relisted).
fn changes<K>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
) -> impl Stream<Item = watcher::Result<K>> {
    events.try_filter_map(|event| {
        future::ok(match event {
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => Some(object),
            watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone => None,
        })
    })
}

fn from_channel<T>(channel: UnboundedReceiver<T>) -> impl Stream<Item = T> {
    stream::unfold(channel, |mut channel| async {
        let item = channel.recv().await?;
        Some((item, channel))
    })
}

fn with_uids(claims: &Store<Guarded>, uids: &HashSet<String>) -> Vec<ObjectRef<Guarded>> {
    // Mostly there are none, and looking through all claims is not for nothing.
    if uids.is_empty() {
        return Vec::new();
    }
    let wanted = |claim: &Guarded| claim.meta().uid.as_ref().is_some_and(|uid| uids.contains(uid));
    refs(claims, wanted).map(|(_, claim)| claim).collect()
}

fn refs(
    claims: &Store<Guarded>,
    wanted: impl Fn(&Guarded) -> bool,
) -> impl Iterator<Item = (String, ObjectRef<Guarded>)> {
    let found: Vec<_> = claims.state().into_iter().filter(|claim| wanted(claim)).collect();
    found.into_iter().map(|claim| (claim.uid().unwrap_or_default(), ObjectRef::from_obj(claim.as_ref())))
}
