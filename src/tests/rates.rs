//! The rate limiter against simulated services, with simulated time.
#![allow(clippy::cast_precision_loss, reason = "numbers of calls")]

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use rstest::rstest;
use tokio::time::{Instant, sleep, timeout};

use crate::client::limiter::{Backoff, Limiter, Limiters};
use bucket_provisioner::store::rate_wait::{AttemptClock, Deadline};

/// Claims that are served at the same time, of those that wait.
const AT_ONCE: usize = 100;
/// Calls of a claim, one after another.
const CALLS: usize = 6;

/// A service of AWS: which calls it executes. It throttles all others.
struct Service {
    limit: Limit,
    latency: Duration,
    sent: usize,
    /// When calls were executed.
    executed: Vec<Instant>,
}

enum Limit {
    /// Calls a second. As many are executed at once, if there was none for a second.
    Rate {
        limit: f64,
        tokens: f64,
        at: Instant,
    },
    /// Every third call is throttled, on average. The state of a generator of random numbers.
    Third(u64),
    None,
}

impl Limit {
    fn rate(limit: f64) -> Self {
        Self::Rate { limit, tokens: limit, at: Instant::now() }
    }

    fn executes(&mut self) -> bool {
        match self {
            Self::Rate { limit, tokens, at } => {
                *tokens = (*tokens + at.elapsed().as_secs_f64() * *limit).min(*limit);
                *at = Instant::now();
                let executes = *tokens >= 1.0;
                *tokens -= f64::from(u8::from(executes));
                executes
            }
            Self::Third(state) => {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (*state >> 33) % 3 != 0
            }
            Self::None => true,
        }
    }
}

impl Service {
    fn new(limit: Limit, latency: u64) -> Mutex<Self> {
        let latency = Duration::from_millis(latency);
        Mutex::new(Self { limit, latency, sent: 0, executed: Vec::new() })
    }

    /// Calls of the time from `since` on, relative to a limit.
    fn share(&self, since: Instant, limit: f64) -> f64 {
        let executed = self.executed.iter().filter(|at| **at >= since).count();
        executed as f64 / limit / since.elapsed().as_secs_f64()
    }
}

async fn call(limiter: &Limiter, service: &Mutex<Service>) {
    let (latency, mut backoff) = (service.lock().latency, Backoff::default());
    loop {
        let sent = limiter.acquire(None).await;
        sleep(latency / 2).await;
        let executes = {
            let mut service = service.lock();
            let executes = service.limit.executes();
            service.sent += 1;
            service.executed.extend(executes.then(Instant::now));
            executes
        };
        sleep(latency / 2).await;
        sent.answered(!executes);
        if executes {
            return;
        }
        backoff.wait().await;
    }
}

/// Serves so many claims; returns how many calls were sent for each that was needed, and how long it took.
async fn serve(limiter: &Limiter, service: &Mutex<Service>, claims: usize) -> (f64, Duration) {
    let (before, began) = (service.lock().sent, Instant::now());
    let claim = |_| async {
        for _ in 0..CALLS {
            call(limiter, service).await;
        }
    };
    stream::iter(0..claims).for_each_concurrent(AT_ONCE, claim).await;
    ((service.lock().sent - before) as f64 / (claims * CALLS) as f64, began.elapsed())
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn nine_tenths_of_the_rate_are_used(#[values(5.0, 15.0, 50.0)] limit: f64, #[values(0, 20, 100)] latency: u64) {
    let (limiter, service) = (Limiter::default(), Service::new(Limit::rate(limit), latency));
    let began = Instant::now();
    let (calls, _) = serve(&limiter, &service, 200).await;
    // A service that was idle executes more in its first second.
    let share = service.lock().share(began + Duration::from_secs(2), limit);
    assert!(share >= 0.9, "{share} of the rate");
    assert!(calls <= 1.1, "{calls} calls for each that was needed");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn a_rate_that_changes_is_learnt(#[values((15.0, 5.0), (5.0, 50.0), (50.0, 5.0))] rates: (f64, f64)) {
    let (limiter, service) = (Limiter::default(), Service::new(Limit::rate(rates.0), 50));
    let (before, took) = serve(&limiter, &service, 150).await;
    service.lock().limit = Limit::rate(rates.1);
    let (after, more) = serve(&limiter, &service, 150).await;
    let needed = (150 * CALLS) as f64 * (1.0 / rates.0 + 1.0 / rates.1);
    let share = needed / (took + more).as_secs_f64();
    assert!(share >= 0.9, "{share} of the rates");
    assert!(before + after <= 2.2, "{before} and {after} calls for each that was needed");
}

#[rstest]
#[tokio::test(start_paused = true)]
async fn ten_claims_take_less_than_a_minute_if_a_third_is_throttled(#[values(1, 2, 3, 4, 5, 6, 7, 8)] seed: u64) {
    let (limiter, service) = (Limiter::default(), Service::new(Limit::Third(seed), 50));
    for _ in 0..2 {
        let (_, took) = serve(&limiter, &service, 10).await;
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_never_throttled_is_soon_called_without_a_wait() {
    let (limiter, service) = (Limiter::default(), Service::new(Limit::None, 20));
    let latencies = Duration::from_millis(20 * CALLS as u64);
    let (calls, took) = serve(&limiter, &service, AT_ONCE).await;
    assert_eq!(calls, 1.0);
    // 8, 16, 32 and 64 calls at a time.
    assert!(took <= latencies + Duration::from_millis(4 * 20), "{took:?}");
    assert_eq!(serve(&limiter, &service, AT_ONCE).await, (1.0, latencies));
    limiter.acquire(None).await.answered(true);
    sleep(Duration::from_secs(100)).await;
    let (calls, took) = serve(&limiter, &service, AT_ONCE).await;
    assert!(
        calls == 1.0 && took <= latencies + Duration::from_millis(4 * 20),
        "long after one was throttled: {took:?}"
    );
}

/// A service with room for few calls is not asked for all that wait at once.
#[rstest]
#[tokio::test(start_paused = true)]
async fn few_calls_are_throttled_until_the_rate_is_known(#[values(5.0, 15.0, 50.0)] limit: f64) {
    let (limiter, service) = (Limiter::default(), Service::new(Limit::rate(limit), 20));
    // By the second time, the first is forgotten.
    for _ in 0..2 {
        let (calls, _) = serve(&limiter, &service, AT_ONCE).await;
        assert!(calls <= 1.065, "{calls} calls for each that was needed");
        sleep(Duration::from_secs(600)).await;
    }
}

/// It is reported as one that does not respond.
#[tokio::test(start_paused = true)]
async fn a_service_that_hangs_is_not_taken_for_one_that_limits() {
    let limiter = Limiter::default();
    let _calls = futures::future::join_all((0..8).map(|_| limiter.acquire(None))).await;
    let waits = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&waits);
    let clock = AttemptClock::new(false, move |_| *counted.lock() += 1);
    assert_eq!(clock.within(Duration::from_secs(9), limiter.acquire(None)).await.err(), Some(Deadline::Working));
    assert_eq!(*waits.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_makes_room_for_the_next() {
    let limiter = Limiter::default();
    for _ in 0..3 {
        let calls = futures::future::join_all((0..8).map(|_| limiter.acquire(None))).await;
        assert!(timeout(Duration::from_secs(9), limiter.acquire(None)).await.is_err(), "none has ended");
        drop(calls);
    }
}

/// When it executes calls again, it is soon used again.
#[tokio::test(start_paused = true)]
async fn a_service_that_throttles_everything_is_called_slowly() {
    let (limiter, service) = (Limiter::default(), Service::new(Limit::rate(0.0), 50));
    assert!(timeout(Duration::from_secs(100), serve(&limiter, &service, 50)).await.is_err());
    let sent = service.lock().sent;
    assert!((200..300).contains(&sent), "{sent} in 100 s");
    service.lock().limit = Limit::rate(20.0);
    let (_, took) = serve(&limiter, &service, 50).await;
    assert!(took < Duration::from_secs(40), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn checks_are_last_and_no_call_that_waits_is_lost() {
    let limiter = Arc::new(Limiter::default());
    limiter.acquire(None).await.answered(true);
    limiter.acquire(None).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    for (number, is_check) in [true, false, false, true, false].into_iter().enumerate() {
        let (limiter, order) = (Arc::clone(&limiter), Arc::clone(&order));
        let call = async move {
            drop(limiter.acquire(None).await);
            order.lock().push(number);
        };
        let clock = AttemptClock::new(is_check, |_| {});
        calls.push(tokio::spawn(clock.within(Duration::from_secs(1), call)));
        tokio::task::yield_now().await;
    }
    // The first of the queue gives up.
    calls.remove(1).abort();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(*order.lock(), [2, 4, 0, 3]);
}

/// Each bucket has a limiter for its objects.
#[tokio::test(start_paused = true)]
async fn a_limiter_is_forgotten_only_when_it_is_idle() {
    let limiters = Limiters::default();
    let service = Service::new(Limit::None, 20);
    serve(&limiters.of("account".into()), &service, AT_ONCE).await;
    let of_new_buckets = || (0..AT_ONCE).for_each(|bucket| drop(limiters.of(format!("bucket {bucket}"))));
    of_new_buckets();
    let limiter = limiters.of("account".into());
    let all = stream::iter(0..AT_ONCE).then(|_| limiter.acquire(None)).collect::<Vec<_>>();
    assert!(timeout(Duration::from_secs(1), all).await.is_ok(), "all are in flight at once");

    let left = Arc::downgrade(&limiter);
    drop(limiter);
    sleep(Duration::from_secs(3600)).await;
    of_new_buckets();
    assert!(left.upgrade().is_none(), "what is not used is not remembered");
}

/// Others in the account need the rest.
#[tokio::test(start_paused = true)]
async fn a_ceiling_holds_whatever_is_accepted() {
    let limiter = Limiter::default();
    let since = Instant::now();
    for _ in 0..21 {
        limiter.acquire(Some(5)).await.answered(false);
    }
    let took = since.elapsed();
    assert!(took >= Duration::from_millis(3900) && took <= Duration::from_millis(4100), "{took:?}");
}
