//! The work on a claim or a record, step by step: read, decide, write.

pub(crate) mod claim;
pub(crate) mod in_sync;
pub(crate) mod new_keys;
pub(crate) mod next;
pub(crate) mod orphans;
pub(crate) mod owner;
pub(crate) mod previous_access;
pub(crate) mod problem;
pub(crate) mod provide;
pub(crate) mod queue;
pub(crate) mod recall;
pub(crate) mod step;
pub(crate) mod takeover;
pub(crate) mod teardown;
pub(crate) mod undo;
