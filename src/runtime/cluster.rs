//! The client of the API server.

use std::time::Duration;

use kube::Client;
use kube::client::ClientBuilder;
use tower::timeout::TimeoutLayer;

/// Longest time until an answer starts, including kube's own retries (429, 503, 504). The API server waits as long for
/// a webhook. Watches are answered at once, and stay open.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest pause within an answer. A watch without changes gets a bookmark every minute.
const PAUSE_LIMIT: Duration = Duration::from_secs(300);

/// A client whose calls fail without an answer after `answer_limit` (the operator uses [`ANSWER_LIMIT`]). The default
/// client of kube waits forever for an API server that cannot be reached any longer.
///
/// # Errors
/// The configuration cannot be used.
pub fn client(mut config: kube::Config, answer_limit: Duration) -> Result<Client, kube::Error> {
    config.read_timeout = Some(PAUSE_LIMIT);
    Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(answer_limit)).build())
}
