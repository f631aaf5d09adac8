//! Watching one kind of object, even if the API server, permissions or CRDs are missing for some time.

use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use rand::RngExt as _;
use serde::de::DeserializeOwned;

use super::answers::status_code;
use crate::observe::Observer;

const CRDS_MISSING: &str = "the CustomResourceDefinitions are missing; install those that the operator's command `crds` prints, with `kubectl apply -f -`; retrying";

const PERMISSIONS_MISSING: &str =
    "the operator may not list and watch them; grant this to its service account, as its manifests do; retrying";

/// Longest pause after a failed watch, and so the longest time until a recovery is noticed.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// The events of all objects of `api` that `config` selects. `what` names them in the log, and `observer` counts failures.
///
/// # Guarantees
/// - It never fails and never ends: a failure is logged, and after a pause the watch continues.
/// - It starts again with a list if the API server no longer knows the version at which the watch stopped. kube's
///   watcher does this only after an error event in the stream; after an answer with 404 (the CRD was deleted, and may
///   be another one now) or 410, it would ask for the same version forever.
pub fn watch<K>(
    what: &'static str,
    api: Api<K>,
    config: watcher::Config,
    observer: &Observer,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let failed = observer.watch_failures(what);
    let begin = move || watcher(api.clone(), config.clone()).boxed();
    stream::unfold((begin(), begin, 0), move |(mut events, begin, mut failures)| {
        let failed = failed.clone();
        async move {
            loop {
                match events.next().await? {
                    Ok(event) => {
                        // `Init` comes before the first answer.
                        if failures > 0 && !matches!(event, Event::Init) {
                            tracing::info!("watching {what} again");
                            failures = 0;
                        }
                        return Some((Ok(event), (events, begin, failures)));
                    }
                    Err(error) => {
                        failures += 1;
                        log_failure(what, &error, failures);
                        failed.inc();
                        if is_obsolete(&error) {
                            events = begin();
                        }
                        tokio::time::sleep(pause(failures)).await;
                    }
                }
            }
        }
    })
}

fn pause(failures: u32) -> Duration {
    let whole = Duration::from_secs(1 << failures.saturating_sub(1).min(8)).min(PAUSE_MAX);
    whole.mul_f64(rand::rng().random_range(0.5..=1.0))
}

/// Whether the watch must start again with a list.
fn is_obsolete(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(error) if matches!(status_code(error), Some(404 | 410)))
}

/// Logs the first failure of an outage; the others only at level debug.
fn log_failure(what: &str, error: &watcher::Error, failures: u32) {
    let answer = match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => status_code(error),
        _ => None,
    };
    match (failures, answer) {
        (2.., _) => tracing::debug!(%error, "watching {what} failed; retrying"),
        (_, Some(404)) => tracing::error!("{what} cannot be watched: {}", CRDS_MISSING),
        (_, Some(403)) => tracing::error!(%error, "{what} cannot be watched: {}", PERMISSIONS_MISSING),
        // The API server ends watches every few minutes.
        (_, Some(410)) => tracing::debug!(%error, "listing {what} again, then watching them"),
        _ => tracing::warn!(%error, "watching {what} failed; retrying"),
    }
}
