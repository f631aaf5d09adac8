//! What a bound claim asks for without effect, for its condition `UpToDate`. Pure.

use std::collections::BTreeMap;

use crate::api::{ObjectBucketClaimSpec, wire};
use crate::decide::claim::{CONFIG_KEYS, Claim, begins_with, is_named};
use crate::decide::settings::{self, Rules};
use crate::decide::{access, output_metadata, service_account, shared_name};
use crate::store::{Capabilities, Mode, Plan, Record};

/// What a claim asks for and has no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ignored {
    /// A message about an edit after binding.
    pub(crate) edit: Option<String>,
    /// A message about an edit that has no effect yet.
    pub(crate) pending: Option<String>,
    /// A message about unknown keys of `additionalConfig`.
    pub(crate) config: Option<String>,
}

/// What a bound claim asks for without effect.
pub(crate) fn ignored(claim: &Claim, spec: &ObjectBucketClaimSpec, record: &Record, rules: Rules) -> Ignored {
    let edit = ignored_edit(spec, record)
        .or_else(|| access::ignored(spec, record, rules.has))
        .or_else(|| shared_name::ignored(spec.additional_config.as_ref(), record, rules.has))
        .or_else(|| service_account::ignored(spec.additional_config.as_ref(), record, rules.has))
        .or_else(|| settings::ignored(spec, record, rules))
        .or_else(|| output_metadata::ignored(spec.additional_config.as_ref()))
        .or_else(|| ignored_undo(claim, record))
        .or_else(|| ignored_rotation(claim, record));
    let config = ignored_config(spec, rules.has).filter(|_| record.plan.settings.claims_may_set.is_empty());
    Ignored { edit, pending: pending(&record.plan), config }
}

/// A message about an edit that is not applied yet.
fn pending(plan: &Plan) -> Option<String> {
    let access = plan.changes.access.then(|| format!("the access mode {} of the claim's keys", plan.access.mode));
    let settings = plan.changes.settings.then(|| "the new settings of the bucket".to_owned());
    match (access, settings) {
        (Some(access), Some(settings)) => Some(format!("{access} and {settings} are not applied yet; retrying")),
        (Some(access), None) => Some(format!("{access} is not applied yet; retrying")),
        (None, Some(settings)) => Some(format!("{settings} are not applied yet; retrying")),
        (None, None) => None,
    }
}

/// A claim that asks too late for the bucket of a deleted one: it has a bucket of its own.
fn ignored_undo(claim: &Claim, record: &Record) -> Option<String> {
    (claim.asks_to_undo() && record.former_uids.is_empty()).then(|| {
        format!(
            "the annotation {} has no effect: the claim was bound to a new bucket, {:?}; to get the bucket of a deleted claim, delete this claim and create it again with the annotation, and with that bucket's ObjectBucket (ask an admin) in spec.objectBucketName",
            wire::annotation::UNDO_DELETE, record.plan.bucket
        )
    })
}

/// Keys are requested for a claim that has none.
fn ignored_rotation(claim: &Claim, record: &Record) -> Option<String> {
    let is_keyless = record.plan.service_account.is_some() && !record.is_moving();
    (claim.rotate_request.is_some() && is_keyless).then(|| {
        let annotation = wire::annotation::ROTATE_KEYS;
        format!("the annotation {annotation} has no effect: the claim's apps have access without keys; remove it")
    })
}

/// Otherwise users would believe that `maxSize: 2G` limits the bucket.
fn ignored_config(spec: &ObjectBucketClaimSpec, has: Capabilities) -> Option<String> {
    let keys = spec.additional_config.iter().flat_map(BTreeMap::keys);
    let keys: Vec<_> = keys.filter(|key| !settings::is_known(key, has)).collect();
    if keys.is_empty() {
        return None;
    }
    let named: Vec<_> = keys.iter().take(CONFIG_KEYS).map(|key| format!("{:?}", settings::cut(key))).collect();
    let others = if keys.len() > CONFIG_KEYS { " and others" } else { "" };
    Some(format!("unknown settings in spec.additionalConfig have no effect: {}{others}; remove them", named.join(", ")))
}

/// The edit of a bound claim that has no effect, if there is one.
fn ignored_edit(spec: &ObjectBucketClaimSpec, record: &Record) -> Option<String> {
    let kept = |field: &str, now: &str, bound: &str, remedy: &str| {
        Some(format!(
            "spec.{field} {now:?} has no effect: the claim is bound, and its ObjectBucket has {bound:?}; {remedy} (if the ObjectBucket was edited, an admin must restore it)"
        ))
    };
    let create = "for another one, create a new claim and copy the data";
    if spec.storage_class_name != record.class_name {
        let remedy = match service_account::is_named(spec.additional_config.as_ref()) {
            true => {
                "an admin can move the claim with the annotation objectbucket.io/orphan=adopt on its ObjectBucket, if that class has authentication ServiceAccount"
            }
            false => create,
        };
        return kept("storageClassName", &spec.storage_class_name, &record.class_name, remedy);
    }
    let bucket = record.plan.bucket.as_str();
    match (spec.bucket_name.as_deref(), spec.generate_bucket_name.as_deref()) {
        (Some(name), _) if !name.is_empty() => {
            let remedy = match record.plan.name_suffix.as_str() {
                "" => format!("remove the field, and the operator writes it again; {create}"),
                _ => format!("remove the field; {create}"),
            };
            (!is_named(&record.plan, name)).then(|| kept("bucketName", name, bucket, &remedy)).flatten()
        }
        (_, Some(prefix)) if record.plan.mode == Mode::Created && !prefix.is_empty() => {
            (!begins_with(&record.plan, prefix)).then(|| kept("generateBucketName", prefix, bucket, create)).flatten()
        }
        _ => None,
    }
}
