//! What an [`Error`] means to the controller: its reason, whether a retry can help, and whether the store has changed.

use super::call::{Identity, Operation, Resource};
use super::error::{Error, Sent};
use crate::provisioner::Failure;
use crate::provisioner::FailureClass::{self, Retryable, Terminal};

impl Error {
    /// Marks an error of a step that only read: the store has not changed.
    pub(crate) fn untouched(self) -> Self {
        match self {
            Self::Untouched(_) => self,
            error => Self::Untouched(Box::new(error)),
        }
    }

    /// Marks an error of the first change of a verb: the store has not changed if it refused for good. A store that is
    /// busy or silent may have done what it was asked for; one that was never reached has not.
    pub(crate) fn of_first_change(self) -> Self {
        let never_sent =
            matches!(self, Self::CredentialsUnavailable { .. } | Self::StoreUnreachable { sent: Sent::No, .. });
        if never_sent || self.class() == Terminal { self.untouched() } else { self }
    }

    /// Removes the mark, in a verb that has changed something before.
    pub(crate) fn after_a_change(self) -> Self {
        match self {
            Self::Untouched(error) => *error,
            error => error,
        }
    }

    /// The error without the mark.
    fn cause(&self) -> &Self {
        match self {
            Self::Untouched(error) => error,
            error => error,
        }
    }

    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.cause(), Self::AccessDenied { .. })
    }

    fn reason_and_class(&self) -> (&'static str, FailureClass) {
        match self {
            Self::InvalidClassParameter { .. } => ("InvalidClassParameter", Terminal),
            Self::InvalidEnvironment(_) => ("InvalidEnvironment", Terminal),
            Self::InvalidBucketName { .. } => ("InvalidBucketName", Terminal),
            Self::BucketNameMissing { .. } => ("BucketNameMissing", Terminal),
            Self::BucketNotOfClass { .. } => ("BucketNotOfClass", Terminal),
            Self::NamespaceNotAllowed { .. } => ("NamespaceNotAllowed", Terminal),
            Self::BucketNameNotAllowed { .. } => ("BucketNameNotAllowed", Terminal),
            Self::InvalidOwnerSecret { .. } => ("InvalidOwnerSecret", Terminal),
            Self::NothingToShare => ("NothingToShare", Terminal),
            Self::CredentialsRefused { .. } => ("CredentialsRefused", Terminal),
            // The operator's own identity renews itself; a Secret waits for its admin.
            Self::CredentialsExpired { identity: Identity::Secret(_) } => ("CredentialsExpired", Terminal),
            Self::CredentialsExpired { .. } => ("CredentialsExpired", Retryable),
            Self::CredentialsUnavailable { .. } => ("CredentialsUnavailable", Retryable),
            Self::AccessDenied { .. } => ("AccessDenied", Terminal),
            Self::Throttled { .. } => ("Throttled", Retryable),
            Self::StoreUnreachable { .. } => ("StoreUnreachable", Retryable),
            Self::StoreFailing { .. } => ("StoreFailing", Retryable),
            Self::StoreBusy { .. } => ("StoreBusy", Retryable),
            Self::NotVisibleYet { .. } => ("NotVisibleYet", Retryable),
            Self::QuotaExceeded { .. } => ("QuotaExceeded", Terminal),
            Self::BucketTaken { .. } => ("BucketTaken", Terminal),
            Self::WrongRegion { .. } => ("WrongRegion", Terminal),
            Self::BucketMissing { .. } => ("BucketMissing", Terminal),
            Self::BucketClaimed { .. } => ("BucketClaimed", Terminal),
            Self::AccessStillWorks { .. } => ("AccessStillWorks", Retryable),
            Self::BucketGone { .. } => ("BucketGone", Terminal),
            Self::OwnershipLost { .. } => ("OwnershipLost", Terminal),
            Self::BucketNotFound { .. } => ("BucketNotFound", Retryable),
            Self::TagsNotKept { .. } => ("TagsNotKept", Terminal),
            Self::UserTaken { .. } => ("UserTaken", Terminal),
            Self::ObjectsNotDeleted { .. } => ("ObjectsNotDeleted", Terminal),
            Self::BucketNotEmpty { .. } => ("BucketNotEmpty", Retryable),
            Self::NotSupported { .. } => ("NotSupported", Terminal),
            Self::Rejected { .. } => ("Rejected", Terminal),
            Self::Untouched(error) => error.reason_and_class(),
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        self.reason_and_class().0
    }

    fn class(&self) -> FailureClass {
        self.reason_and_class().1
    }

    fn lost(&self) -> bool {
        matches!(self.cause(), Self::BucketMissing { .. } | Self::BucketGone { .. } | Self::OwnershipLost { .. })
    }

    fn concerns_all(&self) -> bool {
        match self.cause() {
            // A bucket can have a policy that denies the call, and the keys of a claim concern that claim only.
            Self::AccessDenied { call, .. } => {
                call.identity != Identity::App && !matches!(call.resource, Resource::Bucket(_))
            }
            Self::CredentialsRefused { identity, .. } => *identity != Identity::App,
            Self::QuotaExceeded { operation, .. } => {
                matches!(operation, Operation::CreateUser | Operation::CreateBucket)
            }
            error => matches!(
                error,
                Self::StoreUnreachable { .. } | Self::CredentialsExpired { .. } | Self::CredentialsUnavailable { .. }
            ),
        }
    }

    fn store_untouched(&self) -> bool {
        matches!(
            self,
            Self::Untouched(_)
                | Self::InvalidClassParameter { .. }
                | Self::InvalidEnvironment(_)
                | Self::InvalidBucketName { .. }
                | Self::BucketNameMissing { .. }
                | Self::BucketNotOfClass { .. }
                | Self::NamespaceNotAllowed { .. }
                | Self::BucketNameNotAllowed { .. }
                | Self::InvalidOwnerSecret { .. }
        )
    }
}
