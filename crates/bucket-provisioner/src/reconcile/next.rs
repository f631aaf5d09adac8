//! When to continue with a claim or a record.

use std::time::Duration;

/// How long to wait while the same claim is processed elsewhere.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// When something changes.
    Done,
    /// At once, but after others in the queue.
    Now,
    /// After this time.
    After(Duration),
}

impl Next {
    /// After which time to continue; `None`: when something changes.
    pub(crate) fn wait(self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::Now => Some(Duration::ZERO),
            Self::After(wait) => Some(wait),
        }
    }
}
