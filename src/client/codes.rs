//! What AWS's error codes mean: from the answer to a call to an [`Error`], here and nowhere else.
//!
//! Sources: "Error responses" in the Amazon S3 API reference, "Common errors" in the IAM API reference. The
//! HTTP status decides where there is no code.

use crate::client::call::{Call, CallError, Cause, Operation, Resource};
use crate::client::error::{Error, Sent, TakenBy};
use crate::client::remedy::without_accounts;

/// The code of a store that is busy, or down.
const UNAVAILABLE: &str = "ServiceUnavailable";

/// The code of an endpoint that is not for the region that the call names.
const ILLEGAL_LOCATION: &str = "IllegalLocationConstraintException";

/// The problem of StoreFailing for an answer that makes no sense.
const UNREADABLE: &str = "unreadable answer";

impl From<CallError> for Error {
    fn from(CallError { call, cause }: CallError) -> Self {
        let (operation, resource) = (call.operation, call.resource.clone());
        match cause {
            Cause::Answer { status, code, message, region } => {
                // A proxy's answer may have a status only. Users see code and region, whatever the store writes there.
                let code = code.map_or_else(|| status.to_string(), |code| without_accounts(&code));
                of_answer(call, status, code, message, region.as_deref().map(without_accounts))
            }
            Cause::NotAssumed(why) => Self::NotAssumed(Box::new((*why).into())),
            Cause::NoCredentials(problem) => Self::CredentialsUnavailable { problem },
            Cause::NoAnswer(problem) => Self::StoreUnreachable { operation, resource, problem, sent: Sent::Perhaps },
            Cause::NotReached(problem) => Self::StoreUnreachable { operation, resource, problem, sent: Sent::No },
            Cause::Unreadable => Self::StoreFailing { operation, resource, problem: UNREADABLE.to_owned() },
            Cause::NotSent(problem) => {
                Self::Rejected { operation, resource, code: "not sent".to_owned(), message: Some(problem) }
            }
        }
    }
}

fn of_answer(call: Box<Call>, status: u16, code: String, message: Option<String>, region: Option<String>) -> Error {
    if let (Operation::AssumeRole, Resource::Role(_), true) =
        (call.operation, &call.resource, is_refusal(status, &code))
    {
        let shown = [Some(code).filter(|code| code != "AccessDenied"), message].into_iter().flatten();
        let message = Some(shown.collect::<Vec<_>>().join(": "));
        return Error::OwnerRoleRefused { role: call.resource, identity: call.identity, message };
    }
    if code == "AccessDenied" {
        return Error::AccessDenied { call, message };
    }
    if is_refusal(status, &code) {
        // It may be about the account, such as "NotSignedUp" or "AllAccessDisabled", and not about a permission.
        let code = Some(code).filter(|code| *code != status.to_string());
        let shown = [code, message].into_iter().flatten().collect::<Vec<_>>().join(": ");
        return Error::AccessDenied { call, message: Some(shown) };
    }
    let Call { operation, resource, identity, session } = *call;
    let bucket = || match &resource {
        Resource::Bucket(name) | Resource::User(name) | Resource::Policy(name) | Resource::Role(name) => name.clone(),
        Resource::Association(name) => name.clone(),
        Resource::Account => String::new(),
    };
    match (code.as_str(), status) {
        (code, _) if is_expired(code) => Error::CredentialsExpired { identity },
        (code, _) if is_about_credentials(code) => {
            Error::CredentialsRefused { identity, operation, code: code.to_owned(), session }
        }
        (code, _) if is_throttling(code) => Error::Throttled { operation },
        (_, 429 | 503) => Error::Throttled { operation },
        (code, _) if is_conflict(code) => Error::StoreBusy { operation, resource, code: code.to_owned(), message },
        (limit, _) if is_about_quota(limit) => Error::QuotaExceeded { operation, resource, code, message },
        // Stores that do not know a sub-resource take the call for CreateBucket.
        ("BucketAlreadyExists" | "BucketAlreadyOwnedByYou" | ILLEGAL_LOCATION, _) if is_sub_resource(operation) => {
            Error::NotSupported { operation, resource, code, message }
        }
        ("BucketAlreadyExists", _) => Error::BucketTaken { bucket: bucket(), by: TakenBy::AnotherAccount },
        ("BucketAlreadyOwnedByYou", _) => Error::BucketTaken { bucket: bucket(), by: TakenBy::Unknown },
        ("InvalidNamespaceHeader", _) => Error::NotInNamespace { bucket: bucket(), code, message },
        ("BucketHasAccessPointsAttached", _) => Error::HasAccessPoints { bucket: bucket(), names: Vec::new() },
        ("NoSuchBucket", _) if matches!(resource, Resource::Bucket(_)) => {
            Error::BucketNotFound { bucket: bucket(), operation }
        }
        // For CreateUser and CreateRole it is the permissions boundary that does not exist.
        ("NoSuchEntity", _) if !matches!(operation, Operation::CreateUser | Operation::CreateRole) => {
            Error::NotVisibleYet { operation, resource }
        }
        // Another call has just deleted, or created, the association.
        ("ResourceNotFoundException", _) if matches!(operation, Operation::UpdatePodIdentityAssociation) => {
            Error::NotVisibleYet { operation, resource }
        }
        ("ResourceInUseException", _) => Error::StoreBusy { operation, resource, code, message },
        // There is no bucket yet.
        (code, _) if is_about_region(code) && !(operation == Operation::CreateBucket && code == ILLEGAL_LOCATION) => {
            Error::WrongRegion { bucket: bucket(), region }
        }
        (_, 301 | 307) => Error::WrongRegion { bucket: bucket(), region },
        // Signed for the wrong region: some answers have no body, but the right region in a header.
        ("400", 400) if region.is_some() => Error::WrongRegion { bucket: bucket(), region },
        ("NotImplemented" | "MethodNotAllowed", _) | (_, 405 | 501) => {
            Error::NotSupported { operation, resource, code, message }
        }
        ("RequestTimeout" | "InternalError" | "InternalFailure" | "ServiceFailure", _) | (_, 408 | 500..) => {
            Error::StoreFailing { operation, resource, problem: code }
        }
        // Without a code these statuses say nothing.
        ("404", _) if matches!(resource, Resource::Bucket(_)) => {
            Error::StoreFailing { operation, resource, problem: UNREADABLE.to_owned() }
        }
        ("400" | "409", _) => Error::StoreFailing { operation, resource, problem: UNREADABLE.to_owned() },
        _ => Error::Rejected { operation, resource, code, message },
    }
}

impl CallError {
    /// Whether the call was refused for its rate: then it was not executed. A store that is down answers 503, too; then
    /// nothing is certain.
    pub(crate) fn is_throttled(&self) -> bool {
        match &self.cause {
            Cause::Answer { code: Some(code), .. } => is_throttling(code) && code != UNAVAILABLE,
            Cause::Answer { status, .. } => *status == 429,
            _ => false,
        }
    }

    /// Whether the same call may succeed at once: the connection broke, or the store failed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self.cause, Cause::NoAnswer(_) | Cause::NotReached(_)) || matches!(self.status(), 500 | 502..=504)
    }

    /// Whether the caller is known and may not do this.
    pub(crate) fn is_refusal(&self) -> bool {
        is_refusal(self.status(), self.code())
    }

    /// Whether the account has no room for more of this kind.
    pub(crate) fn is_about_quota(&self) -> bool {
        is_about_quota(self.code())
    }
}

fn is_refusal(status: u16, code: &str) -> bool {
    status == 403 && !is_about_credentials(code) && !is_throttling(code)
}

fn is_about_quota(code: &str) -> bool {
    matches!(
        code,
        "LimitExceeded"
            | "LimitExceededException"
            | "TooManyBuckets"
            | "ServiceQuotaExceededException"
            | "ResourceLimitExceededException"
    )
}

/// Whether a store that does not know it can take the call for another one.
fn is_sub_resource(operation: Operation) -> bool {
    operation.is_setting() || operation == Operation::PutBucketTagging
}

/// Whether a code means that a session has ended.
fn is_expired(code: &str) -> bool {
    matches!(code, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired")
}

/// Whether a code means that another change to the same resource is under way.
fn is_conflict(code: &str) -> bool {
    matches!(
        code,
        "OperationAborted"
            | "ConcurrentModification"
            | "EntityTemporarilyUnmodifiable"
            | "ConditionalRequestConflict"
            | "DeleteConflict"
    )
}

/// Whether a code means that the bucket is in another region.
fn is_about_region(code: &str) -> bool {
    matches!(code, "PermanentRedirect" | "TemporaryRedirect" | "AuthorizationHeaderMalformed" | ILLEGAL_LOCATION)
}

/// Whether a code means that the call was throttled.
pub(crate) fn is_throttling(code: &str) -> bool {
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
            | UNAVAILABLE
    )
}

/// Whether a code means that the credentials are invalid, and not only that they lack a permission.
pub(crate) fn is_about_credentials(code: &str) -> bool {
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
    ) || is_expired(code)
}
