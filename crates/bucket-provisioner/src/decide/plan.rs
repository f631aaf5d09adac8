//! What a claim gets: from the claim, its class and the provisioner's plan to a record. Pure.

use serde_json::Value;

use crate::api::{ObjectBucket, wire};
use crate::decide::action::Action;
use crate::decide::claim::{Claim, WantedBucket, wanted};
use crate::decide::class::{Class, ClassLookup};
use crate::decide::codec;
use crate::decide::lookup::Found;
use crate::decide::moving;
use crate::decide::record::{self, Stored};
use crate::decide::release;
use crate::decide::report::{self, ConditionSupport};
use crate::decide::request::{self, Asked, Labels};
use crate::decide::service_account;
use crate::decide::settings::Config;
use crate::decide::sharing::{Creator, Creators};
use crate::error::{Error, RecordProblem};
use crate::store::{Changes, Mode, Plan, Provisioner, ReclaimPolicy, Record, ServiceAccount, previous_access};

/// Of a claim that sets nothing.
static NOTHING: Config = Config::new();

/// The record that the claim would get now from its class, in the cluster with this uid. `creators`: looks up the claim that it
/// names, if it names one. `labels`: for the first time, in a
/// namespace with these labels, so restrictions of the class apply.
///
/// # Errors
/// A claim that cannot be read, or that asks for what its class cannot give.
pub(crate) fn record<P: Provisioner>(
    provisioner: &P,
    claim: &Claim,
    class: &Class,
    (cluster, creators): (&str, &Creators<'_>),
    labels: Option<&Labels>,
) -> Result<Record, Error> {
    let spec = claim.spec()?;
    let config = spec.additional_config.as_ref().or(Some(&NOTHING));
    let asked = Asked { bucket: &wanted(spec, &claim.id.uid)?, config, creators };
    let plan = request::plan(provisioner, class, &claim.id, asked, labels)?;
    // A bucket that existed before is retained; the class's reclaimPolicy is about created ones.
    let reclaim_policy = match plan.mode {
        Mode::Created => class.reclaim_policy,
        Mode::Granted => ReclaimPolicy::Retain,
    };
    Ok(Record {
        claim: claim.id.clone(),
        former_uids: Vec::new(),
        cluster: Some(cluster.to_owned()),
        account: None,
        claim_created_at: claim.created.as_ref().map(|created| created.0.into()),
        class_name: class.name.clone(),
        reclaim_policy,
        credentials_published: false,
        previous_access: Vec::new(),
        plan,
    })
}

/// The record after the claim has adopted it from a previous claim, or from another cluster.
///
/// The plan stays, with names that contain the previous claim.
pub(crate) fn adopted(previous: &Record, claim: &Claim, cluster: &str) -> Record {
    let mut former_uids: Vec<_> = previous.uids().map(str::to_owned).collect();
    // Oldest first, so the claim that had it until now is last.
    former_uids.rotate_left(1);
    former_uids.retain(|uid| *uid != claim.id.uid);
    Record { claim: claim.id.clone(), former_uids, cluster: Some(cluster.to_owned()), ..previous.clone() }
}

/// The record of a claim that should have a bucket, which is its write-ahead log.
#[derive(Debug)]
pub(crate) enum RecordState {
    /// There is none: this one is to be written, under this name.
    Planned { name: String, record: Box<Record> },
    /// It is as planned, or its credentials were published. `is_new`: written in this attempt, so nothing can have been
    /// created for it before.
    Stored { stored: Box<Stored>, is_new: bool },
    /// Claim or class were edited before binding: it is undone first.
    Outdated(Box<Stored>),
    /// It is a previous claim's, and an admin gives it to this one, for which it will be `record`.
    Predecessor { stored: Box<Stored>, record: Box<Record> },
    /// It is damaged. `record` is what it contained.
    Damaged { object: Box<ObjectBucket>, record: Box<Record>, error: String },
    /// The claim names one that does not exist. If the store has what is in `record`, it was deleted by hand and is
    /// recreated; else the claim was restored or copied, and waits.
    Lost { name: String, record: Box<Record>, problem: RecordProblem },
}

impl RecordState {
    /// What is recorded, or will be.
    pub(crate) fn record(&self) -> &Record {
        match self {
            Self::Planned { record, .. }
            | Self::Predecessor { record, .. }
            | Self::Damaged { record, .. }
            | Self::Lost { record, .. } => record,
            Self::Stored { stored, .. } | Self::Outdated(stored) => &stored.record,
        }
    }
}

/// What decides, besides the claim itself.
pub(crate) struct Surroundings<'a, P> {
    pub(crate) provisioner: &'a P,
    pub(crate) provisioner_name: &'a str,
    /// UID of this cluster.
    pub(crate) cluster: &'a str,
    pub(crate) class: &'a ClassLookup,
    /// Of the claim's namespace, if the class asks for them.
    pub(crate) labels: &'a Labels,
    /// Looks up the claim that it names, if it names one.
    pub(crate) creators: &'a Creators<'a>,
}

/// Compares the record with claim and class. A bound claim keeps its bucket, even if its class has changed.
///
/// # Errors
/// There is no usable class; those of [`record`] and [`whole`]; a claim that must adopt a record first.
pub(crate) fn record_state<P: Provisioner>(
    surroundings: &Surroundings<'_, P>,
    claim: &Claim,
    found: Found,
) -> Result<RecordState, Error> {
    let planned = |is_new| planned(surroundings, claim, is_new);
    // With the access that its class gives now, if that is another one and an admin has the claim adopted.
    let moved = |stored: &Stored, record: &Record| {
        if stored.action != Some(Action::Adopt) || !stored.bound() || !stored.by_us() {
            return None;
        }
        let planned = planned_for_bucket(surroundings, claim, record).ok()?;
        moving::moved(|one, other| surroundings.provisioner.is_same_access(one, other), record, &planned)
    };
    let adopted = |stored: Box<Stored>| {
        let record = adopted(&stored.record, claim, surroundings.cluster);
        let record = Box::new(moved(&stored, &record).unwrap_or(record));
        RecordState::Predecessor { stored, record }
    };
    let proceed = |stored| RecordState::Stored { stored, is_new: false };
    Ok(match found {
        // Its claim was deleted once, and exists again: it was restored with the whole cluster.
        Found::Owned(stored) if stored.release.is_some() => adopted(stored),
        Found::Owned(stored) if stored.bound() => {
            // An admin moves the claim in place.
            match moved(&stored, &stored.record) {
                Some(record) => RecordState::Predecessor { stored, record: Box::new(record) },
                None => proceed(stored),
            }
        }
        Found::Owned(stored) => match planned(true) {
            Ok(planned) if is_same(&stored.record, &planned) => proceed(stored),
            Ok(_) => RecordState::Outdated(stored),
            // What it shares is, or will be, deleted: it must neither keep access nor keep the bucket from being deleted.
            Err(error) if stored.record.plan.shared_from.is_some() && error.is_about_sharing() => {
                RecordState::Outdated(stored)
            }
            Err(error) => return Err(error),
        },
        Found::ToAdopt(stored) => adopted(stored),
        Found::Damaged { object, error } => {
            let record = Box::new(whole(surroundings, claim, &object, &error)?);
            RecordState::Damaged { object, record, error }
        }
        Found::Restored(problem @ RecordProblem::Missing { .. }) => match (planned(false), problem.clone()) {
            (Ok(record), RecordProblem::Missing { record: name }) => {
                let record = Box::new(Record { credentials_published: true, ..record });
                RecordState::Lost { name, record, problem }
            }
            _ => return Err(Error::AdoptionNeeded(problem)),
        },
        Found::Restored(problem) => return Err(Error::AdoptionNeeded(problem)),
        Found::NothingToUndo { why } => return Err(Error::NothingToUndo { why }),
        Found::None { free_name } => RecordState::Planned { name: free_name, record: Box::new(planned(true)?) },
    })
}

/// The record that claim and class give now.
fn planned<P: Provisioner>(surroundings: &Surroundings<'_, P>, claim: &Claim, is_new: bool) -> Result<Record, Error> {
    let Surroundings { provisioner, provisioner_name, cluster, class, labels, creators } = *surroundings;
    match class {
        ClassLookup::Found(class) if class.provisioner == provisioner_name => {
            let mut record = record(provisioner, claim, class, (cluster, creators), is_new.then_some(labels))?;
            if !is_new {
                // The class may set something else than it did for this bucket.
                record.plan.settings = record.plan.settings.of_existing_buckets(P::CAPABILITIES.settings);
            }
            Ok(record)
        }
        other => Err(no_class(other, claim)),
    }
}

/// Why the annotation of an admin does not move a claim that is ready and names other access than it has, for an event on the
/// ObjectBucket. One that is not ready may be finishing an adoption, with any class.
pub(crate) fn not_moved<P: Provisioner>(
    surroundings: &Surroundings<'_, P>,
    claim: &Claim,
    stored: &Stored,
) -> Option<String> {
    let (record, spec) = (&stored.record, claim.spec().ok()?);
    let names_another = spec.storage_class_name != record.class_name
        || service_account::ignored(spec.additional_config.as_ref(), record, P::CAPABILITIES).is_some();
    if !stored.is_being_adopted() || !names_another || !report::status_is_ready(claim, ConditionSupport::No) {
        return None;
    }
    let why = match planned_for_bucket(surroundings, claim, record) {
        _ if !stored.by_us() => {
            "claims of the Go provisioner cannot be moved; create a new claim and copy the data".to_owned()
        }
        Err(problem) => format!("{problem}; then annotate this ObjectBucket again"),
        Ok(_) => format!(
            "StorageClass {:?} gives it no other access: a class to move to has authentication ServiceAccount, and the same bucket, region and store",
            spec.storage_class_name
        ),
    };
    Some(format!("claim {} keeps its access: {why}", claim.id))
}

/// The record with what the claim's class gives now to a new claim for the recorded bucket.
fn planned_for_bucket<P: Provisioner>(
    surroundings: &Surroundings<'_, P>,
    claim: &Claim,
    recorded: &Record,
) -> Result<Record, Error> {
    let Surroundings { provisioner, provisioner_name, class, labels, creators, .. } = *surroundings;
    let class = match class {
        ClassLookup::Found(class) if class.provisioner == provisioner_name => class,
        other => return Err(no_class(other, claim)),
    };
    let config = claim.spec()?.additional_config.as_ref().or(Some(&NOTHING));
    let asked = Asked { bucket: &WantedBucket::Recorded(recorded.plan.bucket.clone()), config, creators };
    let plan = request::plan(provisioner, class, &claim.id, asked, Some(labels))?;
    Ok(Record { class_name: class.name.clone(), plan, ..recorded.clone() })
}

/// What a damaged ObjectBucket of this claim contained before.
///
/// # Errors
/// [`Error::RecordDamaged`] if it cannot be planned from claim and class, or contradicts what is left.
pub(crate) fn whole<P: Provisioner>(
    surroundings: &Surroundings<'_, P>,
    claim: &Claim,
    object: &ObjectBucket,
    error: &str,
) -> Result<Record, Error> {
    let restored = |planned| restored(object, planned, surroundings.provisioner_name, error);
    // The claim whose bucket it shares may no longer exist, or share it.
    let planned = match planned(surroundings, claim, false) {
        Err(error) if error.is_about_sharing() => {
            planned(&Surroundings { creators: &|_| Creator::assumed(claim), ..*surroundings }, claim, false)
        }
        planned => planned,
    };
    match planned.and_then(restored) {
        Err(problem) if !matches!(problem, Error::RecordDamaged { .. }) => {
            Err(damaged(object, error, problem.to_string()))
        }
        answer => answer,
    }
}

/// Whether a record is what would be planned now. Account, cluster and previous claims are not part of a plan; an entry of the
/// ConfigMap that another version of the operator adds is no reason to undo what exists.
fn is_same(recorded: &Record, planned: &Record) -> bool {
    // Without `..`, so that a new field cannot be forgotten here.
    let Record {
        claim,
        former_uids: _,
        cluster: _,
        account: _,
        claim_created_at: _,
        class_name,
        reclaim_policy,
        credentials_published: _,
        previous_access: _,
        plan,
    } = recorded;
    let mut outputs = plan.outputs.iter().filter_map(|(key, value)| Some((planned.plan.outputs.get(key)?, value)));
    *claim == planned.claim
        && *class_name == planned.class_name
        && *reclaim_policy == planned.reclaim_policy
        && outputs.all(|(planned, recorded)| planned == recorded)
        && *plan == Plan { outputs: plan.outputs.clone(), ..planned.plan.clone() }
}

/// The record that a damaged ObjectBucket contained before: the present plan, unless it contradicts what is left.
fn restored(object: &ObjectBucket, planned: Record, provisioner: &str, error: &str) -> Result<Record, Error> {
    let state = |key: &str| object.spec.additional_state.as_ref()?.get(key).filter(|value| !value.is_empty()).cloned();
    let mut planned = planned;
    if let Some(mode) = state(wire::state::ACCESS_MODE).and_then(|mode| mode.parse().ok()) {
        planned.plan.access.mode = mode;
    }
    if let Some(account) = ServiceAccount::read_recorded(state) {
        let of_plan = planned.plan.service_account.take().and_then(|planned| planned.audience);
        let audience = account.audience.or(of_plan);
        planned.plan.service_account = Some(ServiceAccount { audience, ..account });
    }
    let previous = state(wire::state::PREVIOUS_ACCESS).map(|text| previous_access::read_recorded(&text));
    planned.previous_access = previous.and_then(Result::ok).unwrap_or_default();
    planned.plan.changes = state(wire::state::CHANGES).map(|words| Changes::of_recorded(&words)).unwrap_or_default();
    if state(wire::state::MODE).is_some() {
        planned.plan.settings = codec::settings(object);
    }
    if let (Some(from), Some(uids)) = (&mut planned.plan.shared_from, state(wire::state::BUCKET_CLAIM_UIDS)) {
        from.uids = uids.split(',').map(str::to_owned).collect();
    }
    let record = Record {
        account: state(wire::state::ACCOUNT_ID),
        // If nothing proves it, the bucket is not emptied.
        credentials_published: release::flag(wire::state::HANDED_OVER, state(wire::state::HANDED_OVER)) == Ok(true)
            || record::status_is_bound(object),
        ..planned
    };
    let whole = codec::to_object(&record, "", provisioner);
    let json = |object: &ObjectBucket| serde_json::to_value(&object.spec).unwrap_or_default();
    match contradiction(&json(object), &json(&whole), "spec") {
        None => Ok(record),
        Some(field) => {
            let other = "claim and StorageClass now give another value";
            let is_named = error.contains(&field);
            Err(damaged(object, error, if is_named { other.to_owned() } else { format!("{field}, but {other}") }))
        }
    }
}

/// The first field of `is` that differs in `should`, with its value.
fn contradiction(is: &Value, should: &Value, field: &str) -> Option<String> {
    // The Go library writes missing values as empty strings.
    let is_missing = |value: &Value| value.is_null() || value.as_str() == Some("");
    match (is, should) {
        (is, _) if is_missing(is) => None,
        (Value::Object(is), Value::Object(should)) => is.iter().find_map(|(key, is)| {
            contradiction(is, should.get(key).unwrap_or(&Value::Null), &format!("{field}.{key}"))
        }),
        (Value::Object(is), Value::Null) if is.values().all(is_missing) => None,
        (is, should) if is == should => None,
        (is, _) => Some(format!("{field} is {is}")),
    }
}

fn damaged(object: &ObjectBucket, error: &str, why: String) -> Error {
    let name = object.metadata.name.clone().unwrap_or_default();
    Error::RecordDamaged { name, error: error.to_owned(), why }
}

/// The error for a claim without a usable class. If the claim cannot be read, that is the error.
pub(crate) fn no_class(class: &ClassLookup, claim: &Claim) -> Error {
    let class = match class {
        ClassLookup::Found(Class { name, .. }) | ClassLookup::Missing { name } => name.clone(),
        ClassLookup::Unnamed => String::new(),
    };
    claim.spec().err().unwrap_or(Error::StorageClassNotFound { class })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::record;

    #[test]
    fn an_entry_that_a_version_adds_undoes_nothing() {
        let with = |value: &str| {
            let mut record = record();
            record.plan.outputs.insert("STYLE".into(), value.into());
            record
        };
        assert!(is_same(&record(), &with("path")) && is_same(&with("path"), &record()));
        assert!(is_same(&with("path"), &with("path")) && !is_same(&with("path"), &with("virtual")));
        let another = Record { plan: Plan { bucket: "another".into(), ..record().plan }, ..record() };
        assert!(!is_same(&record(), &another));
    }

    #[test]
    fn a_record_without_state_is_restored_if_the_rest_fits() {
        let mut object = codec::to_object(&record(), "obc-shop-photos", "ours");
        object.spec.additional_state = None;
        let whole = restored(&object, record(), "ours", "lost").map_err(|error| error.to_string());
        assert_eq!(whole, Ok(record()));

        let another = Record { plan: Plan { bucket: "another".into(), ..record().plan }, ..record() };
        let refused = restored(&object, another.clone(), "ours", "lost").map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|why| why.contains("spec.endpoint.bucketName")), "{refused:?}");
        let error = "spec.endpoint.bucketName is \"photos-f30e0389\", and that is wrong";
        let refused = restored(&object, another, "ours", error).map_err(|error| error.to_string());
        let once = |why: &String| why.matches("spec.endpoint.bucketName").count() == 1 && why.contains("another value");
        assert!(refused.as_ref().is_err_and(once), "{refused:?}");

        object.spec.additional_state = Some([("UserName".to_owned(), "another".to_owned())].into());
        let refused = restored(&object, record(), "ours", "lost").map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|why| why.contains("UserName")), "{refused:?}");
    }
}
