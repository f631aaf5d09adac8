//! What a store contains, for commands: the size of a bucket, and what was created for claims.

use serde::Serialize;

use super::ClaimId;

/// How much is in a bucket; see [`Provisioner::usage`](super::Provisioner::usage).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usage {
    /// Objects, or versions of them where the store keeps versions.
    pub objects: u64,
    /// Their size together, in bytes.
    pub bytes: u64,
    /// Whether everything was counted. Otherwise there is at least this much.
    pub is_complete: bool,
}

impl Usage {
    /// An empty bucket, of which everything was counted.
    pub fn none() -> Self {
        Self { is_complete: true, ..Self::default() }
    }

    /// With so many objects.
    pub fn with_objects(self, objects: u64) -> Self {
        Self { objects, ..self }
    }

    /// With so many bytes together.
    pub fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// With more that was not counted.
    pub fn and_more(self) -> Self {
        Self { is_complete: false, ..self }
    }
}

/// What a [`TaggedResource`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ResourceKind {
    /// A bucket.
    Bucket,
    /// A user.
    User,
    /// The access of a claim by a role, which the claims of a ServiceAccount share.
    Role,
}

/// Something in a store that carries the marks of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct TaggedResource {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name.
    pub name: String,
    /// The claim for which it was created. If the marks of a role have only its uid, that is its name, too.
    pub claim: ClaimId,
    /// UID of the claim's cluster, if the marks say it.
    pub cluster: Option<String>,
    /// The ServiceAccount of a role.
    pub service_account: Option<String>,
}

impl TaggedResource {
    /// Something that was created for this claim, in the cluster with this uid.
    pub fn new(kind: ResourceKind, name: impl Into<String>, claim: ClaimId, cluster: Option<String>) -> Self {
        Self { kind, name: name.into(), claim, cluster, service_account: None }
    }

    /// With the ServiceAccount of the role.
    pub fn with_service_account(self, name: impl Into<String>) -> Self {
        Self { service_account: Some(name.into()), ..self }
    }
}

/// What a store holds that this provisioner has created; see [`Provisioner::inventory`](super::Provisioner::inventory).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inventory {
    /// What carries the marks of a claim.
    pub stock: Vec<TaggedResource>,
    /// What is not checked, without need for action; a sentence each.
    pub unread: Vec<String>,
    /// What could not be read, so that there may be more; a sentence each.
    pub problems: Vec<String>,
}

impl Inventory {
    /// An inventory of these.
    pub fn new(stock: Vec<TaggedResource>) -> Self {
        Self { stock, unread: Vec::new(), problems: Vec::new() }
    }

    /// With something that could not be read, in a sentence: there may be more.
    pub fn with_problem(mut self, what: impl Into<String>) -> Self {
        self.problems.push(what.into());
        self
    }

    /// With something that is not checked, in a sentence.
    pub fn with_unread(mut self, what: impl Into<String>) -> Self {
        self.unread.push(what.into());
        self
    }
}
