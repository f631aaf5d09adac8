//! The reconciler against an API server and a store in memory: each call at which it can be stopped or can fail. Time is
//! paused, so that no wait takes any. `tests/it/api_server.rs` holds a real API server to what is assumed of it here.
#![allow(clippy::expect_used)]

mod api_server;
mod calls;
mod crash;
mod edits;
mod faults;
mod flow;
mod orphans;
mod reports;
mod run;
mod schedule;
mod set_back;
mod stale;
mod store;
mod world;
