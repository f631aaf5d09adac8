//! Why a step failed: [`Failure`], and [`StoreError`] for stores that need no type of their own.

use std::fmt;

use super::parameter::ParameterError;
use super::reason::{Reason, Topic};

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureClass {
    /// It can: retried with backoff.
    Retryable,
    /// Nothing has failed: the store is still working, and the verb is called again every few seconds. The message says
    /// how far it is.
    InProgress,
    /// Somebody must change something first: rechecked rarely, and at once when an input changes.
    Terminal,
}

/// An error that a user can understand and act on.
///
/// `Display` is the sentence for conditions and events. It names the field, the value and the remedy, is the same for
/// the same cause (no request ids, no times), and contains no secret.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Machine-readable reason in CamelCase, for conditions and events.
    fn reason(&self) -> &'static str;
    /// Whether a retry can help.
    fn class(&self) -> FailureClass;
    /// True if the failed call has certainly changed nothing at the store. A record that was written just before such a
    /// call is withdrawn.
    fn store_untouched(&self) -> bool {
        false
    }
    /// True if all claims with this store and owner would fail in the same way, because the store does not answer or
    /// refuses the owner. After several such errors in a row, only one claim at a time calls that store.
    fn concerns_all(&self) -> bool {
        false
    }
    /// True if the claim has lost its bucket or its access, and not only a call has failed. This is reported on a bound
    /// claim, too.
    fn lost(&self) -> bool {
        false
    }
}

/// A [`Failure`] with a reason from a table. Its message is a sentence about this case, which names the field, the value
/// and the remedy.
///
/// ```
/// use bucket_provisioner::store::{Reason, StoreError, Topic};
///
/// const SHELF_FULL: Reason =
///     Reason::new("ShelfFull", Topic::Store, "there is no room for another bucket", "ask an admin for another shelf");
///
/// fn full(shelf: &str) -> StoreError {
///     StoreError::terminal(&SHELF_FULL, format!("shelf {shelf:?} is full; ask an admin for another one")).untouched()
/// }
///
/// assert_eq!(full("left").to_string(), "shelf \"left\" is full; ask an admin for another one");
/// ```
#[derive(Debug)]
pub struct StoreError {
    reason: &'static Reason,
    class: FailureClass,
    message: String,
    lost: bool,
    untouched: bool,
    concerns_all: bool,
}

impl StoreError {
    fn new(reason: &'static Reason, class: FailureClass, message: impl Into<String>) -> Self {
        Self { reason, class, message: message.into(), lost: false, untouched: false, concerns_all: false }
    }

    /// It may pass by itself: retried with backoff.
    pub fn retryable(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self::new(reason, FailureClass::Retryable, message)
    }

    /// Somebody must change something first.
    pub fn terminal(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self::new(reason, FailureClass::Terminal, message)
    }

    /// The bucket or the access that the claim had is gone, and cannot be repaired.
    pub fn lost(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self { lost: true, ..Self::new(reason, FailureClass::Terminal, message) }
    }

    /// The store is still working; the message says how far it is.
    pub fn in_progress(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self::new(reason, FailureClass::InProgress, message)
    }

    /// Marks an error of a verb that has certainly changed nothing; see [`Failure::store_untouched`].
    pub fn untouched(self) -> Self {
        Self { untouched: true, ..self }
    }

    /// Takes [`untouched`](Self::untouched) back, in a verb that has changed something before.
    pub fn after_a_change(self) -> Self {
        Self { untouched: false, ..self }
    }

    /// Marks an error that all claims with this store and owner would meet; see [`Failure::concerns_all`].
    pub fn concerns_all(self) -> Self {
        Self { concerns_all: true, ..self }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

impl Failure for StoreError {
    fn reason(&self) -> &'static str {
        self.reason.name
    }

    fn class(&self) -> FailureClass {
        self.class
    }

    fn store_untouched(&self) -> bool {
        self.untouched
    }

    fn concerns_all(&self) -> bool {
        self.concerns_all
    }

    fn lost(&self) -> bool {
        self.lost
    }
}

pub(crate) const UNREADABLE_PARAMETERS: Reason = Reason::new(
    "RecordedParametersUnreadable",
    Topic::Store,
    "the parameters that were recorded for the claim are not those of this version",
    "go back to the version that recorded them, or correct `spec.additionalState` of the ObjectBucket",
);

/// For verbs that read [the recorded parameters](super::Record::parameters).
impl From<ParameterError> for StoreError {
    fn from(error: ParameterError) -> Self {
        Self::terminal(&UNREADABLE_PARAMETERS, format!("what is recorded cannot be used: {error}"))
    }
}
