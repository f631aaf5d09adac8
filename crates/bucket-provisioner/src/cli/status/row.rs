//! The row of one claim. Pure.

use serde::Serialize;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::keys::KeyTimes;
use crate::api::{ClaimPhase, Condition, ConditionStatus, ObjectBucket};
use crate::decide::claim::Claim;
use crate::decide::keys::KeyNotes;
use crate::decide::report::removed_so_far;
use crate::decide::{codec, record};
use crate::reasons;
use crate::store::Failure as _;

/// Reasons of claims that make progress without an admin.
const PROGRESS: [&str; 7] = [
    reasons::PENDING,
    reasons::PROVISIONING,
    reasons::WAITING_FOR_CREDENTIALS,
    reasons::SETTLING,
    reasons::REMOVING,
    reasons::PURGING,
    reasons::WAITING_FOR_STORE,
];

/// How urgently a claim needs attention, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Attention {
    /// A user or an admin must change something.
    Needed,
    /// The operator is working on it.
    Working,
    /// The bucket can be used, but the claim has a warning.
    Notice,
    None,
}

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
    pub(crate) created_at: Option<Time>,
    /// Since when the claim is not ready.
    pub(crate) waiting_since: Option<Time>,
    #[serde(flatten)]
    pub(crate) keys: KeyTimes,
    /// How many objects and versions the deletion of the bucket has removed so far.
    pub(crate) removed_so_far: Option<u64>,
}

impl Row {
    /// The row of a claim, with its ObjectBucket and the annotations about its keys, if it has them.
    pub(crate) fn new(claim: &Claim, record: Option<&ObjectBucket>, keys: Option<&KeyNotes>, now: Timestamp) -> Self {
        let spec = claim.spec();
        let (reason, message) = match (&spec, most_important_condition(claim)) {
            (Err(problem), _) => (Some(problem.reason().to_owned()), Some(problem.to_string())),
            (Ok(_), Some(shown)) => (Some(shown.reason.clone()), Some(shown.message.clone())),
            (Ok(_), None) => (None, None),
        };
        let spec = spec.ok();
        let waiting = claim.condition(reasons::READY).filter(|ready| ready.status == ConditionStatus::False);
        let plan = record.and_then(|object| Some(codec::read(object).ok()?.record.plan));
        // An edit of a bound claim has no effect.
        let bound_class = record.filter(|_| claim.bound()).and_then(|object| object.spec.storage_class_name.clone());
        let bucket = record.and_then(record::bucket).or_else(|| spec.and_then(|spec| spec.bucket_name.as_deref()));
        Self {
            namespace: claim.id.namespace.clone(),
            name: claim.id.name.clone(),
            uid: claim.id.uid.clone(),
            attention: attention(claim),
            class: bound_class.or_else(|| spec.map(|spec| spec.storage_class_name.clone())),
            bucket: bucket.map(str::to_owned),
            object_bucket: record.map(record::name),
            phase: claim.status.phase,
            removed_so_far: message.as_deref().and_then(removed_so_far),
            reason,
            message,
            is_deleted: claim.deleting,
            created_at: claim.created.clone(),
            waiting_since: waiting.and_then(|ready| ready.last_transition_time.as_deref()?.parse().ok()).map(Time),
            keys: KeyTimes::new(&claim.id.uid, plan.as_ref(), keys, now),
        }
    }

    /// Empty if no operator has processed the claim.
    pub(crate) fn phase(&self) -> String {
        self.phase.map(|phase| format!("{phase:?}")).unwrap_or_default()
    }

    /// Phase and reason, once if they are the same: `Bound`, `Pending AccessDenied`.
    pub(crate) fn status(&self) -> String {
        let phase = self.phase();
        let reason = self.reason.as_deref().filter(|reason| *reason != phase).unwrap_or_default();
        format!("{phase} {reason}").trim().to_owned()
    }

    /// Whether the claim is deleted, and its status is older than that: no operator has started the cleanup.
    pub(crate) fn awaits_cleanup(&self) -> bool {
        self.is_deleted && self.phase != Some(ClaimPhase::Released)
    }

    /// The order of a list: claims that need attention first, and among them those that wait longest.
    pub(crate) fn before(&self, other: &Self) -> std::cmp::Ordering {
        let since = |row: &Self| (row.attention, row.waiting_since.is_none());
        let order = since(self).cmp(&since(other)).then_with(|| self.waiting_since.cmp(&other.waiting_since));
        order.then_with(|| (&self.namespace, &self.name).cmp(&(&other.namespace, &other.name)))
    }

    /// Whether the bucket is being emptied.
    pub(crate) fn is_purged(&self) -> bool {
        self.reason.as_deref() == Some(reasons::PURGING)
    }
}

/// The most important condition: an error; else a warning about an edit without effect or about the keys; else that the
/// bucket can be used.
fn most_important_condition(claim: &Claim) -> Option<&Condition> {
    let ready = claim.condition(reasons::READY);
    match ready {
        Some(ready) if ready.status == ConditionStatus::True => warning(claim).or(Some(ready)),
        ready => ready,
    }
}

/// A warning about a claim whose bucket can be used.
fn warning(claim: &Claim) -> Option<&Condition> {
    [reasons::UP_TO_DATE, reasons::KEYS_CURRENT].into_iter().find_map(|type_| claim.unmet(type_))
}

fn attention(claim: &Claim) -> Attention {
    let ready = claim.condition(reasons::READY);
    let is_ready = ready.is_some_and(|ready| ready.status == ConditionStatus::True);
    let progresses = ready.is_none_or(|ready| PROGRESS.contains(&ready.reason.as_str()));
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
        // The condition is older than the deletion.
        _ if claim.deleting && is_ready => Attention::Working,
        _ if progresses => Attention::Working,
        _ => Attention::Needed,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::decide::testing::record;
    use crate::store::{Record, Rotation};

    fn claim(name: &str, status: Value) -> Claim {
        let object = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": { "name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "storageClassName": "fast", "bucketName": "b" },
            "status": status,
        });
        Claim::read(&serde_json::from_value(object).unwrap(), "ours")
    }

    fn status(phase: &str, ready: &str, reason: &str, since: &str) -> Value {
        let ready = json!({ "type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": since });
        json!({ "phase": phase, "conditions": [ready] })
    }

    fn row(claim: &Claim) -> Row {
        Row::new(claim, None, None, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn claims_that_need_attention_come_first_the_oldest_on_top() {
        let (early, late) = ("2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z");
        let mut rows = [
            row(&claim("bound", status("Bound", "True", "Bound", early))),
            row(&claim("new", json!({}))),
            row(&claim("waits", status("Pending", "False", "WaitingForCredentials", early))),
            row(&claim("later", status("Pending", "False", "AccessDenied", late))),
            row(&claim("failed", status("Failed", "False", "InvalidBucketName", early))),
            row(&claim("broken", status("Bound", "False", "BucketGone", late))),
        ];
        rows.sort_by(Row::before);
        assert_eq!(rows.map(|row| row.name), ["failed", "broken", "later", "waits", "new", "bound"]);
    }

    // Whoever may write the Secret can forge its annotations.
    #[test]
    fn an_issue_time_of_keys_in_the_future_is_ignored() {
        let bound = claim("a", status("Bound", "True", "Bound", "2026-01-02T00:00:00Z"));
        let now: Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let month = Duration::from_secs(30 * 86_400);
        let mut record = record();
        record.plan.rotation = Rotation::default().with_every(month);
        let object = codec::to_object(&record, "obc-shop-a", "ours");
        let issued = |at: &str| KeyNotes { issued_at: Some(at.parse().unwrap()), ..KeyNotes::default() };
        let row = Row::new(&bound, Some(&object), Some(&issued("2026-01-02T00:00:00Z")), now);
        let due = row.keys.rotation_due_at.unwrap().0;
        let day = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!((day("2026-01-29T00:00:00Z")..=day("2026-02-01T00:00:00Z")).contains(&due), "{due}");
        let forged = Row::new(&bound, Some(&object), Some(&issued("2036-01-02T00:00:00Z")), now);
        assert_eq!((forged.keys.keys_issued_at, forged.keys.rotation_due_at), (None, None));
    }

    #[test]
    fn a_failed_key_rotation_is_shown_on_a_ready_claim() {
        let keys = json!({ "type": "KeysCurrent", "status": "False", "reason": "RotationFailed", "message": "denied" });
        let mut bound = status("Bound", "True", "Bound", "2026-01-02T00:00:00Z");
        bound["conditions"].as_array_mut().unwrap().push(keys);
        let row = row(&claim("a", bound));
        assert_eq!((row.reason.as_deref(), row.attention), (Some("RotationFailed"), Attention::Notice));
    }

    #[test]
    fn a_bound_claim_shows_the_class_of_its_object_bucket() {
        let object = codec::to_object(&Record { class_name: "slow".to_owned(), ..record() }, "obc-shop-a", "ours");
        let shown = |phase: &str| {
            let claim = claim("a", status(phase, "True", "Bound", "2026-01-02T00:00:00Z"));
            Row::new(&claim, Some(&object), None, Timestamp::UNIX_EPOCH).class.unwrap()
        };
        assert_eq!((shown("Bound"), shown("Pending")), ("slow".to_owned(), "fast".to_owned()));
    }
}
