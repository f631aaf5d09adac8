//! Labels and annotations that a claim asks for on its Secret and ConfigMap (`outputLabels`, `outputAnnotations`), for tools that
//! copy, back up or watch these. Pure.
//!
//! An annotation of ours lists what was written, so that it can be removed again, and has a digest of what the claim asked for,
//! so that an edit is noticed without the objects.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::api::{object_name, wire};
use crate::decide::settings::{self, Config};
use crate::refusal::Refusal;
use crate::store::settings::{OUTPUT_ANNOTATIONS, OUTPUT_LABELS};

/// Most entries of each.
const MOST: usize = 16;
/// Longest text of each: it is written with every change of an output.
const TEXT_MAX: usize = 4096;
/// Longest name of a key, and longest value of a label.
const LONGEST: usize = 63;
/// Domains of keys that belong to others: Kubernetes, and this operator.
const RESERVED: [&str; 3] = ["kubernetes.io", "k8s.io", "objectbucket.io"];

type Entries = BTreeMap<String, String>;

/// What a claim asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OutputMetadata {
    labels: Entries,
    annotations: Entries,
    /// `None` if it asks for nothing.
    digest: Option<String>,
}

impl OutputMetadata {
    /// Parses what a claim asks for.
    ///
    /// # Errors
    /// [`Refusal::InvalidSetting`]: the first entry that cannot be written.
    pub(crate) fn parse(config: Option<&Config>) -> Result<Self, Refusal> {
        let entries = |key: &'static str, is_value: fn(&str) -> bool| match written(config, key) {
            Some(text) => parsed(text, is_value).map_err(|problem| Refusal::InvalidSetting {
                key: key.to_owned(),
                value: settings::shown(text),
                problem,
            }),
            None => Ok(Entries::new()),
        };
        let labels = entries(OUTPUT_LABELS, is_label_value)?;
        Ok(Self { labels, annotations: entries(OUTPUT_ANNOTATIONS, |_| true)?, digest: digest(config) })
    }

    /// Those of a claim that is bound: what cannot be written changes nothing of what an output has.
    pub(crate) fn of_bound(config: Option<&Config>, found: Option<&ObjectMeta>) -> Self {
        Self::parse(config).unwrap_or_else(|_| Self { digest: digest(config), ..Self::shown(found) })
    }

    /// What an output has, as its annotation lists it.
    fn shown(found: Option<&ObjectMeta>) -> Self {
        let Some(found) = found else { return Self::default() };
        let [labels, annotations] = listed(found);
        let values = |keys: BTreeSet<String>, all: &Option<Entries>| {
            let value = |key: String| all.as_ref()?.get(&key).cloned().map(|value| (key, value));
            keys.into_iter().filter_map(value).collect()
        };
        Self {
            labels: values(labels, &found.labels),
            annotations: values(annotations, &found.annotations),
            digest: None,
        }
    }

    /// Adds them to the metadata of an output that is to be written.
    pub(crate) fn add(&self, metadata: &mut ObjectMeta) {
        let Some(digest) = &self.digest else { return };
        let list = |entries: &Entries| entries.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        let noted = format!("{digest} {} {}", list(&self.labels), list(&self.annotations));
        metadata.labels.get_or_insert_default().extend(self.labels.clone());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.extend(self.annotations.clone());
        annotations.insert(wire::annotation::OUTPUT_METADATA.to_owned(), noted);
    }
}

/// What a claim asks for, to compare with what an output was written for.
fn digest(config: Option<&Config>) -> Option<String> {
    let [labels, annotations] = [OUTPUT_LABELS, OUTPUT_ANNOTATIONS].map(|key| written(config, key));
    digest_of_abridged([labels.map(settings::abridged), annotations.map(settings::abridged)])
}

/// The same for a claim in the cache, which has digests of long values.
pub(crate) fn digest_of_cached(config: Option<&Config>) -> Option<String> {
    digest_of_abridged([OUTPUT_LABELS, OUTPUT_ANNOTATIONS].map(|key| written(config, key).map(Cow::Borrowed)))
}

fn digest_of_abridged(asked: [Option<Cow<'_, str>>; 2]) -> Option<String> {
    if asked == [None, None] {
        return None;
    }
    let digest = Sha256::digest(json!(asked).to_string());
    Some(digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The digest of what an output was written for. `None` also if somebody has removed some of it.
pub(crate) fn digest_of(metadata: &ObjectMeta) -> Option<&str> {
    let has = |all: &Option<Entries>, key: &String| all.as_ref().is_some_and(|all| all.contains_key(key));
    let [labels, annotations] = listed(metadata);
    let is_whole = labels.iter().all(|key| has(&metadata.labels, key))
        && annotations.iter().all(|key| has(&metadata.annotations, key));
    metadata.annotations.as_ref().filter(|_| is_whole)?.get(wire::annotation::OUTPUT_METADATA)?.split(' ').next()
}

/// The merge patch from what an output has to what it should have; `None` if nothing differs.
pub(crate) fn difference(found: &ObjectMeta, wanted: &ObjectMeta) -> Option<Value> {
    let [labels, annotations] = listed(found);
    let [wanted_labels, mut wanted_annotations] = listed(wanted);
    wanted_annotations.insert(wire::annotation::OUTPUT_METADATA.to_owned());
    let changed = |before: BTreeSet<String>, now: BTreeSet<String>, is: &Option<Entries>, should: &Option<Entries>| {
        let value = |all: &Option<Entries>, key: &str| all.as_ref().and_then(|all| all.get(key)).cloned();
        let all: BTreeSet<_> = before.into_iter().chain(now).collect();
        let differs = all.into_iter().filter(|key| value(is, key) != value(should, key));
        differs.map(|key| (key.clone(), json!(value(should, &key)))).collect::<serde_json::Map<_, _>>()
    };
    let labels = changed(labels, wanted_labels, &found.labels, &wanted.labels);
    let annotations = changed(annotations, wanted_annotations, &found.annotations, &wanted.annotations);
    (!labels.is_empty() || !annotations.is_empty()).then(|| json!({ "labels": labels, "annotations": annotations }))
}

/// The keys that the annotation of an output lists. Somebody may have edited it.
fn listed(metadata: &ObjectMeta) -> [BTreeSet<String>; 2] {
    let noted = metadata.annotations.as_ref().and_then(|all| all.get(wire::annotation::OUTPUT_METADATA));
    let mut lists = noted.map(String::as_str).unwrap_or_default().split(' ').skip(1);
    [(); 2].map(|()| {
        let keys = lists.next().unwrap_or_default().split(',').take(MOST);
        keys.filter(|key| bad_key(key).is_none()).map(str::to_owned).collect()
    })
}

/// A message about what a bound claim asks for and does not get.
pub(crate) fn ignored(config: Option<&Config>) -> Option<String> {
    let refusal = OutputMetadata::parse(config).err()?;
    Some(format!("{refusal}; Secret and ConfigMap keep the labels and annotations that they have"))
}

/// The same for a claim whose Secret and ConfigMap are not changed.
pub(crate) fn unwritten(config: Option<&Config>) -> Option<String> {
    digest(config)?;
    Some(format!(
        "spec.additionalConfig.{OUTPUT_LABELS} and .{OUTPUT_ANNOTATIONS} have no effect, because Secret and ConfigMap of a claim that an earlier provisioner bound are not changed; remove them"
    ))
}

fn written<'a>(config: Option<&'a Config>, key: &str) -> Option<&'a str> {
    config?.get(key).map(String::as_str).filter(|text| !text.is_empty())
}

/// `k=v,…`; else what is wrong, with the remedy.
fn parsed(text: &str, is_value: fn(&str) -> bool) -> Result<Entries, String> {
    let mut entries = Entries::new();
    if text.len() > TEXT_MAX {
        return Err(format!("has {} bytes; {TEXT_MAX} are allowed", text.len()));
    }
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((key, value)) = part.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            return Err(format!(
                "has {:?} without \"=\"; write pairs such as team=shop,tier=gold",
                settings::shown(part)
            ));
        };
        if let Some(problem) = bad_key(key) {
            return Err(format!("has the key {:?}, which {problem}; choose another one", settings::shown(key)));
        }
        if !is_value(value) {
            let rule = "write up to 63 letters, digits, '-', '_' and '.'";
            return Err(format!("has the value {:?}, which no label can have; {rule}", settings::shown(value)));
        }
        if entries.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(format!("has the key {key:?} twice; remove one of both"));
        }
    }
    match entries.len() {
        0 => Err("has no entry; write pairs such as team=shop,tier=gold".to_owned()),
        count if count > MOST => Err(format!("has {count} entries; {MOST} are allowed")),
        _ => Ok(entries),
    }
}

/// Why a claim cannot have this key.
fn bad_key(key: &str) -> Option<&'static str> {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_reserved = |domain: &str| {
        RESERVED
            .into_iter()
            .any(|reserved| domain.strip_suffix(reserved).is_some_and(|left| left.is_empty() || left.ends_with('.')))
    };
    match domain {
        _ if name.is_empty() || !is_label_value(name) => Some("is not the name of a label or annotation"),
        None if key == wire::PROVISIONER_LABEL => Some("is the operator's"),
        None => None,
        Some(domain) if is_reserved(domain) => Some("belongs to Kubernetes or to the operator"),
        Some(domain) if object_name(domain).is_none() => Some("begins with no domain"),
        Some(_) => None,
    }
}

/// Also the rule for names of keys, which are not empty ("Labels and Selectors", Kubernetes documentation).
fn is_label_value(text: &str) -> bool {
    let is_end = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= LONGEST
        && is_end(text.bytes().next())
        && is_end(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(labels: &str, annotations: &str) -> Config {
        [(OUTPUT_LABELS, labels), (OUTPUT_ANNOTATIONS, annotations)].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    fn written_for(labels: &str, annotations: &str) -> ObjectMeta {
        let mut metadata = ObjectMeta::default();
        OutputMetadata::parse(Some(&config(labels, annotations))).unwrap().add(&mut metadata);
        metadata
    }

    #[test]
    fn what_is_asked_for_is_added_and_removed() {
        let one = written_for("team=shop, tier=gold", "example.com/note=two words");
        assert_eq!(one.labels.as_ref().unwrap()["tier"], "gold");
        assert_eq!(one.annotations.as_ref().unwrap()["example.com/note"], "two words");
        assert_eq!(difference(&one, &one), None);
        let patch = difference(&one, &written_for("team=shop", "")).unwrap();
        assert_eq!(patch["labels"], json!({ "tier": null }));
        assert!(patch["annotations"]["example.com/note"].is_null());
        let patch = difference(&one, &ObjectMeta::default()).unwrap();
        assert_eq!(patch["labels"], json!({ "team": null, "tier": null }));
        assert!(patch["annotations"][wire::annotation::OUTPUT_METADATA].is_null());
        assert_eq!(difference(&ObjectMeta::default(), &ObjectMeta::default()), None);
        // What others have added stays.
        let mut theirs = one.clone();
        theirs.labels.as_mut().unwrap().insert("theirs".into(), "1".into());
        assert_eq!(difference(&theirs, &one), None);
        // What they remove is written again.
        assert!(digest_of(&theirs).is_some());
        theirs.labels.as_mut().unwrap().remove("tier");
        assert_eq!(digest_of(&theirs), None);
        assert_eq!(difference(&theirs, &one).unwrap()["labels"], json!({ "tier": "gold" }));
    }

    #[test]
    fn what_cannot_be_written_has_a_remedy() {
        for (labels, part) in [
            ("team", "without \"=\""),
            ("app.kubernetes.io/name=x", "belongs to Kubernetes"),
            ("kubernetes.io/name=x", "belongs to Kubernetes"),
            ("objectbucket.io/claim=x", "belongs to Kubernetes or to the operator"),
            ("bucket-provisioner=x", "is the operator's"),
            ("team=a b", "which no label can have"),
            ("-team=a", "is not the name"),
            ("a_b/team=a", "begins with no domain"),
            ("team=a,team=b", "twice"),
            (",", "has no entry"),
            (&"team=shop,".repeat(500), "4096 are allowed"),
        ] {
            let message = OutputMetadata::parse(Some(&config(labels, ""))).unwrap_err().to_string();
            assert!(message.starts_with("spec.additionalConfig.outputLabels") && message.contains(part), "{message}");
        }
        assert!(OutputMetadata::parse(Some(&config("notkubernetes.io/team=a", ""))).is_ok());
    }

    #[test]
    fn an_edit_that_cannot_be_written_changes_nothing() {
        let before = written_for("team=shop", "");
        let edited = config("team", "");
        let mut wanted = ObjectMeta::default();
        OutputMetadata::of_bound(Some(&edited), Some(&before)).add(&mut wanted);
        assert_eq!(wanted.labels, before.labels);
        assert_eq!(digest_of(&wanted), digest(Some(&edited)).as_deref());
        assert!(ignored(Some(&edited)).unwrap().contains("keep"));
    }

    #[test]
    fn the_cache_knows_what_was_asked_for() {
        let long = config(&format!("team={}", "a".repeat(63)), "");
        let cached = long.iter().map(|(key, value)| (key.clone(), settings::abridged(value).into_owned())).collect();
        assert_eq!(digest(Some(&long)), digest_of_cached(Some(&cached)));
        // One that looks like what is cached.
        let literal = format!("sha256:{}", "a".repeat(64));
        let cached = config(&settings::abridged(&literal), "");
        assert_eq!(digest(Some(&config(&literal, ""))), digest_of_cached(Some(&cached)));
        let short = config("team=a", "");
        assert_eq!(digest(Some(&short)), digest_of_cached(Some(&short)));
        assert_ne!(digest(Some(&long)), digest(Some(&config("team=a", ""))));
        assert_eq!(digest(Some(&config("", ""))), None);
    }

    #[test]
    fn an_edited_list_removes_nothing_of_the_operator() {
        let mut found = written_for("team=shop", "");
        let list = format!("0 {},team objectbucket.io/keys-issued-at", wire::PROVISIONER_LABEL);
        found.annotations.as_mut().unwrap().insert(wire::annotation::OUTPUT_METADATA.into(), list);
        let patch = difference(&found, &ObjectMeta::default()).unwrap();
        assert_eq!(patch["labels"], json!({ "team": null }));
        assert_eq!(patch["annotations"].as_object().unwrap().len(), 1, "{patch}");
    }
}
