//! Write a provisioner for ObjectBucketClaims by implementing four verbs.
//!
//! A user of a Kubernetes cluster requests a bucket with an ObjectBucketClaim; an admin's
//! StorageClass defines where buckets come from. This crate does everything in between that is the same
//! for every store, and leaves what differs to a [`Provisioner`]: `create_bucket`, `grant`, `revoke`, `delete_bucket`.
//!
//! - [`store`]: the trait, and the types it uses. Start here to support another store.
//! - [`api`]: what is on the wire: claims, ObjectBuckets, constants. The CRDs are generated from it.
//! - [`controller`]: the reconciler. It knows Kubernetes and the trait, never a store.
//! - [`Operator`]: all of it as a program, in one call, with the commands that an admin asks.
//!
//! The shape of an operator:
//!
//! ```no_run
//! use bucket_provisioner::store::{
//!     AccessRemoval, AppCredentials, BucketRemoval, Call, Content, CreateError, Endpoint, StoreError,
//! };
//! use bucket_provisioner::{Operator, Provisioner};
//!
//! struct Store;
//!
//! impl Provisioner for Store {
//!     type Parameters = ();
//!     type Owner = ();
//!     type Error = StoreError;
//!
//!     fn endpoint(&self, (): &()) -> Endpoint {
//!         Endpoint::new("store.example.com", 443)
//!     }
//!
//!     async fn create_bucket(&self, call: &Call<'_, Self>) -> Result<(), CreateError<StoreError>> {
//!         todo!("create {}, marked with {}", call.bucket(), call.record.claim.uid)
//!     }
//!
//!     async fn grant(&self, call: &Call<'_, Self>) -> Result<AppCredentials, CreateError<StoreError>> {
//!         todo!("create {}, limited to {}, and return its keys", call.user(), call.bucket())
//!     }
//!
//!     async fn revoke(&self, call: &Call<'_, Self>) -> Result<AccessRemoval, StoreError> {
//!         todo!("delete {}, if it is the claim's", call.user())
//!     }
//!
//!     async fn delete_bucket(&self, call: &Call<'_, Self>, content: Content) -> Result<BucketRemoval, StoreError> {
//!         todo!("delete {}, if it is the claim's", call.bucket())
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     Operator::new("example.com/store").run_with(Store)
//! }
//! ```
//!
//! The tutorial, `docs/writing-a-provisioner.md` in the repository, builds an operator for a store that speaks HTTP, with
//! class parameters, a Secret with provisioning credentials, and errors by status: `examples/http-provisioner`. `provisioner-conformance` has the
//! tests that an operator for a store has to pass.
//!
//! # Versions
//! `k8s-openapi`, `kube` and `schemars` are part of this crate's API and re-exported, so that there is nothing to keep in
//! step. A new major version of one of them is a new major version of this crate.
//!
//! # Feature flags
//! `otel`, on by default: traces for OpenTelemetry, and `--otlp-endpoint`; 15 more crates.
//!
//! # Which module imports which
//! ```text
//! cli ─► controller ─► triggers ─► streams ─► gauges ─► reconcile ─► objects ─► state ─► decide ─► error ─► refusal, options, reasons ─► store, api
//! ```
//! The folders define what a file may access, and each imports only those to its right: `reconcile` is the work on a
//! claim or an ObjectBucket, step by step; `objects` reads and writes Kubernetes objects; `state` is what all
//! reconciles share; `decide` is pure.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
/// The crates whose types this one's API has, in the versions that fit. `#[schemars(crate =
/// "bucket_provisioner::schemars")]` on a struct of parameters makes its derive use this one.
pub use {k8s_openapi, kube, schemars};

pub use operator_runtime::flags::NoFlags;
pub use store::Provisioner;
