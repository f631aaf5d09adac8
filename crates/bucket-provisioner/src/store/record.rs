//! What a claim gets: the content of an ObjectBucket.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use super::access::Access;
use super::authentication::ServiceAccount;
use super::changes::Changes;
use super::endpoint::Endpoint;
use super::on_delete::OnDelete;
use super::owner_ref::OwnerRef;
use super::previous_access::PreviousAccess;
use super::rotation::Rotation;
use super::settings::Settings;
use super::shared_from::SharedFrom;
use operator_runtime::ReclaimPolicy;

/// The identity of an ObjectBucketClaim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim, unique in its namespace at any one time.
    pub name: String,
    /// `metadata.uid` of the claim: a UUID of 36 characters, never used twice.
    pub uid: String,
}

impl ClaimId {
    /// Namespace, name and uid.
    pub(crate) fn parts(&self) -> [&str; 3] {
        [&self.namespace, &self.name, &self.uid]
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The origin of the bucket, and so what the operator may do to it. It is exhaustive, because code that ignores a mode
/// can delete data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Greenfield: the operator creates the bucket ([`Provisioner::create_bucket`](super::Provisioner::create_bucket)).
    Created,
    /// Brownfield: the bucket existed and only access is given ([`Provisioner::grant`](super::Provisioner::grant)).
    Granted,
}

impl Mode {
    /// The value recorded in the ObjectBucket.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Granted => "granted",
        }
    }
}

/// What a claim gets: decided by [`Provisioner::plan`](super::Provisioner::plan), recorded in the ObjectBucket, and all
/// that the verbs know about the claim's class. Contains no secret. [`Request::plan`](super::Request::plan) makes the
/// usual one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// Name of the bucket.
    pub bucket: String,
    /// Whether the operator creates it.
    pub mode: Mode,
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// The provisioning credentials.
    pub owner: OwnerRef,
    /// The user issued to the claim, or the role that its [ServiceAccount](Self::service_account) has; `None` if the claim
    /// shares the provisioning credentials.
    pub user: Option<String>,
    /// The ServiceAccount as which the claim's apps have access, as far as the store [has
    /// that](super::Capabilities::service_accounts); `None`: they have keys.
    pub service_account: Option<ServiceAccount>,
    /// When its keys are rotated.
    pub rotation: Rotation,
    /// What happens to the bucket when the claim is deleted, if it was created and its reclaimPolicy is Delete.
    pub on_delete: OnDelete,
    /// What the store has appended to the name that the claim asked for or that was generated; see
    /// [`Provisioner::name_suffix`](super::Provisioner::name_suffix).
    pub name_suffix: String,
    /// What the keys may do, as far as the store [can limit](super::Capabilities) that.
    pub access: Access,
    /// What is set for the bucket, as far as the store [has settings](super::Capabilities::settings).
    pub settings: Settings,
    /// The claim for which the bucket was created, if this one [shares](super::Capabilities::shared_buckets) it. The mode is
    /// [`Mode::Granted`] then.
    pub shared_from: Option<SharedFrom>,
    /// What was changed for a bound claim: [`Provisioner::check`](super::Provisioner::check) applies it, and does not report
    /// it as a repair.
    pub changes: Changes,
    /// Whatever else the verbs need, in the store's own keys. It is recorded in `spec.additionalState`, beside the keys
    /// of [`wire::state`](crate::api::wire::state), which are refused; so are keys that begin with `output.`, and empty
    /// values.
    pub state: BTreeMap<String, String>,
    /// Further entries of the claim's ConfigMap, beside the standard ones: key and value. A key has 1 to 253 letters,
    /// digits, `-`, `_` and `.`; no value is empty. There are up to 32 entries, and together they have up to 512 KiB. They
    /// should have far less: the operator keeps the records of all claims in memory.
    pub outputs: BTreeMap<String, String>,
}

impl Plan {
    /// A bucket without a user, for which the operator's own identity is used.
    pub fn new(bucket: impl Into<String>, mode: Mode, endpoint: Endpoint) -> Self {
        Self {
            bucket: bucket.into(),
            mode,
            endpoint,
            owner: OwnerRef::default(),
            user: None,
            service_account: None,
            rotation: Rotation::default(),
            on_delete: OnDelete::default(),
            name_suffix: String::new(),
            access: Access::default(),
            settings: Settings::default(),
            shared_from: None,
            changes: Changes::default(),
            state: BTreeMap::new(),
            outputs: BTreeMap::new(),
        }
    }

    /// Name of the bucket without what the store has appended.
    pub(crate) fn asked_name(&self) -> &str {
        self.bucket.strip_suffix(&self.name_suffix).unwrap_or(&self.bucket)
    }

    /// Whether apps have access as a ServiceAccount of which the store accepts no token from the operator.
    pub(crate) fn is_tried_with_owner(&self) -> bool {
        self.service_account.as_ref().is_some_and(|account| account.audience.is_none())
    }

    /// What the store has for the claim, for messages; `None` if the claim shares the provisioning credentials.
    pub(crate) fn identity(&self) -> Option<String> {
        let user = self.user.as_deref()?;
        Some(match &self.service_account {
            Some(account) => format!("role {user:?} of ServiceAccount {:?}", account.name),
            None => format!("user {user:?}"),
        })
    }

    /// With other provisioning credentials than the operator's own identity.
    pub fn with_owner(self, owner: OwnerRef) -> Self {
        Self { owner, ..self }
    }

    /// With a user for the claim.
    pub fn with_user(self, name: impl Into<String>) -> Self {
        Self { user: Some(name.into()), ..self }
    }

    /// With access of a ServiceAccount, and no keys.
    pub fn with_service_account(self, account: ServiceAccount) -> Self {
        Self { service_account: Some(account), ..self }
    }

    /// With times for the rotation of keys.
    pub fn with_rotation(self, rotation: Rotation) -> Self {
        Self { rotation, ..self }
    }

    /// With what happens to the bucket when the claim is deleted.
    pub fn with_on_delete(self, on_delete: OnDelete) -> Self {
        Self { on_delete, ..self }
    }

    /// With what the keys may do.
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// With what is set for the bucket.
    pub fn with_settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// With the bucket of another claim.
    pub fn with_shared_from(self, from: SharedFrom) -> Self {
        Self { shared_from: Some(from), ..self }
    }

    /// With an entry of the store's own.
    pub fn with_state(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.state.insert(key.into(), value.into());
        self
    }

    /// With a further entry of the claim's ConfigMap; see [`outputs`](Self::outputs).
    pub fn with_output(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.outputs.insert(key.into(), value.into());
        self
    }

    /// With a class parameter, as an admin wrote it: verbs get it in [`Call::parameters`](super::Call).
    pub fn with_parameter(self, name: &str, value: impl Into<String>) -> Self {
        self.with_state(format!("{PARAMETER}{name}"), value)
    }
}

/// A [`Plan`] and its claim. This is the content of an ObjectBucket, and all that
/// [`Provisioner::revoke`](super::Provisioner::revoke) and
/// [`Provisioner::delete_bucket`](super::Provisioner::delete_bucket) need. The library makes it; tests of a store can
/// make one, too:
///
/// ```
/// use bucket_provisioner::store::{ClaimId, Endpoint, Mode, Plan, ReclaimPolicy, Record};
///
/// let uid = "f30e0389-0689-48a2-bfaa-74d1bf1fd950".to_owned();
/// let claim = ClaimId { namespace: "shop".to_owned(), name: "photos".to_owned(), uid };
/// let plan = Plan::new("photos", Mode::Created, Endpoint::new("store.example.com", 443))
///     .with_user("shop-photos")
///     .with_parameter("shelf", "left");
/// let record = Record::new(claim, "shelves", ReclaimPolicy::Delete, plan);
/// assert!(!record.credentials_published);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The claim.
    pub claim: ClaimId,
    /// UIDs of the claims that had this record before, oldest first: it was adopted from a backup or from another
    /// cluster. Tags, and the names in the plan, may still contain one of them.
    pub former_uids: Vec<String>,
    /// UID of the cluster in which it was created or adopted; `None` in records of earlier versions.
    pub cluster: Option<String>,
    /// Account of the provisioning credentials at that time; `None` if the store has no accounts, or did not report it.
    pub account: Option<String>,
    /// When the claim was created for which the record was made first; `None` in records of earlier versions. A bucket
    /// that is older was not created for it.
    pub claim_created_at: Option<SystemTime>,
    /// The claim's credentials have worked and were published, so an app may have used the bucket.
    pub credentials_published: bool,
    /// Name of the StorageClass from which the plan was made. The class may no longer exist.
    pub class_name: String,
    /// What happens to a created bucket when the claim is deleted.
    pub reclaim_policy: ReclaimPolicy,
    /// Access that the claim had before, and that has not ended yet; the latest is last.
    pub(crate) previous_access: Vec<PreviousAccess>,
    /// The plan.
    pub plan: Plan,
}

/// Begins the keys of [`Plan::state`] that hold class parameters.
pub(crate) const PARAMETER: &str = "parameter.";

impl Record {
    /// The record of a claim that was planned just now, from the StorageClass `class_name`.
    pub fn new(claim: ClaimId, class_name: impl Into<String>, reclaim_policy: ReclaimPolicy, plan: Plan) -> Self {
        Self {
            claim,
            former_uids: Vec::new(),
            cluster: None,
            account: None,
            claim_created_at: None,
            credentials_published: false,
            class_name: class_name.into(),
            reclaim_policy,
            previous_access: Vec::new(),
            plan,
        }
    }

    /// With the uids of the claims that had the record before, oldest first.
    pub fn with_former_uids(self, uids: impl IntoIterator<Item = String>) -> Self {
        Self { former_uids: uids.into_iter().collect(), ..self }
    }

    /// With the uid of the cluster.
    pub fn with_cluster(self, uid: impl Into<String>) -> Self {
        Self { cluster: Some(uid.into()), ..self }
    }

    /// With the account of the provisioning credentials.
    pub fn with_account(self, account: impl Into<String>) -> Self {
        Self { account: Some(account.into()), ..self }
    }

    /// With the time at which the claim was created.
    pub fn with_claim_created_at(self, at: SystemTime) -> Self {
        Self { claim_created_at: Some(at), ..self }
    }

    /// With its credentials published: an app may have used the bucket.
    pub fn with_credentials_published(self) -> Self {
        Self { credentials_published: true, ..self }
    }

    /// The parameters of the class, as an admin wrote them when the plan was made.
    pub(super) fn written_parameters(&self) -> BTreeMap<String, String> {
        let parameter =
            |(key, value): (&String, &String)| Some((key.strip_prefix(PARAMETER)?.to_owned(), value.clone()));
        self.plan.state.iter().filter_map(parameter).collect()
    }

    /// Name of the claim's user, never empty: that of the plan; the uid of the claim if a store's own plan has none, because
    /// its claims share the provisioning credentials.
    pub fn user(&self) -> &str {
        self.plan.user.as_deref().filter(|user| !user.is_empty()).unwrap_or(&self.claim.uid)
    }

    /// Whether `uid` is that of the claim, or of a claim that had the record before.
    pub fn names_uid(&self, uid: &str) -> bool {
        self.uids().any(|known| known == uid)
    }

    /// The uids one of which marks the bucket: those of the claim for which it was created, which may be another one that
    /// [shares](Plan::shared_from) it.
    pub fn bucket_uids(&self) -> Vec<&str> {
        match &self.plan.shared_from {
            Some(from) => from.uids.iter().map(String::as_str).collect(),
            None => self.uids().collect(),
        }
    }

    /// The uids of the claim, and of the claims that had the record before.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.claim.uid.as_str()).chain(self.former_uids.iter().map(String::as_str))
    }
}
