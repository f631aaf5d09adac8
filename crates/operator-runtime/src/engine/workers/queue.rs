//! Claims that wait, and claims that have a worker, by namespace.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Worker;

/// Busy workers, by namespace.
#[derive(Debug, Default)]
pub(super) struct Share {
    pub(super) namespaces: HashMap<Arc<str>, usize>,
}

impl Share {
    pub(super) fn is_full(&self, limit: usize) -> bool {
        let half = (limit / 2).max(1);
        self.namespaces.values().map(|busy| *busy.min(&half)).sum::<usize>() >= limit
    }

    /// Whether a namespace can have one more, if there is one.
    pub(super) fn has_room(&self, limit: usize, namespace: &Arc<str>) -> bool {
        self.namespaces.get(namespace).is_none_or(|own| *own < limit)
    }

    pub(super) fn take(&mut self, namespace: &Arc<str>) {
        *self.namespaces.entry(Arc::clone(namespace)).or_default() += 1;
    }

    pub(super) fn give_back(&mut self, namespace: &Arc<str>) {
        if let Some(busy) = self.namespaces.get_mut(namespace) {
            *busy = busy.saturating_sub(1);
            if *busy == 0 {
                self.namespaces.remove(namespace);
            }
        }
    }
}

/// Claims that wait for a worker.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By namespace, in the order of arrival.
    pub(super) waiting: HashMap<Arc<str>, VecDeque<Waiting>>,
    /// The namespaces, round robin.
    pub(super) order: VecDeque<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) since: Instant,
    pub(super) sender: oneshot::Sender<Worker>,
}

impl Queue {
    /// Some that have given up count until they reach the head of the queue.
    pub(super) fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Since when the claim waits that waits longest.
    pub(super) fn since(&self) -> Option<Instant> {
        let still = |queue: &VecDeque<Waiting>| queue.iter().find(|one| !one.sender.is_closed()).map(|one| one.since);
        self.waiting.values().filter_map(still).min()
    }

    pub(super) fn push(&mut self, namespace: &Arc<str>, sender: oneshot::Sender<Worker>) {
        let queue = self.waiting.entry(Arc::clone(namespace)).or_default();
        if queue.is_empty() {
            self.order.push_back(Arc::clone(namespace));
        }
        queue.push_back(Waiting { since: Instant::now(), sender });
    }

    /// The next claim of a namespace that has room.
    pub(super) fn pop(&mut self, has_room: impl Fn(&Arc<str>) -> bool) -> Option<(Arc<str>, oneshot::Sender<Worker>)> {
        for _ in 0..self.order.len() {
            let namespace = self.order.pop_front()?;
            let Some(queue) = self.waiting.get_mut(&namespace) else { continue };
            while queue.front().is_some_and(|first| first.sender.is_closed()) {
                queue.pop_front();
            }
            let next = if has_room(&namespace) { queue.pop_front() } else { None };
            if queue.is_empty() {
                self.waiting.remove(&namespace);
            } else {
                self.order.push_back(Arc::clone(&namespace));
            }
            if let Some(Waiting { sender, .. }) = next {
                return Some((namespace, sender));
            }
        }
        None
    }
}
