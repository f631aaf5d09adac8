//! What is watched: each stream fills a cache, and reports what may need work.

use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::decide::{claim, reclaim, trim};
use super::state::{Cached, Context};
use operator_runtime::engine;
use operator_runtime::kubernetes::watch::watch;

/// Objects in one page of a list. This limits the memory that lists need while they are read.
const PAGE: u32 = 200;

pub(super) struct Streams<P> {
    pub(super) ctx: Arc<Context<P>>,
    /// The list of claims or of classes was read.
    claims_listed: UnboundedSender<()>,
    volumes_listed: UnboundedSender<()>,
}

/// Reports when lists were read. Only then do the caches show what exists, and what was deleted meanwhile.
pub(super) struct Listed {
    pub(super) claims: UnboundedReceiver<()>,
    pub(super) volumes: UnboundedReceiver<()>,
}

impl<P: Send + Sync + 'static> Streams<P> {
    pub(super) fn new(ctx: Arc<Context<P>>) -> (Self, Listed) {
        let (claims_listed, claims) = unbounded_channel();
        let (volumes_listed, volumes) = unbounded_channel();
        (Self { ctx, claims_listed, volumes_listed }, Listed { claims, volumes })
    }

    /// The claims that are created or change.
    pub(super) fn claims(
        &self,
        cache: Writer<PersistentVolumeClaim>,
    ) -> impl Stream<Item = watcher::Result<PersistentVolumeClaim>> + use<P> {
        let api: Api<PersistentVolumeClaim> = Api::all(self.ctx.client.clone());
        let name = self.ctx.who.provisioner.clone();
        let trim = move |claim: &mut PersistentVolumeClaim| trim::claim(claim, &name);
        self.kept("PersistentVolumeClaims", api, cache, Box::new(trim), Cached::Claims, self.claims_listed.clone())
    }

    /// The PersistentVolumes that are created or change.
    pub(super) fn volumes(
        &self,
        cache: Writer<PersistentVolume>,
    ) -> impl Stream<Item = watcher::Result<PersistentVolume>> + use<P> {
        let api: Api<PersistentVolume> = Api::all(self.ctx.client.clone());
        let name = self.ctx.who.provisioner.clone();
        let trim = move |volume: &mut PersistentVolume| trim::volume(volume, &name);
        self.kept("PersistentVolumes", api, cache, Box::new(trim), Cached::Volumes, self.volumes_listed.clone())
    }

    /// The claims without a volume whose class was created, changed or deleted.
    pub(super) fn classes(
        &self,
        cache: Writer<StorageClass>,
    ) -> impl Stream<Item = ObjectRef<PersistentVolumeClaim>> + Send + use<P> {
        let (ctx, listed, listed_all) = (Arc::clone(&self.ctx), Arc::clone(&self.ctx), self.claims_listed.clone());
        watch("StorageClasses", Api::<StorageClass>::all(self.ctx.client.clone()), all(), &self.ctx.options.observer)
            .reflect(cache)
            .inspect_ok(move |event| {
                if let watcher::Event::InitDone = event {
                    listed.listed(Cached::Classes);
                    // Fails only if the operator ends.
                    let _ = listed_all.send(());
                }
            })
            .filter_map(|event| {
                future::ready(match event {
                    Ok(watcher::Event::Apply(class) | watcher::Event::Delete(class)) => Some(class.name_any()),
                    _ => None,
                })
            })
            .flat_map(move |name| {
                let waits =
                    |shown: &PersistentVolumeClaim| claim::class_of(shown) == name && claim::volume_of(shown).is_none();
                stream::iter(references(&ctx.claims.state(), waits))
            })
    }

    fn kept<K>(
        &self,
        what: &'static str,
        api: Api<K>,
        cache: Writer<K>,
        trim: Box<dyn Fn(&mut K) + Send>,
        cached: Cached,
        listed: UnboundedSender<()>,
    ) -> impl Stream<Item = watcher::Result<K>> + Send + use<P, K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    {
        let ctx = Arc::clone(&self.ctx);
        watch(what, api, all(), &self.ctx.options.observer)
            .modify(trim)
            .reflect(cache)
            .inspect_ok(move |event| match event {
                watcher::Event::Delete(object) => ctx.memory.forget(&object.uid().unwrap_or_default()),
                watcher::Event::InitDone => {
                    ctx.listed(cached);
                    // Fails only if the operator ends.
                    let _ = listed.send(());
                }
                _ => {}
            })
            .try_filter_map(|event| {
                future::ok(match event {
                    watcher::Event::Apply(object) => Some(object),
                    _ => None,
                })
            })
    }
}

/// These objects.
pub(super) fn of<K: Resource<DynamicType = ()> + 'static>(
    objects: impl Stream<Item = watcher::Result<K>> + Send + 'static,
) -> BoxStream<'static, ObjectRef<K>> {
    // Our watches never fail.
    objects.filter_map(|object| future::ready(object.ok().as_ref().map(ObjectRef::from_obj))).boxed()
}

/// The claims that may need work, whenever a list was read.
pub(super) fn claims_after_lists<P: Send + Sync + 'static>(
    listed: UnboundedReceiver<()>,
    ctx: Arc<Context<P>>,
) -> impl Stream<Item = ObjectRef<PersistentVolumeClaim>> + Send {
    let may = |shown: &PersistentVolumeClaim| claim::volume_of(shown).is_none() || claim::has_finalizer(shown);
    engine::received(listed).flat_map(move |()| stream::iter(references(&ctx.claims.state(), may)))
}

/// The PersistentVolumes that need work, whenever a list was read.
pub(super) fn volumes_after_lists<P: Send + Sync + 'static>(
    listed: UnboundedReceiver<()>,
    ctx: Arc<Context<P>>,
) -> impl Stream<Item = ObjectRef<PersistentVolume>> + Send {
    engine::received(listed).flat_map(move |()| {
        let may = |shown: &PersistentVolume| {
            let unmarked = ctx.options.deletes_unmarked_volumes;
            reclaim::due(shown, &ctx.who.provisioner, None, unmarked) != reclaim::Due::Nothing
        };
        stream::iter(references(&ctx.volumes.state(), may))
    })
}

fn references<K: Resource<DynamicType = ()>>(all: &[Arc<K>], may: impl Fn(&K) -> bool) -> Vec<ObjectRef<K>> {
    all.iter().filter(|object| may(object)).map(|object| ObjectRef::from_obj(&**object)).collect()
}

fn all() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}
