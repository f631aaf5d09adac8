//! The times of all objects of a kind, and what else is remembered of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::schedule::Schedule;

/// Shortest time between two searches for due rechecks: each reads all entries.
const LOOK_GAP: Duration = Duration::from_secs(1);

/// What is remembered of an object. All of it may be lost: it only saves work.
pub trait Remembered: Default {
    /// When the object is processed again.
    fn schedule(&mut self) -> &mut Schedule;
}

impl Remembered for Schedule {
    fn schedule(&mut self) -> &mut Schedule {
        self
    }
}

/// What is remembered of the objects of a kind, by uid or another key.
#[derive(Debug)]
pub struct Table<T> {
    // Boxed, because a map has room for more entries than it holds.
    entries: Mutex<HashMap<Box<str>, Box<T>>>,
    /// The objects for which an attempt runs.
    busy: Mutex<HashSet<Box<str>>>,
    /// What [`due`](Self::due) waits for.
    next: Mutex<Option<Instant>>,
    /// A recheck is due sooner than that.
    sooner: Notify,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Mutex::default(), busy: Mutex::default(), next: Mutex::default(), sooner: Notify::new() }
    }
}

/// The right to process an object, until this is dropped.
#[derive(Debug)]
pub struct Claimed<'a> {
    busy: &'a Mutex<HashSet<Box<str>>>,
    key: Box<str>,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.key);
    }
}

impl<T: Remembered> Table<T> {
    /// Reads or changes what is remembered of an object, and remembers it from now on. `f` must not use the table.
    pub fn entry<R>(&self, key: &str, f: impl FnOnce(&mut T) -> R) -> R {
        f(self.entries.lock().entry(key.into()).or_default())
    }

    /// The same; if nothing is remembered, returns the default.
    pub fn get<R: Default>(&self, key: &str, f: impl FnOnce(&mut T) -> R) -> R {
        self.entries.lock().get_mut(key).map(|known| f(known)).unwrap_or_default()
    }

    /// Calls `f` for all objects. `f` must not use the table.
    pub fn for_each(&self, mut f: impl FnMut(&str, &mut T)) {
        self.entries.lock().iter_mut().for_each(|(key, known)| f(key, known));
    }

    /// How many objects are remembered.
    pub fn len(&self) -> usize {
        self.entries.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets an object; returns what was remembered.
    pub fn forget(&self, key: &str) -> Option<Box<T>> {
        self.entries.lock().remove(key)
    }

    /// Forgets all others, because they may have been deleted while nothing was watched, but not those for which an
    /// attempt runs.
    pub fn keep_only(&self, keep: impl Fn(&str) -> bool) {
        let busy = self.busy.lock().clone();
        self.entries.lock().retain(|key, _| keep(key) || busy.contains(key));
    }

    /// The right to process an object: one attempt at a time. `None` if one runs.
    pub fn begin(&self, key: &str) -> Option<Claimed<'_>> {
        let is_free = self.busy.lock().insert(key.into());
        // Not made if it is busy: dropping it would end the right of the other.
        is_free.then(|| Claimed { busy: &self.busy, key: key.into() })
    }

    /// Whether an attempt runs.
    pub fn is_busy(&self, key: &str) -> bool {
        self.busy.lock().contains(key)
    }

    /// The object was written, and has this resource version now.
    pub fn wrote(&self, key: &str, resource_version: Option<&str>) {
        if let Some(version) = version_number(resource_version) {
            self.entry(key, |known| known.schedule().wrote(version));
        }
    }

    /// Whether the cache shows the object as it was before this process wrote it: the change that shows it is still to
    /// come. Asked with a newer version, the answer is no from then on.
    pub fn is_behind(&self, key: &str, resource_version: Option<&str>) -> bool {
        self.get(key, |known| known.schedule().is_behind(version_number(resource_version)))
    }

    /// Rechecks the object after this time, even if nothing changes; `None`: only when something changes.
    pub fn recheck_in(&self, key: &str, wait: Option<Duration>) {
        let Some(at) = self.entry(key, |known| known.schedule().recheck_in(wait)) else { return };
        let mut next = self.next.lock();
        if next.is_none_or(|next| at < next) {
            *next = Some(at);
            self.sooner.notify_one();
        }
    }

    /// The objects that are to be rechecked now, each once. Waits until there are some.
    pub async fn due(&self) -> Vec<Box<str>> {
        loop {
            let looked = Instant::now();
            let (due, next) = self.take_due(looked);
            if !due.is_empty() {
                return due;
            }
            match next {
                None => self.sooner.notified().await,
                Some(at) => drop(tokio::time::timeout_at(at, self.sooner.notified()).await),
            }
            tokio::time::sleep_until(looked + LOOK_GAP).await;
        }
    }

    fn take_due(&self, now: Instant) -> (Vec<Box<str>>, Option<Instant>) {
        let (mut due, mut next) = (Vec::new(), self.next.lock());
        *next = None;
        for (key, known) in self.entries.lock().iter_mut() {
            let schedule = known.schedule();
            if schedule.take_due(now) {
                due.push(key.clone());
            }
            *next = [*next, schedule.recheck_at()].into_iter().flatten().min();
        }
        (due, *next)
    }
}

/// Resource versions of one kind of object can be compared as numbers:
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions>.
pub fn version_number(resource_version: Option<&str>) -> Option<u64> {
    resource_version?.parse().ok()
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::engine::Inputs;

    const SECOND: Duration = Duration::from_secs(1);

    fn table() -> Table<Schedule> {
        Table::default()
    }

    #[test]
    fn one_attempt_at_a_time() {
        let table = table();
        let claimed = table.begin("a");
        assert!(claimed.is_some() && table.begin("a").is_none() && table.begin("a").is_none());
        assert!(table.begin("b").is_some());
        drop(claimed);
        assert!(table.begin("a").is_some());
    }

    #[test]
    fn a_cache_is_behind_until_it_shows_the_last_write() {
        let table = table();
        assert!(!table.is_behind("a", Some("9")));
        table.wrote("a", Some("12"));
        assert!(table.is_behind("a", Some("9")));
        assert!(!table.is_behind("a", Some("12")));
        assert!(!table.is_behind("a", Some("9")), "seen once, it is not asked for again");
        table.wrote("a", Some("12"));
        table.entry("a", Schedule::forget_write);
        assert!(!table.is_behind("a", Some("9")), "the API server was restored");
    }

    #[test]
    fn what_was_deleted_unseen_is_forgotten_unless_its_attempt_runs() {
        let table = table();
        assert_eq!(
            (table.get("a", |known| known.begin(Inputs::default())), table.len()),
            (0, 0),
            "a look leaves nothing"
        );
        for key in ["kept", "busy", "gone"] {
            table.entry(key, |_| ());
        }
        let busy = table.begin("busy");
        assert_eq!(["kept", "busy"].map(|key| table.is_busy(key)), [false, true]);
        table.keep_only(|key| key == "kept");
        assert_eq!(table.len(), 2);
        drop(busy);
        assert!(!table.is_busy("busy"));
        table.keep_only(|key| key == "kept");
        assert_eq!(table.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn rechecks_come_once_at_their_time() {
        let table = table();
        table.recheck_in("late", Some(100 * SECOND));
        table.recheck_in("never", Some(10 * SECOND));
        table.recheck_in("never", None);
        let began = Instant::now();
        let (due, ()) = tokio::join!(table.due(), async {
            tokio::time::sleep(SECOND).await;
            table.recheck_in("soon", Some(2 * SECOND));
        });
        assert_eq!((&*due, began.elapsed()), (&["soon".into()][..], 3 * SECOND));
        assert_eq!((&*table.due().await, began.elapsed()), (&["late".into()][..], 100 * SECOND));
        assert_eq!(table.due().now_or_never(), None);
    }
}
