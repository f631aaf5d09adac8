//! What AWS's error codes mean: from the answer to a call to an [`Error`], here and nowhere else.
//!
//! Sources: "Error responses" in the Amazon S3 API reference, "Common errors" in the IAM API reference. The
//! HTTP status decides where there is no code.

use super::call::{Call, CallError, Cause, Operation, Resource};
use super::error::{Error, Sent, TakenBy};

impl From<CallError> for Error {
    fn from(CallError { call, cause }: CallError) -> Self {
        let (status, code, message, region) = match cause {
            Cause::Answer { status, code, message, region } => (status, code, message, region),
            Cause::NoCredentials(problem) => return Self::CredentialsUnavailable { problem },
            Cause::NoAnswer(problem) => {
                let Call { operation, resource, .. } = *call;
                return Self::StoreUnreachable { operation, resource, problem, sent: Sent::Perhaps };
            }
            Cause::NotReached(problem) => {
                let Call { operation, resource, .. } = *call;
                return Self::StoreUnreachable { operation, resource, problem, sent: Sent::No };
            }
            Cause::Unreadable => {
                let Call { operation, resource, .. } = *call;
                return Self::StoreFailing { operation, resource, problem: "an answer that cannot be read".to_owned() };
            }
            Cause::NotSent(problem) => {
                let Call { operation, resource, .. } = *call;
                return Self::Rejected { operation, resource, code: "not sent".to_owned(), message: Some(problem) };
            }
        };
        // A proxy's answer may have a status only.
        let code = code.unwrap_or_else(|| status.to_string());
        if code == "AccessDenied" || status == 403 && !is_about_credentials(&code) && !is_throttling(&code) {
            return Self::AccessDenied { call, message };
        }
        let Call { operation, resource, identity, session } = *call;
        let bucket = || match &resource {
            Resource::Bucket(name) | Resource::User(name) | Resource::Policy(name) => name.clone(),
            Resource::Account => String::new(),
        };
        match (code.as_str(), status) {
            ("ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired", _) => {
                Self::CredentialsExpired { identity }
            }
            (code, _) if is_about_credentials(code) => {
                Self::CredentialsRefused { identity, operation, code: code.to_owned(), session }
            }
            (code, _) if is_throttling(code) => Self::Throttled { operation },
            (_, 429 | 503) => Self::Throttled { operation },
            (
                "OperationAborted"
                | "ConcurrentModification"
                | "EntityTemporarilyUnmodifiable"
                | "ConditionalRequestConflict"
                | "DeleteConflict",
                _,
            ) => Self::StoreBusy { operation, resource, code, message },
            ("LimitExceeded" | "LimitExceededException" | "TooManyBuckets" | "ServiceQuotaExceededException", _) => {
                Self::QuotaExceeded { operation, resource, code, message }
            }
            ("BucketAlreadyExists", _) => Self::BucketTaken { bucket: bucket(), by: TakenBy::AnotherAccount },
            ("BucketAlreadyOwnedByYou", _) => Self::BucketTaken { bucket: bucket(), by: TakenBy::Unknown },
            ("NoSuchBucket", _) if matches!(resource, Resource::Bucket(_)) => {
                Self::BucketNotFound { bucket: bucket(), operation }
            }
            // For CreateUser it is the permissions boundary that does not exist.
            ("NoSuchEntity", _) if operation != Operation::CreateUser => Self::NotVisibleYet { operation, resource },
            (
                "PermanentRedirect"
                | "TemporaryRedirect"
                | "AuthorizationHeaderMalformed"
                | "IllegalLocationConstraintException",
                _,
            )
            | (_, 301 | 307) => Self::WrongRegion { bucket: bucket(), region },
            // Signed for the wrong region: some answers have no body, but the right region in a header.
            ("400", 400) if region.is_some() => Self::WrongRegion { bucket: bucket(), region },
            ("NotImplemented" | "MethodNotAllowed", _) | (_, 405 | 501) => {
                Self::NotSupported { operation, resource, code, message }
            }
            ("RequestTimeout" | "InternalError" | "InternalFailure" | "ServiceFailure", _) | (_, 408 | 500..) => {
                Self::StoreFailing { operation, resource, problem: code }
            }
            // These say nothing without their code.
            ("404", _) if matches!(resource, Resource::Bucket(_)) => {
                Self::StoreFailing { operation, resource, problem: "an answer that cannot be read".to_owned() }
            }
            ("400" | "409", _) => {
                Self::StoreFailing { operation, resource, problem: "an answer that cannot be read".to_owned() }
            }
            _ => Self::Rejected { operation, resource, code, message },
        }
    }
}

/// Whether a code says that there were too many calls.
pub(super) fn is_throttling(code: &str) -> bool {
    matches!(
        code,
        "Throttling"
            | "ThrottlingException"
            | "ThrottledException"
            | "RequestThrottled"
            | "RequestThrottledException"
            | "SlowDown"
            | "RequestLimitExceeded"
            | "TooManyRequests"
            | "TooManyRequestsException"
            | "BandwidthLimitExceeded"
            | "ServiceUnavailable"
    )
}

/// Whether a code says that the credentials are wrong, rather than that they are not allowed something.
pub(super) fn is_about_credentials(code: &str) -> bool {
    matches!(
        code,
        "InvalidAccessKeyId"
            | "InvalidClientTokenId"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException"
            | "InvalidToken"
            | "InvalidSecurity"
            | "IncompleteSignature"
            | "AuthFailure"
            | "RequestTimeTooSkewed"
            | "RequestExpired"
            | "ExpiredToken"
            | "ExpiredTokenException"
            | "TokenRefreshRequired"
    )
}
