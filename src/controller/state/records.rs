//! The cache of ObjectBuckets, with an index by bucket and by claim.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;

use crate::api::{Guard, ObjectBucket, wire};
use crate::controller::decide::record;
use crate::controller::state::cache::Cache;
use crate::provisioner::ClaimId;

/// A cached record: the needed part of its metadata, spec and status, as JSON, which is a quarter of the size of the
/// object.
#[derive(Debug)]
pub(crate) struct RecordFacts(Box<[u8]>);

impl RecordFacts {
    fn of(object: &ObjectBucket) -> Self {
        let ObjectMeta { name, uid, labels, creation_timestamp, annotations, .. } = object.metadata.clone();
        let annotations = annotations.and_then(|mut all| all.remove_entry(wire::annotation::ORPHAN));
        let annotations = annotations.map(|word| [word].into());
        let metadata = ObjectMeta { name, uid, labels, creation_timestamp, annotations, ..ObjectMeta::default() };
        let mut spec = object.spec.clone();
        // Our own records contain it twice.
        spec.claim_ref = spec.claim_ref.filter(|_| !record::names_its_claim(object));
        let text = serde_json::to_vec(&(metadata, spec, &object.status));
        Self(text.unwrap_or_default().into_boxed_slice())
    }

    fn of_guarded(guard: &Guard<ObjectBucket>) -> Self {
        guard.0.as_ref().map_or_else(|_unreadable| Self(Box::default()), Self::of)
    }

    /// The object, without most of its metadata; `None` if it cannot be read.
    pub(crate) fn object(&self) -> Option<ObjectBucket> {
        let (metadata, spec, status) = serde_json::from_slice(&self.0).ok()?;
        Some(ObjectBucket { metadata, spec, status })
    }
}

/// All ObjectBuckets.
#[derive(Debug, Default)]
pub(crate) struct Records {
    cache: Cache<RecordFacts>,
    index: Mutex<Index>,
    /// That of a list that is being read.
    listed: Mutex<Index>,
}

/// Look-ups by other things than the name of an ObjectBucket.
#[derive(Debug, Default)]
struct Index {
    /// How many records name a bucket, by the hash of its name. A collision only costs a search.
    per_bucket: HashMap<u64, u32>,
    /// The records that do not have their claim's default name, by namespace and name of the claim. There are few.
    irregular: HashMap<(String, String), Vec<String>>,
}

impl Records {
    /// Processes an event of the watch.
    pub(crate) fn apply(&self, event: &Event<Guard<ObjectBucket>>) {
        let mut index = self.lock();
        let name = match event {
            Event::Apply(object) | Event::Delete(object) => Some(object.name_any()),
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        if let Some(before) = name.as_ref().and_then(|name| self.object(name)) {
            index.remove(&before);
        }
        self.cache.apply(event, |record| Some(RecordFacts::of_guarded(record)));
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(Guard(Ok(object))) => index.add(object),
            Event::Init => *listed = Index::default(),
            Event::InitApply(Guard(Ok(object))) => listed.add(object),
            Event::InitDone => *index = std::mem::take(&mut *listed),
            Event::Apply(_) | Event::Delete(_) | Event::InitApply(_) => {}
        }
    }

    /// Adds what the operator has written, without waiting for the watch, because the next check whether a bucket is in
    /// use must see it.
    pub(crate) fn wrote(&self, object: &ObjectBucket) {
        self.apply(&Event::Apply(Guard(Ok(object.clone()))));
    }

    /// The ObjectBucket of this name.
    pub(crate) fn object(&self, name: &str) -> Option<ObjectBucket> {
        self.cache.get(None, name)?.object()
    }

    /// All records.
    pub(crate) fn all(&self) -> Vec<Arc<RecordFacts>> {
        self.cache.all()
    }

    /// The names of all records.
    pub(crate) fn names(&self) -> Vec<String> {
        self.cache.names()
    }

    /// The records of claims with this namespace and name that do not have the default name.
    pub(crate) fn irregular(&self, claim: &ClaimId) -> Vec<String> {
        let key = (claim.namespace.clone(), claim.name.clone());
        self.lock().irregular.get(&key).cloned().unwrap_or_default()
    }

    /// The records that name a bucket, except the one of this name. Mostly there are none, which costs no search.
    pub(crate) fn others_with_bucket(&self, bucket: &str, but: &str) -> Vec<ObjectBucket> {
        let names = |object: &ObjectBucket| bucket_of(object) == Some(bucket);
        let itself = u32::from(self.object(but).as_ref().is_some_and(names));
        if self.lock().per_bucket.get(&hash(bucket)).is_none_or(|count| *count <= itself) {
            return Vec::new();
        }
        let others = self.all().into_iter().filter_map(|facts| facts.object());
        others.filter(|object| names(object) && object.name_any() != but).collect()
    }

    /// Completes when the first list is complete.
    pub(crate) async fn filled(&self) {
        self.cache.filled().await;
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.cache.is_filled()
    }

    // A panic elsewhere leaves the maps consistent.
    fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    fn add(&mut self, object: &ObjectBucket) {
        if let Some(bucket) = bucket_of(object) {
            *self.per_bucket.entry(hash(bucket)).or_default() += 1;
        }
        if let Some((claim, record)) = irregular(object) {
            self.irregular.entry(claim).or_default().push(record);
        }
    }

    fn remove(&mut self, object: &ObjectBucket) {
        if let Some(key) = bucket_of(object).map(hash)
            && let Some(count) = self.per_bucket.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.per_bucket.remove(&key);
            }
        }
        if let Some((claim, record)) = irregular(object)
            && let Some(names) = self.irregular.get_mut(&claim)
        {
            names.retain(|name| *name != record);
            if names.is_empty() {
                self.irregular.remove(&claim);
            }
        }
    }
}

fn bucket_of(object: &ObjectBucket) -> Option<&str> {
    object.spec.endpoint.as_ref()?.bucket_name.as_deref()
}

/// The claim of a record that does not have its claim's default name, and the record's name.
fn irregular(object: &ObjectBucket) -> Option<((String, String), String)> {
    let (namespace, claim) = record::claim_name(object)?;
    let name = object.metadata.name.clone()?;
    let id = ClaimId { namespace: namespace.to_owned(), name: claim.to_owned(), uid: String::new() };
    (record::names(&id).0.as_ref() != Some(&name)).then_some(((id.namespace, id.name), name))
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::decide::codec;
    use crate::controller::decide::testing::record;
    use crate::provisioner::{Plan, Record};

    fn object(name: &str, bucket: &str) -> ObjectBucket {
        let record = record();
        let record = Record { plan: Plan { bucket: bucket.to_owned(), ..record.plan }, ..record };
        codec::to_object(&record, name, "ours")
    }

    fn apply(records: &Records, event: Event<ObjectBucket>) {
        let guard = |object| Guard(Ok(object));
        records.apply(&match event {
            Event::Init => Event::Init,
            Event::InitApply(object) => Event::InitApply(guard(object)),
            Event::InitDone => Event::InitDone,
            Event::Apply(object) => Event::Apply(guard(object)),
            Event::Delete(object) => Event::Delete(guard(object)),
        });
    }

    fn others(records: &Records, bucket: &str, but: &str) -> Vec<String> {
        let found = records.others_with_bucket(bucket, but);
        let mut names: Vec<_> = found.iter().map(|object| object.name_any()).collect();
        names.sort();
        names
    }

    #[test]
    fn others_that_name_a_bucket_are_found_as_long_as_there_are_some() {
        let records = Records::default();
        apply(&records, Event::Init);
        apply(&records, Event::InitApply(object("a", "shared")));
        apply(&records, Event::InitApply(object("b", "own")));
        apply(&records, Event::InitDone);
        assert!(others(&records, "shared", "a").is_empty());
        // The record of who asks may be gone.
        assert_eq!(others(&records, "shared", "gone"), ["a"]);
        records.wrote(&object("c", "shared"));
        apply(&records, Event::Apply(object("c", "shared")));
        assert_eq!(others(&records, "shared", "a"), ["c"]);
        apply(&records, Event::Apply(object("a", "other")));
        apply(&records, Event::Apply(object("d", "shared")));
        assert_eq!(others(&records, "shared", "c"), ["d"]);
        apply(&records, Event::Delete(object("d", "shared")));
        assert!(others(&records, "shared", "c").is_empty());
        assert!(records.lock().per_bucket.values().all(|count| *count == 1), "nothing is left over");
    }

    #[test]
    fn records_with_another_name_than_their_claims_are_known_by_the_claim() {
        let records = Records::default();
        let claim = record().claim;
        apply(&records, Event::Apply(object("obc-shop-photos", "one")));
        apply(&records, Event::Apply(object("obc-shop-photos-1234", "two")));
        assert_eq!(records.irregular(&claim), ["obc-shop-photos-1234"]);
        apply(&records, Event::Delete(object("obc-shop-photos-1234", "two")));
        assert!(records.irregular(&claim).is_empty());
    }
}
