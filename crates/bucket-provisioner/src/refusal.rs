//! What is refused before the store is called.

use super::reasons;
use crate::store::{AccessMode, NameError, ParameterError, SecretRef};

/// Why a claim is refused before the store is called, so that nothing has changed there. Somebody must change the claim, its
/// class or the Secret with the provisioning credentials. `Display` is the message on the claim: what is wrong, then
/// the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("StorageClass {class:?}: {problem}; an admin must delete the class and create it again")]
    InvalidClassParameter { class: String, problem: ParameterError },

    #[error("{field}: {problem}")]
    InvalidBucketName { field: &'static str, problem: NameError },

    #[error(
        "the claim names no bucket: set spec.generateBucketName or spec.bucketName, or use a StorageClass with the parameter bucketName ({class:?} has none)"
    )]
    BucketNameMissing { class: String },

    #[error(
        "spec.bucketName is {asked:?}, but StorageClass {class:?} gives access to bucket {bucket:?} only: remove spec.bucketName, or use another class"
    )]
    BucketNotOfClass { class: String, bucket: String, asked: String },

    #[error(
        "StorageClass {class:?} does not serve namespace {namespace:?}: use another class, or ask an admin to allow the namespace (allowedNamespaces, allowedNamespaceSelector)"
    )]
    NamespaceNotAllowed { class: String, namespace: String },

    /// `name` can be a prefix.
    #[error("{field}: StorageClass {class:?} does not allow the name {name:?}: {remedy}")]
    BucketNameNotAllowed { class: String, field: &'static str, name: String, remedy: String },

    /// `problem` includes the remedy.
    #[error("spec.additionalConfig.{key}: {value:?} {problem}")]
    InvalidSetting { key: String, value: String, problem: String },

    #[error("spec.additionalConfig.{key}: there is no such setting; StorageClass {class:?} lets claims set: {known}")]
    UnknownSetting { key: String, class: String, known: String },

    #[error("spec.additionalConfig.{key}: {remedy}")]
    SettingNotAllowed { key: String, remedy: String },

    /// `problem` includes the remedy.
    #[error("spec.additionalConfig.bucketClaimName: ObjectBucketClaim {name:?} {problem}")]
    BucketClaimNotShareable { name: String, problem: String },

    #[error(
        "StorageClass {class:?} gives access to ServiceAccounts, and the claim names none: set spec.additionalConfig.serviceAccountName to the ServiceAccount of the pods that use the bucket, or use another class"
    )]
    ServiceAccountMissing { class: String },

    /// `problem` includes the first remedy.
    #[error(
        "spec.additionalConfig.accessMode is {:?}, but StorageClass {class:?} {problem}, or use another class", .asked.as_str()
    )]
    AccessModeNotAllowed { asked: AccessMode, class: String, problem: String },

    #[error(
        "StorageClass {class:?} gives claims the provisioning credentials, which accessMode and prefix cannot limit: use a class that creates a user for each claim"
    )]
    AccessNotLimited { class: String },

    /// `problem` includes the remedy, and never a value.
    #[error("Secret {secret} {problem}")]
    InvalidOwnerSecret { secret: SecretRef, problem: String },

    #[error(
        "the StorageClass names no Secret, and the store needs provisioning credentials: create a class with secretName and secretNamespace"
    )]
    OwnerSecretMissing,

    #[error(
        "the parameters in the ObjectBucket cannot be used: {0}; correct spec.additionalState of the ObjectBucket, or run the version that wrote it"
    )]
    RecordedParametersUnreadable(ParameterError),

    #[error(
        "the store's plan does not record the parameters of the class ({0}): begin it with Request::plan, and report this to the operator's developers"
    )]
    ParametersNotRecorded(ParameterError),

    /// What the plan adds. `problem` includes the remedy, and never a value.
    #[error("the entries that the store adds to the claim's ConfigMap cannot be written: {problem}")]
    InvalidConfigMapOutput { problem: String },

    /// `problem` includes the remedy, and never a value.
    #[error("the state that the store plans cannot be recorded: {problem}")]
    InvalidState { problem: String },
}

impl Refusal {
    /// The reason that a user reads.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::InvalidClassParameter { .. } => reasons::INVALID_CLASS_PARAMETER,
            Self::InvalidBucketName { .. } => reasons::INVALID_BUCKET_NAME,
            Self::BucketNameMissing { .. } => reasons::BUCKET_NAME_MISSING,
            Self::BucketNotOfClass { .. } => reasons::BUCKET_NOT_OF_CLASS,
            Self::NamespaceNotAllowed { .. } => reasons::NAMESPACE_NOT_ALLOWED,
            Self::BucketNameNotAllowed { .. } => reasons::BUCKET_NAME_NOT_ALLOWED,
            Self::InvalidSetting { .. } | Self::UnknownSetting { .. } => reasons::INVALID_SETTING,
            Self::BucketClaimNotShareable { .. } => reasons::BUCKET_CLAIM_NOT_SHAREABLE,
            Self::SettingNotAllowed { .. } => reasons::SETTING_NOT_ALLOWED,
            Self::ServiceAccountMissing { .. } => reasons::SERVICE_ACCOUNT_MISSING,
            Self::AccessModeNotAllowed { .. } | Self::AccessNotLimited { .. } => reasons::ACCESS_MODE_NOT_ALLOWED,
            Self::InvalidOwnerSecret { .. } | Self::OwnerSecretMissing => reasons::INVALID_OWNER_SECRET,
            Self::RecordedParametersUnreadable(_) => reasons::RECORDED_PARAMETERS_UNREADABLE,
            Self::ParametersNotRecorded(_) => reasons::INVALID_OUTPUT,
            Self::InvalidConfigMapOutput { .. } | Self::InvalidState { .. } => reasons::INVALID_OUTPUT,
        }
    }
}
