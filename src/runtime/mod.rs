//! What any operator needs: leader election, logging, signals, and a client with timeouts.

pub(crate) mod admin;
mod calls;
pub mod cluster;
pub(crate) mod flags;
pub mod lease;
pub(crate) mod program;
pub mod signals;
pub mod telemetry;
#[cfg(feature = "otel")]
pub(crate) mod traces;
pub(crate) mod values;

pub use crate::observe::Observer;
