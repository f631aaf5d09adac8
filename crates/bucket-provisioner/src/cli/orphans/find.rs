//! Looks for orphans beside an operator that serves.
//!
//! # Why nothing new looks orphaned
//! 1. The store is read first, and the ObjectBuckets afterwards. An operator writes the ObjectBucket before it creates
//!    anything, so whatever the first look shows was recorded before, and the second look shows that; unless both are
//!    gone by then. The other way round, everything created in between would look orphaned.
//! 2. So what no ObjectBucket records is looked for in the store once more: what was removed in between is gone now.
//! 3. ObjectBuckets and claims are listed one after the other, and in either order one of a pair may be missing only
//!    because of that. So each suspect is read again: first its ObjectBucket, then its claim.

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

/// What was found.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Found {
    pub(crate) orphans: Vec<Orphan>,
    /// Marked by this provisioner in another cluster, or in one that the marks do not name. They are that cluster's.
    pub(crate) of_other_clusters: Vec<Elsewhere>,
    /// What was not looked at, though nobody needs to worry.
    pub(crate) notes: Vec<String>,
    /// What could not be looked at: there may be more orphans.
    pub(crate) problems: Vec<String>,
    /// Whether there can be no more: every store said all that it holds.
    pub(crate) is_complete: bool,
    #[serde(skip)]
    pub(crate) places: Vec<Place>,
    #[serde(skip)]
    pub(crate) cluster: String,
}

/// Something of another cluster.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Elsewhere {
    pub(crate) name: String,
    pub(crate) claim_namespace: String,
    pub(crate) claim_name: String,
    pub(crate) cluster: Option<String>,
}

/// Looks everywhere.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn all<P: Provisioner>(session: &Session<P>) -> Result<Found, Box<dyn Error>> {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    let cluster = session.cluster().await?;
    let classes = session.classes().await?;
    let (mut places, accounts) = places::all(session, &classes, &mut problems).await?;
    if places.is_empty() {
        notes.push("no StorageClass and no ObjectBucket leads to a store, so none was looked at".to_owned());
    }
    let held = held(session, &mut places, &mut problems, &mut notes).await;
    problems.extend(places::unseen_accounts(&places, &accounts));
    let Seen { recorded, suspects, unrecorded_claims, troubled_claims } =
        Seen::read(session, &classes, &cluster).await?;
    let unread =
        |name| format!("ObjectBucket {name:?} cannot be read, so nobody knows what it records; correct or restore it");
    problems.extend(recorded.unreadable.iter().map(unread));
    let mut orphans: Vec<Orphan> = stream::iter(suspects)
        .map(|name| of_record(session, name, &cluster, &recorded))
        .buffered(AT_ONCE)
        .try_filter_map(async |orphan| Ok(orphan))
        .try_collect()
        .await?;
    let held = held.into_iter().filter(|(_, stock)| is_chosen(session, &stock.claim.namespace));
    let unrecorded = judge::unrecorded(held, &recorded, &cluster);
    let lost = still_there(session, &mut places, unrecorded.here, &mut problems).await;
    orphans.extend(of_stock(session, lost, &recorded, &places).await?);
    orphans.extend(of_claims(session, unrecorded_claims, &orphans).await?);
    orphans.extend(lost::of_claims(session, &troubled_claims, &recorded, &mut problems).await?);
    orphans.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
    let elsewhere = |stock: TaggedResource| Elsewhere {
        name: stock.name,
        claim_namespace: stock.claim.namespace,
        claim_name: stock.claim.name,
        cluster: stock.cluster,
    };
    let of_other_clusters = unrecorded.elsewhere.into_iter().map(elsewhere).collect();
    let is_complete = problems.is_empty() && !places.is_empty() && places.iter().all(|place| place.has_said);
    Ok(Found { orphans, of_other_clusters, notes, problems, is_complete, places, cluster })
}

fn is_chosen<P>(session: &Session<P>, namespace: &str) -> bool {
    session.namespace.as_deref().is_none_or(|chosen| chosen == namespace)
}

/// What all places hold, with the index of the place.
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
            None => format!("the store of bucket {:?}, to which no StorageClass leads", place.record.plan.bucket),
        };
        match places::inventory(session, place, None).await {
            Ok(Some(inventory)) => {
                place.has_said = true;
                let (named, nameless): (Vec<_>, Vec<_>) = inventory.stock.into_iter().partition(judge::names_a_claim);
                held.extend(named.into_iter().map(|stock| (index, stock)));
                problems.extend(inventory.problems.iter().map(|problem| format!("{name}: {problem}")));
                notes.extend(nameless.first().map(|first| {
                    let (count, first) = (nameless.len(), &first.name);
                    format!("{name}: buckets or users whose tags name no possible claim: {count}, the first: {first:?}")
                }));
                notes.extend(inventory.unread.iter().map(|unread| format!("{name}: {unread}")));
            }
            Ok(None) => {
                notes.push(format!("{name} cannot list what it holds; only ObjectBuckets and claims were compared"))
            }
            Err(problem) => problems.push(format!("{name} was not looked at: {problem}")),
        }
    }
    held
}

/// Of what no ObjectBucket records, what the store still shows with the same marks.
async fn still_there<P: Provisioner>(
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
                problems.extend(unseen.iter().map(|problem| format!("the second look at the store: {problem}")));
                left.extend(lost.into_iter().filter(|stock| seen.contains(stock)).map(|stock| (index, stock)));
            }
            Err(problem) => problems.push(format!("the store could not be looked at again: {problem}")),
        }
    }
    left
}

/// What the cluster shows.
struct Seen {
    recorded: Recorded,
    /// Names of ObjectBuckets that may be orphans.
    suspects: Vec<String>,
    /// Claims that were bound and that no ObjectBucket records.
    unrecorded_claims: Vec<ClaimId>,
    /// Bound claims whose bucket may be gone.
    troubled_claims: Vec<ClaimId>,
}

impl Seen {
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

/// Reads an ObjectBucket again, and then the claim of its name.
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

/// The claim that has this name now. `but`: an ObjectBucket that does not count as its own.
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
        // Whether it asks in time is said by the operator.
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

/// Claims without an ObjectBucket, read again; not those whose former ObjectBucket is among the orphans.
async fn of_claims<P: Provisioner>(
    session: &Session<P>,
    claims: Vec<ClaimId>,
    orphans: &[Orphan],
) -> Result<Vec<Orphan>, Box<dyn Error>> {
    let is_told = |claim: &ClaimId| {
        let told = |orphan: &Orphan| orphan.object.is_some() && orphan.claim().to_string() == claim.to_string();
        orphans.iter().any(told)
    };
    let mut without = Vec::new();
    for id in claims.into_iter().filter(|claim| !is_told(claim)) {
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
