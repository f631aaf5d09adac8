//! One claim: find out what is due, and do it.
//!
//! Long, because the steps for a claim are in the order in which they are taken.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::runtime::reflector::ObjectRef;
use tracing::Instrument as _;

use super::attempt::{self, Failed};
use crate::decide::claim::{self, Due};
use crate::decide::class::Class;
use crate::decide::created;
use crate::decide::request::{Abilities, Refusal, request};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::objects::events::{self, on_claim};
use crate::objects::{claims, classes, nodes, volumes};
use crate::provisioner::VolumeProvisioner;
use crate::request::{SelectedNode, VolumeRequest};
use crate::state::{Context, LAG, inputs};
use crate::volume::VolumeToDelete;
use crate::wire;
use operator_runtime::engine::{Inputs, QueueKey, Reconcile, Urgency, hash};
use operator_runtime::observe::spans::{self, SpanTarget};

/// Within which time instances that compete for a claim try to get it, each at a time of its own.
const SPREAD_MILLISECONDS: u64 = 2000;

/// Until an attempt that still runs has ended.
const BUSY: Duration = Duration::from_secs(1);

/// Does what is due for one claim.
pub(crate) fn reconcile<P: VolumeProvisioner>(
    ctx: &Arc<Context<P>>,
    object: &ObjectRef<PersistentVolumeClaim>,
) -> Reconcile {
    let Some(claim) = ctx.claims.get(object).filter(|claim| is_due(ctx, claim).is_some()) else {
        return Reconcile::Later(None);
    };
    let ctx = Arc::clone(ctx);
    Reconcile::Now(Box::pin(async move {
        let wait = work(&ctx, Arc::clone(&claim)).await;
        ctx.tidy(&ctx.claims, &*claim);
        wait
    }))
}

/// What is due, as far as the caches show. (decides)
fn is_due<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim) -> Option<(Due, Option<Class>)> {
    let class = ctx.class(claim::class_of(claim));
    let due = claim::due(claim, class.as_ref(), &ctx.who);
    (due != Due::Nothing).then_some((due, class))
}

async fn work<P: VolumeProvisioner>(ctx: &Context<P>, claim: Arc<PersistentVolumeClaim>) -> Option<Duration> {
    // 1. The caches, a worker, and the claim as it is by then. (reads)
    ctx.filled().await;
    let uid = claim.uid().unwrap_or_default();
    let class = claim::class_of(&claim);
    if let Some(left) = ctx.memory.left(&uid, seen(&claim, ctx.class(class).as_ref())) {
        return Some(left);
    }
    let namespace = claim.namespace().unwrap_or_default();
    let queue = QueueKey { store: class.into(), namespace: namespace.clone().into(), urgency: Urgency::Wanted };
    let _worker = ctx.workers.enter(&queue).await?;
    let shown = ctx.claims.get(&ObjectRef::from_obj(&*claim)).filter(|shown| shown.uid().as_ref() == Some(&uid));
    let claim = shown.filter(|shown| !ctx.memory.is_stale(&**shown))?;
    // 2. What is due. (decides)
    let (due, class) = is_due(ctx, &claim)?;
    let seen = seen(&claim, class.as_ref());
    let waits = ctx.memory.left(&uid, seen);
    let binds = || ctx.memory.has_just_created(&uid).filter(|_| due == Due::Provision || claim::is_being_bound(&claim));
    if let Some(left) = waits.or_else(binds) {
        return Some(left);
    }
    let Some(_busy) = ctx.memory.begin(&uid, seen) else { return Some(BUSY) };
    // 3. It is done. (writes)
    let span = tracing::info_span!("claim", claim = key(&claim));
    let name = claim.name_any();
    let target = SpanTarget { namespace: &namespace, name: &name, uid: &uid, class: claim::class_of(&claim) };
    let traced = spans::attempt("attempt", target);
    // Boxed, because thousands may wait for a worker, and need no room for it.
    let done = attempt::guarded(traced, Box::pin(dispatch(ctx, &claim, due, class))).instrument(span).await;
    // 4. A failure is reported, and retried. What Kubernetes does not bind in time is checked again. (writes)
    let is_unbound = || ctx.memory.has_just_created(&uid).is_some() || ctx.volume_of(&claim).is_some();
    let failed = match done {
        Ok(()) if due == Due::Provision && is_unbound() => return Some(LAG),
        Ok(()) => return None,
        Err(failed) => failed,
    };
    let (wait, message) = attempt::after(ctx, &uid, &namespace, &failed, &ctx.options.provision_retry);
    if let Some(message) = message {
        tracing::debug!(claim = key(&claim), "{message}");
        let is_error = failed.kind() != VolumeErrorKind::InProgress;
        let reason = if is_error { events::PROVISIONING_FAILED } else { events::PROVISIONING };
        Box::pin(on_claim(ctx, &claim, reason, &message)).await;
    }
    wait
}

async fn dispatch<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    due: Due,
    class: Option<Class>,
) -> Result<(), Failed> {
    match due {
        Due::Nothing => Ok(()),
        Due::ReportMissingClass => report_missing_class(ctx, claim::class_of(claim)).await,
        Due::Provision => provide(ctx, claim, class).await,
        Due::Settle => settle(ctx, claim, class).await,
        Due::Release => claims::release(ctx, claim).await.map_err(Failed::kubernetes("release the claim")),
    }
}

/// The cache may be behind. If the class exists, the change that shows it wakes the claim.
async fn report_missing_class<P>(ctx: &Context<P>, class: &str) -> Result<(), Failed> {
    match classes::exists(ctx, class).await.map_err(Failed::kubernetes("read the StorageClass"))? {
        true => Ok(()),
        false => Err(refused(Refusal::NoClass { class: class.to_owned() })),
    }
}

/// `namespace/name`.
fn key(claim: &PersistentVolumeClaim) -> String {
    format!("{}/{}", claim.namespace().unwrap_or_default(), claim.name_any())
}

/// What an attempt depends on: what failed is tried at once when it changes.
fn seen(claim: &PersistentVolumeClaim, class: Option<&Class>) -> Inputs {
    let annotations = claim.metadata.annotations.as_ref();
    let ours = annotations.map(|all| all.iter().filter(|(key, _)| key.as_str() != wire::HELD_BY).collect::<Vec<_>>());
    let deleted = claim.metadata.deletion_timestamp.is_some();
    inputs(&(&claim.spec, ours, deleted, class.map(|class| format!("{class:?}"))))
}

/// Provisions a volume, and creates its PersistentVolume, to which Kubernetes binds the claim. Until then the claim is
/// held, so that no other instance provisions for it, too.
async fn provide<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    class: Option<Class>,
) -> Result<(), Failed> {
    let Some(class) = class else { return Ok(()) };
    // 1. It may have its PersistentVolume already, and only not be bound. (decides)
    if let Some(shown) = ctx.volume_of(claim) {
        return match shown.metadata.deletion_timestamp {
            None => Ok(()),
            Some(_) => create_again(ctx, claim, &shown).await,
        };
    }
    // 2. The node, if one was selected. (reads)
    let node = match claim::selected_node(claim).filter(|_| class.waits_for_pod) {
        Some(name) => match nodes::get(ctx, name).await.map_err(Failed::kubernetes("read the selected node"))? {
            None => return gone_node(ctx, claim, Some(class), name).await,
            found => found,
        },
        None => None,
    };
    // 3. Whether it can be provisioned, and by this instance. (decides)
    let is_held = claim::holder(claim).is_some();
    let request: VolumeRequest<P::Parameters> = match request(claim, &class, abilities(ctx), node) {
        Ok(request) => request,
        Err(refusal) if is_held => return Err(begun(claim, &refusal.to_string())),
        Err(refusal) => return Err(refused(refusal)),
    };
    match ctx.provisioner.should_provision(&request) {
        Ok(true) => {}
        // Another node was selected while this instance held the claim.
        _ if is_held => return settle(ctx, claim, Some(class)).await,
        Ok(false) => return Ok(()),
        Err(error) => return Err(Failed::Verb(VolumeError::terminal(error.to_string()))),
    }
    // 4. If it was to be undone before, that is done to its end, or the volume would be deleted under the claim. (writes)
    if let Some(volume) = ctx.memory.undone(&claim.uid().unwrap_or_default()) {
        delete_begun(ctx, claim, volume).await?;
    }
    // 5. Other instances may want a claim for which no node was selected. (reads)
    let identity = ctx.provisioner.identity();
    if !is_held && request.selected_node.is_none() && !identity.is_empty() {
        let wait = hash(&(identity, claim.uid())) % SPREAD_MILLISECONDS;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let shown = ctx.claims.get(&ObjectRef::from_obj(&**claim));
        if shown.is_none_or(|shown| claim::holder(&shown).is_some()) {
            return Ok(());
        }
    }
    // From now on the claim cannot vanish. (writes)
    let held = claims::hold(ctx, claim).await.map_err(Failed::kubernetes("hold the claim"))?;
    // 6. The volume. (writes)
    let event = async {
        if ctx.memory.is_new(held.metadata.uid.as_deref().unwrap_or_default()) {
            let note = format!("External provisioner is provisioning volume for claim \"{}\"", key(&held));
            on_claim(ctx, &held, events::PROVISIONING, &note).await;
        }
    };
    let provision = attempt::verb(ctx, &class.name, "provision", ctx.provisioner.provision(&request));
    let (provisioned, ()) = tokio::join!(provision, event);
    let provisioned = match provisioned {
        Ok(provisioned) => provisioned,
        Err(failed) if failed.kind() == VolumeErrorKind::WrongNode && request.selected_node.is_some() => {
            on_claim(ctx, &held, events::PROVISIONING_FAILED, &failed.message()).await;
            return claims::reschedule(ctx, &held).await.map_err(Failed::kubernetes("ask for another node"));
        }
        Err(failed) => {
            // Nothing is left behind, so there is nothing to hold the claim for.
            if failed.kind().leaves_nothing() {
                claims::release(ctx, &held).await.map_err(Failed::kubernetes("release the claim"))?;
            }
            return Err(failed);
        }
    };
    // 7. Its PersistentVolume, which from now on shows what exists. (writes)
    let note = provisioned.note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    let note = format!("Successfully provisioned volume {}{note}", request.pv_name);
    let volume = created::persistent_volume(&request, provisioned, &ctx.who);
    let written = volumes::create(ctx, &volume).await.map_err(Failed::kubernetes("create the PersistentVolume"))?;
    if written.is_none() && !is_ours(ctx, &held, volume).await? {
        return Ok(());
    }
    ctx.memory.created(&held.uid().unwrap_or_default());
    tracing::info!(volume = request.pv_name, "provisioned");
    // 8. Kubernetes binds it, and then the claim is released. A write of ours before that could conflict with its own.
    on_claim(ctx, &held, events::PROVISIONING_SUCCEEDED, &note).await;
    Ok(())
}

/// Somebody has deleted the PersistentVolume before it was bound, so it never will be. Its finalizer is removed. The
/// claim is still held, so the volume is found again, by its name.
async fn create_again<P>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    volume: &PersistentVolume,
) -> Result<(), Failed> {
    claims::hold(ctx, claim).await.map_err(Failed::kubernetes("hold the claim"))?;
    let freed = volumes::set_finalizer(ctx, volume, false).await;
    freed.map_err(Failed::kubernetes("write the finalizer of the PersistentVolume"))?;
    let name = volume.name_any();
    Err(Failed::Verb(VolumeError::retryable(format!(
        "PersistentVolume {name:?} was deleted before it was bound, so it is created again"
    ))))
}

/// Whether the PersistentVolume that has the name of `ours`, which could not be created, is of an earlier attempt. If it is
/// another instance's, so is the volume, and what was provisioned here is deleted.
async fn is_ours<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &PersistentVolumeClaim,
    ours: PersistentVolume,
) -> Result<bool, Failed> {
    let name = ours.name_any();
    let found = volumes::get(ctx, &name).await.map_err(Failed::kubernetes("read the PersistentVolume"))?;
    let Some(found) = found else {
        return Err(Failed::Verb(VolumeError::retryable(format!(
            "PersistentVolume {name:?} existed, and was deleted meanwhile"
        ))));
    };
    let uid = claim.uid().unwrap_or_default();
    let is_of = created::is_of(&found, &uid, &ctx.who.provisioner);
    if is_of {
        let asked = VolumeToDelete::new(Arc::new(found.clone()));
        let check = attempt::check_owner(ctx, &asked);
        if !check.is_err_and(|error| error.kind() == VolumeErrorKind::Ignored) {
            return Ok(true);
        }
    } else if created::is_for(&found, &uid) {
        // The volume may be the one that was found by its name.
        return Err(Failed::Verb(VolumeError::terminal(format!(
            "PersistentVolume {name:?} is this claim's, and its annotation {} was changed; an admin must set it to {:?}",
            wire::PROVISIONED_BY,
            ctx.who.provisioner,
        ))));
    }
    // Its claimRef was changed, but what was provisioned is its volume: both have the claim's uid in their names.
    if !is_of && created::is_by(&found, &ctx.who.provisioner) {
        return Err(taken(&name));
    }
    let asked = VolumeToDelete::new(Arc::new(ours));
    attempt::verb(ctx, claim::class_of(claim), "delete", ctx.provisioner.delete(&asked)).await?;
    claims::release(ctx, claim).await.map_err(Failed::kubernetes("release the claim"))?;
    if is_of { Ok(false) } else { Err(taken(&name)) }
}

/// What was begun for a claim becomes its volume, or is undone.
async fn settle<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    class: Option<Class>,
) -> Result<(), Failed> {
    // 1. Its PersistentVolume. (reads)
    let volume = match ctx.volume_of(claim) {
        Some(shown) => Some(shown),
        None => existing(ctx, claim).await?.map(Arc::new),
    };
    // 2. With a PersistentVolume nothing can be lost: if the claim was deleted, Kubernetes releases it. It is marked,
    //    so that a copy is recognized. Otherwise what was begun is deleted. (writes)
    match volume {
        Some(volume) => {
            volumes::mark(ctx, &volume).await.map_err(Failed::kubernetes("write into the PersistentVolume"))?;
        }
        // It is bound to a PersistentVolume that somebody has changed or removed by hand. There is nothing to undo: whoever
        // has the data still needs them.
        None if claim::was_bound(claim) => {}
        None => undo(ctx, claim, class).await?,
    }
    claims::release(ctx, claim).await.map_err(Failed::kubernetes("release the claim"))
}

/// The volume is provisioned to its end, which shows what is to be deleted, and then that is deleted.
async fn undo<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    class: Option<Class>,
) -> Result<(), Failed> {
    let uid = claim.uid().unwrap_or_default();
    let volume = match ctx.memory.undone(&uid) {
        Some(volume) => volume,
        None => match finished(ctx, claim, class).await? {
            Some(volume) => Arc::new(volume),
            None => return Ok(()),
        },
    };
    // Otherwise a deletion that takes long would find the volume created again.
    ctx.memory.set_undone(&uid, Some(Arc::clone(&volume)));
    delete_begun(ctx, claim, volume).await
}

/// Deletes the volume of a PersistentVolume that there never was.
async fn delete_begun<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &PersistentVolumeClaim,
    volume: Arc<PersistentVolume>,
) -> Result<(), Failed> {
    let uid = claim.uid().unwrap_or_default();
    let asked = VolumeToDelete::new(Arc::clone(&volume));
    match attempt::verb(ctx, claim::class_of(claim), "delete", ctx.provisioner.delete(&asked)).await {
        Err(failed) if failed.kind() != VolumeErrorKind::Ignored => Err(failed),
        _ => {
            ctx.memory.set_undone(&uid, None);
            tracing::info!(volume = volume.name_any(), "undone, because the claim no longer needs it");
            Ok(())
        }
    }
}

/// The PersistentVolume that there would be; `None` if nothing was left behind.
async fn finished<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    class: Option<Class>,
) -> Result<Option<PersistentVolume>, Failed> {
    let class = class.filter(|class| class.provisioner == ctx.who.provisioner).ok_or_else(|| {
        begun(
            claim,
            &format!("StorageClass {:?} no longer exists, or is another provisioner's", claim::class_of(claim)),
        )
    })?;
    let node = match claim::selected_node(claim).filter(|_| class.waits_for_pod) {
        Some(name) => {
            let found = nodes::get(ctx, name).await.map_err(Failed::kubernetes("read the selected node"))?;
            let gone = || SelectedNode { name: name.to_owned(), labels: Default::default() };
            Some(found.unwrap_or_else(gone))
        }
        None => None,
    };
    let request = request::<P::Parameters>(claim, &class, abilities(ctx), node);
    let request = request.map_err(|refusal| begun(claim, &refusal.to_string()))?;
    match attempt::verb(ctx, &class.name, "provision", ctx.provisioner.provision(&request)).await {
        Ok(provisioned) => Ok(Some(created::persistent_volume(&request, provisioned, &ctx.who))),
        Err(failed) if failed.kind().leaves_nothing() => Ok(None),
        Err(failed) => Err(failed),
    }
}

/// The scheduler has selected a node that no longer exists.
async fn gone_node<P: VolumeProvisioner>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
    class: Option<Class>,
    name: &str,
) -> Result<(), Failed> {
    if claim::holder(claim).is_some() {
        if existing(ctx, claim).await?.is_some() {
            return Ok(());
        }
        undo(ctx, claim, class).await?;
    }
    claims::reschedule(ctx, claim).await.map_err(Failed::kubernetes("ask for another node"))?;
    let note = format!("the selected node {name:?} does not exist, so another one is selected");
    on_claim(ctx, claim, events::PROVISIONING_FAILED, &note).await;
    Ok(())
}

/// The PersistentVolume that was created for the claim, as it is now. Kubernetes removes the claim's uid from one that it
/// releases before it was bound, and an admin can give it to another claim: its volume still exists.
async fn existing<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim) -> Result<Option<PersistentVolume>, Failed> {
    let uid = claim.uid().unwrap_or_default();
    let found = volumes::get(ctx, &wire::volume_name(&uid)).await;
    let found = found.map_err(Failed::kubernetes("read the PersistentVolume"))?;
    Ok(found.filter(|volume| created::is_by(volume, &ctx.who.provisioner)))
}

fn abilities<P: VolumeProvisioner>(ctx: &Context<P>) -> Abilities {
    Abilities { access_modes: P::ACCESS_MODES, block: ctx.provisioner.supports_block() }
}

fn refused(refusal: Refusal) -> Failed {
    Failed::Verb(VolumeError::terminal(refusal.to_string()))
}

fn taken(name: &str) -> Failed {
    Failed::Verb(VolumeError::terminal(format!(
        "PersistentVolume {name:?} exists, and is not this claim's; an admin must check whose it is, and rename or delete it"
    )))
}

/// What was begun for a claim can neither be finished nor undone.
fn begun(claim: &PersistentVolumeClaim, problem: &str) -> Failed {
    Failed::Verb(VolumeError::terminal(format!(
        "{problem}; a volume may have been begun before: correct this, or look for volume {:?} at the store and remove the finalizer {} from the claim",
        wire::volume_name(&claim.uid().unwrap_or_default()),
        wire::CLAIM_FINALIZER,
    )))
}

#[cfg(test)]
mod tests;
