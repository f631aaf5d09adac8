//! A store in memory. Each verb is one call, which the test can have fail. Buckets and users have the uid of the claim for
//! which they were created; a key works a while after it was issued.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bucket_provisioner::store::{
    AccessMode, AccessRemoval, AppCredentials, BucketRemoval, Call, Capabilities, Checkup, Content, CreateError,
    Endpoint, Mode, Plan, Probe, ProbeCall, Provisioner, Reason, Record, SecretString, Setting, SettingError,
    StoreError, Topic,
};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::calls::{Calls, Failed};

/// How long a new key does not work.
const KEY_DELAY: Duration = Duration::from_millis(500);

const AWAY: Reason = Reason::new("StoreAway", Topic::Store).meaning("the store does not answer").remedy("wait");
const DENIED: Reason = Reason::new("Denied", Topic::Store).meaning("the store refuses").remedy("permit it");
const TAKEN: Reason =
    Reason::new("Taken", Topic::Claim).meaning("the bucket is another's").remedy("choose another name");

/// What the store holds.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Contents {
    pub buckets: BTreeMap<String, Bucket>,
    pub users: BTreeMap<String, User>,
    issued: usize,
    /// The color that the store does not accept.
    pub refused: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// Uid of its claim; none of one that was not created by the operator.
    pub uid: Option<String>,
    pub objects: Vec<String>,
    /// Its one setting.
    pub color: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct User {
    pub uid: String,
    /// What its keys may do.
    pub mode: AccessMode,
    /// Its keys, and when each was issued.
    pub keys: BTreeMap<String, Instant>,
}

impl User {
    pub fn has_working(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|issued| issued.elapsed() >= KEY_DELAY)
    }
}

/// The provisioning credentials.
#[derive(Deserialize)]
pub struct Admin {
    #[serde(rename = "TOKEN")]
    _token: SecretString,
}

/// The store as one operator calls it.
#[derive(Clone, Default)]
pub struct Store {
    pub contents: Arc<Mutex<Contents>>,
    calls: Calls,
}

impl Contents {
    fn issue(&mut self) -> (String, Instant) {
        self.issued += 1;
        (format!("key-{}", self.issued), Instant::now())
    }

    /// Fails if the bucket is missing or another's.
    fn check(&self, record: &Record) -> Result<(), StoreError> {
        let name = &record.plan.bucket;
        match self.buckets.get(name) {
            Some(Bucket { uid: Some(uid), .. }) if record.bucket_uids().contains(&uid.as_str()) => Ok(()),
            Some(Bucket { uid: None, .. }) if record.plan.mode == Mode::Granted => Ok(()),
            _ => Err(StoreError::terminal(&TAKEN, format!("bucket {name:?} is not the claim's; choose another name"))),
        }
    }
}

/// The name of the setting.
pub const COLOR: &str = "color";

fn color(record: &Record) -> Option<String> {
    record.plan.settings.get(COLOR).map(str::to_owned)
}

fn credentials(key: &str) -> AppCredentials {
    AppCredentials::new(key, format!("secret of {key}").into())
}

impl Store {
    /// The same store for another operator.
    pub fn for_calls(&self, calls: &Calls) -> Self {
        Self { contents: Arc::clone(&self.contents), calls: calls.clone() }
    }

    async fn call<T>(&self, verb: &str, effect: impl FnOnce(&mut Contents) -> T) -> Result<T, CreateError<StoreError>> {
        let answer = self.calls.make(format!("store {verb}"), || effect(&mut self.contents.lock())).await;
        answer.map_err(|failed| match failed {
            Failed::Status(status @ 400..=428) => {
                CreateError::Refused(StoreError::terminal(&DENIED, format!("the store refuses to {verb} ({status})")))
            }
            Failed::Status(_) | Failed::Lost => StoreError::retryable(&AWAY, "the store does not answer").into(),
        })
    }
}

impl Provisioner for Store {
    type Parameters = ();
    type Owner = Admin;
    type Error = StoreError;

    const REASONS: &'static [&'static Reason] = &[&AWAY, &DENIED, &TAKEN];
    const CAPABILITIES: Capabilities = Capabilities::NONE
        .with_rotation()
        .with_access_modes()
        .with_shared_buckets()
        .with_settings(&[Setting::new(COLOR, "`red` or `blue`.").of_claims()]);

    fn check_settings(plan: &Plan) -> Result<(), SettingError> {
        match plan.settings.get(COLOR) {
            Some("red" | "blue") | None => Ok(()),
            Some(_) => Err(SettingError::new(COLOR, "is no color", "write red or blue")),
        }
    }

    fn endpoint(&self, (): &()) -> Endpoint {
        Endpoint::new("store.example.com", 443)
    }

    async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
        let created = self.call("create_bucket", |contents| {
            let uid = Some(call.record.claim.uid.clone());
            let bucket = Bucket { uid, objects: Vec::new(), color: color(call.record) };
            contents.buckets.entry(call.bucket().to_owned()).or_insert(bucket);
            contents.check(call.record)
        });
        created.await?.map_err(CreateError::Refused)
    }

    async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
        let granted = self.call("grant", |contents| {
            contents.check(call.record)?;
            let (key, now) = contents.issue();
            let mode = call.record.plan.access.mode;
            let user = User { uid: call.record.claim.uid.clone(), mode, keys: BTreeMap::from([(key.clone(), now)]) };
            contents.users.insert(call.user().to_owned(), user);
            Ok(credentials(&key))
        });
        granted.await?.map_err(CreateError::Refused)
    }

    async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
        let revoked = self.call("revoke", |contents| match contents.users.get(call.user()) {
            None => AccessRemoval::NotFound,
            Some(user) if call.record.names_uid(&user.uid) => {
                contents.users.remove(call.user());
                AccessRemoval::Deleted
            }
            Some(_) => AccessRemoval::LeftInPlace("the user is another claim's".to_owned()),
        });
        Ok(revoked.await?)
    }

    async fn delete_bucket(&self, call: &Call<'_, Self>, content: Content) -> Result<BucketRemoval, StoreError> {
        let deleted = self.call("delete_bucket", |contents| match contents.buckets.get(call.bucket()) {
            None => BucketRemoval::NotFound,
            Some(bucket) if bucket.uid.as_ref().is_none_or(|uid| !call.record.names_uid(uid)) => {
                BucketRemoval::LeftInPlace("the bucket is another's".to_owned())
            }
            Some(bucket) if content == Content::Keep && !bucket.objects.is_empty() => BucketRemoval::NotEmpty,
            Some(_) => {
                contents.buckets.remove(call.bucket());
                BucketRemoval::Deleted
            }
        });
        Ok(deleted.await?)
    }

    async fn probe(&self, call: &ProbeCall<'_, Self>) -> Result<Probe, StoreError> {
        let works = self.call("probe", |contents| {
            let user = contents.users.get(call.record.user());
            user.is_some_and(|user| user.has_working(&call.credentials.access_key_id))
        });
        Ok(if works.await? { Probe::Usable } else { Probe::NotYet("InvalidAccessKeyId".to_owned()) })
    }

    async fn rotate(&self, call: &Call<'_, Self>, present: &str) -> Result<Option<AppCredentials>, StoreError> {
        let rotated = self.call("rotate", |contents| {
            let (key, now) = contents.issue();
            let user = contents.users.get_mut(call.user())?;
            user.keys.retain(|key, _| key == present);
            user.keys.insert(key.clone(), now);
            Some(credentials(&key))
        });
        Ok(rotated.await?)
    }

    async fn check(&self, call: &Call<'_, Self>, keys: &[&str]) -> Result<Checkup, StoreError> {
        let checked = self.call("check", |contents| {
            contents.check(call.record)?;
            let is_refused = contents.refused.is_some() && contents.refused == color(call.record);
            let bucket = contents.buckets.get_mut(call.bucket()).filter(|bucket| bucket.uid.is_some() && !is_refused);
            if let Some(bucket) = bucket {
                bucket.color = color(call.record);
            }
            let Some(user) = contents.users.get_mut(call.user()) else {
                return Ok(Checkup::default().with_keys_lost(true));
            };
            let (kept, deleted) =
                std::mem::take(&mut user.keys).into_iter().partition(|(key, _)| keys.contains(&key.as_str()));
            user.keys = kept;
            user.mode = call.record.plan.access.mode;
            let is_lost = keys.first().is_some_and(|key| !user.keys.contains_key(*key));
            let deleted: BTreeMap<String, Instant> = deleted;
            let checkup = Checkup::default().with_keys_lost(is_lost).with_deleted_keys(deleted.into_keys());
            let refusal = || StoreError::terminal(&DENIED, "the store does not accept the color");
            Ok(if is_refused { checkup.with_problem(&refusal(), true) } else { checkup })
        });
        checked.await?
    }
}
