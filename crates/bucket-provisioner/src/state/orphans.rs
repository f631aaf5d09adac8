//! The ObjectBuckets that wait for an admin or for their deletion, for metrics, and the claims that vanished.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How often the check looks for records that have their claims again. To check ten thousand records takes time.
const LOOK: Duration = Duration::from_secs(60);

/// For how long a claim that vanished is remembered, if nothing asks for it: an attempt that was running may write its
/// record later.
const REMEMBERED: Duration = Duration::from_secs(60 * 60);
/// For how long an attempt that was running may still write the record of its claim.
const RUNNING: SignedDuration = SignedDuration::from_secs(130);
/// How many are remembered before the old ones are removed.
const MANY: usize = 1000;

/// Records that had no claim when they were last checked, and claims that were deleted without the operator.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    found: Mutex<Found>,
    /// By uid.
    vanished: Mutex<HashMap<Box<str>, Vanished>>,
}

/// A claim that was deleted without the operator.
#[derive(Debug, Clone, Copy)]
struct Vanished {
    at: Timestamp,
    /// When somebody last asked for it.
    asked: Instant,
}

#[derive(Debug, Default)]
struct Found {
    /// By name, with the reason.
    records: HashMap<Box<str>, &'static str>,
    /// By name, those whose bucket is deleted later. While its deletion makes progress, it is none of them.
    scheduled: HashMap<Box<str>, Scheduled>,
    looked: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Scheduled {
    at: Timestamp,
    /// It waits for other claims, and not for that time.
    is_in_use: bool,
}

impl Orphans {
    /// What the check of a record has found; `None`: it has its claim, or was deleted.
    pub(crate) fn found(&self, record: &str, reason: Option<&'static str>) {
        let all = &mut self.found.lock().records;
        match reason {
            Some(reason) => all.insert(record.into(), reason),
            None => all.remove(record),
        };
    }

    /// The deletion of a record's bucket is scheduled for this time, or overdue since then; `None`: it is not, or is
    /// running.
    pub(crate) fn scheduled(&self, record: &str, at: Option<Timestamp>) {
        let all = &mut self.found.lock().scheduled;
        match at {
            Some(at) => {
                // Whether others still use the bucket, only the next attempt shows.
                let known = all.entry(record.into()).or_insert(Scheduled { at, is_in_use: false });
                *known = Scheduled { at, is_in_use: known.is_in_use && known.at == at };
            }
            None => drop(all.remove(record)),
        }
    }

    /// Whether the last attempt at a scheduled deletion has found that other claims use the bucket.
    pub(crate) fn bucket_in_use(&self, record: &str, is_in_use: bool) {
        if let Some(known) = self.found.lock().scheduled.get_mut(record) {
            known.is_in_use = is_in_use;
        }
    }

    /// A record does not exist any more.
    pub(crate) fn gone(&self, record: &str) {
        self.found(record, None);
        self.scheduled(record, None);
    }

    /// Whether it is known that a deletion is scheduled, or late.
    pub(crate) fn is_scheduled(&self, record: &str) -> bool {
        self.found.lock().scheduled.contains_key(record)
    }

    /// How many deletions are scheduled, and when the next one is of those that wait for their time only.
    pub(crate) fn deletions(&self) -> (usize, Option<Timestamp>) {
        let found = self.found.lock();
        (found.scheduled.len(), found.scheduled.values().filter(|one| !one.is_in_use).map(|one| one.at).min())
    }

    /// How many there are, by reason. Those that are not `still` without a claim are forgotten, within a minute: nobody
    /// checks them again.
    pub(crate) fn count(&self, still: impl Fn(&str) -> bool) -> HashMap<&'static str, usize> {
        let names = self.to_look_at();
        // Not under the lock, which the checks of records need.
        let over: HashSet<Box<str>> = names.into_iter().filter(|record| !still(record)).collect();
        let (mut found, mut counts) = (self.found.lock(), HashMap::new());
        // Checked again, because it may have lost its claim meanwhile.
        found.records.retain(|record, _| !over.contains(record) || still(record));
        found.scheduled.retain(|record, _| !over.contains(record) || still(record));
        for reason in found.records.values() {
            *counts.entry(*reason).or_default() += 1;
        }
        counts
    }

    /// All names, if it is time to check them again.
    fn to_look_at(&self) -> Vec<Box<str>> {
        let mut found = self.found.lock();
        if found.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return Vec::new();
        }
        found.looked = Some(Instant::now());
        let Found { records, scheduled, .. } = &*found;
        records.keys().chain(scheduled.keys()).cloned().collect()
    }

    /// The watch has shown that a claim was deleted, and the operator has not removed its finalizer.
    pub(crate) fn vanished(&self, uid: &str) {
        let mut all = self.vanished.lock();
        if all.len() >= MANY {
            all.retain(|_, vanished| vanished.asked.elapsed() < REMEMBERED);
        }
        all.insert(uid.into(), Vanished { at: Timestamp::now(), asked: Instant::now() });
    }

    /// Whether a claim vanished whose record was `created` then; not one that was restored later.
    pub(crate) fn has_vanished(&self, uid: &str, created: Option<Timestamp>) -> bool {
        let mut all = self.vanished.lock();
        let Some(vanished) = all.get_mut(uid) else { return false };
        vanished.asked = Instant::now();
        let end = vanished.at.checked_add(RUNNING).unwrap_or(Timestamp::MAX);
        created.is_some_and(|created| created <= end)
    }

    /// The access of a claim that vanished is removed.
    pub(crate) fn handled(&self, uid: &str) {
        self.vanished.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_deletion_is_known_until_it_runs_or_has_a_claim() {
        let at = |second| Timestamp::from_second(second).ok();
        let orphans = Orphans::default();
        for (record, second) in [("a", 30), ("b", 10), ("undone", 5)] {
            orphans.scheduled(record, at(second));
        }
        assert_eq!(orphans.deletions(), (3, at(5)));
        assert!(orphans.count(|record| record != "undone").is_empty(), "none of them waits for an admin");
        assert_eq!(orphans.deletions(), (2, at(10)));
        orphans.bucket_in_use("b", true);
        orphans.scheduled("b", at(10));
        assert_eq!(orphans.deletions(), (2, at(30)), "it is not late, but waits for others");
        orphans.bucket_in_use("b", false);
        assert_eq!(orphans.deletions(), (2, at(10)));
        orphans.scheduled("b", None);
        assert_eq!(orphans.deletions(), (1, at(30)));
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_checked_once_a_minute() {
        let orphans = Orphans::default();
        orphans.found("lost", Some("ClaimGone"));
        orphans.found("restored", Some("ClaimGone"));
        let looks = std::cell::Cell::new(0);
        let still = |record: &str| {
            looks.set(looks.get() + 1);
            orphans.found.try_lock().map_or(record == "lost", |_free| true)
        };
        assert_eq!(orphans.count(still)["ClaimGone"], 2);
        assert_eq!((orphans.count(still)["ClaimGone"], looks.get()), (2, 2));
        tokio::time::advance(LOOK).await;
        assert_eq!(orphans.count(|record| record == "lost"), HashMap::from([("ClaimGone", 1)]));
        orphans.found("lost", None);
        assert!(orphans.count(still).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_vanished_is_known_as_long_as_somebody_asks() {
        let (orphans, now) = (Orphans::default(), Some(Timestamp::now()));
        orphans.vanished("asked");
        orphans.vanished("never");
        for _ in 0..3 {
            tokio::time::advance(REMEMBERED / 2).await;
            assert!(orphans.has_vanished("asked", now));
        }
        (0..MANY).for_each(|number| orphans.vanished(&number.to_string()));
        assert!(orphans.has_vanished("asked", now) && !orphans.has_vanished("never", now));
        let restored = now.and_then(|now| now.checked_add(SignedDuration::from_mins(5)).ok());
        assert!(!orphans.has_vanished("asked", restored) && !orphans.has_vanished("asked", None));
        orphans.handled("asked");
        assert!(!orphans.has_vanished("asked", now));
    }
}
