//! What the operator remembers about claims between reconciles. All of it may be lost: it only saves calls, events and
//! waits.

mod burst_limiter;
mod last_status;
mod upkeep_times;
mod waits;

use parking_lot::Mutex;
use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use self::last_status::{LastStatus, StatusChange};
use self::upkeep_times::{Pending, UpkeepTimes};
use self::waits::Waits;
pub(crate) use self::waits::{Awaited, inputs};
use crate::reasons;
use crate::store::{AccessRemoval, AppCredentials, BucketRemoval, ClaimId, Removal, SecretRef};
use operator_runtime::engine::{Claimed, Remembered, Schedule, Table};

/// The progress of a removal, because the cache may not show it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalProgress {
    /// Only the claim's finalizer is left. The text is the closing message.
    AllButFinalizer(String),
    /// Nothing is left.
    Everything,
}

/// What is remembered about one claim. Fields that most claims do not need are boxed.
#[derive(Debug, Default)]
pub(crate) struct ClaimMemory {
    pub(crate) waits: Waits,
    pub(crate) upkeep: UpkeepTimes,
    pub(crate) last_status: Option<LastStatus>,
    /// When the store was last asked to create something.
    executed: Option<Instant>,
    /// Objects that were removed from the claim's bucket.
    removed_objects: u64,
    /// When emptying it last made progress.
    purge_moved: Option<Instant>,
    /// Since when the next part waits in the queue.
    purge_waiting_since: Option<Instant>,
    pub(crate) removal: Option<Box<RemovalProgress>>,
    /// The claim's access is removed; this need not be done again.
    pub(crate) access_gone: bool,
    /// The claim's bucket is removed.
    bucket_gone: bool,
    /// The API server refuses the generated name in this claim's spec.
    pub(crate) name_refused: bool,
    /// The name of its first ObjectBucket was not free.
    pub(crate) record_refused: bool,
}

impl ClaimMemory {
    /// The store is about to create something for the claim, or has just answered. Returns when it was asked before.
    pub(crate) fn executes(&mut self) -> Option<Instant> {
        // What an earlier removal has deleted may exist again.
        (self.access_gone, self.bucket_gone) = (false, false);
        self.executed.replace(Instant::now())
    }

    /// It has created nothing since then.
    pub(crate) fn executed_only(&mut self, before: Option<Instant>) {
        self.executed = before;
    }

    /// An attempt succeeded: after the next failure, the wait is the shortest again.
    pub(crate) fn succeeded(&mut self) {
        self.waits.schedule.succeeded();
        *self = Self {
            waits: Waits::of(std::mem::take(&mut self.waits.schedule)),
            last_status: self.last_status.take(),
            name_refused: self.name_refused,
            executed: self.executed,
            upkeep: std::mem::take(&mut self.upkeep),
            ..Self::default()
        };
    }

    /// Keeps new keys until they have been tried. If the process forgets them, the store issues others and deletes
    /// these.
    pub(crate) fn keep_pending_key(&mut self, keys: Option<AppCredentials>) {
        self.upkeep.pending_key = keys.map(|keys| Box::new(Pending { keys, denied: false }));
        self.waits.keys_work();
    }

    /// Keeps new keys that the store knows, until it no longer denies them.
    pub(crate) fn keep_denied_key(&mut self, keys: AppCredentials) {
        self.upkeep.pending_key = Some(Box::new(Pending { keys, denied: true }));
        self.waits.keys_work();
    }

    /// The bucket is not empty yet, and so many objects more were deleted; returns how many were deleted in all.
    pub(crate) fn purges(&mut self, removed: u64) -> u64 {
        if removed > 0 || self.purge_moved.is_none() {
            self.purge_moved = Some(Instant::now());
        }
        self.removed_objects(removed)
    }

    /// Whether the claim's bucket is being emptied, a part with each attempt.
    pub(crate) fn is_purging(&self) -> bool {
        self.purge_moved.is_some() && self.removal.is_none()
    }

    /// To be called with true when the next part starts to wait in the queue, and with false when it begins.
    pub(crate) fn set_purge_waits(&mut self, waits: bool) {
        let now = Instant::now();
        if waits {
            self.purge_waiting_since.get_or_insert(now);
        } else if let (Some(since), Some(moved)) = (self.purge_waiting_since.take(), &mut self.purge_moved) {
            // That it waited does not count.
            *moved += now.saturating_duration_since(since);
        }
    }

    /// What a removal has removed, together with what earlier attempts at it have: only what none of them found is missing.
    pub(crate) fn removed_before(&mut self, Removal { access, bucket }: Removal) -> Removal {
        self.access_gone |= access == AccessRemoval::Deleted;
        self.bucket_gone |= bucket == BucketRemoval::Deleted;
        let access = match access {
            AccessRemoval::NotFound if self.access_gone => AccessRemoval::Deleted,
            access => access,
        };
        let bucket = match bucket {
            BucketRemoval::NotFound if self.bucket_gone => BucketRemoval::Deleted,
            bucket => bucket,
        };
        Removal { access, bucket }
    }

    /// Adds to the number of objects removed from the claim's bucket, and returns it. Progress resets the backoff.
    pub(crate) fn removed_objects(&mut self, more: u64) -> u64 {
        self.removed_objects += more;
        if more > 0 {
            self.waits.schedule.progressed();
        }
        self.removed_objects
    }

    /// Time without progress, if the bucket is being emptied. If it cannot be removed for another reason, the
    /// status reports that one. A record without its claim has no status.
    fn purge_idle(&self, now: Instant) -> Option<Duration> {
        let is_stopped = self.last_status.is_some_and(|last| last.reason != reasons::PURGING);
        let moved = self.purge_moved.filter(|_| !is_stopped && self.removal.is_none())?;
        Some(self.purge_waiting_since.unwrap_or(now).saturating_duration_since(moved))
    }

    /// Resource version of the claim after our last write, until the cache shows it.
    pub(crate) fn version(&self) -> Option<String> {
        self.waits.schedule.written().map(|version| version.to_string())
    }
}

/// What was known of a deleted claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// Nothing.
    Unknown,
    /// The operator has removed what was created for it.
    Removed,
    /// The operator has not.
    Unfinished,
}

impl Remembered for ClaimMemory {
    fn schedule(&mut self) -> &mut Schedule {
        &mut self.waits.schedule
    }
}

/// Per-claim memory, by uid.
#[derive(Debug)]
pub(crate) struct Memory {
    since: Instant,
    claims: Table<ClaimMemory>,
    /// Those that may await something: few, while every change of a record asks for them.
    waiting: Mutex<HashSet<String>>,
}

/// The progress of the work on all claims.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How many buckets are being emptied.
    pub(crate) purges: usize,
    /// Time without progress of the most stalled one.
    pub(crate) purge_idle: Duration,
    /// How late the most overdue check is.
    pub(crate) check_late: Duration,
}

impl Default for Memory {
    fn default() -> Self {
        Self { since: Instant::now(), claims: Table::default(), waiting: Mutex::default() }
    }
}

impl Memory {
    /// Reads or changes the memory of a claim, and creates it if there is none. `f` must not use the memory itself.
    pub(crate) fn entry<T>(&self, claim: &ClaimId, f: impl FnOnce(&mut ClaimMemory) -> T) -> T {
        self.claims.entry(&claim.uid, f)
    }

    /// The same, but if there is no memory, returns the default.
    pub(crate) fn get<T: Default>(&self, claim: &ClaimId, f: impl FnOnce(&mut ClaimMemory) -> T) -> T {
        self.claims.get(&claim.uid, f)
    }

    /// The right to process a claim, for one at a time: a claim and its orphaned record may be processed by two loops.
    pub(crate) fn try_lock(&self, claim: &ClaimId) -> Option<Claimed<'_>> {
        self.claims.begin(&claim.uid)
    }

    /// The number of claims in memory.
    pub(crate) fn claims(&self) -> usize {
        self.claims.len()
    }

    /// Forgets a deleted claim.
    pub(crate) fn forget(&self, uid: &str) -> Forgotten {
        match self.claims.forget(uid) {
            None => Forgotten::Unknown,
            Some(known) if known.removal.is_some() => Forgotten::Removed,
            Some(_) => Forgotten::Unfinished,
        }
    }

    /// A list has shown these claims as they are. Forgets all others, because they may have been deleted while nothing was
    /// watched; and all versions, because they decrease when the data of the API server are restored.
    pub(crate) fn listed(&self, uids: &HashSet<String>) {
        self.claims.keep_only(|uid| uids.contains(uid));
        self.claims.for_each(|_, known| known.schedule().forget_write());
    }

    /// Whether the cache shows the claim as it was before our last write. Then there is nothing to do until the watch
    /// shows the newer version.
    pub(crate) fn is_stale(&self, claim: &ClaimId, resource_version: Option<&str>) -> bool {
        self.claims.is_behind(&claim.uid, resource_version)
    }

    /// Remembers that we wrote the claim.
    pub(crate) fn wrote(&self, claim: &ClaimId, resource_version: Option<&str>) {
        self.claims.wrote(&claim.uid, resource_version);
    }

    /// Sets when to recheck the claim even if nothing has changed; `None` for never.
    pub(crate) fn recheck_in(&self, claim: &ClaimId, wait: Option<Duration>) {
        self.claims.recheck_in(&claim.uid, wait);
    }

    /// Waits until claims are to be rechecked although nothing has changed; returns their uids.
    pub(crate) async fn due(&self) -> HashSet<String> {
        self.claims.due().await.into_iter().map(String::from).collect()
    }

    /// The time since the store may have been asked to create something for the claim, by this process or an earlier one.
    pub(crate) fn since_last_change(&self, claim: &ClaimId) -> Duration {
        self.get(claim, |m| m.executed).unwrap_or(self.since).elapsed()
    }

    /// The progress of the work on all claims.
    pub(crate) fn progress(&self) -> Progress {
        let (now, mut progress) = (Instant::now(), Progress::default());
        self.claims.for_each(|_, known| {
            if let Some(idle) = known.purge_idle(now) {
                progress.purges += 1;
                progress.purge_idle = progress.purge_idle.max(idle);
            }
            progress.check_late = progress.check_late.max(known.upkeep.check_late_by(now));
        });
        progress
    }

    /// The reason that was reported last on a claim.
    pub(crate) fn reason(&self, uid: &str) -> Option<&'static str> {
        self.claims.get(uid, |known| known.last_status.map(|last| last.reason))
    }

    /// Ends the wait of one claim.
    pub(crate) fn wake(&self, uid: &str) {
        self.claims.get(uid, |known| known.waits.schedule.wake());
    }

    /// Ends the wait of a claim whose status has one of these reasons.
    pub(crate) fn wake_if_reported(&self, uid: &str, reasons: &[&str]) {
        self.claims.get(uid, |known| {
            if known.last_status.as_ref().is_some_and(|last| reasons.contains(&last.reason)) {
                known.waits.schedule.wake();
            }
        });
    }

    /// Ends the wait of every claim that depends on `secret` and has not read this version; returns their uids.
    pub(crate) fn wake_dependants(&self, secret: &SecretRef, version: Option<&str>) -> HashSet<String> {
        let mut woken = HashSet::new();
        self.claims.for_each(|uid, known| {
            if known.waits.wake_for_secret(secret, version) {
                woken.insert(uid.to_owned());
            }
        });
        woken
    }

    /// Remembers what a claim waits for.
    pub(crate) fn wait_for(&self, claim: &ClaimId, awaited: Option<Awaited>) {
        self.note_wait(claim, |waits| waits.wait_for(awaited));
    }

    /// Remembers whether a claim waits for its ServiceAccount, beside what else it waits for.
    pub(crate) fn wait_for_account(&self, claim: &ClaimId, account: Option<Awaited>) {
        self.note_wait(claim, |waits| waits.wait_for_account(account));
    }

    fn note_wait(&self, claim: &ClaimId, note: impl FnOnce(&mut Waits)) {
        let waits = self.entry(claim, |m| {
            note(&mut m.waits);
            m.waits.awaits_something()
        });
        let mut waiting = self.waiting.lock();
        if waits {
            waiting.insert(claim.uid.clone());
        } else {
            waiting.remove(&claim.uid);
        }
    }

    /// Ends the wait of every claim that waits for one of these; returns their uids.
    pub(crate) fn wake_for(&self, changed: &[Awaited]) -> HashSet<String> {
        let mut waiting = self.waiting.lock();
        waiting.retain(|uid| self.claims.get(uid, |known| known.waits.awaits_something()));
        let wakes =
            |uid: &&String| self.claims.get(uid, |known| changed.iter().any(|changed| known.waits.wake_for(changed)));
        waiting.iter().filter(wakes).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FailureClass;

    fn claim() -> ClaimId {
        ClaimId { namespace: "ns".into(), name: "c".into(), uid: "u".into() }
    }

    #[test]
    fn a_deleted_object_may_be_missing_until_it_is_created_again() {
        let memory = Memory::default();
        let gone = || Removal { access: AccessRemoval::Deleted, bucket: BucketRemoval::Deleted };
        let missing = || Removal { access: AccessRemoval::NotFound, bucket: BucketRemoval::NotFound };
        memory.entry(&claim(), |m| m.removed_before(gone()));
        assert!(!memory.entry(&claim(), |m| m.removed_before(missing())).missed_something());
        memory.entry(&claim(), |m| m.executes());
        assert!(memory.entry(&claim(), |m| m.removed_before(missing())).missed_something());
    }

    #[test]
    fn a_list_shows_claims_as_they_are_also_at_lower_versions() {
        let memory = Memory::default();
        memory.wrote(&claim(), Some("12"));
        assert!(memory.is_stale(&claim(), Some("9")));
        memory.listed(&HashSet::from(["u".to_owned()]));
        assert!(!memory.is_stale(&claim(), Some("9")), "the API server was restored");
    }

    #[test]
    fn a_secret_wakes_the_claims_that_depend_on_it() {
        let memory = Memory::default();
        let secret = SecretRef { namespace: "ns".into(), name: "owner".into() };
        memory.entry(&claim(), |m| m.waits.depends_on(&secret));
        memory.entry(&ClaimId { uid: "other".into(), ..claim() }, |_| ());
        assert_eq!(memory.wake_dependants(&secret, Some("8")), HashSet::from(["u".to_owned()]));
    }

    #[test]
    fn a_change_wakes_the_claims_that_wait_for_it() {
        let memory = Memory::default();
        let is_waiting = |memory: &Memory| !memory.waiting.lock().is_empty();
        let account = Awaited::ServiceAccount("ns".into(), "web".into());
        memory.wait_for(&claim(), Some(Awaited::Creator("ns".into(), "c".into())));
        memory.wait_for_account(&claim(), Some(account.clone()));
        assert_eq!(memory.wake_for(&[Awaited::Creator("ns".into(), "c".into())]).len(), 1, "both are waited for");
        memory.wait_for(&claim(), None);
        assert_eq!(memory.wake_for(&[account]).len(), 1);
        memory.wait_for_account(&claim(), None);
        let (photos, other) = (Awaited::Bucket("photos".into()), Awaited::Bucket("other".into()));
        memory.wait_for(&claim(), Some(photos.clone()));
        assert!(memory.wake_for(&[other]).is_empty());
        assert_eq!(
            memory.wake_for(&[Awaited::Creator("ns".into(), "c".into()), photos.clone()]),
            HashSet::from(["u".to_owned()])
        );
        memory.wait_for(&claim(), None);
        assert!(memory.wake_for(std::slice::from_ref(&photos)).is_empty() && !is_waiting(&memory));
        memory.wait_for(&claim(), Some(photos.clone()));
        memory.forget("u");
        assert!(memory.wake_for(&[photos]).is_empty() && !is_waiting(&memory));
    }

    #[test]
    fn a_refused_removal_is_tried_less_and_less() {
        let memory = Memory::default();
        memory.entry(&claim(), |m| {
            assert_eq!(m.removed_objects(5), 5);
            let waits: Vec<_> = (0..8)
                .map(|_| {
                    assert_eq!(m.removed_objects(0), 5);
                    m.waits.failed(FailureClass::Retryable)
                })
                .collect();
            assert!(waits[7] >= Duration::from_secs(60), "{waits:?}");
            m.removed_objects(1);
            assert!(m.waits.failed(FailureClass::Retryable) <= Duration::from_secs(1), "it went on");
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_purge_is_shown_behind_a_moving_one() {
        let (memory, minute) = (Memory::default(), Duration::from_secs(60));
        let (stuck, moving) = (claim(), ClaimId { uid: "moving".into(), ..claim() });
        let report = |id: &ClaimId, reason| {
            memory.entry(id, |m| m.last_status = Some(LastStatus::new(reason, "")));
            assert_eq!(memory.reason(&id.uid), Some(reason));
        };
        let shows = || (memory.progress().purges, memory.progress().purge_idle);
        for id in [&stuck, &moving] {
            memory.entry(id, |m| m.purges(1000));
            report(id, reasons::PURGING);
        }
        tokio::time::advance(minute).await;
        memory.entry(&stuck, |m| m.purges(0));
        memory.entry(&moving, |m| m.purges(1000));
        assert_eq!(shows(), (2, minute));
        memory.entry(&stuck, |m| m.set_purge_waits(true));
        tokio::time::advance(minute).await;
        memory.entry(&moving, |m| m.purges(1000));
        assert_eq!(shows(), (2, minute), "the queue serves others");
        memory.entry(&stuck, |m| m.set_purge_waits(false));
        assert_eq!(shows(), (2, minute));
        report(&stuck, reasons::BUCKET_IN_USE);
        memory.entry(&moving, |m| m.removal = Some(Box::new(RemovalProgress::Everything)));
        assert_eq!(shows(), (0, Duration::ZERO), "one is stopped by something else, and one is done");
    }
}
