//! Reads and writes of Kubernetes objects, one file for each kind.

pub(crate) mod claims;
pub(crate) mod classes;
pub(crate) mod events;
pub(crate) mod nodes;
pub(crate) mod volumes;
