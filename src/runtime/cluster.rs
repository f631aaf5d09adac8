//! The client of the API server.

use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use tower::timeout::TimeoutLayer;

/// Longest time until an answer begins, tries that kube makes by itself (429, 503, 504) included. The API server
/// gives a webhook as long to say what it thinks of a write. Watches are answered at once, and then go on.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest pause within an answer. On a watch, where nothing may happen for long, a bookmark comes every minute.
const PAUSE_LIMIT: Duration = Duration::from_secs(300);

/// A client whose calls end, after `answer_limit` at most (the operator's is [`ANSWER_LIMIT`]): kube's own would
/// wait for ever for an answer, or for the rest of one, from an API server that was cut off.
///
/// # Errors
/// What the configuration says cannot be used.
pub fn client(mut config: kube::Config, answer_limit: Duration) -> Result<Client, kube::Error> {
    config.read_timeout = Some(PAUSE_LIMIT);
    Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(answer_limit)).build())
}
