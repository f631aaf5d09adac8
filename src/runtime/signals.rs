//! When to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first SIGTERM or SIGINT. If the process cannot listen for one of them (which the
/// operating system allows always), that one keeps its default: it ends the process.
pub async fn shutdown() {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for a signal");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = wait(SignalKind::terminate()) => tracing::debug!("SIGTERM"),
        () = wait(SignalKind::interrupt()) => tracing::debug!("SIGINT"),
    }
}
