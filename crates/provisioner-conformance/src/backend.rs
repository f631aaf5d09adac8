//! What the kit has to know about a store, and what it does to it without the operator.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use super::program::Program;
use super::proxy::Upstream;

/// Something that a store can do, or that can be seen of it. A check that needs an ability which the backend lacks is
/// skipped, and this is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ability {
    /// It creates buckets ([`create_bucket`](bucket_provisioner::Provisioner::create_bucket) and [`delete_bucket`](bucket_provisioner::Provisioner::delete_bucket)).
    Greenfield,
    /// It gives access to buckets that exist ([`grant`](bucket_provisioner::Provisioner::grant) and
    /// [`revoke`](bucket_provisioner::Provisioner::revoke)). Needs [`Ability::Inventory`] as well.
    Brownfield,
    /// Claims can share a bucket that was created for one of them
    /// ([`Capabilities::shared_buckets`](bucket_provisioner::store::Capabilities::shared_buckets)). Needs
    /// [`Ability::Greenfield`] and [`Ability::Inventory`] as well.
    SharedBuckets,
    /// It remembers for which claim a bucket was created, so that a foreign bucket of that name is recognized.
    Tags,
    /// It issues new keys while the previous ones work ([`rotate`](bucket_provisioner::Provisioner::rotate)).
    Rotation,
    /// What it holds outlives the operator's process.
    Persistence,
    /// What it holds can be seen and changed: [`Backend::inventory`], [`Backend::remove`] and [`Backend::create_bucket`].
    Inventory,
    /// Apps can be played: [`Backend::put`] and [`Backend::list`].
    Apps,
    /// Operators reach it over HTTP: [`Backend::upstream`].
    Http,
    /// The provisioning credentials are in a Secret: [`Backend::owner`].
    Owner,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Greenfield => "Greenfield (it creates no buckets)",
            Self::Brownfield => "Brownfield (it gives no access to buckets that exist)",
            Self::SharedBuckets => "SharedBuckets (its claims cannot share created buckets)",
            Self::Tags => "Tags (its buckets do not record for which claim they were created)",
            Self::Rotation => "Rotation (it does not rotate keys)",
            Self::Persistence => "Persistence (its content is lost with the operator's process)",
            Self::Inventory => "Inventory (what it holds cannot be seen)",
            Self::Apps => "Apps (keys cannot be tried)",
            Self::Http => "Http (operators do not reach it over HTTP)",
            Self::Owner => "Owner (it has no provisioning credentials)",
        })
    }
}

/// What there is in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Buckets by their names.
    pub buckets: BTreeMap<String, Bucket>,
    /// Users by their names.
    pub users: BTreeMap<String, User>,
}

/// A bucket as the provisioning credentials see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bucket {
    /// The names of its objects, in their order.
    pub objects: Vec<String>,
    /// All else that an operator could change about it, such as its tags; no times.
    pub settings: String,
}

/// A user as the provisioning credentials see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The ids of its keys, in their order.
    pub keys: Vec<String>,
    /// All else that an operator could change about it, such as its policies; no times.
    pub settings: String,
}

impl Inventory {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty() && self.users.is_empty()
    }
}

/// What a claim's Secret and ConfigMap put into an app's environment.
pub type Outputs = BTreeMap<String, String>;

/// A store and its operator. One value serves one check; checks run at the same time, so two values do not disturb each
/// other, be it because each has a store of its own or because all names in a check contain its world's id.
///
/// A function that belongs to an [`Ability`] is only called if the backend has that. All of them bypass the operator and
/// the proxies; a failure that is the kit's own is a panic. Functions with a default may be left out: what needs them is
/// skipped, and reported on standard error.
pub trait Backend: Send + Sync + 'static {
    /// What the store can.
    fn abilities(&self) -> Vec<Ability>;

    /// The operator.
    fn program(&self) -> Program;

    /// The server behind the proxy through which operators reach the store: mostly an
    /// [`HttpStore`](super::proxy::HttpStore).
    fn upstream(&self) -> Option<Arc<dyn Upstream>> {
        None
    }

    /// The parameters of the store's classes, without the common ones. `url` is that of the proxy, if there is one.
    fn parameters(&self, url: Option<&str>) -> BTreeMap<String, String> {
        let _ = url;
        BTreeMap::new()
    }

    /// The entries of the Secret with the provisioning credentials.
    fn owner(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Credentials that the store refuses: with the entries of [`owner`](Self::owner), and a password or token in it
    /// that is wrong and not used anywhere else. Nothing by default: the store accepts everything, or this is not known.
    fn wrong_owner(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// Everything in the store that has `id` in its name, and nothing else: what is shown here, the kit may remove.
    fn inventory(&self, id: &str) -> impl Future<Output = Inventory> + Send {
        let _ = id;
        async { missing("inventory") }
    }

    /// Removes buckets with their objects, and users with their keys. What is missing already does not matter.
    fn remove(&self, what: &Inventory) -> impl Future<Output = ()> + Send {
        let _ = what;
        async { missing("remove") }
    }

    /// Creates a foreign bucket, with one object called `theirs`.
    fn create_bucket(&self, name: &str) -> impl Future<Output = ()> + Send {
        let _ = name;
        async { missing("create_bucket") }
    }

    /// Creates other foreign things that an operator could take for its own, such as a user of that name, and tags of the
    /// bucket. Nothing by default.
    fn plant(&self, name: &str) -> impl Future<Output = ()> + Send {
        let _ = name;
        async {}
    }

    /// Creates a foreign user, with a key. `false`, and nothing is done, by default and where claims have no users
    /// of their own.
    fn create_user(&self, name: &str) -> impl Future<Output = bool> + Send {
        let _ = name;
        async { false }
    }

    /// Takes from a user whatever marks it as created for a claim, such as its tags; its keys stay. `false`, and
    /// nothing is done, by default and where users carry no marks.
    fn remove_marks(&self, user: &str) -> impl Future<Output = bool> + Send {
        let _ = user;
        async { false }
    }

    /// Renames a user; its keys stay. `false`, and nothing is done, by default and where that is not possible.
    fn rename_user(&self, user: &str, to: &str) -> impl Future<Output = bool> + Send {
        let _ = (user, to);
        async { false }
    }

    /// Writes an object into the bucket of these outputs, as an app that has them, but **past the proxy**: calls through
    /// it are made to fail, and are counted as the operator's. If the outputs have the proxy's URL, use the store's own.
    ///
    /// The kit tries the keys of one claim at the bucket of another: then all entries of the ConfigMap are those of the other
    /// claim, and `BUCKET_NAME` is replaced if a Secret has it. Take the bucket from there, and the keys from the entries of
    /// the Secret.
    ///
    /// # Errors
    /// The store's refusal. It is an error if the keys do not open this bucket.
    fn put(&self, app: &Outputs, object: &str) -> impl Future<Output = Result<(), String>> + Send {
        let _ = (app, object);
        async { missing("put") }
    }

    /// The names of the objects in the bucket of these outputs, in their order, as an app that has them, under the rules
    /// of [`put`](Self::put).
    ///
    /// # Errors
    /// The store's refusal. It is an error if the keys do not open this bucket.
    fn list(&self, app: &Outputs) -> impl Future<Output = Result<Vec<String>, String>> + Send {
        let _ = app;
        async { missing("list") }
    }
}

fn missing(function: &str) -> ! {
    panic!("the backend has the ability that needs `{function}`, and does not implement that function")
}
