//! Whether a CustomResourceDefinition of ours is being deleted, as it was read last.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// For how long an answer counts. A deletion that begins meanwhile deletes the claims one after the other, so at most those
/// of the first seconds are processed.
const FRESH: Duration = Duration::from_secs(5);

/// Name of the CRD that is being deleted without a confirmation, if there is one.
pub(crate) type Deleting = Option<&'static str>;

/// The last answer.
#[derive(Debug, Default)]
pub(crate) struct Crds(Mutex<Option<(Instant, Deleting)>>);

/// The right to ask, which one at a time has.
pub(crate) struct Asking<'a>(MutexGuard<'a, Option<(Instant, Deleting)>>);

impl Crds {
    /// Waits until nobody else asks.
    pub(crate) async fn ask(&self) -> Asking<'_> {
        Asking(self.0.lock().await)
    }
}

impl Asking<'_> {
    /// The last answer, if it still counts.
    pub(crate) fn known(&self) -> Option<Deleting> {
        self.0.filter(|(at, _)| at.elapsed() < FRESH).map(|(_, deleting)| deleting)
    }

    pub(crate) fn answered(&mut self, deleting: Deleting) {
        *self.0 = Some((Instant::now(), deleting));
    }
}
