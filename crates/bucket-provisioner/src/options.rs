//! The settings of a controller.

use std::time::Duration;

use operator_runtime::kubernetes::field_manager;

use crate::store::{Observer, Permit, Start};

/// The settings of a controller.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// `StorageClass.provisioner` of the classes to serve.
    pub provisioner_name: String,
    /// The name with which the operator writes, in `managedFields`; that of the provisioner by default. It may never change:
    /// by it, an operator knows which entries of a Secret or ConfigMap somebody else has changed.
    pub field_manager: String,
    /// The only namespace whose claims are served; all if `None`.
    pub namespace: Option<String>,
    /// How many claims of one store and owner are processed at the same time, at least 1; the limit for all stores
    /// together is four times as high. Waiting claims do not count.
    pub concurrency: u16,
    /// How often the store of a bound claim is checked, plus or minus a tenth; never if `None`. The first check of a
    /// claim is at a random time within the interval, so that a restart does not check all claims at once.
    pub resync: Option<Duration>,
    /// Whether the store may be called. The client of the controller has a fence of its own
    /// ([`Term::fence`](operator_runtime::lease::Term::fence)).
    pub permit: Permit,
    /// Whether the number of claims is shown for each namespace.
    pub shows_namespaces: bool,
    /// Metrics and traces.
    pub observer: Observer,
}

impl Options {
    /// [`Options::concurrency`] by default.
    pub const DEFAULT_CONCURRENCY: u16 = 32;
    /// [`Options::resync`] by default.
    pub const DEFAULT_RESYNC: Duration = Duration::from_secs(10 * 60 * 60);

    /// The default settings, for all namespaces.
    pub fn new(provisioner_name: impl Into<String>) -> Self {
        let provisioner_name = provisioner_name.into();
        Self {
            field_manager: field_manager(&provisioner_name),
            provisioner_name,
            namespace: None,
            concurrency: Self::DEFAULT_CONCURRENCY,
            resync: Some(Self::DEFAULT_RESYNC),
            permit: Permit::always(),
            shows_namespaces: false,
            observer: Observer::default(),
        }
    }

    /// Under another [field manager](Self::field_manager).
    #[must_use]
    pub fn with_field_manager(self, name: impl Into<String>) -> Self {
        Self { field_manager: name.into(), ..self }
    }

    /// For the claims of this [namespace](Self::namespace), or of all.
    #[must_use]
    pub fn with_namespace(self, namespace: impl Into<Option<String>>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// With another [concurrency](Self::concurrency).
    #[must_use]
    pub fn with_concurrency(self, claims: u16) -> Self {
        Self { concurrency: claims, ..self }
    }

    /// With checks [this often](Self::resync), or none.
    #[must_use]
    pub fn with_resync(self, every: impl Into<Option<Duration>>) -> Self {
        Self { resync: every.into(), ..self }
    }

    /// Calling the store only while [this](Self::permit) holds.
    #[must_use]
    pub fn with_permit(self, permit: Permit) -> Self {
        Self { permit, ..self }
    }

    /// What a store has to know that is used with these settings. `serves`: whether claims are served.
    #[must_use]
    pub fn start(&self, serves: bool) -> Start {
        let (permit, observer) = (self.permit.clone(), self.observer.clone());
        Start { provisioner_name: self.provisioner_name.clone(), permit, serves, observer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_manager_is_the_provisioner_unless_it_is_set() {
        let options = Options::new("example.com/bucket");
        assert_eq!(options.field_manager, "example.com/bucket");
        assert_eq!(options.with_field_manager("aws").field_manager, "aws");
        // The API server refuses a longer one.
        assert_eq!(Options::new("ä".repeat(129)).field_manager, "ä".repeat(128));
    }
}
