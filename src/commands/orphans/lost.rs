//! Bound claims whose bucket is gone: the store is asked about those on which the operator reported a problem of the store.

use std::collections::HashSet;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};

use super::orphan::Orphan;
use super::recorded::Recorded;
use super::{AT_ONCE, judge};
use crate::api::ConditionStatus;
use crate::commands::session::{Session, refused};
use crate::controller::decide::claim::Claim;
use crate::controller::decide::record::Stored;
use crate::controller::decide::{codec, record};
use crate::controller::{read_owner, reasons};
use crate::provisioner::{ClaimId, Failure as _, Provisioner};

/// Longest time in which a store says whether it has a bucket.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Whether the operator has reported a problem of the store on a bound claim. The store is not asked about all others: the
/// operator checks them regularly.
pub(crate) fn is_suspect<P: Provisioner>(claim: &Claim) -> bool {
    let ready = claim.status.conditions.iter().find(|condition| condition.type_ == reasons::READY);
    let is_of_store = |name: &str| P::REASONS.iter().any(|reason| reason.name == name);
    claim.bound()
        && !claim.deleting
        && ready.is_some_and(|ready| ready.status == ConditionStatus::False && is_of_store(&ready.reason))
}

/// Those of the claims whose bucket the store does not have. A store that cannot say it is asked once, and named among the
/// problems.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn of_claims<P: Provisioner>(
    session: &Session<P>,
    suspects: &[ClaimId],
    recorded: &Recorded,
    problems: &mut Vec<String>,
) -> Result<Vec<Orphan>, Box<dyn Error>> {
    let silent = Silent::default();
    let looks = suspects.iter().map(|claim| look(session, claim, recorded, &silent));
    let mut looks = stream::iter(looks).buffered(AT_ONCE);
    let mut orphans = Vec::new();
    while let Some(seen) = looks.next().await {
        orphans.extend(seen?);
    }
    drop(looks);
    problems.extend(silent.problems());
    Ok(orphans)
}

/// Stores that could not be asked, and the first problem of each.
#[derive(Default)]
struct Silent(Mutex<(HashSet<String>, Vec<String>)>);

impl Silent {
    fn has(&self, store: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.contains(store)
    }

    fn add(&self, store: String, stored: &Stored, problem: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0.insert(store) {
            let (claim, bucket) = (&stored.record.claim, &stored.record.plan.bucket);
            known.1.push(format!("whether bucket {bucket:?} of claim {claim} is gone is not known: {problem}"));
        }
    }

    fn problems(self) -> Vec<String> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }
}

async fn look<P: Provisioner>(
    session: &Session<P>,
    claim: &ClaimId,
    recorded: &Recorded,
    silent: &Silent,
) -> Result<Option<Orphan>, Box<dyn Error>> {
    let Some(name) = recorded.of(&claim.uid) else { return Ok(None) };
    let found = session.records().get_opt(name).await.map_err(|error| refused("read an ObjectBucket", &error))?;
    // One that cannot be read is reported as such.
    let Some(object) = found.and_then(|guard| guard.0.ok()) else { return Ok(None) };
    let Ok(stored) = codec::read(&object) else { return Ok(None) };
    if record::claim_uid(&object) != Some(&claim.uid) {
        return Ok(None);
    }
    let plan = &stored.record.plan;
    let store = format!("{:?} {:?}", plan.owner_secret, plan.endpoint);
    if silent.has(&store) {
        return Ok(None);
    }
    match tokio::time::timeout(TIME_LIMIT, is_lost(session, &stored)).await {
        Ok(Ok(None)) => Ok(None),
        Ok(Ok(Some((reason, message)))) => Ok(Some(judge::of_lost_bucket(&stored, reason, message))),
        Ok(Err(problem)) => {
            silent.add(store, &stored, &problem);
            Ok(None)
        }
        Err(_elapsed) => {
            silent.add(store, &stored, "the store does not answer from here");
            Ok(None)
        }
    }
}

/// Reason and message if the bucket is gone.
async fn is_lost<P: Provisioner>(
    session: &Session<P>,
    stored: &Stored,
) -> Result<Option<(&'static str, String)>, String> {
    let owner: P::Owner = read_owner(&session.client, &stored.record).await.map_err(|problem| problem.to_string())?;
    match session.store.usage(&stored.record, &owner).await {
        Ok(_) => Ok(None),
        Err(failure) if failure.lost() => Ok(Some((failure.reason(), failure.to_string()))),
        Err(failure) => Err(failure.to_string()),
    }
}
