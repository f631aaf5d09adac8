//! Room for pages of listings. Who uses a bucket chooses its keys, of up to 1,024 bytes each, and a page of 1,000 of them
//! takes some 25 MiB while it is read and deleted: all pages together may take no more than fits.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a page takes at most, in parts of an eighth of it.
const PAGE: u32 = 8;
/// What all pages may take.
const ALL: usize = 4 * PAGE as usize;
/// Bytes of keys and versions in one part.
const PART: usize = 128 << 10;

/// Room for all pages that are in memory at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<Semaphore>);

/// Room that a page takes, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken(Option<OwnedSemaphorePermit>);

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ALL)))
    }
}

impl Room {
    /// Waits for room for a page, as large as it can be.
    pub(crate) async fn for_page(&self) -> Taken {
        // It is never closed.
        Taken(Arc::clone(&self.0).acquire_many_owned(PAGE).await.ok())
    }
}

impl Taken {
    /// The page has this many bytes of keys and versions, and takes no more than that.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let needed = (bytes / PART + 1).min(PAGE as usize);
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
        let room = Room::default();
        let large: Vec<_> = (0..10).map_while(|_| room.for_page().now_or_never()).collect();
        assert_eq!(large.len(), 4);
        drop(large);
        let small = |_| {
            let mut page = room.for_page().now_or_never()?;
            page.shrink(50_000);
            Some(page)
        };
        let pages: Vec<_> = (0..100).map_while(small).collect();
        assert_eq!(pages.len(), ALL - PAGE as usize + 1);
        drop(pages);
        assert_eq!(room.0.available_permits(), ALL);
    }
}
