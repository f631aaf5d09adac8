//! What any operator needs: leader election, logging, signals, and a client with timeouts.

pub mod cluster;
pub(crate) mod flags;
pub mod lease;
pub(crate) mod program;
pub mod signals;
pub mod telemetry;
pub(crate) mod values;
