//! The world of the model: a claim, a cluster and an account, each as small as possible.
//!
//! A write happens at once. Reads of IAM may miss what was just created (`seen`), and the operator sees the claim through
//! a cache, which may show any earlier version.

use std::collections::BTreeSet;

/// Claims of the name, in the order of their creation.
pub(super) type Uid = u8;
/// Access keys by the order in which they were issued.
pub(super) type Key = u8;

/// Which bucket a claim asks for. `Edited` is another prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Asks {
    Prefix,
    Edited,
    Name,
    /// The bucket that the class names.
    Class,
}

/// Name of a bucket. Generated names contain the claim's uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum BucketName {
    Generated(Asks, Uid),
    Chosen,
}

impl BucketName {
    pub(super) fn of(asks: Asks, uid: Uid) -> Self {
        match asks {
            Asks::Prefix | Asks::Edited => Self::Generated(asks, uid),
            Asks::Name | Asks::Class => Self::Chosen,
        }
    }
}

/// The owner of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    Claim(Uid),
    Foreign,
    /// Only for things of the cluster: restored from a backup, which leaves out owner references.
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) uid: Uid,
    /// Grows with each change.
    pub(super) version: u8,
    pub(super) asks: Asks,
    pub(super) deleting: bool,
    pub(super) finalizer: bool,
    /// `spec.objectBucketName`.
    pub(super) named: bool,
    /// `status.phase`.
    pub(super) bound: bool,
    /// The condition of that name.
    pub(super) ready: bool,
    /// How often its user has requested new keys.
    pub(super) rotation: u8,
    /// Its user asks for keys that only read.
    pub(super) limited: bool,
    /// Its user asks for the bucket of the claim of this name that was deleted before; whether in time.
    pub(super) undo: Option<bool>,
}

/// Why a record outlives its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Release {
    /// The bucket is deleted at a later time.
    Scheduled { deleting: bool },
    /// The access of a vanished claim is being removed.
    Vanished,
    /// An admin decides about the bucket.
    Retained,
}

/// When the content of a bucket may be deleted that its claim has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// With the claim.
    Deleted,
    /// When the time has come, unless a claim has the bucket by then.
    DeletedLater,
    Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) uid: Uid,
    /// The claim in the names of bucket and user.
    pub(super) names: Uid,
    pub(super) asks: Asks,
    /// The spec shows that its credentials were published.
    pub(super) credentials_published: bool,
    /// The status shows that it is bound.
    pub(super) status_is_bound: bool,
    /// An admin requests that the present claim adopts it.
    pub(super) adopt_requested: bool,
    /// The keys only read.
    pub(super) limited: bool,
    /// That has changed, and the store has not confirmed it.
    pub(super) changes: bool,
    pub(super) release: Option<Release>,
}

impl Record {
    /// What is planned for a claim.
    pub(super) fn new(claim: Claim) -> Self {
        let Claim { uid, asks, limited, .. } = claim;
        Self {
            uid,
            names: uid,
            asks,
            credentials_published: false,
            status_is_bound: false,
            adopt_requested: false,
            limited,
            changes: false,
            release: None,
        }
    }

    /// Whether `uid` is that of its claim, or of a previous one.
    pub(super) fn names_uid(&self, uid: Uid) -> bool {
        uid == self.uid || uid == self.names
    }

    pub(super) fn bucket(&self) -> BucketName {
        BucketName::of(self.asks, self.names)
    }
}

/// The claim's Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Secret {
    Foreign,
    /// Restored from a backup, without an owner.
    Restored {
        key: Key,
    },
    Mine {
        uid: Uid,
        key: Key,
        /// The request for rotation that the key answers.
        answers: u8,
        retiring: Option<Key>,
        review: Review,
    },
}

/// Whether to search for lost keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Review {
    No,
    /// When IAM shows everything that was created.
    Later,
    Due,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct User {
    /// The claim that its tags name.
    pub(super) tag: Uid,
    /// Whether IAM's reads show it.
    pub(super) seen: bool,
    pub(super) policy: bool,
    /// The policy only allows reading.
    pub(super) limited: bool,
    pub(super) keys: Vec<Issued>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Issued {
    pub(super) key: Key,
    /// Whether IAM's reads show it.
    pub(super) seen: bool,
}

/// Everything outside the operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) claim: Option<Claim>,
    /// How many claims of the name there were.
    pub(super) born: Uid,
    pub(super) record: Option<Record>,
    pub(super) secret: Option<Secret>,
    pub(super) config_map: Option<Whose>,
    /// Sorted by name.
    pub(super) buckets: Vec<(BucketName, Whose)>,
    /// By the uid in their names.
    pub(super) users: [Option<User>; 2],
    pub(super) next_key: Key,
    /// The keys that were tried and worked.
    pub(super) worked: BTreeSet<Key>,
    /// Something that must never happen has happened.
    pub(super) harm: Option<&'static str>,
    /// Somebody deleted the claim's bucket, or its record, by hand.
    pub(super) bucket_taken_away: bool,
    /// The claim with this uid was restored from a backup: it names a record that is not its own.
    pub(super) restored: Option<Uid>,
    /// The bucket is kept when its claim is deleted.
    pub(super) kept: bool,
    /// Buckets that are not empty.
    pub(super) full: BTreeSet<BucketName>,
    /// The claims whose keys were published in a Secret, as far as the cluster can know.
    pub(super) published: BTreeSet<Uid>,
    pub(super) content: Content,
    /// The time of a scheduled deletion has come.
    pub(super) time_came: bool,
    /// Somebody removed the finalizer from a claim and deleted it.
    pub(super) stripped: bool,
}

impl World {
    /// Another claim of the name is created. The garbage collector has been there.
    pub(super) fn create_again(&mut self, created: Claim) {
        let uid = self.born;
        self.born += 1;
        self.claim = Some(Claim { uid, ..created });
        if matches!(self.secret, Some(Secret::Mine { uid: owner, .. }) if owner != uid) {
            self.secret = None;
        }
        if matches!(self.config_map, Some(Whose::Claim(owner)) if owner != uid) {
            self.config_map = None;
        }
    }

    pub(super) fn bucket(&self, name: BucketName) -> Option<Whose> {
        self.buckets.iter().find(|(known, _)| *known == name).map(|(_, whose)| *whose)
    }

    pub(super) fn put_bucket(&mut self, name: BucketName, whose: Whose) {
        self.buckets.push((name, whose));
        self.buckets.sort_by_key(|(name, _)| *name);
    }

    pub(super) fn drop_bucket(&mut self, name: BucketName) {
        self.buckets.retain(|(known, _)| *known != name);
        self.full.remove(&name);
    }

    /// Whether a bucket may be deleted with its content now.
    pub(super) fn may_empty(&self, record: &Record) -> bool {
        let is_its = self.record.is_none_or(|now| now.uid == record.uid);
        let in_time = match self.content {
            Content::Deleted => true,
            Content::DeletedLater => self.time_came,
            Content::Kept => false,
        };
        self.published.contains(&record.names) && is_its && in_time
    }

    /// An etcd snapshot is restored that was taken before the claim was bound. The store knows nothing of that.
    pub(super) fn rewind(&mut self) {
        let Some(record) = &mut self.record else { return };
        (record.credentials_published, record.status_is_bound) = (false, false);
        self.published.clear();
        (self.secret, self.config_map) = (None, None);
        self.change_claim(|claim| (claim.named, claim.bound, claim.ready) = (false, false, false));
    }

    /// The record that outlives the claim with this uid.
    fn released(&self, uid: Uid) -> Option<Release> {
        self.record.filter(|record| record.uid == uid).and_then(|record| record.release)
    }

    pub(super) fn user(&mut self, uid: Uid) -> &mut Option<User> {
        &mut self.users[usize::from(uid)]
    }

    /// Whether a key of the user of this name opens the bucket.
    pub(super) fn is_live(&self, name: Uid, key: Key) -> bool {
        let user = self.users[usize::from(name)].as_ref();
        user.is_some_and(|user| user.policy && user.keys.iter().any(|issued| issued.key == key))
    }

    /// Whether the store still has bucket and user of the claim in the backup.
    pub(super) fn previous_is_there(&self) -> bool {
        let user =
            self.users[0].as_ref().is_some_and(|user| user.policy && user.keys.iter().any(|issued| issued.key == 0));
        user && !self.buckets.is_empty()
    }

    /// Whether its record exists as well.
    pub(super) fn previous_is_intact(&self) -> bool {
        self.record.is_some_and(|record| record.uid == 0) && self.previous_is_there()
    }

    /// Reads of IAM show everything that was created.
    pub(super) fn time_passes(&mut self) {
        for user in self.users.iter_mut().flatten() {
            user.seen = true;
            user.keys.iter_mut().for_each(|issued| issued.seen = true);
        }
        if let Some(Secret::Mine { review: review @ Review::Later, .. }) = &mut self.secret {
            *review = Review::Due;
        }
    }

    /// Whether a key exists that IAM's reads do not show yet.
    pub(super) fn hides(&self, uid: Uid, key: Key) -> bool {
        let user = self.users[usize::from(uid)].as_ref();
        user.is_some_and(|user| user.keys.iter().any(|issued| issued.key == key && !issued.seen))
    }

    /// What is left of a claim with this uid, except a bucket to keep.
    pub(super) fn leftover(&self, uid: Uid) -> Option<&'static str> {
        let mine = |whose: &Whose| *whose == Whose::Claim(uid);
        let is_released = self.released(uid).is_some();
        if self.users.iter().flatten().any(|user| user.tag == uid) {
            return Some("a user");
        }
        if !self.kept && !is_released && self.buckets.iter().any(|(_, whose)| mine(whose)) {
            return Some("a bucket");
        }
        if !is_released && self.record.is_some_and(|record| record.uid == uid) {
            return Some("a record");
        }
        if matches!(self.secret, Some(Secret::Mine { uid: owner, .. }) if owner == uid) {
            return Some("a Secret");
        }
        if self.config_map.as_ref().is_some_and(mine) {
            return Some("a ConfigMap");
        }
        None
    }

    /// Writes the claim.
    pub(super) fn change_claim(&mut self, change: impl FnOnce(&mut Claim)) {
        if let Some(claim) = &mut self.claim {
            let before = *claim;
            change(claim);
            // A write that changes nothing makes no new version.
            if *claim != before {
                claim.version += 1;
            }
        }
    }
}

/// Stands for a deleted claim.
pub(super) const NO_CLAIM: Claim = Claim {
    uid: 0,
    version: 0,
    asks: Asks::Prefix,
    deleting: false,
    finalizer: false,
    named: false,
    bound: false,
    ready: false,
    rotation: 0,
    limited: false,
    undo: None,
};

/// UID of the claim in the backup.
pub(super) const PREVIOUS: Uid = 0;

/// The record of a bound claim in a backup, which leaves out its status.
pub(super) fn previous_record(asks: Asks) -> Record {
    Record {
        uid: PREVIOUS,
        names: PREVIOUS,
        asks,
        credentials_published: true,
        status_is_bound: false,
        adopt_requested: false,
        limited: false,
        changes: false,
        release: None,
    }
}
