//! Waiting at a store that limits the rate of calls.
//!
//! A verb that waits for the rate limit occupies no worker: [`wait`] notifies the controller, which gives the worker to
//! other stores meanwhile, and does not count the time.

#[doc(hidden)]
pub use operator_runtime::engine::clock::{AttemptClock, Deadline};
pub use operator_runtime::engine::clock::{is_check, wait};
