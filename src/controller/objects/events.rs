//! Events on claims and ObjectBuckets.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use crate::api::wire;
use crate::controller::decide::report::Severity;
use crate::controller::reasons;
use crate::controller::state::context::Context;
use crate::provisioner::ClaimId;

/// Longest note of an event, in bytes (events.k8s.io/v1).
const MAX_NOTE: usize = 1024;

/// Publishes one event on a claim. Best effort: nothing depends on events.
///
/// kube's Recorder is not used, because it merges events of one reason and keeps the text of the first. An admin needs to
/// see when the cause changes and the reason does not ("access denied", first to this, then to that).
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

async fn publish<P>(ctx: &Context<P>, about: ObjectReference, severity: Severity, reason: &str, note: &str) {
    let event = event_about(about, severity, reason, note, &ctx.options.provisioner_name);
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(ctx.client.clone(), &namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(%error, reason, "the event could not be written");
    }
}

/// Events on objects without a namespace are in `default`, where `kubectl describe` looks for them.
fn event_about(about: ObjectReference, severity: Severity, reason: &str, note: &str, provisioner: &str) -> Event {
    let time = Timestamp::now();
    let (namespace, name) = (about.namespace.clone(), about.name.clone().unwrap_or_default());
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            name: Some(format!("{name:.230}.{:x}", time.as_nanosecond())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(time)),
        type_: Some(if severity == Severity::Warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(reason.to_owned()),
        note: Some(shorten(note, MAX_NOTE)),
        action: Some("Reconcile".to_owned()),
        regarding: Some(about),
        reporting_controller: Some(provisioner.to_owned()),
        reporting_instance: Some(provisioner.to_owned()),
        ..Event::default()
    }
}

/// Cuts text to at most `max` bytes, between two characters.
fn shorten(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = (0..=max - 3).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}...", text.get(..end).unwrap_or_default())
}

pub(crate) async fn left_in_place<P>(ctx: &Context<P>, claim: &ClaimId, note: &str) {
    tracing::warn!(reason = reasons::LEFT_IN_PLACE, "{note}");
    event(ctx, claim, Severity::Warning, reasons::LEFT_IN_PLACE, note).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let note = shorten(&"ä".repeat(1000), MAX_NOTE);
        assert!(note.len() <= MAX_NOTE && note.ends_with("..."), "{}", note.len());
    }
}
