//! The condition KeysCurrent of a bound claim, from the state of its keys. Pure.

use crate::api::ConditionStatus::{False, True};
use crate::decide::claim::Claim;
use crate::decide::keys::{self, KeyNotes, Retiring, text};
use crate::decide::report::KeysCondition;
use crate::reasons;

/// The condition; `None` as long as nothing was ever due, so that most claims do not have it. `failure`: why the last
/// rotation failed.
pub(crate) fn condition_of(claim: &Claim, notes: &KeyNotes, failure: Option<&str>) -> Option<KeysCondition> {
    let has_condition = claim.status.conditions.iter().any(|condition| condition.type_ == reasons::KEYS_CURRENT);
    let condition = |status, reason, message| Some(KeysCondition { status, reason, message });
    if let Some(failure) = failure {
        return condition(False, reasons::ROTATION_FAILED, failure.to_owned());
    }
    let issued = notes
        .issued_at
        .map_or_else(String::new, |at| format!("the key in the claim's Secret was issued at {}", text(at)));
    match &notes.retiring {
        Some(Retiring { id, at, .. }) if keys::are_requested(claim, notes) => {
            let message = format!(
                "new keys were requested, and a user has two keys at most: they are issued when the previous key {id} is deleted, after {}",
                text(*at)
            );
            condition(False, reasons::ROTATION_PENDING, message)
        }
        Some(Retiring { id, at, inactive: true }) => condition(
            True,
            reasons::KEY_DEACTIVATED,
            format!("{issued}; the previous key {id} is deactivated, and is deleted at {}", text(*at)),
        ),
        Some(Retiring { id, at, .. }) => condition(
            True,
            reasons::KEYS_ROTATED,
            format!(
                "{issued}; the previous key {id} works until {}: before then, restart pods that still have it",
                text(*at)
            ),
        ),
        None if has_condition => condition(True, reasons::KEYS_RETIRED, format!("{issued}; there is no previous key")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::store::ClaimId;

    fn notes() -> KeyNotes {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        keys::succeed("AKIA1".into(), Duration::from_secs(86_400), now, Some("first"))
    }

    fn claim(request: Option<&str>) -> Claim {
        let id = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "1".into() };
        let mut claim = Claim::gone(id);
        claim.rotation_request = request.map(str::to_owned);
        claim
    }

    fn current(notes: &KeyNotes, request: Option<&str>) -> KeysCondition {
        condition_of(&claim(request), notes, None).unwrap()
    }

    #[test]
    fn the_end_of_the_previous_key_is_named() {
        insta::assert_snapshot!(current(&notes(), Some("first")).message, @"the key in the claim's Secret was issued at 2027-01-15T08:00:00Z; the previous key AKIA1 works until 2027-01-16T08:00:00Z: before then, restart pods that still have it");
        let mut inactive = notes();
        inactive.retiring.as_mut().unwrap().inactive = true;
        let condition = current(&inactive, None);
        assert_eq!((condition.status, condition.reason), (True, "FormerKeyDeactivated"));
        assert!(condition.message.contains("is deleted at 2027-01-16"), "{}", condition.message);
    }

    #[test]
    fn a_request_within_the_grace_period_is_reported() {
        let condition = current(&notes(), Some("second"));
        assert_eq!((condition.status, condition.reason), (False, "RotationPending"));
        assert!(
            condition.message.contains("AKIA1") && condition.message.contains("2027-01-16"),
            "{}",
            condition.message
        );
    }

    #[test]
    fn a_failure_is_reported_and_most_claims_have_no_condition() {
        let (none, mut claim) = (KeyNotes::default(), claim(None));
        assert_eq!(condition_of(&claim, &none, None), None);
        assert_eq!(condition_of(&claim, &none, Some("denied")).unwrap().reason, "RotationFailed");
        let condition = json!({ "type": "KeysCurrent", "status": "False", "reason": "RotationFailed", "message": "" });
        claim.status.conditions.push(serde_json::from_value(condition).unwrap());
        assert_eq!(condition_of(&claim, &none, None).unwrap().status, True);
    }
}
