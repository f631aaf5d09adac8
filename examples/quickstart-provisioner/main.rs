//! The smallest provisioner: its buckets are names in the memory of this process. docs/writing-a-provisioner.md builds it
//! step by step.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bucket_provisioner::store::{
    AccessRemoval, AppCredentials, BucketRemoval, Call, Content, CreateError, Endpoint, Reason, StoreError, Topic,
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
const TAKEN: Reason = Reason::new("BucketTaken", Topic::Claim)
    .meaning("a bucket of that name stands there already")
    .remedy("choose another name");
const MISSING: Reason = Reason::new("BucketMissing", Topic::Class)
    .meaning("the claim's bucket does not exist, or is another claim's")
    .remedy("see the message");

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
    fn owner(&self, bucket: &str) -> Option<String> {
        lock(&self.buckets).get(bucket).cloned()
    }
}

impl Provisioner for Shelves {
    type Parameters = Parameters;
    type Owner = ();
    type Error = StoreError;

    const REASONS: &'static [&'static Reason] = &[&TAKEN, &MISSING];

    fn endpoint(&self, parameters: &Parameters) -> Endpoint {
        Endpoint::new(&parameters.shelf, 80).with_region("memory")
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        let uid = &call.record.claim.uid;
        let existing = lock(&self.buckets).entry(call.bucket().to_owned()).or_insert_with(|| uid.clone()).clone();
        if !call.record.names_uid(&existing) {
            let message = format!("bucket {:?} exists already; choose another name", call.bucket());
            return Err(CreateError::Refused(StoreError::terminal(&TAKEN, message)));
        }
        Ok(())
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        if !self.owner(call.bucket()).is_some_and(|uid| call.record.names_uid(&uid)) {
            let message = format!("bucket {:?} does not exist, or belongs to another claim", call.bucket());
            return Err(CreateError::Refused(StoreError::lost(&MISSING, message)));
        }
        lock(&self.users).insert(call.user().to_owned(), call.bucket().to_owned());
        // Nobody asks this store for its keys; another has to remember it.
        Ok(AppCredentials::new(call.user(), format!("{:032x}", rand::random::<u128>()).into()))
    }

    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        Ok(match lock(&self.users).remove(call.user()) {
            Some(_) => AccessRemoval::Deleted,
            None => AccessRemoval::NotFound,
        })
    }

    // These buckets never hold anything, so it does not matter what is to happen to their content.
    async fn delete_bucket(&self, call: &Call<'_, Self>, _: Content) -> Result<BucketRemoval, StoreError> {
        Ok(match self.owner(call.bucket()) {
            Some(uid) if call.record.names_uid(&uid) => {
                lock(&self.buckets).remove(call.bucket());
                BucketRemoval::Deleted
            }
            Some(_) => {
                BucketRemoval::LeftInPlace("the bucket is left in place: it belongs to another claim".to_owned())
            }
            None => BucketRemoval::NotFound,
        })
    }
}

fn main() -> ExitCode {
    Operator::new("example.com/shelf")
        .about("Provisions buckets in memory.")
        .version(env!("CARGO_PKG_VERSION"))
        .run_with(Shelves::default())
}
