//! A StorageClass, as far as every provisioner reads it alike.

/// What happens to what was created for a claim when the claim is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReclaimPolicy {
    /// It is deleted, with all its content.
    Delete,
    /// It stays. Only the claim's access is removed.
    Retain,
}

impl ReclaimPolicy {
    /// The name on the wire, as in `StorageClass.reclaimPolicy`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Retain => "Retain",
        }
    }

    /// The policy of a class. The API server allows Delete, Retain and, for old volumes, Recycle; the default is
    /// Delete.
    #[must_use]
    pub fn of_class(policy: Option<&str>) -> Self {
        match policy {
            None | Some("Delete") => Self::Delete,
            Some(_) => Self::Retain,
        }
    }
}
