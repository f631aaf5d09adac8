//! Which claim is processed next. There are few workers, and neither a store that does not answer nor the claims of one
//! namespace may occupy them all.
//!
//! A store has a quarter of the workers. A namespace that has more than half of those counts as having half, so that others
//! need not wait for it: then the store has up to half as many more. After several calls in a row that the store did not
//! answer, or in which it refused the credentials, only one claim at a time calls it, until it answers again: a circuit
//! breaker. Namespaces are served round robin. Claims whose users wait have the highest priority, then removals in many
//! pieces, then the upkeep of bound claims; each of the latter two has at most half of a store's workers, and at least one
//! if the store has four or more.
//!
//! A claim that is throttled, because its store limits the rate of calls, still counts for the store's quarter, but not
//! for all workers: another store gets that worker.

mod queue;
mod store;

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::queue::{Queue, Share};
use self::store::Store;
use super::clock;

/// A queue of claims.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueKey {
    /// What the claims that are called for share, and what can be slow or silent.
    pub store: Arc<str>,
    /// The namespace of the claims.
    pub namespace: Arc<str>,
    /// Its priority.
    pub urgency: Urgency,
}

/// The priority of the work on a claim, the highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Urgency {
    /// Somebody waits for what the claim requests, or for its deletion.
    Wanted,
    /// A removal that takes many pieces of work, such as that of a bucket's content.
    Purge,
    /// The upkeep of a bound claim.
    Check,
}

impl Urgency {
    const ALL: [Self; 3] = [Self::Wanted, Self::Purge, Self::Check];
}

/// All workers, and the claims that wait for one.
#[derive(Debug)]
pub struct Workers {
    all: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    busy: Share,
    stores: HashMap<Arc<str>, Store>,
    /// The stores for which claims wait, round robin.
    order: VecDeque<Arc<str>>,
    closed: bool,
}

/// Why claims wait longer for a store than for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slowed {
    /// It does not answer, so only one claim at a time calls it.
    Silent,
    /// It limits how fast it is called.
    Limited,
}

/// How much is done for a store.
#[derive(Debug)]
pub struct Load {
    /// As in [`QueueKey::store`].
    pub store: Arc<str>,
    /// Claims that have a worker.
    pub busy: usize,
    /// How many can have one at the same time.
    pub limit: usize,
    /// Claims that wait for one.
    pub waiting: usize,
    /// Since when the first of them waits.
    pub waits_since: Option<Instant>,
    /// Those of the busy ones that wait because the store limits the rate of calls.
    pub throttled: usize,
    /// Whether only one claim at a time calls it.
    pub is_silent: bool,
}

/// The right to process a claim, until this is dropped.
#[derive(Debug)]
pub struct Worker {
    workers: Arc<Workers>,
    key: QueueKey,
}

impl Worker {
    /// The store that the claim is for.
    #[must_use]
    pub fn store(&self) -> &Arc<str> {
        &self.key.store
    }

    /// How urgent the work is.
    #[must_use]
    pub fn urgency(&self) -> Urgency {
        self.key.urgency
    }

    /// To be called with true when the claim begins to wait for the store's rate limit, and with false when it
    /// continues.
    pub fn throttled_counter(&self) -> impl Fn(bool) + Send + Sync + 'static {
        let (workers, key) = (Arc::clone(&self.workers), self.key.clone());
        move |throttled| {
            workers.state.lock().set_throttled(&key, throttled);
            if throttled {
                workers.dispatch();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.workers.state.lock().leave(&self.key);
        self.workers.dispatch();
    }
}

/// A call to a store that is not answered yet. If it is dropped, because it took too long, that is a failure of the store;
/// but not if the caller panicked, or waited too long for the rate limit.
#[derive(Debug)]
pub struct InFlight<'a> {
    workers: &'a Workers,
    store: Arc<str>,
    is_over: bool,
}

impl InFlight<'_> {
    /// The store answered: its failures are reset.
    pub fn answered(mut self) {
        self.is_over = true;
        if let Some(store) = self.workers.state.lock().stores.get_mut(&self.store) {
            store.failures = 0;
        }
    }

    /// The store did not answer, or refused the credentials, so every claim would fail.
    pub fn failed(self) {}

    /// The call proves nothing about the store.
    pub fn cancelled(mut self) {
        self.is_over = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_over && !std::thread::panicking() && !clock::has_waited_too_long() {
            let mut state = self.workers.state.lock();
            let store = state.stores.entry(Arc::clone(&self.store)).or_default();
            store.failures = store.failures.saturating_add(1);
            store.failed_at = Some(Instant::now());
            if store.failures == store::FAILURES {
                store.slowed.notify_waiters();
            }
        }
    }
}

impl Workers {
    /// Creates so many workers, but at least one.
    pub fn new(all: usize) -> Arc<Self> {
        Arc::new(Self { all: all.max(1), state: Mutex::default() })
    }

    /// Waits for a worker; `None` after [`close`](Self::close).
    pub async fn enter(self: &Arc<Self>, key: &QueueKey) -> Option<Worker> {
        let (sender, granted) = oneshot::channel();
        if !self.state.lock().wait(key, sender) {
            return None;
        }
        self.dispatch();
        granted.await.ok()
    }

    /// Starts to count a call to a store.
    pub fn ask(&self, store: Arc<str>) -> InFlight<'_> {
        InFlight { workers: self, store, is_over: false }
    }

    /// Why the claims of a store wait longer than for others.
    pub fn slowed(&self, store: &Arc<str>) -> Option<Slowed> {
        let state = self.state.lock();
        let store = state.stores.get(store)?;
        match store.is_silent() {
            true => Some(Slowed::Silent),
            false => (store.throttled > 0).then_some(Slowed::Limited),
        }
    }

    /// Completes when claims that wait for a store wait longer than for others.
    pub async fn until_slowed(&self, store: &Arc<str>) -> Slowed {
        loop {
            // One that nobody waits for is not known.
            let known = self.state.lock().stores.get(store).map(|store| Arc::clone(&store.slowed));
            let Some(known) = known else { return std::future::pending().await };
            let mut changed = std::pin::pin!(known.notified());
            changed.as_mut().enable();
            if let Some(slowed) = self.slowed(store) {
                return slowed;
            }
            changed.await;
        }
    }

    /// How much is done for each store, and waits for it. A silent store that nobody uses any more is forgotten.
    pub fn loads(&self) -> Vec<Load> {
        let load = |(name, store): (&Arc<str>, &Store)| Load {
            store: Arc::clone(name),
            busy: store.busy.namespaces.values().sum(),
            limit: store.limit(self.all),
            waiting: store.queues.iter().map(Queue::len).sum(),
            waits_since: store.queues.iter().filter_map(Queue::since).min(),
            throttled: store.throttled,
            is_silent: store.is_silent(),
        };
        let mut state = self.state.lock();
        state.stores.retain(|_, store| !store.is_abandoned());
        state.stores.iter().map(load).collect()
    }

    /// How many claims can have a worker at the same time.
    pub fn limit(&self) -> usize {
        self.all
    }

    /// Ends all waits.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.order.clear();
        for store in state.stores.values_mut() {
            store.queues = Default::default();
        }
    }

    /// Whether all waits have ended.
    pub fn are_closed(&self) -> bool {
        self.state.lock().closed
    }

    fn dispatch(self: &Arc<Self>) {
        loop {
            let Some((key, sender)) = self.state.lock().next(self.all) else { return };
            // If the claim no longer waits, the worker is dropped here, outside of the lock, and so returned.
            let _ = sender.send(Worker { workers: Arc::clone(self), key });
        }
    }
}

impl State {
    /// Adds a claim to its queue; false after [`close`](Workers::close).
    fn wait(&mut self, key: &QueueKey, sender: oneshot::Sender<Worker>) -> bool {
        if self.closed {
            return false;
        }
        let store = self.stores.entry(Arc::clone(&key.store)).or_default();
        if !store.is_waited_for() {
            self.order.push_back(Arc::clone(&key.store));
        }
        store.queues[key.urgency as usize].push(&key.namespace, sender);
        true
    }

    /// The next claim, if there is a free worker, which then counts as busy.
    fn next(&mut self, all: usize) -> Option<(QueueKey, oneshot::Sender<Worker>)> {
        if self.busy.is_full(all) {
            return None;
        }
        for _ in 0..self.order.len() {
            let name = self.order.pop_front()?;
            let Some(store) = self.stores.get_mut(&name) else { continue };
            let next = store.next(&self.busy, all);
            if store.is_waited_for() {
                self.order.push_back(Arc::clone(&name));
            } else if next.is_none() && store.is_idle() {
                // All waiting claims gave up.
                self.stores.remove(&name);
            }
            if let Some((namespace, urgency, sender)) = next {
                self.busy.take(&namespace);
                return Some((QueueKey { store: name, namespace, urgency }, sender));
            }
        }
        None
    }

    /// A claim with a worker begins to wait for the store's rate limit, or continues.
    fn set_throttled(&mut self, key: &QueueKey, throttled: bool) {
        let store = self.stores.get_mut(&key.store);
        if throttled {
            self.busy.give_back(&key.namespace);
            if let Some(store) = store {
                store.throttled += 1;
                if store.throttled == 1 {
                    store.slowed.notify_waiters();
                }
            }
        } else {
            self.busy.take(&key.namespace);
            if let Some(store) = store {
                store.throttled = store.throttled.saturating_sub(1);
            }
        }
    }

    fn leave(&mut self, key: &QueueKey) {
        self.busy.give_back(&key.namespace);
        if let Some(store) = self.stores.get_mut(&key.store) {
            store.busy.give_back(&key.namespace);
            let working = &mut store.working[key.urgency as usize];
            *working = working.saturating_sub(1);
            if store.is_idle() {
                self.stores.remove(&key.store);
            }
        }
    }
}

#[cfg(test)]
mod tests;
