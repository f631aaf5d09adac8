//! Write a provisioner for ObjectBucketClaims by implementing four verbs.
//!
//! A user of a Kubernetes cluster submits an ObjectBucketClaim ("a bucket, please"); an admin's
//! StorageClass says where buckets come from. This crate does everything in between that is the same
//! for every store, and leaves what differs to a [`Provisioner`]: provision, grant, revoke, delete.
//!
//! - [`store`]: the trait, and the types it uses. Start here to support another store.
//! - [`api`]: what is on the wire: claims, ObjectBuckets, constants. The CRDs are generated from it.
//! - [`controller`]: the reconciler. It knows Kubernetes and the trait, never a store.
//! - [`Operator`]: all of it as a program, in one call, with the commands that an admin asks.
//!
//! The operator for AWS is the shortest example:
//!
//! ```text
//! fn main() -> std::process::ExitCode {
//!     Operator::new("aws-s3.io/bucket").run(AwsProvisioner::start)
//! }
//! ```
//!
//! `provisioner-conformance` has the tests that an operator for a store has to pass.
//!
//! # Feature flags
//! `otel`, on by default: traces for OpenTelemetry, and `--otlp-endpoint`; 15 more crates.
//!
//! # Who may import whom
//! ```text
//! cli ─► controller ─► triggers ─► streams ─► gauges ─► reconcile ─► objects ─► state ─► decide ─► error ─► refusal, options, reasons ─► store, api
//! ```
//! The folders say what a file may touch, and each imports only those to its right: `reconcile` is the work on a claim or an
//! ObjectBucket, step by step; `objects` reads and writes Kubernetes objects; `state` is what all reconciles share;
//! `decide` is pure.

pub mod api;
mod cli;
pub mod controller;
mod decide;
mod error;
mod gauges;
mod metrics;
mod objects;
mod options;
mod reasons;
mod reconcile;
mod refusal;
mod state;
pub mod store;
mod streams;
mod triggers;

pub use cli::Operator;
pub use operator_runtime::flags::NoFlags;
pub use store::Provisioner;
