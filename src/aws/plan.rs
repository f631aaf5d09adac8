//! Planning: what a claim gets, decided without any I/O; and `Target`, the same decision read back from
//! a record.
//!
//! What is in force when a claim is planned (the class, and the endpoints that the operator's environment
//! names) goes into the plan, so that deletion needs neither.

use std::collections::BTreeMap;

use super::error::Error;
use super::names::{BucketName, UserName};
use super::params::{
    Addressing, ClaimedBucket, ClassParameters, CredentialsMode, DEFAULT_IAM_PATH, DEFAULT_REGION, Naming,
};
use super::region::{is_host_of_aws, s3_host};
use super::values::{EndpointUrl, ParameterError};
use crate::provisioner::{ClaimId, Endpoint, Mode, Plan, Record, Request, WantedBucket};

/// Keys of [`Plan::state`].
pub(crate) mod state {
    pub(crate) use crate::api::wire::state::GO_POLICY_ARN;
    pub(crate) const IAM_PATH: &str = "iamPath";
    pub(crate) const PERMISSIONS_BOUNDARY: &str = "permissionsBoundary";
    pub(crate) const IAM_ENDPOINT: &str = "iamEndpoint";
    pub(crate) const FORCE_PATH_STYLE: &str = "forcePathStyle";
    pub(crate) const ALLOW_CLAIMED_BUCKET: &str = "allowClaimedBucket";
}

/// The endpoints that the SDK's environment variables name for the whole operator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    s3: Option<EndpointUrl>,
    iam: Option<EndpointUrl>,
    sts: Option<EndpointUrl>,
}

impl Environment {
    /// Reads AWS_ENDPOINT_URL and, before it, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL_IAM and AWS_ENDPOINT_URL_STS,
    /// unless AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is true ("Service-specific endpoints", AWS SDKs and
    /// Tools reference guide). An empty variable is not set.
    ///
    /// # Errors
    /// A variable that holds no URL, by name.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ParameterError> {
        if variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return Ok(Self::default());
        }
        let endpoint = |name: &'static str| {
            variable(name).filter(|url| !url.is_empty()).map(|url| EndpointUrl::parse(name, &url)).transpose()
        };
        let any = endpoint("AWS_ENDPOINT_URL")?;
        Ok(Self {
            s3: endpoint("AWS_ENDPOINT_URL_S3")?.or_else(|| any.clone()),
            iam: endpoint("AWS_ENDPOINT_URL_IAM")?.or_else(|| any.clone()),
            sts: endpoint("AWS_ENDPOINT_URL_STS")?.or(any),
        })
    }
}

/// Fields of a claim.
const NAME: &str = "spec.bucketName";
const PREFIX: &str = "spec.generateBucketName";

/// Decides what the claim of a request gets.
pub(crate) fn plan(request: &Request<'_>, environment: &Environment) -> Result<Plan, Error> {
    let class = request.class_name;
    let ClassParameters {
        region,
        owner_secret,
        credentials,
        bucket: class_bucket,
        s3_endpoint,
        iam_endpoint,
        addressing,
        iam_path,
        permissions_boundary,
        rotation,
        claimed_bucket,
        namespaces,
        naming,
    } = ClassParameters::parse(request.parameters)
        .map_err(|problem| Error::InvalidClassParameter { class: class.to_owned(), problem })?;

    let s3_endpoint = s3_endpoint.or_else(|| environment.s3.clone());
    let iam_endpoint = iam_endpoint.or_else(|| environment.iam.clone());
    let ClaimId { namespace, .. } = request.claim;
    if request.is_new && namespaces.is_some_and(|allowed| !allowed.contain(namespace)) {
        return Err(Error::NamespaceNotAllowed { class: class.to_owned(), namespace: namespace.clone() });
    }
    let (bucket, mode) = bucket(request, class_bucket, &naming)?;
    let user = match credentials {
        CredentialsMode::OwnUser => Some(UserName::for_claim(request.claim).as_str().to_owned()),
        CredentialsMode::ShareOwner => None,
    };

    let mut recorded = BTreeMap::new();
    let mut note = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            recorded.insert(key.to_owned(), value.to_owned());
        }
    };
    if user.is_some() {
        note(state::IAM_PATH, Some(iam_path.as_str()));
        note(state::PERMISSIONS_BOUNDARY, permissions_boundary.as_ref().map(|arn| arn.as_str()));
        note(state::IAM_ENDPOINT, iam_endpoint.as_ref().map(EndpointUrl::as_str));
    }
    note(state::FORCE_PATH_STYLE, (addressing == Addressing::Path).then_some("true"));
    note(state::ALLOW_CLAIMED_BUCKET, (claimed_bucket == ClaimedBucket::Allowed).then_some("true"));

    Ok(Plan {
        bucket: bucket.as_str().to_owned(),
        mode,
        endpoint: endpoint(region.as_str(), s3_endpoint.as_ref()),
        owner_secret,
        user,
        rotation,
        state: recorded,
    })
}

fn bucket(
    request: &Request<'_>,
    class_bucket: Option<BucketName>,
    naming: &Naming,
) -> Result<(BucketName, Mode), Error> {
    let not_allowed = |field, name: &str, why: String| Error::BucketNameNotAllowed {
        class: request.class_name.to_owned(),
        field,
        name: name.to_owned(),
        why,
    };
    let (field, asked) = match (class_bucket, &request.bucket) {
        (Some(bucket), WantedBucket::Named(asked)) if asked != bucket.as_str() => {
            return Err(Error::BucketNotOfClass {
                class: request.class_name.to_owned(),
                bucket: bucket.as_str().to_owned(),
                asked: asked.clone(),
            });
        }
        (Some(bucket), _) => return Ok((bucket, Mode::Granted)),
        (None, WantedBucket::Unspecified) => {
            return Err(Error::BucketNameMissing { class: request.class_name.to_owned() });
        }
        (None, WantedBucket::Named(name)) if request.is_new && !naming.explicit => {
            let why = "set spec.generateBucketName instead (explicitNames is \"no\")".to_owned();
            return Err(not_allowed(NAME, name, why));
        }
        (None, WantedBucket::Named(name)) => (NAME, name),
        (None, WantedBucket::Generated { prefix }) => (PREFIX, prefix),
    };
    let bucket = match field {
        NAME => BucketName::creatable(asked),
        _ => BucketName::generated(asked, request.claim),
    };
    let bucket = bucket.map_err(|problem| Error::InvalidBucketName { field, problem })?;
    // What is asked for may be longer than what becomes the beginning of the name.
    if request.is_new && !bucket.as_str().starts_with(&naming.prefix) {
        let why = format!("begin it with {:?} (bucketNamePrefix)", naming.prefix);
        return Err(not_allowed(field, asked, why));
    }
    Ok((bucket, Mode::Created))
}

fn endpoint(region: &str, url: Option<&EndpointUrl>) -> Endpoint {
    Endpoint {
        host: url.map_or_else(|| s3_host(region), |url| url.host().to_owned()),
        port: url.map_or(443, EndpointUrl::port),
        region: region.to_owned(),
        url: url.map(|url| url.as_str().to_owned()),
    }
}

/// Where calls go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) region: String,
    /// `None`: that of AWS in the region.
    pub(crate) s3: Option<String>,
    /// `None`: that of AWS in the region's partition.
    pub(crate) iam: Option<String>,
    pub(crate) sts: Sts,
    pub(crate) addressing: Addressing,
}

impl Endpoints {
    /// Whether S3 is that of another store than AWS.
    pub(crate) fn s3_is_foreign(&self) -> bool {
        self.s3.as_deref().is_some_and(is_foreign)
    }

    /// Whether IAM is that of another store than AWS. Such stores know fewer actions and conditions of policies, and may
    /// drop the tags of users.
    pub(crate) fn iam_is_foreign(&self) -> bool {
        self.iam.as_deref().is_some_and(is_foreign)
    }
}

fn is_foreign(url: &str) -> bool {
    let url = url::Url::parse(url).ok();
    !url.as_ref().and_then(url::Url::host_str).is_some_and(is_host_of_aws)
}

/// Where credentials are asked whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sts {
    /// At AWS, in the region.
    Aws,
    /// Here.
    At(String),
    /// Nowhere: a store of which only S3 is known.
    Unknown,
}

/// A bucket, and the account that it has to be in: a bucket of that name in another one is refused by AWS ("Verifying
/// bucket ownership with bucket owner condition", Amazon S3 user guide).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketRef<'a> {
    pub(crate) name: &'a str,
    /// `None`: not known, or not the owner's to say.
    pub(crate) account: Option<&'a str>,
}

impl BucketRef<'_> {
    pub(crate) fn account(&self) -> Option<String> {
        self.account.map(str::to_owned)
    }
}

/// A user to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserSpec<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    pub(crate) permissions_boundary: Option<&'a str>,
}

/// All that the verbs need of a record.
///
/// Records of the Go provisioner have neither endpoints nor an IAM path: the operator's environment and the
/// defaults stand in.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) record: &'a Record,
    pub(crate) endpoints: Endpoints,
    /// `None`: the claim shares the owner's keys.
    pub(crate) user: Option<UserSpec<'a>>,
    /// The managed policy that the Go provisioner made for the user.
    pub(crate) go_policy: Option<&'a str>,
    /// Whether access may be given to a bucket that another claim created.
    pub(crate) claimed_bucket: ClaimedBucket,
}

impl<'a> Target<'a> {
    pub(crate) fn of(record: &'a Record, environment: &Environment) -> Self {
        let Plan { endpoint, user, state, .. } = &record.plan;
        let noted = |key: &str| state.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let url = |noted: Option<&str>, environment: &Option<EndpointUrl>| {
            noted.or(environment.as_ref().map(EndpointUrl::as_str)).map(str::to_owned)
        };
        let s3 = url(endpoint.url.as_deref(), &environment.s3);
        let iam = url(noted(state::IAM_ENDPOINT), &environment.iam);
        let is_of_environment =
            |url: &Option<String>, ours: &Option<EndpointUrl>| url.as_deref() == ours.as_ref().map(EndpointUrl::as_str);
        let sts = match &iam {
            // The keys of a store of which only S3 is used mean nothing anywhere else.
            _ if user.is_none() && !is_of_environment(&s3, &environment.s3) => Sts::Unknown,
            Some(iam_of_store) if !is_of_environment(&iam, &environment.iam) => Sts::At(iam_of_store.clone()),
            _ => environment.sts.as_ref().map_or(Sts::Aws, |url| Sts::At(url.as_str().to_owned())),
        };
        Self {
            record,
            endpoints: Endpoints {
                region: Some(endpoint.region.as_str()).filter(|r| !r.is_empty()).unwrap_or(DEFAULT_REGION).to_owned(),
                s3,
                iam,
                sts,
                addressing: match noted(state::FORCE_PATH_STYLE) {
                    Some("true") => Addressing::Path,
                    _ => Addressing::Host,
                },
            },
            user: user.as_deref().map(|name| UserSpec {
                name,
                path: noted(state::IAM_PATH).unwrap_or(DEFAULT_IAM_PATH),
                permissions_boundary: noted(state::PERMISSIONS_BOUNDARY),
            }),
            go_policy: noted(state::GO_POLICY_ARN),
            claimed_bucket: match noted(state::ALLOW_CLAIMED_BUCKET) {
                Some("true") => ClaimedBucket::Allowed,
                _ => ClaimedBucket::Refused,
            },
        }
    }

    /// Name of the bucket.
    pub(crate) fn bucket(&self) -> &'a str {
        &self.record.plan.bucket
    }

    /// The account that the bucket is in: that of whoever created it. A bucket that existed before may be anywhere.
    pub(crate) fn bucket_account(&self) -> Option<&'a str> {
        self.record.account.as_deref().filter(|_| self.record.plan.mode == Mode::Created)
    }

    /// The bucket, as calls about it name it.
    pub(crate) fn bucket_ref(&self) -> BucketRef<'a> {
        BucketRef { name: self.bucket(), account: self.bucket_account() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::aws::testing::record;
    use crate::provisioner::{ClaimId, Failure, FailureClass};

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

    fn planned(parameters: &[(&str, &str)], bucket: WantedBucket, environment: &Environment) -> Result<Plan, Error> {
        let claim = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: UID.into() };
        let parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        plan(&Request { claim: &claim, bucket, class_name: "fast", parameters: &parameters, is_new: true }, environment)
    }

    fn ordinary(parameters: &[(&str, &str)], bucket: WantedBucket) -> Result<Plan, Error> {
        planned(parameters, bucket, &Environment::default())
    }

    fn generated() -> WantedBucket {
        WantedBucket::Generated { prefix: "photos".into() }
    }

    #[test]
    fn an_ordinary_claim_gets_a_bucket_and_a_user_of_its_own() {
        insta::assert_debug_snapshot!(ordinary(&[], generated()).unwrap(), @r#"
        Plan {
            bucket: "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950",
            mode: Created,
            endpoint: Endpoint {
                host: "s3.us-west-1.amazonaws.com",
                port: 443,
                region: "us-west-1",
                url: None,
            },
            owner_secret: None,
            user: Some(
                "shop-photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950",
            ),
            rotation: Rotation {
                every: None,
                grace: 86400s,
            },
            state: {
                "iamPath": "/aws-s3-provisioner/",
            },
        }
        "#);
    }

    #[test]
    fn the_generated_name_may_also_be_asked_for_by_name() {
        let named = ordinary(&[], WantedBucket::Named(format!("photos-{UID}"))).unwrap();
        assert_eq!(named, ordinary(&[], generated()).unwrap());
    }

    #[test]
    fn a_class_that_names_a_bucket_grants_access_to_it() {
        let class = [("bucketName", "shared")];
        for wanted in [WantedBucket::Unspecified, generated(), WantedBucket::Named("shared".into())] {
            let plan = ordinary(&class, wanted).unwrap();
            assert_eq!((plan.bucket.as_str(), plan.mode), ("shared", Mode::Granted));
        }
        let error = ordinary(&class, WantedBucket::Named("mine".into())).unwrap_err();
        insta::assert_snapshot!(error, @r#"spec.bucketName is "mine", but StorageClass fast gives access to bucket "shared" only: leave spec.bucketName out, or use another class"#);
        assert_eq!((error.class(), error.store_untouched()), (FailureClass::Terminal, true));
    }

    #[test]
    fn a_claim_without_a_name_is_told_what_to_set() {
        insta::assert_snapshot!(ordinary(&[], WantedBucket::Unspecified).unwrap_err(), @r#"the claim names no bucket: set spec.generateBucketName or spec.bucketName, or use a StorageClass with the parameter bucketName (fast has none)"#);
    }

    #[test]
    fn a_bad_prefix_names_field_value_character_and_remedy() {
        insta::assert_snapshot!(ordinary(&[], WantedBucket::Generated { prefix: "Photos".into() }).unwrap_err(), @r#"spec.generateBucketName: "Photos" cannot be used: 'P' is not allowed; use lower-case letters, digits, '.' and '-'"#);
    }

    #[test]
    fn what_becomes_of_a_prefix_has_to_begin_as_the_class_says() {
        let prefix = "acme-production-analytics-team-";
        let asked = WantedBucket::Generated { prefix: prefix.to_owned() };
        let error = planned(&[("bucketNamePrefix", prefix)], asked, &Environment::default()).unwrap_err();
        assert!(error.to_string().contains("bucketNamePrefix"), "{error}");
    }

    #[test]
    fn an_unknown_parameter_names_the_class() {
        insta::assert_snapshot!(ordinary(&[("tier", "gold")], generated()).unwrap_err(), @r#"StorageClass fast: unknown parameter "tier"; remove it, or use one of: region, secretName, secretNamespace, createBucketUser, bucketName, s3Endpoint, iamEndpoint, forcePathStyle, iamPath, permissionsBoundary, rotateKeysEvery, keyGracePeriod, allowClaimedBucket, allowedNamespaces, explicitNames, bucketNamePrefix"#);
    }

    #[test]
    fn sharing_the_owners_keys_plans_no_user() {
        let class = [("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")];
        let plan = ordinary(&class, generated()).unwrap();
        assert_eq!((plan.user, plan.state.len()), (None, 0));
    }

    #[test]
    fn endpoints_of_the_class_come_before_those_of_the_environment_and_are_recorded() {
        let environment = Environment::read(|name| match name {
            "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:5810".into()),
            _ => None,
        })
        .unwrap();
        let plan = planned(&[], generated(), &environment).unwrap();
        assert_eq!((plan.endpoint.host.as_str(), plan.endpoint.port), ("127.0.0.1", 5810));
        assert_eq!(plan.endpoint.url.as_deref(), Some("http://127.0.0.1:5810"));
        assert_eq!(plan.state[state::IAM_ENDPOINT], "http://127.0.0.1:5810");

        let plan =
            planned(&[("s3Endpoint", "https://s3.example"), ("forcePathStyle", "true")], generated(), &environment)
                .unwrap();
        assert_eq!(plan.endpoint.url.as_deref(), Some("https://s3.example"));
        assert_eq!(plan.state[state::IAM_ENDPOINT], "http://127.0.0.1:5810");
        assert_eq!(plan.state[state::FORCE_PATH_STYLE], "true");
    }

    #[test]
    fn a_service_variable_comes_before_the_general_one_and_a_bad_one_is_named() {
        let read = |variables: &'static [(&str, &str)]| {
            Environment::read(move |name| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            })
        };
        let environment = read(&[
            ("AWS_ENDPOINT_URL", "http://a"),
            ("AWS_ENDPOINT_URL_IAM", "http://b"),
            ("AWS_ENDPOINT_URL_S3", ""),
        ])
        .unwrap();
        assert_eq!(environment.s3.unwrap().as_str(), "http://a");
        assert_eq!(environment.iam.unwrap().as_str(), "http://b");
        assert!(read(&[("AWS_ENDPOINT_URL_S3", "nonsense")]).unwrap_err().to_string().contains("AWS_ENDPOINT_URL_S3"));
        let ignored = read(&[("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"), ("AWS_ENDPOINT_URL", "http://a")]);
        assert_eq!(ignored.unwrap(), Environment::default());
    }

    #[test]
    fn credentials_are_asked_whose_they_are_where_they_are_used() {
        let aws = Environment::default();
        let proxied = Environment::read(|name| (name == "AWS_ENDPOINT_URL").then(|| "http://proxy".into())).unwrap();
        let sts = |parameters: &[(&str, &str)], environment: &Environment| {
            let record = Record { plan: planned(parameters, generated(), environment).unwrap(), ..record() };
            Target::of(&record, environment).endpoints.sts
        };
        let both = [("s3Endpoint", "https://s3.example"), ("iamEndpoint", "https://iam.example")];
        assert_eq!(sts(&[], &aws), Sts::Aws);
        assert_eq!(sts(&[], &proxied), Sts::At("http://proxy".into()));
        for environment in [&aws, &proxied] {
            assert_eq!(sts(&both, environment), Sts::At("https://iam.example".into()));
        }
        let shared = [both[0], ("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")];
        for environment in [&aws, &proxied] {
            assert_eq!(sts(&shared, environment), Sts::Unknown);
        }
    }

    #[test]
    fn a_store_is_foreign_unless_its_host_is_one_of_aws() {
        let foreign = |parameters: &[(&str, &str)]| {
            let record = Record { plan: ordinary(parameters, generated()).unwrap(), ..record() };
            let endpoints = Target::of(&record, &Environment::default()).endpoints;
            (endpoints.s3_is_foreign(), endpoints.iam_is_foreign())
        };
        assert_eq!(foreign(&[]), (false, false));
        assert_eq!(foreign(&[("s3Endpoint", "https://s3.example:8333")]), (true, false));
        assert_eq!(foreign(&[("iamEndpoint", "http://[::1]:8333")]), (false, true));
        let private = "https://vpce-0a1b-2c3d.iam.us-east-1.vpce.amazonaws.com";
        assert_eq!(foreign(&[("iamEndpoint", private)]), (false, false));
    }

    #[test]
    fn a_record_says_all_that_its_plan_said() {
        let class = [
            ("region", "eu-central-1"),
            ("s3Endpoint", "https://s3.example"),
            ("iamEndpoint", "https://iam.example"),
            ("forcePathStyle", "true"),
            ("iamPath", "/team/"),
            ("permissionsBoundary", "arn:aws:iam::123456789012:policy/bound"),
        ];
        let record = Record { plan: ordinary(&class, generated()).unwrap(), ..record() };
        let target = Target::of(&record, &Environment::default());
        insta::assert_debug_snapshot!((&target.endpoints, target.user), @r#"
        (
            Endpoints {
                region: "eu-central-1",
                s3: Some(
                    "https://s3.example",
                ),
                iam: Some(
                    "https://iam.example",
                ),
                sts: At(
                    "https://iam.example",
                ),
                addressing: Path,
            },
            Some(
                UserSpec {
                    name: "shop-photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950",
                    path: "/team/",
                    permissions_boundary: Some(
                        "arn:aws:iam::123456789012:policy/bound",
                    ),
                },
            ),
        )
        "#);
    }
}
