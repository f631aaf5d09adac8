//! A limit for what a user can request again and again, such as new keys, because it takes calls that others need: some
//! requests in a row are free, and after that each has to wait.

use std::time::Duration;

use tokio::time::Instant;

/// How many in a row are free.
const FREE: u32 = 3;

/// How long each further one waits after the one before.
const WAIT: Duration = Duration::from_secs(30);

/// After this time without one, counting begins again.
const END: Duration = Duration::from_secs(600);

/// How often something happened in a row, and when last.
#[derive(Debug, Default)]
pub(crate) struct BurstLimiter {
    times: u32,
    last: Option<Instant>,
}

impl BurstLimiter {
    /// It happens now.
    pub(crate) fn note(&mut self) {
        self.times = if self.is_over() { 1 } else { self.times.saturating_add(1) };
        self.last = Some(Instant::now());
    }

    /// How long it must not happen again.
    pub(crate) fn wait(&self) -> Duration {
        if self.times < FREE { Duration::ZERO } else { WAIT.saturating_sub(self.since()) }
    }

    fn is_over(&self) -> bool {
        self.since() >= END
    }

    fn since(&self) -> Duration {
        self.last.map_or(Duration::MAX, |last| Instant::now().saturating_duration_since(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn three_requests_are_free_and_later_ones_wait() {
        let mut limiter = BurstLimiter::default();
        for _ in 0..FREE {
            assert_eq!(limiter.wait(), Duration::ZERO);
            limiter.note();
        }
        assert_eq!(limiter.wait(), WAIT);
        tokio::time::advance(WAIT).await;
        assert_eq!(limiter.wait(), Duration::ZERO);
        limiter.note();
        assert_eq!(limiter.wait(), WAIT);
        tokio::time::advance(END).await;
        limiter.note();
        assert_eq!(limiter.wait(), Duration::ZERO, "counting begins again");
    }
}
