//! One attempt, which cannot harm others.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;

use super::clock::{AttemptClock, Deadline};

/// Why an attempt has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It panicked.
    Panicked,
    /// It took too long, not counting its waits for the store's rate limit.
    Working,
    /// It waited too long for that.
    Waiting,
}

/// Does the work within `limit`. Whatever it does, its task continues: a panic for one object must not end the operator, and
/// kube's client has no limit on how long it reads.
///
/// # Errors
/// Why there is no result. The next attempt finishes what was interrupted.
pub async fn guarded<T>(clock: AttemptClock, limit: Duration, work: impl Future<Output = T>) -> Result<T, Interrupted> {
    match clock.within(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(done) => done.map_err(|_panic| Interrupted::Panicked),
        Err(Deadline::Working) => Err(Interrupted::Working),
        Err(Deadline::Waiting) => Err(Interrupted::Waiting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whatever_an_attempt_does_only_it_ends() {
        let (clock, limit) = (|| AttemptClock::new(false, |_| {}), Duration::from_secs(120));
        assert_eq!(guarded(clock(), limit, async { 1 }).await, Ok(1));
        let panics = async { panic!("a mistake") };
        assert_eq!(guarded::<()>(clock(), limit, panics).await, Err(Interrupted::Panicked));
        assert_eq!(guarded::<()>(clock(), limit, std::future::pending()).await, Err(Interrupted::Working));
    }
}
