//! When a verb that failed is called again.

use std::time::Duration;

/// How verbs are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait.
    pub max: Duration,
    /// Whether each wait is twice the one before. Otherwise all are as long as the first one.
    pub exponential: bool,
    /// After so many failures in a row the verb is called only once in a while. `None`: never that rarely.
    pub threshold: Option<u32>,
}

impl Default for Retry {
    /// 1 s, then twice as long each time, up to 5 minutes; no threshold.
    fn default() -> Self {
        Self { initial: Duration::from_secs(1), max: Duration::from_secs(300), exponential: true, threshold: None }
    }
}

impl Retry {
    /// How long to wait after so many failures in a row. `None`: until something changes, or the next resync.
    pub(crate) fn after(&self, failures: u32) -> Option<Duration> {
        if self.threshold.is_some_and(|threshold| failures >= threshold) {
            return None;
        }
        let doublings = if self.exponential { failures.saturating_sub(1).min(31) } else { 0 };
        Some(self.initial.saturating_mul(1 << doublings).min(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_one() {
        let waits: Vec<_> =
            (1..=12).filter_map(|failures| Retry::default().after(failures)).map(|w| w.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(Retry::default().after(u32::MAX), Some(Duration::from_secs(300)));
        let constant = Retry { exponential: false, ..Retry::default() };
        assert_eq!(constant.after(9), Some(Duration::from_secs(1)));
    }

    #[test]
    fn from_the_threshold_on_nothing_is_retried() {
        let retry = Retry { threshold: Some(3), ..Retry::default() };
        assert_eq!((retry.after(2), retry.after(3), retry.after(4)), (Some(Duration::from_secs(2)), None, None));
    }
}
