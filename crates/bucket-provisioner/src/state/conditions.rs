//! Whether the cluster's CRD keeps a claim's `status.conditions`. If it prunes them, they must not be written again and
//! again; if it keeps them, missing conditions are restored. And whether it has a status of its own: otherwise each write of
//! a status raises the generation, and no condition could ever have observed it.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::api::ObjectBucketClaimStatus;
use crate::decide::claim::Claim;
use crate::decide::report::ConditionSupport;
use crate::reasons;

/// Whether conditions are kept, learnt from claims that have some and from the answers to writes.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: AtomicU8,
    /// Whether a write of a status raises the generation.
    raises_generation: AtomicU8,
    /// Only one claim at a time tries it out, and none before this time.
    pub(crate) asking: tokio::sync::Mutex<Option<tokio::time::Instant>>,
}

const UNKNOWN: u8 = 0;

const YES: u8 = 1;

const NO: u8 = 2;

impl Conditions {
    pub(crate) fn condition_support(&self) -> ConditionSupport {
        match self.known.load(Ordering::Relaxed) {
            YES => ConditionSupport::Yes,
            NO => ConditionSupport::No,
            _ => ConditionSupport::Unknown,
        }
    }

    /// Whether the condition Ready of a claim shows another generation than it should. A write of the status, which observes
    /// the claim's, cures that; and shows by its answer whether there can be such a generation.
    pub(crate) fn are_behind(&self, claim: &Claim) -> bool {
        let observed = claim.condition(reasons::READY).and_then(|ready| ready.observed_generation);
        observed.is_some_and(|observed| self.observed(claim).is_none_or(|generation| observed < generation))
    }

    /// Whether it is unknown if a claim has an edit that was not observed, or only a write of its status.
    pub(crate) fn may_be_behind(&self, claim: &Claim) -> bool {
        self.raises_generation.load(Ordering::Relaxed) == UNKNOWN && self.are_behind(claim)
    }

    /// The generation that conditions observe; `None` if each write of a status raises it. Tools do not wait for conditions
    /// without one.
    pub(crate) fn observed(&self, claim: &Claim) -> Option<i64> {
        claim.generation.filter(|_| self.raises_generation.load(Ordering::Relaxed) != YES)
    }

    /// A status was written; the claim had and has this generation.
    pub(crate) fn generation(&self, before: Option<i64>, after: Option<i64>) {
        self.raises_generation.store(if after > before { YES } else { NO }, Ordering::Relaxed);
    }

    /// The watch shows this status of a claim.
    pub(crate) fn shown(&self, status: &ObjectBucketClaimStatus) {
        if !status.conditions.is_empty() {
            self.known.store(YES, Ordering::Relaxed);
        }
    }

    /// Conditions were written, and the answer contained them or not.
    pub(crate) fn written(&self, came_back: bool) {
        self.known.store(if came_back { YES } else { NO }, Ordering::Relaxed);
    }
}
