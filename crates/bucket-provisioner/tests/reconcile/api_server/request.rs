//! What a request asks for: a verb of Kubernetes, and an object or a kind.

use std::collections::BTreeMap;
use std::fmt;

use http::request::Parts;
use http::{Method, header};
use serde_json::Value;

use super::objects::{Key, Selection};
use super::writes::Patch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Patch(Patch),
    Delete,
}

#[derive(Debug)]
pub struct Request {
    pub verb: Verb,
    /// Without a name for what concerns all objects of a kind.
    pub key: Key,
    /// Only the metadata is wanted.
    pub metadata_only: bool,
    query: BTreeMap<String, String>,
    pub body: Value,
}

/// As the name of a call. The names of events are random.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { plural, name, .. } = &self.key;
        if self.is_dry_run() {
            f.write_str("try to ")?;
        }
        match self.verb {
            Verb::Patch(Patch::MergeStatus) => write!(f, "patch {plural}/status {name}"),
            Verb::Patch(Patch::Merge) => write!(f, "patch {plural} {name}"),
            Verb::Patch(Patch::Apply) => write!(f, "apply {plural} {name}"),
            Verb::Create if plural == "events" => f.write_str("create events"),
            verb @ (Verb::Get | Verb::Create | Verb::Delete) => {
                write!(f, "{} {plural} {name}", format!("{verb:?}").to_lowercase())
            }
            verb @ (Verb::List | Verb::Watch) => write!(f, "{} {plural}", format!("{verb:?}").to_lowercase()),
        }
    }
}

impl Request {
    /// `None`: this API server does not know it.
    pub fn parse(head: &Parts, body: &[u8]) -> Option<Self> {
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let query = head.uri.query().unwrap_or_default();
        let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let path: Vec<_> = head.uri.path().split('/').skip(1).collect();
        // `/api/v1/…` is the core group, `/apis/GROUP/VERSION/…` is any other one.
        let path: &[&str] = match path.as_slice() {
            ["api", _version, rest @ ..] | ["apis", _, _version, rest @ ..] => rest,
            _ => return None,
        };
        let (namespace, path) = match path {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", path),
        };
        let (plural, name, subresource) = match path {
            [plural] => (plural, "", None),
            [plural, name] => (plural, *name, None),
            [plural, name, subresource] => (plural, *name, Some(*subresource)),
            _ => return None,
        };
        let body: Value = if body.is_empty() { Value::Null } else { serde_json::from_slice(body).ok()? };
        let watches = query.contains_key("watch") && !query.contains_key("sendInitialEvents");
        let verb = match (&head.method, header(header::CONTENT_TYPE), subresource) {
            (&Method::GET, _, None) if !name.is_empty() => Verb::Get,
            (&Method::GET, _, None) if watches => Verb::Watch,
            (&Method::GET, _, None) if !query.contains_key("watch") => Verb::List,
            (&Method::POST, _, None) => Verb::Create,
            (&Method::DELETE, _, None) if !name.is_empty() => Verb::Delete,
            (&Method::PATCH, "application/merge-patch+json", None) => Verb::Patch(Patch::Merge),
            (&Method::PATCH, "application/merge-patch+json", Some("status")) => Verb::Patch(Patch::MergeStatus),
            (&Method::PATCH, "application/apply-patch+yaml", None) => Verb::Patch(Patch::Apply),
            _ => return None,
        };
        let name = match verb {
            // A generated name is not implemented.
            Verb::Create => body["metadata"]["name"].as_str()?,
            _ => name,
        };
        let key = Key { plural: (*plural).to_owned(), namespace: namespace.to_owned(), name: name.to_owned() };
        let metadata_only = header(header::ACCEPT).contains("as=PartialObjectMetadata");
        Some(Self { verb, key, metadata_only, query, body })
    }

    pub fn is_dry_run(&self) -> bool {
        self.query.contains_key("dryRun")
    }

    pub fn manager(&self) -> Option<&str> {
        self.query.get("fieldManager").map(String::as_str)
    }

    /// It writes, and `managedFields` would not show who. What an event is about shows it.
    pub fn is_anonymous(&self) -> bool {
        let writes = matches!(self.verb, Verb::Create | Verb::Patch(_)) && !self.is_dry_run();
        writes && self.key.plural != "events" && self.manager().is_none()
    }

    pub fn selection(&self) -> Selection {
        let Key { plural, namespace, .. } = self.key.clone();
        let [labels, fields] = ["labelSelector", "fieldSelector"].map(|selector| self.query.get(selector).cloned());
        Selection { plural, namespace, labels, fields }
    }

    /// A number in the query.
    pub fn number(&self, parameter: &str) -> Option<usize> {
        self.query.get(parameter)?.parse().ok()
    }

    /// Where a further page of a list continues: the version of the list, and how many objects were in earlier pages.
    pub fn continued(&self) -> Option<(usize, usize)> {
        let (version, from) = self.query.get("continue")?.split_once('/')?;
        Some((version.parse().ok()?, from.parse().ok()?))
    }
}
