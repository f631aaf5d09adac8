//! The claims of one store: how many of them have a worker, and which is next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::queue::{Queue, Share};
use super::{Urgency, Worker};

/// After so many failures in a row, only one claim at a time calls a store.
pub(super) const FAILURES: u32 = 3;

/// After so long without a claim that calls it, nobody needs to know that a store was silent. Claims that need it call it
/// at least every 5 minutes.
pub(super) const FORGOTTEN: Duration = Duration::from_secs(900);

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) busy: Share,
    /// How many of the busy workers there are of each urgency.
    pub(super) working: [usize; 3],
    /// How many of them wait because the store limits the rate of calls.
    pub(super) throttled: usize,
    /// One for each urgency.
    pub(super) queues: [Queue; 3],
    /// How often in a row it did not answer, or refused the credentials.
    pub(super) failures: u32,
    /// The time of the last failure.
    pub(super) failed_at: Option<Instant>,
    /// It has become silent, or a claim has begun to wait for its rate limit.
    pub(super) slowed: Arc<Notify>,
}

impl Store {
    pub(super) fn is_silent(&self) -> bool {
        self.failures >= FAILURES
    }

    /// How many claims can have a worker at the same time.
    pub(super) fn limit(&self, all: usize) -> usize {
        if self.is_silent() { 1 } else { (all / 4).max(1) }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.queues.iter().any(|queue| !queue.order.is_empty())
    }

    /// Whether it can be forgotten.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_used() && self.failures == 0
    }

    pub(super) fn is_used(&self) -> bool {
        !self.busy.namespaces.is_empty() || self.is_waited_for()
    }

    /// Whether it has been unused for so long that its failures can be forgotten.
    pub(super) fn is_abandoned(&self) -> bool {
        !self.is_used() && self.failed_at.is_none_or(|failed_at| failed_at.elapsed() > FORGOTTEN)
    }

    /// The next claim of this store, if there is a free worker, which then counts as busy.
    pub(super) fn next(
        &mut self,
        all_busy: &Share,
        all: usize,
    ) -> Option<(Arc<str>, Urgency, oneshot::Sender<Worker>)> {
        let limit = self.limit(all);
        if self.busy.is_full(limit) {
            return None;
        }
        let busy = &self.busy;
        let has_room = |namespace: &Arc<str>| busy.has_room(limit, namespace) && all_busy.has_room(all, namespace);
        let half = (limit / 2).max(1);
        let (working, queues) = (&self.working, &mut self.queues);
        // One worker for each, however many claims of a higher priority wait.
        let starving = |urgency: &Urgency| limit >= 4 && working[*urgency as usize] == 0;
        let order = [Urgency::Purge, Urgency::Check].into_iter().filter(starving).chain(Urgency::ALL);
        let next = order.into_iter().find_map(|urgency| {
            if urgency != Urgency::Wanted && working[urgency as usize] >= half {
                return None;
            }
            queues[urgency as usize].pop(has_room).map(|(namespace, sender)| (namespace, urgency, sender))
        });
        let (namespace, urgency, _) = next.as_ref()?;
        self.busy.take(namespace);
        self.working[*urgency as usize] += 1;
        next
    }
}
