//! The life of a claim's keys: the notes in its Secret, when keys are replaced, and the condition about that. Pure.
//!
//! The notes are annotations of the Secret, written together with the keys, so that a crash cannot separate them. They
//! are only hints, because the claim's user can edit them: impossible values count as missing, and a missing note only
//! causes an early rotation or a late search for lost keys. The store knows better when a key was issued.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use rand::RngExt as _;

use super::claim::Claim;
use super::steps::Upkeep;
use crate::api::ConditionStatus::{False, True};
use crate::api::wire::annotation;
use crate::decide::metadata::NOTE_MAX;
use crate::decide::report::KeysCondition;
use crate::reasons;
use crate::store::{Deactivation, Plan, Rotation};

/// The notes on keys in a claim's Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct KeyNotes {
    /// When the present key was issued.
    pub(crate) issued_at: Option<Timestamp>,
    /// The request for rotation that this key answers.
    pub(crate) answers: Option<String>,
    /// The previous key, as long as it works.
    pub(crate) retiring: Option<Retiring>,
    /// The version of the provisioning Secret from which shared keys were copied.
    pub(crate) shared_from: Option<String>,
    /// When to search for other keys of the user: an earlier attempt may have lost one that the store does not show yet.
    pub(crate) review_at: Option<Timestamp>,
}

/// How much the clocks of those who write notes may differ from ours.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// A key that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retiring {
    pub(crate) id: String,
    /// When it is deleted, or deactivated before that.
    pub(crate) at: Timestamp,
    /// It is deactivated already.
    pub(crate) inactive: bool,
}

/// The annotations that contain [`KeyNotes`].
pub(crate) const ANNOTATIONS: [&str; 7] = [
    annotation::KEYS_ISSUED_AT,
    annotation::ROTATE_KEYS,
    annotation::RETIRING_KEY,
    annotation::RETIRE_KEY_AT,
    annotation::RETIRING_KEY_INACTIVE,
    annotation::SHARED_FROM,
    annotation::REVIEW_KEYS_AT,
];

impl KeyNotes {
    /// The notes on keys that were issued just now.
    pub(crate) fn new(now: Timestamp, request: Option<&str>, shared_from: Option<String>) -> Self {
        Self { issued_at: Some(now), answers: request.map(str::to_owned), shared_from, ..Self::default() }
    }

    /// The same, with a search for lost keys when the store shows everything: after one to two times `settling`, so that
    /// not all claims are searched at once.
    pub(crate) fn with_review(self, now: Timestamp, settling: Duration, rng: &mut impl rand::Rng) -> Self {
        let wait = settling.mul_f64(rng.random_range(1.0..=2.0)).as_secs();
        // The annotation has whole seconds.
        Self { review_at: Some(after(now, Duration::from_secs(wait + 1))), ..self }
    }

    /// The notes with plausible times. Otherwise a user could write times in the far future, and so prevent what is due.
    /// `plan`: `None` if it is not known.
    pub(crate) fn clamp(self, plan: Option<&Plan>, now: Timestamp) -> Self {
        let rotation = plan.map(|plan| plan.rotation).unwrap_or_default();
        let issued_at = self.issued_at.filter(|at| *at <= after(now, CLOCK_SKEW));
        let at_most = |at: Timestamp, wait| at.min(after(issued_at.unwrap_or(now), wait));
        let longest = rotation.grace.saturating_mul(2).saturating_add(idle_time(&rotation));
        let retiring = self.retiring.map(|key| Retiring { at: at_most(key.at, longest), ..key });
        let review_at = self.review_at.map(|at| at_most(at, LONGEST_REVIEW));
        Self { issued_at, retiring, review_at, ..self }
    }

    /// The notes with the time of issue from the store; `None` if they roughly agree.
    pub(crate) fn corrected(&self, issued_at: Timestamp) -> Option<Self> {
        let differs = self.issued_at.is_none_or(|noted| {
            let apart = noted.duration_since(issued_at).unsigned_abs();
            apart > CLOCK_SKEW
        });
        differs.then(|| Self { issued_at: Some(issued_at), ..self.clone() })
    }

    /// The notes after unused keys were deleted.
    pub(crate) fn after_review(&self, now: Timestamp) -> Self {
        Self {
            retiring: self.retiring.clone().filter(|key| key.at > now),
            review_at: self.review_at.filter(|at| *at > now),
            ..self.clone()
        }
    }

    /// Reads the notes. Unreadable ones count as missing; an unreadable due time counts as past.
    pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let get = |key: &str| annotations.and_then(|all| all.get(key)).filter(|note| note.len() <= NOTE_MAX);
        let time = |key: &str| get(key).and_then(|text| text.parse().ok());
        let retiring = get(annotation::RETIRING_KEY).map(|id| Retiring {
            id: id.clone(),
            // Without a time, the key is deleted now.
            at: time(annotation::RETIRE_KEY_AT).unwrap_or(Timestamp::UNIX_EPOCH),
            inactive: get(annotation::RETIRING_KEY_INACTIVE).is_some_and(|value| value == YES),
        });
        Self {
            issued_at: time(annotation::KEYS_ISSUED_AT),
            answers: get(annotation::ROTATE_KEYS).cloned(),
            retiring,
            shared_from: get(annotation::SHARED_FROM).cloned(),
            review_at: get(annotation::REVIEW_KEYS_AT).map(|text| text.parse().unwrap_or(Timestamp::UNIX_EPOCH)),
        }
    }

    /// Since when the present key has been the claim's, for metrics; `None` for shared keys. Users can write
    /// any time here, but no key was issued before its claim was created, or later than now.
    pub(crate) fn since(&self, created: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let issued_at = self.issued_at.filter(|_| self.shared_from.is_none())?;
        Some(issued_at.max(created).min(now))
    }

    /// The age of the present key, if known; zero if a clock was set back.
    fn age(&self, now: Timestamp) -> Option<Duration> {
        self.issued_at.map(|at| Duration::try_from(now.duration_since(at)).unwrap_or_default())
    }

    /// Whether the present key is so new that the store may not show it yet, as it may not show changes for `lag`.
    pub(crate) fn is_new(&self, now: Timestamp, lag: Duration) -> bool {
        self.age(now).is_some_and(|age| age < lag)
    }

    /// The previous key, if its time is over.
    pub(crate) fn expired(&self, now: Timestamp) -> Option<&Retiring> {
        self.retiring.as_ref().filter(|key| key.at <= now)
    }

    /// When a previous key is deleted although it is still used: after twice its grace period.
    pub(crate) fn limit(&self, rotation: &Rotation, now: Timestamp) -> Timestamp {
        after(self.issued_at.unwrap_or(now), rotation.grace.saturating_mul(2))
    }

    /// The notes after the store was asked to deactivate the previous key; `None` if the key is to be deleted now.
    /// To activate or use it again postpones its deletion for a limited time only.
    pub(crate) fn after_deactivation(&self, answer: Deactivation, rotation: &Rotation, now: Timestamp) -> Option<Self> {
        let (limit, idle_time) = (self.limit(rotation, now), idle_time(rotation));
        let (at, inactive) = match answer {
            Deactivation::InUse(_) if now < limit => (after(now, idle_time).min(limit), false),
            Deactivation::Done if now < after(limit, idle_time) => (after(now, idle_time), true),
            Deactivation::InUse(_) | Deactivation::Done | Deactivation::NotNeeded => return None,
        };
        let previous = self.retiring.clone()?;
        Some(Self { retiring: Some(Retiring { at, inactive, ..previous }), ..self.clone() })
    }

    /// The annotations to write; `None` for those to remove.
    pub(crate) fn annotations(&self) -> BTreeMap<&'static str, Option<String>> {
        let Self { issued_at, answers, retiring, shared_from, review_at } = self;
        BTreeMap::from([
            (annotation::KEYS_ISSUED_AT, issued_at.map(text)),
            (annotation::ROTATE_KEYS, answers.clone()),
            (annotation::RETIRING_KEY, retiring.as_ref().map(|key| key.id.clone())),
            (annotation::RETIRE_KEY_AT, retiring.as_ref().map(|key| text(key.at))),
            (annotation::RETIRING_KEY_INACTIVE, retiring.as_ref().filter(|key| key.inactive).map(|_| YES.to_owned())),
            (annotation::SHARED_FROM, shared_from.clone()),
            (annotation::REVIEW_KEYS_AT, review_at.map(text)),
        ])
    }
}

const YES: &str = "yes";

/// Longest time until lost keys are searched for, whatever a user writes; see [`KeyNotes::with_review`].
const LONGEST_REVIEW: Duration = Duration::from_secs(600);

/// For how long a previous key must not have been used before it is deactivated, and then until it is deleted: an hour,
/// or a shorter grace period.
pub(crate) fn idle_time(rotation: &Rotation) -> Duration {
    rotation.grace.min(Duration::from_secs(3600))
}

/// A time as annotations have it.
pub(crate) fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The notes on keys that replace `previous`, which is kept for the grace period.
pub(crate) fn succeed(previous: String, plan: &Plan, now: Timestamp, request: Option<&str>) -> KeyNotes {
    KeyNotes {
        retiring: Some(Retiring { id: previous, at: after(now, plan.rotation.grace), inactive: false }),
        ..KeyNotes::new(now, request, None)
    }
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait).ok().and_then(|wait| now.checked_add(wait).ok()).unwrap_or(Timestamp::MAX)
}

/// Whether keys other than the present ones are requested.
fn is_requested(notes: &KeyNotes, request: Option<&str>) -> bool {
    request.is_some() && request != notes.answers.as_deref()
}

/// After what time the keys of the claim with this uid are replaced: 0.9 to 1.0 of the period, so that claims that were
/// created together are not all due together.
pub(crate) fn period(every: Duration, uid: &str) -> Duration {
    // FNV-1a: the same in every version of the operator.
    let hash = uid
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let tenth = every / 10;
    every.saturating_sub(tenth.mul_f64((hash % 1000) as f64 / 1000.0))
}

/// Whether the claim requests keys other than the present ones.
pub(crate) fn are_requested(claim: &Claim, notes: &KeyNotes) -> bool {
    is_requested(notes, claim.rotate_request.as_deref())
}

/// What is due for the keys of a bound claim, or the time until something is. Shared keys, which are the provisioning
/// keys, are not rotated; and some claims have none.
pub(crate) fn due_for(claim: &Claim, notes: &KeyNotes, plan: &Plan, now: Timestamp) -> (Upkeep, Option<Duration>) {
    if plan.user.is_none() || plan.service_account.is_some() {
        return (Upkeep::Nothing, None);
    }
    let every = plan.rotation.every.map(|every| period(every, &claim.id.uid));
    due(notes, claim.rotate_request.as_deref(), &Rotation { every, ..plan.rotation }, now)
}

/// The same. `rotation.every`: see [`period`].
///
/// `request`: the claim's annotation. A user can have two keys, so a previous or lost one is deleted before the present
/// one is replaced.
fn due(notes: &KeyNotes, request: Option<&str>, rotation: &Rotation, now: Timestamp) -> (Upkeep, Option<Duration>) {
    let left = |until: Timestamp| Duration::try_from(until.duration_since(now)).unwrap_or_default();
    let unused = [notes.retiring.as_ref().map(|key| key.at), notes.review_at];
    if let Some(wait) = unused.into_iter().flatten().min().map(left) {
        return if wait.is_zero() { (Upkeep::Retire, None) } else { (Upkeep::Nothing, Some(wait)) };
    }
    if is_requested(notes, request) {
        return (Upkeep::Rotate, None);
    }
    let Some(every) = rotation.every else { return (Upkeep::Nothing, None) };
    // Keys of unknown age are replaced, because the age of the new ones is known.
    match notes.age(now).map(|age| every.saturating_sub(age)) {
        Some(wait) if !wait.is_zero() => (Upkeep::Nothing, Some(wait)),
        _ => (Upkeep::Rotate, None),
    }
}

/// The condition KeysCurrent of a bound claim; `None` as long as nothing was ever due, so that most claims do not have it.
/// `failure`: why the last rotation failed.
pub(crate) fn condition(claim: &Claim, notes: &KeyNotes, failure: Option<&str>) -> Option<KeysCondition> {
    let has_condition = claim.status.conditions.iter().any(|condition| condition.type_ == reasons::KEYS_CURRENT);
    let condition = |status, reason, message| Some(KeysCondition { status, reason, message });
    if let Some(failure) = failure {
        return condition(False, reasons::ROTATION_FAILED, failure.to_owned());
    }
    let issued = notes
        .issued_at
        .map_or_else(String::new, |at| format!("the key in the claim's Secret was issued at {}", text(at)));
    match &notes.retiring {
        Some(Retiring { id, at, inactive }) if are_requested(claim, notes) => {
            let deleted = match inactive {
                true => format!("at {}", text(*at)),
                false => {
                    format!("up to an hour after it is deactivated, at {} or, if it is still used, later", text(*at))
                }
            };
            let message = format!(
                "new keys were requested, and a user has two keys at most: they are issued when the previous key {id} is deleted, {deleted}"
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

impl KeysCondition {
    /// What it warns of with an event of its own, which the attempt that failed does not publish.
    pub(crate) fn warning(&self) -> Option<(&'static str, &str)> {
        (self.reason == reasons::ROTATION_PENDING).then_some((self.reason, &*self.message))
    }
}

/// Whether the condition reports failures with this reason.
pub(crate) fn reports(reason: &str) -> bool {
    reason == reasons::ROTATION_FAILED
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::decide::testing::record;
    use crate::store::ClaimId;

    const DAY: Duration = Duration::from_secs(86_400);
    const LAG: Duration = Duration::from_secs(10);
    const HOUR: Duration = Duration::from_secs(3600);

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    fn monthly() -> Rotation {
        Rotation { every: Some(30 * DAY), grace: DAY }
    }

    #[test]
    fn a_key_is_never_older_than_its_claim_whatever_a_user_writes() {
        let issued = |day| KeyNotes::new(at(day), None, None);
        assert_eq!(issued(5).since(at(3), at(9)), Some(at(5)));
        assert_eq!(issued(-9000).since(at(3), at(9)), Some(at(3)));
        assert_eq!(issued(9000).since(at(3), at(9)), Some(at(9)));
        let shared = KeyNotes { shared_from: Some("7".to_owned()), ..issued(5) };
        assert_eq!((shared.since(at(3), at(9)), KeyNotes::default().since(at(3), at(9))), (None, None));
    }

    #[test]
    fn notes_are_read_back_as_they_were_written() {
        let notes =
            succeed("AKIA1".into(), &record().plan, at(0), Some("now")).with_review(at(0), DAY, &mut rand::rng());
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
    fn claims_that_were_created_together_are_not_due_together() {
        let periods: Vec<_> =
            (0..1000).map(|n| period(100 * DAY, &format!("00000000-{n:04}-48a2-bfaa-74d1bf1fd950"))).collect();
        assert!(periods.iter().all(|period| (90 * DAY..=100 * DAY).contains(period)));
        for day in 90..100 {
            let due = periods.iter().filter(|period| (day * DAY..(day + 1) * DAY).contains(*period)).count();
            assert!((60..=140).contains(&due), "{due} on day {day}");
        }
        assert_eq!(period(DAY, "a"), period(DAY, "a"));
    }

    #[test]
    fn keys_are_replaced_when_somebody_asks_and_once_for_each_time() {
        let notes = KeyNotes::new(at(0), Some("first"), None);
        assert_eq!(due(&notes, Some("first"), &Rotation::default(), at(1)).0, Upkeep::Nothing);
        assert_eq!(due(&notes, Some("second"), &Rotation::default(), at(1)).0, Upkeep::Rotate);
        assert_eq!(due(&notes, None, &Rotation::default(), at(1)).0, Upkeep::Nothing);
    }

    #[test]
    fn the_previous_key_is_deleted_before_the_next_rotation() {
        let notes = succeed("AKIA1".into(), &record().plan, at(0), Some("first"));
        assert_eq!(due(&notes, Some("second"), &monthly(), at(0)), (Upkeep::Nothing, Some(DAY)));
        assert_eq!(due(&notes, Some("second"), &monthly(), at(1)), (Upkeep::Retire, None));
    }

    #[test]
    fn keys_that_may_be_lost_are_searched_for_once_they_are_shown() {
        let (now, hour) = (at(0), Duration::from_secs(3600));
        let notes = KeyNotes::new(now, None, None).with_review(now, hour, &mut rand::rng());
        let (upkeep, wait) = due(&notes, Some("first"), &monthly(), now);
        assert!(upkeep == Upkeep::Nothing && (hour..=2 * hour + LAG).contains(&wait.unwrap()), "{wait:?}");
        assert_eq!(notes.after_review(now), notes);
        assert_eq!(due(&notes, Some("first"), &monthly(), at(1)).0, Upkeep::Retire);
        assert_eq!(due(&notes.after_review(at(1)), Some("first"), &monthly(), at(1)).0, Upkeep::Rotate);
    }

    #[test]
    fn a_clock_that_was_set_back_replaces_nothing() {
        let notes = KeyNotes::new(at(5), None, None);
        assert_eq!(due(&notes, None, &monthly(), at(0)), (Upkeep::Nothing, Some(30 * DAY)));
        assert!(notes.is_new(at(0), LAG));
    }

    #[test]
    fn implausible_notes_are_ignored() {
        let (plan, now) = (Plan { rotation: monthly(), ..record().plan }, at(0));
        let notes = succeed("AKIA1".into(), &plan, now, None).with_review(now, LAG, &mut rand::rng());
        assert_eq!(notes.clone().clamp(Some(&plan), now), notes, "what the operator writes");
        let later = KeyNotes {
            retiring: Some(Retiring { id: "AKIA1".into(), at: at(4000), inactive: false }),
            review_at: Some(at(4000)),
            ..notes.clone()
        };
        let clamped = later.clamp(Some(&plan), now);
        assert_eq!(clamped.retiring.as_ref().unwrap().at, now + 2 * DAY + HOUR, "the longest that it may be put off");
        assert!(clamped.review_at.unwrap() < now + LONGEST_REVIEW + LAG);
        let from_the_future = KeyNotes { issued_at: Some(at(4000)), ..notes }.clamp(Some(&plan), now);
        assert_eq!(from_the_future.issued_at, None);
        assert_eq!(from_the_future.retiring.as_ref().unwrap().at, now + DAY, "its previous key has its grace period");
        let alone = KeyNotes { retiring: None, review_at: None, ..from_the_future };
        assert_eq!(due(&alone, None, &plan.rotation, now).0, Upkeep::Rotate, "keys of unknown age are replaced");
    }

    #[test]
    fn the_store_knows_when_a_key_was_issued() {
        let notes = KeyNotes::new(at(3), None, None);
        assert_eq!(notes.corrected(at(3) + LAG), None, "clocks differ");
        assert_eq!(notes.corrected(at(0)).unwrap().issued_at, Some(at(0)));
        assert_eq!(KeyNotes::default().corrected(at(0)).unwrap().issued_at, Some(at(0)));
    }

    #[test]
    fn a_note_that_is_longer_than_any_is_not_read() {
        let long = [(annotation::ROTATE_KEYS.to_owned(), "x".repeat(NOTE_MAX + 1))].into();
        assert_eq!(KeyNotes::read(Some(&long)), KeyNotes::default());
    }

    #[test]
    fn a_key_is_new_for_as_long_as_reads_may_lag() {
        let notes = KeyNotes::new(at(0), None, None);
        assert!(notes.is_new(at(0) + LAG / 2, LAG) && !notes.is_new(at(0) + LAG, LAG));
        assert!(!KeyNotes::default().is_new(at(0), LAG), "keys of unknown age");
    }

    #[test]
    fn a_previous_key_is_deactivated_first_and_kept_while_used() {
        let (rotation, notes) = (monthly(), succeed("AKIA1".into(), &record().plan, at(0), None));
        let after = |answer, now| notes.after_deactivation(answer, &rotation, now).and_then(|notes| notes.retiring);
        let retiring = |at, inactive| Some(Retiring { id: "AKIA1".into(), at, inactive });
        let in_use = Deactivation::InUse(None);
        assert_eq!(after(Deactivation::NotNeeded, at(1)), None, "it does not work any more");
        assert_eq!(after(Deactivation::Done, at(1)), retiring(at(1) + HOUR, true));
        assert_eq!(after(in_use, at(1)), retiring(at(1) + HOUR, false));
        assert_eq!(
            after(in_use, at(2) - HOUR / 2),
            retiring(at(2), false),
            "at the latest after twice the grace period"
        );
        assert_eq!((after(in_use, at(2)), after(Deactivation::Done, at(2))), (None, retiring(at(2) + HOUR, true)));
        assert_eq!(after(Deactivation::Done, at(2) + HOUR), None, "somebody activates it again and again");
        assert_eq!(
            (notes.expired(at(1) - LAG), notes.expired(at(1)).map(|key| key.id.as_str())),
            (None, Some("AKIA1"))
        );
        let quick = Rotation { grace: LAG, ..monthly() };
        assert_eq!(idle_time(&quick), LAG);
    }

    fn notes() -> KeyNotes {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        succeed("AKIA1".into(), &record().plan, now, Some("first"))
    }

    fn claim(request: Option<&str>) -> Claim {
        let id = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: "1".into() };
        let mut claim = Claim::gone(id);
        claim.rotate_request = request.map(str::to_owned);
        claim
    }

    fn current(notes: &KeyNotes, request: Option<&str>) -> KeysCondition {
        condition(&claim(request), notes, None).unwrap()
    }

    #[test]
    fn the_end_of_the_previous_key_is_named() {
        insta::assert_snapshot!(current(&notes(), Some("first")).message, @"the key in the claim's Secret was issued at 2027-01-15T08:00:00Z; the previous key AKIA1 works until 2027-01-16T08:00:00Z: before then, restart pods that still have it");
        let mut inactive = notes();
        inactive.retiring.as_mut().unwrap().inactive = true;
        let shown = current(&inactive, None);
        assert_eq!((shown.status, shown.reason), (True, "FormerKeyDeactivated"));
        assert!(shown.message.contains("is deleted at 2027-01-16"), "{}", shown.message);
    }

    #[test]
    fn a_request_within_the_grace_period_is_reported() {
        let shown = current(&notes(), Some("second"));
        assert_eq!((shown.status, shown.reason), (False, "RotationPending"));
        assert!(shown.message.contains("AKIA1") && shown.message.contains("2027-01-16"), "{}", shown.message);
    }

    #[test]
    fn a_failure_is_reported_and_most_claims_have_no_condition() {
        let (none, mut claim) = (KeyNotes::default(), claim(None));
        assert_eq!(condition(&claim, &none, None), None);
        assert_eq!(condition(&claim, &none, Some("denied")).unwrap().reason, "RotationFailed");
        let present = json!({ "type": "KeysCurrent", "status": "False", "reason": "RotationFailed", "message": "" });
        claim.status.conditions.push(serde_json::from_value(present).unwrap());
        assert_eq!(condition(&claim, &none, None).unwrap().status, True);
    }
}
