//! What is done for a claim or a PersistentVolume, step by step.

pub(crate) mod attempt;
pub(crate) mod claim;
pub(crate) mod volume;
