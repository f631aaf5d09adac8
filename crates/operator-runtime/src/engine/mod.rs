//! When does anything run? The same questions for each object of each kind:
//!
//! ```text
//!  a change, a wake-up, a time ◄──────────────────────────────────── when again? ◄───┐
//!        │                                                                           │
//!        ▼                no                    no                                   │
//!  is it in sync? ──────────► does it wait? ──────────► who is next? ──► the attempt ┘
//!        │ yes                     │ yes                 Workers          one at a time: Table::begin
//!        ▼                         ▼                                      guarded, clock: how fast
//!  recheck_in (claims)         when again?
//! ```
//!
//! 1. *Is it in sync?* A function of the caches and of what is remembered, one for each kind of object; this module does not
//!    know it. A cache that is behind the last write is not asked.
//! 2. *When again?* A [`Schedule`] for each object, in a [`Table`]: the wait after a failure, which ends early when its
//!    [`Inputs`] change, or when something wakes it; the next recheck, if it has one; one attempt at a time. A schedule has
//!    the times. [`run`] has the timer of waits, and reconciles each object one at a time; [`Table::due`] is that of
//!    rechecks.
//! 3. *Who is next?* [`Workers`], one queue in a process: stores have shares, namespaces are served round robin, and there are
//!    three priorities. A store that three times in a row did not answer, or refused the credentials, has one worker at a
//!    time: its circuit breaker. After [`Workers::close`] nobody gets one, so that the process can end.
//! 4. *How fast?* The rate limiter of the store, if it has one; [`clock`] reports its waits to the engine. An attempt that
//!    waits for a rate that is known leaves its worker to other stores. [`guarded`] ends an attempt that takes too long or
//!    panics, and no other; what panics outside of attempts, [`run`] repeats after a minute.
//!
//! | kind | triggers | what is its own |
//! |---|---|---|
//! | claim | [`run`] | while it waits for new keys to work, it has no worker |
//! | ObjectBucket | [`run`] | only a few are checked, those that may have lost their claim, four at a time; a check has no worker, only a removal does; that excludes an attempt of the claim |
//! | PersistentVolumeClaim, PersistentVolume | [`run`], for each kind | one table for both; the store of the queue is the StorageClass |

pub mod clock;
mod guarded;
mod runner;
mod schedule;
mod table;
mod workers;

pub use self::guarded::{Interrupted, guarded};
pub use self::runner::{Reconcile, Triggered, received, run};
pub use self::schedule::{Inputs, Schedule, hash};
pub use self::table::{Claimed, Remembered, Table, version_number};
pub use self::workers::{InFlight, Load, QueueKey, Slowed, Urgency, Worker, Workers};
