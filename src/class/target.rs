//! [`Target`]: a record as the verbs read it, with the endpoints of its calls.

use crate::class::environment::Environment;
use crate::class::oidc::{DEFAULT_AUDIENCE, ProviderArn, policy_name, role_arn};
use crate::class::params::{DEFAULT_IAM_PATH, DEFAULT_REGION};
use crate::class::pod_identity::ClusterArn;
use crate::class::region::{Variants, is_host_of_aws, partition};
use crate::class::values::{Addressing, ClaimedBucket, EndpointUrl, Region, partition_of};
use crate::client::error::Error;
use bucket_provisioner::store::names::uid_in;
use bucket_provisioner::store::{Mode, Plan, Record, RoleRef};

/// Keys of [`Plan::state`].
pub(crate) mod state {
    pub(crate) use bucket_provisioner::api::wire::state::GO_POLICY_ARN;
    pub(crate) const IAM_PATH: &str = "iamPath";
    pub(crate) const PERMISSIONS_BOUNDARY: &str = "permissionsBoundary";
    pub(crate) const IAM_ENDPOINT: &str = "iamEndpoint";
    pub(crate) const S3_ENDPOINT_OF_OPERATOR: &str = "s3EndpointOfOperator";
    pub(crate) const FORCE_PATH_STYLE: &str = "forcePathStyle";
    pub(crate) const ALLOW_CLAIMED_BUCKET: &str = "allowClaimedBucket";
    pub(crate) const OIDC_PROVIDER: &str = "oidcProvider";
    pub(crate) const POLICY_NAME: &str = "policyName";
    pub(crate) const EKS_CLUSTER: &str = "eksCluster";
    pub(crate) const POD_ROLE: &str = "podRole";
    pub(crate) const IAM_CALLS_PER_SECOND: &str = "iamCallsPerSecond";
}

/// The endpoints of calls. `None`: the default endpoint of AWS in the region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) region: String,
    pub(crate) s3: Option<String>,
    pub(crate) iam: Option<String>,
    pub(crate) sts: Sts,
    /// `None`: no call to EKS is needed.
    pub(crate) eks: Option<Eks>,
    pub(crate) addressing: Addressing,
    pub(crate) variants: Variants,
    pub(crate) iam_ceilings: Ceilings,
}

/// The most calls to IAM of an account in a second; reads and changes count separately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ceilings {
    /// For all calls of this process.
    pub(crate) of_operator: Option<u32>,
    /// For those of the classes with this ceiling.
    pub(crate) of_class: Option<u32>,
}

impl Endpoints {
    /// Whether S3 is a store other than AWS.
    pub(crate) fn s3_is_foreign(&self) -> bool {
        self.s3.as_deref().is_some_and(is_foreign)
    }

    /// Whether IAM is a store other than AWS. Such stores know fewer actions and conditions of policies, and may drop
    /// the tags of users.
    pub(crate) fn iam_is_foreign(&self) -> bool {
        self.iam.as_deref().is_some_and(is_foreign)
    }
}

fn is_foreign(url: &str) -> bool {
    let url = url::Url::parse(url).ok();
    !url.as_ref().and_then(url::Url::host_str).is_some_and(is_host_of_aws)
}

/// EKS of the region of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Eks {
    pub(crate) region: String,
    /// `None`: the default endpoint of AWS.
    pub(crate) url: Option<String>,
}

/// Where GetCallerIdentity is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sts {
    /// To AWS, in the region.
    Aws,
    /// To this URL.
    At(String),
    /// Nowhere: only the store's S3 is known.
    Unknown,
}

impl Sts {
    /// Whether AWS answers, which tells everybody who they are.
    pub(crate) fn is_of_aws(&self) -> bool {
        match self {
            Self::Aws => true,
            Self::At(url) => !is_foreign(url),
            Self::Unknown => false,
        }
    }
}

/// A bucket, and the account that must own it: AWS refuses calls about a bucket of another account ("Verifying bucket
/// ownership with bucket owner condition", Amazon S3 user guide).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketRef<'a> {
    pub(crate) name: &'a str,
    /// `None`: not known, or any account.
    pub(crate) account: Option<&'a str>,
}

impl BucketRef<'_> {
    pub(crate) fn account(&self) -> Option<String> {
        self.account.map(str::to_owned)
    }
}

/// A role that the provisioning credentials assume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssumedRole {
    pub(crate) role: RoleRef,
    /// The region whose STS is called: the operator's, because STS of a region knows only accounts that have enabled it. The
    /// session is valid in every region of the partition.
    pub(crate) region: String,
}

/// The user of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UserSpec<'a> {
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    pub(crate) permissions_boundary: Option<&'a str>,
}

/// The role of the claim's ServiceAccount, which it shares with the other claims that name that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleSpec<'a> {
    pub(crate) name: &'a str,
    /// Name of the claim's policy there.
    pub(crate) policy: String,
    pub(crate) path: &'a str,
    pub(crate) permissions_boundary: Option<&'a str>,
    /// The identity provider that it trusts.
    pub(crate) provider: ProviderArn,
    /// The audience of the tokens that it trusts.
    pub(crate) audience: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) service_account: &'a str,
}

impl RoleSpec<'_> {
    pub(crate) fn arn(&self) -> String {
        role_arn(&self.provider, self.path, self.name)
    }
}

/// The association of the claim's ServiceAccount, which it shares with the other claims that name that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssociationSpec<'a> {
    pub(crate) cluster: ClusterArn,
    /// ARN of the role of which pods get sessions.
    pub(crate) role: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) service_account: &'a str,
    /// The uid of the claim, with which the ids of its statements begin; that of the first claim after an adoption.
    pub(crate) uid: String,
}

/// What IAM has for a claim: a user, or a role that it shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IamIdentity<'a> {
    /// As in ARNs.
    pub(crate) kind: &'static str,
    pub(crate) name: &'a str,
    pub(crate) path: &'a str,
    pub(crate) permissions_boundary: Option<&'a str>,
}

/// All that the verbs need of a record.
///
/// Records of the Go provisioner have neither endpoints nor an IAM path; the operator's environment and the defaults
/// replace them.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) record: &'a Record,
    pub(crate) endpoints: Endpoints,
    /// The role that the provisioning credentials assume.
    pub(crate) owner_role: Option<AssumedRole>,
    /// `None`: the claim shares the provisioning credentials, or its apps have a role.
    pub(crate) user: Option<UserSpec<'a>>,
    /// The role of a claim whose apps have access without keys.
    pub(crate) role: Option<RoleSpec<'a>>,
    /// What EKS has for a claim whose apps have access without keys.
    pub(crate) association: Option<AssociationSpec<'a>>,
    /// ARN of the managed policy that the Go provisioner created for the user.
    pub(crate) go_policy: Option<&'a str>,
    /// Whether access may be given to a bucket that another claim created.
    pub(crate) claimed_bucket: ClaimedBucket,
}

impl<'a> Target<'a> {
    pub(crate) fn of(record: &'a Record, environment: &Environment) -> Self {
        let Plan { endpoint, owner, user, service_account, state, .. } = &record.plan;
        let noted = |key: &str| state.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let url = |noted: Option<&str>, environment: &Option<EndpointUrl>| {
            noted.or(environment.as_ref().map(EndpointUrl::as_str)).map(str::to_owned)
        };
        // That of AWS may change while the claim exists, like that of IAM.
        let of_operator = noted(state::S3_ENDPOINT_OF_OPERATOR) == Some("true");
        let s3_now = environment.s3.clone().filter(|url| !of_operator || is_host_of_aws(url.host()));
        let s3 = url(endpoint.url.as_deref().filter(|_| !of_operator), &s3_now);
        let iam = url(noted(state::IAM_ENDPOINT), &environment.iam);
        let is_of_environment =
            |url: &Option<String>, ours: &Option<EndpointUrl>| url.as_deref() == ours.as_ref().map(EndpointUrl::as_str);
        let sts = match &iam {
            // No other endpoint knows the keys of a store whose S3 alone is configured.
            _ if user.is_none() && !is_of_environment(&s3, &environment.s3) => Sts::Unknown,
            // AWS's IAM does not answer calls to STS.
            Some(url) if is_foreign(url) && !is_of_environment(&iam, &environment.iam) => Sts::At(url.clone()),
            // Nor does another store know AWS's keys.
            Some(url) if !is_foreign(url) && environment.sts.as_ref().is_some_and(|sts| is_foreign(sts.as_str())) => {
                Sts::Aws
            }
            _ => environment.sts.as_ref().map_or(Sts::Aws, |url| Sts::At(url.as_str().to_owned())),
        };
        let (path, permissions_boundary) =
            (noted(state::IAM_PATH).unwrap_or(DEFAULT_IAM_PATH), noted(state::PERMISSIONS_BOUNDARY));
        let provider = noted(state::OIDC_PROVIDER).and_then(ProviderArn::parse);
        let role = provider.zip(user.as_deref()).zip(service_account.as_ref());
        let role = role.map(|((provider, name), account)| RoleSpec {
            name,
            policy: noted(state::POLICY_NAME).map_or_else(|| policy_name(&record.claim), str::to_owned),
            path,
            permissions_boundary,
            provider,
            audience: account.audience.as_deref().unwrap_or(DEFAULT_AUDIENCE),
            namespace: &record.claim.namespace,
            service_account: &account.name,
        });
        let cluster = noted(state::EKS_CLUSTER).and_then(ClusterArn::parse);
        // As for STS: an emulator of AWS has everything at one URL.
        let of_class = noted(state::IAM_ENDPOINT).filter(|url| is_foreign(url));
        let eks_url = || url(of_class, &environment.eks);
        let eks = cluster.as_ref().map(|cluster| Eks { region: cluster.region().to_owned(), url: eks_url() });
        let association = cluster.zip(noted(state::POD_ROLE)).zip(service_account.as_ref());
        let association = association.map(|((cluster, role), account)| AssociationSpec {
            cluster,
            role,
            namespace: &record.claim.namespace,
            service_account: &account.name,
            uid: noted(state::POLICY_NAME).and_then(uid_in).unwrap_or(&record.claim.uid).to_owned(),
        });
        Self {
            record,
            endpoints: Endpoints {
                region: Some(endpoint.region.as_str()).filter(|r| !r.is_empty()).unwrap_or(DEFAULT_REGION).to_owned(),
                s3,
                iam,
                sts,
                eks,
                addressing: match noted(state::FORCE_PATH_STYLE) {
                    Some("true") => Addressing::Path,
                    _ => Addressing::Host,
                },
                variants: environment.variants,
                iam_ceilings: Ceilings {
                    of_operator: environment.iam_calls_per_second,
                    of_class: noted(state::IAM_CALLS_PER_SECOND).and_then(|calls| calls.parse().ok()),
                },
            },
            owner_role: owner.role.clone().map(|role| {
                let region = endpoint.region.as_str();
                let of_operator = environment.region.as_ref().map(Region::as_str);
                let has_role = |region: &&str| partition_of(&role.name) == Some(partition(region).id);
                let region = of_operator.filter(has_role).unwrap_or(region).to_owned();
                AssumedRole { role, region }
            }),
            user: user.as_deref().filter(|_| service_account.is_none()).map(|name| UserSpec {
                name,
                path,
                permissions_boundary,
            }),
            role,
            association,
            go_policy: noted(state::GO_POLICY_ARN),
            claimed_bucket: match noted(state::ALLOW_CLAIMED_BUCKET) {
                Some("true") => ClaimedBucket::Allowed,
                _ => ClaimedBucket::Refused,
            },
        }
    }

    /// A record that names only a part of ServiceAccount, and provider or cluster, was edited: it must give nobody keys, least of
    /// all the provisioning credentials.
    ///
    /// # Errors
    /// [`Error::SettingUnusable`].
    pub(crate) fn check_access(&self) -> Result<(), Error> {
        let names = |keys: &[&str]| keys.iter().any(|key| self.record.plan.state.contains_key(*key));
        let account = self.record.plan.service_account.as_ref();
        let by = [names(&[state::OIDC_PROVIDER]), names(&[state::EKS_CLUSTER, state::POD_ROLE])];
        let has = [self.role.is_some(), self.association.is_some()];
        let has_audience = account.is_some_and(|account| account.audience.is_some());
        // One of them, and only with a ServiceAccount.
        let is_whole = by == has && by.iter().filter(|it| **it).count() == usize::from(account.is_some());
        if is_whole && has_audience == self.role.is_some() {
            return Ok(());
        }
        if by[1] {
            let problem = "does not fit podRole, serviceAccountName and tokenAudience".to_owned();
            return Err(Error::SettingUnusable { key: state::EKS_CLUSTER.to_owned(), problem }.without_side_effects());
        }
        let (key, problem) = (state::OIDC_PROVIDER.to_owned(), "does not fit serviceAccountName and tokenAudience");
        Err(Error::SettingUnusable { key, problem: problem.to_owned() }.without_side_effects())
    }

    /// Whether the claim has access of its own, and not that of the provisioning credentials.
    pub(crate) fn has_own_access(&self) -> bool {
        self.user.is_some() || self.role.is_some() || self.association.is_some()
    }

    /// What IAM has for the claim; `None` if it has nothing of its own there.
    pub(crate) fn iam_identity(&self) -> Option<IamIdentity<'a>> {
        let user = self.user.map(|UserSpec { name, path, permissions_boundary }| IamIdentity {
            kind: "user",
            name,
            path,
            permissions_boundary,
        });
        let role = self.role.as_ref().map(|RoleSpec { name, path, permissions_boundary, .. }| IamIdentity {
            kind: "role",
            name,
            path,
            permissions_boundary: *permissions_boundary,
        });
        user.or(role)
    }

    /// Name of the bucket.
    pub(crate) fn bucket(&self) -> &'a str {
        &self.record.plan.bucket
    }

    /// Whether the bucket was created neither for this claim nor for another one that shares it.
    pub(crate) fn existed_before(&self) -> bool {
        self.record.plan.mode == Mode::Granted && self.record.plan.shared_from.is_none()
    }

    /// The account that must own the bucket. `None` for a bucket that existed before: it may be in any account.
    pub(crate) fn bucket_account(&self) -> Option<&'a str> {
        self.record.account.as_deref().filter(|_| !self.existed_before())
    }

    /// The bucket as calls name it.
    pub(crate) fn bucket_ref(&self) -> BucketRef<'a> {
        BucketRef { name: self.bucket(), account: self.bucket_account() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::class::plan::tests::{ordinary, planned};
    use crate::testing::{planned_as, record};

    #[test]
    fn the_identity_of_credentials_is_asked_where_they_are_used() {
        let aws = Environment::default();
        let proxied = Environment::read(|name| (name == "AWS_ENDPOINT_URL").then(|| "http://proxy".into())).unwrap();
        let sts = |parameters: &[(&str, &str)], environment: &Environment| {
            let record = planned_as(record(), planned(parameters, environment));
            Target::of(&record, environment).endpoints.sts
        };
        let both = [("s3Endpoint", "https://s3.example"), ("iamEndpoint", "https://iam.example")];
        assert_eq!(sts(&[], &aws), Sts::Aws);
        assert_eq!(sts(&[], &proxied), Sts::At("http://proxy".into()));
        for environment in [&aws, &proxied] {
            assert_eq!(sts(&both, environment), Sts::At("https://iam.example".into()));
        }
        // Its records have it, whatever the environment is later.
        let private = "https://vpce-0a1b-2c3d.iam.us-east-1.vpce.amazonaws.com";
        assert_eq!(sts(&[("iamEndpoint", private)], &aws), Sts::Aws);
        let privately = Environment::read(|name| (name == "AWS_ENDPOINT_URL_IAM").then(|| private.into())).unwrap();
        let record = planned_as(record(), planned(&[], &privately));
        for (environment, iam) in [(&privately, Some(private)), (&aws, None)] {
            let endpoints = Target::of(&record, environment).endpoints;
            assert_eq!((endpoints.iam.as_deref(), endpoints.sts), (iam, Sts::Aws));
        }
        let s3_at = |url: &'static str| {
            Environment::read(move |name| (name == "AWS_ENDPOINT_URL_S3").then(|| url.to_owned())).unwrap()
        };
        let (one, other) = ("https://s3.vpce-1.s3.us-west-1.vpce.amazonaws.com", "https://s3.us-west-1.amazonaws.com");
        let s3 = |class: &[(&str, &str)], environment: &Environment| {
            let record = planned_as(crate::testing::record(), planned(class, &s3_at(one)));
            Target::of(&record, environment).endpoints.s3
        };
        for (environment, url) in [(s3_at(one), Some(one)), (s3_at(other), Some(other)), (aws.clone(), None)] {
            assert_eq!(s3(&[], &environment).as_deref(), url);
            assert_eq!(s3(&[("s3Endpoint", one)], &environment).as_deref(), Some(one));
        }
        assert_eq!(s3(&[], &proxied), None, "another store does not have its buckets");
        // Each is asked about its own keys only.
        let aws_hosts = [("s3Endpoint", "https://s3.us-west-1.amazonaws.com"), ("iamEndpoint", private)];
        assert_eq!(sts(&aws_hosts, &proxied), Sts::Aws);
        let balancer = "http://ceph-1.elb.eu-central-1.amazonaws.com";
        assert_eq!(sts(&[("s3Endpoint", balancer), ("iamEndpoint", balancer)], &aws), Sts::At(balancer.into()));
        assert!(Sts::At("https://vpce-0a1b-2c3d.sts.us-east-1.vpce.amazonaws.com".into()).is_of_aws());
        assert!(!Sts::At("http://proxy".into()).is_of_aws());
        let shared = [both[0], ("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")];
        for environment in [&aws, &proxied] {
            assert_eq!(sts(&shared, environment), Sts::Unknown);
        }
    }

    #[test]
    fn a_store_is_foreign_unless_its_host_is_one_of_aws() {
        let foreign = |parameters: &[(&str, &str)]| {
            let record = planned_as(record(), ordinary(parameters));
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
    fn a_record_keeps_everything_of_its_plan() {
        let class = [
            ("region", "eu-central-1"),
            ("s3Endpoint", "https://s3.example"),
            ("iamEndpoint", "https://iam.example"),
            ("forcePathStyle", "true"),
            ("iamPath", "/team/"),
            ("permissionsBoundary", "arn:aws:iam::123456789012:policy/bound"),
            ("iamCallsPerSecond", "5"),
            ("ownerRole", "arn:aws:iam::123456789012:role/buckets"),
            ("ownerRoleExternalId", "id"),
        ];
        let record = planned_as(record(), ordinary(&class));
        let target = Target::of(&record, &Environment::default());
        insta::assert_debug_snapshot!((&target.endpoints, target.owner_role, target.user), @r#"
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
                eks: None,
                addressing: Path,
                variants: Variants {
                    fips: false,
                    dual_stack: false,
                },
                iam_ceilings: Ceilings {
                    of_operator: None,
                    of_class: Some(
                        5,
                    ),
                },
            },
            Some(
                AssumedRole {
                    role: RoleRef {
                        name: "arn:aws:iam::123456789012:role/buckets",
                        external_id: Some(
                            "id",
                        ),
                    },
                    region: "eu-central-1",
                },
            ),
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
