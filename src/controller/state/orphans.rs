//! The records that wait for an admin, for metrics.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How often those are looked for that have their claims again. To look at ten thousand records takes time.
const LOOK: Duration = Duration::from_secs(60);

/// Records that had no claim when they were last checked.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    /// By name, with the reason.
    records: HashMap<Box<str>, &'static str>,
    looked: Option<Instant>,
}

impl Orphans {
    /// What the check of a record has found; `None`: it has its claim, or is gone.
    pub(crate) fn found(&self, record: &str, reason: Option<&'static str>) {
        let all = &mut self.lock().records;
        match reason {
            Some(reason) => all.insert(record.into(), reason),
            None => all.remove(record),
        };
    }

    /// How many there are, by reason. Those that are not `still` without a claim are forgotten, within a minute: nobody
    /// checks them again.
    pub(crate) fn count(&self, still: impl Fn(&str) -> bool) -> HashMap<&'static str, usize> {
        let names = self.to_look_at();
        // Not under the lock, which those need who check records.
        let over: HashSet<Box<str>> = names.into_iter().filter(|record| !still(record)).collect();
        let (mut found, mut counts) = (self.lock(), HashMap::new());
        // Another look, because it may have lost its claim meanwhile.
        found.records.retain(|record, _| !over.contains(record) || still(record));
        for reason in found.records.values() {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }

    /// All names, if it is time to look at them again.
    fn to_look_at(&self) -> Vec<Box<str>> {
        let mut found = self.lock();
        if found.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Vec::new();
        }
        found.looked = Some(Instant::now());
        found.records.keys().cloned().collect()
    }

    // A panic elsewhere leaves the map consistent.
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn records_are_looked_at_once_a_minute_and_may_be_checked_meanwhile() {
        let orphans = Orphans::default();
        orphans.found("lost", Some("ClaimGone"));
        orphans.found("restored", Some("ClaimGone"));
        let looks = std::cell::Cell::new(0);
        let still = |record: &str| {
            looks.set(looks.get() + 1);
            orphans.0.try_lock().map_or(record == "lost", |_free| true)
        };
        assert_eq!(orphans.count(still)["ClaimGone"], 2);
        assert_eq!((orphans.count(still)["ClaimGone"], looks.get()), (2, 2));
        tokio::time::advance(LOOK).await;
        assert_eq!(orphans.count(|record| record == "lost"), HashMap::from([("ClaimGone", 1)]));
        orphans.found("lost", None);
        assert!(orphans.count(still).is_empty());
    }
}
