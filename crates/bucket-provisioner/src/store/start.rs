//! What a store has to know of its operator.

use operator_runtime::Permit;

use super::observer::Observer;

/// What a store has to know when it is made; see [`Operator::run`](crate::Operator::run). For stores that are used without
/// an `Operator`, [`Options::start`](crate::controller::Options::start) makes it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Start {
    /// `StorageClass.provisioner` of the classes that are served: to mark what is created.
    pub provisioner_name: String,
    /// Whether this process may call the store.
    pub permit: Permit,
    /// Whether claims are served. Otherwise a command only reads, perhaps beside an operator that serves.
    pub serves: bool,
    /// Metrics and traces: a store can count its calls there.
    pub observer: Observer,
}
