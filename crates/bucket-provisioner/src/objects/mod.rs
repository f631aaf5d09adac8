//! Reads and writes of Kubernetes objects, one file for each kind. Nothing is decided here.

pub(crate) mod claims;
pub(crate) mod classes;
pub(crate) mod cluster;
pub(crate) mod conditions;
pub(crate) mod crds;
pub(crate) mod deletion;
pub(crate) mod events;
pub(crate) mod namespaces;
pub(crate) mod outputs;
pub(crate) mod record_lookup;
pub(crate) mod records;
pub(crate) mod status;
pub(crate) mod tokens;
