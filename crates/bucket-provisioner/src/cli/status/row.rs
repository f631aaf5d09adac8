//! What is said about one claim in a line. Pure.

use serde::Serialize;

use crate::api::{ClaimPhase, Condition, ConditionStatus};
use crate::cli::output::At;
use crate::decide::claim::{Claim, LabelOwner};
use crate::decide::class::ClassOwner;
use crate::decide::keys::{self, KeyNotes};
use crate::decide::ownership;
use crate::decide::report::removed_so_far;
use crate::reasons;
use crate::store::{Failure as _, Rotation};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// Reasons with which a claim goes on by itself.
const PROGRESS: [&str; 5] = [
    reasons::WAITING_FOR_CREDENTIALS,
    reasons::SETTLING,
    reasons::REMOVING,
    reasons::PURGING,
    reasons::WAITING_FOR_STORE,
];

/// How much a claim needs somebody, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attention {
    /// Somebody must look at it.
    Needed,
    /// It goes on by itself.
    Working,
    /// It can be used, and something in it has no effect.
    Notice,
    /// Nothing is to be done.
    None,
}

/// What is known about a claim's ObjectBucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordFacts {
    pub(crate) name: String,
    pub(crate) bucket: Option<String>,
    pub(crate) class: Option<String>,
    pub(crate) rotation: Rotation,
}

/// A claim in a line.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) attention: Attention,
    pub(crate) class: Option<String>,
    pub(crate) bucket: Option<String>,
    pub(crate) object_bucket: Option<String>,
    pub(crate) phase: Option<ClaimPhase>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) is_deleted: bool,
    pub(crate) created_at: Option<At>,
    /// Since when the claim is not ready.
    pub(crate) waiting_since: Option<At>,
    pub(crate) keys_issued_at: Option<At>,
    pub(crate) rotation_due_at: Option<At>,
    pub(crate) former_key_deleted_at: Option<At>,
    /// What a purge has removed so far.
    pub(crate) removed_so_far: Option<u64>,
}

impl Row {
    /// A claim with its ObjectBucket and the notes on its keys, if it has them.
    pub(crate) fn new(claim: &Claim, record: Option<&RecordFacts>, keys: Option<&KeyNotes>, now: Timestamp) -> Self {
        let spec = claim.spec();
        let (reason, message) = match (&spec, ready_condition(claim)) {
            (Err(problem), _) => (Some(problem.reason().to_owned()), Some(problem.to_string())),
            (Ok(_), Some(told)) => (Some(told.reason.clone()), Some(told.message.clone())),
            (Ok(_), None) => (None, None),
        };
        let ready = condition(claim, reasons::READY);
        let waiting = ready.filter(|ready| ready.status == ConditionStatus::False);
        let rotation = record.map(|record| record.rotation).unwrap_or_default();
        let keys = keys.cloned().unwrap_or_default().clamp_to_now(&rotation, now);
        let later =
            |at: Timestamp, wait| SignedDuration::try_from(wait).ok().and_then(|wait| at.checked_add(wait).ok());
        let spec = spec.ok();
        Self {
            namespace: claim.id.namespace.clone(),
            name: claim.id.name.clone(),
            uid: claim.id.uid.clone(),
            attention: attention(claim),
            // An edit of a bound claim has no effect.
            class: record
                .filter(|_| claim.bound())
                .and_then(|record| record.class.clone())
                .or_else(|| spec.map(|spec| spec.storage_class_name.clone())),
            bucket: record
                .and_then(|record| record.bucket.clone())
                .or_else(|| spec.and_then(|spec| spec.bucket_name.clone())),
            object_bucket: record.map(|record| record.name.clone()),
            phase: claim.status.phase,
            removed_so_far: message.as_deref().and_then(removed_so_far),
            reason,
            message,
            is_deleted: claim.deleting,
            created_at: claim.created.as_ref().map(|at| At(at.0)),
            waiting_since: waiting.and_then(|ready| ready.last_transition_time.as_deref()?.parse().ok()).map(At),
            keys_issued_at: keys.issued_at.map(At),
            rotation_due_at: keys
                .issued_at
                .zip(rotation.every)
                .and_then(|(at, every)| later(at, keys::period(every, &claim.id.uid)))
                .map(At),
            former_key_deleted_at: keys.retiring.map(|key| At(key.at)),
        }
    }

    /// The order of a list: what needs somebody first, and of that what waits longest.
    pub(crate) fn before(&self, other: &Self) -> std::cmp::Ordering {
        let order = |row: &Self| (row.attention, row.waiting_since.is_none(), row.waiting_since);
        let named = |row: &Self| (row.namespace.clone(), row.name.clone());
        order(self).cmp(&order(other)).then_with(|| named(self).cmp(&named(other)))
    }

    /// Whether the bucket is being emptied.
    pub(crate) fn is_purged(&self) -> bool {
        self.reason.as_deref() == Some(reasons::PURGING)
    }
}

/// Whether this provisioner reports on a claim: it is its own, or nobody's because its class does not exist.
pub(crate) fn is_shown(claim: &Claim, class: ClassOwner, recorded: bool) -> bool {
    let facts = ownership::OwnershipFacts {
        class,
        label: claim.label,
        recorded,
        finalizer: claim.finalizer,
        deleting: claim.deleting,
        bound: claim.bound(),
    };
    ownership::is_ours(facts) || ownership::required_action(facts) == ownership::RequiredAction::ReportMissingClass
}

/// Whether only the whole text of an unreadable claim says whose it is.
pub(crate) fn is_unclear(claim: &Claim, recorded: bool) -> bool {
    claim.spec().is_err() && claim.label == LabelOwner::None && !recorded
}

fn condition<'a>(claim: &'a Claim, type_: &str) -> Option<&'a Condition> {
    claim.status.conditions.iter().find(|condition| condition.type_ == type_)
}

/// The condition that says most: what is wrong, else what has no effect or could not be done to the keys, else that the
/// bucket can be used.
fn ready_condition(claim: &Claim) -> Option<&Condition> {
    let ready = condition(claim, reasons::READY);
    match ready {
        Some(ready) if ready.status == ConditionStatus::True => warning(claim).or(Some(ready)),
        ready => ready,
    }
}

/// What is to be known of a claim whose bucket can be used.
fn warning(claim: &Claim) -> Option<&Condition> {
    let conditions = [reasons::UP_TO_DATE, reasons::KEYS_CURRENT].map(|type_| condition(claim, type_));
    conditions.into_iter().flatten().find(|condition| condition.status == ConditionStatus::False)
}

fn attention(claim: &Claim) -> Attention {
    let ready = condition(claim, reasons::READY);
    let is_ready = ready.is_some_and(|ready| ready.status == ConditionStatus::True);
    let goes_on = ready.is_none_or(|ready| PROGRESS.contains(&ready.reason.as_str()));
    match claim.status.phase {
        _ if claim.spec().is_err() && !claim.deleting => Attention::Needed,
        Some(ClaimPhase::Failed) => Attention::Needed,
        Some(ClaimPhase::Bound) if !claim.deleting && (is_ready || ready.is_none()) => {
            if warning(claim).is_some() {
                Attention::Notice
            } else {
                Attention::None
            }
        }
        // What it said before it was deleted.
        _ if claim.deleting && is_ready => Attention::Working,
        _ if goes_on => Attention::Working,
        _ => Attention::Needed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn claim(name: &str, status: Value) -> Claim {
        let object = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": { "name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "storageClassName": "fast", "bucketName": "b" },
            "status": status,
        });
        Claim::read(&serde_json::from_value(object).unwrap(), "ours")
    }

    fn says(phase: &str, ready: &str, reason: &str, since: &str) -> Value {
        let ready = json!({ "type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": since });
        json!({ "phase": phase, "conditions": [ready] })
    }

    fn row(claim: &Claim) -> Row {
        Row::new(claim, None, None, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn what_needs_somebody_comes_first_and_of_that_what_waits_longest() {
        let (early, late) = ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z");
        let mut rows = [
            row(&claim("bound", says("Bound", "True", "Bound", early))),
            row(&claim("new", json!({}))),
            row(&claim("waits", says("Pending", "False", "WaitingForCredentials", early))),
            row(&claim("later", says("Pending", "False", "AccessDenied", late))),
            row(&claim("failed", says("Failed", "False", "InvalidBucketName", early))),
            row(&claim("broken", says("Bound", "False", "BucketGone", late))),
        ];
        rows.sort_by(Row::before);
        assert_eq!(rows.map(|row| row.name), ["failed", "broken", "later", "waits", "new", "bound"]);
    }

    #[test]
    fn the_age_of_keys_and_when_they_are_replaced_come_from_notes_that_are_believed() {
        let bound = claim("a", says("Bound", "True", "Bound", "2026-01-02T00:00:00Z"));
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let month = Duration::from_secs(30 * 86_400);
        let record = RecordFacts { rotation: Rotation::default().with_every(month), ..RecordFacts::default() };
        let issued = |at: &str| KeyNotes { issued_at: Some(at.parse().unwrap()), ..KeyNotes::default() };
        let row = Row::new(&bound, Some(&record), Some(&issued("2026-01-02T00:00:00Z")), now);
        let due = row.rotation_due_at.unwrap().0;
        let day = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!((day("2026-01-29T00:00:00Z")..=day("2026-02-01T00:00:00Z")).contains(&due), "{due}");
        let forged = Row::new(&bound, Some(&record), Some(&issued("2036-01-02T00:00:00Z")), now);
        assert_eq!((forged.keys_issued_at, forged.rotation_due_at), (None, None));
    }

    #[test]
    fn what_could_not_be_done_to_the_keys_is_shown_of_a_claim_that_is_fine() {
        let keys = json!({ "type": "KeysCurrent", "status": "False", "reason": "RotationFailed", "message": "denied" });
        let mut status = says("Bound", "True", "Bound", "2026-01-02T00:00:00Z");
        status["conditions"].as_array_mut().unwrap().push(keys);
        let row = row(&claim("a", status));
        assert_eq!((row.reason.as_deref(), row.attention), (Some("RotationFailed"), Attention::Notice));
    }

    #[test]
    fn the_class_of_a_bound_claim_is_the_one_that_it_was_bound_with() {
        let record = RecordFacts { class: Some("slow".to_owned()), ..RecordFacts::default() };
        let shown = |phase: &str| {
            let claim = claim("a", says(phase, "True", "Bound", "2026-01-02T00:00:00Z"));
            Row::new(&claim, Some(&record), None, Timestamp::UNIX_EPOCH).class.unwrap()
        };
        assert_eq!((shown("Bound"), shown("Pending")), ("slow".to_owned(), "fast".to_owned()));
    }

    #[test]
    fn a_claim_of_another_provisioner_is_not_shown() {
        let mut other = claim("a", json!({}));
        assert!(is_shown(&other, ClassOwner::Ours, false));
        assert!(is_shown(&other, ClassOwner::Missing, false), "nobody else reports it");
        assert!(!is_shown(&other, ClassOwner::Foreign, false));
        (other.label, other.finalizer) = (LabelOwner::Foreign, true);
        assert!(!is_shown(&other, ClassOwner::Ours, false));
        assert!(is_shown(&other, ClassOwner::Foreign, true), "its record is ours");
    }
}
