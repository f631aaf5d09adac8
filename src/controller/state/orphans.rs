//! The records that wait for an admin, for metrics.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Records that had no claim when they were last checked, by name, with the reason.
#[derive(Debug, Default)]
pub(crate) struct Orphans(Mutex<HashMap<Box<str>, &'static str>>);

impl Orphans {
    /// What the check of a record has found; `None`: it has its claim, or is gone.
    pub(crate) fn found(&self, record: &str, reason: Option<&'static str>) {
        let mut all = self.lock();
        match reason {
            Some(reason) => all.insert(record.into(), reason),
            None => all.remove(record),
        };
    }

    /// How many there are, by reason. Those that are not `still` without a claim are forgotten: nobody checks them again.
    pub(crate) fn count(&self, still: impl Fn(&str) -> bool) -> HashMap<&'static str, usize> {
        let (mut all, mut counts) = (self.lock(), HashMap::new());
        all.retain(|record, _| still(record));
        for reason in all.values() {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }

    // A panic elsewhere leaves the map consistent.
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, &'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
