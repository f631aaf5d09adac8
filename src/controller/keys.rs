//! The life of a claim's keys: what its Secret notes of them, and when they are to be replaced. Pure.
//!
//! The notes are annotations of the Secret, written in one write with the keys that they are about: no crash
//! can part them. Annotations that somebody removes cost an early rotation at worst.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::steps::Upkeep;
use crate::api::wire::annotation;
use crate::provisioner::Rotation;

/// What a claim's Secret notes of its keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyNotes {
    /// When the present key was issued.
    pub(crate) issued_at: Option<Timestamp>,
    /// The request for rotation that it answers.
    pub(crate) answers: Option<String>,
    /// The former key, as long as it works.
    pub(crate) retiring: Option<Retiring>,
    /// The version of the owner's Secret that shared keys were taken from.
    pub(crate) shared_from: Option<String>,
}

/// A key that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retiring {
    /// Its id.
    pub(crate) id: String,
    /// When it is deleted.
    pub(crate) at: Timestamp,
}

/// The annotations that [`KeyNotes`] stand in.
pub(crate) const ANNOTATIONS: [&str; 5] = [
    annotation::KEYS_ISSUED_AT,
    annotation::ROTATE_KEYS,
    annotation::RETIRING_KEY,
    annotation::RETIRE_KEY_AT,
    annotation::SHARED_FROM,
];

impl KeyNotes {
    /// The notes on keys that were issued just now.
    pub(crate) fn new(now: Timestamp, request: Option<&str>, shared_from: Option<String>) -> Self {
        Self { issued_at: Some(now), answers: request.map(str::to_owned), retiring: None, shared_from }
    }

    /// Reads the notes. What cannot be read counts as missing.
    pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let get = |key: &str| annotations.and_then(|all| all.get(key));
        let time = |key: &str| get(key).and_then(|text| text.parse().ok());
        let retiring = get(annotation::RETIRING_KEY).map(|id| Retiring {
            id: id.clone(),
            // A key whose time nobody knows has had its time.
            at: time(annotation::RETIRE_KEY_AT).unwrap_or(Timestamp::UNIX_EPOCH),
        });
        Self {
            issued_at: time(annotation::KEYS_ISSUED_AT),
            answers: get(annotation::ROTATE_KEYS).cloned(),
            retiring,
            shared_from: get(annotation::SHARED_FROM).cloned(),
        }
    }

    /// The annotations to write; `None` for those that are to go.
    pub(crate) fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        let Self { issued_at, answers, retiring, shared_from } = self;
        BTreeMap::from([
            (annotation::KEYS_ISSUED_AT, issued_at.map(text)),
            (annotation::ROTATE_KEYS, answers.clone()),
            (annotation::RETIRING_KEY, retiring.as_ref().map(|key| key.id.clone())),
            (annotation::RETIRE_KEY_AT, retiring.as_ref().map(|key| text(key.at))),
            (annotation::SHARED_FROM, shared_from.clone()),
        ])
    }
}

fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The notes on keys that take the place of `former`, which is kept for the grace period.
pub(crate) fn succeed(former: String, grace: Duration, now: Timestamp, request: Option<&str>) -> KeyNotes {
    let at =
        SignedDuration::try_from(grace).ok().and_then(|grace| now.checked_add(grace).ok()).unwrap_or(Timestamp::MAX);
    KeyNotes { retiring: Some(Retiring { id: former, at }), ..KeyNotes::new(now, request, None) }
}

/// What is due for the keys of a bound claim, or how long nothing is.
///
/// `request`: the claim's annotation. A user has two keys at most, so the former one goes before the present one
/// is replaced.
pub(crate) fn due(
    notes: &KeyNotes,
    request: Option<&str>,
    rotation: &Rotation,
    now: Timestamp,
) -> (Upkeep, Option<Duration>) {
    let left = |until: Timestamp| Duration::try_from(until.duration_since(now)).unwrap_or_default();
    if let Some(retiring) = &notes.retiring {
        let wait = left(retiring.at);
        return if wait.is_zero() { (Upkeep::Retire, None) } else { (Upkeep::Nothing, Some(wait)) };
    }
    if request.is_some() && request != notes.answers.as_deref() {
        return (Upkeep::Rotate, None);
    }
    let Some(every) = rotation.every else { return (Upkeep::Nothing, None) };
    // Keys of unknown age are replaced: they get one by that.
    let age = notes.issued_at.map(|at| Duration::try_from(now.duration_since(at)).unwrap_or_default());
    match age.map(|age| every.saturating_sub(age)) {
        Some(wait) if !wait.is_zero() => (Upkeep::Nothing, Some(wait)),
        _ => (Upkeep::Rotate, None),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    fn monthly() -> Rotation {
        Rotation { every: Some(30 * DAY), grace: DAY }
    }

    #[test]
    fn notes_are_read_back_as_they_were_written() {
        let notes = succeed("AKIA1".into(), DAY, at(0), Some("now"));
        let written: BTreeMap<_, _> =
            notes.annotations().into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect();
        assert_eq!(KeyNotes::read(Some(&written)), notes);
        assert!(notes.annotations().keys().all(|key| ANNOTATIONS.contains(key)));
        assert_eq!(KeyNotes::read(None), KeyNotes::default());
    }

    #[test]
    fn keys_are_replaced_at_their_age_and_not_before() {
        let notes = KeyNotes::new(at(0), None, None);
        assert_eq!(due(&notes, None, &monthly(), at(10)), (Upkeep::Nothing, Some(20 * DAY)));
        assert_eq!(due(&notes, None, &monthly(), at(30)), (Upkeep::Rotate, None));
        assert_eq!(due(&notes, None, &Rotation::default(), at(3000)), (Upkeep::Nothing, None));
    }

    #[test]
    fn keys_are_replaced_when_somebody_asks_and_once_for_each_time() {
        let notes = KeyNotes::new(at(0), Some("first"), None);
        assert_eq!(due(&notes, Some("first"), &Rotation::default(), at(1)).0, Upkeep::Nothing);
        assert_eq!(due(&notes, Some("second"), &Rotation::default(), at(1)).0, Upkeep::Rotate);
        assert_eq!(due(&notes, None, &Rotation::default(), at(1)).0, Upkeep::Nothing);
    }

    #[test]
    fn the_former_key_goes_after_its_grace_and_before_the_next_rotation() {
        let notes = succeed("AKIA1".into(), DAY, at(0), Some("first"));
        assert_eq!(due(&notes, Some("second"), &monthly(), at(0)), (Upkeep::Nothing, Some(DAY)));
        assert_eq!(due(&notes, Some("second"), &monthly(), at(1)), (Upkeep::Retire, None));
    }

    #[test]
    fn a_clock_that_was_set_back_replaces_nothing() {
        let notes = KeyNotes::new(at(5), None, None);
        assert_eq!(due(&notes, None, &monthly(), at(0)), (Upkeep::Nothing, Some(30 * DAY)));
    }
}
