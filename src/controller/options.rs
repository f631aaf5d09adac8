//! What the command line sets.

use std::time::Duration;

use crate::api::wire;

/// What the operator is told by its command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// `StorageClass.provisioner` of the classes it serves.
    pub provisioner_name: String,
    /// The one namespace whose claims it serves; all if `None`.
    pub namespace: Option<String>,
    /// How many claims of one store and owner are worked on at the same time, at least 1; in all it is four times as many.
    /// A claim that waits does not count.
    pub concurrency: u16,
    /// How often the store is asked whether all is as it was made for a bound claim, give or take a tenth;
    /// never if `None`. A claim's first time lies anywhere within the interval, so that a restart asks nothing
    /// at once.
    pub resync: Option<Duration>,
}

/// [`Options::resync`] by default.
pub const DEFAULT_RESYNC: Duration = Duration::from_secs(10 * 60 * 60);

impl Default for Options {
    fn default() -> Self {
        Self {
            provisioner_name: wire::DEFAULT_PROVISIONER.to_owned(),
            namespace: None,
            concurrency: 32,
            resync: Some(DEFAULT_RESYNC),
        }
    }
}
