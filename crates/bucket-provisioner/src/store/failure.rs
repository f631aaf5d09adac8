//! Why a step failed: [`Failure`], and [`StoreError`] for stores that need no type of their own.

use std::fmt;
use std::time::Duration;

use super::reason::Reason;

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureClass {
    /// It can: retried with backoff.
    Retryable,
    /// Nothing has failed: the store is still working, and the verb is called again every few seconds. The message
    /// shows the progress.
    InProgress,
    /// Something must be corrected first: rechecked rarely, and at once when an input changes.
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
    /// How long a retry cannot help, such as until a lock ends; the message names that. `None`: it is retried with backoff.
    fn retry_after(&self) -> Option<Duration> {
        None
    }
    /// Whether all claims with this store and these provisioning credentials would fail in the same way, because the
    /// store does not answer or refuses the credentials. After several such errors in a row, only one claim at a time
    /// calls that store.
    fn affects_all_claims(&self) -> bool {
        false
    }
    /// Whether the claim has lost its bucket or its access, and not only a call has failed. This is reported on a bound
    /// claim, too.
    fn is_lost(&self) -> bool {
        false
    }
}

/// Why a bucket or an access was not created. `?` makes [`Failed`](Self::Failed) of every other error, which is always safe.
#[derive(Debug, thiserror::Error)]
pub enum CreateError<E> {
    /// The store has refused, or was never reached: **this call has certainly changed nothing**. An ObjectBucket that
    /// was just written is deleted, so that the claim can be deleted without the store. The library knows whether this
    /// holds for both verbs of a creation.
    #[error(transparent)]
    Refused(E),
    /// Something may have been created. The ObjectBucket is kept; the next call or a deletion finds what was created.
    #[error(transparent)]
    Failed(#[from] E),
}

/// For verbs that only read, or for which it does not matter what has changed: `?` drops the distinction.
impl From<CreateError<StoreError>> for StoreError {
    fn from(error: CreateError<StoreError>) -> Self {
        error.into_inner()
    }
}

impl<E> CreateError<E> {
    /// The error of the store.
    pub fn into_inner(self) -> E {
        match self {
            Self::Refused(error) | Self::Failed(error) => error,
        }
    }

    /// The same after another verb has changed something.
    pub(super) fn after_a_change(self) -> Self {
        Self::Failed(self.into_inner())
    }
}

/// A [`Failure`] with a reason from a table. Its message is a sentence about this case, which names the field, the value
/// and the remedy.
///
/// ```
/// use bucket_provisioner::store::{Reason, StoreError, Topic};
///
/// const SHELF_FULL: Reason =
///     Reason::new("ShelfFull", Topic::Store).meaning("there is no room for another bucket").remedy("ask an admin for another shelf");
///
/// fn full(shelf: &str) -> StoreError {
///     StoreError::terminal(&SHELF_FULL, format!("shelf {shelf:?} is full; ask an admin for another one"))
/// }
///
/// assert_eq!(full("left").to_string(), "shelf \"left\" is full; ask an admin for another one");
/// ```
#[derive(Debug)]
pub struct StoreError {
    reason: &'static Reason,
    class: FailureClass,
    message: String,
    is_lost: bool,
    affects_all_claims: bool,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    fn new(reason: &'static Reason, class: FailureClass, message: impl Into<String>) -> Self {
        Self { reason, class, message: message.into(), is_lost: false, affects_all_claims: false, source: None }
    }

    /// It may pass by itself: retried with backoff.
    pub fn retryable(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self::new(reason, FailureClass::Retryable, message)
    }

    /// Something must be corrected first.
    pub fn terminal(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self::new(reason, FailureClass::Terminal, message)
    }

    /// The bucket or the access that the claim had no longer exists, and cannot be repaired.
    pub fn lost(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self { is_lost: true, ..Self::new(reason, FailureClass::Terminal, message) }
    }

    /// The store is still working; the message shows the progress.
    pub fn in_progress(reason: &'static Reason, message: impl Into<String>) -> Self {
        Self::new(reason, FailureClass::InProgress, message)
    }

    /// Marks an error that all claims with this store and owner would meet; see [`Failure::affects_all_claims`].
    pub fn for_all_claims(self) -> Self {
        Self { affects_all_claims: true, ..self }
    }

    /// With the error that caused it. It is logged at DEBUG, and never written on a claim, because it may differ between
    /// attempts.
    pub fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { source: Some(source.into()), ..self }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl Failure for StoreError {
    fn reason(&self) -> &'static str {
        self.reason.name
    }

    fn class(&self) -> FailureClass {
        self.class
    }

    fn affects_all_claims(&self) -> bool {
        self.affects_all_claims
    }

    fn is_lost(&self) -> bool {
        self.is_lost
    }
}
