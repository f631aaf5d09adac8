//! How far the creation for a claim came, so that its next attempt in this process goes on there, without calls that only
//! look. It is forgotten a minute after it failed, because somebody may change what was created; then, and after a
//! restart, an attempt looks at what exists.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::clients::Store;
use crate::client::error::Error;
use crate::iam::user::UserSteps;
use bucket_provisioner::store::{Failure as _, FailureClass, Plan, Record};

/// How long it is kept after a failure, and after the first attempt.
const KEPT: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(300);

/// What has succeeded.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// The bucket exists, and is the claim's.
    pub(crate) bucket: bool,
    pub(crate) user: UserSteps,
}

/// The creations that failed on their way, by the uids of their claims.
#[derive(Default)]
pub(crate) struct Unfinished(Mutex<HashMap<String, Entry>>);

/// A creation: what is to be created, by whom, and how far it came.
struct Entry {
    plan: Plan,
    store: Arc<Store>,
    began: Instant,
    failed: Instant,
    steps: Steps,
}

impl Entry {
    fn is_kept(&self) -> bool {
        self.failed.elapsed() < KEPT && self.began.elapsed() < LONGEST
    }
}

/// An attempt. If it is dropped on its way, what has succeeded is remembered, too.
pub(crate) struct Running<'a> {
    unfinished: &'a Unfinished,
    uid: &'a str,
    entry: Option<Entry>,
}

impl Unfinished {
    /// Goes on with what is remembered of a record, or begins.
    pub(crate) fn begin<'a>(&'a self, record: &'a Record, store: &Arc<Store>) -> Running<'a> {
        let uid = &record.claim.uid;
        let mut entries = self.lock();
        entries.retain(|_, entry| entry.is_kept());
        let found = entries.remove(uid).filter(|entry| entry.plan == record.plan && Arc::ptr_eq(&entry.store, store));
        let now = Instant::now();
        let new = || Entry {
            plan: record.plan.clone(),
            store: Arc::clone(store),
            began: now,
            failed: now,
            steps: Steps::default(),
        };
        Running { unfinished: self, uid, entry: Some(found.unwrap_or_else(new)) }
    }

    pub(crate) fn forget(&self, record: &Record) {
        self.lock().remove(&record.claim.uid);
    }

    // A panic elsewhere leaves the entries consistent.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running<'_> {
    /// Makes an attempt, which notes what has succeeded.
    pub(crate) async fn attempt<T>(
        mut self,
        work: impl AsyncFnOnce(&mut Steps) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(entry) = &mut self.entry else { return work(&mut Steps::default()).await };
        let outcome = Box::pin(work(&mut entry.steps)).await;
        if outcome.as_ref().err().is_none_or(|error| error.class() != FailureClass::Retryable) {
            self.entry = None;
        }
        outcome
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let entry = Entry { failed: Instant::now(), ..entry };
            self.unfinished.lock().insert(self.uid.to_owned(), entry);
        }
    }
}
