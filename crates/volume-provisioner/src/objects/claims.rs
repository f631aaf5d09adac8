//! Writes of claims.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::Patch;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::decide::claim;
use crate::state::Context;
use crate::wire;

/// Holds a claim: from now on it cannot vanish, and other instances leave it alone. Returns the claim as it is then.
///
/// The write is a compare-and-swap: the cache may show a claim that was deleted, that got its volume, or that another
/// instance has taken.
///
/// # Errors
/// A conflict if the claim has changed.
pub(crate) async fn hold<P>(
    ctx: &Context<P>,
    claim: &Arc<PersistentVolumeClaim>,
) -> kube::Result<Arc<PersistentVolumeClaim>> {
    if claim::holder(claim) == Some(&ctx.who.holder) {
        return Ok(Arc::clone(claim));
    }
    // A strategic patch adds to the list.
    let patch = json!({ "metadata": {
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
        "finalizers": [wire::CLAIM_FINALIZER],
        "annotations": { wire::HELD_BY: ctx.who.holder },
    } });
    let held = api(ctx, claim).patch(&claim.name_any(), &ctx.patches(), &Patch::Strategic(patch)).await?;
    ctx.memory.wrote(&held);
    Ok(Arc::new(held))
}

/// Releases a claim: removes the finalizer and the annotation.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn release<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    change(ctx, claim, released(claim, json!({ wire::HELD_BY: null }))).await
}

/// Releases a claim, and asks the scheduler for another node. Whoever does not hold the claim writes only if it has
/// not changed: another instance may hold it by now, or another node be selected.
///
/// # Errors
/// Kubernetes refused, or a conflict.
pub(crate) async fn reschedule<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim) -> kube::Result<()> {
    let mut patch = released(claim, json!({ wire::HELD_BY: null, wire::SELECTED_NODE: null }));
    if claim::holder(claim).is_none() {
        patch["metadata"]["resourceVersion"] = json!(claim.metadata.resource_version);
    }
    change(ctx, claim, patch).await
}

/// Removes our finalizer alone, whatever others write at the same time; the uid guards against another claim of the same
/// name.
fn released(claim: &PersistentVolumeClaim, annotations: Value) -> Value {
    json!({ "metadata": {
        "uid": claim.metadata.uid,
        "$deleteFromPrimitiveList/finalizers": [wire::CLAIM_FINALIZER],
        "annotations": annotations,
    } })
}

async fn change<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim, patch: Value) -> kube::Result<()> {
    let written = api(ctx, claim).patch(&claim.name_any(), &ctx.patches(), &Patch::Strategic(patch)).await;
    match written {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => {
            ctx.memory.wrote(&written?);
            Ok(())
        }
    }
}

/// The claim with this name, as it is now.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn get<P>(
    ctx: &Context<P>,
    namespace: &str,
    name: &str,
) -> kube::Result<Option<PersistentVolumeClaim>> {
    Api::<PersistentVolumeClaim>::namespaced(ctx.client.clone(), namespace).get_opt(name).await
}

fn api<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
    Api::namespaced(ctx.client.clone(), &claim.namespace().unwrap_or_default())
}
