//! What decides: pure functions of what was seen. Nothing here has a client, waits, or reads a clock.

pub(crate) mod legacy;
pub(crate) mod lookup;
pub(crate) mod orphan;
pub(crate) mod record;
pub(crate) mod removal;
#[cfg(test)]
pub(crate) mod testing;
