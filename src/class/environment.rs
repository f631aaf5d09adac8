//! The endpoints that environment variables set for the whole operator.

use crate::class::values::EndpointUrl;
use bucket_provisioner::store::ParameterError;

/// The endpoints that the SDK's environment variables set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    pub(crate) s3: Option<EndpointUrl>,
    pub(crate) iam: Option<EndpointUrl>,
    pub(crate) sts: Option<EndpointUrl>,
}

impl Environment {
    /// Reads AWS_ENDPOINT_URL, and AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL_IAM and AWS_ENDPOINT_URL_STS, which take
    /// precedence, unless AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is true ("Service-specific endpoints", AWS SDKs and Tools
    /// reference guide). An empty variable counts as not set.
    ///
    /// # Errors
    /// A variable whose value is not a URL.
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
    }
}
