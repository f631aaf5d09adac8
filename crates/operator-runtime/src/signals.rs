//! When to stop.

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first SIGTERM or SIGINT after this call, even if it is awaited later. A signal for which the
/// process cannot listen keeps its default effect and ends the process.
///
/// # Panics
/// Outside a Tokio runtime.
#[cfg(unix)]
pub fn shutdown() -> impl Future<Output = ()> + Send + 'static {
    let (terminate, interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    async move {
        tokio::select! {
            () = terminate => tracing::debug!("received SIGTERM"),
            () = interrupt => tracing::debug!("received SIGINT"),
        }
    }
}

/// Completes at the first Ctrl-C after this call, even if it is awaited later.
///
/// # Panics
/// Outside a Tokio runtime.
#[cfg(windows)]
pub fn shutdown() -> impl Future<Output = ()> + Send + 'static {
    let interrupt = tokio::signal::windows::ctrl_c();
    async move {
        match interrupt {
            Ok(mut interrupt) => {
                interrupt.recv().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for Ctrl-C; it will end the process at once");
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Listens at once, because an earlier signal would end the process without releasing the lease.
#[cfg(unix)]
fn listen(kind: SignalKind) -> impl Future<Output = ()> {
    let signals = signal(kind);
    async move {
        match signals {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for a signal; it will end the process at once");
                std::future::pending::<()>().await;
            }
        }
    }
}
