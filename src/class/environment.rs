//! The endpoints that environment variables set for the whole operator.

use crate::class::region::Variants;
use crate::class::values::{EndpointUrl, Region};
use crate::flags::Flags;
use bucket_provisioner::store::ParameterError;

/// The endpoints that the SDK's environment variables set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    pub(crate) s3: Option<EndpointUrl>,
    pub(crate) iam: Option<EndpointUrl>,
    pub(crate) sts: Option<EndpointUrl>,
    pub(crate) eks: Option<EndpointUrl>,
    /// The region of AWS for classes without one.
    pub(crate) region: Option<Region>,
    /// Of AWS's own endpoints.
    pub(crate) variants: Variants,
    /// The most calls to IAM in a second, by the flag.
    pub(crate) iam_calls_per_second: Option<u32>,
}

impl Environment {
    /// With what flags set.
    pub(crate) fn with(self, Flags { iam_calls_per_second }: Flags) -> Self {
        Self { iam_calls_per_second, ..self }
    }

    /// Reads AWS_ENDPOINT_URL, and AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL_IAM, AWS_ENDPOINT_URL_STS and AWS_ENDPOINT_URL_EKS,
    /// which take precedence, unless AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is true ("Service-specific endpoints", AWS SDKs and Tools
    /// reference guide), AWS_USE_FIPS_ENDPOINT and AWS_USE_DUALSTACK_ENDPOINT, and AWS_REGION or AWS_DEFAULT_REGION, if that is
    /// a region of AWS: it may be that of another store. An empty variable counts as not set.
    ///
    /// # Errors
    /// A variable whose value is not a URL, or neither true nor false.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ParameterError> {
        let switch = |name: &'static str| match variable(name).unwrap_or_default().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" | "" => Ok(false),
            other => Err(ParameterError::bad(name, other, "is neither true nor false", "write true or false")),
        };
        let variants =
            Variants { fips: switch("AWS_USE_FIPS_ENDPOINT")?, dual_stack: switch("AWS_USE_DUALSTACK_ENDPOINT")? };
        let region = ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .into_iter()
            .find_map(|name| variable(name).filter(|it| !it.is_empty()));
        let region = region.and_then(|region| Region::parse(&region, None).ok());
        if variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|v| v.eq_ignore_ascii_case("true")) {
            return Ok(Self { region, variants, ..Self::default() });
        }
        let endpoint = |name: &'static str| {
            variable(name).filter(|url| !url.is_empty()).map(|url| EndpointUrl::parse(name, &url)).transpose()
        };
        let any = endpoint("AWS_ENDPOINT_URL")?;
        Ok(Self {
            s3: endpoint("AWS_ENDPOINT_URL_S3")?.or_else(|| any.clone()),
            iam: endpoint("AWS_ENDPOINT_URL_IAM")?.or_else(|| any.clone()),
            sts: endpoint("AWS_ENDPOINT_URL_STS")?.or_else(|| any.clone()),
            eks: endpoint("AWS_ENDPOINT_URL_EKS")?.or(any),
            region,
            variants,
            iam_calls_per_second: None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_service_variable_wins_and_a_bad_one_is_named() {
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
        let variants = read(&[("AWS_USE_FIPS_ENDPOINT", "True"), ("AWS_USE_DUALSTACK_ENDPOINT", "")]).unwrap().variants;
        assert_eq!(variants, Variants { fips: true, dual_stack: false });
        let region = |value| read(value).unwrap().region.map(|region| region.as_str().to_owned());
        assert_eq!(region(&[("AWS_DEFAULT_REGION", "eu-central-1")]).as_deref(), Some("eu-central-1"));
        assert_eq!(
            region(&[("AWS_REGION", ""), ("AWS_DEFAULT_REGION", "eu-central-1")]).as_deref(),
            Some("eu-central-1")
        );
        assert_eq!(region(&[("AWS_REGION", "garage")]), None, "another store's");
        let refused = read(&[("AWS_USE_DUALSTACK_ENDPOINT", "yes")]).unwrap_err().to_string();
        assert!(refused.contains("AWS_USE_DUALSTACK_ENDPOINT") && refused.contains("true or false"), "{refused}");
    }
}
