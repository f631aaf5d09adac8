//! Whether the operator works: for the probes of a kubelet.

use parking_lot::Mutex;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// How long the work may stand still. Nothing that it does takes the thread for long.
const STILL: Duration = Duration::from_secs(30);
/// How often the work reports progress.
pub const BEAT: Duration = Duration::from_secs(1);

/// What an operator is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Phase {
    /// It has not found out who holds the lease.
    #[default]
    Starting,
    /// Another one works.
    StandingBy {
        /// The identity of the process that holds the lease.
        leader: String,
    },
    /// It works as soon as it has read what there is in the cluster.
    Reading,
    /// It works.
    Serving,
    /// It has received a signal to stop.
    Stopping,
}

/// Whether it can do its part, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// What the probe answers.
    pub is_ready: bool,
    /// A sentence, for people.
    pub why: String,
}

/// Whether the operator works.
#[derive(Debug)]
pub struct Health(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    /// When the work last made progress.
    moved: Instant,
}

impl Default for Health {
    fn default() -> Self {
        Self(Mutex::new(State { phase: Phase::default(), moved: Instant::now() }))
    }
}

impl Health {
    /// What it is doing from now on; returns what it did before. Once it stops, it does nothing else.
    pub fn set_phase(&self, phase: Phase) -> Phase {
        let mut state = self.0.lock();
        let before = state.phase.clone();
        if before != Phase::Stopping {
            state.phase = phase;
        }
        before
    }

    /// Notes that the work makes progress.
    pub fn beat(&self) {
        self.0.lock().moved = Instant::now();
    }

    /// For how long the work has not moved, if that is too long.
    pub fn stalled_for(&self) -> Option<Duration> {
        Some(self.0.lock().moved.elapsed()).filter(|still| *still > STILL)
    }

    /// Whether it works, and does not only hold the lease.
    pub fn serves(&self) -> bool {
        self.0.lock().phase == Phase::Serving
    }

    /// For the readiness probe: who stands by is ready, too.
    #[must_use]
    pub fn ready(&self) -> Ready {
        let phase = self.0.lock().phase.clone();
        let is_ready = matches!(phase, Phase::StandingBy { .. } | Phase::Serving);
        Ready { is_ready, why: phase.to_string() }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting: it is not known yet who holds the lease"),
            Self::StandingBy { leader } => write!(f, "on standby: {leader} holds the lease"),
            Self::Reading => f.write_str("starting: reading the objects of the cluster"),
            Self::Serving => f.write_str("serving claims"),
            Self::Stopping => f.write_str("stopping"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_move_is_noticed() {
        let health = Health::default();
        tokio::time::advance(STILL).await;
        assert_eq!(health.stalled_for(), None);
        tokio::time::advance(BEAT).await;
        assert_eq!(health.stalled_for(), Some(STILL + BEAT));
        health.beat();
        assert_eq!(health.stalled_for(), None);
    }

    #[test]
    fn who_stands_by_is_ready_and_who_starts_or_stops_is_not() {
        let health = Health::default();
        let leader = "another".to_owned();
        let phases = [Phase::StandingBy { leader }, Phase::Reading, Phase::Serving, Phase::Stopping, Phase::Serving];
        let mut ready = vec![health.ready().is_ready];
        for phase in phases {
            health.set_phase(phase);
            ready.push(health.ready().is_ready);
        }
        assert_eq!(ready, [false, true, false, true, false, false], "who stops does not serve again");
    }
}
