//! What all reconciles share: caches, and a memory that only saves work.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use super::decide::claim::Who;
use super::decide::class::Class;
use super::decide::created;
use super::decide::retry::Retry;
use super::options::Options;
use super::wire;
use crate::metrics::Volumes;
use operator_runtime::kubernetes::workers::Workers;

/// How many classes can have all their workers at the same time.
const CLASSES_AT_ONCE: usize = 4;
/// How long the caches may take to show what was written, and Kubernetes to bind it.
pub(crate) const LAG: Duration = Duration::from_secs(30);
/// Longest pause until a store that is still working is asked again.
const LONGEST_POLL: Duration = Duration::from_secs(30);
/// Until the same event is published again: the API server forgets an event after an hour.
const EVENT_KEPT: Duration = Duration::from_secs(50 * 60);
/// Writes that lose against others in a row: more are a failure, such as a webhook that answers with a conflict.
const RACES: u32 = 3;
/// Failed verbs that are retried without a pause between them.
const BURST: u32 = 100;

/// Shared by all reconciles.
pub(crate) struct Context<P> {
    pub(crate) client: Client,
    pub(crate) provisioner: P,
    pub(crate) options: Options,
    pub(crate) who: Who,
    pub(crate) claims: Store<PersistentVolumeClaim>,
    pub(crate) volumes: Store<PersistentVolume>,
    pub(crate) classes: Store<StorageClass>,
    pub(crate) memory: Memory,
    pub(crate) workers: Arc<Workers>,
    pub(crate) metrics: Volumes,
    /// Which of the caches are filled: claims, PersistentVolumes, classes.
    filled: watch::Sender<[bool; 3]>,
}

/// The caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cached {
    Claims = 0,
    Volumes = 1,
    Classes = 2,
}

impl<P> Context<P> {
    pub(crate) fn new(
        client: Client,
        provisioner: P,
        identity: &str,
        options: Options,
        claims: Store<PersistentVolumeClaim>,
        volumes: Store<PersistentVolume>,
        classes: Store<StorageClass>,
    ) -> Self {
        let threads = usize::from(options.worker_threads.max(1));
        Self {
            client,
            provisioner,
            who: Who::new(&options.provisioner_name, identity),
            claims,
            volumes,
            classes,
            memory: Memory::new(options.retries_per_second),
            workers: Workers::new(CLASSES_AT_ONCE * threads),
            metrics: options.observer.define(Volumes::define),
            filled: watch::Sender::default(),
            options,
        }
    }

    pub(crate) fn class(&self, name: &str) -> Option<Class> {
        self.classes.get(&ObjectRef::new(name)).map(|class| Class::read(&class))
    }

    /// A list was read to its end. Forgets what is no longer there.
    pub(crate) fn listed(&self, what: Cached) {
        self.filled.send_modify(|filled| filled[what as usize] = true);
        // Versions decrease when the store of the API server is restored.
        match what {
            Cached::Claims => self.memory.forget_versions(self.claims.state().iter().map(|claim| claim.uid())),
            Cached::Volumes => self.memory.forget_versions(self.volumes.state().iter().map(|volume| volume.uid())),
            Cached::Classes => {}
        }
        if *self.filled.borrow() == [true; 3] {
            let claims = self.claims.state().into_iter().filter_map(|claim| claim.uid());
            let volumes = self.volumes.state().into_iter().filter_map(|volume| volume.uid());
            self.memory.keep_only(&claims.chain(volumes).collect());
        }
    }

    /// Forgets an object that was deleted during an attempt.
    pub(crate) fn tidy<K>(&self, store: &Store<K>, object: &K)
    where
        K: Resource<DynamicType = ()> + Clone + 'static,
    {
        let shown = store.get(&ObjectRef::from_obj(object));
        if shown.is_none_or(|shown| shown.meta().uid != object.meta().uid) {
            self.memory.forget(object.meta().uid.as_deref().unwrap_or_default());
        }
    }

    /// Waits until all caches are filled. Not by kube's stores: of several that wait for one of them, only one is woken.
    pub(crate) async fn filled(&self) {
        // The sender lives as long as this context.
        let _ = self.filled.subscribe().wait_for(|filled| *filled == [true; 3]).await;
    }

    /// The claim's own PersistentVolume, as far as the cache shows.
    pub(crate) fn volume_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<PersistentVolume>> {
        let uid = claim.metadata.uid.as_deref()?;
        let shown = self.volumes.get(&ObjectRef::new(&wire::volume_name(uid)))?;
        Some(shown).filter(|volume| created::is_of(volume, uid, &self.who.provisioner))
    }
}

/// What is remembered of claims and PersistentVolumes, by their uids.
pub(crate) struct Memory {
    entries: Mutex<HashMap<String, Entry>>,
    /// By namespaces, so that none of them waits for another's failures.
    retries: Mutex<HashMap<String, Pause>>,
    retries_per_second: u32,
}

#[derive(Debug, Default)]
struct Entry {
    /// Failures in a row with the same inputs.
    failures: u32,
    /// What the last attempt saw.
    inputs: u64,
    /// Nothing is due until then, unless the inputs change.
    until: Option<Instant>,
    /// The last event, and when.
    event: Option<(String, String, Instant)>,
    /// When the PersistentVolume was created.
    created: Option<Instant>,
    /// When the volume of a PersistentVolume was deleted.
    deleted: Option<Instant>,
    /// How many writes in a row have lost against others.
    races: u32,
    /// How often the store was found to be working still.
    polls: u32,
    /// The PersistentVolume that there would be, while what was begun is undone.
    undone: Option<Arc<PersistentVolume>>,
    /// The version that was written last.
    written: Option<u64>,
    /// Whether an attempt runs.
    busy: bool,
}

/// One attempt at a time for each claim or PersistentVolume.
pub(crate) struct Busy<'a> {
    memory: &'a Memory,
    uid: String,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.memory.entries.lock().get_mut(&self.uid) {
            entry.busy = false;
        }
    }
}

impl Memory {
    fn new(retries_per_second: u32) -> Self {
        Self { entries: Mutex::default(), retries: Mutex::default(), retries_per_second }
    }

    /// How long nothing is due, although something is not done. Other inputs are tried at once, and reset the count.
    pub(crate) fn left(&self, uid: &str, inputs: u64) -> Option<Duration> {
        let entries = self.entries.lock();
        let entry = entries.get(uid).filter(|entry| entry.inputs == inputs)?;
        let until = entry.until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Begins an attempt, unless one runs.
    pub(crate) fn begin(&self, uid: &str, inputs: u64) -> Option<Busy<'_>> {
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        if entry.busy {
            return None;
        }
        if entry.inputs != inputs {
            (entry.failures, entry.races, entry.polls, entry.inputs) = (0, 0, 0, inputs);
        }
        (entry.busy, entry.until) = (true, None);
        Some(Busy { memory: self, uid: uid.to_owned() })
    }

    /// An object was written, and has this version now.
    pub(crate) fn wrote<K: Resource>(&self, object: &K) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let version = version(object);
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid).or_default();
        (entry.written, entry.races) = (entry.written.max(version), 0);
    }

    /// A list has shown these objects as they are.
    fn forget_versions(&self, uids: impl Iterator<Item = Option<String>>) {
        let mut entries = self.entries.lock();
        for uid in uids.flatten() {
            if let Some(entry) = entries.get_mut(&uid) {
                entry.written = None;
            }
        }
    }

    /// Whether the cache shows an object as it was before it was written. Its change is still to come.
    pub(crate) fn is_stale<K: Resource>(&self, shown: &K) -> bool {
        let uid = shown.meta().uid.as_deref().unwrap_or_default();
        let written = self.entries.lock().get(uid).and_then(|entry| entry.written);
        written.zip(version(shown)).is_some_and(|(written, shown)| shown < written)
    }

    /// A write has lost against another one: returns whether that is all there is to it.
    pub(crate) fn raced(&self, uid: &str) -> bool {
        let mut entries = self.entries.lock();
        let races = &mut entries.entry(uid.to_owned()).or_default().races;
        *races = races.saturating_add(1);
        *races <= RACES
    }

    /// An attempt failed: returns when to try again, and whether that is given up until something changes.
    pub(crate) fn failed(&self, uid: &str, namespace: &str, retry: &Retry, resync: Duration) -> (Duration, bool) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        entry.failures = entry.failures.saturating_add(1);
        let after = retry.after(entry.failures);
        let wait = after.unwrap_or(resync).max(self.rate_limit(namespace, retry.max));
        entry.until = Some(Instant::now() + wait);
        (wait, after.is_none())
    }

    /// How long until the rate limit of a namespace allows the next retry, at most `longest`.
    fn rate_limit(&self, namespace: &str, longest: Duration) -> Duration {
        let now = Instant::now();
        let mut retries = self.retries.lock();
        retries.retain(|_, pause| !pause.is_over(now));
        let pause = retries.entry(namespace.to_owned()).or_insert_with(|| Pause::new(self.retries_per_second));
        pause.next(now, longest)
    }

    /// The store is still working: returns when to ask again, and whether it is the first time.
    pub(crate) fn polled(&self, uid: &str, retry: &Retry) -> (Duration, bool) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(uid.to_owned()).or_default();
        entry.polls = entry.polls.saturating_add(1);
        let wait = Retry { threshold: None, max: retry.max.min(LONGEST_POLL), ..*retry }.after(entry.polls);
        let wait = wait.unwrap_or(retry.initial);
        entry.until = Some(Instant::now() + wait);
        (wait, entry.polls == 1)
    }

    /// Nothing has failed, but it is not done: checked again after this time, unless something changes.
    pub(crate) fn set_wait(&self, uid: &str, wait: Duration) {
        self.entries.lock().entry(uid.to_owned()).or_default().until = Some(Instant::now() + wait);
    }

    /// Whether this was not the last event, or is forgotten.
    pub(crate) fn is_news(&self, uid: &str, reason: &str, note: &str) -> bool {
        let mut entries = self.entries.lock();
        let last = &mut entries.entry(uid.to_owned()).or_default().event;
        let is_same = last.as_ref().is_some_and(|(r, n, when)| r == reason && n == note && when.elapsed() < EVENT_KEPT);
        if !is_same {
            *last = Some((reason.to_owned(), note.to_owned(), Instant::now()));
        }
        !is_same
    }

    /// Whether no event was published yet.
    pub(crate) fn is_new(&self, uid: &str) -> bool {
        self.entries.lock().get(uid).is_none_or(|entry| entry.event.is_none())
    }

    pub(crate) fn created(&self, uid: &str) {
        self.entries.lock().entry(uid.to_owned()).or_default().created = Some(Instant::now());
    }

    /// Whether a PersistentVolume was created so lately that the caches may not show it.
    pub(crate) fn has_just_created(&self, uid: &str) -> Option<Duration> {
        let created = self.entries.lock().get(uid)?.created?;
        Some(LAG.saturating_sub(created.elapsed())).filter(|left| !left.is_zero())
    }

    pub(crate) fn deleted(&self, uid: &str) {
        self.entries.lock().entry(uid.to_owned()).or_default().deleted = Some(Instant::now());
    }

    /// How long ago the volume of a PersistentVolume was deleted. `None`: it was not, as far as is remembered.
    pub(crate) fn since_deleted(&self, uid: &str) -> Option<Duration> {
        Some(self.entries.lock().get(uid)?.deleted?.elapsed())
    }

    /// What is to be deleted for a claim that is undone.
    pub(crate) fn undone(&self, uid: &str) -> Option<Arc<PersistentVolume>> {
        self.entries.lock().get(uid)?.undone.clone()
    }

    pub(crate) fn set_undone(&self, uid: &str, volume: Option<Arc<PersistentVolume>>) {
        self.entries.lock().entry(uid.to_owned()).or_default().undone = volume;
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.entries.lock().remove(uid);
    }

    /// Forgets all others, but for those at which an attempt runs.
    fn keep_only(&self, uids: &HashSet<String>) {
        self.entries.lock().retain(|uid, entry| entry.busy || uids.contains(uid));
    }

    /// How many objects are remembered.
    pub(crate) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

/// Versions of one kind of object can be compared: <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

/// A number for what an attempt depends on.
pub(crate) fn inputs<T: serde::Serialize>(seen: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(seen).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// Limits how often something happens: so many at once, then so many in a second.
#[derive(Debug)]
struct Pause {
    each: Duration,
    /// When the next one would be due if they came evenly.
    next: Option<Instant>,
}

impl Pause {
    fn new(per_second: u32) -> Self {
        Self { each: Duration::from_secs(1) / per_second.max(1), next: None }
    }

    /// Whether it is as a new one: nothing has happened for long.
    fn is_over(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next + self.each * BURST <= now)
    }

    /// How long to wait for the next retry, which is counted. No retry waits longer than `longest`, and no debt grows
    /// beyond.
    fn next(&mut self, now: Instant, longest: Duration) -> Duration {
        let earliest = now.checked_sub(self.each * BURST).unwrap_or(now);
        let next = self.next.map_or(earliest, |next| next.max(earliest)) + self.each;
        let next = next.min(now + longest);
        self.next = Some(next);
        next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_failed_waits_until_its_time_or_until_its_inputs_change() {
        let (memory, retry, resync) = (Memory::new(10), Retry::default(), Duration::from_secs(900));
        assert_eq!(memory.left("1", 7), None);
        drop(memory.begin("1", 7));
        assert_eq!(memory.failed("1", "team", &retry, resync), (Duration::from_secs(1), false));
        assert_eq!(memory.left("1", 7), Some(Duration::from_secs(1)));
        assert_eq!(memory.left("1", 8), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.left("1", 7), None);
        drop(memory.begin("1", 7));
        assert_eq!(memory.failed("1", "team", &retry, resync), (Duration::from_secs(2), false));
        drop(memory.begin("1", 8));
        assert_eq!(
            memory.failed("1", "team", &retry, resync),
            (Duration::from_secs(1), false),
            "the count starts at 1"
        );
        let never = Retry { threshold: Some(1), ..retry };
        drop(memory.begin("1", 8));
        assert_eq!(memory.failed("1", "team", &never, resync), (resync, true));
        memory.forget("1");
        assert_eq!(memory.len(), 0);
    }

    #[test]
    fn a_version_before_the_one_that_was_written_is_stale() {
        let volume = |version: &str| {
            let mut volume = PersistentVolume::default();
            (volume.metadata.uid, volume.metadata.resource_version) = (Some("1".to_owned()), Some(version.to_owned()));
            volume
        };
        let memory = Memory::new(10);
        assert!(!memory.is_stale(&volume("9")));
        memory.wrote(&volume("10"));
        let stale: Vec<_> = ["9", "10", "11", "odd"].map(|version| memory.is_stale(&volume(version))).into();
        assert_eq!(stale, [true, false, false, false]);
    }

    #[test]
    fn one_attempt_at_a_time() {
        let memory = Memory::new(10);
        let busy = memory.begin("1", 7);
        assert!(busy.is_some() && memory.begin("1", 8).is_none() && memory.begin("2", 7).is_some());
        drop(busy);
        assert!(memory.begin("1", 7).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_event_is_published_once_in_an_hour() {
        let memory = Memory::new(10);
        let news: Vec<_> = ["a", "a", "b", "a"].into_iter().map(|note| memory.is_news("1", "Failed", note)).collect();
        assert_eq!(news, [true, false, true, true]);
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(15 * 60)).await;
            assert!(!memory.is_news("1", "Failed", "a"));
        }
        tokio::time::advance(Duration::from_secs(15 * 60)).await;
        assert!(memory.is_news("1", "Failed", "a"));
    }

    #[test]
    fn conflicts_without_end_are_a_failure() {
        let memory = Memory::new(10);
        let raced: Vec<_> = (0..5).map(|_| memory.raced("1")).collect();
        assert_eq!(raced, [true, true, true, false, false]);
        drop(memory.begin("1", 7));
        assert!(memory.raced("1"), "something has changed");
    }

    #[tokio::test(start_paused = true)]
    async fn the_failures_of_one_namespace_delay_no_other() {
        let (memory, retry) = (Memory::new(10), Retry::default());
        let wait = |namespace: &str, uid: &str| memory.failed(uid, namespace, &retry, Duration::ZERO).0;
        for number in 0..1000 {
            wait("loud", &number.to_string());
        }
        assert!(wait("loud", "one more") > Duration::from_secs(60));
        assert_eq!(wait("quiet", "first"), Duration::from_secs(1));
        assert_eq!(memory.retries.lock().len(), 2);
        tokio::time::advance(Duration::from_secs(3600)).await;
        wait("quiet", "second");
        assert_eq!(memory.retries.lock().len(), 1, "the others are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_burst_retries_come_evenly() {
        let mut pause = Pause::new(10);
        let now = Instant::now() + Duration::from_secs(60);
        let longest = Duration::from_secs(1);
        let waits: Vec<_> = (0..200).map(|_| pause.next(now, longest).as_millis()).collect();
        assert_eq!((waits[0], waits[99], waits[100], waits[101], waits[199]), (0, 0, 100, 200, 1000));
        assert_eq!(pause.next(now + Duration::from_secs(1), longest).as_millis(), 100, "there is no debt beyond");
        assert_eq!(pause.next(now + Duration::from_secs(60), longest), Duration::ZERO);
    }
}
