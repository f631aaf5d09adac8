//! Events on objects of any kind, as `kubectl describe` shows them.
//!
//! kube's Recorder is not used, because it merges events of one reason and keeps the text of the first. An admin needs to
//! see when the cause changes and the reason does not ("access denied", first to this, then to that).

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::answers::status_code;

/// Longest note of an event, in bytes (events.k8s.io/v1).
const MAX_NOTE: usize = 1024;

/// How long the work waits for an event to be written, and how often that is tried.
const PATIENCE: Duration = Duration::from_secs(5);
const TRIES: u32 = 2;

/// The content of an event.
#[derive(Debug, Clone, Copy)]
pub struct EventSpec<'a> {
    /// Whether its type is Warning, else Normal.
    pub is_warning: bool,
    /// In CamelCase, for machines.
    pub reason: &'a str,
    /// A sentence, for people; what exceeds 1,024 bytes is cut off.
    pub note: &'a str,
    /// Whether several instances publish it at the same time. Then there is one such event in an hour, which is how
    /// long the API server keeps events.
    pub by_several: bool,
}

/// Publishes one event. Best effort: nothing depends on events. An API server that is busy is asked twice, because an event may
/// be the only report.
pub async fn publish(client: &Client, about: ObjectReference, spec: EventSpec<'_>, reporter: &str) {
    let event = event_about(about, spec, reporter);
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let params = PostParams::default();
    for _ in 0..TRIES {
        let (problem, status) = match tokio::time::timeout(PATIENCE, api.create(&params, &event)).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => (error.to_string(), status_code(&error)),
            Err(_elapsed) => ("no answer in time".to_owned(), None),
        };
        match status {
            // By another instance, or by the first try.
            Some(409) => return,
            status => tracing::debug!(?status, problem, reason = spec.reason, "the event could not be written"),
        }
        if status.is_some_and(|status| status < 500 && status != 429) {
            return;
        }
    }
}

/// Events on objects without a namespace are in `default`, where `kubectl describe` looks for them.
fn event_about(about: ObjectReference, spec: EventSpec<'_>, reporter: &str) -> Event {
    let time = Timestamp::now();
    let (namespace, name) = (about.namespace.clone(), about.name.clone().unwrap_or_default());
    let number = match spec.by_several {
        false => time.as_nanosecond(),
        true => i128::from(hash(&(&about.uid, spec.reason, spec.note, time.as_second() / 3600))),
    };
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            name: Some(format!("{name:.230}.{number:x}")),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(time)),
        type_: Some(if spec.is_warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(spec.reason.to_owned()),
        note: Some(shorten(spec.note, MAX_NOTE)),
        action: Some("Reconcile".to_owned()),
        regarding: Some(about),
        reporting_controller: Some(reporter.to_owned()),
        reporting_instance: Some(instance()),
        ..Event::default()
    }
}

/// The pod, or else the host, which the API server wants in up to 128 bytes.
fn instance() -> String {
    let host = hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if host.is_empty() { "unknown".to_owned() } else { shorten(&host, 128) }
}

/// The same in each process of one build.
fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[test]
    fn what_several_say_has_one_name_and_anything_else_has_another() {
        let name = |uid: &str, note: &str, by_several| {
            let about = ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
            let spec = EventSpec { is_warning: true, reason: "Failed", note, by_several };
            let event = event_about(about, spec, "example.com/disk");
            (event.metadata.name, event.event_time.map(|time| time.0.as_second() / 3600))
        };
        let (first, hour) = name("1", "no class", true);
        let (second, then) = name("1", "no class", true);
        assert!(first == second || hour != then);
        assert_ne!(first, name("2", "no class", true).0);
        assert_ne!(first, name("1", "no node", true).0);
        assert_ne!(name("1", "no class", false).0, name("1", "no class", false).0);
    }

    #[tokio::test]
    async fn a_busy_api_server_is_asked_twice() {
        for (status, calls) in [(201, 1), (409, 1), (403, 1), (429, 2), (503, 2)] {
            let made = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&made);
            let server = tower::service_fn(move |_: Request<Body>| {
                counted.fetch_add(1, Ordering::Relaxed);
                let body = serde_json::json!({ "status": "Failure", "code": status, "metadata": {} });
                let answer = Response::builder().status(status).body(Body::from(body.to_string().into_bytes()));
                std::future::ready(answer)
            });
            let client = Client::new(server, "default");
            let spec = EventSpec { is_warning: true, reason: "Failed", note: "it", by_several: false };
            publish(&client, ObjectReference::default(), spec, "example.com/disk").await;
            assert_eq!(made.load(Ordering::Relaxed), calls, "{status}");
        }
    }

    #[test]
    fn an_event_names_its_pod_and_the_provisioner() {
        let spec = EventSpec { is_warning: false, reason: "Bound", note: "ready", by_several: false };
        let event = event_about(ObjectReference::default(), spec, "example.com/disk");
        let pod = hostname::get().ok().and_then(|name| name.into_string().ok());
        assert_eq!(event.reporting_controller.as_deref(), Some("example.com/disk"));
        assert!(pod.is_some() && event.reporting_instance == pod, "{event:?}");
    }

    #[test]
    fn a_long_note_is_cut_at_a_character() {
        let note = shorten(&"ä".repeat(1000), MAX_NOTE);
        assert!(note.len() <= MAX_NOTE && note.ends_with("..."), "{}", note.len());
    }
}
