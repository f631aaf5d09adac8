//! The objects of a cluster, as the changes that made them: a resourceVersion is a number of changes, so lists and watches
//! of any version can be answered.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

/// The path of an object. `namespace` is empty if it has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub plural: String,
    pub namespace: String,
    pub name: String,
}

/// A write: the object before and after it.
#[derive(Debug)]
pub struct Change {
    pub at: Instant,
    pub key: Key,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Which objects a list or a watch is about.
#[derive(Debug, Clone)]
pub struct Selection {
    pub plural: String,
    /// Empty for all.
    pub namespace: String,
    pub labels: Option<String>,
    pub fields: Option<String>,
}

impl Selection {
    fn includes(&self, key: &Key) -> bool {
        key.plural == self.plural && (self.namespace.is_empty() || self.namespace == key.namespace)
    }

    fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        let labelled = |wanted: &str| match (wanted.split_once('='), wanted.strip_prefix('!')) {
            (Some((key, value)), _) => label(key) == Some(value),
            (None, Some(key)) => label(key).is_none(),
            (None, None) => panic!("not implemented: label selector {wanted:?}"),
        };
        let named = |wanted: &str| match wanted.split_once('=') {
            Some(("metadata.name", name)) => object["metadata"]["name"] == name,
            _ => panic!("not implemented: field selector {wanted:?}"),
        };
        self.labels.as_deref().is_none_or(labelled) && self.fields.as_deref().is_none_or(named)
    }

    /// The type of the watch event of a change, and its object.
    fn event(&self, change: &Change) -> Option<(&'static str, Value)> {
        let shown = |object: &Option<Value>| object.as_ref().is_some_and(|object| self.matches(object));
        let kind = match (shown(&change.before), shown(&change.after)) {
            _ if !self.includes(&change.key) => return None,
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        // What leaves the selection is shown as it was, with the version of the change.
        let mut object = if shown(&change.after) { change.after.clone()? } else { change.before.clone()? };
        if let Some(after) = &change.after {
            object["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
        }
        Some((kind, object))
    }
}

/// The objects of a cluster.
#[derive(Debug)]
pub struct Objects {
    changes: Vec<Change>,
    now: BTreeMap<Key, Value>,
    uids: u64,
    /// How much later lists and watches show a change than a get.
    pub lag: Duration,
    /// The last version of a kind that lists and watches show.
    pub frozen: BTreeMap<String, usize>,
    /// Whether a new claim has the condition that our CRD gives it.
    pub has_default_condition: bool,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            changes: Vec::new(),
            now: BTreeMap::new(),
            uids: 0,
            lag: Duration::ZERO,
            frozen: BTreeMap::new(),
            has_default_condition: true,
        }
    }
}

impl Objects {
    pub fn version(&self) -> usize {
        self.changes.len()
    }

    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.now.get(key)
    }

    pub fn all(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.now.iter()
    }

    pub fn new_uid(&mut self) -> String {
        self.uids += 1;
        format!("00000000-0000-4000-8000-{:012x}", self.uids)
    }

    /// Writes an object, or removes it. Returns it with its new version.
    pub fn write(&mut self, key: Key, object: Value, remains: bool) -> Value {
        let mut object = object;
        object["metadata"]["resourceVersion"] = json!((self.version() + 1).to_string());
        let before = self.now.remove(&key);
        if remains {
            self.now.insert(key.clone(), object.clone());
        }
        // The last event of an object shows it with the version of its removal.
        let (before, after) = if remains { (before, Some(object.clone())) } else { (Some(object.clone()), None) };
        self.changes.push(Change { at: Instant::now(), key, before, after });
        object
    }

    /// Makes the objects what they were at a version, as if from a snapshot of etcd.
    pub fn set_back(&mut self, version: usize) {
        let mut then = BTreeMap::new();
        for Change { key, after, .. } in self.changes.iter().take(version) {
            then.insert(key.clone(), after.clone());
        }
        for (key, object) in self.now.clone() {
            match then.get(&key).cloned().flatten() {
                Some(earlier) if earlier == object => {}
                Some(earlier) => drop(self.write(key, earlier, true)),
                None => drop(self.write(key, object, false)),
            }
        }
    }

    /// The version that lists and watches of a kind show now.
    pub fn shown(&self, plural: &str) -> usize {
        let old = self.changes.partition_point(|change| change.at + self.lag <= Instant::now());
        old.min(self.frozen.get(plural).copied().unwrap_or(usize::MAX))
    }

    /// The objects as they were at a version.
    pub fn list(&self, selection: &Selection, version: usize) -> Vec<Value> {
        let mut objects = BTreeMap::new();
        for Change { key, after, .. } in self.changes.iter().take(version).filter(|c| selection.includes(&c.key)) {
            match after {
                Some(object) => objects.insert(key, object),
                None => objects.remove(key),
            };
        }
        objects.into_values().filter(|object| selection.matches(object)).cloned().collect()
    }

    /// The first event after a version that a watch shows now, and the version of its change.
    pub fn event_after(&self, selection: &Selection, version: usize) -> Option<(usize, &'static str, Value)> {
        let shown = self.shown(&selection.plural);
        let changes = self.changes.iter().enumerate().take(shown).skip(version);
        changes.filter_map(|(at, change)| selection.event(change).map(|(kind, object)| (at + 1, kind, object))).next()
    }

    /// When a watch may show more, if nothing changes.
    pub fn shows_more_at(&self, plural: &str) -> Option<Instant> {
        self.changes.get(self.shown(plural)).map(|change| change.at + self.lag).filter(|at| *at > Instant::now())
    }
}
