//! One call to AWS: its operation, its resource, and its outcome.
//!
//! `CallError` keeps the answer unchanged, so that a step can check for a code that it expects (`EntityAlreadyExists`).
//! Other errors become an [`Error`](crate::client::error::Error) through `From`, in `codes`.
//!
//! Long, because it has one table: each operation with its service, its text and the permissions that it needs.

use std::fmt;
use std::future::Future;
use std::time::Instant;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::{ErrorMetadata, ProvideErrorMetadata};
use http_body_util::LengthLimitError;
use hyper_util::client::legacy::Error as HttpError;
use tracing::{Instrument as _, Span};

use bucket_provisioner::store::SecretRef;
use bucket_provisioner::store::{Observer, StoreCall};
use operator_runtime::observe::spans;

macro_rules! operations {
    ($($name:ident => $actions:literal,)*) => {
        /// The operations that the operator calls, with the IAM actions that allow them (Service Authorization
        /// Reference).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is an operation of the S3 or IAM API reference, by its name there")]
        pub enum Operation { $($name,)* }

        impl Operation {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The actions that a policy must allow.
            pub fn actions(self) -> &'static str {
                match self { $(Self::$name => $actions,)* }
            }
        }
    };
}

operations! {
    CreateBucket => "s3:CreateBucket and s3:TagResource and s3:PutBucketOwnershipControls",
    GetBucketTagging => "s3:GetBucketTagging",
    PutBucketTagging => "s3:PutBucketTagging",
    TagResource => "s3:TagResource",
    DeleteBucket => "s3:DeleteBucket",
    ListObjectsV2 => "s3:ListBucket",
    GetObject => "s3:GetObject",
    CreateMultipartUpload => "s3:PutObject",
    GetBucketLocation => "s3:GetBucketLocation",
    ListObjectVersions => "s3:ListBucketVersions",
    DeleteObjects => "s3:DeleteObject and s3:DeleteObjectVersion",
    ListMultipartUploads => "s3:ListBucketMultipartUploads",
    DeleteObject => "s3:DeleteObject and s3:DeleteObjectVersion",
    AbortMultipartUpload => "s3:AbortMultipartUpload",
    ListAccessPoints => "s3:ListAccessPoints",
    UploadPart => "s3:PutObject",
    GetBucketVersioning => "s3:GetBucketVersioning",
    PutBucketVersioning => "s3:PutBucketVersioning",
    GetBucketEncryption => "s3:GetEncryptionConfiguration",
    PutBucketEncryption => "s3:PutEncryptionConfiguration",
    GetBucketLifecycleConfiguration => "s3:GetLifecycleConfiguration",
    PutBucketLifecycleConfiguration => "s3:PutLifecycleConfiguration",
    DeleteBucketLifecycle => "s3:PutLifecycleConfiguration",
    GetBucketOwnershipControls => "s3:GetBucketOwnershipControls",
    PutBucketOwnershipControls => "s3:PutBucketOwnershipControls",
    GetPublicAccessBlock => "s3:GetBucketPublicAccessBlock",
    PutPublicAccessBlock => "s3:PutBucketPublicAccessBlock",
    GetBucketLogging => "s3:GetBucketLogging",
    PutBucketLogging => "s3:PutBucketLogging",
    GetObjectLockConfiguration => "s3:GetBucketObjectLockConfiguration",
    PutObjectLockConfiguration => "s3:PutBucketObjectLockConfiguration",
    GetObjectRetention => "s3:GetObjectRetention",
    GetObjectLegalHold => "s3:GetObjectLegalHold",
    GetBucketCors => "s3:GetBucketCORS",
    PutBucketCors => "s3:PutBucketCORS",
    DeleteBucketCors => "s3:PutBucketCORS",
    GetBucketNotificationConfiguration => "s3:GetBucketNotification",
    PutBucketNotificationConfiguration => "s3:PutBucketNotification",
    GetBucketPolicy => "s3:GetBucketPolicy",
    PutBucketPolicy => "s3:PutBucketPolicy",
    CreateUser => "iam:CreateUser and iam:TagUser",
    GetUser => "iam:GetUser",
    TagUser => "iam:TagUser",
    UntagUser => "iam:UntagUser",
    GetUserPolicy => "iam:GetUserPolicy",
    PutUserPolicy => "iam:PutUserPolicy",
    CreateAccessKey => "iam:CreateAccessKey",
    ListAccessKeys => "iam:ListAccessKeys",
    UpdateAccessKey => "iam:UpdateAccessKey",
    GetAccessKeyLastUsed => "iam:GetAccessKeyLastUsed",
    DeleteAccessKey => "iam:DeleteAccessKey",
    ListUserPolicies => "iam:ListUserPolicies",
    DeleteUserPolicy => "iam:DeleteUserPolicy",
    ListAttachedUserPolicies => "iam:ListAttachedUserPolicies",
    DetachUserPolicy => "iam:DetachUserPolicy",
    ListGroupsForUser => "iam:ListGroupsForUser",
    RemoveUserFromGroup => "iam:RemoveUserFromGroup",
    DeleteLoginProfile => "iam:DeleteLoginProfile",
    ListMFADevices => "iam:ListMFADevices",
    DeactivateMFADevice => "iam:DeactivateMFADevice",
    ListSSHPublicKeys => "iam:ListSSHPublicKeys",
    DeleteSSHPublicKey => "iam:DeleteSSHPublicKey",
    ListSigningCertificates => "iam:ListSigningCertificates",
    DeleteSigningCertificate => "iam:DeleteSigningCertificate",
    ListServiceSpecificCredentials => "iam:ListServiceSpecificCredentials",
    DeleteServiceSpecificCredential => "iam:DeleteServiceSpecificCredential",
    ListPolicyVersions => "iam:ListPolicyVersions",
    DeletePolicyVersion => "iam:DeletePolicyVersion",
    DeletePolicy => "iam:DeletePolicy",
    DeleteUser => "iam:DeleteUser",
    ListBuckets => "s3:ListAllMyBuckets",
    ListUsers => "iam:ListUsers",
    GetCallerIdentity => "sts:GetCallerIdentity",
    AssumeRole => "sts:AssumeRole and sts:TagSession",
    AssumeRoleWithWebIdentity => "sts:AssumeRoleWithWebIdentity",
    CreateRole => "iam:CreateRole and iam:TagRole",
    GetRole => "iam:GetRole",
    TagRole => "iam:TagRole",
    UpdateAssumeRolePolicy => "iam:UpdateAssumeRolePolicy",
    GetRolePolicy => "iam:GetRolePolicy",
    PutRolePolicy => "iam:PutRolePolicy",
    ListRolePolicies => "iam:ListRolePolicies",
    ListRoles => "iam:ListRoles",
    DeleteRolePolicy => "iam:DeleteRolePolicy",
    DeleteRole => "iam:DeleteRole",
    ListPodIdentityAssociations => "eks:ListPodIdentityAssociations",
    DescribePodIdentityAssociation => "eks:DescribePodIdentityAssociation",
    CreatePodIdentityAssociation => "eks:CreatePodIdentityAssociation and eks:TagResource and iam:PassRole and iam:GetRole",
    UpdatePodIdentityAssociation => "eks:UpdatePodIdentityAssociation and iam:PassRole and iam:GetRole",
    DeletePodIdentityAssociation => "eks:DeletePodIdentityAssociation",
    // Only for an admin who examines an installation: claims do not need them.
    SimulatePrincipalPolicy => "iam:SimulatePrincipalPolicy",
    GetPolicy => "iam:GetPolicy",
    GetOpenIDConnectProvider => "iam:GetOpenIDConnectProvider",
    GetAccountSummary => "iam:GetAccountSummary",
    DescribeCluster => "eks:DescribeCluster",
    DescribeAddon => "eks:DescribeAddon",
    HeadBucket => "s3:ListBucket",
}

/// What limits the rate of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// S3, for calls about buckets.
    Buckets,
    /// S3, for calls about what is in a bucket.
    Objects,
    Iam,
    Sts,
    Eks,
}

impl Service {
    /// The service's name, for metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Buckets | Self::Objects => "s3",
            Self::Iam => "iam",
            Self::Sts => "sts",
            Self::Eks => "eks",
        }
    }

    /// The service's name, for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Buckets | Self::Objects => "S3",
            Self::Iam => "IAM",
            Self::Sts => "STS",
            Self::Eks => "EKS",
        }
    }
}

impl Operation {
    /// Whether it changes nothing, by its name.
    pub(crate) fn reads(self) -> bool {
        ["Get", "List", "Head", "Simulate", "Describe"].iter().any(|verb| format!("{self:?}").starts_with(verb))
    }

    /// The class parameters that need it, if it reads or writes settings of a bucket.
    pub fn settings(self) -> Option<&'static str> {
        use Operation as O;

        Some(match self {
            O::GetBucketVersioning | O::PutBucketVersioning => "bucketVersioning",
            O::GetBucketEncryption | O::PutBucketEncryption => "encryption",
            O::GetBucketLifecycleConfiguration | O::PutBucketLifecycleConfiguration | O::DeleteBucketLifecycle => {
                "bucketLifecycle, expireAfter, expireNoncurrentAfter and abortIncompleteUploadsAfter"
            }
            O::GetBucketOwnershipControls | O::PutBucketOwnershipControls => "objectOwnership",
            O::GetPublicAccessBlock | O::PutPublicAccessBlock => "publicAccess",
            O::GetBucketLogging | O::PutBucketLogging => "accessLogs",
            O::GetBucketPolicy | O::PutBucketPolicy => "requireTLS",
            O::GetObjectLockConfiguration | O::PutObjectLockConfiguration => "objectLock",
            O::GetObjectRetention | O::GetObjectLegalHold => "objectLock",
            O::GetBucketCors | O::PutBucketCors | O::DeleteBucketCors => "bucketCors",
            O::GetBucketNotificationConfiguration | O::PutBucketNotificationConfiguration => "eventBridge",
            _ => return None,
        })
    }

    /// Whether it reads or writes settings of a bucket.
    pub fn is_setting(self) -> bool {
        self.settings().is_some()
    }

    pub(crate) fn service(self) -> Service {
        use Operation as O;

        match self {
            O::CreateBucket | O::GetBucketTagging | O::PutBucketTagging | O::TagResource => Service::Buckets,
            O::DeleteBucket | O::ListBuckets | O::HeadBucket | O::GetBucketLocation | O::ListAccessPoints => {
                Service::Buckets
            }
            O::ListObjectsV2 | O::GetObject | O::ListObjectVersions | O::ListMultipartUploads => Service::Objects,
            O::DeleteObjects | O::DeleteObject | O::AbortMultipartUpload | O::CreateMultipartUpload => Service::Objects,
            O::UploadPart | O::GetObjectRetention | O::GetObjectLegalHold => Service::Objects,
            O::GetCallerIdentity | O::AssumeRole | O::AssumeRoleWithWebIdentity => Service::Sts,
            O::ListPodIdentityAssociations | O::DescribePodIdentityAssociation => Service::Eks,
            O::DescribeCluster | O::DescribeAddon => Service::Eks,
            O::CreatePodIdentityAssociation | O::UpdatePodIdentityAssociation | O::DeletePodIdentityAssociation => {
                Service::Eks
            }
            operation if operation.is_setting() => Service::Buckets,
            _ => Service::Iam,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// A bucket, by name.
    Bucket(String),
    /// An IAM user, by name.
    User(String),
    /// An IAM policy, by ARN.
    Policy(String),
    /// An IAM role, by ARN or name.
    Role(String),
    /// The Pod Identity association of a ServiceAccount, by the name of that.
    Association(String),
    /// The account of the credentials.
    Account,
}

impl Resource {
    pub(crate) fn bucket(name: &str) -> Self {
        Self::Bucket(name.to_owned())
    }

    pub(crate) fn user(name: &str) -> Self {
        Self::User(name.to_owned())
    }

    pub(crate) fn policy(arn: &str) -> Self {
        Self::Policy(arn.to_owned())
    }

    pub(crate) fn role(arn: &str) -> Self {
        Self::Role(arn.to_owned())
    }

    pub(crate) fn association(service_account: &str) -> Self {
        Self::Association(service_account.to_owned())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket(name) => write!(f, "bucket {name:?}"),
            Self::User(name) => write!(f, "user {name:?}"),
            // Without the account in the ARN.
            Self::Policy(arn) => write!(f, "policy {:?}", arn.rsplit('/').next().unwrap_or(arn)),
            Self::Role(arn) => write!(f, "role {:?}", arn.rsplit('/').next().unwrap_or(arn)),
            Self::Association(account) => write!(f, "the Pod Identity association of ServiceAccount {account:?}"),
            Self::Account => f.write_str("the account"),
        }
    }
}

/// Whose credentials sign a call; for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The operator's own: environment, IRSA, Pod Identity, instance role.
    Ambient,
    /// The keys in the Secret that the class names.
    Secret(SecretRef),
    /// The role that the class names, which one of these assumes.
    Role,
    /// The keys issued to the claim, or the token of its ServiceAccount.
    App,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ambient => f.write_str("the operator's own AWS identity"),
            Self::Secret(reference) => write!(f, "the provisioning credentials in Secret {reference}"),
            Self::Role => f.write_str("the role that the StorageClass names"),
            Self::App => f.write_str("the claim's own credentials"),
        }
    }
}

/// A call: who does what to which resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// What is done.
    pub operation: Operation,
    /// To which resource.
    pub resource: Resource,
    /// Who signs.
    pub identity: Identity,
    /// Whether the credentials have a session token.
    pub session: bool,
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(crate) enum Cause {
    /// The store answered with an error.
    Answer {
        /// HTTP status.
        status: u16,
        /// The error code. An answer without a body (HEAD, a proxy) has none.
        code: Option<String>,
        /// The store's own message.
        message: Option<String>,
        /// The region of the bucket, if the store returns it.
        region: Option<String>,
    },
    /// The answer cannot be read.
    Unreadable,
    /// There was no answer; the call may have taken effect.
    NoAnswer(String),
    /// There was no connection; nothing was sent.
    NotReached(String),
    /// There were no credentials; nothing was sent.
    NoCredentials(String),
    /// The call could not be built; nothing was sent.
    NotSent(String),
    /// The role whose session should sign could not be assumed; nothing was sent.
    NotAssumed(Box<CallError>),
}

/// A call that failed.
#[derive(Debug, Clone)]
pub(crate) struct CallError {
    pub(crate) call: Box<Call>,
    pub(crate) cause: Cause,
}

/// A call was not sent, because the role whose session signs it could not be assumed. The source of its error.
#[derive(Debug, thiserror::Error)]
#[error("the role was not assumed")]
pub(crate) struct NotAssumed(pub(crate) CallError);

impl CallError {
    /// The store's error code, or "" if there is none.
    pub(crate) fn code(&self) -> &str {
        match &self.cause {
            Cause::Answer { code: Some(code), .. } => code,
            _ => "",
        }
    }

    /// The store's own message.
    pub(crate) fn message(&self) -> Option<&str> {
        match &self.cause {
            Cause::Answer { message, .. } => message.as_deref(),
            _ => None,
        }
    }

    /// Whether the store does not support the operation.
    pub(crate) fn lacks_operation(&self) -> bool {
        matches!(self.code(), "NotImplemented" | "MethodNotAllowed") || matches!(self.status(), 405 | 501)
    }

    /// HTTP status of the answer, or 0 if there is none.
    pub(crate) fn status(&self) -> u16 {
        match self.cause {
            Cause::Answer { status, .. } => status,
            _ => 0,
        }
    }

    /// Its outcome, for metrics.
    fn outcome(&self) -> &'static str {
        match self.cause {
            _ if self.is_throttled() => "throttled",
            Cause::Answer { status: 403, .. } => "denied",
            Cause::Answer { status: 404, .. } => "not_found",
            Cause::Answer { status: 500.., .. } | Cause::Unreadable => "store_failed",
            Cause::Answer { .. } => "refused",
            Cause::NoAnswer(_) => "no_answer",
            Cause::NotReached(_) => "not_reached",
            Cause::NoCredentials(_) | Cause::NotSent(_) | Cause::NotAssumed(_) => "not_sent",
        }
    }

    /// Logs what claims do not show: accounts, ARNs and the store's own message. The admin sees denials
    /// of the provisioning credentials without a higher verbosity.
    fn log(&self) {
        let Call { operation, resource, identity, .. } = &*self.call;
        let (status, code, message) = (self.status(), self.code(), self.message().unwrap_or_default());
        if status == 403 && *identity != Identity::App {
            tracing::info!(%operation, %resource, %identity, status, code, message, "AWS refused a call");
        } else {
            tracing::debug!(%operation, %resource, status, code, message, "AWS call failed");
        }
    }

    /// Records the outcome in the call's span. NotFound is not an error there.
    fn trace(&self, span: &Span) {
        if self.status() > 0 {
            span.record("http.response.status_code", self.status());
        }
        if self.status() != 404 {
            spans::failed(span, self.outcome(), &self.cause_text());
        }
    }

    /// Why it failed: the message of the store, or of the library.
    fn cause_text(&self) -> String {
        match &self.cause {
            Cause::Answer { code, message, .. } => {
                [code, message].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(": ")
            }
            Cause::Unreadable => "the answer cannot be read".to_owned(),
            Cause::NoAnswer(why) | Cause::NotReached(why) | Cause::NoCredentials(why) | Cause::NotSent(why) => {
                why.clone()
            }
            Cause::NotAssumed(why) => why.cause_text(),
        }
    }
}

/// Awaits a call, counts it, logs and traces its outcome; never what was sent, and of an answer only the error.
pub(crate) async fn observe<T, E>(
    observer: &Observer,
    call: Call,
    sent: impl Future<Output = Result<T, SdkError<E, HttpResponse>>>,
) -> Result<T, CallError>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let Call { operation, resource, .. } = &call;
    let (operation, began) = (*operation, Instant::now());
    let span = spans::call(operation.service().name(), &operation, resource);
    let answer = match sent.instrument(span.clone()).await {
        Ok(answer) => {
            tracing::debug!(%operation, %resource, "AWS call succeeded");
            Ok(answer)
        }
        Err(error) => {
            let failed = CallError { cause: cause(&error), call: Box::new(call) };
            failed.log();
            failed.trace(&span);
            Err(failed)
        }
    };
    let outcome = answer.as_ref().err().map_or("ok", CallError::outcome);
    let (service, operation) = (operation.service().name(), operation.to_string());
    observer.called(&StoreCall { service, operation: &operation, outcome, took: began.elapsed() });
    answer
}

fn cause<E>(error: &SdkError<E, HttpResponse>) -> Cause
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    if let Some(NotAssumed(why)) = sources(error).find_map(|source| source.downcast_ref::<NotAssumed>()) {
        return Cause::NotAssumed(Box::new(why.clone()));
    }
    if sources(error).any(|source| source.is::<CredentialsError>()) {
        return Cause::NoCredentials(root(error));
    }
    if sources(error).filter_map(|source| source.downcast_ref::<HttpError>()).any(HttpError::is_connect) {
        return Cause::NotReached(root(error));
    }
    match error {
        // Not the answer of a store, but a web page, for example.
        SdkError::ServiceError(answer) if answer.raw().status().is_success() && answer.err().code().is_none() => {
            Cause::Unreadable
        }
        SdkError::ServiceError(answer) => {
            let raw = answer.raw();
            // Some stores nest an error differently than the SDK expects.
            let body = raw.body().bytes().and_then(|body| std::str::from_utf8(body).ok()).unwrap_or_default();
            let text = |found: Option<&str>, name| found.or_else(|| element(body, name)).map(str::to_owned);
            Cause::Answer {
                status: raw.status().as_u16(),
                code: text(answer.err().code(), "Code"),
                message: text(answer.err().message(), "Message"),
                region: raw.headers().get("x-amz-bucket-region").map(str::to_owned),
            }
        }
        SdkError::ResponseError(_) if sources(error).any(|source| source.is::<LengthLimitError>()) => Cause::Unreadable,
        // The connection broke in the middle of the answer.
        SdkError::ResponseError(_) => Cause::NoAnswer(root(error)),
        SdkError::ConstructionFailure(_) => Cause::NotSent(root(error)),
        SdkError::TimeoutError(_) => Cause::NoAnswer("timed out".to_owned()),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => Cause::NoAnswer("timed out".to_owned()),
        _ => Cause::NoAnswer(root(error)),
    }
}

/// The text of the first element with this name.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once("</")?;
    Some(text.trim()).filter(|text| !text.is_empty())
}

fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The innermost cause, without what differs between attempts: rustls adds the time at which it checked a certificate.
/// Also without the number of an error of the operating system, and without a full stop.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let Some(innermost) = sources(error).last() else { return String::new() };
    // The answer of a service contains the id of the request, too.
    if let Some(answer) = innermost.downcast_ref::<ErrorMetadata>() {
        let parts = [answer.code(), answer.message()].into_iter().flatten();
        return parts.collect::<Vec<_>>().join(": ");
    }
    let text = innermost.to_string();
    let ends = [": verification time", " (os error "];
    let text = ends.into_iter().fold(text.as_str(), |text, end| text.split(end).next().unwrap_or_default());
    text.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_errors_are_shown_without_request_ids() {
        let answer =
            ErrorMetadata::builder().code("AccessDenied").message("Not authorized").custom("aws_request_id", "1");
        assert_eq!(root(&answer.build()), "AccessDenied: Not authorized");
    }

    #[test]
    fn the_cause_has_no_number_of_the_operating_system() {
        let refused = root(&std::io::Error::from_raw_os_error(1));
        assert!(!refused.is_empty() && !refused.contains("os error"), "{refused}");
        assert_eq!(root(&std::io::Error::other("request forbidden.")), "request forbidden");
    }

    #[test]
    fn a_code_is_found_wherever_a_store_puts_it() {
        let nested = "<ErrorResponse><Errors><Error><Code>NoSuchEntity</Code><Message>gone</Message></Error></Errors></ErrorResponse>";
        assert_eq!(element(nested, "Code"), Some("NoSuchEntity"));
        assert_eq!(element("<Error><Code> AccessDenied </Code></Error>", "Code"), Some("AccessDenied"));
        assert_eq!(element("<html>502</html>", "Code"), None);
        assert_eq!(element("<Code></Code>", "Code"), None);
    }
}
