//! The smallest provisioner: its buckets are names in the memory of this process. docs/writing-a-provisioner.md builds it
//! step by step.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bucket_provisioner::store::{
    AppCredentials, Content, Endpoint, Fate, Mode, Reason, Record, Removal, Removed, StoreError, Topic,
};
use bucket_provisioner::{Operator, Provisioner};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a StorageClass can say.
#[derive(Deserialize, JsonSchema)]
struct Parameters {
    /// The shelf on which the buckets stand.
    shelf: String,
}

/// Why a claim can fail.
const TAKEN: Reason =
    Reason::new("BucketTaken", Topic::Claim, "a bucket of that name stands there already", "choose another name");
const MISSING: Reason = Reason::new(
    "BucketMissing",
    Topic::Class,
    "the claim's bucket does not exist, or is another claim's",
    "see the message",
);

/// A store: the claim's uid for each bucket, and the bucket for each user.
#[derive(Default)]
struct Shelves {
    buckets: Mutex<BTreeMap<String, String>>,
    users: Mutex<BTreeMap<String, String>>,
}

fn lock<T>(things: &Mutex<T>) -> MutexGuard<'_, T> {
    things.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelves {
    fn remove_user(&self, record: &Record) -> Fate {
        let user = record.plan.user.clone().unwrap_or_default();
        if lock(&self.users).remove(&user).is_some() { Fate::Removed } else { Fate::Missing }
    }
}

impl Provisioner for Shelves {
    type Parameters = Parameters;
    type Owner = ();
    type Error = StoreError;

    const REASONS: &'static [&'static Reason] = &[&TAKEN, &MISSING];

    fn endpoint(&self, parameters: &Parameters) -> Endpoint {
        Endpoint::new(&parameters.shelf, 80, "memory")
    }

    async fn provision(&self, record: &Record, owner: &()) -> Result<AppCredentials, StoreError> {
        let (bucket, uid) = (&record.plan.bucket, &record.claim.uid);
        let existing = lock(&self.buckets).entry(bucket.clone()).or_insert_with(|| uid.clone()).clone();
        if !record.names_uid(&existing) {
            let message = format!("bucket {bucket:?} exists already; choose another name");
            return Err(StoreError::terminal(&TAKEN, message).untouched());
        }
        // From here on the store has changed.
        self.grant(record, owner).await.map_err(StoreError::after_a_change)
    }

    async fn grant(&self, record: &Record, (): &()) -> Result<AppCredentials, StoreError> {
        let bucket = &record.plan.bucket;
        let is_mine = lock(&self.buckets).get(bucket).is_some_and(|uid| record.names_uid(uid));
        if !is_mine {
            let message = format!("bucket {bucket:?} does not exist, or belongs to another claim");
            return Err(StoreError::lost(&MISSING, message).untouched());
        }
        let user = record.plan.user.clone().unwrap_or_default();
        lock(&self.users).insert(user.clone(), bucket.clone());
        // Nobody asks this store for its keys; another has to remember it.
        Ok(AppCredentials::new(user, format!("{:032x}", rand::random::<u128>())))
    }

    async fn revoke(&self, record: &Record, (): &(), _: Option<&AppCredentials>) -> Result<Removal, StoreError> {
        Ok(Removal::Done(Removed::new(self.remove_user(record), Fate::Kept)))
    }

    // These buckets never hold anything, so it does not matter what is to happen to their content.
    async fn delete(
        &self,
        record: &Record,
        (): &(),
        _: Option<&AppCredentials>,
        _: Content,
    ) -> Result<Removal, StoreError> {
        let access = self.remove_user(record);
        let mut buckets = lock(&self.buckets);
        let bucket = match buckets.get(&record.plan.bucket) {
            _ if record.plan.mode == Mode::Granted => Fate::Kept,
            Some(uid) if record.names_uid(uid) => {
                buckets.remove(&record.plan.bucket);
                Fate::Removed
            }
            Some(_) => Fate::Left("the bucket was left in place, because it belongs to another claim".to_owned()),
            None => Fate::Missing,
        };
        Ok(Removal::Done(Removed::new(access, bucket)))
    }
}

fn main() -> ExitCode {
    Operator::new("example.com/shelf")
        .about("Provisions buckets in memory.")
        .version(env!("CARGO_PKG_VERSION"))
        .run_with(Shelves::default())
}
