//! What a store can do beyond buckets and keys.

use super::settings::{Settable, Setting};

/// Longest key of a setting, in bytes. A tag's has up to 128 characters.
pub(crate) const LONGEST_KEY: usize = 640;

/// What a store can do beyond creating buckets and issuing keys. Class parameters that need more are refused by name, and so
/// are settings of claims.
///
/// ```
/// use bucket_provisioner::store::Capabilities;
///
/// const ROTATES: Capabilities = Capabilities::NONE.with_rotation();
/// assert!(ROTATES.rotation && !ROTATES.access_modes);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// [`Provisioner::rotate`](super::Provisioner::rotate) issues new keys: class parameters `rotateKeysEvery` and
    /// `keyGracePeriod`.
    pub rotation: bool,
    /// Keys can be limited to reading or to writing, by [`Plan::access`](super::Plan::access): class parameter
    /// `accessMode`, and the same setting of claims. [`Provisioner::check`](super::Provisioner::check) applies a change of it.
    pub access_modes: bool,
    /// Keys can be limited to objects whose keys begin with a prefix, by [`Plan::access`](super::Plan::access): class
    /// parameter `prefix`.
    pub prefixes: bool,
    /// Settings of its buckets, by [`Plan::settings`](super::Plan::settings):
    /// [`Provisioner::create_bucket`](super::Provisioner::create_bucket) applies them, and
    /// [`Provisioner::check`](super::Provisioner::check) repairs them and applies changes.
    pub settings: &'static [Setting],
    /// Several claims of a namespace can have keys for one bucket that was created for one of them:
    /// [`Provisioner::grant`](super::Provisioner::grant) gives access to a bucket of
    /// [`Plan::shared_from`](super::Plan::shared_from), if it is still marked as that claim's.
    pub shared_buckets: bool,
    /// Apps can have access without keys, as a ServiceAccount of their namespace, by
    /// [`Plan::service_account`](super::Plan::service_account): class parameter `authentication`.
    /// [`Provisioner::grant`](super::Provisioner::grant) issues [no keys](super::AppCredentials::without_keys) then.
    pub service_accounts: bool,
}

impl Capabilities {
    /// None of them.
    pub const NONE: Self = Self {
        rotation: false,
        access_modes: false,
        prefixes: false,
        settings: &[],
        shared_buckets: false,
        service_accounts: false,
    };

    /// All of them, without settings.
    pub const ALL: Self = Self {
        rotation: true,
        access_modes: true,
        prefixes: true,
        settings: &[],
        shared_buckets: true,
        service_accounts: true,
    };

    /// And keys can be rotated.
    #[must_use]
    pub const fn with_rotation(self) -> Self {
        Self { rotation: true, ..self }
    }

    /// And keys can be limited to reading or writing.
    #[must_use]
    pub const fn with_access_modes(self) -> Self {
        Self { access_modes: true, ..self }
    }

    /// And keys can be limited to objects under a prefix.
    #[must_use]
    pub const fn with_prefixes(self) -> Self {
        Self { prefixes: true, ..self }
    }

    /// And buckets have these settings.
    #[must_use]
    pub const fn with_settings(self, settings: &'static [Setting]) -> Self {
        Self { settings, ..self }
    }

    /// And claims can share buckets.
    #[must_use]
    pub const fn with_shared_buckets(self) -> Self {
        Self { shared_buckets: true, ..self }
    }

    /// And apps can have access without keys.
    #[must_use]
    pub const fn with_service_accounts(self) -> Self {
        Self { service_accounts: true, ..self }
    }

    /// What classes and claims can set.
    pub(super) const fn settable(self) -> Settable {
        Settable { settings: self.settings, shared_buckets: self.shared_buckets }
    }

    /// The setting that has this key; none has one that is longer.
    pub(crate) fn setting(&self, key: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| key.len() <= LONGEST_KEY && setting.has(key))
    }
}
