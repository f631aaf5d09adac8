//! How far the emptying of each bucket came: one call of the verb removes a part, and the next one continues behind it.
//! After a restart it begins again.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::s3::empty::{Progress, Reached, Undeleted};
use crate::s3::listing::Cursor;
use bucket_provisioner::store::Record;

/// Passes over the whole bucket before objects that still arrive are reported.
const PASSES: u32 = 3;
/// For how long an interrupted emptying is remembered.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// An emptying: passes over the whole bucket, in the order of keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Emptying {
    /// Where the next call continues; `None`: at the first key.
    from: Option<Cursor>,
    /// Objects that cannot be deleted would hide others behind them if the listing began again.
    in_a_row: bool,
    /// In this pass.
    removed: u64,
    undeleted: Option<Undeleted>,
    /// How many are over.
    passes: u32,
}

/// A pass over the whole bucket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) removed: u64,
    pub(crate) undeleted: Option<Undeleted>,
    /// There should be no other one at once, even if it would remove more.
    pub(crate) is_last: bool,
}

impl Emptying {
    /// Whether nothing was removed yet.
    pub(crate) fn is_new(&self) -> bool {
        self.passes == 0 && self.removed == 0 && self.from.is_none() && !self.in_a_row
    }

    pub(crate) fn from(&self) -> Option<Cursor> {
        self.from.clone()
    }

    pub(crate) fn in_a_row(&self) -> bool {
        self.in_a_row
    }

    /// Adds what a call did. `Some`: it was the last one of a pass.
    pub(crate) fn add(&mut self, progress: Progress) -> Option<Pass> {
        let Progress { removed, undeleted, reached } = progress;
        self.removed += removed;
        self.in_a_row |= undeleted.is_some();
        self.undeleted = self.undeleted.take().into_iter().chain(undeleted).reduce(Undeleted::and);
        match reached {
            Reached::At(cursor) => self.from = Some(cursor),
            Reached::Unknown => {}
            Reached::End => {
                self.passes += 1;
                self.from = None;
                let (removed, undeleted) = (std::mem::take(&mut self.removed), self.undeleted.take());
                return Some(Pass { removed, undeleted, is_last: self.passes >= PASSES });
            }
        }
        None
    }
}

/// By the uids of the claims.
#[derive(Debug, Default)]
pub(crate) struct Emptyings(Mutex<HashMap<String, (Instant, Emptying)>>);

impl Emptyings {
    /// What is remembered of a record.
    pub(crate) fn of(&self, record: &Record) -> Emptying {
        let mut all = self.0.lock();
        all.retain(|_, (at, _)| at.elapsed() < KEPT);
        all.get(&record.claim.uid).map(|(_, emptying)| emptying.clone()).unwrap_or_default()
    }

    pub(crate) fn keep(&self, record: &Record, emptying: Emptying) {
        self.0.lock().insert(record.claim.uid.clone(), (Instant::now(), emptying));
    }

    pub(crate) fn forget(&self, record: &Record) {
        self.0.lock().remove(&record.claim.uid);
    }
}
