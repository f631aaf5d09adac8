//! The parameters of a StorageClass, parsed once into [`ClassParameters`].
//!
//! Through them admins decide what users get, so nothing is guessed: an unknown parameter or an invalid value is
//! refused. The error names the parameter and the remedy.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde::de::value::MapDeserializer;

use super::names::{BucketName, NameError};
use super::values::{
    Addressing, ClaimedBucket, CredentialsMode, EndpointUrl, IamPath, Namespaces, Naming, ParameterError, PolicyArn,
    Region, bad, yes_or_no,
};
use crate::provisioner::{Rotation, SecretRef};

/// Region of a class without one; the Go provisioner has the same default.
pub const DEFAULT_REGION: &str = "us-west-1";
/// IAM path of users of a class without one. The owner's IAM policy can be limited to it.
pub const DEFAULT_IAM_PATH: &str = "/aws-s3-provisioner/";

/// What an admin wrote, by name. In a StorageClass the names are in camel case.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    region: Given,
    secret_name: Given,
    secret_namespace: Given,
    create_bucket_user: Given,
    bucket_name: Given,
    s3_endpoint: Given,
    iam_endpoint: Given,
    force_path_style: Given,
    iam_path: Given,
    permissions_boundary: Given,
    rotate_keys_every: Given,
    key_grace_period: Given,
    allow_claimed_bucket: Given,
    allowed_namespaces: Given,
    explicit_names: Given,
    bucket_name_prefix: Given,
}

/// An optional value. (`MapDeserializer` cannot read a string as `Option`.)
#[derive(Default, Deserialize)]
#[serde(from = "String")]
struct Given(Option<String>);

impl From<String> for Given {
    fn from(value: String) -> Self {
        Self(Some(value))
    }
}

/// The parameters of a class, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassParameters {
    /// Region of the buckets.
    pub region: Region,
    /// Where the owner credentials are; `None` is the operator's own identity.
    pub owner_secret: Option<SecretRef>,
    /// Whose keys a claim's app gets.
    pub credentials: CredentialsMode,
    /// The existing bucket that every claim of the class gets access to.
    pub bucket: Option<BucketName>,
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
    /// When the keys of users are rotated.
    pub rotation: Rotation,
    /// Whether the bucket that the class names can be one that was created for another claim.
    pub claimed_bucket: ClaimedBucket,
    /// The namespaces whose claims can use the class; `None` for all.
    pub namespaces: Option<Namespaces>,
    /// How claims can name their buckets.
    pub naming: Naming,
}

impl ClassParameters {
    /// Parses the `parameters` of a StorageClass.
    ///
    /// # Errors
    /// The first parameter that cannot be used, by name.
    pub fn parse(parameters: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let entries = parameters.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let Raw {
            region: Given(region),
            secret_name: Given(secret_name),
            secret_namespace: Given(secret_namespace),
            create_bucket_user: Given(create_bucket_user),
            bucket_name: Given(bucket_name),
            s3_endpoint: Given(s3_endpoint),
            iam_endpoint: Given(iam_endpoint),
            force_path_style: Given(force_path_style),
            iam_path: Given(iam_path),
            permissions_boundary: Given(permissions_boundary),
            rotate_keys_every: Given(rotate_keys_every),
            key_grace_period: Given(key_grace_period),
            allow_claimed_bucket: Given(allow_claimed_bucket),
            allowed_namespaces: Given(allowed_namespaces),
            explicit_names: Given(explicit_names),
            bucket_name_prefix: Given(bucket_name_prefix),
        } = Raw::deserialize(MapDeserializer::<_, ParameterError>::new(entries))?;

        let s3_endpoint = s3_endpoint.map(|url| EndpointUrl::parse("s3Endpoint", &url)).transpose()?;
        let region = region.as_deref().unwrap_or(DEFAULT_REGION);
        let owner_secret = owner_secret(secret_name, secret_namespace)?;
        let credentials = credentials(create_bucket_user.as_deref(), owner_secret.as_ref())?;
        let claimed_bucket = claimed_bucket(allow_claimed_bucket.as_deref(), bucket_name.is_some())?;
        let naming = naming(explicit_names.as_deref(), bucket_name_prefix.as_deref(), bucket_name.is_some())?;
        Ok(Self {
            region: Region::parse(region, s3_endpoint.as_ref())?,
            owner_secret,
            credentials,
            bucket: bucket_name.map(|name| BucketName::existing(&name).map_err(bad_bucket)).transpose()?,
            iam_endpoint: iam_endpoint.map(|url| EndpointUrl::parse("iamEndpoint", &url)).transpose()?,
            s3_endpoint,
            addressing: addressing(force_path_style.as_deref())?,
            iam_path: IamPath::parse(iam_path.as_deref().unwrap_or(DEFAULT_IAM_PATH))?,
            permissions_boundary: permissions_boundary.as_deref().map(PolicyArn::parse).transpose()?,
            rotation: rotation(rotate_keys_every.as_deref(), key_grace_period.as_deref(), credentials)?,
            claimed_bucket,
            namespaces: allowed_namespaces.as_deref().map(Namespaces::parse).transpose()?,
            naming,
        })
    }
}

fn bad_bucket(NameError { name, rule }: NameError) -> ParameterError {
    bad("bucketName", &name, format!("is not a bucket name: {rule}"), "name an existing bucket")
}

fn owner_secret(name: Option<String>, namespace: Option<String>) -> Result<Option<SecretRef>, ParameterError> {
    match (name, namespace) {
        (None, None) => Ok(None),
        (Some(name), Some(namespace)) => Ok(Some(SecretRef {
            namespace: dns_name("secretNamespace", namespace)?,
            name: dns_name("secretName", name)?,
        })),
        (Some(_), None) => Err(ParameterError::Missing {
            missing: "secretNamespace",
            because: "secretName is set, and a StorageClass has no namespace of its own",
        }),
        (None, Some(_)) => Err(ParameterError::Missing {
            missing: "secretName",
            because: "secretNamespace is set; set both, or neither to use the operator's own AWS identity",
        }),
    }
}

/// The name of a Kubernetes object, checked just enough that a lookup can succeed.
fn dns_name(parameter: &'static str, value: String) -> Result<String, ParameterError> {
    let fits = (1..=253).contains(&value.len())
        && value.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.');
    if fits {
        Ok(value)
    } else {
        Err(bad(
            parameter,
            &value,
            "cannot be the name of a Kubernetes object",
            "use lower-case letters, digits, '-' and '.'",
        ))
    }
}

fn credentials(value: Option<&str>, owner: Option<&SecretRef>) -> Result<CredentialsMode, ParameterError> {
    match (yes_or_no("createBucketUser", value, true)?, owner) {
        (true, _) => Ok(CredentialsMode::OwnUser),
        (false, Some(_)) => Ok(CredentialsMode::ShareOwner),
        (false, None) => Err(ParameterError::Missing {
            missing: "secretName",
            because: "createBucketUser is \"no\", and the operator's own AWS identity cannot be shared with apps, \
                      because its credentials are temporary",
        }),
    }
}

fn claimed_bucket(value: Option<&str>, names_bucket: bool) -> Result<ClaimedBucket, ParameterError> {
    const NAME: &str = "allowClaimedBucket";
    if value.is_some() && !names_bucket {
        return Err(ParameterError::Missing {
            missing: "bucketName",
            because: "allowClaimedBucket applies only to an existing bucket that the class names",
        });
    }
    Ok(if yes_or_no(NAME, value, false)? { ClaimedBucket::Allowed } else { ClaimedBucket::Refused })
}

fn naming(explicit: Option<&str>, prefix: Option<&str>, names_bucket: bool) -> Result<Naming, ParameterError> {
    const EXPLICIT: &str = "explicitNames";
    const PREFIX: &str = "bucketNamePrefix";
    let given = [(EXPLICIT, explicit), (PREFIX, prefix)].into_iter().find_map(|(name, value)| Some((name, value?)));
    if let Some((name, value)) = given.filter(|_| names_bucket) {
        return Err(bad(name, value, "applies to new buckets, but bucketName names an existing one", "remove it"));
    }
    let explicit = yes_or_no(EXPLICIT, explicit, true)?;
    let prefix = prefix.unwrap_or_default();
    super::names::beginning(prefix).map_err(|rule| {
        let problem = format!("cannot be the start of a bucket name: {rule}");
        bad(PREFIX, prefix, problem, "write the first characters of bucket names, such as \"acme-\"")
    })?;
    Ok(Naming { explicit, prefix: prefix.to_owned() })
}

/// Keys are not rotated more often than this, because every app of the claim has to read the new ones.
const MIN_ROTATION: Duration = Duration::from_secs(60 * 60);

fn rotation(
    every: Option<&str>,
    grace: Option<&str>,
    credentials: CredentialsMode,
) -> Result<Rotation, ParameterError> {
    let duration = |name: &'static str, value: Option<&str>| {
        value.map(|text| {
            humantime::parse_duration(text).map_err(|_| {
                bad(name, text, "is not a duration", "write a number with a unit, such as \"720h\" or \"30d\"")
            })
        })
    };
    const EVERY: &str = "rotateKeysEvery";
    let parsed = duration(EVERY, every).transpose()?;
    let kept = duration("keyGracePeriod", grace).transpose()?;
    let (Some(text), Some(every)) = (every, parsed) else {
        return Ok(Rotation { every: None, grace: kept.unwrap_or(Rotation::DEFAULT_GRACE) });
    };
    // Frequent rotation shortens the default grace period.
    let grace = kept.unwrap_or(Rotation::DEFAULT_GRACE.min(every / 2));
    if credentials == CredentialsMode::ShareOwner {
        return Err(bad(EVERY, text, "rotates the keys of users, but createBucketUser is \"no\"", "remove it"));
    }
    if every < MIN_ROTATION {
        return Err(bad(EVERY, text, "is too short", "write \"1h\" or more"));
    }
    if every <= grace {
        return Err(bad(
            EVERY,
            text,
            "is not longer than keyGracePeriod",
            "make it longer: a user has two keys at most",
        ));
    }
    Ok(Rotation { every: Some(every), grace })
}

fn addressing(value: Option<&str>) -> Result<Addressing, ParameterError> {
    match value {
        None | Some("false") => Ok(Addressing::Host),
        Some("true") => Ok(Addressing::Path),
        Some(other) => Err(bad("forcePathStyle", other, "is neither true nor false", "write \"true\" or \"false\"")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<ClassParameters, ParameterError> {
        ClassParameters::parse(&entries.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    fn message(entries: &[(&str, &str)]) -> String {
        parse(entries).unwrap_err().to_string()
    }

    #[test]
    fn a_class_without_parameters_gets_the_defaults() {
        let parameters = parse(&[]).unwrap();
        assert_eq!(parameters.region.as_str(), "us-west-1");
        assert_eq!(parameters.owner_secret, None);
        assert_eq!(parameters.credentials, CredentialsMode::OwnUser);
        assert_eq!(parameters.iam_path.as_str(), "/aws-s3-provisioner/");
        assert_eq!(parameters.addressing, Addressing::Host);
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name_and_the_known_ones_are_listed() {
        insta::assert_snapshot!(message(&[("Region", "us-east-1")]), @r#"unknown parameter "Region"; remove it, or use one of: region, secretName, secretNamespace, createBucketUser, bucketName, s3Endpoint, iamEndpoint, forcePathStyle, iamPath, permissionsBoundary, rotateKeysEvery, keyGracePeriod, allowClaimedBucket, allowedNamespaces, explicitNames, bucketNamePrefix"#);
    }

    #[test]
    fn half_a_secret_reference_names_the_other_half() {
        assert!(message(&[("secretName", "s")]).starts_with("parameter secretNamespace is missing"));
        assert!(message(&[("secretNamespace", "n")]).starts_with("parameter secretName is missing"));
    }

    #[test]
    fn sharing_the_owners_keys_needs_a_secret() {
        assert!(message(&[("createBucketUser", "no")]).contains("cannot be shared"));
        let shared = [("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")];
        assert_eq!(parse(&shared).unwrap().credentials, CredentialsMode::ShareOwner);
    }

    #[test]
    fn a_claimed_bucket_is_refused_unless_the_class_says_otherwise() {
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
            ("bucketName", "Photos", "name an existing bucket"),
            ("rotateKeysEvery", "monthly", "\"30d\""),
            ("rotateKeysEvery", "10m", "\"1h\" or more"),
            ("keyGracePeriod", "1 fortnight", "\"720h\""),
        ] {
            let message = message(&[(name, value)]);
            assert!(message.starts_with(&format!("parameter {name}: {value:?} ")), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn a_value_that_may_name_an_account_or_tenants_is_not_repeated() {
        for boundary in ["admins-only", "arn:aws:iam::210987654321:role/x", "arn:aws:iam::210987654321:policy/"] {
            assert_eq!(
                message(&[("permissionsBoundary", boundary)]),
                "parameter permissionsBoundary is not the ARN of an IAM policy; write an ARN such as arn:aws:iam::123456789012:policy/bucket-users"
            );
        }
        insta::assert_snapshot!(message(&[("allowedNamespaces", "billing,*payroll")]), @r#"parameter allowedNamespaces cannot be used: entry 2 is neither the name of a namespace nor a prefix with '*'; write names and prefixes, separated by commas, such as "shop,team-*""#);
    }

    #[test]
    fn regions_of_every_partition_are_known_and_another_store_names_its_own() {
        for region in ["us-east-1", "us-gov-west-1", "cn-north-1", "ap-southeast-5", "us-isob-east-1", "eusc-de-east-1"]
        {
            assert!(parse(&[("region", region)]).is_ok(), "{region}");
        }
        assert!(parse(&[("region", "garage"), ("s3Endpoint", "http://garage:3900")]).is_ok());
    }
}
