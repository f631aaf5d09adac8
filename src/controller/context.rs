//! What every reconcile shares: the client, the provisioner, the caches, the memory.

use std::collections::HashSet;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, ResourceExt as _};

use super::Options;
use super::claim::{Claim, Guarded};
use super::keys::{self, KeyNotes};
use super::memory::Memory;
use super::outputs::controlled_by;
use super::owner_secrets::OwnerSecrets;
use super::record::{self, Stored};
use crate::api::{ObjectBucket, wire};
use crate::provisioner::{ClaimId, Record, SecretRef};

/// Shared by all reconciles.
pub(crate) struct Context<P> {
    pub(crate) client: Client,
    pub(crate) provisioner: P,
    pub(crate) options: Options,
    /// The value of our label.
    pub(crate) label: String,
    pub(crate) caches: Caches,
    /// Completes when the caches can be relied on.
    pub(crate) ready: Readiness,
    pub(crate) memory: Memory,
    /// Bounds how many large buckets are emptied at once.
    pub(crate) large_removals: tokio::sync::Semaphore,
    pub(crate) owner_secrets: OwnerSecrets,
}

type Output<T> = Arc<PartialObjectMeta<T>>;

/// See [`Caches::readiness`].
pub(crate) type Readiness = Shared<BoxFuture<'static, ()>>;

/// Local copies of what the operator watches. They save reads; what is undone or made rests on fresh ones.
pub(crate) struct Caches {
    pub(crate) claims: Store<Guarded>,
    pub(crate) records: Store<DeserializeGuard<ObjectBucket>>,
    pub(crate) classes: Store<StorageClass>,
    pub(crate) secrets: Store<PartialObjectMeta<Secret>>,
    pub(crate) config_maps: Store<PartialObjectMeta<ConfigMap>>,
}

impl Caches {
    /// A future that completes when every cache holds a first full list. Shared, because a store wakes
    /// only the last of those that wait for it.
    pub(crate) fn readiness(&self) -> Readiness {
        let (records, classes) = (self.records.clone(), self.classes.clone());
        let (secrets, config_maps) = (self.secrets.clone(), self.config_maps.clone());
        async move {
            // The only error is a writer that is gone, which is the end of the operator anyway.
            let _ = tokio::join!(
                records.wait_until_ready(),
                classes.wait_until_ready(),
                secrets.wait_until_ready(),
                config_maps.wait_until_ready(),
            );
        }
        .boxed()
        .shared()
    }

    /// The claim's record, if the cache has it and `label` says that it is ours.
    pub(crate) fn record(&self, claim: &Claim, label: &str) -> Option<Stored> {
        let (plain, unique) = record::names(&claim.id);
        let at = |name: String| {
            let guard = self.records.get(&ObjectRef::new(&name))?;
            let object = guard.0.as_ref().ok()?;
            let ours = record::is_of(object, claim)
                && object.labels().get(wire::PROVISIONER_LABEL).map(String::as_str) == Some(label);
            ours.then(|| record::stored(object, &claim.id).ok()).flatten()
        };
        plain.and_then(at).or_else(|| at(unique))
    }

    /// Secret and ConfigMap of the claim's name, without their data.
    pub(crate) fn outputs(&self, claim: &ClaimId) -> (Option<Output<Secret>>, Option<Output<ConfigMap>>) {
        let ClaimId { namespace, name, .. } = claim;
        (
            self.secrets.get(&ObjectRef::new(name).within(namespace)),
            self.config_maps.get(&ObjectRef::new(name).within(namespace)),
        )
    }

    /// What the claim's Secret notes of its keys.
    pub(crate) fn key_notes(&self, claim: &ClaimId) -> KeyNotes {
        let (secret, _) = self.outputs(claim);
        KeyNotes::read(secret.as_ref().and_then(|secret| secret.metadata.annotations.as_ref()))
    }

    /// Uids of the claims that share the owner's keys in this Secret.
    pub(crate) fn sharing(&self, secret: &SecretRef) -> HashSet<String> {
        let shares = |record: &Record| record.plan.user.is_none() && record.plan.owner_secret.as_ref() == Some(secret);
        let records = self.records.state();
        let read = records.iter().filter_map(|guard| record::from_object(guard.0.as_ref().ok()?).ok());
        read.filter(shares).map(|record| record.claim.uid).collect()
    }

    /// Whether both outputs exist, are the claim's, and were not edited since they were written.
    pub(crate) fn outputs_stand(&self, claim: &ClaimId) -> bool {
        let (secret, config_map) = self.outputs(claim);
        secret.is_some_and(|s| controlled_by(&s.metadata, &claim.uid) && !drifted(&s.metadata))
            && config_map.is_some_and(|c| controlled_by(&c.metadata, &claim.uid) && !drifted(&c.metadata))
    }
}

/// Annotation that the caches alone carry: see [`note_drift`].
const DRIFTED: &str = "cache.aws-s3.io/drifted";

fn drifted(metadata: &kube::core::ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|a| a.contains_key(DRIFTED))
}

/// Reduces an output's metadata to what the caches need, noting whether the entries `keys` of its data are
/// still as the operator wrote them.
///
/// Outputs are watched without their data. Whose the value of an entry is shows in `managedFields`: the API
/// server takes an entry from its writer when somebody else changes or removes it.
pub(crate) fn note_drift(metadata: &mut kube::core::ObjectMeta, keys: &[&str]) {
    let stands = wrote(metadata, keys);
    metadata.managed_fields = None;
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| keys::ANNOTATIONS.contains(&key.as_str()));
    if !stands {
        annotations.insert(DRIFTED.to_owned(), String::new());
    }
}

/// Whether the entries `keys` of an output's data are as the operator wrote them.
pub(crate) fn wrote(metadata: &kube::core::ObjectMeta, keys: &[&str]) -> bool {
    let ours = |key: &str| {
        metadata
            .managed_fields
            .iter()
            .flatten()
            .filter(|writer| writer.manager.as_deref() == Some(super::error::FIELD_MANAGER))
            .filter_map(|writer| writer.fields_v1.as_ref()?.0.get("f:data"))
            .any(|data| data.get(format!("f:{key}")).is_some())
    };
    keys.iter().all(|key| ours(key))
}

impl<P> Context<P> {
    /// Whether a claim that shares the owner's keys has those that the owner's Secret holds now, as far as the
    /// watch of that Secret says.
    pub(crate) fn shares_present_keys(&self, record: &Record, notes: &KeyNotes) -> bool {
        let Some(secret) = record.plan.owner_secret.as_ref().filter(|_| record.plan.user.is_none()) else {
            return true;
        };
        self.owner_secrets.watch(&self.client, secret);
        self.owner_secrets.version(secret).is_none_or(|version| notes.shared_from.as_ref() == Some(&version))
    }

    pub(crate) fn claims_in(&self, namespace: &str) -> Api<Guarded> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn secrets_in(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn config_maps_in(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn record_writer(&self) -> Api<ObjectBucket> {
        Api::all(self.client.clone())
    }

    pub(crate) fn records(&self) -> Api<DeserializeGuard<ObjectBucket>> {
        Api::all(self.client.clone())
    }
}
