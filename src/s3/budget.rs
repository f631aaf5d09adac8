//! The memory for pages of listings. The user of a bucket chooses its keys, of up to 1,024 bytes each, and a page of
//! 1,000 of them takes some 25 MiB while it is read and deleted. So all pages together share one budget.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use bucket_provisioner::store::rate_wait;

/// The largest page, in units of an eighth of it.
const PAGE: u32 = 8;
/// All pages together.
const TOTAL: usize = 4 * PAGE as usize;
/// The pages of one store: one that answers slowly leaves a page to the others.
const OF_STORE: usize = 3 * PAGE as usize;
/// Bytes of keys and versions in one unit.
const UNIT: usize = 128 << 10;

/// A store's part of the budget of all pages that are in memory at the same time.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    all: Arc<Semaphore>,
    store: Arc<Semaphore>,
}

/// The memory of one page, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation([Option<OwnedSemaphorePermit>; 2]);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(TOTAL)), store: Arc::new(Semaphore::new(OF_STORE)) }
    }
}

impl MemoryBudget {
    /// The part of another store in the same budget.
    pub(crate) fn of_another_store(&self) -> Self {
        Self { all: Arc::clone(&self.all), ..Self::default() }
    }

    /// Waits until there is memory for a page of the largest size: a wait for others, not for the store.
    pub(crate) async fn reserve_page(&self) -> Reservation {
        rate_wait::wait(async {
            // The semaphores are never closed, so these are always `Some`.
            let store = Arc::clone(&self.store).acquire_many_owned(PAGE).await.ok();
            Reservation([store, Arc::clone(&self.all).acquire_many_owned(PAGE).await.ok()])
        })
        .await
    }
}

impl Reservation {
    /// Gives back what the page does not need, given its bytes of keys and versions.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let needed = (bytes / UNIT + 1).min(PAGE as usize);
        for permit in self.0.iter_mut().flatten() {
            drop(permit.split(permit.num_permits().saturating_sub(needed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn four_large_pages_take_all_and_small_ones_next_to_nothing() {
        let budget = MemoryBudget::default();
        let large: Vec<_> = (0..10).map_while(|_| budget.reserve_page().now_or_never()).collect();
        assert_eq!(large.len(), 3, "a store leaves one to the others");
        let other = budget.of_another_store();
        let others: Vec<_> = (0..10).map_while(|_| other.reserve_page().now_or_never()).collect();
        assert_eq!(others.len(), 1);
        drop((large, others));
        let small = |_| {
            let mut page = budget.reserve_page().now_or_never()?;
            page.shrink(50_000);
            Some(page)
        };
        let pages: Vec<_> = (0..100).map_while(small).collect();
        assert_eq!(pages.len(), OF_STORE - PAGE as usize + 1);
        drop(pages);
        assert_eq!((budget.all.available_permits(), budget.store.available_permits()), (TOTAL, OF_STORE));
    }
}
