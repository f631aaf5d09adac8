//! What each operator of Kubernetes needs, whatever it provides: one process works at a time, and shows how it does.
//!
//! | module | what it is for |
//! |---|---|
//! | [`lease`] | election of a leader, with a fence: calls of a process that has lost the lease are blocked |
//! | [`cluster`] | a client with time limits |
//! | [`engine`] | when anything runs: backoff, rechecks, one attempt at a time, and a queue that is fair to namespaces and stores |
//! | [`kubernetes`] | watches that never end, pages of bounded size, events |
//! | [`observe`] | whether the operator works, its metrics, and the spans of its traces |
//! | [`admin`] | the HTTP server of probes and metrics |
//! | [`parameters`], [`class`] | the parameters of a StorageClass as a typed struct, with their documentation |
//! | [`rbac`] | the objects that give an operator its permissions |
//! | [`program`], [`flags`], [`values`], [`telemetry`], [`signals`] | the program around it: flags, logs, signals |
//!
//! It knows neither buckets nor volumes: `bucket-provisioner` and `volume-provisioner` build on it.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admin;
mod calls;
pub mod class;
pub mod cluster;
pub mod engine;
pub mod flags;
pub mod kubernetes;
pub mod lease;
pub mod name;
pub mod observe;
pub mod parameters;
mod permit;
pub mod program;
pub mod rbac;
pub mod signals;
pub mod telemetry;
#[cfg(feature = "otel")]
pub mod traces;
pub mod values;

pub use self::class::ReclaimPolicy;
pub use self::parameters::{Parameter, ParameterError};
pub use self::permit::Permit;
