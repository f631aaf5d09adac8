//! What the verbs return.

use std::time::SystemTime;

use secrecy::SecretString;

use super::record::ClaimId;

/// The keys of a claim, for its Secret.
#[derive(Debug, Clone)]
pub struct AppCredentials {
    /// Access key id. Not secret by itself.
    pub access_key_id: String,
    /// Secret access key.
    pub secret_access_key: SecretString,
    /// Session token, if the claim shares the owner's credentials and these are temporary.
    pub session_token: Option<SecretString>,
}

/// Whether issued credentials work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// They work against the claim's bucket.
    Usable,
    /// The store does not accept them yet. The text is its answer.
    NotYet(String),
}

/// What [`Provisioner::check`](super::Provisioner::check) found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkup {
    /// What had changed and was repaired, a sentence each, for an event.
    pub repaired: Vec<String>,
    /// Ids of the keys that were deleted, because they were not among those to keep.
    pub deleted_keys: Vec<String>,
    /// The store shows neither the present keys nor, perhaps, their user. The keys are tried, and if the store refuses
    /// them, [`Provisioner::grant`](super::Provisioner::grant) issues new ones.
    pub keys_lost: bool,
    /// When the present keys were issued, if the store says. Annotations about this can have been edited.
    pub issued_at: Option<SystemTime>,
}

/// What a store knows about the claim for which a bucket was created; see [`Provisioner::recall`](super::Provisioner::recall).
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// How far [`Provisioner::revoke`](super::Provisioner::revoke) or [`Provisioner::delete`](super::Provisioner::delete) got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Nothing is left to do.
    Done(Removed),
    /// A part of a long removal is done. Call again; other claims can go first.
    Partial {
        /// Objects (versions, delete markers, uploads) removed by this call.
        removed: u64,
    },
}

/// What a removal found and removed. The last event of a claim says this and nothing more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// The user with its credentials.
    pub access: Fate,
    /// The bucket with its content.
    pub bucket: Fate,
}

/// What happened to a user or bucket that a record names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It should not be removed, or the record names none.
    Kept,
    /// It existed, and the store has confirmed the removal.
    Removed,
    /// It was not found: it was removed before, or the store does not show it yet.
    Missing,
    /// It was left in place, mostly because nothing proves that it belongs to the claim. A sentence that says why, for
    /// an event.
    Left(String),
}

impl Removed {
    /// Whether something that the record names was not found.
    pub fn missed_something(&self) -> bool {
        self.access == Fate::Missing || self.bucket == Fate::Missing
    }

    /// Why things were left in place, a sentence each.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        [&self.access, &self.bucket].into_iter().filter_map(|fate| match fate {
            Fate::Left(why) => Some(why.as_str()),
            Fate::Kept | Fate::Removed | Fate::Missing => None,
        })
    }
}
