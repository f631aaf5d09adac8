//! What any operator needs: logging and signals.

pub mod signals;
pub mod telemetry;
