//! What all reconciles share: caches, and a memory that only saves work.

use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::PatchParams;
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
use operator_runtime::engine::{Claimed, Inputs, Remembered, Schedule, Table, Workers};
use operator_runtime::kubernetes::field_manager;

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
    pub(crate) provisioner: Arc<P>,
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
        provisioner: Arc<P>,
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

    /// For a patch: `managedFields` show who has written.
    pub(crate) fn patches(&self) -> PatchParams {
        let name = field_manager(&self.options.provisioner_name);
        PatchParams { field_manager: Some(name), ..PatchParams::default() }
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
    entries: Table<Entry>,
    /// By namespaces, so that none of them waits for another's failures.
    retries: Mutex<HashMap<String, Pause>>,
    retries_per_second: u32,
}

#[derive(Debug, Default)]
struct Entry {
    schedule: Schedule,
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
}

impl Remembered for Entry {
    fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }
}

impl Memory {
    fn new(retries_per_second: u32) -> Self {
        Self { entries: Table::default(), retries: Mutex::default(), retries_per_second }
    }

    /// How long nothing is due, although something is not done. Other inputs are tried at once, and reset the count.
    pub(crate) fn left(&self, uid: &str, inputs: Inputs) -> Option<Duration> {
        self.entries.get(uid, |entry| {
            let Entry { schedule, races, polls, .. } = entry;
            schedule.remaining(inputs, || (*races, *polls) = (0, 0))
        })
    }

    /// Begins an attempt, unless one runs.
    pub(crate) fn begin(&self, uid: &str, inputs: Inputs) -> Option<Claimed<'_>> {
        let claimed = self.entries.begin(uid)?;
        self.entries.entry(uid, |entry| entry.schedule.begin(inputs));
        Some(claimed)
    }

    /// An object was written, and has this version now.
    pub(crate) fn wrote<K: Resource>(&self, object: &K) {
        let uid = object.meta().uid.as_deref().unwrap_or_default();
        self.entries.wrote(uid, object.meta().resource_version.as_deref());
        self.entries.get(uid, |entry| entry.races = 0);
    }

    /// A list has shown these objects as they are.
    fn forget_versions(&self, uids: impl Iterator<Item = Option<String>>) {
        for uid in uids.flatten() {
            self.entries.get(&uid, |entry| entry.schedule.forget_write());
        }
    }

    /// Whether the cache shows an object as it was before it was written. Its change is still to come.
    pub(crate) fn is_stale<K: Resource>(&self, shown: &K) -> bool {
        let meta = shown.meta();
        self.entries.is_behind(meta.uid.as_deref().unwrap_or_default(), meta.resource_version.as_deref())
    }

    /// A write has lost against another one: returns whether that is all there is to it.
    pub(crate) fn raced(&self, uid: &str) -> bool {
        self.entries.entry(uid, |entry| {
            entry.races = entry.races.saturating_add(1);
            entry.races <= RACES
        })
    }

    /// An attempt failed: returns when to try again, and whether that is given up until something changes.
    pub(crate) fn failed(&self, uid: &str, namespace: &str, retry: &Retry, resync: Duration) -> (Duration, bool) {
        let (limit, mut given_up) = (self.rate_limit(namespace, retry.max), false);
        let wait = self.entries.entry(uid, |entry| {
            entry.schedule.failed(|failures| {
                let after = retry.after(failures);
                given_up = after.is_none();
                after.unwrap_or(resync).max(limit)
            })
        });
        (wait, given_up)
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
        self.entries.entry(uid, |entry| {
            entry.polls = entry.polls.saturating_add(1);
            let wait = Retry { threshold: None, max: retry.max.min(LONGEST_POLL), ..*retry }.after(entry.polls);
            (entry.schedule.set_wait(wait.unwrap_or(retry.initial)), entry.polls == 1)
        })
    }

    /// Nothing has failed, but it is not done: checked again after this time, unless something changes.
    pub(crate) fn set_wait(&self, uid: &str, wait: Duration) {
        self.entries.entry(uid, |entry| entry.schedule.defer(wait));
    }

    /// Whether this was not the last event, or is forgotten.
    pub(crate) fn is_news(&self, uid: &str, reason: &str, note: &str) -> bool {
        self.entries.entry(uid, |entry| {
            let last = entry.event.as_ref();
            let is_same = last.is_some_and(|(r, n, when)| r == reason && n == note && when.elapsed() < EVENT_KEPT);
            if !is_same {
                entry.event = Some((reason.to_owned(), note.to_owned(), Instant::now()));
            }
            !is_same
        })
    }

    /// Whether no event was published yet.
    pub(crate) fn is_new(&self, uid: &str) -> bool {
        !self.entries.get(uid, |entry| entry.event.is_some())
    }

    pub(crate) fn created(&self, uid: &str) {
        self.entries.entry(uid, |entry| entry.created = Some(Instant::now()));
    }

    /// Whether a PersistentVolume was created so lately that the caches may not show it.
    pub(crate) fn has_just_created(&self, uid: &str) -> Option<Duration> {
        let created = self.entries.get(uid, |entry| entry.created)?;
        Some(LAG.saturating_sub(created.elapsed())).filter(|left| !left.is_zero())
    }

    /// Whether an attempt runs, or has just created the PersistentVolume.
    pub(crate) fn is_provisioning(&self, uid: &str) -> bool {
        self.entries.is_busy(uid) || self.has_just_created(uid).is_some()
    }

    pub(crate) fn deleted(&self, uid: &str) {
        self.entries.entry(uid, |entry| entry.deleted = Some(Instant::now()));
    }

    /// How long ago the volume of a PersistentVolume was deleted. `None`: it was not, as far as is remembered.
    pub(crate) fn since_deleted(&self, uid: &str) -> Option<Duration> {
        Some(self.entries.get(uid, |entry| entry.deleted)?.elapsed())
    }

    /// What is to be deleted for a claim that is undone.
    pub(crate) fn undone(&self, uid: &str) -> Option<Arc<PersistentVolume>> {
        self.entries.get(uid, |entry| entry.undone.clone())
    }

    pub(crate) fn set_undone(&self, uid: &str, volume: Option<Arc<PersistentVolume>>) {
        self.entries.entry(uid, |entry| entry.undone = volume);
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.entries.forget(uid);
    }

    /// Forgets all others.
    fn keep_only(&self, uids: &HashSet<String>) {
        self.entries.keep_only(|uid| uids.contains(uid));
    }

    /// How many objects are remembered.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// What an attempt depends on.
pub(crate) fn inputs<T: serde::Serialize>(seen: &T) -> Inputs {
    Inputs::of(&serde_json::to_string(seen).unwrap_or_default(), &())
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

    fn seen(number: u32) -> Inputs {
        inputs(&number)
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_waits_until_its_time_or_until_its_inputs_change() {
        let (memory, retry, resync) = (Memory::new(10), Retry::default(), Duration::from_secs(900));
        assert_eq!(memory.left("1", seen(7)), None);
        drop(memory.begin("1", seen(7)));
        assert_eq!(memory.failed("1", "team", &retry, resync), (Duration::from_secs(1), false));
        assert_eq!(memory.left("1", seen(7)), Some(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(memory.left("1", seen(7)), None);
        drop(memory.begin("1", seen(7)));
        assert_eq!(memory.failed("1", "team", &retry, resync), (Duration::from_secs(2), false));
        assert_eq!(memory.left("1", seen(8)), None);
        drop(memory.begin("1", seen(8)));
        assert_eq!(
            memory.failed("1", "team", &retry, resync),
            (Duration::from_secs(1), false),
            "the count starts at 1"
        );
        let never = Retry { threshold: Some(1), ..retry };
        drop(memory.begin("1", seen(8)));
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
        let stale: Vec<_> = ["9", "10", "11"].map(|version| memory.is_stale(&volume(version))).into();
        assert_eq!(stale, [true, false, false]);
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
        assert_eq!(memory.left("1", seen(7)), None);
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
