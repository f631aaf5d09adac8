//! What the operator remembers of claims between reconciles. All of it may be lost: it only spares
//! calls, events and waiting; nothing that matters rests on it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::RngExt as _;
use tokio::time::Instant;

use crate::controller::decide::backoff;
use crate::controller::state::row::Row;
use crate::provisioner::{AppCredentials, ClaimId, FailureClass, SecretRef, WantedBucket};

/// What a claim was last told; the same thing is not told twice. The message is kept as its hash: of thousands
/// of claims that are well nobody reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastStatus {
    reason: &'static str,
    message: u64,
}

impl LastStatus {
    pub(crate) fn new(reason: &'static str, message: &str) -> Self {
        Self { reason, message: hash(message) }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// How what a claim is told compares with what it was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusChange {
    /// The very same.
    None,
    /// The same reason in other words.
    Message,
    /// Another reason.
    Reason,
}

/// The inputs of an attempt: as long as they stand, a claim that waits goes on waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inputs {
    pub(crate) class_name: Option<String>,
    pub(crate) bucket: Option<WantedBucket>,
    pub(crate) deleting: bool,
    /// The annotation by which somebody asks for another attempt at once.
    pub(crate) retry: Option<String>,
}

/// How far a removal came, where the cache may not show it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemovalProgress {
    /// Everything but the claim's finalizer; the text says what was removed.
    AllButFinalizer(String),
    /// The finalizer, too.
    Everything,
}

/// The owner's Secret that an attempt depends on.
#[derive(Debug)]
struct OwnerSecret {
    reference: SecretRef,
    /// Resource version of what the attempt read; `None` before it did, or where there was nothing.
    read: Option<String>,
    /// Resource version of the last change that was seen since.
    changed: Option<String>,
}

/// What is remembered of one claim. What claims that are well do not have is boxed.
#[derive(Debug, Default)]
struct Entry {
    /// Failures in a row.
    failures: u32,
    /// Something that the claim waits for changed since the present attempt began.
    woken: bool,
    inputs: Option<Box<Inputs>>,
    not_before: Option<Instant>,
    /// When somebody last asked for another attempt.
    asked_at: Option<Instant>,
    last_status: Option<LastStatus>,
    /// Resource version of the claim after our last write of it.
    written: Option<u64>,
    /// When the store was last asked to make something.
    executed: Option<Instant>,
    removed_objects: u64,
    removal: Option<Box<RemovalProgress>>,
    /// How often the present credentials were refused in a row.
    probes: u32,
    owner_secret: Option<Box<OwnerSecret>>,
    /// The bucket that is deleted once no other record names it.
    bucket: Option<Box<str>>,
    /// An attempt at the removal saw the access go.
    access_gone: bool,
    name_refused: bool,
    /// When the claim is to be looked at though nothing has changed.
    recheck_at: Option<Instant>,
    upkeep: Upkeep,
}

/// What is remembered of the upkeep of a bound claim.
#[derive(Debug, Default)]
struct Upkeep {
    /// When the store is asked next whether all is as it was made.
    check_at: Option<Instant>,
    /// Keys that were issued to take the place of the present ones and were not seen to work yet.
    successor: Option<Box<AppCredentials>>,
    failures: u32,
    not_before: Option<Instant>,
    /// What was said of the last failure, as a hash: the same is not said twice in a row.
    said: Option<u64>,
    /// Replacements of keys.
    replacements: Row,
    /// Looks for keys that are not to be used.
    looks: Row,
    /// What its user last asked for with another attempt, as a hash, once that was done.
    retried: Option<u64>,
}

/// Who asks for another attempt more often than this waits for so long.
const RETRY_GAP: Duration = Duration::from_secs(5);

/// Some part of a time; `None` if that is too long to be one.
fn part_of(whole: Duration, parts: std::ops::RangeInclusive<f64>) -> Option<Duration> {
    Duration::try_from_secs_f64(whole.as_secs_f64() * rand::rng().random_range(parts)).ok()
}

impl Entry {
    fn wake(&mut self) {
        self.woken = true;
        self.not_before = None;
        self.failures = 0;
    }
}

/// Per-claim memory, by uid.
#[derive(Debug)]
pub(crate) struct Memory {
    since: Instant,
    claims: Mutex<Entries>,
    /// The claims that are being worked on.
    busy: Mutex<HashSet<String>>,
}

type Entries = HashMap<Box<str>, Box<Entry>>;

/// The right to work on a claim; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ClaimGuard<'a> {
    all: &'a Mutex<HashSet<String>>,
    uid: String,
}

impl Drop for ClaimGuard<'_> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self { since: Instant::now(), claims: Mutex::default(), busy: Mutex::default() }
    }
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        // Every critical section is a few assignments: a panic elsewhere leaves the map usable.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, claim: &ClaimId, f: impl FnOnce(&mut Entry) -> T) -> T {
        f(self.lock().entry(claim.uid.as_str().into()).or_default())
    }

    /// The right to work on a claim, for one at a time: a claim that is gone and what is left of it may be taken
    /// up from two sides.
    pub(crate) fn try_lock(&self, claim: &ClaimId) -> Option<ClaimGuard<'_>> {
        let all = &self.busy;
        let is_free = all.lock().unwrap_or_else(PoisonError::into_inner).insert(claim.uid.clone());
        // Made only if it is free: dropping one ends the right.
        is_free.then(|| ClaimGuard { all, uid: claim.uid.clone() })
    }

    /// How many claims something is remembered of.
    pub(crate) fn claims(&self) -> usize {
        self.lock().len()
    }

    /// Drops everything about a claim that is gone.
    pub(crate) fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// Whether the cache shows the claim as it was before our last write of it. The watch will bring the
    /// newer object; acting on the old one would only repeat what was done.
    pub(crate) fn is_stale(&self, claim: &ClaimId, resource_version: Option<&str>) -> bool {
        let mut claims = self.lock();
        let Some(entry) = claims.get_mut(claim.uid.as_str()) else { return false };
        match (entry.written, resource_version.and_then(|v| v.parse::<u64>().ok())) {
            (Some(written), Some(cached)) if cached < written => true,
            _ => {
                entry.written = None;
                false
            }
        }
    }

    /// Remembers that we wrote the claim.
    pub(crate) fn wrote(&self, claim: &ClaimId, resource_version: Option<&str>) {
        if let Some(version) = resource_version.and_then(|v| v.parse().ok()) {
            self.with(claim, |e| e.written = Some(version));
        }
    }

    /// Resource version of the claim after our last write of it, if the cache has not shown that one yet.
    pub(crate) fn version(&self, claim: &ClaimId) -> Option<String> {
        self.lock().get(claim.uid.as_str())?.written.map(|version| version.to_string())
    }

    /// How long the claim has to wait still. Changed inputs end the wait and reset the backoff.
    pub(crate) fn wait_left(&self, claim: &ClaimId, inputs: &Inputs) -> Option<Duration> {
        let mut claims = self.lock();
        let entry = claims.get_mut(claim.uid.as_str())?;
        let now = Instant::now();
        let asks_only = |known: &Inputs| Inputs { retry: inputs.retry.clone(), ..known.clone() } == *inputs;
        if entry.inputs.as_deref() != Some(inputs) && entry.inputs.as_deref().is_some_and(asks_only) {
            let left = entry.asked_at.map(|at| RETRY_GAP.saturating_sub(now.saturating_duration_since(at)));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                return Some(left);
            }
            entry.asked_at = Some(now);
        }
        if entry.inputs.as_deref() != Some(inputs) {
            entry.inputs = Some(Box::new(inputs.clone()));
            entry.not_before = None;
            entry.failures = 0;
            entry.probes = 0;
        }
        let left = entry.not_before?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// The number of the attempt that begins now, from 1.
    pub(crate) fn attempt(&self, claim: &ClaimId, inputs: Inputs) -> u32 {
        self.with(claim, |e| {
            e.inputs = Some(Box::new(inputs));
            e.woken = false;
            e.failures.saturating_add(1)
        })
    }

    /// An attempt failed: returns how long to wait before the next; not at all if what it waited for
    /// changed while it ran.
    pub(crate) fn failed(&self, claim: &ClaimId, class: FailureClass) -> Duration {
        self.with(claim, |e| {
            if e.woken {
                return Duration::ZERO;
            }
            e.failures = e.failures.saturating_add(1);
            let delay = backoff::delay(class, e.failures, &mut rand::rng());
            e.not_before = Some(Instant::now() + delay);
            delay
        })
    }

    /// Credentials did not work yet: returns how long to wait before they are tried again.
    pub(crate) fn not_usable_yet(&self, claim: &ClaimId) -> Duration {
        self.with(claim, |e| {
            e.probes = e.probes.saturating_add(1);
            let delay = backoff::propagation(e.probes, &mut rand::rng());
            e.not_before = Some(Instant::now() + delay);
            delay
        })
    }

    /// Other credentials were handed over: those that were refused so often that they had to be replaced are not
    /// replaced twice.
    pub(crate) fn replaced(&self, claim: &ClaimId, outdated: impl FnOnce(u32) -> bool) {
        self.with(claim, |e| e.probes += u32::from(outdated(e.probes)));
    }

    /// Credentials were seen to work.
    pub(crate) fn usable(&self, claim: &ClaimId) {
        self.with(claim, |e| e.probes = 0);
    }

    /// How often credentials of the claim were refused in a row.
    pub(crate) fn probes(&self, claim: &ClaimId) -> u32 {
        self.lock().get(claim.uid.as_str()).map_or(0, |e| e.probes)
    }

    /// An attempt succeeded: the next failure starts from the shortest wait, and is told again.
    pub(crate) fn succeeded(&self, claim: &ClaimId) {
        let mut claims = self.lock();
        if let Some(entry) = claims.get_mut(claim.uid.as_str()) {
            **entry = Entry {
                written: entry.written,
                last_status: entry.last_status.take(),
                name_refused: entry.name_refused,
                executed: entry.executed,
                recheck_at: entry.recheck_at,
                upkeep: std::mem::take(&mut entry.upkeep),
                ..Entry::default()
            };
        }
    }

    /// How long nothing has to be asked of the store about a bound claim that is well; zero if that is due.
    ///
    /// The first time lies anywhere within the interval, so that after a restart the claims do not come all at
    /// once, and the others within a fifth around it. Without an interval nothing is ever asked.
    pub(crate) fn check_in(&self, claim: &ClaimId, every: Option<Duration>) -> Option<Duration> {
        let (now, every) = (Instant::now(), every?);
        // An interval that no clock can count is for ever.
        let first = now.checked_add(part_of(every, 0.0..=1.0)?)?;
        Some(self.with(claim, |e| e.upkeep.check_at.get_or_insert(first).saturating_duration_since(now)))
    }

    /// The store was asked: the next time is an interval away.
    pub(crate) fn checked(&self, claim: &ClaimId, every: Option<Duration>) {
        let next = every.and_then(|every| Instant::now().checked_add(part_of(every, 0.9..=1.1)?));
        self.with(claim, |e| e.upkeep.check_at = next);
    }

    /// How long upkeep that failed has to wait still.
    pub(crate) fn upkeep_in(&self, claim: &ClaimId) -> Duration {
        let not_before = self.lock().get(claim.uid.as_str()).and_then(|e| e.upkeep.not_before);
        not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Upkeep failed; what the claim was given goes on working, and it is tried again. Returns whether this note of it is
    /// news.
    pub(crate) fn upkeep_failed(&self, claim: &ClaimId, class: FailureClass, note: &str) -> bool {
        let said = Some(LastStatus::new("", note).message);
        self.with(claim, |e| {
            e.upkeep.failures = e.upkeep.failures.saturating_add(1);
            let delay = backoff::delay(class, e.upkeep.failures, &mut rand::rng());
            e.upkeep.not_before = Some(Instant::now() + delay);
            std::mem::replace(&mut e.upkeep.said, said) != said
        })
    }

    /// Keys were replaced.
    pub(crate) fn keys_replaced(&self, claim: &ClaimId) {
        self.with(claim, |e| e.upkeep.replacements.note());
    }

    /// How long keys are not to be replaced.
    pub(crate) fn replacement_in(&self, claim: &ClaimId) -> Duration {
        self.lock().get(claim.uid.as_str()).map_or(Duration::ZERO, |e| e.upkeep.replacements.wait())
    }

    /// The store was asked to delete keys that are not to be used.
    pub(crate) fn looked_for_keys(&self, claim: &ClaimId) {
        self.with(claim, |e| e.upkeep.looks.note());
    }

    /// How long keys that are not to be used are not looked for.
    pub(crate) fn look_for_keys_in(&self, claim: &ClaimId) -> Duration {
        self.lock().get(claim.uid.as_str()).map_or(Duration::ZERO, |e| e.upkeep.looks.wait())
    }

    /// Whether the user of a bound claim asks for another attempt that there was not yet. What stood there when the claim
    /// was first seen counts as answered: after a restart nobody asks.
    pub(crate) fn asks_again(&self, claim: &ClaimId, retry: Option<&str>) -> bool {
        let asked = hash(retry.unwrap_or_default());
        self.with(claim, |e| match e.upkeep.retried {
            Some(answered) if retry.is_some() => answered != asked,
            _ => {
                e.upkeep.retried = Some(asked);
                false
            }
        })
    }

    /// There was one.
    pub(crate) fn retried(&self, claim: &ClaimId, retry: Option<&str>) {
        self.with(claim, |e| e.upkeep.retried = Some(hash(retry.unwrap_or_default())));
    }

    /// Nothing is done for the claim for a while, unless what it waits for changes.
    pub(crate) fn defer(&self, claim: &ClaimId, wait: Duration) {
        self.with(claim, |e| e.not_before = Some(Instant::now() + wait));
    }

    /// Upkeep that failed waits for its next time, like any other.
    pub(crate) fn upkeep_waits(&self, claim: &ClaimId) {
        self.with(claim, |e| {
            e.upkeep.failures = 0;
            e.upkeep.not_before = None;
        });
    }

    /// Upkeep succeeded.
    pub(crate) fn upkeep_succeeded(&self, claim: &ClaimId) {
        self.upkeep_waits(claim);
        self.with(claim, |e| e.upkeep.said = None);
    }

    /// Keeps keys that are to take the place of the present ones, until they were seen to work. If they are
    /// lost, others are made and these deleted.
    pub(crate) fn keep_successor(&self, claim: &ClaimId, keys: Option<AppCredentials>) {
        self.with(claim, |e| {
            e.upkeep.successor = keys.map(Box::new);
            e.probes = 0;
        });
    }

    /// See [`keep_successor`](Self::keep_successor).
    pub(crate) fn successor(&self, claim: &ClaimId) -> Option<AppCredentials> {
        self.lock().get(claim.uid.as_str())?.upkeep.successor.as_deref().cloned()
    }

    /// Remembers when the claim is to be looked at though nothing has changed; not at all if `None`.
    pub(crate) fn recheck_in(&self, claim: &ClaimId, wait: Option<Duration>) {
        let at = wait.and_then(|wait| Instant::now().checked_add(wait));
        self.with(claim, |e| e.recheck_at = at);
    }

    /// The uids of the claims that are to be looked at by now. Each is returned once.
    pub(crate) fn take_due(&self) -> HashSet<String> {
        let now = Instant::now();
        let mut claims = self.lock();
        let due = claims.iter_mut().filter(|(_, entry)| entry.recheck_at.is_some_and(|at| at <= now));
        due.map(|(uid, entry)| {
            entry.recheck_at = None;
            uid.to_string()
        })
        .collect()
    }

    /// Says what is new in what a claim is about to be told.
    pub(crate) fn status_change(&self, claim: &ClaimId, new: &LastStatus) -> StatusChange {
        self.with(claim, |e| match &e.last_status {
            Some(last) if last == new => StatusChange::None,
            Some(last) if last.reason == new.reason => StatusChange::Message,
            _ => StatusChange::Reason,
        })
    }

    /// Whether a claim was told anything.
    pub(crate) fn has_last_status(&self, claim: &ClaimId) -> bool {
        self.lock().get(claim.uid.as_str()).is_some_and(|e| e.last_status.is_some())
    }

    /// Remembers what a claim was told.
    pub(crate) fn status_reported(&self, claim: &ClaimId, status: LastStatus) {
        self.with(claim, |e| e.last_status = Some(status));
    }

    /// Adds to the number of objects removed from the claim's bucket, and returns it. Progress ends a
    /// row of failures.
    pub(crate) fn removed_objects(&self, claim: &ClaimId, more: u64) -> u64 {
        self.with(claim, |e| {
            e.removed_objects += more;
            e.failures = 0;
            e.removed_objects
        })
    }

    /// Remembers which Secret an attempt depends on. To be said before the Secret is read, so that no
    /// change after the reading is missed.
    pub(crate) fn depends_on(&self, claim: &ClaimId, secret: &SecretRef) {
        let owner_secret = OwnerSecret { reference: secret.clone(), read: None, changed: None };
        self.with(claim, |e| e.owner_secret = Some(Box::new(owner_secret)));
    }

    /// Remembers which version of that Secret the attempt read: the watch shows it, too, and that is no
    /// reason to try again.
    pub(crate) fn has_read(&self, claim: &ClaimId, version: Option<String>) {
        self.with(claim, |e| {
            let Some(secret) = &mut e.owner_secret else { return };
            if secret.changed.is_some() && secret.changed == version {
                e.woken = false;
            }
            secret.read = version;
        });
    }

    /// Ends the wait of every claim that depends on `secret` and has not read this version of it; returns
    /// their uids.
    pub(crate) fn wake_dependants(&self, secret: &SecretRef, version: Option<&str>) -> HashSet<String> {
        self.lock()
            .iter_mut()
            .filter_map(|(uid, e)| {
                let depends = e.owner_secret.as_mut().filter(|s| s.reference == *secret)?;
                if version.is_some() && depends.read.as_deref() == version {
                    return None;
                }
                depends.changed = version.map(str::to_owned);
                e.wake();
                Some(uid.to_string())
            })
            .collect()
    }

    /// Remembers which bucket the claim's removal waits for, be it that nobody else uses it.
    pub(crate) fn waits_for_bucket(&self, claim: &ClaimId, bucket: Option<&str>) {
        self.with(claim, |e| e.bucket = bucket.map(Box::from));
    }

    /// Ends the wait of every claim that waits for this bucket; returns their uids.
    pub(crate) fn wake_for_bucket(&self, bucket: &str) -> HashSet<String> {
        let mut claims = self.lock();
        let waiting = claims.iter_mut().filter(|(_, e)| e.bucket.as_deref() == Some(bucket));
        waiting
            .map(|(uid, e)| {
                e.wake();
                uid.to_string()
            })
            .collect()
    }

    /// Remembers that the claim's access was taken away: it need not be tried again.
    pub(crate) fn access_is_gone(&self, claim: &ClaimId) {
        self.with(claim, |e| e.access_gone = true);
    }

    /// See [`access_is_gone`](Self::access_is_gone).
    pub(crate) fn is_access_gone(&self, claim: &ClaimId) -> bool {
        self.lock().get(claim.uid.as_str()).is_some_and(|e| e.access_gone)
    }

    /// Ends the wait of one claim.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.wake();
        }
    }

    /// Ends the wait of a claim that was last told this.
    pub(crate) fn wake_if_reported(&self, uid: &str, reasons: &[&str]) {
        if let Some(entry) = self.lock().get_mut(uid)
            && entry.last_status.is_some_and(|last| reasons.contains(&last.reason))
        {
            entry.wake();
        }
    }

    /// Forgets all claims but these: others may have gone while nothing was watched.
    pub(crate) fn keep_only(&self, uids: &HashSet<String>) {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.lock().retain(|uid, _| uids.contains(&**uid) || busy.contains(&**uid));
    }

    /// Remembers that the store is being asked, or has been asked, to make something for the claim.
    pub(crate) fn executes(&self, claim: &ClaimId) {
        self.with(claim, |e| e.executed = Some(Instant::now()));
    }

    /// The time since the store may have been asked to make something for the claim: by this process, or
    /// by one before it.
    pub(crate) fn quiet(&self, claim: &ClaimId) -> Duration {
        let executed = self.lock().get(claim.uid.as_str()).and_then(|e| e.executed);
        executed.unwrap_or(self.since).elapsed()
    }

    /// Remembers how far the claim's removal came.
    pub(crate) fn note_removal(&self, claim: &ClaimId, progress: RemovalProgress) {
        self.with(claim, |e| e.removal = Some(Box::new(progress)));
    }

    /// How far the claim's removal came.
    pub(crate) fn removal(&self, claim: &ClaimId) -> Option<RemovalProgress> {
        self.lock().get(claim.uid.as_str())?.removal.as_deref().cloned()
    }

    /// Remembers that the API server refuses the generated name in this claim's spec.
    pub(crate) fn refuse_name(&self, claim: &ClaimId) {
        self.with(claim, |e| e.name_refused = true);
    }

    /// Whether the API server refused the generated name in this claim's spec.
    pub(crate) fn name_refused(&self, claim: &ClaimId) -> bool {
        self.lock().get(claim.uid.as_str()).is_some_and(|e| e.name_refused)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn claim() -> ClaimId {
        ClaimId { namespace: "ns".into(), name: "c".into(), uid: "u".into() }
    }

    fn inputs(class: &str) -> Inputs {
        Inputs { class_name: Some(class.into()), bucket: None, deleting: false, retry: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_claim_waits_until_its_inputs_change() {
        let memory = Memory::default();
        memory.attempt(&claim(), inputs("a"));
        memory.failed(&claim(), FailureClass::Terminal);
        assert!(memory.wait_left(&claim(), &inputs("a")).unwrap() > Duration::from_secs(5));
        assert_eq!(memory.wait_left(&claim(), &inputs("b")), None);
        assert_eq!(memory.attempt(&claim(), inputs("b")), 1, "an edit resets the backoff");
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends_with_time() {
        let memory = Memory::default();
        memory.attempt(&claim(), inputs("a"));
        let delay = memory.failed(&claim(), FailureClass::Retryable);
        assert!(memory.wait_left(&claim(), &inputs("a")).is_some());
        tokio::time::advance(delay).await;
        assert_eq!(memory.wait_left(&claim(), &inputs("a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_restart_bound_claims_are_looked_at_over_the_whole_interval_and_not_at_once() {
        let (memory, hour) = (Memory::default(), Duration::from_secs(3600));
        let id = |n: u32| ClaimId { uid: n.to_string(), ..claim() };
        let first: Vec<_> = (0..1000).filter_map(|n| memory.check_in(&id(n), Some(hour))).collect();
        assert_eq!(first.len(), 1000);
        for quarter in 0..4 {
            let within = |wait: &&Duration| (hour * quarter / 4..hour * (quarter + 1) / 4).contains(*wait);
            let count = first.iter().filter(within).count();
            assert!((150..=350).contains(&count), "{count} of 1000 in quarter {quarter}");
        }
        memory.checked(&id(0), Some(hour));
        let next = memory.check_in(&id(0), Some(hour)).unwrap();
        assert!(next >= hour * 9 / 10 && next <= hour * 11 / 10, "{next:?}");
        assert_eq!(memory.check_in(&id(2000), None), None, "never, if it is turned off");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mended_secret_wakes_those_that_wait_for_it_and_no_others() {
        let memory = Memory::default();
        let secret = SecretRef { namespace: "ns".into(), name: "owner".into() };
        let other = ClaimId { uid: "other".into(), ..claim() };
        for id in [claim(), other.clone()] {
            memory.attempt(&id, inputs("a"));
            memory.failed(&id, FailureClass::Terminal);
        }
        memory.depends_on(&claim(), &secret);
        memory.has_read(&claim(), Some("7".into()));
        assert!(memory.wake_dependants(&secret, Some("7")).is_empty(), "that is what it read");
        assert_eq!(memory.wake_dependants(&secret, Some("8")), HashSet::from(["u".to_owned()]));
        assert_eq!(memory.wait_left(&claim(), &inputs("a")), None);
        assert!(memory.wait_left(&other, &inputs("a")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_mended_while_an_attempt_runs_is_not_missed() {
        let memory = Memory::default();
        memory.attempt(&claim(), inputs("a"));
        memory.wake("u");
        assert_eq!(memory.failed(&claim(), FailureClass::Terminal), Duration::ZERO);
        assert_eq!(memory.wait_left(&claim(), &inputs("a")), None);
        memory.attempt(&claim(), inputs("a"));
        assert!(memory.failed(&claim(), FailureClass::Terminal) > Duration::from_secs(5));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_watch_shows_before_it_is_read_is_no_reason_to_try_again() {
        let memory = Memory::default();
        let secret = SecretRef { namespace: "ns".into(), name: "owner".into() };
        memory.attempt(&claim(), inputs("a"));
        memory.depends_on(&claim(), &secret);
        memory.wake_dependants(&secret, Some("7"));
        memory.has_read(&claim(), Some("7".into()));
        assert!(memory.failed(&claim(), FailureClass::Terminal) > Duration::from_secs(5));
    }

    #[test]
    fn a_claim_is_worked_on_by_one_at_a_time() {
        let memory = Memory::default();
        let claim = ClaimId { namespace: "ns".into(), name: "c".into(), uid: "u".into() };
        let busy = memory.try_lock(&claim);
        assert!(busy.is_some() && memory.try_lock(&claim).is_none() && memory.try_lock(&claim).is_none());
        drop(busy);
        assert!(memory.try_lock(&claim).is_some());
    }

    #[test]
    fn a_claim_is_stale_until_the_cache_shows_our_write() {
        let memory = Memory::default();
        memory.wrote(&claim(), Some("12"));
        assert!(memory.is_stale(&claim(), Some("9")));
        assert!(!memory.is_stale(&claim(), Some("12")));
        assert!(!memory.is_stale(&claim(), Some("9")), "seen once, it is not asked for again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_is_looked_at_once_when_its_time_has_come() {
        let memory = Memory::default();
        memory.recheck_in(&claim(), Some(Duration::from_secs(5)));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(memory.take_due().is_empty());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(memory.take_due().contains(&claim().uid));
        assert!(memory.take_due().is_empty());
        memory.recheck_in(&claim(), Some(Duration::from_secs(5)));
        memory.recheck_in(&claim(), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(memory.take_due().is_empty());
    }

    #[test]
    fn the_same_thing_is_told_once() {
        let memory = Memory::default();
        let told = |message: &str| LastStatus::new("AccessDenied", message);
        assert_eq!(memory.status_change(&claim(), &told("a")), StatusChange::Reason);
        assert_eq!(memory.status_change(&claim(), &told("a")), StatusChange::Reason, "it counts once it was told");
        memory.status_reported(&claim(), told("a"));
        assert_eq!(memory.status_change(&claim(), &told("a")), StatusChange::None);
        assert_eq!(memory.status_change(&claim(), &told("b")), StatusChange::Message);
    }

    #[test]
    fn an_interval_that_no_clock_can_count_is_for_ever() {
        let memory = Memory::default();
        for every in [Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
            memory.checked(&claim(), Some(every));
            let _ = memory.check_in(&claim(), Some(every));
        }
    }

    #[test]
    fn a_bound_claim_asks_again_until_it_is_answered() {
        let memory = Memory::default();
        assert!(!memory.asks_again(&claim(), Some("1")), "it stood there before");
        assert!(memory.asks_again(&claim(), Some("2")) && memory.asks_again(&claim(), Some("2")));
        memory.retried(&claim(), Some("2"));
        assert!(!memory.asks_again(&claim(), Some("2")) && !memory.asks_again(&claim(), None));
        assert!(memory.asks_again(&claim(), Some("2")), "it was taken off in between");
    }

    #[test]
    fn what_is_known_of_claims_that_went_unseen_is_forgotten() {
        let memory = Memory::default();
        memory.executes(&claim());
        memory.keep_only(&HashSet::from([claim().uid]));
        assert_eq!(memory.lock().len(), 1);
        let busy = memory.try_lock(&claim());
        memory.keep_only(&HashSet::new());
        assert_eq!(memory.lock().len(), 1, "it is being worked on");
        drop(busy);
        memory.keep_only(&HashSet::new());
        assert!(memory.lock().is_empty());
    }
}
