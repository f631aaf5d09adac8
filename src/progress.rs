//! How far a creation for a claim came, so that its next attempt in this process continues there, without calls that
//! only read. It is forgotten a minute after it failed, because somebody may change what was created; then, and after a
//! restart, an attempt first reads what exists.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::store::Store;
use bucket_provisioner::store::{Plan, Record};

/// How long it is kept after a failure, and after the first attempt.
const KEPT: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(300);

/// The creations that are not finished, by the uids of their claims. `S`: which steps have succeeded.
#[derive(Default)]
pub(crate) struct Unfinished<S>(Mutex<HashMap<String, Entry<S>>>);

/// A creation: what is to be created, with which clients, and how far it came.
struct Entry<S> {
    plan: Plan,
    store: Arc<Store>,
    began: Instant,
    left: Instant,
    steps: S,
}

impl<S> Entry<S> {
    fn is_kept(&self) -> bool {
        self.left.elapsed() < KEPT && self.began.elapsed() < LONGEST
    }
}

/// An attempt. What has succeeded is remembered when it is dropped, also on its way, unless it has [ended](Self::end).
pub(crate) struct Attempt<'a, S: Default> {
    unfinished: &'a Unfinished<S>,
    uid: &'a str,
    plan: &'a Plan,
    store: Arc<Store>,
    began: Instant,
    steps: S,
    has_ended: bool,
}

impl<S: Default> Unfinished<S> {
    /// Continues what is remembered of a record, or begins.
    pub(crate) fn begin<'a>(&'a self, record: &'a Record, store: &Arc<Store>) -> Attempt<'a, S> {
        let (uid, plan, store) = (record.claim.uid.as_str(), &record.plan, Arc::clone(store));
        let mut entries = self.0.lock();
        entries.retain(|_, entry| entry.is_kept());
        let found = entries.remove(uid).filter(|entry| entry.plan == *plan && Arc::ptr_eq(&entry.store, &store));
        let (began, steps) = found.map_or_else(|| (Instant::now(), S::default()), |entry| (entry.began, entry.steps));
        Attempt { unfinished: self, uid, plan, store, began, steps, has_ended: false }
    }
}

impl<S> Unfinished<S> {
    pub(crate) fn forget(&self, record: &Record) {
        self.0.lock().remove(&record.claim.uid);
    }
}

impl<S: Default> Attempt<'_, S> {
    /// What has succeeded so far, to be noted here.
    pub(crate) fn steps(&mut self) -> &mut S {
        &mut self.steps
    }

    /// Nothing is to be remembered.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }
}

impl<S: Default> Drop for Attempt<'_, S> {
    fn drop(&mut self) {
        if !self.has_ended {
            let entry = Entry {
                plan: self.plan.clone(),
                store: Arc::clone(&self.store),
                began: self.began,
                left: Instant::now(),
                steps: std::mem::take(&mut self.steps),
            };
            self.unfinished.0.lock().insert(self.uid.to_owned(), entry);
        }
    }
}
