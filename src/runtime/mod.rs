//! What any operator needs: election of one of several processes, logging and signals.

pub mod cluster;
pub mod lease;
pub mod signals;
pub mod telemetry;
