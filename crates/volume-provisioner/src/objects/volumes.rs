//! PersistentVolumes.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, Patch, PostParams, Preconditions};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::state::Context;
use crate::wire;

/// The PersistentVolume with this name, as it is now.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn get<P>(ctx: &Context<P>, name: &str) -> kube::Result<Option<PersistentVolume>> {
    api(ctx).get_opt(name).await
}

/// Creates a PersistentVolume. `None`: there is one with its name.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn create<P>(ctx: &Context<P>, volume: &PersistentVolume) -> kube::Result<Option<PersistentVolume>> {
    match api(ctx).create(&PostParams::default(), volume).await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(None),
        created => created.map(Some),
    }
}

/// Writes its own uid into a PersistentVolume, so that a copy of it is known as one.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn mark<P>(ctx: &Context<P>, volume: &PersistentVolume) -> kube::Result<()> {
    let marked = volume.annotations().contains_key(wire::VOLUME_UID);
    if marked {
        return Ok(());
    }
    let uid = &volume.metadata.uid;
    let patch = json!({ "metadata": { "uid": uid, "annotations": { wire::VOLUME_UID: uid } } });
    change(ctx, volume, Patch::Merge(patch)).await
}

/// Adds or removes our finalizer alone, whatever others write at the same time.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn set_finalizer<P>(ctx: &Context<P>, volume: &PersistentVolume, wanted: bool) -> kube::Result<()> {
    let list = if wanted { "finalizers" } else { "$deleteFromPrimitiveList/finalizers" };
    let patch = json!({ "metadata": { "uid": volume.metadata.uid, list: [wire::VOLUME_FINALIZER] } });
    change(ctx, volume, Patch::Strategic(patch)).await
}

/// Deletes a PersistentVolume that has not changed since it was read, and returns it as it is then. Our finalizer keeps it;
/// no claim is bound to it from now on. `None`: it no longer exists.
///
/// # Errors
/// A conflict if it has changed.
pub(crate) async fn delete<P>(ctx: &Context<P>, volume: &PersistentVolume) -> kube::Result<Option<PersistentVolume>> {
    let preconditions =
        Preconditions { uid: volume.metadata.uid.clone(), resource_version: volume.metadata.resource_version.clone() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match api(ctx).delete(&volume.name_any(), &params).await {
        Ok(deleted) => Ok(deleted.left()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

async fn change<P>(ctx: &Context<P>, volume: &PersistentVolume, patch: Patch<Value>) -> kube::Result<()> {
    match api(ctx).patch(&volume.name_any(), &ctx.patches(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => {
            ctx.memory.wrote(&written?);
            Ok(())
        }
    }
}

fn api<P>(ctx: &Context<P>) -> Api<PersistentVolume> {
    Api::all(ctx.client.clone())
}
