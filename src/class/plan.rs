//! Planning: what a claim gets. Pure.
//!
//! The plan includes what it takes from the class and from the operator's environment, so that a deletion needs
//! neither.

use crate::class::environment::Environment;
use crate::class::oidc::{Oidc, TOKEN_FILE, policy_name, role_arn};
use crate::class::params::{ClassParameters, DEFAULT_REGION};
use crate::class::pod_identity::{self, PodIdentity};
use crate::class::region::{is_host_of_aws, s3_host};
use crate::class::target::{Sts, Target, state};
use crate::class::values::{Addressing, ClaimedBucket, CredentialsMode, EndpointUrl, PolicyArn};
use bucket_provisioner::api::wire::config;
use bucket_provisioner::store::{Endpoint, Plan, ReclaimPolicy, Record, Request};

/// Of the ConfigMap: what SDKs read that assume a role with the token of a ServiceAccount.
pub(crate) const ROLE_ARN: &str = "AWS_ROLE_ARN";
const TOKEN_FILE_NAME: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const STS_URL: &str = "AWS_ENDPOINT_URL_STS";
/// The same for pods that get a session from the agent of EKS.
const CREDENTIALS_URL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const AUTHORIZATION_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// Decides what the claim of a request gets.
pub(crate) fn plan(request: &Request<'_, ClassParameters>, environment: &Environment) -> Plan {
    let class = request.parameters;
    let mut plan = request.plan(endpoint(class, environment));
    plan.state.clear();
    let mut note = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            plan.state.insert(key.to_owned(), value.to_owned());
        }
    };
    match class.credentials {
        CredentialsMode::OwnUser => {
            // AWS's own is the environment's matter, which may change while the claim exists.
            let of_environment = environment.iam.as_ref().filter(|url| !is_host_of_aws(url.host()));
            let iam_endpoint = class.iam_endpoint.as_ref().or(of_environment);
            // The role of pods is the admin's.
            note(state::IAM_PATH, Some(class.iam_path.as_str()).filter(|_| class.pod_identity.is_none()));
            note(state::PERMISSIONS_BOUNDARY, class.permissions_boundary.as_ref().map(|arn| arn.as_str()));
            note(state::IAM_ENDPOINT, iam_endpoint.map(EndpointUrl::as_str));
        }
        CredentialsMode::ShareOwner => plan.user = None,
    }
    let s3_of_operator = environment.s3.as_ref().filter(|_| class.s3_endpoint.is_none());
    let is_of_aws = s3_of_operator.is_some_and(|url| is_host_of_aws(url.host()));
    note(state::S3_ENDPOINT_OF_OPERATOR, is_of_aws.then_some("true"));
    note(state::IAM_CALLS_PER_SECOND, class.iam_calls_per_second.map(|calls| calls.to_string()).as_deref());
    note(state::FORCE_PATH_STYLE, (class.addressing == Addressing::Path).then_some("true"));
    note(state::ALLOW_CLAIMED_BUCKET, (class.claimed_bucket == ClaimedBucket::Allowed).then_some("true"));
    plan.owner.role = class.owner_role.clone();
    if let Some(oidc) = &class.oidc {
        as_service_account(&mut plan, request, oidc);
    }
    if let Some(identity) = &class.pod_identity {
        by_pod_identity(&mut plan, request, identity);
    }
    // AWS's certificates are for hosts without a period in the bucket's name.
    let in_path = class.addressing == Addressing::Path || plan.bucket.contains('.');
    let style = if in_path { "path" } else { "virtual" };
    plan.outputs.insert(config::AWS_S3_ADDRESSING_STYLE.to_owned(), style.to_owned());
    if class.oidc.is_some() {
        // SDKs cannot derive another endpoint than AWS's own from the region.
        let record = Record::new(request.claim.clone(), request.class_name, ReclaimPolicy::Retain, plan.clone());
        if let Sts::At(url) = Target::of(&record, environment).endpoints.sts {
            plan.outputs.insert(STS_URL.to_owned(), url);
        }
    }
    plan
}

/// Pods have what SDKs need to exchange the token of their ServiceAccount for a session of its role ("Assume role with web
/// identity", AWS SDKs and Tools reference guide).
fn as_service_account(plan: &mut Plan, request: &Request<'_, ClassParameters>, oidc: &Oidc) {
    let Some(account) = plan.service_account.take() else { return };
    let ClassParameters { iam_path, permissions_boundary, .. } = request.parameters;
    let Oidc { provider, audience } = oidc;
    let boundary = permissions_boundary.as_ref().map(PolicyArn::as_str);
    let name = oidc.role_name([&request.claim.namespace, &account.name], iam_path.as_str(), boundary);
    let arn = role_arn(provider, iam_path.as_str(), &name);
    plan.state.insert(state::OIDC_PROVIDER.to_owned(), provider.as_str().to_owned());
    // After an adoption, it still is that of the first claim.
    plan.state.insert(state::POLICY_NAME.to_owned(), policy_name(request.claim));
    plan.outputs.extend([(ROLE_ARN.to_owned(), arn), (TOKEN_FILE_NAME.to_owned(), TOKEN_FILE.to_owned())]);
    plan.user = Some(name);
    plan.service_account = Some(account.with_audience(audience));
}

/// Pods have what SDKs need to get a session from the agent of EKS ("Container credential provider", AWS SDKs and Tools reference
/// guide), whether EKS has added it when they were created or not.
fn by_pod_identity(
    plan: &mut Plan,
    request: &Request<'_, ClassParameters>,
    PodIdentity { cluster, role }: &PodIdentity,
) {
    plan.state.insert(state::EKS_CLUSTER.to_owned(), cluster.as_str().to_owned());
    plan.state.insert(state::POD_ROLE.to_owned(), role.clone());
    // After an adoption, it still is that of the first claim.
    plan.state.insert(state::POLICY_NAME.to_owned(), policy_name(request.claim));
    let outputs = [(CREDENTIALS_URL, pod_identity::CREDENTIALS_URL), (AUTHORIZATION_FILE, pod_identity::TOKEN_FILE)];
    plan.outputs.extend(outputs.map(|(key, value)| (key.to_owned(), value.to_owned())));
    plan.user = Some(pod_identity::role_name(role).to_owned());
}

/// Whether neither the class nor the operator names a region of AWS.
pub(crate) fn has_default_region(class: &ClassParameters, environment: &Environment) -> bool {
    let url = class.s3_endpoint.as_ref().or(environment.s3.as_ref());
    class.region.is_none() && environment.region.is_none() && url.is_none_or(|url| is_host_of_aws(url.host()))
}

/// Where the buckets of a class are.
pub(crate) fn endpoint(class: &ClassParameters, environment: &Environment) -> Endpoint {
    let url = class.s3_endpoint.as_ref().or(environment.s3.as_ref());
    // The operator's region is one of AWS.
    let of_operator = environment.region.as_ref().filter(|_| url.is_none_or(|url| is_host_of_aws(url.host())));
    let region = class.region.as_ref().or(of_operator).map_or(DEFAULT_REGION, |region| region.as_str());
    match url {
        Some(url) => Endpoint::new(url.host(), url.port()).with_region(region).with_url(url.as_str()),
        None => Endpoint::new(s3_host(region, environment.variants), 443).with_region(region),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bucket_provisioner::store::{
        Capabilities, ClaimId, CommonParameters, Mode, NameRules, Parameters as _, RawParameters,
    };

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

    /// The plan of a new bucket, for a class with these parameters.
    pub(crate) fn planned(parameters: &[(&str, &str)], environment: &Environment) -> Plan {
        let claim = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: UID.into() };
        let written = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (common, own) = CommonParameters::split(&written, NameRules::S3, Capabilities::ALL).unwrap();
        let parameters = ClassParameters::parse(&RawParameters::new(&own, &common)).unwrap();
        let (bucket, user) = (format!("photos-{UID}"), format!("shop-photos-{UID}"));
        let parameters = (&parameters, &own, &common);
        plan(&Request::new(&claim, "fast", bucket, Mode::Created, user, parameters), environment)
    }

    pub(crate) fn ordinary(parameters: &[(&str, &str)]) -> Plan {
        planned(parameters, &Environment::default())
    }

    #[test]
    fn an_ordinary_claim_gets_a_bucket_and_a_user_of_its_own() {
        insta::assert_debug_snapshot!(ordinary(&[]), @r#"
        Plan {
            bucket: "photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950",
            mode: Created,
            endpoint: Endpoint {
                host: "s3.us-west-1.amazonaws.com",
                port: 443,
                region: "us-west-1",
                url: None,
            },
            owner: OwnerRef {
                secret: None,
                role: None,
            },
            user: Some(
                "shop-photos-f30e0389-0689-48a2-bfaa-74d1bf1fd950",
            ),
            service_account: None,
            rotation: Rotation {
                every: None,
                grace: 86400s,
            },
            on_delete: Purge,
            name_suffix: "",
            access: Access {
                mode: ReadWrite,
                most: ReadWrite,
                prefix: None,
            },
            settings: Settings {
                of_class: {},
                of_claim: {},
                claims_may_set: MaySet(
                    {},
                ),
                released: {},
            },
            shared_from: None,
            changes: Changes {
                access: false,
                settings: false,
            },
            state: {
                "iamPath": "/aws-s3-provisioner/",
            },
            outputs: {
                "AWS_S3_ADDRESSING_STYLE": "virtual",
            },
        }
        "#);
    }

    #[test]
    fn a_class_without_region_has_that_of_the_operator() {
        let environment = Environment::read(|name| (name == "AWS_REGION").then(|| "eu-central-1".into())).unwrap();
        let elsewhere = ("s3Endpoint", "https://s3.example");
        let private = ("s3Endpoint", "https://vpce-1.s3.eu-central-1.vpce.amazonaws.com");
        for (parameters, region) in [
            (&[][..], "eu-central-1"),
            (&[("region", "us-east-2")], "us-east-2"),
            (&[private], "eu-central-1"),
            (&[elsewhere], "us-west-1"),
        ] {
            assert_eq!(planned(parameters, &environment).endpoint.region, region, "{parameters:?}");
        }
        assert_eq!(ordinary(&[]).endpoint.region, "us-west-1");
        let is_default = |parameters: &[(&str, &str)], environment| {
            let written = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let (common, own) = CommonParameters::split(&written, NameRules::S3, Capabilities::ALL).unwrap();
            has_default_region(&ClassParameters::parse(&RawParameters::new(&own, &common)).unwrap(), environment)
        };
        let none = Environment::default();
        assert!(is_default(&[], &none) && !is_default(&[], &environment));
        assert!(!is_default(&[("region", "us-west-1")], &none));
        assert!(!is_default(&[elsewhere], &none), "another store's regions are its own");
    }

    #[test]
    fn sharing_the_owners_keys_plans_no_user() {
        let plan = ordinary(&[("createBucketUser", "no"), ("secretName", "s"), ("secretNamespace", "n")]);
        assert_eq!((plan.user, plan.state.len()), (None, 0));
    }

    #[test]
    fn class_endpoints_win_over_the_environment_and_are_recorded() {
        let environment = Environment::read(|name| match name {
            "AWS_ENDPOINT_URL" => Some("http://127.0.0.1:5810".into()),
            _ => None,
        })
        .unwrap();
        let plan = planned(&[], &environment);
        assert_eq!((plan.endpoint.host.as_str(), plan.endpoint.port), ("127.0.0.1", 5810));
        assert_eq!(plan.endpoint.url.as_deref(), Some("http://127.0.0.1:5810"));
        assert_eq!(plan.state[state::IAM_ENDPOINT], "http://127.0.0.1:5810");

        let plan = planned(&[("s3Endpoint", "https://s3.example"), ("forcePathStyle", "true")], &environment);
        assert_eq!(plan.endpoint.url.as_deref(), Some("https://s3.example"));
        assert_eq!(plan.state[state::IAM_ENDPOINT], "http://127.0.0.1:5810");
        assert_eq!(plan.state[state::FORCE_PATH_STYLE], "true");
    }
}
