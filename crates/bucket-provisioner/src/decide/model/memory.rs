//! The memory of a process in the model.

use super::world::{Key, Uid};

/// What a process remembers, and a crash forgets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) about: Uid,
    /// Version of the claim after our last write of it.
    pub(super) written: u8,
    /// The store was asked to create something a short time ago.
    pub(super) executed: bool,
    /// The process is older than the lag of IAM's reads.
    pub(super) settled: bool,
    pub(super) removed: Option<Removed>,
    pub(super) pending_key: Option<Key>,
    /// How often keys were refused in a row: at 2 and 4, `backoff::are_doubtful` is true.
    pub(super) refused: u8,
    /// The watch has shown that this claim was deleted without the operator.
    pub(super) vanished: Option<Uid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Removed {
    AllButFinalizer,
    Everything,
}

impl Memory {
    pub(super) fn time_passes(&mut self) {
        self.settled = true;
        self.executed = false;
    }
}
