//! Calls to AWS: clients, connections, credentials, how fast an account may be called, and what an answer means.

pub(crate) mod account;
pub mod call;
pub(crate) mod clients;
pub(crate) mod clock;
pub(crate) mod codes;
pub mod error;
pub(crate) mod failure;
pub(crate) mod http;
pub(crate) mod limiter;
pub(crate) mod lock;
pub mod owner;
pub(crate) mod quota;
pub(crate) mod remedy;
pub(crate) mod session;
pub(crate) mod store;
pub(crate) mod sts;
