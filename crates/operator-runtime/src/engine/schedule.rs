//! The times of one object.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two attempts that somebody requests.
const REQUEST_GAP: Duration = Duration::from_secs(5);

/// Longest wait, so that any can be added to a time.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What an attempt depends on, as hashes. While it stays the same, an object waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inputs {
    state: u64,
    requests: u64,
}

impl Inputs {
    /// `state`: what decides about the result. `requests`: what only requests another attempt, such as an annotation.
    pub fn of(state: &impl Hash, requests: &impl Hash) -> Self {
        Self { state: hash(state), requests: hash(requests) }
    }
}

/// A hash that is the same for as long as this process runs.
pub fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// When one object is processed again.
#[derive(Debug, Default)]
pub struct Schedule {
    /// What the last attempt saw; `None` before the first one.
    inputs: Option<Inputs>,
    /// See [`failures`](Self::failures).
    failures: u32,
    not_before: Option<Instant>,
    /// Something that the object waits for has changed since the attempt began.
    woken: bool,
    /// When somebody last requested another attempt.
    requested_at: Option<Instant>,
    /// When to recheck the object even if nothing changes.
    recheck_at: Option<Instant>,
    /// Its version after the last write by this process, until the cache shows it.
    written: Option<u64>,
}

impl Schedule {
    /// How much longer the object has to wait. Changed inputs end the wait, and reset the backoff; then `on_change` is
    /// called.
    pub fn remaining(&mut self, inputs: Inputs, on_change: impl FnOnce()) -> Option<Duration> {
        let now = Instant::now();
        if self.inputs != Some(inputs) {
            if self.inputs.is_some_and(|known| known.state == inputs.state) {
                let left = self.requested_at.map(|at| (at + REQUEST_GAP).saturating_duration_since(now));
                if let Some(left) = left.filter(|left| !left.is_zero()) {
                    return Some(left);
                }
                self.requested_at = Some(now);
            }
            (self.inputs, self.not_before, self.failures) = (Some(inputs), None, 0);
            on_change();
        }
        let left = self.not_before?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// An attempt begins; returns its number, from 1.
    pub fn begin(&mut self, inputs: Inputs) -> u32 {
        if self.inputs.replace(inputs) != Some(inputs) {
            self.failures = 0;
        }
        self.woken = false;
        self.failures.saturating_add(1)
    }

    /// The attempt failed: `backoff` gets the number of failures in a row. Returns the wait before the next attempt; zero
    /// if something changed while it ran.
    pub fn failed(&mut self, backoff: impl FnOnce(u32) -> Duration) -> Duration {
        if self.woken {
            return Duration::ZERO;
        }
        self.failures = self.failures.saturating_add(1);
        self.set_wait(backoff(self.failures))
    }

    /// The same, with a wait that does not grow, and does not count as a failure.
    pub fn set_wait(&mut self, wait: Duration) -> Duration {
        if self.woken {
            return Duration::ZERO;
        }
        self.defer(wait);
        wait
    }

    /// The object waits, unless something that it waits for changes.
    pub fn defer(&mut self, wait: Duration) {
        self.not_before = Instant::now().checked_add(wait.min(LONGEST_WAIT));
    }

    /// Failures in a row with the same inputs.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Progress, or success: after the next failure, the wait is the shortest again.
    pub fn progressed(&mut self) {
        self.failures = 0;
    }

    /// Ends the wait; what the running attempt has read may be old.
    pub fn wake(&mut self) {
        (self.woken, self.failures) = (true, 0);
        self.stop_waiting();
    }

    /// Ends the wait, and nothing else.
    pub fn stop_waiting(&mut self) {
        self.not_before = None;
    }

    /// What changed is what the running attempt has read.
    pub fn has_read_change(&mut self) {
        self.woken = false;
    }

    pub(super) fn recheck_in(&mut self, wait: Option<Duration>) -> Option<Instant> {
        self.recheck_at = wait.and_then(|wait| Instant::now().checked_add(wait));
        self.recheck_at
    }

    /// Whether the time of the recheck has come. True only once.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.recheck_at.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn recheck_at(&self) -> Option<Instant> {
        self.recheck_at
    }

    /// The resource version of the object after the last write, until the cache shows it.
    pub fn written(&self) -> Option<u64> {
        self.written
    }

    pub(super) fn wrote(&mut self, version: u64) {
        self.written = self.written.max(Some(version));
    }

    /// The cache shows the object as it is, whatever its version: versions decrease when the data of the API server are
    /// restored.
    pub fn forget_write(&mut self) {
        self.written = None;
    }

    /// Whether the cache shows the object as it was before the last write.
    pub(super) fn is_behind(&mut self, shown: Option<u64>) -> bool {
        let is_behind = self.written.zip(shown).is_some_and(|(written, shown)| shown < written);
        if !is_behind {
            self.written = None;
        }
        is_behind
    }

    /// After a success: everything but the recheck and the version is reset.
    pub fn succeeded(&mut self) {
        let Self { recheck_at, written, .. } = *self;
        *self = Self { recheck_at, written, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn inputs(state: &str) -> Inputs {
        Inputs::of(&state, &())
    }

    fn double(failures: u32) -> Duration {
        SECOND * 2_u32.pow(failures - 1)
    }

    fn begun() -> Schedule {
        let mut schedule = Schedule::default();
        assert_eq!(schedule.begin(inputs("a")), 1);
        schedule
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_waits_longer_each_time_until_it_succeeds() {
        let mut schedule = begun();
        for seconds in [1, 2, 4] {
            assert_eq!(schedule.failed(double), seconds * SECOND);
            assert_eq!(schedule.remaining(inputs("a"), || panic!("the same")), Some(seconds * SECOND));
            tokio::time::advance(seconds * SECOND).await;
            assert_eq!(schedule.remaining(inputs("a"), || panic!("the same")), None);
        }
        assert_eq!(schedule.begin(inputs("a")), 4);
        schedule.succeeded();
        schedule.begin(inputs("a"));
        assert_eq!(schedule.failed(double), SECOND);
        schedule.progressed();
        assert_eq!(schedule.failed(double), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn changed_inputs_end_the_wait_and_reset_the_backoff() {
        let (mut schedule, mut changes) = (begun(), 0);
        schedule.failed(double);
        schedule.failed(double);
        assert_eq!(schedule.remaining(inputs("b"), || changes += 1), None);
        assert_eq!((schedule.begin(inputs("b")), changes), (1, 1));
        assert_eq!(schedule.failed(double), SECOND);
        assert_eq!(schedule.begin(inputs("c")), 1, "also if they change while it waits for a worker");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_answered_at_once_but_not_in_a_loop() {
        let (mut schedule, asks) = (begun(), |number: u32| Inputs::of(&"a", &number));
        schedule.failed(|_| 3600 * SECOND);
        assert_eq!(schedule.remaining(asks(1), || ()), None);
        schedule.begin(asks(1));
        schedule.failed(|_| 3600 * SECOND);
        tokio::time::advance(SECOND).await;
        assert_eq!(schedule.remaining(asks(2), || ()), Some(4 * SECOND));
        tokio::time::advance(4 * SECOND).await;
        assert_eq!(schedule.remaining(asks(2), || ()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_while_an_attempt_runs_is_not_missed() {
        let mut schedule = begun();
        schedule.wake();
        assert_eq!(schedule.failed(|_| 3600 * SECOND), Duration::ZERO);
        assert_eq!(schedule.set_wait(SECOND), Duration::ZERO);
        assert_eq!(schedule.remaining(inputs("a"), || ()), None);
        schedule.begin(inputs("a"));
        schedule.wake();
        schedule.has_read_change();
        assert_eq!(schedule.failed(double), SECOND, "it has read what changed");
    }
}
