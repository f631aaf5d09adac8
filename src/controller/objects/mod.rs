//! Reading and writing objects of Kubernetes, one kind each. Nothing here decides.

pub(crate) mod conditions;
pub(crate) mod record;
