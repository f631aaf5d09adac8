//! When does anything run? Four questions, in this order, for each object of each kind:
//!
//! ```text
//!  a change, a wake-up, a time            ┌──────────────────────────── when again? ◄─────────┐
//!        │                                ▼                                                   │
//!        ▼               no         it still waits?     no      who is next?     how fast?    │
//!  is it in sync? ──────────────► one attempt at a time ────► a worker ────────► the attempt ─┘
//!        │ yes                        (Schedule, Table)         (Workers)      (clock, guarded)
//!        ▼
//!  when again? (Table::recheck_in)
//! ```
//!
//! 1. *Is it in sync?* A pure function of the caches, one for each kind of object; this module does not know it.
//! 2. *When again?* A [`Schedule`] for each object, in a [`Table`] for each kind: the wait after a failure, which ends early
//!    when its [`Inputs`] change or something wakes it; the next recheck; one attempt at a time; and whether the cache is
//!    behind the last write.
//! 3. *Who is next?* [`Workers`], one queue for all kinds: stores have shares, namespaces are served round robin, and three
//!    priorities. A store that does not answer has one worker at a time: its circuit breaker.
//! 4. *How fast?* The store's own rate limiter; [`clock`] reports its waits to the engine. An attempt that waits for it
//!    occupies no worker. [`guarded`] ends an attempt that takes too long or panics, and no other.
//!
//! Each kind has a controller of kube, which merges the changes of an object, and calls these in turn.

pub mod clock;
mod guarded;
mod schedule;
mod table;
mod workers;

pub use self::guarded::{Interrupted, guarded};
pub use self::schedule::{Inputs, Schedule, hash};
pub use self::table::{Claimed, Remembered, Table};
pub use self::workers::{InFlight, Load, QueueKey, Slowed, Urgency, Worker, Workers};
