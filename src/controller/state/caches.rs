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

/// Local copies of what the operator watches. They save reads; everything that is created or removed depends on fresh
/// reads.
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

    /// Completes when all first lists are complete, except that of the claims: kube's controller waits for it.
    pub(crate) async fn filled(&self) {
        tokio::join!(self.records.filled(), self.classes.filled(), self.secrets.filled(), self.config_maps.filled());
    }

    /// Whether all first lists are complete.
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

    /// The claim's record, if the cache has it and it is this provisioner's. `cluster`: UID of this cluster.
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

    /// Uids of the claims that share the owner's keys in this Secret.
    pub(crate) fn sharing(&self, secret: &SecretRef) -> HashSet<String> {
        let shares = |record: &Record| record.plan.user.is_none() && record.plan.owner_secret.as_ref() == Some(secret);
        let records = self.records.all();
        let read = records.iter().filter_map(|facts| codec::from_object(&facts.object()?).ok());
        read.map(|(_, record)| record).filter(shares).map(|record| record.claim.uid).collect()
    }

    /// Whether both outputs exist, are the claim's, and have not been edited by others.
    pub(crate) fn outputs_are_up_to_date(&self, claim: &ClaimId) -> bool {
        let is_up_to_date =
            |facts: Option<Arc<OutputFacts>>| facts.is_some_and(|facts| facts.is_of(claim) && facts.up_to_date);
        is_up_to_date(self.secrets.get(Some(&claim.namespace), &claim.name))
            && is_up_to_date(self.config_maps.get(Some(&claim.namespace), &claim.name))
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

/// What is cached of a Secret or ConfigMap. They are watched without their data.
#[derive(Debug)]
pub(crate) struct OutputFacts {
    uid: Option<Box<str>>,
    /// Uid of its controller.
    controller: Box<str>,
    /// Nobody else has changed its entries.
    up_to_date: bool,
    /// Its notes on keys.
    notes: Option<Box<KeyNotes>>,
}

impl OutputFacts {
    /// `None` if no claim controls it, because anybody can create thousands of Secrets with our label.
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

/// Uid of the claim that controls an output. Outputs have the name of their claim; the garbage collector deletes objects
/// whose controller does not exist.
fn controlling_claim(metadata: &ObjectMeta) -> Option<&str> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    let is_claim = owner.kind == wire::CLAIM_KIND && Some(&owner.name) == metadata.name.as_ref();
    is_claim.then_some(owner.uid.as_str())
}
