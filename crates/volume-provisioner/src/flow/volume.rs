//! One PersistentVolume: find out what is due, and do it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tracing::Instrument as _;

use super::attempt::{self, Failed};
use crate::decide::claim::volume_of;
use crate::decide::reclaim::{self, Doubt, Due};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::objects::events::{self, on_volume};
use crate::objects::{claims, volumes};
use crate::provisioner::VolumeProvisioner;
use crate::state::{Context, inputs};
use crate::volume::VolumeToDelete;
use crate::wire;
use operator_runtime::engine::{QueueKey, Reconcile, Urgency};
use operator_runtime::observe::spans::{self, SpanTarget};

/// Until an attempt that still runs has ended.
const BUSY: Duration = Duration::from_secs(1);
/// A deletion that takes longer is reported by an event. A shorter one has ended before anybody reads the event.
const SLOW: Duration = Duration::from_secs(1);
/// How long Kubernetes may take to remove its finalizer first.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does what is due for one PersistentVolume.
pub(crate) fn reconcile<P: VolumeProvisioner>(
    ctx: &Arc<Context<P>>,
    object: &ObjectRef<PersistentVolume>,
) -> Reconcile {
    let is_due = |volume: &Arc<PersistentVolume>| due(ctx, volume, None) != Due::Nothing;
    let Some(volume) = ctx.volumes.get(object).filter(is_due) else { return Reconcile::Later(None) };
    let ctx = Arc::clone(ctx);
    Reconcile::Now(Box::pin(async move {
        let wait = work(&ctx, Arc::clone(&volume)).await;
        ctx.tidy(&ctx.volumes, &*volume);
        wait
    }))
}

async fn work<P: VolumeProvisioner>(ctx: &Context<P>, volume: Arc<PersistentVolume>) -> Option<Duration> {
    // 1. The caches, a worker, and the PersistentVolume as it is by then. (reads)
    ctx.filled().await;
    let uid = volume.uid().unwrap_or_default();
    let spec = volume.spec.clone().unwrap_or_default();
    let claim = spec.claim_ref.unwrap_or_default();
    let namespace = claim.namespace.unwrap_or_default();
    let class = spec.storage_class_name.unwrap_or_default();
    let queue =
        QueueKey { store: class.as_str().into(), namespace: namespace.clone().into(), urgency: Urgency::Wanted };
    let seen = |volume: &PersistentVolume| inputs(&(&volume.spec, &volume.metadata.annotations, &volume.status));
    if let Some(left) = ctx.memory.left(&uid, seen(&volume)) {
        return Some(left);
    }
    let _worker = ctx.workers.enter(&queue).await?;
    let shown = ctx.volumes.get(&ObjectRef::from_obj(&*volume)).filter(|shown| shown.uid().as_ref() == Some(&uid));
    let volume = shown.filter(|shown| !ctx.memory.is_stale(&**shown))?;
    if let Some(left) = ctx.memory.left(&uid, seen(&volume)) {
        return Some(left);
    }
    let Some(_busy) = ctx.memory.begin(&uid, seen(&volume)) else { return Some(BUSY) };
    // 2. What is due, and that. (writes)
    let span = tracing::info_span!("volume", volume = volume.name_any());
    let (name, claim_uid) = (claim.name.unwrap_or_default(), claim.uid.unwrap_or_default());
    let target = SpanTarget { namespace: &namespace, name: &name, uid: &claim_uid, class: &class };
    let traced = spans::attempt("attempt at volume", target);
    let done = attempt::guarded(traced, Box::pin(dispatch(ctx, &volume))).instrument(span).await;
    // 3. A failure is reported, and retried. (writes)
    let failed = match done {
        Ok(wait) => return wait,
        Err(failed) => failed,
    };
    let (wait, message) = attempt::after(ctx, &uid, &namespace, &failed, &ctx.options.delete_retry);
    if let Some(message) = message {
        tracing::debug!(volume = volume.name_any(), "{message}");
        let is_error = failed.kind() != VolumeErrorKind::InProgress;
        let reason = if is_error { events::VOLUME_FAILED_DELETE } else { events::VOLUME_DELETE };
        Box::pin(on_volume(ctx, &volume, reason, &message)).await;
    }
    wait
}

async fn dispatch<P: VolumeProvisioner>(
    ctx: &Context<P>,
    volume: &Arc<PersistentVolume>,
) -> Result<Option<Duration>, Failed> {
    if let Some(since) = ctx.memory.since_deleted(volume.metadata.uid.as_deref().unwrap_or_default()) {
        return let_go(ctx, volume, since).await;
    }
    // Those of other instances are none of ours, whatever is due for them.
    let owner = attempt::check_owner(ctx, &VolumeToDelete::new(Arc::clone(volume)));
    if let Err(error) = &owner
        && error.kind() == VolumeErrorKind::Ignored
    {
        return Err(Failed::Verb(error.clone()));
    }
    match due(ctx, volume, named_by(ctx, volume).await?.as_deref()) {
        Due::Nothing => {}
        // By its owner alone, once it is known who that is.
        Due::Protect if owner.is_err() => {}
        Due::Protect => protect(ctx, volume).await?,
        Due::RemoveFinalizer => set_finalizer(ctx, volume, false).await?,
        Due::Keep(doubt) => {
            return Err(Failed::Verb(match doubt {
                Doubt::Copied | Doubt::Unmarked => VolumeError::terminal(doubt.to_string()),
                // The claim may be deleted.
                Doubt::Named(_) => VolumeError::retryable(doubt.to_string()),
            }));
        }
        Due::Delete => {
            owner.map_err(Failed::Verb)?;
            return delete(ctx, volume).await;
        }
    }
    Ok(None)
}

fn due<P>(ctx: &Context<P>, volume: &PersistentVolume, named_by: Option<&str>) -> Due {
    reclaim::due(volume, &ctx.who.provisioner, named_by, ctx.options.deletes_unmarked_volumes)
}

/// The claim that the PersistentVolume is released from, if there is one of that name now that names it, too.
async fn named_by<P>(ctx: &Context<P>, volume: &PersistentVolume) -> Result<Option<String>, Failed> {
    let is_released = volume.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Released"));
    if !is_released {
        return Ok(None);
    }
    let name = volume.name_any();
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
    let (Some(namespace), Some(claim)) = (reference.namespace, reference.name) else { return Ok(None) };
    let found = claims::get(ctx, &namespace, &claim).await.map_err(Failed::kubernetes("read the claim"))?;
    let names = |found: &_| volume_of(found) == Some(name.as_str());
    Ok(found.filter(names).map(|_| format!("{namespace}/{claim}")))
}

async fn delete<P: VolumeProvisioner>(
    ctx: &Context<P>,
    volume: &Arc<PersistentVolume>,
) -> Result<Option<Duration>, Failed> {
    // 1. The finalizer, which keeps it until its volume is deleted. (writes)
    if volume.metadata.deletion_timestamp.is_none() && !has(volume, wire::VOLUME_FINALIZER) {
        set_finalizer(ctx, volume, true).await?;
        return Ok(None);
    }
    // 2. From now on no claim can be bound to it. If it has changed since it was read, it is read again. (writes)
    let live = match volume.metadata.deletion_timestamp {
        None => volumes::delete(ctx, volume).await.map_err(Failed::kubernetes("delete the PersistentVolume"))?,
        Some(_) => {
            let found = volumes::get(ctx, &volume.name_any()).await;
            found.map_err(Failed::kubernetes("read the PersistentVolume"))?
        }
    };
    let is_it = |live: &PersistentVolume| live.uid() == volume.uid() && due(ctx, live, None) == Due::Delete;
    let Some(live) = live.filter(is_it).map(Arc::new) else { return Ok(None) };
    // 3. The volume. (writes)
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    let event = async {
        tokio::time::sleep(SLOW).await;
        if ctx.memory.is_new(uid) {
            let note = format!("External provisioner is deleting volume {}", volume.name_any());
            on_volume(ctx, volume, events::VOLUME_DELETE, &note).await;
        }
    };
    let asked = VolumeToDelete::new(Arc::clone(&live));
    let class = live.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let mut verb = pin!(attempt::verb(ctx, class, "delete", ctx.provisioner.delete(&asked)));
    tokio::select! {
        deleted = &mut verb => deleted,
        () = event => verb.await,
    }?;
    tracing::info!("deleted");
    ctx.memory.deleted(uid);
    // 4. The PersistentVolume. (writes)
    let_go(ctx, &live, Duration::ZERO).await
}

/// Removes the finalizer of a PersistentVolume whose volume was deleted.
///
/// Kubernetes removes its own finalizer at the same time. It writes the whole object as it saw it, so our write would make
/// its write fail with a conflict. So ours is removed after the other one.
async fn let_go<P>(
    ctx: &Context<P>,
    volume: &PersistentVolume,
    since_deleted: Duration,
) -> Result<Option<Duration>, Failed> {
    let left = PATIENCE.saturating_sub(since_deleted);
    if has(volume, wire::PROTECTION_FINALIZER) && !left.is_zero() {
        return Ok(Some(left));
    }
    set_finalizer(ctx, volume, false).await?;
    Ok(None)
}

/// What was just created is marked for its claim, which is held until then. It can be bound before its creation is answered.
async fn protect<P>(ctx: &Context<P>, volume: &PersistentVolume) -> Result<(), Failed> {
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref()).unwrap_or_default();
    if has(volume, wire::VOLUME_FINALIZER) && ctx.memory.is_provisioning(claim) {
        return Ok(());
    }
    let live = volumes::get(ctx, &volume.name_any()).await.map_err(Failed::kubernetes("read the PersistentVolume"))?;
    let needs_it = |live: &PersistentVolume| live.uid() == volume.uid() && due(ctx, live, None) == Due::Protect;
    let Some(live) = live.filter(needs_it) else { return Ok(()) };
    volumes::mark(ctx, &live).await.map_err(Failed::kubernetes("write into the PersistentVolume"))?;
    if has(&live, wire::VOLUME_FINALIZER) { Ok(()) } else { set_finalizer(ctx, &live, true).await }
}

fn has(volume: &PersistentVolume, finalizer: &str) -> bool {
    volume.finalizers().iter().any(|name| name == finalizer)
}

async fn set_finalizer<P>(ctx: &Context<P>, volume: &PersistentVolume, wanted: bool) -> Result<(), Failed> {
    let written = volumes::set_finalizer(ctx, volume, wanted).await;
    written.map_err(Failed::kubernetes("write the finalizer of the PersistentVolume"))
}
