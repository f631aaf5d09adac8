//! Whether the cluster's CRD keeps what is written into a claim's `status.conditions`. Some CRDs prune it, and what does
//! not come back must not be written again and again; where it is kept, a condition that somebody dropped comes back.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::api::ObjectBucketClaimStatus;
use crate::controller::decide::report::Keeps;

/// What was learnt of conditions, from claims that have some and from what became of those that were written.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    known: AtomicU8,
    /// One asks for all.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

const YES: u8 = 1;

const NO: u8 = 2;

impl Conditions {
    pub(crate) fn keeps(&self) -> Keeps {
        match self.known.load(Ordering::Relaxed) {
            YES => Keeps::Yes,
            NO => Keeps::No,
            _ => Keeps::Unknown,
        }
    }

    /// Takes in the status of a claim as the watch shows it.
    pub(crate) fn shown(&self, status: &ObjectBucketClaimStatus) {
        if !status.conditions.is_empty() {
            self.known.store(YES, Ordering::Relaxed);
        }
    }

    /// Takes in whether conditions came back that were written.
    pub(crate) fn written(&self, came_back: bool) {
        self.known.store(if came_back { YES } else { NO }, Ordering::Relaxed);
    }
}
