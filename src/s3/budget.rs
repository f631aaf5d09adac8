//! The memory for pages of listings. The user of a bucket chooses its keys, of up to 1,024 bytes each, and a page of
//! 1,000 of them takes some 25 MiB while it is read and deleted. So all pages together share one budget.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use bucket_provisioner::store::rate_wait;

/// The largest page, in units of an eighth of it.
const PAGE: u32 = 8;
/// All pages together.
const TOTAL: usize = 4 * PAGE as usize;
/// Bytes of keys and versions in one unit.
const UNIT: usize = 128 << 10;

/// The budget of all pages that are in memory at the same time.
#[derive(Debug, Clone)]
pub(crate) struct MemoryBudget(Arc<Semaphore>);

/// The memory of one page, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation(Option<OwnedSemaphorePermit>);

impl Default for MemoryBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TOTAL)))
    }
}

impl MemoryBudget {
    /// Waits until there is memory for a page of the largest size: a wait for others, not for the store.
    pub(crate) async fn reserve_page(&self) -> Reservation {
        // The semaphore is never closed, so this is always `Some`.
        Reservation(rate_wait::wait(Arc::clone(&self.0).acquire_many_owned(PAGE)).await.ok())
    }
}

impl Reservation {
    /// Gives back what the page does not need, given its bytes of keys and versions.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let needed = (bytes / UNIT + 1).min(PAGE as usize);
        if let Some(permit) = &mut self.0 {
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
        assert_eq!(large.len(), 4);
        drop(large);
        let small = |_| {
            let mut page = budget.reserve_page().now_or_never()?;
            page.shrink(50_000);
            Some(page)
        };
        let pages: Vec<_> = (0..100).map_while(small).collect();
        assert_eq!(pages.len(), TOTAL - PAGE as usize + 1);
        drop(pages);
        assert_eq!(budget.0.available_permits(), TOTAL);
    }
}
