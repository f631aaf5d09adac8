//! What is done for a claim or a record, step by step: reads, has something decided, writes.

pub(crate) mod adoption;
pub(crate) mod find;
pub(crate) mod orphans;
pub(crate) mod recall;
