//! Write a provisioner for ObjectBucketClaims by implementing four verbs.
//!
//! A user of a Kubernetes cluster submits an ObjectBucketClaim ("a bucket, please"); an admin's
//! StorageClass says where buckets come from. This crate does everything in between that is the same
//! for every store, and leaves what differs to a [`Provisioner`]: provision, grant, revoke, delete.
//!
//! - [`provisioner`]: the trait, and the words it uses. Start here to support another store.
//! - [`api`]: what is on the wire: claims, bucket records, constants. The CRDs are generated from it.
//! - [`controller`]: the reconciler. It knows Kubernetes and the trait, never a store.
//! - `aws` (feature `aws`, on by default): buckets on S3, users in IAM. It never imports the controller.
//! - `conformance` (feature `conformance`): the tests that an operator for another store has to pass, too.
//! - `volume` (feature `volume`): the same for PersistentVolumes, with two verbs: provision and delete.
//! - [`runtime`]: what any operator needs: election of a leader, logging, signals, probes and metrics.
//! - [`Operator`]: all of it as a program, in one call, with the commands that an admin asks.
//!
//! The operator for AWS is the shortest example:
//!
//! ```no_run
//! # #[cfg(feature = "aws")]
//! fn main() -> std::process::ExitCode {
//!     use bucket_provisioner::Operator;
//!     use bucket_provisioner::aws::{AwsProvisioner, PROVISIONER_NAME};
//!
//!     Operator::new(PROVISIONER_NAME, AwsProvisioner::new()).run()
//! }
//! # #[cfg(not(feature = "aws"))]
//! # fn main() {}
//! ```
//!
//! # Feature flags
//! | flag | what it adds | crates, as `cargo tree --edges normal` counts them |
//! |---|---|---|
//! | none (`--no-default-features`) | the trait, the controller and [`Operator`], for a store of your own; nothing of the AWS SDK is built | 195 |
//! | `aws`, on by default | the module `aws`, and the binary of this package | 84 more: the SDK |
//! | `otel`, on by default | traces for OpenTelemetry, and `--otlp-endpoint` | 15 more |
//! | `volume` | the module `volume`, for provisioners of PersistentVolumes | none |
//! | `conformance` | the module `conformance`; for `[dev-dependencies]`, since no operator needs it | none |
//!
//! The flags only add: what compiles without one compiles with it.

pub mod api;
#[cfg(feature = "aws")]
pub mod aws;
mod commands;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod controller;
#[cfg(all(test, feature = "aws"))]
mod documents;
mod kubernetes;
mod observe;
mod operator;
pub mod provisioner;
pub mod runtime;
#[cfg(feature = "volume")]
pub mod volume;

pub use operator::Operator;
pub use provisioner::Provisioner;
