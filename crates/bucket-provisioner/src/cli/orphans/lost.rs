//! Bound claims whose bucket no longer exists. The store is asked about the claims on which the operator has reported a
//! problem of the store.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};

use super::orphan::Orphan;
use super::{AT_ONCE, judge};
use crate::api::{ConditionStatus, Guard, ObjectBucket};
use crate::cli::session::{Session, refused};
use crate::cli::usage::{Unknown, usage};
use crate::cli::view::Records;
use crate::decide::claim::Claim;
use crate::decide::record::Stored;
use crate::decide::{codec, record};
use crate::reasons;
use crate::store::{ClaimId, Provisioner};

/// How many problems are reported one by one.
const REPORTED: usize = 10;
/// Longest time for a store to report whether a bucket exists.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Whether the operator has reported a problem of the store on a bound claim. The store is not asked about the others,
/// because the operator checks them regularly.
pub(crate) fn is_suspect<P: Provisioner>(claim: &Claim) -> bool {
    let ready = claim.condition(reasons::READY);
    let is_of_store = |name: &str| P::REASONS.iter().any(|reason| reason.name == name);
    claim.bound()
        && !claim.deleting
        && ready.is_some_and(|ready| ready.status == ConditionStatus::False && is_of_store(&ready.reason))
}

/// The claims whose bucket does not exist. Those of which that is not known are added to the problems.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn of_claims<P: Provisioner>(
    session: &Session<P>,
    suspects: &[&ClaimId],
    recorded: &Records,
    problems: &mut Vec<String>,
) -> Result<Vec<Orphan>, String> {
    let unknown = Mutex::default();
    let checks = suspects.iter().map(|claim| check(session, claim, recorded, &unknown));
    let mut checks = stream::iter(checks).buffered(AT_ONCE);
    let mut orphans = Vec::new();
    while let Some(orphan) = checks.next().await {
        orphans.extend(orphan?);
    }
    drop(checks);
    problems.extend(unknown.into_inner().problems());
    Ok(orphans)
}

/// Buckets of which it is not known whether they exist.
#[derive(Default)]
struct Unchecked {
    /// Stores that are no longer asked, because they do not answer or refuse the credentials.
    silent: HashSet<String>,
    /// The problems of the first ones.
    reported: Vec<String>,
    /// How many others there are.
    more: u64,
}

impl Unchecked {
    /// Counts a bucket of a store that is no longer asked.
    fn skips(&mut self, store: &str) -> bool {
        let is_silent = self.silent.contains(store);
        self.more += u64::from(is_silent);
        is_silent
    }

    fn add(&mut self, stored: &Stored, problem: &str) {
        let (claim, bucket) = (&stored.record.claim, &stored.record.plan.bucket);
        if self.reported.len() < REPORTED {
            self.reported.push(format!("cannot check whether bucket {bucket:?} of claim {claim} exists: {problem}"));
        } else {
            self.more += 1;
        }
    }

    fn problems(mut self) -> Vec<String> {
        if self.more > 0 {
            self.reported.push(format!("cannot check whether the buckets of {} more claims exist", self.more));
        }
        self.reported
    }
}

async fn check<P: Provisioner>(
    session: &Session<P>,
    claim: &ClaimId,
    recorded: &Records,
    unknown: &Mutex<Unchecked>,
) -> Result<Option<Orphan>, String> {
    let Some(name) = recorded.of_uid(&claim.uid).map(record::name) else { return Ok(None) };
    let found = session.all::<Guard<ObjectBucket>>().get_opt(&name).await.map_err(refused("read an ObjectBucket"))?;
    // One that cannot be read is reported as such.
    let Some(object) = found.and_then(|guard| guard.0.ok()) else { return Ok(None) };
    let Ok(stored) = codec::read(&object) else { return Ok(None) };
    if record::claim_uid(&object) != Some(&claim.uid) {
        return Ok(None);
    }
    let lock = || unknown.lock();
    let plan = &stored.record.plan;
    let store = format!("{:?} {:?}", plan.owner_secret, plan.endpoint);
    if lock().skips(&store) {
        return Ok(None);
    }
    let (problem, is_silent) = match tokio::time::timeout(TIME_LIMIT, usage(session, &stored.record)).await {
        Ok(Ok(_)) => return Ok(None),
        Ok(Err(Unknown { lost: Some(reason), why, .. })) => {
            return Ok(Some(judge::of_lost_bucket(&stored, reason, why)));
        }
        Ok(Err(Unknown { why, affects_all_claims, .. })) => (why, affects_all_claims),
        Err(_elapsed) => ("the store does not answer from here".to_owned(), true),
    };
    let mut unknown = lock();
    unknown.add(&stored, &problem);
    if is_silent {
        unknown.silent.insert(store);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::testing::stored;

    #[test]
    fn each_bucket_that_cannot_be_checked_is_named_or_counted() {
        let mut unknown = Unchecked::default();
        (0..REPORTED + 2).for_each(|_| unknown.add(&stored(), "denied"));
        unknown.silent.insert("silent".to_owned());
        assert!(unknown.skips("silent") && !unknown.skips("another"));
        let problems = unknown.problems();
        assert_eq!(problems.len(), REPORTED + 1);
        assert!(problems[0].ends_with("denied"), "{}", problems[0]);
        assert!(problems[REPORTED].contains("3 more claims"), "{}", problems[REPORTED]);
    }
}
