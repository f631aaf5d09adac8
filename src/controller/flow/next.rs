//! What follows a piece of work on a claim or a record.

use std::time::Duration;

use kube::runtime::controller::Action;

/// How long to wait for whoever works on the same claim.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

/// What follows a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something changes.
    Done,
    /// The next piece of the same work, after others had their turn.
    Now,
    /// Another look after a while.
    After(Duration),
}

impl From<Next> for Action {
    fn from(next: Next) -> Self {
        match next {
            Next::Done => Self::await_change(),
            Next::Now => Self::requeue(Duration::ZERO),
            Next::After(wait) => Self::requeue(wait),
        }
    }
}
