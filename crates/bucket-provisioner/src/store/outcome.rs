//! What the verbs return.

use std::collections::BTreeMap;
use std::time::SystemTime;

use secrecy::SecretString;

use super::failure::{Failure, FailureClass};
use super::record::ClaimId;

/// The keys of a claim, for its Secret.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AppCredentials {
    /// Access key id. Not secret by itself.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: SecretString,
    /// Session token, if the claim shares the provisioning credentials and these are temporary.
    pub session_token: Option<SecretString>,
    /// Further entries of the Secret, beside the standard ones: key and value. A key has 1 to 253 letters, digits, `-`,
    /// `_` and `.`. All entries together have up to 512 KiB. They are written whenever keys are issued, and never read
    /// back: credentials that the library passes to a verb have none. Keys are published without an entry that cannot
    /// be written, and a Warning event names it.
    pub outputs: BTreeMap<String, SecretString>,
}

impl AppCredentials {
    /// Keys that do not expire.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: SecretString) -> Self {
        Self { access_key_id: access_key_id.into(), secret_access_key, session_token: None, outputs: BTreeMap::new() }
    }

    /// No keys: the claim's apps have access as a [ServiceAccount](super::Plan::service_account).
    pub fn without_keys() -> Self {
        Self::new("", String::new().into())
    }

    /// Whether there are keys.
    pub fn has_keys(&self) -> bool {
        !self.access_key_id.is_empty()
    }

    /// With a session token.
    pub fn with_session_token(self, token: SecretString) -> Self {
        Self { session_token: Some(token), ..self }
    }

    /// With a further entry of the Secret; see [`outputs`](Self::outputs).
    pub fn with_output(mut self, key: impl Into<String>, value: SecretString) -> Self {
        self.outputs.insert(key.into(), value);
        self
    }
}

/// Whether issued credentials work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Probe {
    /// They work against the claim's bucket.
    Usable,
    /// The store does not know them yet. The text is its answer. If that lasts, they are replaced as soon as
    /// [`Provisioner::check`](super::Provisioner::check) finds them lost.
    NotYet(String),
    /// The store knows them, and denies what apps need. The text is its answer. For a minute this may be because the store
    /// does not show everything yet; the keys are not replaced. Where a store knows the cause, it can fail instead once
    /// [`ProbeCall::is_settled`](super::ProbeCall::is_settled).
    Denied(String),
}

/// What [`Provisioner::deactivate`](super::Provisioner::deactivate) did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deactivation {
    /// The keys did not work any more; or the store can only delete them.
    NotNeeded,
    /// They do not work from now on. Somebody can activate them again until they are deleted.
    Done,
    /// They were used recently, at this time if the store reports it. Nothing was changed.
    InUse(Option<SystemTime>),
}

/// A part of a check that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong, and the remedy.
    pub message: String,
    /// Whether a retry can help.
    pub class: FailureClass,
    /// Whether it is what was [changed](super::Plan::changes) that could not be applied.
    pub is_about_change: bool,
}

/// What [`Provisioner::check`](super::Provisioner::check) found; by default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkup {
    /// What had changed and was repaired, a sentence each, for an event.
    pub repaired: Vec<String>,
    /// Settings that the claim no longer sets, and that stay as they are, a sentence each, for an event.
    pub kept: Vec<String>,
    /// Why settings could not be checked or applied, while the rest could.
    pub problem: Option<Problem>,
    /// Ids of the keys that were deleted, because they were not among those to keep.
    pub deleted_keys: Vec<String>,
    /// The store shows neither the present keys nor, perhaps, their user. If they were issued longer ago than the
    /// [consistency lag](super::Provisioner::consistency_lag), or the store refuses them as well,
    /// [`Provisioner::grant`](super::Provisioner::grant) issues new ones.
    pub keys_lost: bool,
    /// The present keys were deactivated at the store. That is reported; new ones are issued only on request.
    pub keys_inactive: bool,
    /// When the present keys were issued, if the store reports it. Annotations about this can have been edited.
    pub issued_at: Option<SystemTime>,
}

impl Checkup {
    /// With something that had changed and was repaired, in a sentence.
    pub fn with_repaired(mut self, what: impl Into<String>) -> Self {
        self.repaired.push(what.into());
        self
    }

    /// With a setting that stays as it is, in a sentence.
    pub fn with_kept(mut self, what: impl Into<String>) -> Self {
        self.kept.push(what.into());
        self
    }

    /// With a failure of settings; `is_about_change`: of some that were changed.
    pub fn with_problem(self, error: &impl Failure, is_about_change: bool) -> Self {
        let problem = Problem { message: error.to_string(), class: error.class(), is_about_change };
        Self { problem: Some(problem), ..self }
    }

    /// With ids of keys that were deleted.
    pub fn with_deleted_keys(mut self, ids: impl IntoIterator<Item = String>) -> Self {
        self.deleted_keys.extend(ids);
        self
    }

    /// With whether the present keys are lost.
    pub fn with_keys_lost(self, keys_lost: bool) -> Self {
        Self { keys_lost, ..self }
    }

    /// With whether the present keys were deactivated.
    pub fn with_keys_inactive(self, keys_inactive: bool) -> Self {
        Self { keys_inactive, ..self }
    }

    /// With the time at which the present keys were issued.
    pub fn with_issued_at(self, at: SystemTime) -> Self {
        Self { issued_at: Some(at), ..self }
    }
}

/// What a store knows about the claim for which a bucket was created; see [`Provisioner::recall`](super::Provisioner::recall).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recalled {
    /// The claim at that time.
    pub claim: ClaimId,
    /// UID of its cluster.
    pub cluster: Option<String>,
    /// UIDs of the claims that had the bucket before.
    pub former_uids: Vec<String>,
    /// The claim's user.
    pub user: Option<String>,
}

impl Recalled {
    /// A bucket that was created for this claim.
    pub fn new(claim: ClaimId) -> Self {
        Self { claim, cluster: None, former_uids: Vec::new(), user: None }
    }

    /// With the uid of the claim's cluster, if it is known.
    pub fn with_cluster(self, uid: impl Into<Option<String>>) -> Self {
        Self { cluster: uid.into(), ..self }
    }

    /// With the uids of the claims that had the bucket before, oldest first.
    pub fn with_former_uids(self, uids: impl IntoIterator<Item = String>) -> Self {
        Self { former_uids: uids.into_iter().collect(), ..self }
    }

    /// With the claim's user, if it is known.
    pub fn with_user(self, name: impl Into<Option<String>>) -> Self {
        Self { user: name.into(), ..self }
    }
}

/// What a deletion may do with the content of a bucket: objects, versions and unfinished uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// It is deleted with the bucket.
    Delete,
    /// It is kept, and with it the bucket: only an empty bucket is deleted.
    Keep,
}

/// What [`Provisioner::revoke`](super::Provisioner::revoke) did with the access of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessRemoval {
    /// It existed, and the store has confirmed that it is deleted.
    Deleted,
    /// It was not found: it was deleted before, or the store does not show it yet.
    NotFound,
    /// The claim has none of its own: it shares the provisioning credentials.
    NotIssued,
    /// It was left in place, because it is not the claim's. A sentence with the cause, for an event.
    LeftInPlace(String),
    /// Nothing proves whether it is the claim's. It was left in place, with its keys deactivated if the store can do
    /// that. A sentence about this. The bucket and the ObjectBucket are kept until an admin decides.
    Unproven(String),
}

impl AccessRemoval {
    pub(crate) fn is_unproven(&self) -> bool {
        matches!(self, Self::Unproven(_))
    }
}

/// What [`Provisioner::delete_bucket`](super::Provisioner::delete_bucket) did with the bucket of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BucketRemoval {
    /// It existed, and the store has confirmed that it is deleted.
    Deleted,
    /// It was not found: it was deleted before, or the store does not show it yet.
    NotFound,
    /// It holds something that must be kept ([`Content::Keep`]), so it was left as it is.
    NotEmpty,
    /// It was left in place, because it is not the claim's. A sentence with the cause, for an event.
    LeftInPlace(String),
    /// A part of its content is deleted. The verb is called again; other claims can be first. See
    /// [`partial`](Self::partial).
    #[non_exhaustive]
    Partial {
        /// Objects (versions, delete markers, uploads) deleted by this call; 0 if it only passed some that cannot be
        /// deleted, and there are others behind them.
        deleted: u64,
    },
    /// It was not to be deleted. Only the library returns this.
    Kept,
}

impl BucketRemoval {
    /// A part of the content is deleted: this many objects by this call. The verb is called again.
    pub fn partial(deleted: u64) -> Self {
        Self::Partial { deleted }
    }
}

/// What a removal found and deleted. The last event of a claim reports exactly this.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removal {
    /// The user with its credentials.
    pub access: AccessRemoval,
    /// The bucket with its content.
    pub bucket: BucketRemoval,
}

impl Removal {
    /// Only the access was removed.
    pub(crate) fn of_access(access: AccessRemoval) -> Self {
        Self { access, bucket: BucketRemoval::Kept }
    }

    /// Whether something that the record names was not found.
    pub(crate) fn missed_something(&self) -> bool {
        self.access == AccessRemoval::NotFound || self.bucket == BucketRemoval::NotFound
    }

    /// Why things were left in place, a sentence each.
    pub(crate) fn left(&self) -> impl Iterator<Item = &str> {
        let access = match &self.access {
            AccessRemoval::LeftInPlace(why) => Some(why.as_str()),
            _ => None,
        };
        let bucket = match &self.bucket {
            BucketRemoval::LeftInPlace(why) => Some(why.as_str()),
            _ => None,
        };
        [access, bucket].into_iter().flatten()
    }
}
