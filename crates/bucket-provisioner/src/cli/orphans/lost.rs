//! Bound claims whose bucket no longer exists. The store is asked about the claims on which the operator has reported a
//! problem of the store.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::judge;
use super::orphan::Orphan;
use crate::api::ConditionStatus;
use crate::cli::annotate::AT_ONCE;
use crate::cli::session::Session;
use crate::cli::usage::{Unknown, usage};
use crate::decide::claim::Claim;
use crate::decide::record::Stored;
use crate::reasons;
use crate::store::{Endpoint, OwnerRef, Provisioner};

/// How many problems are reported one by one.
const REPORTED: usize = 10;
/// Longest time for a store to report whether a bucket exists.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Whether the operator has reported a problem of the store on a bound claim. The store is not asked about the others,
/// because the operator checks them regularly.
pub(crate) fn is_suspect<P: Provisioner>(claim: &Claim) -> bool {
    let is_of_store = |name: &str| P::REASONS.iter().any(|reason| reason.name == name);
    let ready = claim.condition(reasons::READY);
    claim.bound()
        && !claim.deleting
        && ready.is_some_and(|ready| ready.status == ConditionStatus::False && is_of_store(&ready.reason))
}

/// The claims of these ObjectBuckets whose bucket does not exist. Those of which that is not known are added to the
/// problems.
pub(crate) async fn of_records<P: Provisioner>(
    session: &Session<P>,
    suspects: &[Stored],
    problems: &mut Vec<String>,
) -> Vec<Orphan> {
    let (mut orphans, mut unknown, mut skipped) = (Vec::new(), Vec::new(), 0);
    // Stores that are no longer asked, because they do not answer or refuse the credentials.
    let mut silent = Vec::new();
    for some in suspects.chunks(AT_ONCE) {
        let (skip, ask): (Vec<_>, Vec<_>) = some.iter().partition(|stored| silent.contains(&store(stored)));
        skipped += skip.len();
        let answers = join_all(ask.iter().map(|stored| timeout(TIME_LIMIT, usage(session, &stored.record)))).await;
        for (stored, answer) in ask.into_iter().zip(answers) {
            let (why, is_silent) = match answer {
                Ok(Ok(_)) => continue,
                Ok(Err(Unknown { lost: Some(reason), why, .. })) => {
                    orphans.push(judge::of_lost_bucket(stored, reason, why));
                    continue;
                }
                Ok(Err(Unknown { why, affects_all_claims, .. })) => (why, affects_all_claims),
                Err(_elapsed) => ("the store does not answer from here".to_owned(), true),
            };
            let (claim, bucket) = (&stored.record.claim, &stored.record.plan.bucket);
            unknown.push(format!("cannot check whether bucket {bucket:?} of claim {claim} exists: {why}"));
            silent.extend(is_silent.then(|| store(stored)));
        }
    }
    problems.extend(summary(unknown, skipped));
    orphans
}

fn store(stored: &Stored) -> (&OwnerRef, &Endpoint) {
    (&stored.record.plan.owner, &stored.record.plan.endpoint)
}

/// The first problems, and the number of the others.
fn summary(mut unknown: Vec<String>, skipped: usize) -> Vec<String> {
    let more = unknown.len().saturating_sub(REPORTED) + skipped;
    unknown.truncate(REPORTED);
    unknown.extend((more > 0).then(|| format!("cannot check whether the buckets of {more} more claims exist")));
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_that_cannot_be_checked_is_named_or_counted() {
        let problems = summary(vec!["denied".to_owned(); REPORTED + 2], 1);
        assert_eq!(problems.len(), REPORTED + 1);
        assert!(problems[REPORTED].contains("3 more claims"), "{}", problems[REPORTED]);
        assert_eq!(summary(vec!["denied".to_owned()], 0), ["denied"]);
    }
}
