//! How fast an account may be called. AWS limits the calls of an account to a service, and shows that only by refusing
//! some of them. One pacer for each account and service learns the rate from these refusals, and gives each call a
//! slot, in the order of their priority.
//!
//! A throttled call was not executed, so it is repeated with its next slot.
//!
//! The rate is learnt as TCP learns it (CUBIC, RFC 9438), with steps that suit the limits of AWS, some 5 to 50 calls a
//! second: after a refusal a tenth less than what was accepted in the last seconds, or half if nothing was accepted
//! since the last one, then growing, slowly near the rate at which calls were refused, and fast after it. The SDK's own
//! adaptive retries are not used: they know a client and not an account, delay each call when it asks, so that later ones
//! cannot go first, and fall by a third.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use bucket_provisioner::store::rate_wait::{self, Priority};

/// What remains of the rate after a refusal.
const FALL: f64 = 0.9;
/// How fast the rate grows, relative to what it was; see [`Limit::rate`].
const GROWTH: f64 = 0.004;
/// Calls a second that are tried, whatever was refused.
const SLOWEST: f64 = 0.25;
/// Calls a second from which on nothing is limited.
const FASTEST: f64 = 1000.0;
/// How long accepted calls count.
const MEMORY: Duration = Duration::from_secs(2);
/// How late a slot can be used without delaying the next one.
const SLACK: Duration = Duration::from_millis(50);
/// How long a pacer is kept that nobody uses.
const KEPT: Duration = Duration::from_secs(60);

/// What shares a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// All of IAM, and the account or, if it is not known, its credentials.
    Iam { endpoint: Option<String>, account: String },
    /// The calls of S3 about buckets.
    S3 { endpoint: Option<String>, region: String, account: String },
    /// The calls about the objects of a bucket: those that delete them, or all others.
    Objects { endpoint: Option<String>, bucket: String, deletes: bool },
}

#[derive(Debug, Default)]
pub(crate) struct Pacers(Mutex<HashMap<Scope, Arc<Pacer>>>);

impl Pacers {
    pub(crate) fn of(&self, scope: Scope) -> Arc<Pacer> {
        let mut pacers = self.0.lock();
        if let Some(pacer) = pacers.get(&scope) {
            return Arc::clone(pacer);
        }
        let now = Instant::now();
        pacers.retain(|_, pacer| Arc::strong_count(pacer) > 1 || pacer.0.lock().rate.is_used(now));
        Arc::clone(pacers.entry(scope).or_default())
    }
}

/// Gives slots to the calls that share a limit.
#[derive(Debug, Default)]
pub(crate) struct Pacer(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    rate: Rate,
    /// When the next slot is due.
    next: Option<Instant>,
    /// The queue of waiting calls, and how to wake each.
    waiting: BTreeMap<(Priority, u64), Arc<Notify>>,
    numbered: u64,
}

/// The right to call once, now.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    pacer: &'a Pacer,
    began: Instant,
}

impl Slot<'_> {
    /// The call was executed, or refused for another reason than its rate.
    pub(crate) fn accepted(self) {
        self.pacer.0.lock().rate.accepted(Instant::now());
    }

    /// The call came too early.
    pub(crate) fn refused(self) {
        self.pacer.0.lock().rate.refused(self.began, Instant::now());
    }
}

impl Pacer {
    /// Waits in the queue for the next slot.
    pub(crate) async fn acquire(&self, priority: Priority) -> Slot<'_> {
        let waiting = {
            let mut state = self.0.lock();
            if state.waiting.is_empty() && state.take(Instant::now()) {
                return self.began();
            }
            state.numbered += 1;
            let (key, wake) = ((priority, state.numbered), Arc::new(Notify::new()));
            state.waiting.insert(key, Arc::clone(&wake));
            Waiting { pacer: self, key, wake }
        };
        rate_wait::wait(waiting.over()).await;
        self.began()
    }

    fn began(&self) -> Slot<'_> {
        Slot { pacer: self, began: Instant::now() }
    }
}

impl State {
    /// Takes the next slot, if it is due.
    fn take(&mut self, now: Instant) -> bool {
        let Some(rate) = self.rate.now(now) else {
            self.next = None;
            return true;
        };
        let next = self.next.unwrap_or(now);
        if next > now {
            return false;
        }
        let earliest = now.checked_sub(SLACK).map_or(next, |earliest| next.max(earliest));
        self.next = Some(earliest + Duration::from_secs_f64(1.0 / rate));
        true
    }

    fn wake_first(&self) {
        if let Some(wake) = self.waiting.values().next() {
            wake.notify_one();
        }
    }
}

/// An entry of the queue, until this is dropped.
struct Waiting<'a> {
    pacer: &'a Pacer,
    key: (Priority, u64),
    wake: Arc<Notify>,
}

impl Waiting<'_> {
    async fn over(self) {
        loop {
            let next = {
                let mut state = self.pacer.0.lock();
                let is_first = state.waiting.keys().next() == Some(&self.key);
                if is_first && state.take(Instant::now()) {
                    return;
                }
                state.next.filter(|_| is_first)
            };
            match next {
                Some(next) => tokio::select! {
                    () = sleep_until(next) => {}
                    // The head of the queue has changed.
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.pacer.0.lock();
        state.waiting.remove(&self.key);
        state.wake_first();
    }
}

/// What is known about the rate that is accepted. Pure: the time is a parameter.
#[derive(Debug, Default)]
struct Rate {
    /// The calls that were accepted lately.
    accepted: VecDeque<Instant>,
    limit: Option<Limit>,
}

/// A refusal for the rate, which limits the calls after it.
#[derive(Debug, Clone, Copy)]
struct Limit {
    /// Calls a second at which it came.
    at: f64,
    since: Instant,
    /// Whether a call was accepted since then.
    eased: bool,
}

impl Limit {
    /// Calls a second: a cubic function of time, which is flat where the rate is what it was, some three seconds later.
    fn rate(self, now: Instant) -> f64 {
        let recovery = ((1.0 - FALL) / GROWTH).cbrt();
        let past = now.saturating_duration_since(self.since).as_secs_f64() - recovery;
        self.at * (1.0 + GROWTH * past.powi(3))
    }
}

impl Rate {
    /// Calls a second; `None` for any number.
    fn now(&mut self, now: Instant) -> Option<f64> {
        let rate = self.limit?.rate(now);
        if rate > FASTEST {
            self.limit = None;
        }
        Some(rate.max(SLOWEST)).filter(|_| self.limit.is_some())
    }

    fn accepted(&mut self, now: Instant) {
        self.forget(now);
        self.accepted.push_back(now);
        if let Some(limit) = &mut self.limit {
            limit.eased = true;
        }
    }

    /// A call that began at this time was refused.
    fn refused(&mut self, began: Instant, now: Instant) {
        // One refusal counts, and not those of the calls that were under way with it.
        if self.limit.is_some_and(|limit| began <= limit.since) {
            return;
        }
        self.forget(now);
        // Over the last second at least: a service that was not called for a while accepts many at once.
        let past = self.accepted.front().map_or(0.0, |first| (now - *first).as_secs_f64()).max(1.0);
        #[allow(clippy::cast_precision_loss, reason = "there are not so many")]
        let seen = self.accepted.len() as f64 / past;
        // If nothing was accepted meanwhile, the rate is far too high.
        let ease = if self.limit.is_some_and(|limit| !limit.eased) { 0.5 } else { 1.0 };
        let at = self.now(now).map_or(seen, |rate| rate.min(seen) * ease).max(SLOWEST);
        self.limit = Some(Limit { at, since: now, eased: false });
    }

    fn forget(&mut self, now: Instant) {
        while self.accepted.front().is_some_and(|at| now.saturating_duration_since(*at) > MEMORY) {
            self.accepted.pop_front();
        }
    }

    /// Whether there is something to remember.
    fn is_used(&mut self, now: Instant) -> bool {
        self.now(now).is_some() || self.accepted.back().is_some_and(|at| now.saturating_duration_since(*at) < KEPT)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::stream::{self, StreamExt as _};
    use rstest::rstest;
    use tokio::time::sleep;

    use super::*;

    /// An account that accepts so many calls a second, and at once what it accepts in a second.
    struct Account {
        limit: f64,
        tokens: f64,
        at: Instant,
        sent: usize,
    }

    impl Account {
        fn new(limit: f64) -> Arc<Mutex<Self>> {
            Arc::new(Mutex::new(Self { limit, tokens: limit, at: Instant::now(), sent: 0 }))
        }

        fn accepts(&mut self) -> bool {
            self.sent += 1;
            self.tokens = (self.tokens + self.at.elapsed().as_secs_f64() * self.limit).min(self.limit);
            self.at = Instant::now();
            let accepts = self.tokens >= 1.0;
            self.tokens -= f64::from(u8::from(accepts));
            accepts
        }
    }

    /// Makes calls, 32 at a time, each until it is accepted; returns how many were sent.
    async fn make(pacer: &Pacer, account: &Mutex<Account>, calls: usize, latency: Duration) -> usize {
        let before = account.lock().sent;
        let call = |_| async {
            loop {
                let slot = pacer.acquire(Priority::current()).await;
                sleep(latency / 2).await;
                let accepted = account.lock().accepts();
                sleep(latency / 2).await;
                if accepted {
                    return slot.accepted();
                }
                slot.refused();
            }
        };
        stream::iter(0..calls).for_each_concurrent(32, call).await;
        account.lock().sent - before
    }

    #[rstest]
    #[tokio::test(start_paused = true)]
    async fn the_pacer_uses_nine_tenths_of_the_limit(
        #[values(5.0, 15.0, 50.0)] limit: f64,
        #[values(0, 50, 300)] latency: u64,
    ) {
        let (pacer, account) = (Pacer::default(), Account::new(limit));
        let (began, calls) = (Instant::now(), 1500);
        let sent = make(&pacer, &account, calls, Duration::from_millis(latency)).await;
        let (took, needed) = (began.elapsed().as_secs_f64(), calls as f64 / limit);
        assert!(took <= needed / 0.9, "{took} s, where {needed} would do");
        assert!(sent * 10 <= calls * 11, "{sent} calls for {calls}");
    }

    #[rstest]
    #[tokio::test(start_paused = true)]
    async fn a_limit_that_changes_is_learnt(#[values((15.0, 5.0), (5.0, 50.0))] limits: (f64, f64)) {
        let (pacer, account, latency) = (Pacer::default(), Account::new(limits.0), Duration::from_millis(50));
        let (began, calls) = (Instant::now(), 1000);
        let first = make(&pacer, &account, calls, latency).await;
        account.lock().limit = limits.1;
        let sent = first + make(&pacer, &account, calls, latency).await;
        let (took, needed) = (began.elapsed().as_secs_f64(), 1000.0 / limits.0 + 1000.0 / limits.1);
        assert!(took <= needed / 0.9, "{took} s, where {needed} would do");
        assert!(sent * 10 <= 2 * calls * 11, "{sent} calls for {calls}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_where_nothing_was_refused_nor_long_after() {
        let (pacer, began) = (Pacer::default(), Instant::now());
        for _ in 0..10_000 {
            pacer.acquire(Priority::current()).await.accepted();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        pacer.acquire(Priority::current()).await.refused();
        sleep(Duration::from_secs(100)).await;
        let began = Instant::now();
        for _ in 0..100 {
            pacer.acquire(Priority::current()).await.accepted();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    /// When it accepts calls again, it is soon used again.
    #[tokio::test(start_paused = true)]
    async fn an_account_that_throttles_everything_is_retried_slowly() {
        let (pacer, account) = (Pacer::default(), Account::new(0.0));
        let latency = Duration::from_millis(50);
        let refused = tokio::time::timeout(Duration::from_secs(100), make(&pacer, &account, 100, latency)).await;
        assert!(refused.is_err());
        let sent = account.lock().sent;
        assert!((40..70).contains(&sent), "{sent} in 100 s, 32 of them at once");
        account.lock().limit = 20.0;
        let began = Instant::now();
        make(&pacer, &account, 300, latency).await;
        assert!(began.elapsed().as_secs_f64() < 40.0, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn slots_are_given_by_priority_and_no_waiter_is_lost() {
        use bucket_provisioner::store::rate_wait::AttemptClock;

        let pacer = Arc::new(Pacer::default());
        pacer.acquire(Priority::current()).await.refused();
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        let mut works = Vec::new();
        for _ in 0..5 {
            sleep(Duration::from_millis(1)).await;
            works.push(AttemptClock::new(false, |_| {}));
        }
        // Those that began last ask first; one gives up.
        for (number, work) in works.into_iter().enumerate().rev() {
            let (pacer, done) = (Arc::clone(&pacer), Arc::clone(&done));
            let ask = async move {
                pacer.acquire(Priority::current()).await.accepted();
                done.lock().push(number);
            };
            let limit = Duration::from_secs(1);
            waiting.push(tokio::spawn(async move { work.within(limit, ask).await }));
            sleep(Duration::from_millis(1)).await;
        }
        waiting.remove(2).abort();
        for one in waiting {
            one.await.unwrap().unwrap();
        }
        assert_eq!(*done.lock(), [4, 0, 1, 3], "nobody waited before 4");
        assert!(pacer.0.lock().waiting.is_empty());
    }
}
