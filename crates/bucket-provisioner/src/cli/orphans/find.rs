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

use std::collections::{HashMap, HashSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::judge::{self, Held};
use super::lost;
use super::orphan::Orphan;
use super::places::{self, Place};
use crate::api::{Guard, ObjectBucket};
use crate::cli::annotate::AT_ONCE;
use crate::cli::output::counted;
use crate::cli::session::{self, Session, refused};
use crate::cli::view::{Classes, Records, View};
use crate::decide::claim::Claim;
use crate::decide::orphan::PresentClaim;
use crate::decide::{codec, record};
use crate::store::{ClaimId, Inventory, Provisioner, TaggedResource};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    pub(crate) orphans: Vec<Orphan>,
    /// Tagged by this provisioner in another cluster, or in one that the tags do not name. They belong to that cluster.
    #[serde(serialize_with = "tagged")]
    pub(crate) of_other_clusters: Vec<TaggedResource>,
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

fn tagged<S: Serializer>(all: &[TaggedResource], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(|TaggedResource { name, claim, cluster, .. }| {
        json!({ "name": name, "claimNamespace": claim.namespace, "claimName": claim.name, "cluster": cluster })
    }))
}

/// Checks all stores, ObjectBuckets and claims.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn all<P: Provisioner>(session: &Session<P>) -> Result<Found, String> {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    let cluster = session.cluster().await.map_err(refused(session::CLUSTER))?;
    let classes = Classes::read(session).await.map_err(refused("list StorageClasses"))?;
    let (mut places, accounts) = places::all(session, &classes, &records(session).await?, &mut problems);
    if places.is_empty() {
        notes.push("no StorageClass and no ObjectBucket refers to a store, so no store was checked".to_owned());
    }
    let held = held(session, &mut places, &mut problems, &mut notes).await;
    problems.extend(places::unseen_accounts(&places, &accounts));
    let view = View::read(session).await?;
    let records = &view.records;
    problems.extend(records.unreadable.iter().map(|unreadable| {
        let name = unreadable.name();
        format!("ObjectBucket {name:?} cannot be read, so what it records is unknown; correct or restore it")
    }));
    let mut orphans: Vec<Orphan> = stream::iter(suspects(session, &view, &cluster))
        .map(|name| of_record(session, name, &cluster, records))
        .buffered(AT_ONCE)
        .try_filter_map(async |orphan| Ok(orphan))
        .try_collect()
        .await?;
    let held = held.into_iter().filter(|(_, stock)| session.includes(&stock.claim.namespace));
    let (lost, of_other_clusters) = judge::unrecorded(held, records, &cluster);
    let of_other_clusters = of_other_clusters.into_iter().map(|(_, stock)| stock).collect();
    let lost = with_names(still_present(session, &mut places, lost, &mut problems).await, &view);
    orphans.extend(of_stock(session, lost, records, &places).await?);
    let served = |claim: &&Claim| view.is_served(claim) && claim.was_bound() && !claim.deleting && claim.spec().is_ok();
    let bound: Vec<_> = view.claims.iter().filter(served).collect();
    let unrecorded_claims = bound.iter().filter(|claim| records.of_uid(&claim.id.uid).is_none());
    orphans.extend(of_claims(session, unrecorded_claims.map(|claim| &claim.id), &orphans).await?);
    let troubled = bound.iter().filter(|claim| lost::is_suspect::<P>(claim)).filter_map(|claim| view.record_of(claim));
    let troubled: Vec<_> = troubled.filter_map(|object| codec::read(object).ok()).collect();
    orphans.extend(lost::of_records(session, &troubled, &mut problems).await);
    orphans.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let is_complete = problems.is_empty() && !places.is_empty() && places.iter().all(|place| place.is_listed);
    Ok(Found { orphans, of_other_clusters, notes, problems, is_complete, places, cluster })
}

/// What all ObjectBuckets name now.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn records<P>(session: &Session<P>) -> Result<Records, String> {
    Records::read(session).await.map_err(refused("list ObjectBuckets"))
}

/// Names of the ObjectBuckets that may be orphans.
fn suspects<P>(session: &Session<P>, view: &View, cluster: &str) -> Vec<String> {
    let claims: HashMap<_, _> = view.claims.iter().map(|claim| (claim.id.uid.as_str(), &claim.id)).collect();
    let ours = view.records.all.iter().filter(|object| session.owns(object));
    ours.filter(|object| judge::is_suspect(object, cluster, &claims)).map(record::name).collect()
}

/// What the stores of all places hold, with the index of the place.
async fn held<P: Provisioner>(
    session: &Session<P>,
    places: &mut [Place],
    problems: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Vec<Held> {
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
                    let all = counted(nameless.len(), "bucket, user or role has", "buckets, users or roles have");
                    format!("{name}: {all} tags that name no valid claim, such as {:?}", first.name)
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
    lost: Vec<Held>,
    problems: &mut Vec<String>,
) -> Vec<Held> {
    let mut left = Vec::new();
    for (index, place) in places.iter_mut().enumerate() {
        let lost: Vec<_> = lost.iter().filter(|(at, _)| *at == index).map(|(_, stock)| stock.clone()).collect();
        if lost.is_empty() {
            continue;
        }
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

/// Reads an ObjectBucket again, and then the claim that it names.
async fn of_record<P>(
    session: &Session<P>,
    name: String,
    cluster: &str,
    records: &Records,
) -> Result<Option<Orphan>, String> {
    let found = session.all::<Guard<ObjectBucket>>().get_opt(&name).await.map_err(refused("read an ObjectBucket"))?;
    let Some(object) = found.and_then(|guard| guard.0.ok()) else { return Ok(None) };
    let Some((namespace, claim)) = record::claim_name(&object) else { return Ok(None) };
    let present = present(session, namespace, claim, records, Some(&name)).await?;
    Ok(judge::of_record(object, cluster, present.as_ref(), Timestamp::now()))
}

/// The claim that now has this name. `but`: an ObjectBucket that does not count as its own.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn present<P>(
    session: &Session<P>,
    namespace: &str,
    name: &str,
    records: &Records,
    but: Option<&str>,
) -> Result<Option<PresentClaim>, String> {
    Ok(session.find_claim(namespace, name).await?.map(|guarded| {
        let claim = Claim::read(&guarded, &session.label());
        let own = records.of_uid(&claim.id.uid).map(record::name);
        PresentClaim {
            deleting: claim.deleting,
            has_record: own.filter(|record| but != Some(record)),
            names_it: claim.named_record().is_some_and(|named| Some(named) == but),
            // Whether the annotation to undo the deletion came in time, the operator decides.
            undoes: false,
            uid: claim.id.uid,
        }
    }))
}

/// The same with the names of the claims of which a store knows only the uids.
fn with_names(mut lost: Vec<Held>, view: &View) -> Vec<Held> {
    let names = view.claims.iter().map(|claim| ((claim.id.namespace.as_str(), claim.id.uid.as_str()), &claim.id.name));
    let names: HashMap<_, _> = names.collect();
    for ClaimId { namespace, name, uid } in lost.iter_mut().map(|(_, stock)| &mut stock.claim) {
        if name == uid
            && let Some(present) = names.get(&(namespace.as_str(), uid.as_str()))
        {
            name.clone_from(present);
        }
    }
    lost
}

async fn of_stock<P>(
    session: &Session<P>,
    lost: Vec<Held>,
    records: &Records,
    places: &[Place],
) -> Result<Vec<Orphan>, String> {
    let claims: HashMap<ClaimId, PresentClaim> = stream::iter(lost.iter().map(|(_, stock)| stock.claim.clone()))
        .map(async |claim| {
            let present = present(session, &claim.namespace, &claim.name, records, None).await?;
            Ok::<_, String>(present.map(|present| (claim, present)))
        })
        .buffered(AT_ONCE)
        .try_filter_map(async |found| Ok(found))
        .try_collect()
        .await?;
    let account = |place: usize| places.get(place).and_then(|place: &Place| place.record.account.clone());
    Ok(judge::of_stock(lost, records, |claim| claims.get(claim).cloned(), account))
}

/// Claims without an ObjectBucket, read again; without those whose previous ObjectBucket is among the orphans.
async fn of_claims<P>(
    session: &Session<P>,
    claims: impl Iterator<Item = &ClaimId>,
    orphans: &[Orphan],
) -> Result<Vec<Orphan>, String> {
    let listed: HashSet<_> =
        orphans.iter().filter(|orphan| orphan.object.is_some()).map(|orphan| orphan.claim.to_string()).collect();
    let mut without = Vec::new();
    for id in claims.filter(|claim| !listed.contains(&claim.to_string())) {
        let found = session.find_claim(&id.namespace, &id.name).await?;
        let Some(claim) = found.map(|found| Claim::read(&found, &session.label())) else { continue };
        if claim.id == *id && !claim.deleting {
            without.push(judge::of_claim(&claim, &session.program));
        }
    }
    Ok(without)
}
