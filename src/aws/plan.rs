//! Planning: what a claim gets. Pure.
//!
//! The plan includes what it takes from the class and from the operator's environment, so that a deletion needs
//! neither.

use std::collections::BTreeMap;

use super::environment::Environment;
use super::error::Error;
use super::names::{BucketName, UserName};
use super::params::ClassParameters;
use super::region::s3_host;
use super::target::state;
use super::values::{Addressing, ClaimedBucket, CredentialsMode, EndpointUrl, Naming};
use crate::provisioner::{Endpoint, Mode, Plan, Request, WantedBucket};

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
    let namespace = &request.claim.namespace;
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
    let not_allowed = |field, name: &str, remedy: String| Error::BucketNameNotAllowed {
        class: request.class_name.to_owned(),
        field,
        name: name.to_owned(),
        remedy,
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
            let remedy = "set spec.generateBucketName instead (explicitNames is \"no\")".to_owned();
            return Err(not_allowed(NAME, name, remedy));
        }
        (None, WantedBucket::Named(name)) => (NAME, name),
        (None, WantedBucket::Generated { prefix }) => (PREFIX, prefix),
    };
    let bucket = match field {
        NAME => BucketName::creatable(asked),
        _ => BucketName::generated(asked, request.claim),
    };
    let bucket = bucket.map_err(|problem| Error::InvalidBucketName { field, problem })?;
    // The bucket's name is checked, because a long generateBucketName is cut.
    if request.is_new && !bucket.as_str().starts_with(&naming.prefix) {
        let remedy = format!("start it with {:?} (bucketNamePrefix)", naming.prefix);
        return Err(not_allowed(field, asked, remedy));
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

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::provisioner::{ClaimId, Failure, FailureClass};

    const UID: &str = "f30e0389-0689-48a2-bfaa-74d1bf1fd950";

    pub(in crate::aws) fn planned(
        parameters: &[(&str, &str)],
        bucket: WantedBucket,
        environment: &Environment,
    ) -> Result<Plan, Error> {
        let claim = ClaimId { namespace: "shop".into(), name: "photos".into(), uid: UID.into() };
        let parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        plan(&Request { claim: &claim, bucket, class_name: "fast", parameters: &parameters, is_new: true }, environment)
    }

    pub(in crate::aws) fn ordinary(parameters: &[(&str, &str)], bucket: WantedBucket) -> Result<Plan, Error> {
        planned(parameters, bucket, &Environment::default())
    }

    pub(in crate::aws) fn generated() -> WantedBucket {
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
        insta::assert_snapshot!(error, @r#"spec.bucketName is "mine", but StorageClass fast gives access to bucket "shared" only: remove spec.bucketName, or use another class"#);
        assert_eq!((error.class(), error.store_untouched()), (FailureClass::Terminal, true));
    }

    #[test]
    fn the_error_of_a_claim_without_a_name_says_what_to_set() {
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
}
