//! Which permissions the provisioning credentials need for claims of a class, and on what. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::class::target::Target;
use crate::client::call::Operation;
use crate::s3::settings;
use bucket_provisioner::store::Mode;

/// What a permission is needed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// The claim's bucket.
    Bucket,
    /// What is in it.
    Objects,
    /// The account as a whole.
    Account,
    /// The claim's user.
    User,
    /// The claim's user, where a policy can demand its permissions boundary.
    Giving,
    /// A user of that name under any path: IAM does not know the path of a user that does not exist.
    AnyPath,
}

impl Scope {
    /// The ARN of what a claim of the class would have.
    pub(crate) fn arn(self, target: &Target<'_>, partition: &str, account: &str) -> String {
        let bucket = target.bucket();
        let (path, user) = target.user.map_or(("/", ""), |user| (user.path, user.name));
        match self {
            Self::Bucket => format!("arn:{partition}:s3:::{bucket}"),
            Self::Objects => format!("arn:{partition}:s3:::{bucket}/object"),
            Self::Account => "*".to_owned(),
            Self::User | Self::Giving => format!("arn:{partition}:iam::{account}:user{path}{user}"),
            Self::AnyPath => format!("arn:{partition}:iam::{account}:user/{user}"),
        }
    }

    /// What to write into a policy as its resource.
    pub(crate) fn in_policy(self, target: &Target<'_>, partition: &str) -> String {
        let path = target.user.map_or("/", |user| user.path);
        let bucket = match target.record.plan.mode {
            Mode::Granted => target.bucket(),
            Mode::Created => "*",
        };
        match self {
            Self::Bucket => format!("arn:{partition}:s3:::{bucket}"),
            Self::Objects => format!("arn:{partition}:s3:::{bucket}/*"),
            Self::Account => "*".to_owned(),
            Self::User | Self::Giving => format!("arn:{partition}:iam::*:user{path}*"),
            Self::AnyPath => format!("arn:{partition}:iam::*:user/*"),
        }
    }
}

/// The actions that are needed, by what they are needed on.
pub(crate) type Needs = BTreeMap<Scope, BTreeSet<&'static str>>;

/// What claims of the class need.
pub(crate) fn of(target: &Target<'_>) -> Needs {
    let mut needs = Needs::new();
    for operation in Operation::ALL {
        if let Some(scope) = scope(*operation, target) {
            needs.entry(scope).or_default().extend(operation.actions().split(" and "));
        }
    }
    if settings::may_bypass(target) {
        needs.entry(Scope::Objects).or_default().insert(BYPASS);
    }
    needs
}

/// With it, DeleteObjects can have a header.
const BYPASS: &str = "s3:BypassGovernanceRetention";

/// `None`: claims of such a class do not need it.
fn scope(operation: Operation, target: &Target<'_>) -> Option<Scope> {
    use Operation as O;

    let (creates, has_user) = (target.record.plan.mode == Mode::Created, target.user.is_some());
    match operation {
        O::CreateBucket | O::PutBucketTagging | O::TagResource | O::DeleteBucket | O::ListMultipartUploads => {
            creates.then_some(Scope::Bucket)
        }
        // The command `status` shows how much is in the bucket.
        O::GetBucketTagging | O::ListObjectsV2 | O::ListObjectVersions => Some(Scope::Bucket),
        O::DeleteObjects | O::DeleteObject | O::AbortMultipartUpload => creates.then_some(Scope::Objects),
        // With the keys of the claim's user, unless it has none.
        O::GetObject => (!has_user).then_some(Scope::Objects),
        O::CreateMultipartUpload | O::UploadPart | O::GetBucketLocation => None,
        O::GetBucketVersioning
        | O::PutBucketVersioning
        | O::GetBucketEncryption
        | O::PutBucketEncryption
        | O::GetBucketLifecycleConfiguration
        | O::PutBucketLifecycleConfiguration
        | O::DeleteBucketLifecycle
        | O::GetBucketOwnershipControls
        | O::PutBucketOwnershipControls
        | O::GetPublicAccessBlock
        | O::PutPublicAccessBlock
        | O::GetBucketLogging
        | O::PutBucketLogging
        | O::GetObjectLockConfiguration
        | O::PutObjectLockConfiguration
        | O::GetBucketCors
        | O::PutBucketCors
        | O::DeleteBucketCors
        | O::GetBucketNotificationConfiguration
        | O::PutBucketNotificationConfiguration
        | O::GetBucketPolicy
        | O::PutBucketPolicy => settings::needs(target).contains(&operation).then_some(Scope::Bucket),
        O::GetObjectRetention | O::GetObjectLegalHold => {
            settings::needs(target).contains(&operation).then_some(Scope::Objects)
        }
        O::UntagUser => (has_user && settings::claims_may_tag(target)).then_some(Scope::User),
        O::ListBuckets | O::ListAccessPoints => creates.then_some(Scope::Account),
        O::ListUsers => has_user.then_some(Scope::Account),
        O::CreateUser | O::PutUserPolicy => has_user.then_some(Scope::Giving),
        O::GetUser => has_user.then_some(Scope::AnyPath),
        O::TagUser
        | O::GetUserPolicy
        | O::CreateAccessKey
        | O::ListAccessKeys
        | O::UpdateAccessKey
        | O::GetAccessKeyLastUsed
        | O::DeleteAccessKey
        | O::ListUserPolicies
        | O::DeleteUserPolicy
        | O::ListAttachedUserPolicies
        | O::DetachUserPolicy
        | O::ListGroupsForUser
        | O::DeleteLoginProfile
        | O::ListMFADevices
        | O::DeactivateMFADevice
        | O::ListSSHPublicKeys
        | O::DeleteSSHPublicKey
        | O::ListSigningCertificates
        | O::DeleteSigningCertificate
        | O::ListServiceSpecificCredentials
        | O::DeleteServiceSpecificCredential
        | O::DeleteUser => has_user.then_some(Scope::User),
        // Need no permission of these credentials.
        O::GetCallerIdentity | O::AssumeRole => None,
        // Only for users that somebody put into a group, and for claims of the Go provisioner.
        O::RemoveUserFromGroup | O::ListPolicyVersions | O::DeletePolicyVersion | O::DeletePolicy => None,
        // Only for this examination.
        O::SimulatePrincipalPolicy | O::GetRole | O::GetPolicy | O::GetAccountSummary | O::HeadBucket => None,
    }
}

/// All actions, each once.
pub(crate) fn actions(needs: &Needs) -> BTreeSet<&'static str> {
    needs.values().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::environment::Environment;
    use crate::testing::{granted, record};
    use bucket_provisioner::store::Record;

    fn needed(record: &Record) -> BTreeSet<&'static str> {
        actions(&of(&Target::of(record, &Environment::default())))
    }

    #[test]
    fn a_brownfield_class_needs_no_right_to_create_or_delete() {
        let of_bucket: Vec<_> = needed(&granted()).into_iter().filter(|action| action.starts_with("s3:")).collect();
        assert_eq!(of_bucket, ["s3:GetBucketTagging", "s3:ListBucket", "s3:ListBucketVersions"]);
        assert!(needed(&granted()).contains("iam:CreateUser"));
    }

    #[test]
    fn a_class_without_users_needs_nothing_of_iam() {
        let mut shared = record();
        shared.plan.user = None;
        assert!(needed(&shared).iter().all(|action| action.starts_with("s3:")));
        assert!(needed(&shared).contains("s3:GetObject"), "apps have the provisioning credentials");
    }

    #[test]
    fn what_is_asked_about_is_what_a_claim_would_have() {
        let record = record();
        let target = Target::of(&record, &Environment::default());
        let arn = |scope: Scope| scope.arn(&target, "aws", "123456789012");
        let uid = crate::testing::UID;
        assert_eq!(arn(Scope::Bucket), format!("arn:aws:s3:::photos-{uid}"));
        assert_eq!(arn(Scope::User), format!("arn:aws:iam::123456789012:user/aws-s3-provisioner/shop-photos-{uid}"));
        assert_eq!(arn(Scope::AnyPath), format!("arn:aws:iam::123456789012:user/shop-photos-{uid}"));
        assert_eq!(Scope::User.in_policy(&target, "aws"), "arn:aws:iam::*:user/aws-s3-provisioner/*");
    }
}
