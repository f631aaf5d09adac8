//! What the commands know of the cluster: its claims, ObjectBuckets and StorageClasses, each listed once, and which
//! belong together. Whose a claim is, the functions of the operator decide.

use std::collections::{BTreeMap, HashMap, HashSet};

use k8s_openapi::api::storage::v1::StorageClass;

use super::session::{self, Session, refused};
use crate::api::{Guard, ObjectBucket, Unreadable, wire};
use crate::decide::claim::Claim;
use crate::decide::class::{Class, ClassLookup};
use crate::decide::ownership::{OwnershipFacts, RequiredAction, is_ours, required_action};
use crate::decide::record;
use crate::store::{ResourceKind, TaggedResource, previous_access};

/// The claims of the chosen namespaces, and all ObjectBuckets and StorageClasses.
pub(crate) struct View {
    pub(crate) provisioner: String,
    pub(crate) classes: Classes,
    pub(crate) claims: Vec<Claim>,
    pub(crate) records: Records,
}

impl View {
    /// Lists claims before ObjectBuckets.
    ///
    /// # Errors
    /// Kubernetes refused.
    pub(crate) async fn read<P>(session: &Session<P>) -> Result<Self, String> {
        Ok(Self {
            provisioner: session.provisioner.clone(),
            classes: Classes::read(session).await.map_err(refused("list StorageClasses"))?,
            claims: claims(session).await.map_err(refused("list ObjectBucketClaims"))?,
            records: Records::read(session).await.map_err(refused("list ObjectBuckets"))?,
        })
    }

    /// The ObjectBucket of this provisioner that records the claim.
    pub(crate) fn record_of(&self, claim: &Claim) -> Option<&ObjectBucket> {
        self.records.of_uid(&claim.id.uid).filter(|object| {
            record::claim_uid(object) == Some(&claim.id.uid) && record::is_ours(object, &self.provisioner)
        })
    }

    /// Whether the operator serves the claim.
    pub(crate) fn is_served(&self, claim: &Claim) -> bool {
        is_ours(self.facts(claim))
    }

    /// Whether the operator reports about the claim: it belongs to this provisioner, or to none because its class does
    /// not exist.
    pub(crate) fn is_shown(&self, claim: &Claim) -> bool {
        self.is_served(claim) || required_action(self.facts(claim)) == RequiredAction::ReportMissingClass
    }

    fn facts(&self, claim: &Claim) -> OwnershipFacts {
        OwnershipFacts {
            class: self.classes.named(claim.class()).owner(&self.provisioner),
            label: claim.label,
            recorded: self.record_of(claim).is_some(),
            finalizer: claim.finalizer,
            deleting: claim.deleting,
            bound: claim.bound(),
        }
    }
}

/// The claims of the chosen namespaces.
pub(crate) async fn claims<P>(session: &Session<P>) -> kube::Result<Vec<Claim>> {
    let label = session.label();
    session::list(&session.chosen(), |guarded| Some(Claim::read(&guarded, &label))).await
}

/// The StorageClasses of the cluster, by name.
pub(crate) struct Classes(BTreeMap<String, StorageClass>);

impl Classes {
    pub(crate) async fn read<P>(session: &Session<P>) -> kube::Result<Self> {
        Ok(Self::of(session::list(&session.all(), Some).await?))
    }

    pub(crate) fn of(classes: impl IntoIterator<Item = StorageClass>) -> Self {
        Self(classes.into_iter().map(|class| (class.metadata.name.clone().unwrap_or_default(), class)).collect())
    }

    /// The class with this name.
    pub(crate) fn named(&self, name: Option<&str>) -> ClassLookup {
        let Some(name) = name else { return ClassLookup::Unnamed };
        match self.0.get(name) {
            Some(class) => ClassLookup::Found(Class::read(class)),
            None => ClassLookup::Missing { name: name.to_owned() },
        }
    }

    /// Those of a provisioner, by name.
    pub(crate) fn served_by(&self, provisioner: &str) -> impl Iterator<Item = &StorageClass> {
        self.0.values().filter(move |class| class.provisioner == provisioner)
    }
}

/// All ObjectBuckets of the cluster, also those of other provisioners or without a label: what one of them names is not
/// an orphan.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) all: Vec<ObjectBucket>,
    /// What they name is not known.
    pub(crate) unreadable: Vec<Unreadable>,
    /// By the uid of their claim, and of its previous claims: the index.
    claims: HashMap<String, usize>,
    buckets: HashSet<String>,
    users: HashSet<String>,
}

impl Records {
    pub(crate) async fn read<P>(session: &Session<P>) -> kube::Result<Self> {
        Ok(Self::of(session::list(&session.all(), Some).await?))
    }

    pub(crate) fn of(objects: impl IntoIterator<Item = Guard<ObjectBucket>>) -> Self {
        let mut records = Self::default();
        for Guard(object) in objects {
            match object {
                Ok(object) => records.add(object),
                Err(unreadable) => records.unreadable.push(unreadable),
            }
        }
        records
    }

    fn add(&mut self, object: ObjectBucket) {
        let state = |key: &str| record::state(&object, key);
        self.buckets.extend(record::bucket(&object).map(str::to_owned));
        self.users.extend(state(wire::state::USER_NAME).map(str::to_owned));
        let previous = state(wire::state::PREVIOUS_ACCESS).and_then(|text| previous_access::read_recorded(text).ok());
        self.users.extend(previous.into_iter().flatten().filter_map(|previous| previous.user_name));
        let index = self.all.len();
        for previous in state(wire::state::FORMER_CLAIM_UIDS).into_iter().flat_map(|uids| uids.split(',')) {
            self.claims.entry(previous.to_owned()).or_insert(index);
        }
        self.claims.extend(record::claim_uid(&object).map(|uid| (uid.to_owned(), index)));
        self.all.push(object);
    }

    /// The ObjectBucket of the claim with this uid, or of one that has adopted what it had.
    pub(crate) fn of_uid(&self, uid: &str) -> Option<&ObjectBucket> {
        self.all.get(*self.claims.get(uid)?)
    }

    /// Whether an ObjectBucket names this bucket or user.
    pub(crate) fn names(&self, stock: &TaggedResource) -> bool {
        match stock.kind {
            ResourceKind::Bucket => self.buckets.contains(&stock.name),
            ResourceKind::User => self.users.contains(&stock.name),
            // That of other claims, too.
            ResourceKind::Role => self.users.contains(&stock.name) && self.claims.contains_key(&stock.claim.uid),
        }
    }

    /// Whether an ObjectBucket names the claim, the bucket or the user, or may name them.
    pub(crate) fn may_name(&self, claim_uid: &str, bucket: Option<&String>, user: Option<&String>) -> bool {
        !self.unreadable.is_empty()
            || self.claims.contains_key(claim_uid)
            || bucket.is_some_and(|bucket| self.buckets.contains(bucket))
            || user.is_some_and(|user| self.users.contains(user))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::decide::claim::LabelOwner;
    use crate::decide::codec;
    use crate::decide::testing::record;
    use crate::store::Record;

    fn view(provisioner: &str, former_uids: &[&str]) -> (View, Claim) {
        let former_uids = former_uids.iter().map(|uid| (*uid).to_owned()).collect();
        let object = codec::to_object(&Record { former_uids, ..record() }, "obc-shop-photos", provisioner);
        let claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": { "name": "photos", "namespace": "shop", "uid": record().claim.uid },
            "spec": { "storageClassName": "fast" },
        });
        let view = View {
            provisioner: "ours".to_owned(),
            classes: Classes::of([]),
            claims: Vec::new(),
            records: Records::of([Guard(Ok(object))]),
        };
        (view, Claim::read(&serde_json::from_value(claim).unwrap(), "ours"))
    }

    #[test]
    fn a_claim_has_the_object_bucket_with_its_uid() {
        let (of_ours, mut claim) = view("ours", &["previous"]);
        assert!(of_ours.record_of(&claim).is_some() && of_ours.is_served(&claim));
        claim.id.uid = "previous".to_owned();
        assert!(of_ours.record_of(&claim).is_none() && of_ours.records.of_uid("previous").is_some());
    }

    #[test]
    fn claims_of_other_provisioners_are_not_shown() {
        let (of_theirs, mut claim) = view("theirs", &[]);
        assert!(of_theirs.record_of(&claim).is_none() && !of_theirs.is_served(&claim));
        assert!(of_theirs.is_shown(&claim), "its class does not exist, so nobody else reports it");
        claim.label = LabelOwner::Foreign;
        assert!(!of_theirs.is_shown(&claim));
    }
}
