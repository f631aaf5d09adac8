//! How often each thing may happen in a scenario.

/// How often each thing may happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    pub(super) crashes: u8,
    /// Answers that are lost.
    pub(super) losses: u8,
    pub(super) refusals: u8,
    pub(super) edits: u8,
    pub(super) deletions: u8,
    /// Claims of the same name after the first.
    pub(super) recreations: u8,
    pub(super) deleted_secrets: u8,
    pub(super) rotations: u8,
    /// Edits of the access mode.
    pub(super) limits: u8,
    pub(super) checks: u8,
    /// Somebody else takes the bucket's name, or that of Secret or ConfigMap.
    pub(super) rivals: u8,
    /// Somebody deletes the claim's bucket by hand.
    pub(super) deleted_buckets: u8,
    /// Somebody deletes the claim's record by hand.
    pub(super) deleted_records: u8,
    /// An admin requests that the present claim adopts the record of a previous one.
    pub(super) adoption_requests: u8,
    /// The record comes back from a backup.
    pub(super) restored_records: u8,
    /// Something is put into a bucket.
    pub(super) contents: u8,
    /// A snapshot of etcd is restored that was taken before the claim was bound.
    pub(super) rewinds: u8,
    /// Claims of the same name after the first, that ask for its bucket.
    pub(super) undos: u8,
    /// Somebody removes the finalizer from a claim, and deletes it.
    pub(super) strips: u8,
}

pub(super) const CALM: Budget = Budget {
    crashes: 0,
    losses: 0,
    refusals: 0,
    edits: 0,
    deletions: 0,
    recreations: 0,
    deleted_secrets: 0,
    rotations: 0,
    limits: 0,
    checks: 0,
    rivals: 0,
    deleted_buckets: 0,
    deleted_records: 0,
    adoption_requests: 0,
    restored_records: 0,
    contents: 0,
    rewinds: 0,
    undos: 0,
    strips: 0,
};

impl std::ops::Add for Budget {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self {
            crashes: self.crashes + more.crashes,
            losses: self.losses + more.losses,
            refusals: self.refusals + more.refusals,
            edits: self.edits + more.edits,
            deletions: self.deletions + more.deletions,
            recreations: self.recreations + more.recreations,
            deleted_secrets: self.deleted_secrets + more.deleted_secrets,
            rotations: self.rotations + more.rotations,
            limits: self.limits + more.limits,
            checks: self.checks + more.checks,
            rivals: self.rivals + more.rivals,
            deleted_buckets: self.deleted_buckets + more.deleted_buckets,
            deleted_records: self.deleted_records + more.deleted_records,
            adoption_requests: self.adoption_requests + more.adoption_requests,
            restored_records: self.restored_records + more.restored_records,
            contents: self.contents + more.contents,
            rewinds: self.rewinds + more.rewinds,
            undos: self.undos + more.undos,
            strips: self.strips + more.strips,
        }
    }
}

/// This budget if EXPLORE_MORE is set, else none, because it takes minutes.
pub(super) fn more(budget: Budget) -> Budget {
    if explores_more() { budget } else { CALM }
}

pub(super) fn explores_more() -> bool {
    std::env::var_os("EXPLORE_MORE").is_some()
}
