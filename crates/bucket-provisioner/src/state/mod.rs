//! What all reconciles share, and what they remember.

pub(crate) mod cache;
pub(crate) mod caches;
pub(crate) mod conditions;
pub(crate) mod context;
pub(crate) mod crds;
pub(crate) mod memory;
pub(crate) mod orphans;
pub(crate) mod owner_secrets;
pub(crate) mod propagation;
pub(crate) mod records;
pub(crate) mod stores;
pub(crate) mod unlabelled;
