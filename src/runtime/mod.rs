//! What any operator needs: leader election, logging, signals, and a client with timeouts.

pub mod cluster;
pub mod lease;
pub mod signals;
pub mod telemetry;
