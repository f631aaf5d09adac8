//! What an admin configures: the parameters of a class, the environment; and what follows from them for a claim.

pub(crate) mod environment;
pub(crate) mod names;
pub(crate) mod namespace;
pub mod oidc;
pub mod params;
pub(crate) mod plan;
pub mod pod_identity;
pub(crate) mod region;
pub(crate) mod target;
pub mod values;
