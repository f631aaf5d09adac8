//! Which claim is processed next. There are few workers, and neither a store that does not answer nor the claims of one
//! namespace may occupy them all.
//!
//! A store has at most a quarter of the workers. After several calls in a row that the store did not answer, or in which
//! it refused the owner, only one claim at a time calls it, until it answers again: a circuit breaker. Namespaces take
//! turns; a namespace that has more than half of the workers counts as having half, so that others need not wait for it.
//! Checks of bound claims go last, and have at most half of a store's workers.
//!
//! A claim that waits for its turn at a store that limits its calls keeps its place among the store's, and occupies none
//! of all workers: other stores have that one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// After so many strikes in a row, only one claim at a time calls a store.
const STRIKES: u32 = 3;

/// After so long without a claim that calls it, nobody needs to know that a store was silent. Claims that need it call it
/// at least every 5 minutes.
const FORGOTTEN: Duration = Duration::from_secs(900);

/// A queue of claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lane {
    /// What the claims that are called for share, and what can be slow or silent.
    pub(crate) store: Arc<str>,
    pub(crate) namespace: Arc<str>,
    /// What others need more goes first.
    pub(crate) urgency: Urgency,
}

/// Whether a claim's user waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Urgency {
    /// Somebody needs a bucket, or wants it to be gone.
    Wanted,
    /// A bound claim is checked.
    Check,
}

/// All workers.
#[derive(Debug)]
pub(crate) struct Workers {
    /// How many there are.
    all: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: Share,
    stores: HashMap<Arc<str>, Store>,
    /// The stores for which claims wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    closed: bool,
}

/// Busy workers, by namespace.
#[derive(Debug, Default)]
struct Share {
    namespaces: HashMap<Arc<str>, usize>,
}

#[derive(Debug, Default)]
struct Store {
    busy: Share,
    /// How many of the busy workers check a bound claim.
    checking: usize,
    /// How many of them wait for a turn at the store.
    parked: usize,
    wanted: Queue,
    checks: Queue,
    /// How often in a row it did not answer, or refused the owner.
    strikes: u32,
    /// When it was the last time.
    struck: Option<Instant>,
}

/// Why claims wait longer for a store than for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slowed {
    /// It does not answer, so only one claim at a time calls it.
    Silent,
    /// It limits how fast it is called.
    Limited,
}

/// How much is done for a store.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) store: Arc<str>,
    /// Claims that have a worker.
    pub(crate) busy: usize,
    /// How many can have one at the same time.
    pub(crate) limit: usize,
    /// Claims that wait for one.
    pub(crate) waiting: usize,
    /// Since when the first of them waits.
    pub(crate) waits_since: Option<Instant>,
    /// Those of the busy ones that wait for a turn at the store.
    pub(crate) parked: usize,
    /// Whether only one claim at a time calls it.
    pub(crate) is_silent: bool,
}

/// Claims that wait for a worker.
#[derive(Debug, Default)]
struct Queue {
    /// By namespace, in the order of arrival.
    waiting: HashMap<Arc<str>, VecDeque<Waiting>>,
    /// The namespaces, in the order of their turns.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    sender: oneshot::Sender<Worker>,
}

/// The right to process a claim, until this is dropped.
#[derive(Debug)]
pub(crate) struct Worker {
    workers: Arc<Workers>,
    lane: Lane,
}

impl Worker {
    pub(crate) fn store(&self) -> &Arc<str> {
        &self.lane.store
    }

    pub(crate) fn urgency(&self) -> Urgency {
        self.lane.urgency
    }

    /// To be called with true when the claim begins to wait for its turn at the store, and with false when it goes on.
    pub(crate) fn parking(&self) -> impl Fn(bool) + Send + Sync + 'static {
        let (workers, lane) = (Arc::clone(&self.workers), self.lane.clone());
        move |parks| {
            workers.lock().park(&lane, parks);
            if parks {
                workers.hand_out();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.workers.lock().leave(&self.lane);
        self.workers.hand_out();
    }
}

/// A call to a store that is not answered yet. If it is dropped, because it took too long, that is a strike.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    workers: &'a Workers,
    store: Arc<str>,
    is_over: bool,
}

impl Asked<'_> {
    /// The store answered: its strikes are reset.
    pub(crate) fn answered(mut self) {
        self.is_over = true;
        if let Some(store) = self.workers.lock().stores.get_mut(&self.store) {
            store.strikes = 0;
        }
    }

    /// The store did not answer, or refused the owner, so every claim would fail.
    pub(crate) fn struck(self) {}

    /// The call says nothing about the store.
    pub(crate) fn never_mind(mut self) {
        self.is_over = true;
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.workers.lock();
            let store = state.stores.entry(Arc::clone(&self.store)).or_default();
            store.strikes = store.strikes.saturating_add(1);
            store.struck = Some(Instant::now());
        }
    }
}

impl Workers {
    /// This many workers, but at least one.
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all: all.max(1), state: Mutex::default() })
    }

    /// Waits for a worker; `None` after [`close`](Self::close).
    pub(crate) async fn enter(self: &Arc<Self>, lane: &Lane) -> Option<Worker> {
        let (sender, granted) = oneshot::channel();
        if !self.lock().wait(lane, sender) {
            return None;
        }
        self.hand_out();
        granted.await.ok()
    }

    /// Starts to count a call to a store.
    pub(crate) fn ask(&self, store: Arc<str>) -> Asked<'_> {
        Asked { workers: self, store, is_over: false }
    }

    /// Why the claims of a store wait longer than for others.
    pub(crate) fn slowed(&self, store: &Arc<str>) -> Option<Slowed> {
        let state = self.lock();
        let store = state.stores.get(store)?;
        match store.is_struck() {
            true => Some(Slowed::Silent),
            false => (store.parked > 0).then_some(Slowed::Limited),
        }
    }

    /// How much is done for each store, and waits for it. A silent store that nobody uses any more is forgotten.
    pub(crate) fn loads(&self) -> Vec<Load> {
        let load = |(name, store): (&Arc<str>, &Store)| Load {
            store: Arc::clone(name),
            busy: store.busy.namespaces.values().sum(),
            limit: store.limit(self.all),
            waiting: store.wanted.len() + store.checks.len(),
            waits_since: [&store.wanted, &store.checks].into_iter().filter_map(Queue::since).min(),
            parked: store.parked,
            is_silent: store.is_struck(),
        };
        let mut state = self.lock();
        state.stores.retain(|_, store| !store.is_abandoned());
        state.stores.iter().map(load).collect()
    }

    /// How many claims can have a worker at the same time.
    pub(crate) fn limit(&self) -> usize {
        self.all
    }

    /// Ends all waits.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.turns.clear();
        for store in state.stores.values_mut() {
            (store.wanted, store.checks) = (Queue::default(), Queue::default());
        }
    }

    /// Whether all waits have ended.
    pub(crate) fn are_closed(&self) -> bool {
        self.lock().closed
    }

    fn hand_out(self: &Arc<Self>) {
        loop {
            let Some((lane, sender)) = self.lock().next(self.all) else { return };
            // If the claim no longer waits, the worker is dropped here, outside of the lock, and so returned.
            let _ = sender.send(Worker { workers: Arc::clone(self), lane });
        }
    }

    // A panic elsewhere leaves the counts consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a claim to its queue; false after [`close`](Workers::close).
    fn wait(&mut self, lane: &Lane, sender: oneshot::Sender<Worker>) -> bool {
        if self.closed {
            return false;
        }
        let store = self.stores.entry(Arc::clone(&lane.store)).or_default();
        if !store.is_waited_for() {
            self.turns.push_back(Arc::clone(&lane.store));
        }
        let queue = match lane.urgency {
            Urgency::Wanted => &mut store.wanted,
            Urgency::Check => &mut store.checks,
        };
        queue.push(&lane.namespace, sender);
        true
    }

    /// The next claim, if there is a free worker, which then counts as busy.
    fn next(&mut self, all: usize) -> Option<(Lane, oneshot::Sender<Worker>)> {
        if self.busy.is_full(all) {
            return None;
        }
        for _ in 0..self.turns.len() {
            let name = self.turns.pop_front()?;
            let Some(store) = self.stores.get_mut(&name) else { continue };
            let next = store.next(&self.busy, all);
            if store.is_waited_for() {
                self.turns.push_back(Arc::clone(&name));
            } else if next.is_none() && store.is_idle() {
                // All waiting claims gave up.
                self.stores.remove(&name);
            }
            if let Some((namespace, urgency, sender)) = next {
                self.busy.take(&namespace);
                return Some((Lane { store: name, namespace, urgency }, sender));
            }
        }
        None
    }

    /// A claim with a worker begins to wait for its turn at the store, or goes on.
    fn park(&mut self, lane: &Lane, parks: bool) {
        let parked = self.stores.get_mut(&lane.store).map(|store| &mut store.parked);
        if parks {
            self.busy.give_back(&lane.namespace);
            parked.into_iter().for_each(|parked| *parked += 1);
        } else {
            self.busy.take(&lane.namespace);
            parked.into_iter().for_each(|parked| *parked = parked.saturating_sub(1));
        }
    }

    fn leave(&mut self, lane: &Lane) {
        self.busy.give_back(&lane.namespace);
        if let Some(store) = self.stores.get_mut(&lane.store) {
            store.busy.give_back(&lane.namespace);
            if lane.urgency == Urgency::Check {
                store.checking = store.checking.saturating_sub(1);
            }
            if store.is_idle() {
                self.stores.remove(&lane.store);
            }
        }
    }
}

impl Store {
    fn is_struck(&self) -> bool {
        self.strikes >= STRIKES
    }

    /// How many claims can have a worker at the same time.
    fn limit(&self, all: usize) -> usize {
        if self.is_struck() { 1 } else { (all / 4).max(1) }
    }

    fn is_waited_for(&self) -> bool {
        !self.wanted.turns.is_empty() || !self.checks.turns.is_empty()
    }

    /// Whether it can be forgotten.
    fn is_idle(&self) -> bool {
        !self.is_used() && self.strikes == 0
    }

    fn is_used(&self) -> bool {
        !self.busy.namespaces.is_empty() || self.is_waited_for()
    }

    /// Whether it was silent, and its claims are gone.
    fn is_abandoned(&self) -> bool {
        !self.is_used() && self.struck.is_none_or(|struck| struck.elapsed() > FORGOTTEN)
    }

    /// The next claim of this store, if there is a free worker, which then counts as busy.
    fn next(&mut self, all_busy: &Share, all: usize) -> Option<(Arc<str>, Urgency, oneshot::Sender<Worker>)> {
        let limit = self.limit(all);
        if self.busy.is_full(limit) {
            return None;
        }
        let busy = &self.busy;
        let has_room = |namespace: &Arc<str>| busy.has_room(limit, namespace) && all_busy.has_room(all, namespace);
        let mut next = self.wanted.pop(has_room).map(|(namespace, sender)| (namespace, Urgency::Wanted, sender));
        if next.is_none() && self.checking < (limit / 2).max(1) {
            next = self.checks.pop(has_room).map(|(namespace, sender)| (namespace, Urgency::Check, sender));
        }
        let (namespace, urgency, _) = next.as_ref()?;
        self.busy.take(namespace);
        self.checking += usize::from(*urgency == Urgency::Check);
        next
    }
}

impl Queue {
    /// Of those that have given up, some count until their turn.
    fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Since when the claim waits that waits longest.
    fn since(&self) -> Option<Instant> {
        let still = |queue: &VecDeque<Waiting>| queue.iter().find(|one| !one.sender.is_closed()).map(|one| one.since);
        self.waiting.values().filter_map(still).min()
    }

    fn push(&mut self, namespace: &Arc<str>, sender: oneshot::Sender<Worker>) {
        let queue = self.waiting.entry(Arc::clone(namespace)).or_default();
        if queue.is_empty() {
            self.turns.push_back(Arc::clone(namespace));
        }
        queue.push_back(Waiting { since: Instant::now(), sender });
    }

    /// The next claim of a namespace that has room.
    fn pop(&mut self, has_room: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, oneshot::Sender<Worker>)> {
        for _ in 0..self.turns.len() {
            let namespace = self.turns.pop_front()?;
            let Some(queue) = self.waiting.get_mut(&namespace) else { continue };
            while queue.front().is_some_and(|first| first.sender.is_closed()) {
                queue.pop_front();
            }
            let next = if has_room(&namespace) { queue.pop_front() } else { None };
            if queue.is_empty() {
                self.waiting.remove(&namespace);
            } else {
                self.turns.push_back(Arc::clone(&namespace));
            }
            if let Some(Waiting { sender, .. }) = next {
                return Some((namespace, sender));
            }
        }
        None
    }
}

impl Share {
    fn is_full(&self, limit: usize) -> bool {
        let half = (limit / 2).max(1);
        self.namespaces.values().map(|busy| *busy.min(&half)).sum::<usize>() >= limit
    }

    /// Whether a namespace can have one more, if there is one.
    fn has_room(&self, limit: usize, namespace: &Arc<str>) -> bool {
        self.namespaces.get(namespace).is_none_or(|own| *own < limit)
    }

    fn take(&mut self, namespace: &Arc<str>) {
        *self.namespaces.entry(Arc::clone(namespace)).or_default() += 1;
    }

    fn give_back(&mut self, namespace: &Arc<str>) {
        if let Some(busy) = self.namespaces.get_mut(namespace) {
            *busy = busy.saturating_sub(1);
            if *busy == 0 {
                self.namespaces.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::FutureExt as _;

    use super::*;

    fn lane(store: &str, namespace: &str) -> Lane {
        Lane { store: store.into(), namespace: namespace.into(), urgency: Urgency::Wanted }
    }

    /// The workers that are free at once.
    fn at_once(workers: &Arc<Workers>, lane: &Lane, asked: usize) -> Vec<Worker> {
        (0..asked).filter_map(|_| workers.enter(lane).now_or_never().flatten()).collect()
    }

    fn assert_nothing_is_left(workers: &Workers) {
        let state = workers.lock();
        assert!(state.busy.namespaces.is_empty() && state.stores.is_empty() && state.turns.is_empty(), "{state:?}");
    }

    #[tokio::test]
    async fn a_store_has_a_quarter_of_the_workers_and_others_have_the_rest() {
        let workers = Workers::new(16);
        let silent = at_once(&workers, &lane("silent", "shop"), 300);
        assert_eq!(silent.len(), 4);
        assert_eq!(at_once(&workers, &lane("working", "shop"), 1).len(), 1, "not delayed by them");
        drop(silent);
        assert_nothing_is_left(&workers);
    }

    #[tokio::test]
    async fn a_store_that_is_silent_again_and_again_is_asked_by_one_until_it_answers() {
        let workers = Workers::new(16);
        let lane = lane("silent", "shop");
        let store = || Arc::clone(&lane.store);
        for number in 0..STRIKES {
            assert_eq!(workers.slowed(&lane.store), None);
            // Given up, or ended with an error.
            if number % 2 == 0 { drop(workers.ask(store())) } else { workers.ask(store()).struck() }
        }
        assert_eq!(workers.slowed(&lane.store), Some(Slowed::Silent));
        workers.ask(store()).never_mind();
        assert_eq!(workers.slowed(&lane.store), Some(Slowed::Silent), "it was not asked");
        let probe = at_once(&workers, &lane, 10);
        assert_eq!(probe.len(), 1);
        workers.ask(store()).answered();
        drop(probe);
        assert_eq!(at_once(&workers, &lane, 10).len(), 4);
        assert_nothing_is_left(&workers);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_store_is_forgotten_when_nobody_has_used_it_for_a_while() {
        let workers = Workers::new(16);
        let lane = lane("silent", "shop");
        let (strike, shown) = (|| workers.ask(Arc::clone(&lane.store)).struck(), || workers.loads().len());
        (0..STRIKES).for_each(|_| strike());
        tokio::time::advance(FORGOTTEN).await;
        assert_eq!(shown(), 1);
        strike();
        let calls = at_once(&workers, &lane, 1);
        tokio::time::advance(2 * FORGOTTEN).await;
        assert_eq!(shown(), 1, "a claim still calls it");
        drop(calls);
        assert_eq!(shown(), 0);
        assert_nothing_is_left(&workers);
    }

    #[tokio::test]
    async fn checks_go_last_and_leave_half_of_a_store_to_others() {
        let workers = Workers::new(16);
        let (wanted, check) = (lane("s3", "shop"), Lane { urgency: Urgency::Check, ..lane("s3", "shop") });
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
    async fn who_waits_for_a_turn_at_its_store_leaves_its_worker_to_other_stores() {
        let workers = Workers::new(8);
        let throttled: Vec<_> =
            (0..4).flat_map(|n| at_once(&workers, &lane(&format!("slow {n}"), "shop"), 100)).collect();
        assert_eq!(throttled.len(), 8);
        assert_eq!(at_once(&workers, &lane("fast", "shop"), 1).len(), 0);
        let parking: Vec<_> = throttled.iter().map(Worker::parking).collect();
        parking.iter().for_each(|park| park(true));
        let fast = at_once(&workers, &lane("fast", "shop"), 100);
        assert_eq!(fast.len(), 2);
        let slowed = |store: &str| workers.slowed(&store.into());
        assert_eq!((slowed("slow 0"), slowed("fast")), (Some(Slowed::Limited), None));
        assert_eq!(at_once(&workers, &lane("slow 0", "shop"), 1).len(), 0, "of its store it has its share");
        parking.iter().for_each(|park| park(false));
        drop((throttled, fast));
        assert_nothing_is_left(&workers);
    }

    #[tokio::test]
    async fn one_namespace_has_all_while_it_is_alone_and_counts_as_half_for_others() {
        let workers = Workers::new(32);
        let crowd = at_once(&workers, &lane("s3", "crowd"), 100);
        assert_eq!(crowd.len(), 8);
        assert_eq!(at_once(&workers, &lane("s3", "single"), 100).len(), 4, "without waiting for the crowd");
        let stores: Vec<_> = (0..4).map(|n| at_once(&workers, &lane(&n.to_string(), "crowd"), 100)).collect();
        assert_eq!(stores.iter().map(Vec::len).sum::<usize>(), 24, "32 with those above");
        assert_eq!(at_once(&workers, &lane("5", "single"), 100).len(), 8);
        drop((crowd, stores));
        assert_nothing_is_left(&workers);
    }

    #[tokio::test]
    async fn namespaces_that_wait_take_turns() {
        let workers = Workers::new(1);
        let first = workers.enter(&lane("s3", "crowd")).await.unwrap();
        let crowd: Vec<_> = (0..3).map(|_| lane("s3", "crowd")).collect();
        let mut crowd: Vec<_> = crowd.iter().map(|lane| Box::pin(workers.enter(lane))).collect();
        for one in &mut crowd {
            assert!(one.as_mut().now_or_never().is_none());
        }
        let single = lane("s3", "single");
        let mut single = Box::pin(workers.enter(&single));
        assert!(single.as_mut().now_or_never().is_none());
        drop(first);
        let second = crowd[0].as_mut().now_or_never().flatten().unwrap();
        drop(second);
        assert!(single.as_mut().now_or_never().flatten().is_some(), "it came last, and is second");
        assert!(crowd[1].as_mut().now_or_never().flatten().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_says_since_when_the_first_claim_waits_that_has_not_given_up() {
        let workers = Workers::new(4);
        let (lane, load) = (lane("s3", "shop"), || workers.loads().pop().unwrap());
        let first = workers.enter(&lane).await.unwrap();
        let (since, minute) = (Instant::now(), std::time::Duration::from_secs(60));
        let mut gives_up = Box::pin(workers.enter(&lane));
        assert!(gives_up.as_mut().now_or_never().is_none());
        tokio::time::advance(minute).await;
        let mut waits = Box::pin(workers.enter(&lane));
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
        let (a, b) = (lane("a", "a"), lane("b", "b"));
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
        let state = workers.lock();
        assert!(state.busy.namespaces.is_empty(), "{state:?}");
    }
}
