//! The durations of an election.

use std::time::Duration;

/// client-go's JitterFactor: a retry comes after 1 to 2.2 retry periods.
pub(super) const JITTER: f64 = 1.2;

/// The three durations of an election; [`Timing::new`] refuses those that cannot work together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Durations that cannot work together. The rules are client-go's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTiming {
    /// The Lease holds whole seconds, 1 to 2147483647.
    #[error("the lease duration must be whole seconds and at least 1 s")]
    LeaseDurationNotWholeSeconds,
    /// There would be no time between the end of one term and the start of the next one.
    #[error("the lease duration must be longer than the renew deadline")]
    LeaseDurationTooShort,
    /// There would be no time for a retry.
    #[error("the renew deadline must be longer than 1.2 times the retry period")]
    RenewDeadlineTooShort,
    /// There would be no pause between attempts.
    #[error("the retry period must be longer than zero")]
    RetryPeriodZero,
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s, as client-go recommends and the components of Kubernetes use.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

impl Timing {
    /// 60 s, 40 s and 20 s: a tenth of the writes, where nobody waits for the lease of a crashed process.
    pub fn slow() -> Self {
        let [lease_duration, renew_deadline, retry_period] = [60, 40, 20].map(Duration::from_secs);
        Self { lease_duration, renew_deadline, retry_period }
    }

    /// - `lease_duration`: how long the lease is valid after its last renewal, in whole seconds, because the Lease
    ///   stores whole seconds. A crashed leader is replaced after this time.
    /// - `renew_deadline`: how long a leader works after its last renewal; shorter than the lease duration.
    /// - `retry_period`: pause between two renewals, and between two attempts of a process that stands by; less than
    ///   1/1.2 of the renew deadline.
    ///
    /// # Errors
    /// The first rule that the durations break.
    pub fn new(lease_duration: Duration, renew_deadline: Duration, retry_period: Duration) -> Result<Self, BadTiming> {
        let is_whole = lease_duration.subsec_nanos() == 0 && i32::try_from(lease_duration.as_secs()).is_ok();
        if !is_whole || lease_duration.is_zero() {
            return Err(BadTiming::LeaseDurationNotWholeSeconds);
        }
        if retry_period.is_zero() {
            return Err(BadTiming::RetryPeriodZero);
        }
        if lease_duration <= renew_deadline {
            return Err(BadTiming::LeaseDurationTooShort);
        }
        // Compared as numbers, because multiplying a duration can overflow.
        if renew_deadline.as_secs_f64() <= retry_period.as_secs_f64() * JITTER {
            return Err(BadTiming::RenewDeadlineTooShort);
        }
        Ok(Self { lease_duration, renew_deadline, retry_period })
    }

    /// How long the lease is valid after its last renewal.
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// How long a leader works after its last renewal.
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Pause between two attempts.
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// The duration as the Lease stores it.
    pub(super) fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }

    /// Time limit of one attempt, so that a call that hangs leaves time for another one before the deadline.
    pub(super) fn attempt_timeout(&self) -> Duration {
        self.renew_deadline / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(lease: f64, renew: f64, retry: f64) -> Result<Timing, BadTiming> {
        let [lease, renew, retry] = [lease, renew, retry].map(Duration::from_secs_f64);
        Timing::new(lease, renew, retry)
    }

    #[test]
    fn the_default_keeps_the_rules() {
        assert_eq!(timing(15.0, 10.0, 2.0), Ok(Timing::default()));
        assert_eq!(timing(60.0, 40.0, 20.0), Ok(Timing::slow()));
    }

    #[test]
    fn durations_that_cannot_work_together_are_refused() {
        assert_eq!(timing(10.0, 10.0, 2.0), Err(BadTiming::LeaseDurationTooShort));
        assert_eq!(timing(15.0, 2.4, 2.0), Err(BadTiming::RenewDeadlineTooShort));
        assert!(timing(15.0, 2.41, 2.0).is_ok());
        assert_eq!(timing(0.0, 0.0, 0.0), Err(BadTiming::LeaseDurationNotWholeSeconds));
        assert_eq!(timing(1.5, 1.0, 0.1), Err(BadTiming::LeaseDurationNotWholeSeconds));
        assert_eq!(timing(5e9, 1.0, 0.1), Err(BadTiming::LeaseDurationNotWholeSeconds));
        assert_eq!(timing(15.0, 10.0, 0.0), Err(BadTiming::RetryPeriodZero));
        assert_eq!(timing(15.0, 0.0, 2.0), Err(BadTiming::RenewDeadlineTooShort));
    }
}
