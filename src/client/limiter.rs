//! How fast an account may be called. AWS limits the calls of an account to a service, and shows that only by throttling
//! some of them. There is one limiter for each account and service, for IAM one for reads and one for changes. While none is throttled, few are in flight at first, and
//! each that ends lets two follow, so that the limit is not met by all at once. Then calls are sent one after another,
//! at a rate that falls by a quarter with a throttled call and grows until the next one.
//!
//! A throttled call was not executed, so it is repeated, behind the calls that wait, and later each time: it may be throttled
//! for its own reasons. Checks of bound claims come last.
//!
//! The SDK's adaptive retries do not fit: they know a client and not an account, and cannot let other calls pass.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use bucket_provisioner::store::rate_wait;

/// Calls that may be in flight before any has ended: more than one claim makes at the same time.
const IN_FLIGHT: usize = 8;
/// Calls a second after the first throttled call: more than most accounts allow, because a rate falls faster than it grows.
const FIRST: f64 = 50.0;
/// What remains of the rate after a throttled call.
const FALL: f64 = 0.75;
/// Growth of the rate since then, relative to what it was, per second squared: slow at first, because a call that is
/// throttled is wasted, and fast in the end, because the limit may have been raised.
const GROWTH: f64 = 0.01;
/// Calls a second that are sent, whatever is throttled: some stores throttle calls at any rate.
const SLOWEST: f64 = 2.0;
/// Calls a second from which on nothing is limited.
const FASTEST: f64 = 1000.0;
/// How late a call can be sent without delaying the next one.
const SLACK: Duration = Duration::from_millis(50);

/// After this time without a call, few are in flight at first again.
const IDLE: Duration = Duration::from_secs(5);

/// A call is given up that is throttled again after this time.
const REPEATED: Duration = Duration::from_secs(30);
/// The wait before it is repeated, doubled up to six times.
const BACKOFF: Duration = Duration::from_millis(100);

/// The limiters, by what shares a limit.
#[derive(Debug, Default)]
pub(crate) struct Limiters(Mutex<HashMap<String, Arc<Limiter>>>);

impl Limiters {
    pub(crate) fn of(&self, scope: String) -> Arc<Limiter> {
        let mut limiters = self.0.lock();
        if let Some(limiter) = limiters.get(&scope) {
            return Arc::clone(limiter);
        }
        // Each bucket has its own, so there are many. Those that are idle know nothing.
        if limiters.len() == limiters.capacity() {
            limiters.retain(|_, limiter| Arc::strong_count(limiter) > 1 || !limiter.state.lock().is_idle());
        }
        Arc::clone(limiters.entry(scope).or_default())
    }
}

/// Delays the calls that share a limit.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    state: Mutex<State>,
    /// The head of the queue, or the number of calls in flight, may have changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    /// Calls that were not throttled and have ended, with whatever result, since there was none for a while.
    ended: usize,
    /// When the last call ended.
    last: Option<Instant>,
    /// The rate after the last throttled call, and when that was.
    limit: Option<(f64, Instant)>,
    /// When the next call may be sent.
    next: Option<Instant>,
    /// Calls that wait, checks last: whether it is one, and its number.
    queue: BTreeSet<(bool, u64)>,
    numbered: u64,
}

impl Limiter {
    /// Waits until a call may be sent. `ceiling`: calls a second, whatever is accepted.
    pub(crate) async fn acquire(&self, ceiling: Option<u32>) -> Sent<'_> {
        let waiting = self.enqueue(ceiling.map(f64::from));
        // Before a rate is known, only the service can be slow.
        if !waiting.starts_slowly().await {
            rate_wait::wait(waiting.over()).await;
        }
        Sent { limiter: self, at: Instant::now() }
    }

    fn enqueue(&self, ceiling: Option<f64>) -> Waiting<'_> {
        let mut state = self.state.lock();
        state.numbered += 1;
        let key = (rate_wait::is_check(), state.numbered);
        state.queue.insert(key);
        Waiting { limiter: self, key, ceiling }
    }
}

impl State {
    /// Calls a second; `None` for any number.
    fn rate(&self) -> Option<f64> {
        let (rate, since) = self.limit?;
        let rate = rate * (1.0 + GROWTH * since.elapsed().as_secs_f64().powi(2));
        (rate < FASTEST).then_some(rate)
    }

    /// Whether it knows nothing of its service.
    fn is_idle(&self) -> bool {
        self.rate().is_none() && self.in_flight == 0 && self.last.is_none_or(|last| last.elapsed() > IDLE)
    }
}

/// A call in the queue, until this is dropped.
struct Waiting<'a> {
    limiter: &'a Limiter,
    key: (bool, u64),
    ceiling: Option<f64>,
}

/// Why a call is not sent yet.
struct NotYet {
    /// There is a rate.
    is_limited: bool,
    /// When to try again; otherwise when something has changed.
    until: Option<Instant>,
}

impl Waiting<'_> {
    /// Whether the call may be sent now.
    fn take(&self) -> Result<(), NotYet> {
        let mut state = self.limiter.state.lock();
        if state.is_idle() {
            state.ended = 0;
        }
        // A limiter with a ceiling is of its own, and no service throttles it.
        let rate = self.ceiling.or_else(|| state.rate());
        let not_before = |until| Err(NotYet { is_limited: rate.is_some(), until });
        if state.queue.first() != Some(&self.key) {
            return not_before(None);
        }
        match rate {
            None if state.in_flight >= IN_FLIGHT + state.ended => return not_before(None),
            None => {}
            Some(rate) => {
                let now = Instant::now();
                let next = state.next.unwrap_or(now);
                if next > now {
                    return not_before(Some(next));
                }
                let earliest = now.checked_sub(SLACK).unwrap_or(now);
                state.next = Some(next.max(earliest) + Duration::from_secs_f64(1.0 / rate));
            }
        }
        state.in_flight += 1;
        Ok(())
    }

    /// Waits as long as nothing is throttled; false if the rate decides when the call is sent.
    async fn starts_slowly(&self) -> bool {
        loop {
            let changed = self.limiter.changed.notified();
            match self.take() {
                Ok(()) => return true,
                Err(NotYet { is_limited: true, .. }) => return false,
                Err(_) => changed.await,
            }
        }
    }

    async fn over(&self) {
        loop {
            let changed = self.limiter.changed.notified();
            match self.take() {
                Ok(()) => return,
                Err(NotYet { until: None, .. }) => changed.await,
                Err(NotYet { until: Some(next), .. }) => sleep_until(next).await,
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.limiter.state.lock().queue.remove(&self.key);
        self.limiter.changed.notify_waiters();
    }
}

/// A call in flight, until this is dropped.
pub(crate) struct Sent<'a> {
    limiter: &'a Limiter,
    pub(crate) at: Instant,
}

impl Sent<'_> {
    /// The service has answered.
    pub(crate) fn answered(self, is_throttled: bool) {
        let mut state = self.limiter.state.lock();
        if !is_throttled {
            state.ended = state.ended.saturating_add(1);
        } else if state.limit.is_none_or(|(_, since)| self.at > since) {
            // Calls that were in flight at the same time are one event.
            let rate = state.rate().map_or(FIRST, |rate| rate * FALL);
            state.limit = Some((rate.max(SLOWEST), Instant::now()));
        }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.limiter.state.lock();
            state.in_flight -= 1;
            state.last = Some(Instant::now());
        }
        self.limiter.changed.notify_waiters();
    }
}

/// The waits of one call that is throttled.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    waits: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Waits before the call is repeated; false, at once, if it is given up.
    pub(crate) async fn wait(&mut self) -> bool {
        let now = Instant::now();
        if now > *self.until.get_or_insert(now + REPEATED) {
            return false;
        }
        rate_wait::wait(sleep(BACKOFF * 2_u32.pow(self.waits.min(6)))).await;
        self.waits += 1;
        true
    }
}
