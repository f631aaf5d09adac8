#![allow(clippy::unwrap_used)]
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::super::clock::{self, AttemptClock};
use super::super::guarded::{Interrupted, guarded};
use super::store::{FAILURES, FORGOTTEN};
use super::*;

fn key(store: &str, namespace: &str) -> QueueKey {
    QueueKey { store: store.into(), namespace: namespace.into(), urgency: Urgency::Wanted }
}

/// The workers that are free at once.
fn at_once(workers: &Arc<Workers>, key: &QueueKey, asked: usize) -> Vec<Worker> {
    (0..asked).filter_map(|_| workers.enter(key).now_or_never().flatten()).collect()
}

fn assert_nothing_is_left(workers: &Workers) {
    let state = workers.state.lock();
    assert!(state.busy.namespaces.is_empty() && state.stores.is_empty() && state.order.is_empty(), "{state:?}");
}

#[tokio::test]
async fn a_store_has_at_most_a_quarter_of_the_workers() {
    let workers = Workers::new(16);
    let silent = at_once(&workers, &key("silent", "shop"), 300);
    assert_eq!(silent.len(), 4);
    assert_eq!(at_once(&workers, &key("working", "shop"), 1).len(), 1, "not delayed by them");
    drop(silent);
    assert_nothing_is_left(&workers);
}

#[tokio::test]
async fn a_silent_store_is_called_by_one_claim_at_a_time() {
    let workers = Workers::new(16);
    let key = key("silent", "shop");
    let store = || Arc::clone(&key.store);
    for number in 0..FAILURES {
        assert_eq!(workers.slowed(&key.store), None);
        // Given up, or ended with an error.
        if number % 2 == 0 { drop(workers.ask(store())) } else { workers.ask(store()).failed() }
    }
    assert_eq!(workers.slowed(&key.store), Some(Slowed::Silent));
    workers.ask(store()).cancelled();
    assert_eq!(workers.slowed(&key.store), Some(Slowed::Silent), "it was not asked");
    let probe = at_once(&workers, &key, 10);
    assert_eq!(probe.len(), 1);
    workers.ask(store()).answered();
    drop(probe);
    assert_eq!(at_once(&workers, &key, 10).len(), 4);
    assert_nothing_is_left(&workers);
}

#[tokio::test]
async fn those_that_wait_learn_that_their_store_is_slow() {
    let workers = Workers::new(16);
    let wait = |store: &str| {
        let key = key(store, "shop");
        let busy = at_once(&workers, &key, 4);
        let mut waiting = Box::pin({
            let (workers, key) = (Arc::clone(&workers), key.clone());
            async move { workers.enter(&key).await }
        });
        assert!(waiting.as_mut().now_or_never().is_none(), "it has its share");
        (key.store, busy, waiting)
    };
    let (limited, busy, _waiting) = wait("limited");
    let (silent, _busy, _waiting_too) = wait("silent");
    let mut limited = std::pin::pin!(workers.until_slowed(&limited));
    let mut slow = std::pin::pin!(workers.until_slowed(&silent));
    assert_eq!((limited.as_mut().now_or_never(), slow.as_mut().now_or_never()), (None, None));
    busy[0].throttled_counter()(true);
    assert_eq!((limited.now_or_never(), slow.as_mut().now_or_never()), (Some(Slowed::Limited), None));
    (0..FAILURES).for_each(|_| workers.ask(Arc::clone(&silent)).failed());
    assert_eq!(slow.now_or_never(), Some(Slowed::Silent));
    busy[0].throttled_counter()(false);
}

#[tokio::test(start_paused = true)]
async fn neither_a_panic_nor_the_rate_limit_is_a_failure_of_the_store() {
    let workers = Workers::new(16);
    let key = key("s3", "shop");
    let limit = Duration::from_secs(1);
    let attempt = |what: BoxFuture<'static, ()>| async {
        let asked = workers.ask(Arc::clone(&key.store));
        what.await;
        asked.answered();
    };
    for _ in 0..FAILURES {
        let clock = || AttemptClock::new(false, |_| {});
        let panics = guarded(clock(), limit, attempt(async { panic!("a mistake") }.boxed())).await;
        assert_eq!(panics, Err(Interrupted::Panicked));
        let waits = guarded(clock(), limit, attempt(clock::wait(std::future::pending()).boxed())).await;
        assert_eq!(waits, Err(Interrupted::Waiting));
    }
    assert_eq!(workers.slowed(&key.store), None);
    for _ in 0..FAILURES {
        let clock = AttemptClock::new(false, |_| {});
        let hangs = guarded(clock, limit, attempt(std::future::pending().boxed())).await;
        assert_eq!(hangs, Err(Interrupted::Working));
    }
    assert_eq!(workers.slowed(&key.store), Some(Slowed::Silent));
}

#[tokio::test(start_paused = true)]
async fn an_unused_silent_store_is_forgotten() {
    let workers = Workers::new(16);
    let key = key("silent", "shop");
    let (failure, shown) = (|| workers.ask(Arc::clone(&key.store)).failed(), || workers.loads().len());
    (0..FAILURES).for_each(|_| failure());
    tokio::time::advance(FORGOTTEN).await;
    assert_eq!(shown(), 1);
    failure();
    let calls = at_once(&workers, &key, 1);
    tokio::time::advance(2 * FORGOTTEN).await;
    assert_eq!(shown(), 1, "a claim still calls it");
    drop(calls);
    assert_eq!(shown(), 0);
    assert_nothing_is_left(&workers);
}

#[tokio::test]
async fn checks_have_the_lowest_priority_and_half_of_the_workers() {
    let workers = Workers::new(16);
    let (wanted, check) = (key("s3", "shop"), QueueKey { urgency: Urgency::Check, ..key("s3", "shop") });
    let checking = at_once(&workers, &check, 100);
    assert_eq!(checking.len(), 2);
    let working = at_once(&workers, &wanted, 100);
    assert_eq!(working.len(), 2);
    let mut next_check = Box::pin(workers.enter(&check));
    let mut next = Box::pin(workers.enter(&wanted));
    assert!(next_check.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
    drop(checking);
    let next = next.as_mut().now_or_never().flatten().unwrap();
    let next_check = next_check.as_mut().now_or_never().flatten().unwrap();
    drop((working, next, next_check));
    assert_nothing_is_left(&workers);
}

#[tokio::test]
async fn however_many_are_wanted_a_purge_and_a_check_have_a_worker() {
    let workers = Workers::new(32);
    let of = |urgency, namespace| QueueKey { urgency, ..key("s3", namespace) };
    let (more, purge, check) = (key("s3", "a"), of(Urgency::Purge, "a"), of(Urgency::Check, "b"));
    let mut wanted: Vec<_> =
        ["a", "b"].into_iter().flat_map(|namespace| at_once(&workers, &key("s3", namespace), 8)).collect();
    let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(workers.enter(&more))).collect();
    let mut others = [Box::pin(workers.enter(&purge)), Box::pin(workers.enter(&check))];
    waiting.iter_mut().chain(&mut others).for_each(|next| assert!(next.as_mut().now_or_never().is_none()));
    wanted.truncate(wanted.len() - 6);
    others.iter_mut().for_each(|next| assert!(next.as_mut().now_or_never().flatten().is_some()));
}

#[tokio::test]
async fn a_purge_waits_for_at_most_one_of_another_namespace() {
    let workers = Workers::new(32);
    let purge = |namespace: &str| QueueKey { urgency: Urgency::Purge, ..key("s3", namespace) };
    let (crowd, single) = (purge("crowd"), purge("single"));
    let mut emptying = at_once(&workers, &crowd, 100);
    assert_eq!(emptying.len(), 4, "half of a store's workers");
    let mut others: Vec<_> = (0..500).map(|_| Box::pin(workers.enter(&crowd))).collect();
    others.iter_mut().for_each(|other| assert!(other.as_mut().now_or_never().is_none()));
    let mut mine = Box::pin(workers.enter(&single));
    assert!(mine.as_mut().now_or_never().is_none());
    // One that has done a piece of its work queues again; the next one is of the crowd, which came first, then it is mine.
    emptying.pop();
    emptying.pop();
    assert!(mine.as_mut().now_or_never().flatten().is_some());
    // Nor do they keep those whose users wait from a worker.
    assert_eq!(at_once(&workers, &key("s3", "crowd"), 100).len(), 4);
}

#[tokio::test]
async fn a_throttled_claim_leaves_its_worker_to_other_stores() {
    let workers = Workers::new(8);
    let throttled: Vec<_> = (0..4).flat_map(|n| at_once(&workers, &key(&format!("slow {n}"), "shop"), 100)).collect();
    assert_eq!(throttled.len(), 8);
    assert_eq!(at_once(&workers, &key("fast", "shop"), 1).len(), 0);
    let counters: Vec<_> = throttled.iter().map(Worker::throttled_counter).collect();
    counters.iter().for_each(|set_throttled| set_throttled(true));
    let fast = at_once(&workers, &key("fast", "shop"), 100);
    assert_eq!(fast.len(), 2);
    let slowed = |store: &str| workers.slowed(&store.into());
    assert_eq!((slowed("slow 0"), slowed("fast")), (Some(Slowed::Limited), None));
    assert_eq!(at_once(&workers, &key("slow 0", "shop"), 1).len(), 0, "of its store it has its share");
    counters.iter().for_each(|set_throttled| set_throttled(false));
    drop((throttled, fast));
    assert_nothing_is_left(&workers);
}

/// While it is alone, it has all workers of the store.
#[tokio::test]
async fn a_large_namespace_counts_as_half_for_others() {
    let workers = Workers::new(32);
    let crowd = at_once(&workers, &key("s3", "crowd"), 100);
    assert_eq!(crowd.len(), 8);
    assert_eq!(at_once(&workers, &key("s3", "single"), 100).len(), 4, "without waiting for the crowd");
    let stores: Vec<_> = (0..4).map(|n| at_once(&workers, &key(&n.to_string(), "crowd"), 100)).collect();
    assert_eq!(stores.iter().map(Vec::len).sum::<usize>(), 24, "32 with those above");
    assert_eq!(at_once(&workers, &key("5", "single"), 100).len(), 8);
    drop((crowd, stores));
    assert_nothing_is_left(&workers);
}

#[tokio::test]
async fn waiting_namespaces_are_served_round_robin() {
    let workers = Workers::new(1);
    let first = workers.enter(&key("s3", "crowd")).await.unwrap();
    let crowd: Vec<_> = (0..3).map(|_| key("s3", "crowd")).collect();
    let mut crowd: Vec<_> = crowd.iter().map(|key| Box::pin(workers.enter(key))).collect();
    for one in &mut crowd {
        assert!(one.as_mut().now_or_never().is_none());
    }
    let single = key("s3", "single");
    let mut single = Box::pin(workers.enter(&single));
    assert!(single.as_mut().now_or_never().is_none());
    drop(first);
    let second = crowd[0].as_mut().now_or_never().flatten().unwrap();
    drop(second);
    assert!(single.as_mut().now_or_never().flatten().is_some(), "it came last, and is second");
    assert!(crowd[1].as_mut().now_or_never().flatten().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_load_has_the_longest_wait_that_was_not_given_up() {
    let workers = Workers::new(4);
    let (key, load) = (key("s3", "shop"), || workers.loads().pop().unwrap());
    let first = workers.enter(&key).await.unwrap();
    let (since, minute) = (Instant::now(), std::time::Duration::from_secs(60));
    let mut gives_up = Box::pin(workers.enter(&key));
    assert!(gives_up.as_mut().now_or_never().is_none());
    tokio::time::advance(minute).await;
    let mut waits = Box::pin(workers.enter(&key));
    assert!(waits.as_mut().now_or_never().is_none());
    assert_eq!((load().limit, load().waits_since), (1, Some(since)));
    drop(gives_up);
    assert_eq!(load().waits_since, Some(since + minute));
    drop(first);
    assert!(waits.as_mut().now_or_never().flatten().is_some());
    assert!(workers.loads().iter().all(|load| load.waits_since.is_none()));
}

#[tokio::test]
async fn nobody_is_lost_and_nobody_is_counted_twice() {
    let workers = Workers::new(1);
    let (a, b) = (key("a", "a"), key("b", "b"));
    let first = workers.enter(&a).await.unwrap();
    let mut gave_up = Box::pin(workers.enter(&a));
    assert!(gave_up.as_mut().now_or_never().is_none());
    drop(gave_up);
    let mut waits = Box::pin(workers.enter(&a));
    assert!(waits.as_mut().now_or_never().is_none());
    drop(first);
    let second = waits.await.unwrap();
    let mut last = Box::pin(workers.enter(&b));
    assert!(last.as_mut().now_or_never().is_none());
    workers.close();
    assert!(last.await.is_none());
    drop(second);
    let state = workers.state.lock();
    assert!(state.busy.namespaces.is_empty(), "{state:?}");
}
