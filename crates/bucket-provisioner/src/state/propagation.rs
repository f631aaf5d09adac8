//! How long new keys take to work, by store.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How many keys are remembered for each store.
const REMEMBERED: usize = 8;
/// How many stores are remembered.
const STORES: usize = 1000;
/// The longest time that is learnt: what took longer was another problem.
const LONGEST: Duration = Duration::from_secs(40);

/// The times that the last keys took.
#[derive(Debug, Default)]
pub(crate) struct Propagation(Mutex<HashMap<Arc<str>, VecDeque<Duration>>>);

impl Propagation {
    /// Keys worked after this time.
    pub(crate) fn learn(&self, store: &Arc<str>, took: Duration) {
        let mut stores = self.0.lock();
        if stores.len() >= STORES && !stores.contains_key(store) {
            stores.clear();
        }
        let times = stores.entry(Arc::clone(store)).or_default();
        times.push_back(took.min(LONGEST));
        if times.len() > REMEMBERED {
            times.pop_front();
        }
    }

    /// When the first probe is useful: somewhat before the fastest of the last keys worked, so that faster ones are
    /// learnt, too.
    pub(crate) fn first_probe(&self, store: &str) -> Duration {
        let stores = self.0.lock();
        let fastest = stores.get(store).and_then(|times| times.iter().min().copied());
        fastest.unwrap_or_default().mul_f64(0.8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_probe_is_before_the_fastest_key_worked() {
        let (propagation, store): (_, Arc<str>) = (Propagation::default(), "s3".into());
        let seconds = Duration::from_secs;
        assert_eq!(propagation.first_probe(&store), Duration::ZERO);
        propagation.learn(&store, seconds(5));
        assert_eq!(propagation.first_probe(&store), seconds(4));
        assert_eq!(propagation.first_probe("other"), Duration::ZERO);
        propagation.learn(&store, Duration::ZERO);
        assert_eq!(propagation.first_probe(&store), Duration::ZERO);
        (0..REMEMBERED).for_each(|_| propagation.learn(&store, seconds(3600)));
        assert_eq!(propagation.first_probe(&store), seconds(32));
    }

    #[test]
    fn what_is_remembered_does_not_grow() {
        let propagation = Propagation::default();
        for n in 0..3 * STORES {
            propagation.learn(&n.to_string().into(), Duration::ZERO);
        }
        assert!(propagation.0.lock().len() <= STORES);
    }
}
