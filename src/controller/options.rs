//! What the command line sets.

use std::time::Duration;

use crate::api::wire;

/// The settings of the command line.
#[derive(Debug, Clone)]
pub struct Options {
    /// `StorageClass.provisioner` of the classes to serve.
    pub provisioner_name: String,
    /// The only namespace whose claims are served; all if `None`.
    pub namespace: Option<String>,
    /// How many claims of one store and owner are processed at the same time, at least 1; the limit for all stores
    /// together is four times as high. Waiting claims do not count.
    pub concurrency: u16,
    /// How often the store of a bound claim is checked, plus or minus a tenth; never if `None`. The first check of a
    /// claim is at a random time within the interval, so that a restart does not check all claims at once.
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
