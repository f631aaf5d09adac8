//! How long a claim waits before the next attempt. Pure: the random generator is a parameter.

use std::time::Duration;

use rand::{Rng, RngExt as _};

use crate::store::FailureClass;

/// Longest wait after a failure that may pass by itself.
const RETRYABLE_MAX: Duration = Duration::from_secs(300);

/// First and longest wait after a failure that somebody must correct. It cannot be unlimited, because no watch shows that
/// permissions at the store change.
const TERMINAL_MIN: Duration = Duration::from_secs(10);

const TERMINAL_MAX: Duration = Duration::from_secs(300);

/// Wait while the store is working.
const PROGRESS: Duration = Duration::from_secs(5);

/// Longest wait for credentials: AWS takes 3 to 10 s to spread a new key.
const PROPAGATION_MAX: Duration = Duration::from_secs(8);

/// How often keys may be refused in a row before the store is asked whether it has them: some one and a half minutes, ten
/// times what AWS takes to spread a key. Only keys that it does not have are replaced. It is asked again after every so many
/// tries, then about once an hour, because something else may have deleted them.
pub(crate) const MAX_PROBES: u32 = 12;

/// How often keys are refused while they are tried often between attempts: for some 40 s, longer than AWS takes nearly
/// always.
pub(crate) const OFTEN: u32 = 8;

/// The wait before attempt `attempts + 1`: 1 s, doubled with each attempt, and randomly reduced so that claims that failed
/// together do not retry together.
pub(crate) fn delay(class: FailureClass, attempts: u32, dice: &mut impl Rng) -> Duration {
    match class {
        FailureClass::Retryable => {
            let whole = Duration::from_secs(1 << attempts.saturating_sub(1).min(16)).min(RETRYABLE_MAX);
            whole.mul_f64(dice.random_range(0.5..=1.0))
        }
        FailureClass::InProgress => PROGRESS.mul_f64(dice.random_range(0.8..=1.2)),
        FailureClass::Terminal => {
            let whole = TERMINAL_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(8)).min(TERMINAL_MAX);
            whole.mul_f64(dice.random_range(0.8..=1.2))
        }
    }
}

/// The wait until a claim is checked again whose key was deactivated: a security tool may do that to all keys of an
/// account, and nobody waits for these claims. A request of its user ends the wait.
pub(crate) fn keys_inactive(dice: &mut impl Rng) -> Duration {
    Duration::from_secs(60 * 60).mul_f64(dice.random_range(0.8..=1.2))
}

/// The wait before new keys are tried for the `probes + 1`th time.
pub(crate) fn propagation(probes: u32, dice: &mut impl Rng) -> Duration {
    let whole = Duration::from_secs(1 << probes.saturating_sub(1).min(8)).min(PROPAGATION_MAX);
    whole.mul_f64(dice.random_range(0.75..=1.0))
}

/// How long keys that the store knows may be denied, until an admin has to correct something.
pub(crate) const MAX_DENIED: Duration = Duration::from_secs(60);

/// Whether the store is to be asked about keys that were refused this often.
pub(crate) fn are_doubtful(refused: u32) -> bool {
    refused == MAX_PROBES || refused > 2 * MAX_PROBES && refused.is_multiple_of(MAX_PROBES)
}

/// How long to keep a record after it was undone, to check the store once more. `missing`: something was not found that an
/// attempt may have created; `since_change`: the time since that; `lag`: how long the store may not show it. What was
/// found and removed costs no wait.
pub(crate) fn settles_in(missing: bool, since_change: Duration, lag: Duration) -> Option<Duration> {
    let remaining = lag.saturating_sub(since_change);
    (missing && !remaining.is_zero()).then_some(remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_start_within_a_second_and_end_within_five_minutes() {
        let mut dice = rand::rng();
        for attempts in 0..40 {
            let wait = delay(FailureClass::Retryable, attempts, &mut dice);
            assert!(wait <= RETRYABLE_MAX, "{attempts}: {wait:?}");
            assert!(attempts > 1 || wait <= Duration::from_secs(1), "{attempts}: {wait:?}");
            assert!(attempts < 10 || wait >= RETRYABLE_MAX / 2, "{attempts}: {wait:?}");
        }
    }

    #[test]
    fn a_store_that_is_working_is_asked_every_few_seconds() {
        for attempts in 0..40 {
            let wait = delay(FailureClass::InProgress, attempts, &mut rand::rng()).as_secs_f64();
            assert!((4.0..=6.0).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn what_must_be_corrected_is_retried_every_few_minutes() {
        for (attempts, about) in [(1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 300), (40, 300)] {
            let wait = delay(FailureClass::Terminal, attempts, &mut rand::rng()).as_secs_f64();
            assert!((0.8 * f64::from(about)..=1.2 * f64::from(about)).contains(&wait), "{attempts}: {wait}");
        }
    }

    #[test]
    fn credentials_are_tried_often_at_first() {
        assert!(propagation(1, &mut rand::rng()) <= Duration::from_secs(1));
        assert!(propagation(30, &mut rand::rng()) <= PROPAGATION_MAX);
    }

    #[test]
    fn what_is_missing_is_retried_while_it_may_appear() {
        let seconds = Duration::from_secs;
        let lag = seconds(120);
        assert_eq!(settles_in(true, seconds(3), lag), Some(seconds(117)));
        assert_eq!(settles_in(true, seconds(120), lag), None);
        assert_eq!(settles_in(false, seconds(3), lag), None, "everything was found");
    }
}
