//! What is watched: each stream fills a cache, and reports what may need work.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;

use super::decide::claim::{self, Claim, Guarded};
use super::reconcile::orphans::{self, OrphanCheck};
use super::state::cache::Cache;
use super::state::caches::{Caches, OutputFacts};
use super::state::context::Context;
use super::state::memory::Forgotten;
use crate::api::{Guard, ObjectBucket, wire};
use crate::decide::metadata::FieldManager;
use operator_runtime::kubernetes::watch::watch;
use operator_runtime::observe::Observer;

/// Objects in one page of a list. This limits the memory that lists need while they are read.
const PAGE: u32 = 200;

/// The streams, and where they report what may need work. The receivers are dropped only when the operator ends.
pub(super) struct Streams<P> {
    pub(super) ctx: Arc<Context<P>>,
    /// A list was read: claims may need work.
    pub(super) listed: Arc<Notify>,
    /// A record may be an orphan.
    pub(super) orphan_check: UnboundedSender<OrphanCheck>,
}

impl<P: Send + Sync + 'static> Streams<P> {
    /// The claims that are created or change, trimmed. Those that are listed are
    /// [checked](triggers::claims_after_lists) when all lists are complete.
    pub(super) fn claims(&self, cache: Writer<Guarded>) -> impl Stream<Item = watcher::Result<Guarded>> + use<P> {
        let (ctx, check) = (Arc::clone(&self.ctx), self.orphan_check.clone());
        let (listed, check_all) = (Arc::clone(&self.ctx), self.orphan_check.clone());
        let has = self.ctx.rules.has;
        watch("claims", self.namespaced::<Guarded>(), all(), self.observer())
            .modify(move |claim| claim::trim(claim, has))
            .reflect(cache)
            // The check of orphans looks into the cache.
            .inspect_ok(move |event| claim_changed(&ctx, event, &check))
            .inspect_ok(move |event| {
                if let watcher::Event::InitDone = event {
                    listed.caches.listed_claims();
                    let uids = listed.caches.claims.state().iter().filter_map(|claim| claim.uid()).collect();
                    listed.memory.listed(&uids);
                    let _ = check_all.send(OrphanCheck::Everywhere);
                }
            })
            .inspect_ok(self.listed())
            .try_filter_map(|event| {
                future::ok(match event {
                    watcher::Event::Apply(claim) => Some(claim),
                    _ => None,
                })
            })
    }

    /// The ObjectBuckets that change.
    pub(super) fn records(&self) -> impl Stream<Item = watcher::Result<Guard<ObjectBucket>>> + use<P> {
        let (ctx, check) = (Arc::clone(&self.ctx), self.orphan_check.clone());
        let api: Api<Guard<ObjectBucket>> = Api::all(self.ctx.client.clone());
        let events = watch("ObjectBuckets", api, all(), self.observer()).inspect_ok(move |event| {
            ctx.caches.records.apply(event);
            let which = match event {
                watcher::Event::Apply(record) | watcher::Event::Delete(record) => OrphanCheck::now(record.name_any()),
                watcher::Event::InitDone => OrphanCheck::Everywhere,
                _ => return,
            };
            let _ = check.send(which);
        });
        changes(events.inspect_ok(self.listed()))
    }

    /// The StorageClasses that are listed, created, changed or deleted.
    pub(super) fn classes(&self) -> impl Stream<Item = watcher::Result<StorageClass>> + use<P> {
        watch("StorageClasses", Api::<StorageClass>::all(self.ctx.client.clone()), all(), self.observer())
            .inspect_ok(self.cached(|caches| &caches.classes, |_, class: &StorageClass| Some(class.clone())))
            .touched_objects()
    }

    /// The claims' Secrets that change, without their data.
    pub(super) fn secrets(&self) -> impl Stream<Item = watcher::Result<PartialObjectMeta<Secret>>> + use<P> {
        let events = watch("Secrets", self.namespaced::<PartialObjectMeta<Secret>>(), self.labelled(), self.observer())
            .inspect_ok(self.cached(|caches| &caches.secrets, OutputFacts::of_secret));
        changes(events.inspect_ok(self.listed()))
    }

    /// The claims' ConfigMaps that change, without their data.
    pub(super) fn config_maps(&self) -> impl Stream<Item = watcher::Result<PartialObjectMeta<ConfigMap>>> + use<P> {
        let events =
            watch("ConfigMaps", self.namespaced::<PartialObjectMeta<ConfigMap>>(), self.labelled(), self.observer())
                .inspect_ok(self.cached(|caches| &caches.config_maps, OutputFacts::of_config_map));
        changes(events.inspect_ok(self.listed()))
    }

    /// The ServiceAccounts that are listed, created or changed, without more than their metadata; from the time on at which a
    /// claim waits for one, because not every operator may watch them.
    pub(super) fn service_accounts(
        &self,
    ) -> impl Stream<Item = watcher::Result<PartialObjectMeta<ServiceAccount>>> + use<P> {
        let (ctx, api, observer) = (Arc::clone(&self.ctx), self.namespaced(), self.observer().clone());
        let awaited = stream::once(async move { ctx.service_accounts_awaited().await });
        awaited.flat_map(move |()| {
            let api: Api<PartialObjectMeta<ServiceAccount>> = Api::clone(&api);
            watch("ServiceAccounts", api, all(), &observer).applied_objects()
        })
    }

    fn observer(&self) -> &Observer {
        self.ctx.options.observer.runtime()
    }

    /// Objects with our label.
    fn labelled(&self) -> watcher::Config {
        all().labels(&format!("{}={}", wire::PROVISIONER_LABEL, self.ctx.label))
    }

    fn namespaced<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match &self.ctx.options.namespace {
            Some(namespace) => Api::namespaced(self.ctx.client.clone(), namespace),
            None => Api::all(self.ctx.client.clone()),
        }
    }

    /// Keeps the `facts` about each object in the cache that `of` returns.
    fn cached<K: Resource, F, Of, Facts>(
        &self,
        of: Of,
        facts: Facts,
    ) -> impl FnMut(&watcher::Event<K>) + use<P, K, F, Of, Facts>
    where
        Of: Fn(&Caches) -> &Cache<F>,
        Facts: Fn(&FieldManager, &K) -> Option<F>,
    {
        let ctx = Arc::clone(&self.ctx);
        move |event| of(&ctx.caches).apply(event, |object: &K| facts(&ctx.field_manager, object))
    }

    /// Reports when a list was read. No event shows which objects were deleted since the last one, so all claims are looked
    /// at.
    fn listed<K>(&self) -> impl FnMut(&watcher::Event<K>) + use<P, K> {
        let listed = Arc::clone(&self.listed);
        move |event| {
            if let watcher::Event::InitDone = event {
                listed.notify_one();
            }
        }
    }
}

fn all() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}

/// Processes a change of a claim. The records of a deleted claim may be orphans, and so may those of a previous claim
/// of the same name as a new one.
fn claim_changed<P>(ctx: &Context<P>, event: &watcher::Event<Guarded>, check: &UnboundedSender<OrphanCheck>) {
    if let watcher::Event::Apply(claim) | watcher::Event::InitApply(claim) = event
        && let Ok(claim) = &claim.0
        && let Some(status) = &claim.status
    {
        ctx.conditions.shown(status);
    }
    let claim = match event {
        watcher::Event::Delete(claim) => {
            let claim = Claim::read(claim, &ctx.label);
            // Its finalizer was removed by somebody else.
            if ctx.memory.forget(&claim.id.uid) == Forgotten::Unfinished {
                ctx.orphans.vanished(&claim.id.uid);
            }
            claim
        }
        watcher::Event::Apply(claim) => match Claim::read(claim, &ctx.label) {
            claim if claim.status.phase.is_none() => claim,
            _ => return,
        },
        _ => return,
    };
    for record in orphans::of_claim(ctx, &claim) {
        let _ = check.send(record);
    }
}

/// The objects that change. Listed objects are left out, because after a list [all claims are looked
/// at](Streams::listed).
fn changes<K: Send + 'static>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
) -> impl Stream<Item = watcher::Result<K>> {
    events.try_filter_map(|event| {
        future::ok(match event {
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => Some(object),
            watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::InitDone => None,
        })
    })
}
