//! A cache of a watch that keeps only the needed facts of each object, because thousands of objects are watched. kube's
//! own store keeps whole objects.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt as _};
use tokio::sync::watch;

/// Facts `F` about all objects of one kind, from their watch.
#[derive(Debug)]
pub(crate) struct Cache<F> {
    shown: RwLock<Shown<F>>,
    is_filled: watch::Sender<bool>,
}

#[derive(Debug)]
struct Shown<F> {
    now: HashMap<Box<str>, Arc<F>>,
    /// A list that is being read. It replaces `now` when it is complete.
    listed: HashMap<Box<str>, Arc<F>>,
}

impl<F> Default for Cache<F> {
    fn default() -> Self {
        Self {
            shown: RwLock::new(Shown { now: HashMap::new(), listed: HashMap::new() }),
            is_filled: watch::Sender::new(false),
        }
    }
}

impl<F> Cache<F> {
    /// Processes an event; `facts` returns what to keep of an object, if anything.
    pub(crate) fn apply<K: Resource>(&self, event: &Event<K>, facts: impl Fn(&K) -> Option<F>) {
        let key_of = |object: &K| key(object.namespace().as_deref(), &object.name_any());
        let keep = |all: &mut HashMap<Box<str>, Arc<F>>, object: &K| {
            match facts(object) {
                Some(facts) => drop(all.insert(key_of(object), Arc::new(facts))),
                None => drop(all.remove(&key_of(object))),
            };
        };
        let mut shown = self.shown.write();
        match event {
            Event::Init => shown.listed = HashMap::new(),
            Event::InitApply(object) => keep(&mut shown.listed, object),
            Event::InitDone => {
                shown.now = std::mem::take(&mut shown.listed);
                self.is_filled.send_replace(true);
            }
            Event::Apply(object) => keep(&mut shown.now, object),
            Event::Delete(object) => drop(shown.now.remove(&key_of(object))),
        }
    }

    /// The object of this name, in this namespace if it has one.
    pub(crate) fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<F>> {
        self.shown.read().now.get(&key(namespace, name)).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<F>> {
        self.shown.read().now.values().cloned().collect()
    }

    /// The names of objects without a namespace.
    pub(crate) fn names(&self) -> Vec<String> {
        self.shown.read().now.keys().map(|name| name.to_string()).collect()
    }

    /// Completes when the first list is complete.
    pub(crate) async fn filled(&self) {
        // Cannot fail, because `self` has the sender.
        let _ = self.is_filled.subscribe().wait_for(|filled| *filled).await;
    }

    pub(crate) fn is_filled(&self) -> bool {
        *self.is_filled.borrow()
    }
}

/// Neither namespaces nor names have a slash.
fn key(namespace: Option<&str>, name: &str) -> Box<str> {
    match namespace {
        Some(namespace) => format!("{namespace}/{name}").into_boxed_str(),
        None => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::ObjectMeta;

    use super::*;

    fn secret(name: &str, uid: &str) -> Secret {
        let metadata = ObjectMeta {
            namespace: Some("ns".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        };
        Secret { metadata, ..Secret::default() }
    }

    fn cache_of(events: impl IntoIterator<Item = Event<Secret>>) -> Cache<String> {
        let cache = Cache::default();
        events.into_iter().for_each(|event| cache.apply(&event, |secret| secret.uid().filter(|uid| uid != "none")));
        cache
    }

    fn uid(cache: &Cache<String>, name: &str) -> Option<String> {
        cache.get(Some("ns"), name).map(|uid| uid.to_string())
    }

    #[test]
    fn it_shows_what_was_listed_and_what_changed_since() {
        let first = [Event::Init, Event::InitApply(secret("a", "1")), Event::InitApply(secret("b", "2"))];
        let then = [Event::InitDone, Event::Apply(secret("a", "3")), Event::Delete(secret("b", "2"))];
        let cache = cache_of(first.into_iter().chain(then));
        assert!(cache.is_filled());
        assert_eq!((uid(&cache, "a").as_deref(), uid(&cache, "b")), (Some("3"), None));
        assert_eq!(cache.get(None, "a"), None);
    }

    #[test]
    fn nothing_is_kept_of_what_does_not_matter_any_more() {
        let first = [Event::Init, Event::InitApply(secret("a", "1")), Event::InitApply(secret("b", "none"))];
        let cache = cache_of(first.into_iter().chain([Event::InitDone, Event::Apply(secret("a", "none"))]));
        assert!(cache.all().is_empty());
    }

    #[test]
    fn it_is_not_filled_before_the_first_list_is_complete() {
        let cache = cache_of([Event::Init, Event::InitApply(secret("a", "1"))]);
        assert!(!cache.is_filled());
        assert_eq!(uid(&cache, "a"), None);
    }

    #[test]
    fn the_previous_list_is_shown_until_the_next_is_complete() {
        let cache = cache_of([Event::Init, Event::InitApply(secret("a", "1")), Event::InitDone, Event::Init]);
        let apply = |event| cache.apply(&event, |secret: &Secret| secret.uid());
        apply(Event::InitApply(secret("b", "2")));
        assert_eq!((uid(&cache, "a").as_deref(), uid(&cache, "b")), (Some("1"), None));
        apply(Event::InitDone);
        assert_eq!((uid(&cache, "a"), uid(&cache, "b").as_deref()), (None, Some("2")));
    }
}
