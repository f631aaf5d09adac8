//! Events on claims and PersistentVolumes. Their reasons are those of Kubernetes' own controllers.

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};

use crate::decide::claim;
use crate::state::Context;
use operator_runtime::kubernetes::events::{self, EventSpec};

/// A volume is being provisioned.
pub(crate) const PROVISIONING: &str = "Provisioning";
/// A volume was provisioned.
pub(crate) const PROVISIONING_SUCCEEDED: &str = "ProvisioningSucceeded";
/// A volume was not provisioned.
pub(crate) const PROVISIONING_FAILED: &str = "ProvisioningFailed";
/// A volume is being deleted.
pub(crate) const VOLUME_DELETE: &str = "VolumeDelete";
/// A volume was not deleted.
pub(crate) const VOLUME_FAILED_DELETE: &str = "VolumeFailedDelete";

/// Publishes an event on a claim, unless it was the last one. Before the claim is held, each instance publishes the
/// same event.
pub(crate) async fn on_claim<P>(ctx: &Context<P>, claim: &PersistentVolumeClaim, reason: &str, note: &str) {
    let metadata = &claim.metadata;
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    publish(ctx, about, reason, note, claim::holder(claim).is_none()).await;
}

/// Publishes an event on a PersistentVolume, unless it was the last one.
pub(crate) async fn on_volume<P>(ctx: &Context<P>, volume: &PersistentVolume, reason: &str, note: &str) {
    let metadata = &volume.metadata;
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolume".to_owned()),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    };
    // Which instance owns it may be unknown, so several can publish the failure.
    publish(ctx, about, reason, note, reason == VOLUME_FAILED_DELETE).await;
}

async fn publish<P>(ctx: &Context<P>, about: ObjectReference, reason: &str, note: &str, by_several: bool) {
    if !ctx.memory.is_news(about.uid.as_deref().unwrap_or_default(), reason, note) {
        return;
    }
    let is_warning = [PROVISIONING_FAILED, VOLUME_FAILED_DELETE].contains(&reason);
    let event = EventSpec { is_warning, reason, note, by_several };
    events::publish(&ctx.client, about, event, &ctx.options.provisioner_name).await;
}
