//! Whether the cluster's CRD keeps a claim's `status.conditions`. If it prunes them, they must not be written again and
//! again; if it keeps them, missing conditions are restored.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::api::ObjectBucketClaimStatus;
use crate::decide::report::ConditionSupport;

/// Whether conditions are kept, learnt from claims that have some and from the answers to writes.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: AtomicU8,
    /// Only one claim at a time tries it out.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

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
