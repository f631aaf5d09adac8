//! All decisions, as pure functions. Nothing here has a client, waits, or reads a clock.

pub(crate) mod access;
pub(crate) mod action;
pub(crate) mod backoff;
pub(crate) mod claim;
pub(crate) mod class;
pub(crate) mod codec;
pub(crate) mod edit;
pub(crate) mod ignored;
pub(crate) mod keys;
pub(crate) mod legacy;
pub(crate) mod lookup;
pub(crate) mod metadata;
#[cfg(test)]
mod model;
pub(crate) mod moving;
pub(crate) mod notice;
pub(crate) mod orphan;
pub(crate) mod output_data;
pub(crate) mod output_metadata;
pub(crate) mod ownership;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod request;
pub(crate) mod sample;
pub(crate) mod service_account;
pub(crate) mod settings;
pub(crate) mod shared_name;
pub(crate) mod sharing;
pub(crate) mod steps;
pub(crate) mod store_outputs;
pub(crate) mod teardown;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod upkeep;
