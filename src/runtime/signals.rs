//! When to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first SIGTERM or SIGINT from this call on, whenever it is first awaited. If the process cannot
/// listen for one of them (which the operating system allows always), that one keeps its default: it ends the
/// process.
///
/// # Panics
/// Outside of a Tokio runtime.
pub fn shutdown() -> impl Future<Output = ()> + Send + 'static {
    let (terminate, interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    async move {
        tokio::select! {
            () = terminate => tracing::debug!("SIGTERM"),
            () = interrupt => tracing::debug!("SIGINT"),
        }
    }
}

/// Listens at once: a signal that comes before would end the process, with a lease that is not given back.
fn listen(kind: SignalKind) -> impl Future<Output = ()> {
    let signals = signal(kind);
    async move {
        match signals {
            Ok(mut signals) => {
                signals.recv().await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot listen for a signal");
                std::future::pending::<()>().await;
            }
        }
    }
}
