//! Whether this process may act.

use std::fmt;
use std::sync::Arc;

use crate::lease::Terms;

/// Whether this process may act: of several operators only one works at a time, the one that holds the lease. The
/// controller stops by itself when the lease is lost. A store that makes many calls in one verb, or has its own retries,
/// asks directly before each call.
#[derive(Clone)]
pub struct Permit(Arc<dyn Fn() -> bool + Send + Sync>);

impl Permit {
    /// A permit that lasts.
    pub fn always() -> Self {
        Self::new(|| true)
    }

    /// A permit for as long as the latest of some terms lasts.
    pub(crate) fn of(terms: &Terms) -> Self {
        let terms = terms.clone();
        Self::new(move || terms.is_leading())
    }

    /// A permit for as long as `holds` returns true.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    /// Whether it lasts. Cheap enough to be asked before each call.
    pub fn holds(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({})", self.holds())
    }
}
