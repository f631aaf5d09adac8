//! Whether the cluster's CRD keeps a claim's `status.conditions`. If it prunes them, they must not be written again and
//! again; if it keeps them, missing conditions are restored. And whether it has a status of its own: otherwise each write of
//! a status raises the generation, and no condition could ever have observed it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::api::{Condition, ObjectBucketClaimStatus};
use crate::decide::claim::Claim;
use crate::decide::report::ConditionSupport;
use crate::reasons;

/// Whether conditions are kept, learnt from claims that have some and from the answers to writes.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: AtomicU8,
    /// Whether a write of a status raises the generation.
    raises_generation: AtomicU8,
    have_default: AtomicBool,
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

    /// Whether a claim has an edit that its condition Ready has not observed yet.
    pub(crate) fn are_behind(&self, claim: &Claim) -> bool {
        self.raises_generation.load(Ordering::Relaxed) == NO && has_not_observed(claim)
    }

    /// Whether a claim has such an edit, unless that is from a write of its status.
    pub(crate) fn may_be_behind(&self, claim: &Claim) -> bool {
        self.raises_generation.load(Ordering::Relaxed) == UNKNOWN && has_not_observed(claim)
    }

    /// Whether the CRD begins each claim with a condition.
    pub(crate) fn have_default(&self) -> bool {
        self.have_default.load(Ordering::Relaxed)
    }

    /// A status was written; the claim had and has this generation.
    pub(crate) fn generation(&self, before: Option<i64>, after: Option<i64>) {
        self.raises_generation.store(if after > before { YES } else { NO }, Ordering::Relaxed);
    }

    /// The watch shows this status of a claim.
    pub(crate) fn shown(&self, status: &ObjectBucketClaimStatus) {
        if status.conditions.iter().any(Condition::is_default) {
            self.have_default.store(true, Ordering::Relaxed);
        }
        if !status.conditions.is_empty() {
            self.known.store(YES, Ordering::Relaxed);
        }
    }

    /// Conditions were written, and the answer contained them or not.
    pub(crate) fn written(&self, came_back: bool) {
        self.known.store(if came_back { YES } else { NO }, Ordering::Relaxed);
    }
}

fn has_not_observed(claim: &Claim) -> bool {
    claim.condition(reasons::READY).is_some_and(|ready| ready.observed_generation < claim.generation)
}
