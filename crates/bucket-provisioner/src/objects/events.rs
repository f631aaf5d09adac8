//! Events on claims, ObjectBuckets and classes.

use k8s_openapi::api::core::v1::ObjectReference;

use crate::api::wire;
use crate::decide::class::Class;
use crate::decide::report::Severity;
use crate::reasons;
use crate::state::context::Context;
use crate::store::ClaimId;
use operator_runtime::kubernetes::events::{self, EventSpec};

/// Publishes one event on a claim. Best effort: nothing depends on events.
pub(crate) async fn event<P>(ctx: &Context<P>, claim: &ClaimId, severity: Severity, reason: &str, note: &str) {
    let about = ObjectReference {
        api_version: Some(wire::API_VERSION.to_owned()),
        kind: Some(wire::CLAIM_KIND.to_owned()),
        namespace: Some(claim.namespace.clone()),
        name: Some(claim.name.clone()),
        uid: Some(claim.uid.clone()),
        ..ObjectReference::default()
    };
    publish(ctx, about, severity, reason, note).await;
}

/// Publishes one event on an ObjectBucket. Best effort, as [`event`].
pub(crate) async fn record_event<P>(
    ctx: &Context<P>,
    name: &str,
    uid: Option<&str>,
    severity: Severity,
    reason: &str,
    note: &str,
) {
    let about = ObjectReference {
        api_version: Some(wire::API_VERSION.to_owned()),
        kind: Some(wire::RECORD_KIND.to_owned()),
        name: Some(name.to_owned()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    };
    publish(ctx, about, severity, reason, note).await;
}

/// Publishes a Warning on a StorageClass, once while the operator runs. Best effort, as [`event`].
pub(crate) async fn class_warning<P>(ctx: &Context<P>, class: &Class, reason: &str, note: &str) {
    if !ctx.warned_classes.lock().insert(class.uid.clone().unwrap_or_default()) {
        return;
    }
    let about = ObjectReference {
        api_version: Some("storage.k8s.io/v1".to_owned()),
        kind: Some("StorageClass".to_owned()),
        name: Some(class.name.clone()),
        uid: class.uid.clone(),
        ..ObjectReference::default()
    };
    publish(ctx, about, Severity::Warning, reason, note).await;
}

async fn publish<P>(ctx: &Context<P>, about: ObjectReference, severity: Severity, reason: &str, note: &str) {
    let event = EventSpec { is_warning: severity == Severity::Warning, reason, note, by_several: false };
    events::publish(&ctx.client, about, event, &ctx.options.provisioner_name).await;
}

pub(crate) async fn left_in_place<P>(ctx: &Context<P>, claim: &ClaimId, note: &str) {
    tracing::warn!(reason = reasons::LEFT_IN_PLACE, "{note}");
    event(ctx, claim, Severity::Warning, reasons::LEFT_IN_PLACE, note).await;
}
