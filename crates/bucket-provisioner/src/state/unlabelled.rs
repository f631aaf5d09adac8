//! ObjectBuckets without the label that names their bucket, as they were listed last: those of the Go provisioner and of
//! earlier versions. There can be thousands, so they are not listed for each removal.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// For how long a list counts.
const FRESH: Duration = Duration::from_secs(10);

/// Names of ObjectBuckets, by bucket.
pub(crate) type ByBucket = HashMap<Box<str>, Vec<Box<str>>>;

/// The last list.
#[derive(Debug, Default)]
pub(crate) struct Unlabelled(Mutex<Option<(Instant, ByBucket)>>);

/// The right to list them, which one at a time has.
pub(crate) struct Listing<'a>(MutexGuard<'a, Option<(Instant, ByBucket)>>);

impl Unlabelled {
    /// Waits until nobody else lists them.
    pub(crate) async fn list(&self) -> Listing<'_> {
        Listing(self.0.lock().await)
    }
}

impl Listing<'_> {
    /// Whether the last list still counts.
    pub(crate) fn is_fresh(&self) -> bool {
        self.0.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH)
    }

    pub(crate) fn listed(&mut self, found: ByBucket) {
        *self.0 = Some((Instant::now(), found));
    }

    /// The names of those with this bucket.
    pub(crate) fn with(&self, bucket: &str) -> Vec<String> {
        let names = self.0.as_ref().and_then(|(_, found)| found.get(bucket));
        names.into_iter().flatten().map(|name| name.to_string()).collect()
    }
}
