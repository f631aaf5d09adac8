//! When to stop.

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first SIGTERM or SIGINT after this call, on Windows at Ctrl-C, even if it is awaited later. A signal
/// for which the process cannot listen keeps its default effect and ends the process.
///
/// # Panics
/// Outside a Tokio runtime.
pub fn shutdown() -> impl Future<Output = ()> + Send + 'static {
    // Both listen at once, because an earlier signal would end the process without releasing the lease.
    #[cfg(unix)]
    let (terminate, interrupt) = (received(SignalKind::terminate()), received(SignalKind::interrupt()));
    // Windows has no SIGTERM.
    #[cfg(windows)]
    let (terminate, interrupt) =
        (std::future::pending(), first(tokio::signal::windows::ctrl_c(), async |mut signals| signals.recv().await));
    async move {
        tokio::select! {
            () = terminate => tracing::debug!("received SIGTERM"),
            () = interrupt => tracing::debug!("received SIGINT"),
        }
    }
}

#[cfg(unix)]
fn received(kind: SignalKind) -> impl Future<Output = ()> {
    first(signal(kind), async |mut signals| signals.recv().await)
}

/// Completes with the first of `signals`; never without any.
async fn first<S>(signals: std::io::Result<S>, next: impl AsyncFnOnce(S) -> Option<()>) {
    match signals {
        Ok(signals) => {
            next(signals).await;
        }
        Err(error) => {
            tracing::error!(%error, "cannot listen for a signal; it will end the process at once");
            std::future::pending::<()>().await;
        }
    }
}
