//! What an [`Error`] means to the controller: its reason, whether a retry can help, and whether the store has changed.

use std::time::Duration;

use crate::client::call::{Identity, Operation, Resource, Service};
use crate::client::error::{Error, Sent, SetBy};
use crate::client::lock::Lock;
use crate::reasons;
use bucket_provisioner::store::Failure;
use bucket_provisioner::store::FailureClass::{self, Retryable, Terminal};

impl Error {
    /// Marks an error of a step that only read: the store has not changed.
    pub(crate) fn without_side_effects(self) -> Self {
        match self {
            Self::NoSideEffects(_) => self,
            error => Self::NoSideEffects(Box::new(error)),
        }
    }

    /// Marks an error of the first change of a verb: the store has not changed if it refused for good. A store that is
    /// busy or silent may have done what it was asked for; one that was never reached has not.
    pub(crate) fn of_first_change(self) -> Self {
        let never_sent = matches!(
            self,
            Self::CredentialsUnavailable { .. } | Self::NotAssumed(_) | Self::StoreUnreachable { sent: Sent::No, .. }
        );
        if never_sent || self.class() == Terminal { self.without_side_effects() } else { self }
    }

    /// `Ok`, without the mark, if the store has not changed.
    pub(crate) fn changed_nothing(self) -> Result<Self, Self> {
        match self {
            Self::NoSideEffects(error) => Ok(*error),
            error @ (Self::InvalidEnvironment(_) | Self::PrefixTooLong { .. }) => Ok(error),
            error => Err(error),
        }
    }

    /// The error without the mark.
    fn cause(&self) -> &Self {
        match self {
            Self::NoSideEffects(error) | Self::NotAssumed(error) => error.cause(),
            error => error,
        }
    }

    pub(crate) fn is_denied(&self) -> bool {
        matches!(self.cause(), Self::AccessDenied { .. })
    }

    fn reason_and_class(&self) -> (&'static str, FailureClass) {
        match self {
            Self::InvalidEnvironment(_) => (reasons::INVALID_ENVIRONMENT, Terminal),
            Self::PrefixTooLong { .. } => (reasons::PREFIX_TOO_LONG, Terminal),
            Self::SettingRefused { place: SetBy::Claim, .. } => ("InvalidSetting", Terminal),
            Self::SettingRefused { place: SetBy::Class, .. } => ("InvalidClassParameter", Terminal),
            Self::SettingUnusable { .. } => ("InvalidSetting", Terminal),
            Self::OidcProviderMissing => (reasons::OIDC_PROVIDER_MISSING, Terminal),
            Self::OidcProviderMismatch { .. } => (reasons::OIDC_PROVIDER_MISMATCH, Terminal),
            Self::ProviderElsewhere => (INVALID_CLASS_PARAMETER, Terminal),
            Self::RoleTaken { .. } => (reasons::ROLE_TAKEN, Terminal),
            Self::RoleFull { .. } => (reasons::ROLE_FULL, Terminal),
            Self::AssociationTaken { .. } => (reasons::ASSOCIATION_TAKEN, Terminal),
            Self::AssociationFull { .. } => (reasons::ASSOCIATION_FULL, Terminal),
            Self::PodRoleRefused { .. } => (reasons::POD_ROLE_REFUSED, Terminal),
            Self::ClusterElsewhere => (INVALID_CLASS_PARAMETER, Terminal),
            Self::KeyUnusable { .. } => (reasons::KEY_UNUSABLE, Terminal),
            Self::PrefixIgnored { .. } => (reasons::NOT_SUPPORTED, Terminal),
            Self::NothingToShare => (reasons::NOTHING_TO_SHARE, Terminal),
            Self::CredentialsRefused { .. } => (reasons::CREDENTIALS_REFUSED, Terminal),
            // The operator's own identity renews itself; a Secret waits for its admin.
            Self::CredentialsExpired { identity: Identity::Secret(_) } => (reasons::CREDENTIALS_EXPIRED, Terminal),
            Self::CredentialsExpired { .. } => (reasons::CREDENTIALS_EXPIRED, Retryable),
            Self::CredentialsUnavailable { .. } => (reasons::CREDENTIALS_UNAVAILABLE, Retryable),
            Self::OwnerRoleRefused { .. } => (reasons::OWNER_ROLE_REFUSED, Terminal),
            Self::AccessDenied { .. } => (reasons::ACCESS_DENIED, Terminal),
            Self::Throttled { .. } => (reasons::THROTTLED, Retryable),
            Self::StoreUnreachable { .. } => (reasons::STORE_UNREACHABLE, Retryable),
            Self::StoreFailing { .. } => (reasons::STORE_FAILING, Retryable),
            Self::StoreBusy { .. } => (reasons::STORE_BUSY, Retryable),
            Self::NotVisibleYet { .. } => (reasons::NOT_VISIBLE_YET, Retryable),
            Self::QuotaExceeded { .. } => (reasons::QUOTA_EXCEEDED, Terminal),
            Self::BucketTaken { .. } => (reasons::BUCKET_TAKEN, Terminal),
            Self::WrongRegion { .. } => (reasons::WRONG_REGION, Terminal),
            Self::OtherNamespace { .. } | Self::NotInNamespace { .. } => (INVALID_CLASS_PARAMETER, Terminal),
            Self::NamespacesUnknown { .. } => (reasons::NOT_SUPPORTED, Terminal),
            Self::BucketMissing { .. } => (reasons::BUCKET_MISSING, Terminal),
            Self::BucketClaimed { .. } => (reasons::BUCKET_CLAIMED, Terminal),
            Self::AccessStillWorks { .. } => (reasons::ACCESS_STILL_WORKS, Retryable),
            Self::BucketGone { .. } | Self::SharedBucketGone { .. } => (reasons::BUCKET_GONE, Terminal),
            Self::OwnershipLost { .. } | Self::SharedBucketLost { .. } | Self::NotTheClaims { .. } => {
                (reasons::OWNERSHIP_LOST, Terminal)
            }
            Self::BucketNotFound { .. } => (reasons::BUCKET_NOT_FOUND, Retryable),
            Self::TagsNotKept { .. } => (reasons::TAGS_NOT_KEPT, Terminal),
            Self::UserTaken { .. } => (reasons::USER_TAKEN, Terminal),
            Self::ObjectsLocked { lock: Lock::Until { .. }, .. } => (reasons::OBJECTS_LOCKED, Terminal),
            // These locks do not end by themselves.
            Self::ObjectsNotDeleted { .. } | Self::ObjectsLocked { .. } => (reasons::OBJECTS_NOT_DELETED, Terminal),
            Self::ObjectsKeepArriving { .. } => (reasons::OBJECTS_KEEP_ARRIVING, Terminal),
            Self::HasAccessPoints { .. } => (reasons::HAS_ACCESS_POINTS, Terminal),
            Self::BucketNotEmpty { .. } => (reasons::NOT_VISIBLE_YET, Retryable),
            Self::NotSupported { .. } => (reasons::NOT_SUPPORTED, Terminal),
            Self::Rejected { .. } => (reasons::REJECTED, Terminal),
            Self::NoSideEffects(error) | Self::NotAssumed(error) => error.reason_and_class(),
        }
    }
}

/// A reason of the library.
const INVALID_CLASS_PARAMETER: &str = "InvalidClassParameter";

impl Failure for Error {
    fn reason(&self) -> &'static str {
        self.reason_and_class().0
    }

    fn class(&self) -> FailureClass {
        self.reason_and_class().1
    }

    fn retry_after(&self) -> Option<Duration> {
        match self.cause() {
            Self::ObjectsLocked { lock, .. } => lock.remaining(),
            _ => None,
        }
    }

    fn is_lost(&self) -> bool {
        matches!(
            self.cause(),
            Self::BucketMissing { .. }
                | Self::BucketGone { .. }
                | Self::SharedBucketGone { .. }
                | Self::SharedBucketLost { .. }
                | Self::OwnershipLost { .. }
                | Self::NotTheClaims { .. }
        )
    }

    fn affects_all_claims(&self) -> bool {
        match self.cause() {
            // A bucket can have a policy that denies the call, and the keys of a claim concern that claim only.
            Self::AccessDenied { call, .. } => {
                let is_of_few = matches!(call.resource, Resource::Bucket(_) | Resource::Association(_));
                call.identity != Identity::App && !is_of_few
            }
            Self::CredentialsRefused { identity, .. } => *identity != Identity::App,
            // Claims with keys need only S3 and IAM.
            Self::StoreUnreachable { operation: Operation::AssumeRoleWithWebIdentity, .. } => false,
            Self::StoreUnreachable { operation, .. } if operation.service() == Service::Eks => false,
            Self::StoreUnreachable { resource: Resource::Association(_), .. } => false,
            error => matches!(
                error,
                Self::StoreUnreachable { .. }
                    | Self::CredentialsExpired { .. }
                    | Self::CredentialsUnavailable { .. }
                    | Self::OwnerRoleRefused { .. }
            ),
        }
    }
}
