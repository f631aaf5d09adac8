//! What a store holds, for an admin who asks: the size of a bucket, and what was created for claims.

use super::ClaimId;

/// How much is in a bucket; see [`Provisioner::usage`](super::Provisioner::usage).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// So many objects with so many bytes together: all that there is.
    pub fn new(objects: u64, bytes: u64) -> Self {
        Self { objects, bytes, is_complete: true }
    }

    /// With more that was not counted.
    pub fn and_more(self) -> Self {
        Self { is_complete: false, ..self }
    }
}

/// What a [`Stock`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StockKind {
    /// A bucket.
    Bucket,
    /// A user.
    User,
}

/// Something in a store that carries the marks of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Stock {
    /// What it is.
    pub kind: StockKind,
    /// Its name.
    pub name: String,
    /// The claim for which it was created.
    pub claim: ClaimId,
    /// UID of the claim's cluster, if the marks say it.
    pub cluster: Option<String>,
}

impl Stock {
    /// Something that was created for this claim, in the cluster with this uid.
    pub fn new(kind: StockKind, name: impl Into<String>, claim: ClaimId, cluster: Option<String>) -> Self {
        Self { kind, name: name.into(), claim, cluster }
    }
}

/// What a store holds that this provisioner has created; see [`Provisioner::inventory`](super::Provisioner::inventory).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inventory {
    /// What carries the marks of a claim.
    pub stock: Vec<Stock>,
    /// What is not looked at, though nobody needs to worry; a sentence each.
    pub unread: Vec<String>,
    /// What could not be looked at, so that there may be more; a sentence each.
    pub problems: Vec<String>,
}

impl Inventory {
    /// An inventory of these.
    pub fn new(stock: Vec<Stock>) -> Self {
        Self { stock, unread: Vec::new(), problems: Vec::new() }
    }

    /// With something that could not be looked at, in a sentence: there may be more.
    pub fn with_problem(mut self, what: impl Into<String>) -> Self {
        self.problems.push(what.into());
        self
    }

    /// With something that is not looked at, in a sentence.
    pub fn with_unread(mut self, what: impl Into<String>) -> Self {
        self.unread.push(what.into());
        self
    }
}
