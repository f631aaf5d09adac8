//! Whose bucket a claim shares.

/// The claim for which a bucket was created that another claim of its namespace shares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedFrom {
    /// Its name.
    pub name: String,
    /// Its uid, and then those of the claims that had its ObjectBucket before: one of them marks the bucket.
    pub uids: Vec<String>,
}

impl SharedFrom {
    /// The claim of this name, with its uids.
    pub fn new(name: impl Into<String>, uids: impl IntoIterator<Item = String>) -> Self {
        Self { name: name.into(), uids: uids.into_iter().collect() }
    }
}
