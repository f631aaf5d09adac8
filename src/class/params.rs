//! The parameters of a StorageClass, parsed once into [`ClassParameters`].
//!
//! Through them admins decide what users get, so nothing is guessed: an unknown parameter or an invalid value is
//! refused. The error names the parameter and the remedy.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::class::namespace::{ACCOUNT_REGIONAL, AccountRegional, NAMESPACE, namespace};
use crate::class::oidc::{Oidc, oidc};
use crate::class::pod_identity::{Others, PodIdentity, pod_identity};
use crate::class::region::partition;
use crate::class::values::{
    Addressing, ClaimedBucket, CredentialsMode, EndpointUrl, IamPath, PolicyArn, Region, owner_role,
};
use bucket_provisioner::store::parameter::{check, names_of, read, table_of, yes_or_no};
use bucket_provisioner::store::{Parameter, ParameterError, Parameters, RawParameters, Record, RoleRef, SecretRef};

/// Region of a class without one, if the operator's environment has none, either; the Go provisioner has the same default.
pub const DEFAULT_REGION: &str = "us-west-1";
/// IAM path of users of a class without one. The provisioning policy can be limited to it.
pub const DEFAULT_IAM_PATH: &str = "/aws-s3-provisioner/";

/// What an admin wrote.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Raw {
    /// Region of the buckets, as the store names it.
    #[schemars(extend("default" = "the operator's `AWS_REGION`; without it, or in another store, `us-west-1`"))]
    region: Option<String>,
    /// `yes`: an IAM user for each claim. `no`: claims get the provisioning credentials, **with all their
    /// permissions**; needs `secretName`, and excludes `rotateKeysEvery`.
    #[schemars(extend("default" = "`yes`"))]
    create_bucket_user: Option<String>,
    /// URL of S3 of [another store](#stores-other-than-aws). Overrides the operator's `AWS_ENDPOINT_URL…`.
    #[schemars(extend("default" = "AWS's own"))]
    s3_endpoint: Option<String>,
    /// The same for IAM.
    #[schemars(extend("default" = "AWS's own"))]
    iam_endpoint: Option<String>,
    /// `true`: `s3.example/bucket` instead of `bucket.s3.example`.
    #[schemars(extend("default" = "`false`"))]
    force_path_style: Option<String>,
    /// IAM path of the users, as in the provisioning policy; begins and ends with `/`.
    #[schemars(extend("default" = "`/aws-s3-provisioner/`"))]
    iam_path: Option<String>,
    /// ARN of the permissions boundary of the users, which the recommended policy [requires](permissions.md).
    #[schemars(extend("default" = "none"))]
    permissions_boundary: Option<String>,
    /// `yes`: the bucket in `bucketName` may be one that was created for a claim, [otherwise
    /// refused](security.md#shared-buckets).
    #[schemars(extend("default" = "`no`"))]
    allow_claimed_bucket: Option<String>,
    /// Limit of IAM calls, reads and changes each, for all classes of the account with the same value. The lower of this
    /// and `--iam-calls-per-second` applies.
    #[schemars(extend("default" = "none"))]
    iam_calls_per_second: Option<String>,
    /// `account-regional`: [names that only this account can use](classes.md#use-account-regional-names). Needs
    /// `region`, and `accountId` unless another parameter names the account.
    #[schemars(extend("default" = "`global`"))]
    bucket_namespace: Option<String>,
    /// Account of the buckets, 12 digits; only with `bucketNamespace: account-regional`.
    #[schemars(extend("default" = "that of `ownerRole`, `permissionsBoundary`, `oidcProvider` or `podRole`"))]
    account_id: Option<String>,
    /// ARN of a role [of another account](several-clusters.md#use-buckets-in-another-account) that the operator's
    /// identity, or the keys in `secretName`, assume. Excludes `createBucketUser: "no"`.
    #[schemars(extend("default" = "none"))]
    owner_role: Option<String>,
    /// [Access without keys](keyless.md): ARN of the identity provider in IAM for this cluster's tokens.
    /// `authentication: ServiceAccount` needs it, or `eksCluster` and `podRole`.
    #[schemars(extend("default" = "none"))]
    oidc_provider: Option<String>,
    /// Audience of the tokens, one of the provider's client ids; on kOps `amazonaws.com`.
    #[schemars(extend("default" = "`sts.amazonaws.com`"))]
    oidc_audience: Option<String>,
    /// [EKS Pod Identity](keyless.md#eks-pod-identity): ARN of this cluster. Excludes `oidcProvider`, `ownerRole` and
    /// `permissionsBoundary`.
    #[schemars(extend("default" = "none"))]
    eks_cluster: Option<String>,
    /// ARN of the role whose sessions pods get, in the account of `eksCluster`.
    #[schemars(extend("default" = "none"))]
    pod_role: Option<String>,
    /// External id in the trust policy of `ownerRole` (`sts:ExternalId`).
    #[schemars(extend("default" = "none"))]
    owner_role_external_id: Option<String>,
}

/// The parameters of a class, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassParameters {
    /// Region of the buckets, if the class names one.
    pub region: Option<Region>,
    /// Whose keys a claim's app gets.
    pub credentials: CredentialsMode,
    /// The S3 endpoint, if it is not the default one of AWS.
    pub s3_endpoint: Option<EndpointUrl>,
    /// The IAM endpoint, if it is not the default one of AWS.
    pub iam_endpoint: Option<EndpointUrl>,
    /// How buckets are addressed.
    pub addressing: Addressing,
    /// Path of the users.
    pub iam_path: IamPath,
    /// Permissions boundary of the users.
    pub permissions_boundary: Option<PolicyArn>,
    /// Whether the bucket that the class names can be one that was created for another claim.
    pub claimed_bucket: ClaimedBucket,
    /// The most calls to IAM in a second.
    pub iam_calls_per_second: Option<u32>,
    /// The role that the provisioning credentials assume.
    pub owner_role: Option<RoleRef>,
    /// The identity provider of a class whose apps have access as ServiceAccounts, by a role for each.
    pub oidc: Option<Oidc>,
    /// The cluster and role of a class whose apps have access as ServiceAccounts, by EKS Pod Identity. Without both, they have
    /// keys.
    pub pod_identity: Option<PodIdentity>,
    /// The namespace of new buckets; `None`: the global one.
    pub namespace: Option<AccountRegional>,
}

impl Parameters for ClassParameters {
    /// The verbs read what was planned from the record itself, where earlier versions have it as well.
    type Recorded = ();

    fn names() -> &'static [&'static str] {
        names_of::<Raw>()
    }

    fn table() -> Vec<Parameter> {
        table_of::<Raw>()
    }

    fn check() -> Result<(), String> {
        check::<Raw>()
    }

    fn recorded(_: &Record) -> Result<(), ParameterError> {
        Ok(())
    }

    fn parse(written: &RawParameters<'_>) -> Result<Self, ParameterError> {
        let raw: Raw = read(written.own)?;
        let common = written.common;
        let s3_endpoint = raw.s3_endpoint.map(|url| EndpointUrl::parse("s3Endpoint", &url)).transpose()?;
        let credentials = credentials(raw.create_bucket_user.as_deref(), common.owner_secret.as_ref())?;
        if credentials == CredentialsMode::ShareOwner && raw.owner_role.is_some() {
            let problem = "shares keys with apps, but the session of ownerRole is temporary";
            return Err(ParameterError::bad("createBucketUser", "no", problem, "remove one of them"));
        }
        if credentials == CredentialsMode::ShareOwner && common.rotate_keys_every().is_some() {
            let problem = "leaves claims without users, but rotateKeysEvery rotates the keys of users";
            return Err(ParameterError::bad("createBucketUser", "no", problem, "remove one of them"));
        }
        let region = raw.region.map(|region| Region::parse(&region, s3_endpoint.as_ref())).transpose()?;
        let of_aws = region.as_ref().filter(|_| s3_endpoint.is_none());
        let partition = of_aws.map(|region| partition(region.as_str()).id);
        let permissions_boundary = raw.permissions_boundary.as_deref().map(PolicyArn::parse).transpose()?;
        let owner_role = owner_role(raw.owner_role, raw.owner_role_external_id, partition)?;
        let others = Others {
            partition,
            s3_endpoint: s3_endpoint.as_ref().filter(|_| raw.iam_endpoint.is_none()),
            has_owner_role: owner_role.is_some(),
            has_boundary: permissions_boundary.is_some(),
            has_provider: raw.oidc_provider.is_some(),
        };
        let named = (raw.eks_cluster.as_deref(), raw.pod_role.as_deref());
        let pod_identity = pod_identity(common.authentication, named, others)?;
        let provider = (raw.oidc_provider.as_deref(), raw.oidc_audience);
        let oidc = oidc(common.authentication, provider, partition, pod_identity.is_some())?;
        if credentials == CredentialsMode::ShareOwner && (oidc.is_some() || pod_identity.is_some()) {
            let problem = "gives apps the provisioning credentials, but authentication gives them none";
            return Err(ParameterError::bad("createBucketUser", "no", problem, "remove one of them"));
        }
        let arns = [
            owner_role.as_ref().map(|role| role.name.as_str()),
            permissions_boundary.as_ref().map(PolicyArn::as_str),
            oidc.as_ref().map(|oidc| oidc.provider.as_str()),
            pod_identity.as_ref().map(|identity| identity.role.as_str()),
        ];
        let namespace = namespace(raw.bucket_namespace.as_deref(), raw.account_id, region.as_ref(), arns)?;
        if namespace.is_some() && common.bucket.is_some() {
            let problem = "applies to new buckets, but bucketName names an existing one";
            return Err(ParameterError::bad(NAMESPACE, ACCOUNT_REGIONAL, problem, "remove one of them"));
        }
        Ok(Self {
            credentials,
            iam_endpoint: raw.iam_endpoint.map(|url| EndpointUrl::parse("iamEndpoint", &url)).transpose()?,
            s3_endpoint,
            addressing: addressing(raw.force_path_style.as_deref())?,
            iam_path: IamPath::parse(raw.iam_path.as_deref().unwrap_or(DEFAULT_IAM_PATH))?,
            permissions_boundary,
            namespace,
            claimed_bucket: claimed_bucket(raw.allow_claimed_bucket.as_deref(), common.bucket.is_some())?,
            iam_calls_per_second: raw.iam_calls_per_second.as_deref().map(calls_per_second).transpose()?,
            owner_role,
            oidc,
            pod_identity,
            region,
        })
    }
}

fn credentials(value: Option<&str>, owner: Option<&SecretRef>) -> Result<CredentialsMode, ParameterError> {
    match (yes_or_no("createBucketUser", value, true)?, owner) {
        (true, _) => Ok(CredentialsMode::OwnUser),
        (false, Some(_)) => Ok(CredentialsMode::ShareOwner),
        (false, None) => Err(ParameterError::missing(
            "secretName",
            "createBucketUser is \"no\", and the operator's own AWS identity cannot be shared with apps, \
             because its credentials are temporary",
        )),
    }
}

fn claimed_bucket(value: Option<&str>, names_bucket: bool) -> Result<ClaimedBucket, ParameterError> {
    const NAME: &str = "allowClaimedBucket";
    if value.is_some() && !names_bucket {
        return Err(ParameterError::missing(
            "bucketName",
            "allowClaimedBucket applies only to an existing bucket that the class names",
        ));
    }
    Ok(if yes_or_no(NAME, value, false)? { ClaimedBucket::Allowed } else { ClaimedBucket::Refused })
}

fn calls_per_second(value: &str) -> Result<u32, ParameterError> {
    value.parse().ok().filter(|calls| *calls > 0).ok_or_else(|| {
        ParameterError::bad("iamCallsPerSecond", value, "is not a whole number above 0", "write a number such as \"5\"")
    })
}

fn addressing(value: Option<&str>) -> Result<Addressing, ParameterError> {
    match value {
        None | Some("false") => Ok(Addressing::Host),
        Some("true") => Ok(Addressing::Path),
        Some(other) => {
            let remedy = "write \"true\" or \"false\"";
            Err(ParameterError::bad("forcePathStyle", other, "is neither true nor false", remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bucket_provisioner::store::{Capabilities, CommonParameters, NameRules};

    fn parse(entries: &[(&str, &str)]) -> Result<ClassParameters, ParameterError> {
        let written = entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (common, own) = CommonParameters::split(&written, NameRules::S3, Capabilities::ALL)?;
        ClassParameters::parse(&RawParameters::new(&own, &common))
    }

    fn message(entries: &[(&str, &str)]) -> String {
        parse(entries).unwrap_err().to_string()
    }

    #[test]
    fn a_class_without_parameters_gets_the_defaults() {
        let parameters = parse(&[]).unwrap();
        assert_eq!(parameters.region, None);
        assert_eq!(parameters.credentials, CredentialsMode::OwnUser);
        assert_eq!(parameters.iam_path.as_str(), "/aws-s3-provisioner/");
        assert_eq!(parameters.addressing, Addressing::Host);
    }

    #[test]
    fn sharing_the_owners_keys_needs_a_secret() {
        assert!(message(&[("createBucketUser", "no")]).contains("cannot be shared"));
        let shared = [("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")];
        assert_eq!(parse(&shared).unwrap().credentials, CredentialsMode::ShareOwner);
    }

    #[test]
    fn a_claimed_bucket_is_refused_unless_the_class_allows_it() {
        let claimed = |entries: &[(&str, &str)]| parse(entries).map(|parameters| parameters.claimed_bucket);
        let named = ("bucketName", "photos");
        assert_eq!(claimed(&[named]), Ok(ClaimedBucket::Refused));
        assert_eq!(claimed(&[named, ("allowClaimedBucket", "no")]), Ok(ClaimedBucket::Refused));
        assert_eq!(claimed(&[named, ("allowClaimedBucket", "yes")]), Ok(ClaimedBucket::Allowed));
        assert!(message(&[named, ("allowClaimedBucket", "true")]).contains("write \"yes\" or \"no\""));
        assert!(message(&[("allowClaimedBucket", "yes")]).starts_with("parameter bucketName is missing"));
    }

    #[test]
    fn a_bad_value_names_parameter_value_and_remedy() {
        for (name, value, remedy) in [
            ("createBucketUser", "No", "write \"yes\" or \"no\""),
            ("region", "Frankfurt", "eu-central-1"),
            ("region", "", "eu-central-1"),
            ("region", "garage", "eu-central-1"),
            ("forcePathStyle", "yes", "\"true\" or \"false\""),
            ("s3Endpoint", "minio:9000", "https://s3.example.com:9000"),
            ("s3Endpoint", "minio", "https://s3.example.com:9000"),
            ("iamEndpoint", "https://iam.example?x=1", "https://s3.example.com:9000"),
            ("iamPath", "team", "/aws-s3-provisioner/"),
            ("iamPath", "/te am/", "/aws-s3-provisioner/"),
        ] {
            let message = message(&[(name, value)]);
            assert!(message.starts_with(&format!("parameter {name}: {value:?} ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn a_value_that_may_name_an_account_is_not_repeated() {
        for boundary in ["admins-only", "arn:aws:iam::210987654321:role/x", "arn:aws:iam::210987654321:policy/"] {
            assert_eq!(
                message(&[("permissionsBoundary", boundary)]),
                "parameter permissionsBoundary is not the ARN of an IAM policy; write an ARN such as arn:aws:iam::123456789012:policy/bucket-users"
            );
        }
    }

    #[test]
    fn a_role_needs_an_arn_and_users() {
        let arn = ("ownerRole", "arn:aws-cn:iam::123456789012:role/team/buckets");
        let external_id = ("ownerRoleExternalId", "kept=by+us");
        let role = parse(&[arn, external_id]).unwrap().owner_role.unwrap();
        assert_eq!((role.name.as_str(), role.external_id.as_deref()), (arn.1, Some("kept=by+us")));
        for (entries, problem) in [
            (&[("ownerRole", "buckets")][..], "parameter ownerRole is not the ARN of an IAM role; write"),
            (&[("ownerRole", "arn:aws:iam::aws:role/x")], "parameter ownerRole is not the ARN of an IAM role; write"),
            (&[arn, ("ownerRoleExternalId", "1")], "parameter ownerRoleExternalId is not 2 to 1,224 letters"),
            (&[external_id], "parameter ownerRole is missing"),
            (&[arn, ("region", "eu-west-1")], "parameter ownerRole is of another partition than the region"),
            (
                &[arn, ("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")],
                "parameter createBucketUser: \"no\" shares keys",
            ),
        ] {
            assert!(message(entries).starts_with(problem), "{}", message(entries));
        }
    }

    #[test]
    fn regions_are_known_on_aws_and_free_on_other_stores() {
        for region in ["us-east-1", "us-gov-west-1", "cn-north-1", "ap-southeast-5", "us-isob-east-1", "eusc-de-east-1"]
        {
            assert!(parse(&[("region", region)]).is_ok(), "{region}");
        }
        assert!(parse(&[("region", "garage"), ("s3Endpoint", "http://garage:3900")]).is_ok());
    }
}
