//! What ObjectBuckets name. Pure.

use std::collections::{HashMap, HashSet};

use super::orphan::Orphan;
use crate::api::{Guard, ObjectBucket, wire};
use crate::decide::record;
use crate::store::{ResourceKind, TaggedResource};

/// What all ObjectBuckets of the cluster name, also those of other provisioners or without a label: what one of them
/// names is not an orphan.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    buckets: HashSet<String>,
    users: HashSet<String>,
    /// Name of the ObjectBucket by the uid of its claim, and of its previous claims.
    uids: HashMap<String, String>,
    /// Names of those that cannot be read: what they name is not known.
    pub(crate) unreadable: Vec<String>,
}

impl Recorded {
    pub(crate) fn add(&mut self, object: &ObjectBucket) {
        let state = |key: &str| record::state(object, key);
        let bucket = record::bucket(object).map(str::to_owned);
        self.buckets.extend(bucket);
        self.users.extend(state(wire::state::USER_NAME).map(str::to_owned));
        let previous = state(wire::state::FORMER_CLAIM_UIDS).into_iter().flat_map(|uids| uids.split(','));
        for uid in record::claim_uid(object).into_iter().chain(previous) {
            self.uids.insert(uid.to_owned(), record::name(object));
        }
    }

    /// As [`add`](Self::add), also what cannot be read.
    pub(crate) fn add_guarded(&mut self, guard: Guard<ObjectBucket>) -> Option<ObjectBucket> {
        match guard.0 {
            Ok(object) => {
                self.add(&object);
                Some(object)
            }
            Err(unreadable) => {
                self.unreadable.push(unreadable.name());
                None
            }
        }
    }

    /// Whether an ObjectBucket names the claim, the bucket or the user of an orphan, or may name them.
    pub(crate) fn may_name(&self, orphan: &Orphan) -> bool {
        !self.unreadable.is_empty()
            || self.uids.contains_key(&orphan.claim_uid)
            || orphan.bucket.as_ref().is_some_and(|bucket| self.buckets.contains(bucket))
            || orphan.user.as_ref().is_some_and(|user| self.users.contains(user))
    }

    /// The ObjectBucket of the claim with this uid.
    pub(crate) fn of(&self, uid: &str) -> Option<&String> {
        self.uids.get(uid)
    }

    /// Whether an ObjectBucket names this bucket or user.
    pub(crate) fn names(&self, stock: &TaggedResource) -> bool {
        match stock.kind {
            ResourceKind::Bucket => self.buckets.contains(&stock.name),
            ResourceKind::User => self.users.contains(&stock.name),
        }
    }
}
