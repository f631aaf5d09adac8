//! The cache of ObjectBuckets, with an index by bucket and by claim.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use kube::ResourceExt as _;
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;

use crate::api::{ClaimReference, Guard, ObjectBucket, Unreadable, wire};
use crate::decide::record::{self, Stored};
use crate::state::cache::Cache;
use crate::store::ClaimId;
use operator_runtime::engine::{hash, version_number};

/// An ObjectBucket in the cache.
#[derive(Debug)]
enum Packed {
    /// The needed part of its metadata, spec and status, as JSON, which is a quarter of the size of the object.
    Read { version: Option<u64>, text: Box<[u8]> },
    /// One that cannot be read still keeps its bucket from being deleted.
    Unreadable { name: Box<str>, bucket: Option<Box<str>> },
}

impl Packed {
    fn of(object: &ObjectBucket) -> Self {
        let ObjectMeta { name, uid, mut labels, creation_timestamp, deletion_timestamp, annotations, .. } =
            object.metadata.clone();
        // Others may be large.
        if let Some(labels) = &mut labels {
            labels.retain(|key, _| [wire::PROVISIONER_LABEL, wire::BUCKET_LABEL].contains(&key.as_str()));
        }
        let annotations = annotations.and_then(|mut all| all.remove_entry(wire::annotation::ORPHAN));
        let annotations = annotations.map(|annotation| [annotation].into());
        let metadata = ObjectMeta {
            name,
            uid,
            labels,
            creation_timestamp,
            deletion_timestamp,
            annotations,
            ..ObjectMeta::default()
        };
        let mut spec = object.spec.clone();
        // Our own records contain it twice. That it is there is enough.
        if record::names_its_claim(object) && record::has_claim_ref(object) {
            spec.claim_ref = Some(ClaimReference { name: Some(String::new()), ..ClaimReference::default() });
        }
        let text = serde_json::to_vec(&(metadata, spec, &object.status));
        Self::Read { version: version(object), text: text.unwrap_or_default().into_boxed_slice() }
    }

    fn of_guarded(guard: &Guard<ObjectBucket>) -> Self {
        let unreadable = |object: &Unreadable| Self::Unreadable {
            name: object.name().into_boxed_str(),
            bucket: object.bucket.as_deref().map(Box::from),
        };
        guard.0.as_ref().map_or_else(unreadable, Self::of)
    }

    /// Whether it is later than an object of the same name.
    fn is_later_than(&self, object: &ObjectBucket) -> bool {
        let Self::Read { version: Some(shown), .. } = self else { return false };
        version(object).is_some_and(|version| version < *shown)
    }

    /// The object, without most of its metadata; `None` if it cannot be read.
    fn object(&self) -> Option<ObjectBucket> {
        let Self::Read { text, .. } = self else { return None };
        let (metadata, spec, status) = serde_json::from_slice(text).ok()?;
        Some(ObjectBucket { metadata, spec, status })
    }

    /// Its name, if it names this bucket.
    fn naming(&self, wanted: &str) -> Option<String> {
        match self {
            Self::Read { .. } => {
                self.object().filter(|o| record::bucket(o) == Some(wanted)).map(|object| object.name_any())
            }
            Self::Unreadable { name, bucket } => (bucket.as_deref() == Some(wanted)).then(|| name.to_string()),
        }
    }
}

fn version(object: &ObjectBucket) -> Option<u64> {
    version_number(object.metadata.resource_version.as_deref())
}

/// All ObjectBuckets.
#[derive(Debug, Default)]
pub(crate) struct Records {
    cache: Cache<Packed>,
    index: Mutex<Index>,
    /// That of a list that is being read.
    listed: Mutex<Index>,
    /// The last ObjectBucket that was written has its claimRef. Some CRDs prune it.
    keeps_claim_ref: AtomicBool,
}

/// Look-ups by other things than the name of an ObjectBucket.
#[derive(Debug, Default)]
struct Index {
    /// How many records name a bucket, by the hash of its name. A collision only costs a search.
    per_bucket: HashMap<u64, u32>,
    /// The records that do not have their claim's default name, by namespace and name of the claim. There are few.
    irregular: HashMap<(String, String), Vec<Irregular>>,
}

/// A record that does not have its claim's default name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Irregular {
    name: String,
    claim_uid: Option<String>,
}

impl Records {
    /// Processes an event of the watch.
    pub(crate) fn apply(&self, event: &Event<Guard<ObjectBucket>>) {
        if let Event::Apply(Guard(Ok(object))) | Event::Delete(Guard(Ok(object))) = event
            && self.shows_later_than(object)
        {
            return;
        }
        let mut index = self.index.lock();
        let name = match event {
            Event::Apply(object) | Event::Delete(object) => Some(object.name_any()),
            Event::Init | Event::InitApply(_) | Event::InitDone => None,
        };
        if let Some(before) = name.and_then(|name| self.cache.get(None, &name)) {
            index.remove(&Keys::of_packed(&before));
        }
        self.cache.apply(event, |record| Some(Packed::of_guarded(record)));
        let mut listed = self.listed.lock();
        match event {
            Event::Apply(record) => index.add(Keys::of_guarded(record)),
            Event::Init => *listed = Index::default(),
            Event::InitApply(record) => listed.add(Keys::of_guarded(record)),
            Event::InitDone => *index = std::mem::take(&mut *listed),
            Event::Delete(_) => {}
        }
    }

    /// Adds what the operator has written, without waiting for the watch, because the next check whether a bucket is in
    /// use must see it.
    pub(crate) fn wrote(&self, object: &ObjectBucket) {
        self.apply(&Event::Apply(Guard(Ok(object.clone()))));
    }

    /// Whether a later version is shown: the watch may be behind what the operator has written, or ahead of it.
    fn shows_later_than(&self, object: &ObjectBucket) -> bool {
        self.cache.get(None, &object.name_any()).is_some_and(|shown| shown.is_later_than(object))
    }

    /// Takes note whether an ObjectBucket has the claimRef that was written into it.
    pub(crate) fn wrote_claim_ref(&self, present: bool) {
        self.keeps_claim_ref.store(present, Ordering::Relaxed);
    }

    /// Whether the claimRef of an ObjectBucket was removed by somebody, and can be written again.
    pub(crate) fn lacks_claim_ref(&self, stored: &Stored) -> bool {
        !stored.claim_ref && stored.by_us() && self.keeps_claim_ref.load(Ordering::Relaxed)
    }

    /// The ObjectBucket of this name.
    pub(crate) fn object(&self, name: &str) -> Option<ObjectBucket> {
        self.cache.get(None, name)?.object()
    }

    /// Whether the cache shows a record of this name, also one that cannot be read.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.cache.get(None, name).is_some()
    }

    /// All that can be read.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectBucket> {
        self.cache.all().into_iter().filter_map(|packed| packed.object())
    }

    /// The names of all records.
    pub(crate) fn names(&self) -> Vec<String> {
        self.cache.names()
    }

    /// The records of claims with this namespace and name that do not have the default name.
    pub(crate) fn irregular(&self, claim: &ClaimId) -> Vec<String> {
        self.irregular_if(claim, |_| true)
    }

    /// Those of them that do not name another claim as their own: a user can leave thousands of those, which must not cost
    /// anything for each change of a claim.
    pub(crate) fn irregular_of(&self, claim: &ClaimId) -> Vec<String> {
        self.irregular_if(claim, |record| record.claim_uid.as_ref().is_none_or(|uid| *uid == claim.uid))
    }

    fn irregular_if(&self, claim: &ClaimId, include: impl Fn(&Irregular) -> bool) -> Vec<String> {
        let key = (claim.namespace.clone(), claim.name.clone());
        let index = self.index.lock();
        let records = index.irregular.get(&key).into_iter().flatten();
        records.filter(|record| include(record)).map(|record| record.name.clone()).collect()
    }

    /// The names of the records that name a bucket, but for this one. Mostly there are none, which costs no search.
    pub(crate) fn others_with_bucket(&self, bucket: &str, but: &str) -> Vec<String> {
        let itself = u32::from(self.cache.get(None, but).is_some_and(|packed| packed.naming(bucket).is_some()));
        if self.index.lock().per_bucket.get(&hash(bucket)).is_none_or(|count| *count <= itself) {
            return Vec::new();
        }
        self.cache.all().iter().filter_map(|packed| packed.naming(bucket)).filter(|name| name != but).collect()
    }

    /// Completes when the first list is complete.
    pub(crate) async fn filled(&self) {
        self.cache.filled().await;
    }

    pub(crate) fn is_filled(&self) -> bool {
        self.cache.is_filled()
    }
}

impl Index {
    fn add(&mut self, keys: Keys) {
        if let Some(bucket) = keys.bucket {
            *self.per_bucket.entry(bucket).or_default() += 1;
        }
        if let Some((claim, record)) = keys.irregular {
            self.irregular.entry(claim).or_default().push(record);
        }
    }

    fn remove(&mut self, keys: &Keys) {
        if let Some(bucket) = &keys.bucket
            && let Some(count) = self.per_bucket.get_mut(bucket)
        {
            *count -= 1;
            if *count == 0 {
                self.per_bucket.remove(bucket);
            }
        }
        if let Some((claim, record)) = &keys.irregular
            && let Some(names) = self.irregular.get_mut(claim)
        {
            names.retain(|known| known.name != record.name);
            if names.is_empty() {
                self.irregular.remove(claim);
            }
        }
    }
}

/// By what a record is looked up, beside its name.
struct Keys {
    bucket: Option<u64>,
    /// The claim of a record that does not have its claim's default name, and the record's name.
    irregular: Option<((String, String), Irregular)>,
}

impl Keys {
    fn of(object: &ObjectBucket) -> Self {
        Self { bucket: record::bucket(object).map(hash), irregular: irregular(object) }
    }

    fn of_guarded(record: &Guard<ObjectBucket>) -> Self {
        record.0.as_ref().map_or_else(|unreadable| Self::of_unreadable(unreadable.bucket.as_deref()), Self::of)
    }

    fn of_packed(packed: &Packed) -> Self {
        match packed {
            Packed::Read { .. } => packed.object().as_ref().map_or(Self::of_unreadable(None), Self::of),
            Packed::Unreadable { bucket, .. } => Self::of_unreadable(bucket.as_deref()),
        }
    }

    fn of_unreadable(bucket: Option<&str>) -> Self {
        Self { bucket: bucket.map(hash), irregular: None }
    }
}

/// The claim of a record that does not have its claim's default name, and the record's name.
fn irregular(object: &ObjectBucket) -> Option<((String, String), Irregular)> {
    let (namespace, claim) = record::claim_name(object)?;
    let name = object.metadata.name.clone()?;
    let id = ClaimId { namespace: namespace.to_owned(), name: claim.to_owned(), uid: String::new() };
    let claim_uid = record::claim_uid(object).map(str::to_owned);
    (record::names(&id).0.as_ref() != Some(&name)).then_some(((id.namespace, id.name), Irregular { name, claim_uid }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::decide::codec;
    use crate::decide::testing::record;
    use crate::store::{Plan, Record};

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
        let mut names = records.others_with_bucket(bucket, but);
        names.sort();
        names
    }

    #[test]
    fn others_that_name_a_bucket_are_found() {
        let records = Records::default();
        apply(&records, Event::Init);
        apply(&records, Event::InitApply(object("a", "shared")));
        apply(&records, Event::InitApply(object("b", "own")));
        apply(&records, Event::InitDone);
        assert!(others(&records, "shared", "a").is_empty());
        // The asking record may have been deleted.
        assert_eq!(others(&records, "shared", "gone"), ["a"]);
        records.wrote(&object("c", "shared"));
        apply(&records, Event::Apply(object("c", "shared")));
        assert_eq!(others(&records, "shared", "a"), ["c"]);
        apply(&records, Event::Apply(object("a", "other")));
        apply(&records, Event::Apply(object("d", "shared")));
        assert_eq!(others(&records, "shared", "c"), ["d"]);
        apply(&records, Event::Delete(object("d", "shared")));
        assert!(others(&records, "shared", "c").is_empty());
        assert!(records.index.lock().per_bucket.values().all(|count| *count == 1), "nothing is left over");
    }

    #[test]
    fn a_watch_that_is_behind_sets_nothing_back() {
        let at = |version: &str, bucket: &str| {
            let mut object = object("a", bucket);
            object.metadata.resource_version = Some(version.to_owned());
            object
        };
        let records = Records::default();
        records.wrote(&at("7", "second"));
        apply(&records, Event::Apply(at("5", "first")));
        apply(&records, Event::Delete(at("6", "first")));
        assert_eq!(others(&records, "second", "b"), ["a"]);
        apply(&records, Event::Apply(at("8", "third")));
        assert_eq!((others(&records, "third", "b").len(), others(&records, "second", "b").len()), (1, 0));
        apply(&records, Event::Delete(at("9", "third")));
        assert!(others(&records, "third", "b").is_empty());
    }

    #[test]
    fn a_record_that_cannot_be_read_still_names_its_bucket() {
        let unreadable = |name: &str, bucket: serde_json::Value| {
            let object = json!({ "metadata": { "name": name }, "spec": { "endpoint": { "bucketName": bucket, "bucketPort": "x" } } });
            let guard: Guard<ObjectBucket> = serde_json::from_value(object).unwrap();
            assert!(guard.0.is_err());
            guard
        };
        let records = Records::default();
        records.apply(&Event::Init);
        records.apply(&Event::InitApply(unreadable("a", json!("shared"))));
        apply(&records, Event::InitDone);
        apply(&records, Event::Apply(object("b", "shared")));
        assert_eq!(others(&records, "shared", "b"), ["a"]);
        records.apply(&Event::Apply(unreadable("b", json!("shared"))));
        records.apply(&Event::Apply(unreadable("c", json!({}))));
        assert_eq!(others(&records, "shared", "c"), ["a", "b"]);
        records.apply(&Event::Delete(unreadable("a", json!("shared"))));
        assert!(others(&records, "shared", "b").is_empty());
        apply(&records, Event::Apply(object("b", "other")));
        assert_eq!(others(&records, "other", "c"), ["b"]);
        assert!(records.index.lock().per_bucket.values().all(|count| *count == 1), "nothing is left over");
    }

    #[test]
    fn records_with_another_name_are_found_by_their_claim() {
        let records = Records::default();
        let claim = record().claim;
        apply(&records, Event::Apply(object("obc-shop-photos", "one")));
        apply(&records, Event::Apply(object("obc-shop-photos-1234", "two")));
        assert_eq!(records.irregular(&claim), ["obc-shop-photos-1234"]);
        assert_eq!(records.irregular_of(&claim), ["obc-shop-photos-1234"]);
        let next = ClaimId { uid: "next".to_owned(), ..claim.clone() };
        assert_eq!(records.irregular(&next), ["obc-shop-photos-1234"]);
        assert!(records.irregular_of(&next).is_empty(), "it is the previous claim's");
        apply(&records, Event::Delete(object("obc-shop-photos-1234", "two")));
        assert!(records.irregular(&claim).is_empty());
    }
}
