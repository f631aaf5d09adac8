//! A claim, parsed from the cache. Users can write almost all of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::core::ObjectMeta;

use crate::api::{
    ClaimPhase, Condition, ConditionStatus, Guard, ObjectBucketClaim, ObjectBucketClaimSpec, ObjectBucketClaimStatus,
    wire,
};
use crate::decide::metadata::{NOTE_MAX, has_finalizer};
use crate::decide::settings::{self, Config};
use crate::error::Error;
use crate::store::{Capabilities, ClaimId, Mode, Plan, Record, names};

/// A claim, or the error if it does not parse.
pub(crate) type Guarded = Guard<ObjectBucketClaim>;

/// A claim, read.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) id: ClaimId,
    pub(crate) resource_version: Option<String>,
    pub(crate) generation: Option<i64>,
    pub(crate) created: Option<Time>,
    pub(crate) deleting: bool,
    pub(crate) finalizer: bool,
    pub(crate) finalizers: Vec<String>,
    pub(crate) label: LabelOwner,
    /// The annotation that requests new keys.
    pub(crate) rotate_request: Option<String>,
    /// The annotation that requests another attempt at once.
    pub(crate) retry_request: Option<String>,
    /// The annotation that asks for the bucket of a deleted claim of this name.
    pub(crate) undo_request: Option<String>,
    /// Or why it cannot be read, and the class that it names nevertheless.
    spec: Result<ObjectBucketClaimSpec, (String, Option<String>)>,
    /// Its settings were read from the API server, and not from the cache.
    has_whole_settings: bool,
    pub(crate) status: ObjectBucketClaimStatus,
    /// Its status has the condition with which our CRD begins, as well.
    pub(crate) begins_unready: bool,
}

/// Whose claim it is, by its label `bucket-provisioner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelOwner {
    /// This provisioner's.
    Ours,
    /// Another provisioner's.
    Foreign,
    /// It has no label.
    None,
}

/// How many unknown keys of `additionalConfig` are reported, and how much of each. A tenant can write a megabyte of them.
pub(crate) const CONFIG_KEYS: usize = 8;
/// What is cached of their values.
const SOME: &str = "…";

/// The cached part of `additionalConfig`: what the store knows, with [digests](settings::abridged) of long values; and the keys
/// of the rest that are reported. One more of both, to know that there are others.
fn trimmed(config: &Config, has: Capabilities) -> Config {
    let is_known = |key: &str, value: &str| !value.is_empty() && settings::is_known(key, has);
    let (known, others): (Vec<_>, Vec<_>) = config.iter().partition(|(key, value)| is_known(key, value));
    // Those of the claim itself are few, and must not be missed among thousands of others.
    let (own, known): (Vec<_>, Vec<_>) = known.into_iter().partition(|(key, _)| settings::is_own(key, has));
    let known = own.into_iter().chain(known.into_iter().take(settings::MOST + 2));
    let known = known.map(|(key, value)| (key.clone(), settings::abridged(value).into_owned()));
    // Templates write empty values.
    let others = others.into_iter().filter(|(key, _)| !settings::is_known(key, has)).take(CONFIG_KEYS + 1);
    let mark = |value: &String| if value.is_empty() { String::new() } else { SOME.to_owned() };
    known.chain(others.map(|(key, value)| (settings::cut(key), mark(value)))).collect()
}

/// Reduces a claim to what is needed, before it is cached, because there are thousands.
pub(crate) fn trim(guarded: &mut Guarded, has: Capabilities) {
    if let Ok(claim) = &mut guarded.0 {
        claim.spec.additional_config = claim.spec.additional_config.as_ref().map(|config| trimmed(config, has));
    }
    let metadata = guarded.meta_mut();
    let asked = [wire::annotation::ROTATE_KEYS, wire::annotation::RETRY, wire::annotation::UNDO_DELETE]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), request(metadata, key)?)))
        .collect::<BTreeMap<_, _>>();
    metadata.annotations = (!asked.is_empty()).then_some(asked);
    // Kept in a field that API servers no longer use, because a map takes some 600 bytes.
    metadata.self_link = metadata.labels.take().and_then(|mut all| all.remove(wire::PROVISIONER_LABEL));
}

/// A user's request in an annotation, cut to the length that is noted.
fn request(metadata: &ObjectMeta, key: &str) -> Option<String> {
    let asked = metadata.annotations.as_ref()?.get(key)?;
    let end = asked.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= NOTE_MAX).last();
    asked.get(..end.unwrap_or_default()).map(str::to_owned)
}

/// A status without the condition that the CRD begins with, which no operator has written.
fn reported(mut status: ObjectBucketClaimStatus) -> ObjectBucketClaimStatus {
    status.conditions.retain(|condition| !condition.is_default());
    status
}

/// The value of our label, from the cluster or from the cache (see [`trim`]).
pub(crate) fn provisioner_label(metadata: &ObjectMeta) -> Option<&String> {
    let labelled = metadata.labels.as_ref().and_then(|labels| labels.get(wire::PROVISIONER_LABEL));
    labelled.or(metadata.self_link.as_ref())
}

impl Claim {
    /// Reads a claim from the cache; `our_label` is this provisioner's label value.
    pub(crate) fn read(guarded: &Guarded, our_label: &str) -> Self {
        let (metadata, spec, status) = match &guarded.0 {
            Ok(claim) => (&claim.metadata, Ok(claim.spec.clone()), claim.status.clone().unwrap_or_default()),
            Err(invalid) => {
                let spec = Err((invalid.error.clone(), invalid.class.clone()));
                (&invalid.metadata, spec, ObjectBucketClaimStatus::default())
            }
        };
        let label = match provisioner_label(metadata) {
            Some(label) if label == our_label => LabelOwner::Ours,
            Some(_) => LabelOwner::Foreign,
            None => LabelOwner::None,
        };
        Self {
            id: ClaimId {
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
                uid: metadata.uid.clone().unwrap_or_default(),
            },
            resource_version: metadata.resource_version.clone(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.clone(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizer: has_finalizer(metadata),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            label,
            rotate_request: request(metadata, wire::annotation::ROTATE_KEYS),
            retry_request: request(metadata, wire::annotation::RETRY),
            undo_request: request(metadata, wire::annotation::UNDO_DELETE),
            spec,
            has_whole_settings: false,
            begins_unready: status.conditions.iter().any(Condition::is_default),
            status: reported(status),
        }
    }

    /// A claim that no longer exists, and whose record remains.
    pub(crate) fn gone(id: ClaimId) -> Self {
        Self {
            id,
            resource_version: None,
            generation: None,
            created: None,
            deleting: true,
            finalizer: false,
            finalizers: Vec::new(),
            rotate_request: None,
            retry_request: None,
            undo_request: None,
            label: LabelOwner::Ours,
            spec: Err(("the claim no longer exists".to_owned(), None)),
            has_whole_settings: false,
            status: ObjectBucketClaimStatus::default(),
            begins_unready: false,
        }
    }

    /// Whether the claim no longer exists, so that nothing can be reported on it.
    pub(crate) fn is_gone(&self) -> bool {
        self.resource_version.is_none()
    }

    /// The spec.
    ///
    /// # Errors
    /// [`Error::ClaimUnreadable`] with the parser's message.
    pub(crate) fn spec(&self) -> Result<&ObjectBucketClaimSpec, Error> {
        self.spec.as_ref().map_err(|(error, _)| Error::ClaimUnreadable { error: error.clone() })
    }

    /// Its `spec.additionalConfig`.
    pub(crate) fn config(&self) -> Option<&Config> {
        self.spec.as_ref().ok()?.additional_config.as_ref()
    }

    /// Whether it may not have its settings as they are.
    pub(crate) fn is_abridged(&self, has: Capabilities) -> bool {
        let config = self.config();
        !self.has_whole_settings && config.is_some_and(|config| settings::is_abridged(config, has))
    }

    /// Whether its settings were read from the API server.
    pub(crate) fn has_whole_settings(&self) -> bool {
        self.has_whole_settings
    }

    /// Takes the settings of a newer version of this claim.
    pub(crate) fn take_settings(&mut self, newer: &Self) {
        if let (Ok(spec), Ok(newer)) = (&mut self.spec, &newer.spec) {
            spec.additional_config.clone_from(&newer.additional_config);
            self.has_whole_settings = true;
        }
    }

    /// The class that it names.
    pub(crate) fn class(&self) -> Option<&str> {
        let class = match &self.spec {
            Ok(spec) => Some(spec.storage_class_name.as_str()),
            Err((_, class)) => class.as_deref(),
        };
        class.filter(|name| !name.is_empty())
    }

    /// The condition of this type.
    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// The condition of this type, if it is False.
    pub(crate) fn unmet(&self, type_: &str) -> Option<&Condition> {
        self.condition(type_).filter(|condition| condition.status == ConditionStatus::False)
    }

    /// Whether the claim asks for the bucket of a deleted claim. Any value but `no` does: it must not get a new bucket
    /// because of a misspelt one.
    pub(crate) fn asks_to_undo(&self) -> bool {
        self.undo_request.as_deref().is_some_and(|value| value != "no")
    }

    /// Whether the claim gets the bucket of a deleted claim. One that is Bound has its bucket: without its ObjectBucket it
    /// must not take that of another claim.
    pub(crate) fn undoes(&self) -> bool {
        self.asks_to_undo() && !self.bound()
    }

    /// Whether that can be the bucket of this ObjectBucket: one that the claim names, if it names one.
    pub(crate) fn undoes_deletion_of(&self, record: &str) -> bool {
        self.undoes() && self.named_record().is_none_or(|named| named == record)
    }

    /// The ObjectBucket that `spec.objectBucketName` names.
    pub(crate) fn named_record(&self) -> Option<&str> {
        self.spec().ok()?.object_bucket_name.as_deref().filter(|name| !name.is_empty())
    }

    /// When it was created, which the API server sets on every claim.
    pub(crate) fn asked_at(&self) -> Timestamp {
        self.created.as_ref().map_or(Timestamp::MAX, |created| created.0)
    }

    /// Whether the claim has a sign of binding. Only a hint, because users can write it.
    pub(crate) fn was_bound(&self) -> bool {
        self.bound() || self.spec.as_ref().is_ok_and(|spec| spec.object_bucket_name.is_some())
    }

    /// Whether `status.phase` is Bound.
    pub(crate) fn bound(&self) -> bool {
        self.status.phase == Some(ClaimPhase::Bound)
    }
}

/// Which bucket a claim asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum WantedBucket {
    /// `spec.generateBucketName`: a new name that starts with this prefix (as the user wrote it).
    Generated {
        /// Prefix of the name, not yet checked against the store's rules.
        prefix: String,
    },
    /// `spec.bucketName`: exactly this name, not yet checked against the store's rules.
    Named(String),
    /// The bucket that a claim had, by its whole name: the store appends nothing.
    Recorded(String),
    /// Neither; only possible with a class that names a bucket.
    Unspecified,
}

/// Which bucket the spec asks for. Empty strings count as missing, because templates write them.
///
/// # Errors
/// The spec has both a name and a prefix, and the operator did not generate the name.
pub(crate) fn wanted(spec: &ObjectBucketClaimSpec, uid: &str) -> Result<WantedBucket, Error> {
    let name = spec.bucket_name.as_deref().filter(|s| !s.is_empty());
    let prefix = spec.generate_bucket_name.as_deref().filter(|s| !s.is_empty());
    match (name, prefix) {
        (Some(name), Some(prefix)) if name.ends_with(uid) => Ok(WantedBucket::Generated { prefix: prefix.to_owned() }),
        (Some(name), Some(prefix)) => Err(Error::ClaimUnreadable {
            error: format!(
                "spec.bucketName is {name:?} and spec.generateBucketName is {prefix:?}, but only one of them may be set"
            ),
        }),
        (Some(name), None) => Ok(WantedBucket::Named(name.to_owned())),
        (None, Some(prefix)) => Ok(WantedBucket::Generated { prefix: prefix.to_owned() }),
        (None, None) => Ok(WantedBucket::Unspecified),
    }
}

/// The bucket that a claim names, if its record names another one. If claim and record differ, it is unknown which was
/// edited.
pub(crate) fn other_bucket(claim: &Claim, record: &Record) -> Option<String> {
    let spec = claim.spec.as_ref().ok().filter(|_| record.plan.mode == Mode::Created)?;
    let set = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
    match (set(&spec.bucket_name), set(&spec.generate_bucket_name)) {
        (Some(name), _) => (!is_named(&record.plan, &name)).then_some(name),
        (None, Some(prefix)) => (!begins_with(&record.plan, &prefix)).then(|| format!("{prefix}-…")),
        (None, None) => None,
    }
}

/// The bucket of a claim whose record was edited: the claim's ConfigMap, which the operator wrote, names the claim's bucket
/// and not the recorded one.
pub(crate) fn edited_record(claim: &Claim, record: &Record, published: Option<&str>) -> Option<String> {
    other_bucket(claim, record)?;
    let published = published.filter(|bucket| *bucket != record.plan.bucket)?;
    let plan = Plan { bucket: published.to_owned(), ..record.plan.clone() };
    other_bucket(claim, &Record { plan, ..record.clone() }).is_none().then(|| published.to_owned())
}

/// Whether a claim asks for the bucket by this name: its own, or without what the store has appended.
pub(crate) fn is_named(plan: &Plan, name: &str) -> bool {
    name == plan.bucket || name == plan.asked_name()
}

/// Whether a bucket's name can have been generated from this prefix.
pub(crate) fn begins_with(plan: &Plan, prefix: &str) -> bool {
    names::is_from_prefix(plan.asked_name(), prefix, !plan.name_suffix.is_empty())
}
