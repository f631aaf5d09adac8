//! Local copies of what the operator watches.

use std::collections::HashSet;
use std::sync::Arc;

use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt as _;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};

use crate::api::{ObjectBucket, wire};
use crate::controller::decide::claim::{Claim, Guarded};
use crate::controller::decide::class::{Class, ClassLookup};
use crate::controller::decide::keys::KeyNotes;
use crate::controller::decide::metadata::wrote;
use crate::controller::decide::record::{Relation, Stored};
use crate::controller::decide::{codec, lookup, record};
use crate::controller::state::cache::Cache;
use crate::controller::state::records::Records;
use crate::provisioner::{ClaimId, Record, SecretRef};

/// Local copies of what the operator watches. They save reads; what is undone or made rests on fresh ones.
pub(crate) struct Caches {
    /// The one namespace whose claims are watched; `None` for all.
    scope: Option<String>,
    pub(crate) claims: Store<Guarded>,
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
            records: Records::default(),
            classes: Cache::default(),
            secrets: Cache::default(),
            config_maps: Cache::default(),
        }
    }

    /// Completes when every cache but that of the claims, which kube's controller waits for, holds a first full
    /// list.
    pub(crate) async fn filled(&self) {
        tokio::join!(self.records.filled(), self.classes.filled(), self.secrets.filled(), self.config_maps.filled());
    }

    /// Whether every cache holds a first full list.
    pub(crate) fn are_filled(&self) -> bool {
        self.records.is_filled()
            && self.classes.is_filled()
            && self.secrets.is_filled()
            && self.config_maps.is_filled()
            && self.claims.wait_until_ready().now_or_never().is_some()
    }

    /// The class of this name.
    pub(crate) fn class(&self, name: &str) -> ClassLookup {
        match self.classes.get(None, name) {
            Some(class) => ClassLookup::Found(Class::read(&class)),
            None => ClassLookup::Missing { name: name.to_owned() },
        }
    }

    /// The claim's record, if the cache has it and it is this provisioner's. `cluster`: UID of this one.
    pub(crate) fn record(&self, claim: &Claim, provisioner: &str, cluster: &str) -> Option<Stored> {
        let at = |name: String| {
            let object = self.records.object(&name).filter(|object| record::is_ours(object, provisioner))?;
            let whole = match record::relation(&object, claim, cluster) {
                Relation::Mine if record::claim_name(&object).is_some() => object,
                Relation::Mine => codec::naming(&object, &claim.id),
                Relation::Fits if !self.has_rival(claim, &object) => codec::naming(&object, &claim.id),
                Relation::Fits | Relation::Former | Relation::Other => return None,
            };
            codec::read(&whole).ok()
        };
        lookup::names(claim, self.records.irregular(&claim.id)).into_iter().find_map(at)
    }

    /// Whether another claim than this one may be the one that a record was made for, which does not say so any more:
    /// the record has its name, and it stood before the record was written. Nobody knows of a claim that is not watched.
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

    /// What the claim's Secret notes of its keys.
    pub(crate) fn key_notes(&self, claim: &ClaimId) -> KeyNotes {
        let secret = self.secrets.get(Some(&claim.namespace), &claim.name);
        secret.and_then(|secret| secret.notes.as_deref().cloned()).unwrap_or_default()
    }

    /// Uids of the claims that share the owner's keys in this Secret.
    pub(crate) fn sharing(&self, secret: &SecretRef) -> HashSet<String> {
        let shares = |record: &Record| record.plan.user.is_none() && record.plan.owner_secret.as_ref() == Some(secret);
        let records = self.records.all();
        let read = records.iter().filter_map(|facts| codec::from_object(&facts.object()?).ok());
        read.map(|(_, record)| record).filter(shares).map(|record| record.claim.uid).collect()
    }

    /// Whether both outputs exist, are the claim's, and were not edited since they were written.
    pub(crate) fn outputs_are_up_to_date(&self, claim: &ClaimId) -> bool {
        let is_up_to_date =
            |facts: Option<Arc<OutputFacts>>| facts.is_some_and(|facts| facts.is_of(claim) && facts.up_to_date);
        is_up_to_date(self.secrets.get(Some(&claim.namespace), &claim.name))
            && is_up_to_date(self.config_maps.get(Some(&claim.namespace), &claim.name))
    }

    /// The uids of Secret and ConfigMap, as far as they are shown to be the claim's.
    pub(crate) fn output_uids(&self, claim: &ClaimId) -> (Option<String>, Option<String>) {
        let uid = |facts: Option<Arc<OutputFacts>>| {
            facts.filter(|facts| facts.is_of(claim)).and_then(|facts| Some(facts.uid.as_deref()?.to_owned()))
        };
        let ClaimId { namespace, name, .. } = claim;
        (uid(self.secrets.get(Some(namespace), name)), uid(self.config_maps.get(Some(namespace), name)))
    }
}

/// What is kept of a Secret or ConfigMap. They are watched without their data.
#[derive(Debug)]
pub(crate) struct OutputFacts {
    uid: Option<Box<str>>,
    /// Uid of what controls it.
    controller: Box<str>,
    /// Its entries are as the operator wrote them.
    up_to_date: bool,
    /// What it notes of keys.
    notes: Option<Box<KeyNotes>>,
}

impl OutputFacts {
    /// `None` if no claim controls it: anybody may create Secrets with our label, thousands of them.
    pub(crate) fn of_secret(secret: &PartialObjectMeta<Secret>) -> Option<Self> {
        let facts = Self::of(&secret.metadata, &wire::secret::ALL)?;
        let notes = KeyNotes::read(secret.metadata.annotations.as_ref());
        Some(Self { notes: Some(Box::new(notes)), ..facts })
    }

    /// `None` if no claim controls it.
    pub(crate) fn of_config_map(config_map: &PartialObjectMeta<ConfigMap>) -> Option<Self> {
        Self::of(&config_map.metadata, &wire::config::ALL)
    }

    fn of(metadata: &ObjectMeta, keys: &[&str]) -> Option<Self> {
        Some(Self {
            uid: metadata.uid.as_deref().map(Box::from),
            controller: Box::from(controlling_claim(metadata)?),
            up_to_date: wrote(metadata, keys),
            notes: None,
        })
    }

    fn is_of(&self, claim: &ClaimId) -> bool {
        *self.controller == *claim.uid
    }
}

/// Uid of the claim that controls an output. Outputs have their claim's name; and what names a claim that does not exist
/// is deleted by the garbage collector.
fn controlling_claim(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let is_claim = owner.kind == wire::CLAIM_KIND && Some(&owner.name) == metadata.name.as_ref();
    is_claim.then_some(owner.uid.as_str())
}
