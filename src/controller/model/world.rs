//! The world of the model: a claim, a cluster and an account, each as small as the promises need.
//!
//! A write happens at once. Reads of IAM may miss what was just made (`seen`), and the operator's view of the
//! claim is a cache that may show any earlier version of it.

use std::collections::BTreeSet;

/// Incarnation of the claim: 0 for the first of its name, 1 for the one that is created after it.
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

/// A bucket by its name: those that are made from a prefix hold the claim's uid.
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

/// Whose a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Whose {
    Claim(Uid),
    Foreign,
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
    /// How often its user asked for other keys.
    pub(super) rotation: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) uid: Uid,
    pub(super) asks: Asks,
    pub(super) bound: bool,
}

/// The claim's Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Secret {
    Foreign,
    Mine {
        uid: Uid,
        key: Key,
        /// The request for rotation that the key answers.
        answers: u8,
        retiring: Option<Key>,
        review: Review,
    },
}

/// Whether keys that nobody has are to be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Review {
    No,
    /// Once IAM shows all that was made.
    Later,
    Due,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct User {
    /// Whether IAM's reads show it.
    pub(super) seen: bool,
    pub(super) policy: bool,
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
    /// By uid.
    pub(super) users: [Option<User>; 2],
    pub(super) next_key: Key,
    /// The keys that were tried and worked.
    pub(super) worked: BTreeSet<Key>,
    /// What happened to things of others, or must never happen; empty for good.
    pub(super) harm: Option<&'static str>,
    /// Somebody deleted the claim's bucket, or its record, by hand.
    pub(super) bucket_taken_away: bool,
    /// A bucket that was handed over, and is kept though its claim goes.
    pub(super) kept: bool,
}

impl World {
    pub(super) fn bucket(&self, name: BucketName) -> Option<Whose> {
        self.buckets.iter().find(|(known, _)| *known == name).map(|(_, whose)| *whose)
    }

    pub(super) fn put_bucket(&mut self, name: BucketName, whose: Whose) {
        self.buckets.push((name, whose));
        self.buckets.sort_by_key(|(name, _)| *name);
    }

    pub(super) fn drop_bucket(&mut self, name: BucketName) {
        self.buckets.retain(|(known, _)| *known != name);
    }

    pub(super) fn user(&mut self, uid: Uid) -> &mut Option<User> {
        &mut self.users[usize::from(uid)]
    }

    pub(super) fn is_live(&self, uid: Uid, key: Key) -> bool {
        let user = self.users[usize::from(uid)].as_ref();
        user.is_some_and(|user| user.policy && user.keys.iter().any(|issued| issued.key == key))
    }

    /// IAM's reads show all that was made.
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

    /// Whether something that was made for a claim of this uid is left, save a bucket that is to stay.
    pub(super) fn leftover(&self, uid: Uid) -> Option<&'static str> {
        let mine = |whose: &Whose| *whose == Whose::Claim(uid);
        if self.users[usize::from(uid)].is_some() {
            return Some("a user");
        }
        if !self.kept && self.buckets.iter().any(|(_, whose)| mine(whose)) {
            return Some("a bucket");
        }
        if self.record.is_some_and(|record| record.uid == uid) {
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
            // The API server counts no write that changes nothing.
            if *claim != before {
                claim.version += 1;
            }
        }
    }
}
