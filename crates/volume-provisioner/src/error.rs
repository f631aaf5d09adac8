//! Why a verb failed: [`VolumeError`].

use std::fmt;
use std::sync::Arc;

/// Why a verb failed. The text is a sentence for the user: it names the field, the value and the remedy, is the same for the
/// same cause, and contains no secret.
#[derive(Debug, Clone)]
pub struct VolumeError {
    kind: VolumeErrorKind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// How a verb that failed is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VolumeErrorKind {
    /// It may pass by itself: retried with backoff. Something may have been begun, so the claim is held until then.
    Retryable,
    /// It may pass by itself: retried with backoff. Nothing is left behind, so the claim is released meanwhile.
    Refused,
    /// Somebody must change something first: retried when the claim or its class changes. Nothing is left behind.
    Terminal,
    /// The volume cannot be on the node that the scheduler selected: another one is selected. Nothing is left behind.
    /// Where no node was selected, this is terminal.
    WrongNode,
    /// Nothing has failed: the store is still working. The verb is called again, and these calls are not counted.
    InProgress,
    /// The volume is another instance's. Nothing is done, and no event is published.
    Ignored,
}

impl VolumeErrorKind {
    /// Whether there is nothing of a volume that could not be provisioned.
    pub(crate) fn leaves_nothing(self) -> bool {
        match self {
            Self::Refused | Self::Terminal | Self::WrongNode | Self::Ignored => true,
            Self::Retryable | Self::InProgress => false,
        }
    }
}

impl VolumeError {
    fn new(kind: VolumeErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// It may pass by itself, and there is nothing of this volume, such as when the store has no room. The claim is
    /// released until it is tried again, so it can be deleted, and other instances can have it.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Refused, message)
    }

    /// It may pass by itself: retried with backoff.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Retryable, message)
    }

    /// Somebody must change something first, and nothing is left behind.
    pub fn terminal(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Terminal, message)
    }

    /// The volume cannot be on the selected node, and nothing is left behind.
    pub fn wrong_node(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::WrongNode, message)
    }

    /// The store is still working. The message shows its progress.
    pub fn in_progress(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::InProgress, message)
    }

    /// The volume is another instance's.
    pub fn ignored(message: impl Into<String>) -> Self {
        Self::new(VolumeErrorKind::Ignored, message)
    }

    /// With the error that caused it. It is logged at DEBUG, and never written on a claim.
    #[must_use]
    pub fn with_source(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// How the verb is retried.
    pub fn kind(&self) -> VolumeErrorKind {
        self.kind
    }
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VolumeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The cause does not count: it may differ between attempts.
impl PartialEq for VolumeError {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.message) == (other.kind, &other.message)
    }
}

impl Eq for VolumeError {}
