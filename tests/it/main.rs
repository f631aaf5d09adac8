//! Tests against a real API server and an emulated AWS: `hack/test.sh` starts both and runs them.
//!
//! Each test has a world of its own (namespace, provisioner name, classes, proxies) on the shared stack,
//! so all of them run at the same time.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

mod access;
mod accounts;
mod admin;
mod admission;
mod adopt_command;
mod adoption;
mod another_store;
mod api_server;
mod aws_check;
mod bad_input;
mod bucket_claims;
mod chaos;
mod classes;
mod conformance;
mod connections;
mod content;
mod cost;
mod crash;
mod crds;
mod damage;
mod directory;
mod doctor;
mod faults;
mod foreign;
mod guides;
mod keyless;
mod leader;
mod lifecycle;
mod memory;
mod moto;
mod names;
mod namespaces;
mod neighbours;
mod object_lock;
mod orphans;
mod orphans_command;
mod outputs;
mod owner_policy;
mod owner_role;
mod permissions;
mod proxies;
mod purge;
mod queue;
mod repair;
mod seaweedfs;
mod secrecy;
mod settings;
mod settings_drift;
mod sharing;
mod shells;
mod shutdown;
mod stale;
mod status;
mod takeover;
mod tenants;
mod traces;
mod undo_delete;
mod upkeep;
mod volumes;
mod waiting;
