//! Reports on claims and records: phase, conditions, and what is new. Pure.

use crate::api::{ClaimPhase, Condition, ConditionStatus, ObjectBucketClaimStatus, wire};
use crate::decide::claim::Claim;
use crate::decide::ignored::Ignored;
use crate::error::Error;
use crate::reasons;
use crate::store::{Failure as _, FailureClass};

#[derive(Debug, Clone)]
pub(crate) struct Report {
    phase: ClaimPhase,
    ready: ConditionStatus,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// `None`: the other conditions are not changed.
    pub(crate) other_conditions: Option<OtherConditions>,
    pub(crate) severity: Severity,
    /// Name of the ObjectBucket that an admin must correct. The report is also made there.
    pub(crate) damaged_record: Option<String>,
    /// The claim is being moved, so that no edit of it is ignored.
    pub(crate) is_moving: bool,
}

/// What a bound claim reports in addition to the condition Ready.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OtherConditions {
    /// What it asks for without effect.
    pub(crate) ignored: Ignored,
    /// What is due for its keys; `None` if nothing ever was.
    pub(crate) keys: Option<KeysCondition>,
}

/// The condition KeysCurrent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeysCondition {
    pub(crate) status: ConditionStatus,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl KeysCondition {
    fn is(&self, condition: &Condition) -> bool {
        (self.status, self.reason, &self.message) == (condition.status, condition.reason.as_str(), &condition.message)
    }
}

/// How important a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// No problem.
    Normal,
    /// Needs attention.
    Warning,
    /// Progress: only the first report is an event.
    Progress,
}

impl Report {
    /// The bucket can be used; without keys, if pods have access as this ServiceAccount.
    pub(crate) fn bound(bucket: &str, service_account: Option<&str>, other_conditions: OtherConditions) -> Self {
        let message = match service_account {
            None => format!(
                "bucket {bucket:?} is ready; the Secret and the ConfigMap of the claim's name contain its keys and endpoint"
            ),
            Some(account) => format!(
                "bucket {bucket:?} is ready for pods of ServiceAccount {account:?}, without keys; the ConfigMap of the claim's name contains what they need"
            ),
        };
        Self {
            phase: ClaimPhase::Bound,
            ready: ConditionStatus::True,
            reason: reasons::BOUND,
            message,
            other_conditions: Some(other_conditions),
            severity: Severity::Normal,
            damaged_record: None,
            is_moving: false,
        }
    }

    /// What the claim asks for is being created.
    pub(crate) fn provisioning() -> Self {
        Self {
            phase: ClaimPhase::Pending,
            ready: ConditionStatus::False,
            reason: reasons::PROVISIONING,
            message: "the bucket and the access to it are being created".to_owned(),
            other_conditions: None,
            severity: Severity::Progress,
            damaged_record: None,
            is_moving: false,
        }
    }

    /// The store does not accept the new keys yet.
    pub(crate) fn waiting_for_credentials(claim: &Claim, answer: &str) -> Self {
        Self {
            phase: if claim.bound() { ClaimPhase::Bound } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason: reasons::WAITING_FOR_CREDENTIALS,
            message: format!(
                "the store does not accept the claim's new access yet ({answer}); retrying, because this can take some seconds"
            ),
            other_conditions: None,
            severity: Severity::Progress,
            damaged_record: None,
            is_moving: false,
        }
    }

    /// A large bucket is being emptied.
    pub(crate) fn purging(claim: &Claim, bucket: &str, removed: u64) -> Self {
        Self {
            // An edit of an unbound claim also removes a bucket.
            phase: if claim.deleting { ClaimPhase::Released } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason: reasons::PURGING,
            message: format!("emptying bucket {bucket:?} before it is deleted; {REMOVED_SO_FAR}{removed}"),
            other_conditions: None,
            severity: Severity::Progress,
            damaged_record: None,
            is_moving: false,
        }
    }

    /// The claim is deleted, and its removal takes longer than usual.
    pub(crate) fn removing(claim: &Claim) -> Self {
        let message = "the claim is deleted; its bucket and the access to it are being deleted".to_owned();
        Self::of_deleted(claim, reasons::REMOVING, message)
    }

    /// The claim is deleted, and only finalizers of others keep it. `note`: the result for bucket and access.
    pub(crate) fn removed(claim: &Claim, note: &str) -> Self {
        let others: Vec<_> = claim.finalizers.iter().filter(|finalizer| *finalizer != wire::FINALIZER).collect();
        let message = format!("the claim is deleted: {note}; it is kept by the finalizers {others:?}");
        Self::of_deleted(claim, reasons::REMOVED, message)
    }

    fn of_deleted(claim: &Claim, reason: &'static str, message: String) -> Self {
        Self {
            phase: if claim.deleting { ClaimPhase::Released } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason,
            message,
            other_conditions: None,
            severity: Severity::Progress,
            damaged_record: None,
            is_moving: false,
        }
    }

    /// What was found is removed, and the operator searches for the rest once more.
    pub(crate) fn settling(claim: &Claim) -> Self {
        Self {
            phase: if claim.deleting { ClaimPhase::Released } else { ClaimPhase::Pending },
            ready: ConditionStatus::False,
            reason: reasons::SETTLING,
            message: "not everything that may have been created for this claim was found; what was found is deleted, and the operator checks once more when the store shows all recent changes, usually within two minutes".to_owned(),
            other_conditions: None,
            severity: Severity::Progress,
            damaged_record: None,
            is_moving: false,
        }
    }

    /// There is a problem. A bound claim stays Bound, because it still has its bucket and keys. One that is not bound has
    /// failed only if the claim itself must be changed: tools take that for the end, and what somebody else mends ends the
    /// problem without them.
    pub(crate) fn problem(claim: &Claim, problem: &Error, must_be_changed: bool, is_moving: bool) -> Self {
        let phase = match (claim.deleting, claim.bound()) {
            (true, _) => ClaimPhase::Released,
            (_, true) => ClaimPhase::Bound,
            _ if must_be_changed && problem.class() == FailureClass::Terminal => ClaimPhase::Failed,
            _ => ClaimPhase::Pending,
        };
        Self {
            phase,
            ready: ConditionStatus::False,
            reason: problem.reason(),
            message: problem.to_string(),
            other_conditions: None,
            severity: match problem.class() {
                FailureClass::InProgress => Severity::Progress,
                FailureClass::Retryable | FailureClass::Terminal => Severity::Warning,
            },
            damaged_record: problem.damaged_record().map(str::to_owned),
            is_moving,
        }
    }

    /// The new status, from the current one. Conditions of other types are kept.
    pub(crate) fn status(
        &self,
        current: &ObjectBucketClaimStatus,
        generation: Option<i64>,
        now: &str,
    ) -> ObjectBucketClaimStatus {
        let was = |type_: &str| current.conditions.iter().find(|c| c.type_ == type_);
        let condition = |type_: &str, status, reason: &str, message: &str| {
            let since = was(type_).filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
            Condition {
                type_: type_.to_owned(),
                status,
                reason: reason.to_owned(),
                message: message.to_owned(),
                observed_generation: generation,
                last_transition_time: Some(since.unwrap_or_else(|| now.to_owned())),
            }
        };
        let mut conditions = vec![condition(reasons::READY, self.ready, self.reason, &self.message)];
        let mut written = vec![reasons::READY];
        if let Some(OtherConditions { ignored, keys }) = &self.other_conditions {
            written.extend([reasons::UP_TO_DATE, reasons::KEYS_CURRENT]);
            match outdated(ignored) {
                Some((reason, message)) => {
                    conditions.push(condition(reasons::UP_TO_DATE, ConditionStatus::False, reason, &message));
                }
                None if was(reasons::UP_TO_DATE).is_some() => {
                    conditions.push(condition(reasons::UP_TO_DATE, ConditionStatus::True, reasons::BOUND, AS_ASKED));
                }
                None => {}
            }
            if let Some(KeysCondition { status, reason, message }) = keys {
                conditions.push(condition(reasons::KEYS_CURRENT, *status, reason, message));
            }
        }
        if self.is_moving {
            written.push(reasons::UP_TO_DATE);
            conditions.push(condition(
                reasons::UP_TO_DATE,
                ConditionStatus::False,
                reasons::EDIT_PENDING,
                "the claim's new access does not work yet; until then, the previous one works",
            ));
        }
        conditions.extend(current.conditions.iter().filter(|c| !written.contains(&c.type_.as_str())).cloned());
        ObjectBucketClaimStatus { phase: Some(self.phase), conditions }
    }
}

/// The message of the condition UpToDate after it was False.
const AS_ASKED: &str = "bucket and access are as the claim asks";
/// What precedes the count in a message about a purge.
pub(crate) const REMOVED_SO_FAR: &str = "objects, versions and uploads removed so far: ";

/// How much a purge has removed, from the message of its condition.
pub(crate) fn removed_so_far(message: &str) -> Option<u64> {
    message.rsplit_once(REMOVED_SO_FAR)?.1.parse().ok()
}

/// Whether two statuses are the same, except for the generation: for CRDs without a status subresource, every write of a
/// status raises it, so there would be no end of writes.
pub(crate) fn same(a: &ObjectBucketClaimStatus, b: &ObjectBucketClaimStatus) -> bool {
    let content = |c: &Condition| (c.type_.clone(), c.status, c.reason.clone(), c.message.clone());
    a.phase == b.phase && a.conditions.iter().map(content).eq(b.conditions.iter().map(content))
}

/// Whether two statuses have the same condition Ready, whatever its message.
pub(crate) fn same_ready(a: &ObjectBucketClaimStatus, b: &ObjectBucketClaimStatus) -> bool {
    let ready = |status: &ObjectBucketClaimStatus| {
        let condition = status.conditions.iter().find(|condition| condition.type_ == reasons::READY);
        condition.map(|condition| (condition.status, condition.reason.clone()))
    };
    ready(a) == ready(b)
}

/// Whether the CRD keeps conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionSupport {
    Unknown,
    Yes,
    No,
}

/// Whether the claim's status shows that it can be used: by its condition Ready if the CRD keeps it, else only by the
/// phase.
pub(crate) fn status_is_ready(claim: &Claim, keeps: ConditionSupport) -> bool {
    let ready = claim.condition(reasons::READY);
    claim.bound() && ready.map_or(keeps != ConditionSupport::Yes, |c| c.status == ConditionStatus::True)
}

/// Reason and message of the condition about what has no effect in a claim.
pub(crate) fn outdated(ignored: &Ignored) -> Option<(&'static str, String)> {
    let Ignored { edit, pending, config } = ignored;
    let reason = match (edit, pending) {
        (Some(_), _) => reasons::EDIT_IGNORED,
        (None, Some(_)) => reasons::EDIT_PENDING,
        (None, None) => reasons::CONFIG_IGNORED,
    };
    let messages: Vec<&str> = [edit, pending, config].into_iter().flatten().map(String::as_str).collect();
    (!messages.is_empty()).then(|| (reason, messages.join("; ")))
}

/// The message of the condition about what has no effect in a claim, as it was reported.
pub(crate) fn reported_edit(claim: &Claim) -> Option<String> {
    let condition = claim.condition(reasons::UP_TO_DATE).filter(|c| c.status == ConditionStatus::False)?;
    Some(condition.message.clone())
}

/// Whether the claim's status already shows that it is bound, and its other conditions are current.
pub(crate) fn status_is_bound(claim: &Claim, other_conditions: &OtherConditions, keeps: ConditionSupport) -> bool {
    let OtherConditions { ignored, keys } = other_conditions;
    let up_to_date = claim.condition(reasons::UP_TO_DATE).filter(|c| c.status == ConditionStatus::False);
    let of_keys = claim.condition(reasons::KEYS_CURRENT);
    let reports_keys = keeps != ConditionSupport::Yes
        || match keys {
            Some(keys) => of_keys.is_some_and(|condition| keys.is(condition)),
            None => of_keys.is_none(),
        };
    let reports =
        |ignored: &Ignored| up_to_date.map(|c| &c.message) == outdated(ignored).map(|(_, message)| message).as_ref();
    // If the CRD may prune conditions, ignored settings are reported once, when the claim is bound.
    let in_part = || keeps != ConditionSupport::Yes && reports(&Ignored { config: None, ..ignored.clone() });
    status_is_ready(claim, keeps) && reports_keys && (reports(ignored) || in_part())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current() -> ObjectBucketClaimStatus {
        Report::bound("b", None, OtherConditions::default()).status(
            &ObjectBucketClaimStatus::default(),
            Some(1),
            "2026-01-01T00:00:00Z",
        )
    }

    fn edited() -> OtherConditions {
        OtherConditions { ignored: Ignored { edit: Some("spec.x".into()), ..Ignored::default() }, keys: None }
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let again =
            Report::bound("b", None, OtherConditions::default()).status(&current(), Some(2), "2026-02-02T00:00:00Z");
        assert_eq!(again.conditions[0].last_transition_time.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert!(same(&current(), &again), "a new generation alone changes nothing");
    }

    #[test]
    fn an_ignored_edit_is_a_condition_until_it_is_undone() {
        let edited = Report::bound("b", None, edited()).status(&current(), Some(2), "t");
        assert_eq!(edited.phase, Some(ClaimPhase::Bound));
        assert_eq!(edited.conditions[1].status, ConditionStatus::False);
        let undone = Report::bound("b", None, OtherConditions::default()).status(&edited, Some(3), "t");
        assert_eq!(undone.conditions[1].status, ConditionStatus::True);
        let claim =
            Claim::gone(crate::store::ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "uid".into() });
        let meanwhile = Report::purging(&claim, "b", 1).status(&edited, Some(2), "t");
        assert_eq!(meanwhile.conditions[1], edited.conditions[1], "a problem does not undo the edit");
    }

    #[test]
    fn what_is_due_for_keys_is_a_condition_of_its_own() {
        let keys = KeysCondition { status: ConditionStatus::False, reason: "RotationPending", message: "later".into() };
        let other_conditions = OtherConditions { ignored: Ignored::default(), keys: Some(keys) };
        let status = Report::bound("b", None, other_conditions.clone()).status(&current(), Some(2), "t");
        assert_eq!(
            (status.conditions[1].type_.as_str(), status.conditions[1].reason.as_str()),
            ("KeysCurrent", "RotationPending")
        );
        let mut claim =
            Claim::gone(crate::store::ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "uid".into() });
        claim.status = status;
        assert!(status_is_bound(&claim, &other_conditions, ConditionSupport::Yes));
        assert!(
            !status_is_bound(&claim, &OtherConditions::default(), ConditionSupport::Yes)
                && status_is_bound(&claim, &OtherConditions::default(), ConditionSupport::No)
        );
    }

    #[test]
    fn the_progress_of_a_purge_is_read_from_its_condition() {
        let claim =
            Claim::gone(crate::store::ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "uid".into() });
        let purging = Report::purging(&claim, "objects, versions and uploads removed so far: 7", 12_000);
        assert_eq!(removed_so_far(&purging.message), Some(12_000));
        assert_eq!(removed_so_far(&Report::settling(&claim).message), None);
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let mut status = current();
        let foreign = Condition { type_: "Audited".into(), ..status.conditions[0].clone() };
        status.conditions.push(foreign.clone());
        let next = Report::bound("b", None, OtherConditions::default()).status(&status, Some(1), "t");
        assert!(next.conditions.contains(&foreign));
    }
}
