//! Which change wakes which claim.

use std::collections::HashSet;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, future, stream};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use super::decide::action::{self, Action};
use super::decide::claim::{Claim, Guarded};
use super::decide::record;
use super::reasons;
use super::reconcile::claim as reconcile;
use super::state::context::Context;
use super::state::memory::Awaited;
use super::state::owner_secrets;
use crate::api::wire::state;
use crate::api::{Guard, ObjectBucket};
use crate::store::Mode;
use operator_runtime::engine;

/// Claims that are checked before the task yields to others.
const CLAIMS_AT_ONCE: usize = 100;

/// After a list, the claims that are not in sync, once all lists are complete. Most claims are in sync, and kube's
/// scheduler would need more memory for each than its record.
pub(super) fn claims_after_lists<P>(
    listed: Arc<Notify>,
    ctx: Arc<Context<P>>,
) -> impl Stream<Item = ObjectRef<Guarded>> {
    let waiting = Arc::clone(&ctx);
    let lists = stream::unfold((listed, waiting), |(listed, ctx)| async {
        // Several lists at once are one reason to look.
        listed.notified().await;
        ctx.caches.filled().await;
        Some(((), (listed, ctx)))
    });
    lists.flat_map(move |()| {
        let ctx = Arc::clone(&ctx);
        let shown: Vec<_> = ctx.caches.claims.state().chunks(CLAIMS_AT_ONCE).map(<[_]>::to_vec).collect();
        stream::iter(shown)
            .then(async |some| {
                // So many claims take long.
                tokio::task::yield_now().await;
                some
            })
            .flat_map(move |some| {
                let needs_work =
                    |claim: &Arc<Guarded>| !reconcile::is_in_sync(&ctx, &Claim::read(claim, &ctx.label), true);
                let found: Vec<_> = some.into_iter().filter(needs_work).collect();
                stream::iter(found.into_iter().map(|claim| ObjectRef::from_obj(claim.as_ref())))
            })
    })
}

/// A claim, and those that wait for its bucket and shall have no other. (That it has one, its ObjectBucket shows.)
pub(super) fn claims_of_claim<P>(ctx: Arc<Context<P>>) -> impl Fn(Guarded) -> Vec<ObjectRef<Guarded>> {
    move |claim| {
        let mut claims = vec![ObjectRef::from_obj(&claim)];
        let ObjectMeta { namespace, name, deletion_timestamp, .. } = claim.meta();
        if let (Some(namespace), Some(name), Some(_)) = (namespace, name, deletion_timestamp) {
            let changed = Awaited::Creator(namespace.clone(), name.clone());
            claims.extend(with_uids(&ctx.caches.claims, &ctx.memory.wake_for(&[changed])));
        }
        claims
    }
}

/// The claim of a record, and the claims that wait for its bucket. The wait of the claim ends if the record has another
/// uid, because the claim may adopt the record now, and if the claim reported the record as damaged.
pub(super) fn claims_of_record<P>(ctx: Arc<Context<P>>) -> impl Fn(Guard<ObjectBucket>) -> Vec<ObjectRef<Guarded>> {
    move |record| {
        let bucket = match &record.0 {
            Ok(record) => record::bucket(record),
            Err(unreadable) => unreadable.bucket.as_deref(),
        };
        let creator = record.0.as_ref().ok().and_then(record::claim_name);
        let changed = bucket.map(|bucket| Awaited::Bucket(bucket.to_owned()));
        let creator = creator.map(|(namespace, name)| Awaited::Creator(namespace.to_owned(), name.to_owned()));
        let changed: Vec<_> = changed.into_iter().chain(creator).collect();
        let mut woken = ctx.memory.wake_for(&changed);
        let Ok(record) = record.0 else { return with_uids(&ctx.caches.claims, &woken) };
        if let (None, Some(uid)) = (record::claim_name(&record), record::claim_uid(&record)) {
            // Some CRDs prune the name; an admin may have written the uid.
            ctx.memory.wake(uid);
            woken.insert(uid.to_owned());
        }
        if let (Ok(Some(Action::Forget)), Some(uid)) = (action::action(&record), record::claim_uid(&record)) {
            // Its claim may wait for long to be deleted.
            ctx.memory.wake(uid);
        }
        let mut claims = with_uids(&ctx.caches.claims, &woken);
        let is_created = record::state(&record, state::MODE) == Some(Mode::Created.as_str());
        if is_created && record::state(&record, state::FORMER_CLAIM_UIDS).is_some() {
            claims.extend(sharing(&ctx, &record));
        }
        if let Some((namespace, name)) = record::claim_name(&record) {
            let claim = ObjectRef::new(name).within(namespace);
            let uid = ctx.caches.claims.get(&claim).and_then(|shown| shown.uid());
            match uid {
                Some(uid) if record::claim_uid(&record) == Some(&uid) => {
                    ctx.memory.wake_if_reported(&uid, &reasons::CORRECTED_IN_OBJECT_BUCKET);
                }
                Some(uid) => ctx.memory.wake(&uid),
                None => {}
            }
            claims.push(claim);
        }
        claims
    }
}

/// The claims that share the bucket of a record, which an adoption concerns.
fn sharing<P>(ctx: &Context<P>, record: &ObjectBucket) -> Vec<ObjectRef<Guarded>> {
    let Some(bucket) = record::bucket(record) else { return Vec::new() };
    let others = ctx.caches.records.others_with_bucket(bucket, &record.name_any());
    let claim = |name: &String| {
        let other = ctx.caches.records.object(name)?;
        record::state(&other, state::BUCKET_CLAIM_NAME)?;
        record::claim_name(&other).map(|(namespace, name)| ObjectRef::new(name).within(namespace))
    };
    others.iter().filter_map(claim).collect()
}

/// The claims that these objects concern.
pub(super) fn of<K: Send + 'static>(
    objects: impl Stream<Item = watcher::Result<K>> + Send + 'static,
    mut claims: impl FnMut(K) -> Vec<ObjectRef<Guarded>> + Send + 'static,
) -> BoxStream<'static, ObjectRef<Guarded>> {
    // Our watches never fail.
    let objects = objects.filter_map(|object| future::ready(object.ok()));
    objects.flat_map(move |object| stream::iter(claims(object))).boxed()
}

/// The claim whose Secret or ConfigMap this is.
pub(super) fn claims_of_output<K>(output: &PartialObjectMeta<K>) -> Vec<ObjectRef<Guarded>> {
    let ObjectMeta { namespace, owner_references, .. } = &output.metadata;
    let owners = owner_references.iter().flatten();
    owners.filter_map(|owner| ObjectRef::from_owner_ref(namespace.as_deref(), owner, ())).collect()
}

/// A class that appears or changes ends the wait of its claims.
pub(super) fn claims_of_class<P>(ctx: Arc<Context<P>>) -> impl Fn(StorageClass) -> Vec<ObjectRef<Guarded>> {
    move |class| {
        // Until all lists are complete, no claim waits for anything.
        if !ctx.caches.are_filled() {
            return Vec::new();
        }
        let name = class.name_any();
        let names_class = |claim: &Guarded| match &claim.0 {
            Ok(claim) => claim.spec.storage_class_name == name,
            Err(_unreadable) => false,
        };
        let waits =
            |claim: &Guarded| names_class(claim) && !reconcile::is_in_sync(&ctx, &Claim::read(claim, &ctx.label), true);
        refs(&ctx.caches.claims, waits)
            .map(|(uid, claim)| {
                ctx.memory.wake(&uid);
                claim
            })
            .collect()
    }
}

/// A Secret with provisioning credentials that appears or changes ends the wait of the claims that need it.
pub(super) fn claims_of_secret<P>(
    changes: UnboundedReceiver<owner_secrets::Change>,
    ctx: Arc<Context<P>>,
) -> impl Stream<Item = ObjectRef<Guarded>> {
    engine::received(changes).flat_map(move |(secret, version)| {
        let mut woken = ctx.memory.wake_dependants(&secret, version.as_deref());
        woken.extend(ctx.caches.sharing(&secret));
        stream::iter(with_uids(&ctx.caches.claims, &woken))
    })
}

/// The claims that wait for a ServiceAccount.
pub(super) fn claims_of_service_account<P>(
    ctx: Arc<Context<P>>,
) -> impl Fn(PartialObjectMeta<ServiceAccount>) -> Vec<ObjectRef<Guarded>> {
    move |account| {
        let awaited = Awaited::ServiceAccount(account.namespace().unwrap_or_default(), account.name_any());
        with_uids(&ctx.caches.claims, &ctx.memory.wake_for(&[awaited]))
    }
}

/// Claims that are to be rechecked although nothing has changed, each once.
pub(super) fn claims_with_due_upkeep<P>(ctx: Arc<Context<P>>) -> impl Stream<Item = ObjectRef<Guarded>> {
    stream::unfold(ctx, |ctx| async {
        let due = with_uids(&ctx.caches.claims, &ctx.memory.due().await);
        Some((stream::iter(due), ctx))
    })
    .flatten()
}

fn with_uids(claims: &Store<Guarded>, uids: &HashSet<String>) -> Vec<ObjectRef<Guarded>> {
    // Mostly there are none, and a search through all claims takes time.
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
