//! Why a step failed.

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// It can: retried with backoff.
    Retryable,
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
