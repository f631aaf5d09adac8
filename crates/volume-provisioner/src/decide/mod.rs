//! Pure functions of what was seen: no client, no `async`, no clock.

pub(crate) mod claim;
pub(crate) mod class;
pub(crate) mod created;
pub(crate) mod reclaim;
pub(crate) mod request;
pub(crate) mod retry;
pub(crate) mod trim;
