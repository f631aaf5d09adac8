//! Local copies of what the operator watches.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use tokio::sync::watch;

use crate::api::{ObjectBucket, wire};
use crate::decide::claim::{Claim, Guarded};
use crate::decide::class::{Class, ClassLookup};
use crate::decide::keys::KeyNotes;
use crate::decide::metadata::{self, FieldManager};
use crate::decide::record::Stored;
use crate::decide::{codec, lookup, output_metadata, record, store_outputs};
use crate::state::cache::Cache;
use crate::state::records::Records;
use crate::store::{ClaimId, Record, SecretRef};
use operator_runtime::engine::hash;

/// Local copies of what the operator watches. They save reads; everything that is created or removed depends on fresh
/// reads.
pub(crate) struct Caches {
    /// The one namespace whose claims are watched; `None` for all.
    scope: Option<String>,
    pub(crate) claims: Store<Guarded>,
    /// The store of claims itself notifies only the last one that waits for that.
    claims_listed: watch::Sender<bool>,
    pub(crate) records: Records,
    pub(crate) classes: Cache<StorageClass>,
    pub(crate) secrets: Cache<OutputFacts>,
    pub(crate) config_maps: Cache<OutputFacts>,
}

impl Caches {
    pub(crate) fn of(claims: Store<Guarded>, scope: Option<String>) -> Self {
        Self {
            scope,
            claims,
            claims_listed: watch::Sender::new(false),
            records: Records::default(),
            classes: Cache::default(),
            secrets: Cache::default(),
            config_maps: Cache::default(),
        }
    }

    /// The list of claims is complete.
    pub(crate) fn listed_claims(&self) {
        self.claims_listed.send_replace(true);
    }

    /// Completes when all first lists are complete.
    pub(crate) async fn filled(&self) {
        let claims = async {
            // Cannot fail, because `self` has the sender.
            let _ = self.claims_listed.subscribe().wait_for(|listed| *listed).await;
        };
        tokio::join!(
            claims,
            self.records.filled(),
            self.classes.filled(),
            self.secrets.filled(),
            self.config_maps.filled()
        );
    }

    /// Whether all first lists are complete.
    pub(crate) fn are_filled(&self) -> bool {
        *self.claims_listed.borrow()
            && self.records.is_filled()
            && self.classes.is_filled()
            && self.secrets.is_filled()
            && self.config_maps.is_filled()
    }

    /// The class of this name.
    pub(crate) fn class(&self, name: &str) -> ClassLookup {
        match self.classes.get(None, name) {
            Some(class) => ClassLookup::Found(Class::read(&class)),
            None => ClassLookup::Missing { name: name.to_owned() },
        }
    }

    /// The claim's record, if the cache has it and it is this provisioner's. `cluster`: UID of this cluster.
    pub(crate) fn record(&self, claim: &Claim, provisioner: &str, cluster: &str) -> Option<Stored> {
        let at = |name: String| {
            let object = self.records.object(&name).filter(|object| record::is_ours(object, provisioner))?;
            let is_claims = record::is_owned(&object, claim, cluster)
                || record::seems_owned(&object, claim) && !self.has_rival(claim, &object);
            is_claims.then(|| codec::read(&lookup::whole(object, claim)).ok()).flatten()
        };
        lookup::names(claim, self.records.irregular_of(&claim.id)).into_iter().find_map(at)
    }

    /// Whether a record that no longer names its claim may belong to another claim than this one: the record has that
    /// claim's default name, and is younger than the claim. Claims that are not watched count, because they are unknown.
    pub(crate) fn has_rival(&self, claim: &Claim, record: &ObjectBucket) -> bool {
        let name = record.name_any();
        lookup::namesakes(&name).any(|(namespace, name)| {
            let is_itself = (namespace, name) == (claim.id.namespace.as_str(), claim.id.name.as_str());
            if self.scope.as_deref().is_some_and(|scope| scope != namespace) {
                return true;
            }
            let shown = (!is_itself).then(|| self.claims.get(&ObjectRef::new(name).within(namespace))).flatten();
            shown.is_some_and(|rival| record::is_older(&Claim::read(&rival, ""), record))
        })
    }

    /// The notes on keys in the claim's Secret.
    pub(crate) fn key_notes(&self, claim: &ClaimId) -> KeyNotes {
        let secret = self.secrets.get(Some(&claim.namespace), &claim.name);
        secret.and_then(|secret| secret.notes.as_deref().cloned()).unwrap_or_default()
    }

    /// Since when the keys in a claim's Secret have been the claim's.
    pub(crate) fn key_since(&self, claim: &ObjectMeta, created: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let secret = self.secrets.get(claim.namespace.as_deref(), claim.name.as_deref()?)?;
        let is_claims = claim.uid.as_deref() == Some(&*secret.controller);
        secret.notes.as_ref().filter(|_| is_claims)?.since(created, now)
    }

    /// Uids of the claims that share the provisioning keys in this Secret.
    pub(crate) fn sharing(&self, secret: &SecretRef) -> HashSet<String> {
        let shares = |record: &Record| record.plan.user.is_none() && record.plan.owner.secret.as_ref() == Some(secret);
        let objects = self.records.objects();
        let read = objects.filter_map(|object| codec::from_object(&object).ok());
        read.map(|decoded| decoded.record).filter(shares).map(|record| record.claim.uid).collect()
    }

    /// Whether both outputs of a record's claim exist, are the claim's, and have not been edited by others. What the store
    /// added to the Secret does not count, because nothing could repair it. `extra`: a digest of the labels and annotations that
    /// the claim asks for.
    pub(crate) fn outputs_are_up_to_date(&self, record: &Record, extra: Option<&str>) -> bool {
        let Record { claim, plan, .. } = record;
        let url = plan.endpoint.url.iter().map(|_| wire::config::AWS_ENDPOINT_URL_S3);
        let mut more = plan.outputs.keys().map(String::as_str).chain(url);
        let is_up_to_date = |facts: &Arc<OutputFacts>, has_entries: bool| {
            facts.is_of(claim) && has_entries && facts.metadata.as_deref() == extra
        };
        let has_keys = |facts: &OutputFacts| match plan.service_account {
            Some(_) => facts.is_keyless,
            None => facts.up_to_date,
        };
        let secret = self.secrets.get(Some(&claim.namespace), &claim.name);
        let config_map = self.config_maps.get(Some(&claim.namespace), &claim.name);
        secret.is_some_and(|facts| is_up_to_date(&facts, has_keys(&facts)))
            && config_map.is_some_and(|facts| is_up_to_date(&facts, facts.up_to_date) && more.all(|key| facts.has(key)))
    }

    /// The uids of Secret and ConfigMap, if the caches show that they are the claim's.
    pub(crate) fn output_uids(&self, claim: &ClaimId) -> (Option<String>, Option<String>) {
        let uid = |facts: Option<Arc<OutputFacts>>| {
            facts.filter(|facts| facts.is_of(claim)).and_then(|facts| Some(facts.uid.as_deref()?.to_owned()))
        };
        let ClaimId { namespace, name, .. } = claim;
        (uid(self.secrets.get(Some(namespace), name)), uid(self.config_maps.get(Some(namespace), name)))
    }
}

/// Most entries of a ConfigMap that are remembered: those of the store, and the endpoint's URL.
const MORE_MAX: usize = store_outputs::COUNT_MAX + 1;

/// What is cached of a Secret or ConfigMap. They are watched without their data.
#[derive(Debug)]
pub(crate) struct OutputFacts {
    uid: Option<Box<str>>,
    /// Uid of its controller.
    controller: Box<str>,
    /// Nobody else has changed the entries that all claims have.
    up_to_date: bool,
    /// A Secret has none of the entries for keys.
    is_keyless: bool,
    /// The other entries of a ConfigMap that nobody else has changed: hashes of their keys, sorted. `None` if there are
    /// more than a record can name: a tenant wrote them in the operator's name.
    more: Option<Box<[u64]>>,
    /// The digest of what its claim asked for in labels and annotations.
    metadata: Option<Box<str>>,
    /// Its notes on keys.
    notes: Option<Box<KeyNotes>>,
}

impl OutputFacts {
    /// `None` if no claim controls it, because anybody can create thousands of Secrets with our label.
    pub(crate) fn of_secret(manager: &FieldManager, secret: &PartialObjectMeta<Secret>) -> Option<Self> {
        let facts = Self::of(manager, &secret.metadata, &wire::secret::ALL)?;
        let notes = KeyNotes::read(secret.metadata.annotations.as_ref());
        let keys = wire::secret::ALL.into_iter().chain([wire::secret::SESSION_TOKEN]);
        let is_keyless = !keys.into_iter().any(|key| metadata::has_entry(&secret.metadata, key));
        Some(Self { notes: Some(Box::new(notes)), is_keyless, ..facts })
    }

    /// `None` if no claim controls it.
    pub(crate) fn of_config_map(manager: &FieldManager, config_map: &PartialObjectMeta<ConfigMap>) -> Option<Self> {
        let facts = Self::of(manager, &config_map.metadata, &wire::config::ALL)?;
        let more = manager.written(&config_map.metadata).filter(|key| !wire::config::ALL.contains(key)).map(hash);
        let more: BTreeSet<_> = more.collect();
        Some(Self { more: (more.len() <= MORE_MAX).then(|| more.into_iter().collect()), ..facts })
    }

    fn of(manager: &FieldManager, metadata: &ObjectMeta, keys: &[&str]) -> Option<Self> {
        Some(Self {
            uid: metadata.uid.as_deref().map(Box::from),
            controller: Box::from(controlling_claim(metadata)?),
            up_to_date: manager.wrote(metadata, keys),
            is_keyless: false,
            more: None,
            metadata: output_metadata::digest_of(metadata).map(cut),
            notes: None,
        })
    }

    /// Whether nobody else has changed this entry. If it is unknown, the entry counts as unchanged: otherwise the claim
    /// would never be in sync, and nothing would wake it for its upkeep, such as the replacement of its keys.
    fn has(&self, key: &str) -> bool {
        self.more.as_ref().is_none_or(|more| more.binary_search(&hash(key)).is_ok())
    }

    fn is_of(&self, claim: &ClaimId) -> bool {
        *self.controller == *claim.uid
    }
}

/// Somebody may have edited it.
fn cut(digest: &str) -> Box<str> {
    digest.chars().take(16).collect::<String>().into_boxed_str()
}

/// Uid of the claim that controls an output. Outputs have the name of their claim; the garbage collector deletes objects
/// whose controller does not exist.
fn controlling_claim(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let is_claim = owner.kind == wire::CLAIM_KIND && Some(&owner.name) == metadata.name.as_ref();
    is_claim.then_some(owner.uid.as_str())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// Of a ConfigMap with these entries of the operator, as two kinds of write record them.
    fn facts(keys: &[&str]) -> OutputFacts {
        let data: serde_json::Map<_, _> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
        let config_map = serde_json::from_value(json!({ "metadata": {
            "name": "photos",
            "ownerReferences": [
                { "apiVersion": "a", "kind": "ObjectBucketClaim", "name": "photos", "uid": "1", "controller": true },
            ],
            "managedFields": [
                { "manager": "a-provisioner", "operation": "Apply", "fieldsV1": { "f:data": data } },
                { "manager": "a-provisioner", "operation": "Update", "fieldsV1": { "f:data": data } },
                { "manager": "somebody", "fieldsV1": { "f:data": { "f:FORMAT": {} } } },
            ],
        }}));
        OutputFacts::of_config_map(&FieldManager::new("a-provisioner"), &config_map.unwrap()).unwrap()
    }

    #[test]
    fn a_large_config_map_takes_no_memory_and_stays_in_sync() {
        let keys: Vec<_> = (0..MORE_MAX).map(|n| format!("KEY_{n}")).collect();
        let mut keys: Vec<_> = keys.iter().map(String::as_str).chain(wire::config::ALL).collect();
        let most = facts(&keys);
        assert_eq!(most.more.as_ref().unwrap().len(), MORE_MAX);
        assert!(most.up_to_date && most.has("KEY_0") && !most.has("KEY_X"));
        keys.push("ONE_MORE");
        let filled = facts(&keys);
        assert!(filled.up_to_date && filled.more.is_none() && filled.has("KEY_0"));
    }

    #[test]
    fn an_edited_entry_of_the_store_is_noticed() {
        let ours = [&wire::config::ALL[..], &["CA_BUNDLE", "FORMAT"]].concat();
        assert!(facts(&ours).up_to_date && facts(&ours).has("CA_BUNDLE") && facts(&ours).has("FORMAT"));
        let edited = facts(&ours[..ours.len() - 1]);
        assert!(edited.up_to_date && edited.has("CA_BUNDLE") && !edited.has("FORMAT"));
    }
}
