//! Waiting at a store that limits the rate of calls.
//!
//! A verb that waits for the rate limit occupies no worker: [`wait`] notifies the controller, which gives the worker to
//! other stores meanwhile, and does not count the time.

use parking_lot::Mutex;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

tokio::task_local! {
    static CLOCK: AttemptClock;
}

/// Whether the verb that asks is the check of a bound claim: among the calls that wait, those of checks come last.
pub fn is_check() -> bool {
    CLOCK.try_with(|clock| clock.is_check).unwrap_or(false)
}

/// Whether the verb that is dropped was given up because it waited too long for the rate limit.
pub(super) fn has_waited_too_long() -> bool {
    CLOCK.try_with(|clock| clock.waits.lock().all() >= clock.longest_waits()).unwrap_or(false)
}

/// Awaits a permit of the rate limit. Meanwhile the verb occupies no worker, and the time counts against none of its
/// limits.
///
/// A verb that has waited for three minutes in all is dropped, and called again later.
///
/// This is for waits of which the store does not know, such as those of a rate limiter; an answer of the store is awaited
/// as usual.
pub async fn wait<T>(turn: impl Future<Output = T>) -> T {
    let _waiting = CLOCK.try_with(AttemptClock::clone).ok().map(Waiting::begin);
    turn.await
}

/// What the controller knows about a verb.
#[doc(hidden)]
#[derive(Clone)]
pub struct AttemptClock {
    is_check: bool,
    waits: Arc<Mutex<Waits>>,
    /// Called with true when the work begins to wait, and with false when it continues.
    on_wait: Arc<dyn Fn(bool) + Send + Sync>,
}

/// Longest sum of the waits of one verb for the rate limit, and of those of a check. It is longer than a throttled call
/// is repeated, so that the check can name that call.
const LONGEST_WAITS: Duration = Duration::from_secs(180);
const CHECK_WAITS: Duration = Duration::from_secs(45);

/// Why work was given up.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// It took too long.
    Working,
    /// It waited too long for the store's rate limit.
    Waiting,
}

#[derive(Debug, Default)]
struct Waits {
    /// How many calls of this work wait now.
    now: usize,
    /// Since when.
    since: Option<Instant>,
    /// Earlier waits together.
    before: Duration,
}

impl Waits {
    fn all(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl AttemptClock {
    pub fn new(is_check: bool, on_wait: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self { is_check, waits: Arc::default(), on_wait: Arc::new(on_wait) }
    }

    fn longest_waits(&self) -> Duration {
        if self.is_check { CHECK_WAITS } else { LONGEST_WAITS }
    }

    /// Does the work within `limit`. Its waits do not count, but together they have a limit, too: what was read
    /// before must not be too old, and the claim may have changed.
    ///
    /// # Errors
    /// Which of the limits it has reached.
    pub async fn within<T>(self, limit: Duration, work: impl Future<Output = T>) -> Result<T, Deadline> {
        let (began, waits) = (Instant::now(), Arc::clone(&self.waits));
        let longest = self.longest_waits();
        let mut work = pin!(CLOCK.scope(self, work));
        loop {
            // Either may come later, when it waits.
            let (waited, now) = (waits.lock().all(), Instant::now());
            let end = (began + limit + waited).min(now + longest.saturating_sub(waited));
            if let Ok(done) = tokio::time::timeout_at(end, work.as_mut()).await {
                return Ok(done);
            }
            let waited = waits.lock().all();
            if waited >= longest {
                return Err(Deadline::Waiting);
            }
            if began.elapsed() >= limit + waited {
                return Err(Deadline::Working);
            }
        }
    }
}

/// A wait, until this is dropped.
struct Waiting(AttemptClock);

impl Waiting {
    fn begin(work: AttemptClock) -> Self {
        let first = {
            let mut waits = work.waits.lock();
            waits.now += 1;
            if waits.now == 1 {
                waits.since = Some(Instant::now());
            }
            waits.now == 1
        };
        if first {
            (work.on_wait)(true);
        }
        Self(work)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let last = {
            let mut waits = self.0.waits.lock();
            waits.now -= 1;
            if waits.now == 0 {
                waits.before = waits.all();
                waits.since = None;
            }
            waits.now == 0
        };
        if last {
            (self.0.on_wait)(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn work() -> AttemptClock {
        AttemptClock::new(false, |_| {})
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_the_rate_limit_do_not_count() {
        let slow = async {
            sleep(SECOND).await;
            wait(sleep(100 * SECOND)).await;
            tokio::join!(wait(sleep(5 * SECOND)), wait(sleep(20 * SECOND)));
            sleep(SECOND).await;
        };
        assert_eq!(work().within(3 * SECOND, slow).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_longer_is_dropped_also_after_a_wait() {
        let began = Instant::now();
        let slow = async {
            wait(sleep(10 * SECOND)).await;
            sleep(100 * SECOND).await;
        };
        assert_eq!(work().within(3 * SECOND, slow).await, Err(Deadline::Working));
        assert_eq!(began.elapsed().as_secs(), 13);
    }

    #[tokio::test(start_paused = true)]
    async fn waits_are_limited_and_checks_wait_shortest() {
        for (is_check, longest) in [(false, LONGEST_WAITS), (true, CHECK_WAITS)] {
            let began = Instant::now();
            let waits = async {
                wait(sleep(20 * SECOND)).await;
                sleep(SECOND).await;
                wait(std::future::pending::<()>()).await;
            };
            assert_eq!(AttemptClock::new(is_check, |_| {}).within(3 * SECOND, waits).await, Err(Deadline::Waiting));
            assert_eq!(began.elapsed(), longest + SECOND);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_controller_is_notified_of_the_wait() {
        let (throttled, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, now) = (Arc::clone(&throttled), Arc::clone(&throttled));
        let work = AttemptClock::new(false, move |waits| {
            if waits {
                count.fetch_add(1, Ordering::SeqCst)
            } else {
                count.fetch_sub(1, Ordering::SeqCst)
            };
        });
        let look = async {
            sleep(SECOND).await;
            seen.store(now.load(Ordering::SeqCst), Ordering::SeqCst);
            sleep(SECOND).await;
        };
        let both = async { tokio::join!(wait(look), wait(sleep(SECOND))) };
        assert!(work.within(SECOND, both).await.is_ok());
        assert_eq!((seen.load(Ordering::SeqCst), throttled.load(Ordering::SeqCst)), (1, 0));
        let dropped = AttemptClock::new(false, |_| {}).within(SECOND, async { sleep(5 * SECOND).await }).await;
        assert_eq!(dropped, Err(Deadline::Working));
    }

    #[tokio::test(start_paused = true)]
    async fn a_verb_knows_whether_it_is_a_check() {
        for expected in [false, true] {
            let clock = AttemptClock::new(expected, |_| {});
            assert_eq!(clock.within(SECOND, async { is_check() }).await, Ok(expected));
        }
        assert!(!is_check(), "outside of any work");
    }
}
