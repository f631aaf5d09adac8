//! A place where calls wait until the test lets them go.

use std::sync::Arc;

use tokio::sync::watch;

use crate::base::patience;

/// A gate, closed at first. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    reached: bool,
    open: bool,
}

impl Gate {
    /// A gate that nobody has opened.
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Lets go what waits and whatever comes.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.borrow().open
    }

    /// Waits until a call has reached the gate; false if none did in time.
    pub async fn reached(&self) -> bool {
        let mut state = self.0.subscribe();
        let seen = state.wait_for(|state| state.reached);
        tokio::time::timeout(patience(), seen).await.is_ok()
    }

    /// Called for each call: marks the gate as reached, and waits until it is open.
    pub(super) async fn pass(&self) {
        self.0.send_modify(|state| state.reached = true);
        let mut state = self.0.subscribe();
        // The sender lives as long as this gate.
        let _ = state.wait_for(|state| state.open).await;
    }
}
