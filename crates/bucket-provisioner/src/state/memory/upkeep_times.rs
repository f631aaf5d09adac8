//! When the upkeep of a bound claim is due.

use std::time::Duration;

use rand::RngExt as _;
use tokio::time::Instant;

use super::burst_limiter::BurstLimiter;
use crate::decide::backoff;
use crate::decide::steps::Upkeep;
use crate::store::{AppCredentials, FailureClass};
use operator_runtime::engine::hash;

/// What is remembered about the upkeep of a bound claim.
#[derive(Debug, Default)]
pub(crate) struct UpkeepTimes {
    /// When to check the store next.
    check_at: Option<Instant>,
    pub(super) pending_key: Option<Box<Pending>>,
    failures: u32,
    not_before: Option<Instant>,
    /// What the store is still working on.
    unfinished: Option<Upkeep>,
    /// Why keys could not be replaced, for the condition KeysCurrent.
    pub(crate) key_failure: Option<Box<str>>,
    /// The last reported failure, as a hash, so that it is not reported twice in a row.
    last_note: Option<u64>,
    replacements: BurstLimiter,
    repairs: BurstLimiter,
    edits: BurstLimiter,
    /// The claim and the record whose settings were compared, because the cache does not have them whole, as a hash.
    settled: Option<u64>,
    key_searches: BurstLimiter,
    /// The last answered request for another attempt, as a hash.
    retried: Option<u64>,
}

/// New keys that have not been seen to work yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) keys: AppCredentials,
    /// The store knows them, and denies them: they are tried again only when keys are to be replaced.
    pub(super) denied: bool,
}

/// A random part of a time; `None` on overflow.
fn part_of(whole: Duration, parts: std::ops::RangeInclusive<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(whole.as_secs_f64() * rand::rng().random_range(parts)).ok()
}

impl UpkeepTimes {
    /// The time until the next check; zero if it is due, `None` if there are no checks.
    ///
    /// The first check is at a random time within the interval, so that a restart does not check all claims at once; the
    /// later ones vary by a tenth.
    pub(crate) fn check_in(&mut self, every: Option<Duration>) -> Option<Duration> {
        // Perhaps somebody asked for it, and nothing else would make it due again.
        if self.unfinished == Some(Upkeep::Check) {
            return Some(Duration::ZERO);
        }
        let (now, every) = (Instant::now(), every?);
        // An interval that is too long for the clock means never.
        let first = now.checked_add(part_of(every, 0.0..=1.0)?)?;
        Some(self.check_at.get_or_insert(first).saturating_duration_since(now))
    }

    /// How late the check is; zero if it is not due.
    pub(super) fn check_late_by(&self, now: Instant) -> Duration {
        self.check_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
    }

    /// The store was checked.
    pub(crate) fn checked(&mut self, every: Option<Duration>) {
        self.check_at = every.and_then(|every| Instant::now().checked_add(part_of(every, 0.9..=1.1)?));
    }

    /// The store is to be checked again after this time.
    pub(crate) fn check_after(&mut self, wait: Duration) {
        self.check_at = Some(Instant::now() + wait);
    }

    /// How much longer failed or unfinished upkeep has to wait.
    pub(crate) fn failed_in(&self) -> Duration {
        self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether the store is still working on upkeep.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Upkeep failed, and is retried later. Returns whether the note is new.
    pub(crate) fn failed(&mut self, class: FailureClass, note: &str) -> bool {
        self.unfinished = None;
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(Instant::now() + backoff::delay(class, self.failures, &mut rand::rng()));
        let note = Some(hash(note));
        std::mem::replace(&mut self.last_note, note) != note
    }

    /// The store is still working on this upkeep, and is asked again soon. Nothing has failed.
    pub(crate) fn in_progress(&mut self, upkeep: Upkeep) {
        self.wait_for_next();
        self.unfinished = Some(upkeep);
        self.not_before = Some(Instant::now() + backoff::delay(FailureClass::InProgress, 1, &mut rand::rng()));
    }

    /// Failed upkeep is not retried before its next regular time.
    pub(crate) fn wait_for_next(&mut self) {
        (self.failures, self.not_before, self.unfinished) = (0, None, None);
    }

    pub(crate) fn succeeded(&mut self) {
        self.wait_for_next();
        self.last_note = None;
    }

    /// Keys were replaced.
    pub(crate) fn keys_replaced(&mut self) {
        self.replacements.note();
    }

    /// How long keys must not be replaced.
    pub(crate) fn replacement_in(&self) -> Duration {
        self.replacements.wait()
    }

    /// The ConfigMap was written again.
    pub(crate) fn repaired(&mut self) {
        self.repairs.note();
    }

    /// How long the ConfigMap must not be written again.
    pub(crate) fn repair_in(&self) -> Duration {
        self.repairs.wait()
    }

    /// Other access was recorded.
    pub(crate) fn edited(&mut self) {
        self.edits.note();
    }

    /// Whether settings that the cache does not have whole were compared: nothing is left to be applied.
    pub(crate) fn is_settled(&self, settings: u64) -> bool {
        self.settled == Some(settings)
    }

    pub(crate) fn settled(&mut self, settings: u64) {
        self.settled = Some(settings);
    }

    /// How long it must not be changed again.
    pub(crate) fn edit_in(&self) -> Duration {
        self.edits.wait()
    }

    /// The store is asked to delete unused keys. That it is asked again while it works does not count.
    pub(crate) fn searches_for_keys(&mut self) {
        if self.unfinished.is_none() {
            self.key_searches.note();
        }
    }

    /// How long unused keys must not be searched for.
    pub(crate) fn key_search_in(&self) -> Duration {
        self.key_searches.wait()
    }

    /// New keys that are to be tried now, before anything else.
    pub(crate) fn pending_key(&self) -> Option<AppCredentials> {
        self.pending_key.as_ref().filter(|pending_key| !pending_key.denied).map(|pending_key| pending_key.keys.clone())
    }

    /// New keys that the store has denied.
    pub(crate) fn denied_key(&self) -> Option<AppCredentials> {
        self.pending_key.as_ref().filter(|pending_key| pending_key.denied).map(|pending_key| pending_key.keys.clone())
    }

    /// Whether the user of a bound claim requests another attempt. The annotation's value at the first call counts as
    /// answered, so that a restart is not a request.
    pub(crate) fn take_retry_request(&mut self, retry: Option<&str>) -> bool {
        let asked = hash(retry.unwrap_or_default());
        match self.retried {
            Some(answered) if retry.is_some() => answered != asked,
            _ => {
                self.retried = Some(asked);
                false
            }
        }
    }

    /// The request was answered.
    pub(crate) fn retried(&mut self, retry: Option<&str>) {
        self.retried = Some(hash(retry.unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_restart_checks_are_spread_over_the_interval() {
        let hour = Duration::from_secs(3600);
        let first: Vec<_> = (0..1000).filter_map(|_| UpkeepTimes::default().check_in(Some(hour))).collect();
        assert_eq!(first.len(), 1000);
        for quarter in 0..4 {
            let within = |wait: &&Duration| (hour * quarter / 4..hour * (quarter + 1) / 4).contains(*wait);
            let count = first.iter().filter(within).count();
            assert!((150..=350).contains(&count), "{count} of 1000 in quarter {quarter}");
        }
        let mut times = UpkeepTimes::default();
        times.checked(Some(hour));
        let next = times.check_in(Some(hour)).unwrap();
        assert!(next >= hour * 9 / 10 && next <= hour * 11 / 10, "{next:?}");
        assert_eq!(UpkeepTimes::default().check_in(None), None, "never, if it is turned off");
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_work_of_the_store_is_due_again_soon() {
        let hour = Some(Duration::from_secs(3600));
        let mut times = UpkeepTimes::default();
        for every in [hour, None] {
            times.checked(hour);
            for _ in 0..20 {
                times.searches_for_keys();
                times.in_progress(Upkeep::Check);
                assert!(times.is_unfinished());
                let wait = times.failed_in();
                assert!((4..=6).contains(&wait.as_secs()), "{wait:?}");
                assert_eq!(times.check_in(every), Some(Duration::ZERO));
            }
            assert_eq!(times.key_search_in(), Duration::ZERO, "asked once");
            times.succeeded();
            assert_eq!(times.failed_in(), Duration::ZERO);
            assert_ne!(times.check_in(every), Some(Duration::ZERO));
        }
        times.in_progress(Upkeep::Rotate);
        assert_ne!(times.check_in(hour), Some(Duration::ZERO), "the notes on keys say that it is due");
        assert!(times.failed(FailureClass::Retryable, "note") && times.failed_in() <= Duration::from_secs(1));
        assert!(!times.is_unfinished());
    }

    #[test]
    fn an_interval_that_is_too_long_for_the_clock_means_never() {
        for every in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
            let mut times = UpkeepTimes::default();
            times.checked(Some(every));
            let _ = times.check_in(Some(every));
        }
    }

    #[test]
    fn a_bound_claim_asks_again_until_it_is_answered() {
        let mut times = UpkeepTimes::default();
        assert!(!times.take_retry_request(Some("1")), "it was there before");
        assert!(times.take_retry_request(Some("2")) && times.take_retry_request(Some("2")));
        times.retried(Some("2"));
        assert!(!times.take_retry_request(Some("2")) && !times.take_retry_request(None));
        assert!(times.take_retry_request(Some("2")), "it was removed in between");
    }
}
