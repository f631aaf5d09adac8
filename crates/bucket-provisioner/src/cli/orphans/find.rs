//! Finds orphans while an operator may serve.
//!
//! # Why nothing new looks orphaned
//! 1. The store is listed first, and the ObjectBuckets afterwards. An operator writes the ObjectBucket before it
//!    creates anything, so everything in the first list was recorded before, and the second list has its ObjectBucket;
//!    unless both were deleted in between. In the opposite order, everything created in between would look orphaned.
//! 2. Therefore what no ObjectBucket records is searched in the store once more: what was deleted in between no longer
//!    exists.
//! 3. ObjectBuckets and claims are listed one after the other, and in either order one of a pair may be missing only
//!    because of that. Therefore each suspect is read again: first its ObjectBucket, then its claim.

use std::collections::HashMap;
use std::error::Error;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::lost;
use super::orphan::Orphan;
use super::places::{self, Place};
use super::recorded::Recorded;
use super::{AT_ONCE, judge};
use crate::api::{Guard, ObjectBucket};
use crate::cli::session::{self, Classes, Session, refused};
use crate::decide::claim::Claim;
use crate::decide::orphan::PresentClaim;
use crate::decide::ownership;
use crate::decide::record;
use crate::store::{ClaimId, Inventory, Provisioner, TaggedResource};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    pub(crate) orphans: Vec<Orphan>,
    /// Tagged by this provisioner in another cluster, or in one that the tags do not name. They belong to that cluster.
    pub(crate) of_other_clusters: Vec<OtherClusterResource>,
    /// What was not checked, without a reason to worry.
    pub(crate) notes: Vec<String>,
    /// What could not be checked: there may be more orphans.
    pub(crate) problems: Vec<String>,
    /// Whether there can be no more: every store has listed all that it holds.
    pub(crate) is_complete: bool,
    #[serde(skip)]
    pub(crate) places: Vec<Place>,
    #[serde(skip)]
    pub(crate) cluster: String,
}

/// A bucket or user of another cluster.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OtherClusterResource {
    pub(crate) name: String,
    pub(crate) claim_namespace: String,
    pub(crate) claim_name: String,
    pub(crate) cluster: Option<String>,
}

/// Checks all stores, ObjectBuckets and claims.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn all<P: Provisioner>(session: &Session<P>) -> Result<Found, Box<dyn Error>> {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    let cluster = session.cluster().await?;
    let classes = session.classes().await?;
    let (mut places, accounts) = places::all(session, &classes, &mut problems).await?;
    if places.is_empty() {
        notes.push("no StorageClass and no ObjectBucket refers to a store, so no store was checked".to_owned());
    }
    let held = held(session, &mut places, &mut problems, &mut notes).await;
    problems.extend(places::unseen_accounts(&places, &accounts));
    let ClusterState { recorded, suspects, unrecorded_claims, troubled_claims } =
        ClusterState::read(session, &classes, &cluster).await?;
    let unread =
        |name| format!("ObjectBucket {name:?} cannot be read, so what it records is unknown; correct or restore it");
    problems.extend(recorded.unreadable.iter().map(unread));
    let mut orphans: Vec<Orphan> = stream::iter(suspects)
        .map(|name| of_record(session, name, &cluster, &recorded))
        .buffered(AT_ONCE)
        .try_filter_map(async |orphan| Ok(orphan))
        .try_collect()
        .await?;
    let held = held.into_iter().filter(|(_, stock)| is_chosen(session, &stock.claim.namespace));
    let unrecorded = judge::unrecorded(held, &recorded, &cluster);
    let lost = still_present(session, &mut places, unrecorded.here, &mut problems).await;
    orphans.extend(of_stock(session, lost, &recorded, &places).await?);
    orphans.extend(of_claims(session, unrecorded_claims, &orphans).await?);
    orphans.extend(lost::of_claims(session, &troubled_claims, &recorded, &mut problems).await?);
    orphans.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let elsewhere = |stock: TaggedResource| OtherClusterResource {
        name: stock.name,
        claim_namespace: stock.claim.namespace,
        claim_name: stock.claim.name,
        cluster: stock.cluster,
    };
    let of_other_clusters = unrecorded.elsewhere.into_iter().map(elsewhere).collect();
    let is_complete = problems.is_empty() && !places.is_empty() && places.iter().all(|place| place.is_listed);
    Ok(Found { orphans, of_other_clusters, notes, problems, is_complete, places, cluster })
}

fn is_chosen<P>(session: &Session<P>, namespace: &str) -> bool {
    session.namespace.as_deref().is_none_or(|chosen| chosen == namespace)
}

/// What the stores of all places hold, with the index of the place.
async fn held<P: Provisioner>(
    session: &Session<P>,
    places: &mut [Place],
    problems: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Vec<(usize, TaggedResource)> {
    let mut held = Vec::new();
    for (index, place) in places.iter_mut().enumerate() {
        let name = match &place.class {
            Some(class) => format!("the store of StorageClass {:?}", class.name),
            None => format!("the store of bucket {:?}, to which no StorageClass refers", place.record.plan.bucket),
        };
        match places::inventory(session, place, None).await {
            Ok(Some(inventory)) => {
                place.is_listed = true;
                let (named, nameless): (Vec<_>, Vec<_>) = inventory.stock.into_iter().partition(judge::names_a_claim);
                held.extend(named.into_iter().map(|stock| (index, stock)));
                problems.extend(inventory.problems.iter().map(|problem| format!("{name}: {problem}")));
                notes.extend(nameless.first().map(|first| {
                    let (count, first) = (nameless.len(), &first.name);
                    format!("{name}: {count} buckets or users whose tags name no valid claim; the first is {first:?}")
                }));
                notes.extend(inventory.unread.iter().map(|unread| format!("{name}: {unread}")));
            }
            Ok(None) => {
                notes.push(format!("{name} cannot list what it holds; only ObjectBuckets and claims were compared"))
            }
            Err(problem) => problems.push(format!("{name} was not checked: {problem}")),
        }
    }
    held
}

/// Of what no ObjectBucket records, what the store still lists with the same tags.
async fn still_present<P: Provisioner>(
    session: &Session<P>,
    places: &mut [Place],
    lost: Vec<(usize, TaggedResource)>,
    problems: &mut Vec<String>,
) -> Vec<(usize, TaggedResource)> {
    let mut by_place: HashMap<usize, Vec<TaggedResource>> = HashMap::new();
    for (place, stock) in lost {
        by_place.entry(place).or_default().push(stock);
    }
    let mut left = Vec::new();
    for (index, place) in places.iter_mut().enumerate() {
        let Some(lost) = by_place.remove(&index) else { continue };
        match places::inventory(session, place, Some(&lost)).await {
            Ok(seen) => {
                let Inventory { stock: seen, problems: unseen, .. } = seen.unwrap_or_default();
                problems.extend(unseen.iter().map(|problem| format!("the second check of the store: {problem}")));
                left.extend(lost.into_iter().filter(|stock| seen.contains(stock)).map(|stock| (index, stock)));
            }
            Err(problem) => problems.push(format!("the store could not be checked again: {problem}")),
        }
    }
    left
}

/// The ObjectBuckets and claims of the cluster.
struct ClusterState {
    recorded: Recorded,
    /// Names of ObjectBuckets that may be orphans.
    suspects: Vec<String>,
    /// Claims that were bound and that no ObjectBucket records.
    unrecorded_claims: Vec<ClaimId>,
    /// Bound claims whose bucket may no longer exist.
    troubled_claims: Vec<ClaimId>,
}

impl ClusterState {
    async fn read<P: Provisioner>(
        session: &Session<P>,
        classes: &Classes,
        cluster: &str,
    ) -> Result<Self, Box<dyn Error>> {
        let label = session.label();
        let (mut claims, mut bound, mut troubled) = (HashMap::new(), Vec::new(), Vec::new());
        session::each(&session.claims(), None, "list ObjectBucketClaims", |guarded| {
            let claim = Claim::read(&guarded, &label);
            if is_served(session, classes, &claim) && claim.was_bound() && !claim.deleting {
                bound.push(claim.id.clone());
                troubled.extend(lost::is_suspect::<P>(&claim).then(|| claim.id.clone()));
            }
            claims.insert((claim.id.namespace, claim.id.name), claim.id.uid);
        })
        .await?;
        let (mut recorded, mut suspects) = (Recorded::default(), Vec::new());
        session::each(&session.records(), None, "list ObjectBuckets", |guard: Guard<ObjectBucket>| {
            let Some(object) = recorded.add_guarded(guard) else { return };
            let is_ours = record::is_ours(&object, &session.provisioner)
                && record::claim_name(&object).is_some_and(|(namespace, _)| is_chosen(session, namespace));
            if is_ours && judge::is_suspect(&object, cluster, &claims) {
                suspects.push(record::name(&object));
            }
        })
        .await?;
        bound.retain(|claim| recorded.of(&claim.uid).is_none());
        Ok(Self { recorded, suspects, unrecorded_claims: bound, troubled_claims: troubled })
    }
}

fn is_served<P: Provisioner>(session: &Session<P>, classes: &Classes, claim: &Claim) -> bool {
    let Ok(spec) = claim.spec() else { return false };
    ownership::is_ours(ownership::OwnershipFacts {
        class: classes.named(Some(&spec.storage_class_name)).owner(&session.provisioner),
        label: claim.label,
        recorded: false,
        finalizer: claim.finalizer,
        deleting: claim.deleting,
        bound: claim.bound(),
    })
}

/// Reads an ObjectBucket again, and then the claim that it names.
async fn of_record<P: Provisioner>(
    session: &Session<P>,
    name: String,
    cluster: &str,
    recorded: &Recorded,
) -> Result<Option<Orphan>, Box<dyn Error>> {
    let found = session.records().get_opt(&name).await.map_err(|error| refused("read an ObjectBucket", &error))?;
    let Some(object) = found.and_then(|guard| guard.0.ok()) else { return Ok(None) };
    let Some((namespace, claim)) = record::claim_name(&object) else { return Ok(None) };
    let present = present(session, namespace, claim, recorded, Some(&name)).await?;
    Ok(judge::of_record(object, cluster, present.as_ref(), Timestamp::now()))
}

/// What all ObjectBuckets name now.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn recorded<P: Provisioner>(session: &Session<P>) -> Result<Recorded, Box<dyn Error>> {
    let mut recorded = Recorded::default();
    session::each(&session.records(), None, "list ObjectBuckets", |guard| drop(recorded.add_guarded(guard))).await?;
    Ok(recorded)
}

/// The claim that now has this name. `but`: an ObjectBucket that does not count as its own.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn present<P: Provisioner>(
    session: &Session<P>,
    namespace: &str,
    name: &str,
    recorded: &Recorded,
    but: Option<&str>,
) -> Result<Option<PresentClaim>, Box<dyn Error>> {
    let found = session.claims_in(namespace).get_opt(name).await.map_err(|error| refused("read a claim", &error))?;
    Ok(found.map(|guarded| {
        let claim = Claim::read(&guarded, &session.label());
        let has_record = recorded.of(&claim.id.uid).filter(|record| but != Some(record.as_str())).cloned();
        let named = claim.spec().ok().and_then(|spec| spec.object_bucket_name.clone());
        let names_it = named.is_some() && named.as_deref() == but;
        // Whether the annotation to undo the deletion came in time, the operator decides.
        PresentClaim { uid: claim.id.uid, deleting: claim.deleting, has_record, names_it, undoes: false }
    }))
}

async fn of_stock<P: Provisioner>(
    session: &Session<P>,
    lost: Vec<(usize, TaggedResource)>,
    recorded: &Recorded,
    places: &[Place],
) -> Result<Vec<Orphan>, Box<dyn Error>> {
    let claims: HashMap<ClaimId, PresentClaim> = stream::iter(lost.iter().map(|(_, stock)| stock.claim.clone()))
        .map(async |claim| {
            let present = present(session, &claim.namespace, &claim.name, recorded, None).await?;
            Ok::<_, Box<dyn Error>>(present.map(|present| (claim, present)))
        })
        .buffered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let account = |place: usize| places.get(place).and_then(|place: &Place| place.record.account.clone());
    Ok(judge::of_stock(lost, recorded, |claim| claims.get(claim).cloned(), account))
}

/// Claims without an ObjectBucket, read again; without those whose previous ObjectBucket is among the orphans.
async fn of_claims<P: Provisioner>(
    session: &Session<P>,
    claims: Vec<ClaimId>,
    orphans: &[Orphan],
) -> Result<Vec<Orphan>, Box<dyn Error>> {
    let is_listed = |claim: &ClaimId| {
        let names_it = |orphan: &Orphan| orphan.object.is_some() && orphan.claim().to_string() == claim.to_string();
        orphans.iter().any(names_it)
    };
    let mut without = Vec::new();
    for id in claims.into_iter().filter(|claim| !is_listed(claim)) {
        let found = session.claims_in(&id.namespace).get_opt(&id.name).await;
        let Some(found) = found.map_err(|error| refused("read a claim", &error))? else { continue };
        let claim = Claim::read(&found, &session.label());
        if claim.id != id || claim.deleting {
            continue;
        }
        let spec = claim.spec().ok();
        let bucket = spec.and_then(|spec| spec.bucket_name.clone());
        let names = spec.and_then(|spec| spec.object_bucket_name.as_deref());
        without.push(judge::of_claim(id, names, bucket, &session.program));
    }
    Ok(without)
}
