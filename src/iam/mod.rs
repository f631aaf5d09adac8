//! Users in IAM: created, limited by a policy, given keys, removed; and roles of ServiceAccounts, and their associations in EKS.

pub(crate) mod association;
pub(crate) mod document;
mod eks;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod revoke;
pub(crate) mod role;
mod session;
pub(crate) mod session_policy;
pub(crate) mod upkeep;
pub(crate) mod user;
pub(crate) mod web_identity;
