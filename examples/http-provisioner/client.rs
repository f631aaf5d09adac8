//! Calls to the store: where it is, what it answers, and what its errors mean for a claim.

use std::fmt;
use std::time::Duration;

use bucket_provisioner::schemars::JsonSchema;
use bucket_provisioner::store::{CreateError, Endpoint, Reason, StoreError, Topic};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) const NO_ANSWER: Reason = Reason::new("StoreUnreachable", Topic::Store)
    .meaning("the store does not answer")
    .remedy("check whether it runs, and the class parameter `server`");
pub(crate) const FAILING: Reason = Reason::new("StoreFailing", Topic::Store)
    .meaning("the store, or a proxy in front of it, answers with an error")
    .remedy("check the class parameter `server` and the log of the store; the operator retries");
pub(crate) const TOKEN_REFUSED: Reason = Reason::new("TokenRefused", Topic::Class)
    .meaning("the store refuses the token in the Secret that the class names")
    .remedy("put a valid token into the Secret");

/// Where the store is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(crate = "bucket_provisioner::schemars", with = "String")]
pub(crate) struct ServerUrl {
    url: Url,
    pub(crate) endpoint: Endpoint,
}

impl TryFrom<String> for ServerUrl {
    type Error = String;

    /// The library puts the name and the value of the parameter in front of the error.
    fn try_from(text: String) -> Result<Self, String> {
        let example = "write it as https://store.example.com";
        let url = Url::parse(&text).map_err(|error| format!("is not a URL ({error}); {example}"))?;
        let (true, Some(host), Some(port)) =
            (matches!(url.scheme(), "http" | "https"), url.host_str(), url.port_or_known_default())
        else {
            return Err(format!("is not a URL of http or https; {example}"));
        };
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(format!("has more than host, port and path; {example}"));
        }
        let endpoint = Endpoint::new(host, port);
        Ok(Self { url, endpoint })
    }
}

impl ServerUrl {
    /// The URL of what has this path at the store. Each segment is escaped.
    pub(crate) fn join(&self, segments: &[&str]) -> Url {
        let mut url = self.url.clone();
        // Fails for URLs such as `mailto:`, which this one is not.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

pub(crate) fn client() -> reqwest::Result<Client> {
    Client::builder()
        // Of a whole call. The library drops a verb after two minutes.
        .timeout(Duration::from_secs(10))
        // A PUT that is redirected can become a GET, whose success would say nothing.
        .redirect(Policy::none())
        .build()
}

/// What the store has answered.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer<T> {
    Success(T),
    NotFound,
    Conflict,
}

impl<T> Answer<T> {
    /// The answer to a call that cannot be in conflict with anything.
    pub(crate) fn found(self) -> Result<Option<T>, StoreError> {
        match self {
            Self::Success(found) => Ok(Some(found)),
            Self::NotFound => Ok(None),
            Self::Conflict => Err(StoreError::retryable(&FAILING, "the store answered 409 Conflict; see its log")),
        }
    }
}

/// The body of an error.
#[derive(Deserialize)]
struct Problem {
    code: String,
}

/// Sends a request.
///
/// # Errors
/// [`CreateError::Refused`] only if the request has certainly changed nothing.
pub(crate) async fn send<T: DeserializeOwned>(
    server: &ServerUrl,
    request: RequestBuilder,
) -> Result<Answer<T>, CreateError<StoreError>> {
    let response = request.send().await.map_err(|error| no_answer(server, error))?;
    let status = response.status();
    let body = response.bytes().await.map_err(|error| no_answer(server, error))?;
    read(server, status, &body)
}

fn no_answer(server: &ServerUrl, error: reqwest::Error) -> CreateError<StoreError> {
    let was_never_reached = error.is_connect();
    let message = format!("the store at {server} does not answer; check whether it runs, and the parameter server");
    let error = StoreError::retryable(&NO_ANSWER, message).for_all_claims().with_source(error);
    if was_never_reached { CreateError::Refused(error) } else { CreateError::Failed(error) }
}

fn read<T: DeserializeOwned>(
    server: &ServerUrl,
    status: StatusCode,
    body: &[u8],
) -> Result<Answer<T>, CreateError<StoreError>> {
    // A proxy in front of the store answers 404 as well, but has no codes of the store.
    let has_code = |code| serde_json::from_slice::<Problem>(body).is_ok_and(|problem| problem.code == code);
    match status {
        status if status.is_success() => match serde_json::from_slice(body) {
            Ok(answer) => Ok(Answer::Success(answer)),
            Err(error) => {
                let message = format!("the answer of the store at {server} cannot be read; check the parameter server");
                Err(StoreError::retryable(&FAILING, message).with_source(error).into())
            }
        },
        StatusCode::NOT_FOUND if has_code("NotFound") => Ok(Answer::NotFound),
        StatusCode::CONFLICT if has_code("Conflict") => Ok(Answer::Conflict),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let message = format!(
                "the store at {server} refuses TOKEN of the class's Secret ({status}); put a valid token there"
            );
            Err(CreateError::Refused(StoreError::terminal(&TOKEN_REFUSED, message).for_all_claims()))
        }
        _ => {
            let message = format!("the store at {server} answered {status}; check its log, and the parameter server");
            Err(StoreError::retryable(&FAILING, message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bucket_provisioner::store::{Failure as _, FailureClass};

    use super::*;

    fn server(text: &str) -> Result<ServerUrl, String> {
        ServerUrl::try_from(text.to_owned())
    }

    #[test]
    fn paths_are_added_and_escaped() {
        for base in ["http://store:81/api", "http://store:81/api/"] {
            let url = server(base).unwrap().join(&["buckets", "a/b"]);
            assert_eq!(url.as_str(), "http://store:81/api/buckets/a%2Fb");
        }
        assert_eq!(server("https://store").unwrap().endpoint, Endpoint::new("store", 443));
    }

    #[test]
    fn what_is_no_base_of_paths_is_refused() {
        for (text, problem) in [
            ("store:80", "is not a URL of http or https"),
            ("127.0.0.1:80", "is not a URL (relative URL without a base)"),
            ("ftp://store", "is not a URL of http or https"),
            ("http://me:secret@store", "has more than host, port and path"),
            ("http://store?a=b", "has more than host, port and path"),
        ] {
            assert!(server(text).unwrap_err().starts_with(problem), "{text}: {:?}", server(text));
        }
    }

    #[test]
    fn only_the_store_itself_says_that_something_is_missing() {
        let read = |status, body: &str| read::<u8>(&server("http://store").unwrap(), status, body.as_bytes());
        assert_eq!(read(StatusCode::OK, "7").unwrap(), Answer::Success(7));
        assert_eq!(read(StatusCode::NOT_FOUND, r#"{"code":"NotFound"}"#).unwrap(), Answer::NotFound);
        assert_eq!(read(StatusCode::CONFLICT, r#"{"code":"Conflict"}"#).unwrap(), Answer::Conflict);
        for (status, body) in
            [(StatusCode::NOT_FOUND, "<html>"), (StatusCode::BAD_GATEWAY, ""), (StatusCode::OK, "<html>")]
        {
            let Err(CreateError::Failed(error)) = read(status, body) else { panic!("{status} is certain") };
            assert_eq!((error.reason(), error.class()), ("StoreFailing", FailureClass::Retryable));
        }
    }

    #[test]
    fn a_refused_token_concerns_all_claims() {
        let answer = read::<u8>(&server("http://store").unwrap(), StatusCode::FORBIDDEN, b"");
        let Err(CreateError::Refused(error)) = answer else { panic!("nothing was changed: {answer:?}") };
        assert!(error.affects_all_claims() && error.class() == FailureClass::Terminal, "{error}");
    }
}
