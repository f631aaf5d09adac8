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
    /// The claim's user, or the role of its ServiceAccount.
    Identity,
    /// The same, where a policy can demand its permissions boundary.
    Giving,
    /// One of that name under any path: IAM does not know the path of what does not exist.
    AnyPath,
    /// The EKS cluster.
    Cluster,
    /// Its Pod Identity associations.
    Associations,
    /// The role of which pods get sessions.
    PodRole,
}

impl Scope {
    /// The ARN of what a claim of the class would have.
    pub(crate) fn arn(self, target: &Target<'_>, partition: &str, account: &str) -> String {
        let bucket = target.bucket();
        let (kind, path, name) =
            target.iam_identity().map_or(("user", "/", ""), |identity| (identity.kind, identity.path, identity.name));
        match self {
            Self::Bucket => format!("arn:{partition}:s3:::{bucket}"),
            Self::Objects => format!("arn:{partition}:s3:::{bucket}/object"),
            Self::Account => "*".to_owned(),
            Self::Identity | Self::Giving => format!("arn:{partition}:iam::{account}:{kind}{path}{name}"),
            Self::AnyPath => format!("arn:{partition}:iam::{account}:{kind}/{name}"),
            Self::Cluster | Self::Associations | Self::PodRole => self.of_pods(target, "any"),
        }
    }

    /// The ARN of what EKS Pod Identity needs. `id`: of an association.
    fn of_pods(self, target: &Target<'_>, id: &str) -> String {
        let Some(spec) = &target.association else { return String::new() };
        match self {
            Self::PodRole => spec.role.to_owned(),
            Self::Associations => {
                let association = format!(":podidentityassociation/{}/{id}", spec.cluster.name());
                spec.cluster.as_str().split(":cluster/").next().unwrap_or_default().to_owned() + &association
            }
            _ => spec.cluster.as_str().to_owned(),
        }
    }

    /// What to write into a policy as its resource.
    pub(crate) fn in_policy(self, target: &Target<'_>, partition: &str) -> String {
        let (kind, path) = target.iam_identity().map_or(("user", "/"), |identity| (identity.kind, identity.path));
        let bucket = match target.record.plan.mode {
            Mode::Granted => target.bucket(),
            Mode::Created => "*",
        };
        match self {
            Self::Bucket => format!("arn:{partition}:s3:::{bucket}"),
            Self::Objects => format!("arn:{partition}:s3:::{bucket}/*"),
            Self::Account => "*".to_owned(),
            Self::Identity | Self::Giving => format!("arn:{partition}:iam::*:{kind}{path}*"),
            Self::AnyPath => format!("arn:{partition}:iam::*:{kind}/*"),
            Self::Cluster | Self::Associations | Self::PodRole => self.of_pods(target, "*"),
        }
    }
}

/// The actions that are needed, by what they are needed on.
pub(crate) type Needs = BTreeMap<Scope, BTreeSet<&'static str>>;

/// What claims of the class need.
pub(crate) fn of(target: &Target<'_>) -> Needs {
    let mut needs = Needs::new();
    for operation in Operation::ALL {
        let Some(scope) = scope(*operation, target) else { continue };
        for action in operation.actions().split(" and ") {
            needs.entry(of_action(scope, action)).or_default().insert(action);
        }
    }
    if settings::may_bypass(target) {
        needs.entry(Scope::Objects).or_default().insert(BYPASS);
    }
    needs
}

/// With it, DeleteObjects can have a header.
const BYPASS: &str = "s3:BypassGovernanceRetention";

/// Changes of an association need permissions on three things.
fn of_action(scope: Scope, action: &str) -> Scope {
    match (scope, action.split(':').next()) {
        (Scope::Cluster | Scope::Associations, Some("iam")) => Scope::PodRole,
        (Scope::Cluster, _) if action == "eks:TagResource" => Scope::Associations,
        (scope, _) => scope,
    }
}

/// `None`: claims of such a class do not need it.
fn scope(operation: Operation, target: &Target<'_>) -> Option<Scope> {
    use Operation as O;

    let (creates, has_user) = (target.record.plan.mode == Mode::Created, target.user.is_some());
    let has_role = target.role.is_some();
    match operation {
        O::CreateBucket | O::PutBucketTagging | O::TagResource | O::DeleteBucket | O::ListMultipartUploads => {
            creates.then_some(Scope::Bucket)
        }
        // The command `status` shows how much is in the bucket.
        O::GetBucketTagging | O::ListObjectsV2 | O::ListObjectVersions => Some(Scope::Bucket),
        O::DeleteObjects | O::DeleteObject | O::AbortMultipartUpload => creates.then_some(Scope::Objects),
        // With the access of the claim, unless it has none of its own.
        O::GetObject => (!target.has_own_access()).then_some(Scope::Objects),
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
        O::UntagUser => (has_user && settings::claims_may_tag(target)).then_some(Scope::Identity),
        O::ListBuckets | O::ListAccessPoints => creates.then_some(Scope::Account),
        O::ListUsers => has_user.then_some(Scope::Account),
        O::ListRoles => has_role.then_some(Scope::Account),
        O::CreateUser | O::PutUserPolicy => has_user.then_some(Scope::Giving),
        O::GetUser => has_user.then_some(Scope::AnyPath),
        O::CreateRole | O::PutRolePolicy => has_role.then_some(Scope::Giving),
        // Also for an examination of a role of the operator's own.
        O::GetRole => has_role.then_some(Scope::AnyPath),
        O::TagRole
        | O::UpdateAssumeRolePolicy
        | O::GetRolePolicy
        | O::ListRolePolicies
        | O::DeleteRolePolicy
        | O::DeleteRole => has_role.then_some(Scope::Identity),
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
        | O::DeleteUser => has_user.then_some(Scope::Identity),
        O::ListPodIdentityAssociations | O::CreatePodIdentityAssociation => {
            target.association.is_some().then_some(Scope::Cluster)
        }
        O::DescribePodIdentityAssociation | O::UpdatePodIdentityAssociation | O::DeletePodIdentityAssociation => {
            target.association.is_some().then_some(Scope::Associations)
        }
        // Need no permission of these credentials; that of AssumeRole is tried.
        O::GetCallerIdentity | O::AssumeRole | O::AssumeRoleWithWebIdentity => None,
        // Only for users that somebody put into a group, and for claims of the Go provisioner.
        O::RemoveUserFromGroup | O::ListPolicyVersions | O::DeletePolicyVersion | O::DeletePolicy => None,
        // Only for this examination.
        O::SimulatePrincipalPolicy | O::GetPolicy | O::GetAccountSummary | O::HeadBucket => None,
        O::GetOpenIDConnectProvider | O::DescribeCluster | O::DescribeAddon => None,
    }
}

/// All actions, each once.
pub(crate) fn actions(needs: &Needs) -> BTreeSet<&'static str> {
    needs.values().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::AwsProvisioner;
    use crate::class::environment::Environment;
    use crate::class::params::ClassParameters;
    use crate::class::plan;
    use crate::testing::{granted, planned_as, record};
    use bucket_provisioner::store::{
        CommonParameters, NameRules, Parameters as _, Provisioner as _, RawParameters, Record, Request,
    };

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
        assert_eq!(
            arn(Scope::Identity),
            format!("arn:aws:iam::123456789012:user/aws-s3-provisioner/shop-photos-{uid}")
        );
        assert_eq!(arn(Scope::AnyPath), format!("arn:aws:iam::123456789012:user/shop-photos-{uid}"));
        assert_eq!(Scope::Identity.in_policy(&target, "aws"), "arn:aws:iam::*:user/aws-s3-provisioner/*");
    }

    /// The record of a claim of a class with these parameters.
    fn claim_of(parameters: &[(&str, &str)]) -> Record {
        let written = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (common, own) = CommonParameters::split(&written, NameRules::S3, AwsProvisioner::CAPABILITIES).unwrap();
        let class = ClassParameters::parse(&RawParameters::new(&own, &common)).unwrap();
        let claim = record().claim;
        let request = Request::new(&claim, "fast", "photos", Mode::Created, "shop-photos", (&class, &own, &common));
        let planned = plan::plan(&request, &Environment::default());
        // What cannot be parsed would need nothing.
        settings::Wanted::planned(&planned).unwrap();
        planned_as(record(), planned)
    }

    /// Class parameters, and the actions that a class without parameters does not need.
    type Added = (&'static [(&'static str, &'static str)], &'static [&'static str]);

    const ROLE: &str = "arn:aws:iam::123456789012:role/buckets";
    const KEY: &str = "arn:aws:kms:us-west-1:123456789012:key/0123-abcd";
    const RULES: &str = r#"{"Rules":[{"ID":"a","Status":"Enabled","Filter":{},"Expiration":{"Days":1}}]}"#;
    const CORS: &str = r#"{"CORSRules":[{"AllowedMethods":["GET"],"AllowedOrigins":["https://example.com"]}]}"#;

    const OF_VERSIONING: &[&str] = &["s3:GetBucketVersioning", "s3:PutBucketVersioning"];
    const OF_ENCRYPTION: &[&str] = &["s3:GetEncryptionConfiguration", "s3:PutEncryptionConfiguration"];
    const OF_LIFECYCLE: &[&str] = &["s3:GetLifecycleConfiguration", "s3:PutLifecycleConfiguration"];
    const OF_CORS: &[&str] = &["s3:GetBucketCORS", "s3:PutBucketCORS"];
    const OF_LOCK: &[&str] = &[
        "s3:GetBucketObjectLockConfiguration",
        "s3:GetObjectLegalHold",
        "s3:GetObjectRetention",
        "s3:PutBucketObjectLockConfiguration",
        "s3:PutBucketVersioning",
    ];
    const OF_BYPASS: &[&str] = &[
        "s3:BypassGovernanceRetention",
        "s3:GetBucketObjectLockConfiguration",
        "s3:GetObjectLegalHold",
        "s3:GetObjectRetention",
    ];
    const OF_LOCK_AND_BYPASS: &[&str] = &[
        "s3:BypassGovernanceRetention",
        "s3:GetBucketObjectLockConfiguration",
        "s3:GetObjectLegalHold",
        "s3:GetObjectRetention",
        "s3:PutBucketObjectLockConfiguration",
        "s3:PutBucketVersioning",
    ];

    const ADDED: &[Added] = &[
        // CreateBucket and CreateUser have tags anyway.
        (&[("tags", "team=shop")], &[]),
        (&[("bucketVersioning", "Enabled")], OF_VERSIONING),
        (&[("encryption", "AES256")], OF_ENCRYPTION),
        // Only the claim's keys use it.
        (&[("encryption", "aws:kms"), ("kmsKey", KEY)], OF_ENCRYPTION),
        (&[("expireAfter", "30d")], OF_LIFECYCLE),
        (&[("expireNoncurrentAfter", "30d")], OF_LIFECYCLE),
        (&[("abortIncompleteUploadsAfter", "1d")], OF_LIFECYCLE),
        (&[("bucketLifecycle", RULES)], OF_LIFECYCLE),
        (&[("requireTLS", "true")], &["s3:GetBucketPolicy", "s3:PutBucketPolicy"]),
        (&[("publicAccess", "blocked")], &["s3:GetBucketPublicAccessBlock", "s3:PutBucketPublicAccessBlock"]),
        // CreateBucket names the ownership anyway.
        (&[("objectOwnership", "ObjectWriter")], &["s3:GetBucketOwnershipControls"]),
        (&[("accessLogs", "logs/${namespace}/")], &["s3:GetBucketLogging", "s3:PutBucketLogging"]),
        (&[("objectLock", "Enabled")], OF_LOCK),
        (&[("objectLock", "COMPLIANCE:1y")], OF_LOCK),
        (&[("objectLock", "GOVERNANCE:30d"), ("bypassGovernance", "no")], OF_LOCK),
        (&[("objectLock", "GOVERNANCE:30d"), ("bypassGovernance", "yes")], OF_LOCK_AND_BYPASS),
        (&[("bypassGovernance", "yes")], OF_BYPASS),
        (&[("bucketCors", CORS)], OF_CORS),
        (&[("eventBridge", "true")], &["s3:GetBucketNotification", "s3:PutBucketNotification"]),
        // What claims may set is needed before one does.
        (&[("claimsMaySet", "bucketVersioning")], OF_VERSIONING),
        (&[("claimsMaySet", "expireNoncurrentAfter")], OF_LIFECYCLE),
        (&[("claimsMaySet", "bucketLifecycle")], OF_LIFECYCLE),
        (&[("claimsMaySet", "objectLock")], OF_LOCK),
        (&[("claimsMaySet", "bucketCors")], OF_CORS),
        (&[("claimsMaySet", "tags.*")], &["iam:UntagUser"]),
        (&[("claimsMaySet", "tags.team")], &["iam:UntagUser"]),
        (&[("claimsMaySet", "bucketClaimName")], &[]),
        // These change the names, the policies and the signer of calls, and not which calls there are.
        (&[("accessMode", "WriteOnly")], &[]),
        (&[("region", "us-west-1"), ("bucketNamespace", "account-regional"), ("accountId", "123456789012")], &[]),
        (&[("ownerRole", ROLE), ("ownerRoleExternalId", "this-cluster")], &[]),
        (&[("permissionsBoundary", "arn:aws:iam::123456789012:policy/bound")], &[]),
    ];

    #[test]
    fn a_class_parameter_adds_exactly_these_actions() {
        let plain = needed(&claim_of(&[]));
        for (parameters, actions) in ADDED {
            let with = needed(&claim_of(parameters));
            assert!(plain.is_subset(&with), "{parameters:?}");
            let added: Vec<_> = with.difference(&plain).copied().collect();
            assert_eq!(added, *actions, "{parameters:?}");
        }
    }

    /// So that a new one gets its row.
    #[test]
    fn the_actions_of_every_setting_are_in_the_table() {
        let is_listed = |name: &str| ADDED.iter().any(|(all, _)| all.iter().any(|(listed, _)| *listed == name));
        let names = settings::SETTINGS.iter().map(|setting| setting.name).filter(|name| !name.ends_with('.'));
        let left: Vec<_> = names.filter(|name| !is_listed(name)).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// A policy that allows them on the bucket alone would not help.
    #[test]
    fn locks_are_read_and_ended_on_objects() {
        let record = claim_of(&[("objectLock", "Enabled"), ("bypassGovernance", "yes")]);
        let needs = of(&Target::of(&record, &Environment::default()));
        for action in ["s3:GetObjectRetention", "s3:GetObjectLegalHold", "s3:BypassGovernanceRetention"] {
            let on: Vec<_> =
                needs.iter().filter(|(_, actions)| actions.contains(action)).map(|(scope, _)| *scope).collect();
            assert_eq!(on, [Scope::Objects], "{action}");
        }
    }
}
