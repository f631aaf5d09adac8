//! The address of the collector.

use std::str::FromStr;

use http::Uri;

const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const EXPORTER: &str = "OTEL_TRACES_EXPORTER";
/// Where collectors take traces, below their address.
const PATH: &str = "/v1/traces";

/// Where traces go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// Nobody has chosen.
    Default,
    /// Nowhere.
    Off,
    /// To the collector with this address.
    At(Uri),
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Ok(Self::Default),
            "off" => Ok(Self::Off),
            _ => address(text).map(Self::At),
        }
    }
}

fn address(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().ok().filter(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty())
    });
    let Some(url) = url else {
        return Err("write an http or https URL, such as http://otel-collector:4318, or off".to_owned());
    };
    if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("write the URL without user and password; OTEL_EXPORTER_OTLP_HEADERS can authenticate".to_owned());
    }
    Ok(url)
}

impl Endpoint {
    /// The URL to which traces go, if anywhere. `variable` reads the environment.
    ///
    /// # Errors
    /// A variable has no URL; its name, and the remedy.
    pub(super) fn resolve(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let address_in = |name: &str| {
            let found =
                set(name).map(|text| address(&text).map_err(|problem| format!("{name} is not usable: {problem}")));
            found.transpose()
        };
        match self {
            Self::Off => return Ok(None),
            Self::At(url) => return below(url).map(Some),
            Self::Default => {}
        }
        let is_off = set(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set(EXPORTER).is_some_and(|value| value == "none");
        if is_off {
            return Ok(None);
        }
        // The one is complete, and the other is that of all signals.
        match address_in(TRACES_ENDPOINT)? {
            Some(url) => Ok(Some(url)),
            None => address_in(ENDPOINT)?.as_ref().map(below).transpose(),
        }
    }
}

/// The URL for traces below that of the collector.
fn below(url: &Uri) -> Result<Uri, String> {
    let base = url.path().trim_end_matches('/');
    let path = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
    let mut parts = url.clone().into_parts();
    parts.path_and_query = path.parse().ok();
    Uri::from_parts(parts).map_err(|error| format!("{url} is not a URL: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(flag: &str, variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Ok(flag.parse::<Endpoint>()?.resolve(find)?.map(|url| url.to_string()))
    }

    #[test]
    fn the_flag_takes_precedence_over_the_variables() {
        let to = |url: &str| Ok(Some(url.to_owned()));
        assert_eq!(resolved("", &[]), Ok(None));
        assert_eq!(resolved("http://c:4318", &[(ENDPOINT, "http://d")]), to("http://c:4318/v1/traces"));
        assert_eq!(resolved("http://c/base/", &[(DISABLED, "true")]), to("http://c/base/v1/traces"));
        assert_eq!(resolved("http://c/v1/traces", &[]), to("http://c/v1/traces"));
        assert_eq!(resolved("off", &[(ENDPOINT, "http://d")]), Ok(None));
        assert_eq!(resolved("", &[(ENDPOINT, "https://d:1")]), to("https://d:1/v1/traces"));
        assert_eq!(resolved("", &[(ENDPOINT, "http://d"), (TRACES_ENDPOINT, "http://e/x")]), to("http://e/x"));
        assert_eq!(resolved("", &[(ENDPOINT, "http://d"), (DISABLED, "TRUE")]), Ok(None));
        assert_eq!(resolved("", &[(ENDPOINT, "http://d"), (EXPORTER, "none")]), Ok(None));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_remedy() {
        for odd in ["otel:4318", "otel", "grpc://otel:4317", "http://", "/v1/traces"] {
            assert!(resolved(odd, &[]).unwrap_err().contains("http://otel-collector:4318"), "{odd}");
            assert!(resolved("", &[(ENDPOINT, odd)]).unwrap_err().starts_with(ENDPOINT), "{odd}");
        }
        let error = resolved("http://me:geheim@otel", &[]).unwrap_err();
        assert!(error.contains("without user and password") && !error.contains("geheim"), "{error}");
    }
}
