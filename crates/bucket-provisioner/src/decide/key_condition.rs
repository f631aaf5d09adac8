//! The condition KeysCurrent of a bound claim, from the state of its keys. Pure.

use crate::api::ConditionStatus::{False, True};
use crate::decide::keys::{self, KeyNotes, Retiring, text};
use crate::decide::report::KeysCondition;
use crate::reasons;

/// What is known about the keys of a bound claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyFacts<'a> {
    pub(crate) notes: &'a KeyNotes,
    /// The claim's annotation that requests new keys.
    pub(crate) request: Option<&'a str>,
    /// Why the last rotation failed.
    pub(crate) failure: Option<&'a str>,
    /// The claim has the condition already.
    pub(crate) has_condition: bool,
}

/// The condition; `None` as long as nothing was ever due, so that most claims do not have it.
pub(crate) fn condition_of(facts: &KeyFacts<'_>) -> Option<KeysCondition> {
    let KeyFacts { notes, request, failure, has_condition } = *facts;
    let condition = |status, reason, message| Some(KeysCondition { status, reason, message });
    if let Some(failure) = failure {
        return condition(False, reasons::ROTATION_FAILED, failure.to_owned());
    }
    let issued = notes
        .issued_at
        .map_or_else(String::new, |at| format!("the key in the claim's Secret was issued at {}", text(at)));
    match &notes.retiring {
        Some(Retiring { id, at, .. }) if keys::is_requested(notes, request) => {
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

    use super::*;

    fn notes() -> KeyNotes {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        keys::succeed("AKIA1".into(), Duration::from_secs(86_400), now, Some("first"))
    }

    fn current(notes: &KeyNotes, request: Option<&str>) -> KeysCondition {
        condition_of(&KeyFacts { notes, request, failure: None, has_condition: false }).unwrap()
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
        let none = KeyNotes::default();
        let facts = KeyFacts { notes: &none, request: None, failure: None, has_condition: false };
        assert_eq!(condition_of(&facts), None);
        assert_eq!(condition_of(&KeyFacts { failure: Some("denied"), ..facts }).unwrap().reason, "RotationFailed");
        assert_eq!(condition_of(&KeyFacts { has_condition: true, ..facts }).unwrap().status, True);
    }
}
