//! Events on objects of any kind, as `kubectl describe` shows them.
//!
//! kube's Recorder is not used, because it merges events of one reason and keeps the text of the first. An admin needs to
//! see when the cause changes and the reason does not ("access denied", first to this, then to that).

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// Longest note of an event, in bytes (events.k8s.io/v1).
const MAX_NOTE: usize = 1024;

/// What an event says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'a str,
    pub(crate) note: &'a str,
}

/// Publishes one event. Best effort: nothing depends on events.
pub(crate) async fn publish(client: &Client, about: ObjectReference, said: Said<'_>, reporter: &str) {
    let event = event_about(about, said, reporter);
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(%error, reason = said.reason, "the event could not be written");
    }
}

/// Events on objects without a namespace are in `default`, where `kubectl describe` looks for them.
fn event_about(about: ObjectReference, said: Said<'_>, reporter: &str) -> Event {
    let time = Timestamp::now();
    let (namespace, name) = (about.namespace.clone(), about.name.clone().unwrap_or_default());
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            name: Some(format!("{name:.230}.{:x}", time.as_nanosecond())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(time)),
        type_: Some(if said.is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(said.reason.to_owned()),
        note: Some(shorten(said.note, MAX_NOTE)),
        action: Some("Reconcile".to_owned()),
        regarding: Some(about),
        reporting_controller: Some(reporter.to_owned()),
        reporting_instance: Some(reporter.to_owned()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let note = shorten(&"ä".repeat(1000), MAX_NOTE);
        assert!(note.len() <= MAX_NOTE && note.ends_with("..."), "{}", note.len());
    }
}
