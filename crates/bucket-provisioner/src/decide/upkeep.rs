//! What upkeep is due for a bound claim: replacing and deleting keys, and checks of the store. Pure.

use std::time::Duration;

use super::steps::Upkeep;
use crate::error::Error;
use crate::store::{Failure as _, FailureClass};

/// What is known about a claim with a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpkeepFacts {
    pub(crate) bound: bool,
    /// The record is this operator's, and not the Go provisioner's.
    pub(crate) by_us: bool,
    /// The adoption of the record is not finished.
    pub(crate) adopting: bool,
    /// The claim's status shows that it can be used.
    pub(crate) ready: bool,
    /// Its keys were refused just before.
    pub(crate) waits_for_keys: bool,
    /// They were refused so often that the store is to be asked about them.
    pub(crate) doubtful: bool,
    /// Claim and record name different buckets, and what was published does not show which is right.
    pub(crate) contradictory: bool,
}

/// What upkeep is due in an attempt; `usual` is what is due for a claim without problems.
pub(crate) fn due_now(facts: UpkeepFacts, usual: impl FnOnce() -> Upkeep) -> Upkeep {
    match facts {
        UpkeepFacts { by_us: true, doubtful: true, .. } => Upkeep::Check,
        UpkeepFacts { bound: false, .. } => Upkeep::Nothing,
        // Before a bucket is published that may be somebody else's.
        UpkeepFacts { by_us: true, contradictory: true, .. } => Upkeep::Check,
        // The check tags bucket and user for this claim, and compares the keys.
        UpkeepFacts { by_us: true, adopting: true, .. } => Upkeep::Check,
        // The status may report that something is lost, until a check finds it again. While the claim waits for new
        // keys, it is not checked with every attempt.
        UpkeepFacts { by_us: true, ready: false, waits_for_keys: true, .. } => Upkeep::Nothing,
        UpkeepFacts { by_us: true, ready: false, .. } => Upkeep::Check,
        _ => usual(),
    }
}

/// The times that decide about the upkeep of a claim without problems. Zero means due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// What is due by the notes on keys, or the time until something is.
    pub(crate) keys: (Upkeep, Option<Duration>),
    /// Until failed or unfinished upkeep is retried.
    pub(crate) failed: Duration,
    /// The store is still working, so nothing has failed.
    pub(crate) unfinished: bool,
    /// Until keys may be replaced again.
    pub(crate) replacement: Duration,
    /// Until unused keys may be searched for again.
    pub(crate) key_search: Duration,
    /// Until access ends that the claim had before it was moved; `None` if there is none.
    pub(crate) previous: Option<Duration>,
    /// Until the periodic check; `None` if there is none.
    pub(crate) check: Option<Duration>,
    /// The store has to apply a change of the record.
    pub(crate) changes: bool,
    /// Somebody requests another attempt, perhaps because the cause of a failure is corrected.
    pub(crate) asked: bool,
}

/// What is due for a bound claim without problems, or the time until something is, if known.
pub(crate) fn usual(times: &Times) -> (Upkeep, Option<Duration>) {
    let not_for = |wait| (Upkeep::Nothing, Some(wait));
    // A store that is working is asked again soon anyway.
    if !times.failed.is_zero() && (!times.asked || times.unfinished) {
        return not_for(times.failed);
    }
    let (due, wait) = times.keys;
    if times.changes {
        // A change that the store refuses must not keep keys from being replaced and deleted.
        return match due {
            Upkeep::Rotate if times.replacement.is_zero() => (due, None),
            Upkeep::Retire if times.key_search.is_zero() => (due, None),
            _ => (Upkeep::Check, None),
        };
    }
    match due {
        Upkeep::Nothing => {}
        // What keeps new keys from working may be what a check repairs.
        Upkeep::Rotate if times.check == Some(Duration::ZERO) => return (Upkeep::Check, None),
        Upkeep::Rotate if !times.replacement.is_zero() => return not_for(times.replacement),
        Upkeep::Retire if !times.key_search.is_zero() => return not_for(times.key_search),
        Upkeep::Rotate | Upkeep::Retire | Upkeep::RevokePrevious | Upkeep::Check => return (due, None),
    }
    if times.asked {
        return if times.key_search.is_zero() { (Upkeep::Check, None) } else { not_for(times.key_search) };
    }
    match times.check {
        Some(Duration::ZERO) => (Upkeep::Check, None),
        // Last, because what the store refuses is due again at once, and must not keep anything from being checked.
        _ if times.previous == Some(Duration::ZERO) => (Upkeep::RevokePrevious, None),
        check => (Upkeep::Nothing, [wait, check, times.previous].into_iter().flatten().min()),
    }
}

/// The note on an error of upkeep; `what`: what could not be done. `None` if nothing has failed, because the store is
/// still working.
pub(crate) fn failure_note(what: &str, error: &Error) -> Option<String> {
    match error.class() {
        FailureClass::InProgress => None,
        FailureClass::Retryable | FailureClass::Terminal => Some(format!("{what}; retrying: {error}")),
    }
}

/// Whether an attempt ends with a check that stopped: the claim's status reports something lost, and is not changed
/// until a check is finished, because keys that work do not prove the opposite.
pub(crate) fn awaits_check(ready: bool, error: &Error) -> bool {
    !ready && error.class() == FailureClass::InProgress
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Reason, StoreError, Topic};

    const WELL: Times = Times {
        keys: (Upkeep::Nothing, Some(Duration::from_secs(60))),
        failed: Duration::ZERO,
        unfinished: false,
        replacement: Duration::ZERO,
        key_search: Duration::ZERO,
        previous: None,
        check: Some(Duration::from_secs(30)),
        changes: false,
        asked: false,
    };
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn nothing_is_due_until_the_first_time_that_comes() {
        assert_eq!(usual(&WELL), (Upkeep::Nothing, Some(Duration::from_secs(30))));
        assert_eq!(usual(&Times { check: None, ..WELL }), (Upkeep::Nothing, Some(MINUTE)));
        assert_eq!(usual(&Times { check: Some(Duration::ZERO), ..WELL }), (Upkeep::Check, None));
    }

    #[test]
    fn previous_access_is_revoked_when_its_time_comes() {
        let first = Times { previous: Some(Duration::from_secs(20)), ..WELL };
        assert_eq!(usual(&first), (Upkeep::Nothing, Some(Duration::from_secs(20))));
        let over = Times { previous: Some(Duration::ZERO), ..WELL };
        let both = Times { check: Some(Duration::ZERO), ..over };
        assert_eq!(usual(&both), (Upkeep::Check, None), "it may fail every time");
        assert_eq!(usual(&over), (Upkeep::RevokePrevious, None));
        assert_eq!(usual(&Times { failed: MINUTE, ..over }), (Upkeep::Nothing, Some(MINUTE)), "AWS refused it");
    }

    #[test]
    fn a_change_waits_for_keys_and_for_nothing_else() {
        let changed = Times { changes: true, check: None, ..WELL };
        assert_eq!(usual(&changed), (Upkeep::Check, None));
        for due in [Upkeep::Rotate, Upkeep::Retire] {
            assert_eq!(usual(&Times { keys: (due, None), ..changed }), (due, None));
        }
        let rationed = Times { keys: (Upkeep::Rotate, None), replacement: MINUTE, ..changed };
        assert_eq!(usual(&rationed), (Upkeep::Check, None));
    }

    #[test]
    fn what_failed_waits_unless_requested() {
        let failed = Times { failed: MINUTE, check: Some(Duration::ZERO), ..WELL };
        assert_eq!(usual(&failed), (Upkeep::Nothing, Some(MINUTE)));
        assert_eq!(usual(&Times { asked: true, ..failed }), (Upkeep::Check, None));
        assert_eq!(usual(&Times { asked: true, key_search: MINUTE, ..failed }), (Upkeep::Nothing, Some(MINUTE)));
    }

    #[test]
    fn a_working_store_is_not_called_earlier_on_request() {
        let working = Times { failed: MINUTE, unfinished: true, asked: true, ..WELL };
        for keys in [WELL.keys, (Upkeep::Rotate, None), (Upkeep::Retire, None)] {
            assert_eq!(usual(&Times { keys, ..working }), (Upkeep::Nothing, Some(MINUTE)));
        }
        assert_eq!(usual(&Times { failed: Duration::ZERO, ..working }), (Upkeep::Check, None), "it is not forgotten");
    }

    #[test]
    fn repeated_requests_of_a_user_are_limited() {
        let rotate = Times { keys: (Upkeep::Rotate, None), ..WELL };
        assert_eq!(usual(&rotate), (Upkeep::Rotate, None));
        assert_eq!(usual(&Times { check: Some(Duration::ZERO), ..rotate }), (Upkeep::Check, None), "before new keys");
        assert_eq!(usual(&Times { replacement: MINUTE, ..rotate }), (Upkeep::Nothing, Some(MINUTE)));
        let retire = Times { keys: (Upkeep::Retire, None), key_search: MINUTE, ..WELL };
        assert_eq!(usual(&retire), (Upkeep::Nothing, Some(MINUTE)));
    }

    #[test]
    fn a_store_that_is_still_working_has_not_failed() {
        const BUSY: Reason = Reason::new("ShelfBusy", Topic::Store).meaning("").remedy("");
        let note = |error| failure_note("the keys could not be rotated", &Error::store(error));
        assert_eq!(note(StoreError::in_progress(&BUSY, "half is done")), None);
        for error in [StoreError::retryable(&BUSY, "no answer"), StoreError::terminal(&BUSY, "no answer")] {
            assert_eq!(note(error).as_deref(), Some("the keys could not be rotated; retrying: no answer"));
        }
    }

    #[test]
    fn a_reported_loss_is_kept_until_a_check_is_finished() {
        const BUSY: Reason = Reason::new("ShelfBusy", Topic::Store).meaning("").remedy("");
        let working = Error::store(StoreError::in_progress(&BUSY, "half is done"));
        assert!(awaits_check(false, &working) && !awaits_check(true, &working));
        assert!(!awaits_check(false, &Error::store(StoreError::retryable(&BUSY, "no answer"))));
    }

    #[test]
    fn a_reported_loss_is_checked_unless_keys_are_pending() {
        let lost = UpkeepFacts {
            bound: true,
            by_us: true,
            adopting: false,
            ready: false,
            waits_for_keys: false,
            doubtful: false,
            contradictory: false,
        };
        let usual = || Upkeep::Rotate;
        assert_eq!(due_now(lost, usual), Upkeep::Check);
        assert_eq!(due_now(UpkeepFacts { waits_for_keys: true, ..lost }, usual), Upkeep::Nothing);
        assert_eq!(due_now(UpkeepFacts { adopting: true, waits_for_keys: true, ..lost }, usual), Upkeep::Check);
        let doubtful = UpkeepFacts { waits_for_keys: true, doubtful: true, ..lost };
        assert_eq!(due_now(doubtful, usual), Upkeep::Check);
        assert_eq!(
            due_now(UpkeepFacts { bound: false, ..doubtful }, usual),
            Upkeep::Check,
            "before they were published, too"
        );
        assert_eq!(due_now(UpkeepFacts { ready: true, ..lost }, usual), Upkeep::Rotate);
        assert_eq!(due_now(UpkeepFacts { by_us: false, ..lost }, usual), Upkeep::Rotate);
        let contradictory = UpkeepFacts { ready: true, contradictory: true, ..lost };
        assert_eq!(due_now(contradictory, usual), Upkeep::Check, "its bucket may be somebody else's");
        assert_eq!(due_now(UpkeepFacts { bound: false, ..lost }, usual), Upkeep::Nothing);
    }
}
