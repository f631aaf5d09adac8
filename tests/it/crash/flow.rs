//! A kind of claim, and what happens to it while the operator is killed.

use std::fmt;

use crate::support::proxy::Strictness;

/// What kind of claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new bucket with a generated name.
    Generated,
    /// A new bucket with a name that the claim says.
    Named,
    /// Access to a bucket that exists.
    Brownfield,
    /// A new bucket that outlives its claim.
    Retain,
    /// A new bucket with the owner's own keys.
    SharedKeys,
}

/// What happens to the claim while the operator is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// It is submitted.
    Provide,
    /// It is submitted, and is deleted before the operator is started again.
    Abandon,
    /// It is bound, and is deleted.
    Remove,
    /// It is bound, and its Secret is deleted: keys are issued anew.
    Repair,
    /// It is bound, and its user asks for other keys; the former ones go at once.
    Rotate,
    /// All was made for it but its Secret when the operator was killed once, and that is started again: keys are
    /// issued anew.
    Recover,
    /// All was made for it, but the store did not say so; it is not bound, and is deleted.
    Withdraw,
    /// The same, and another bucket is asked for.
    Edit,
    /// It comes back from a backup, and an admin has it adopt what was made for it.
    Adopt,
    /// It was forced out, and an admin has its record undone.
    RemoveOrphan,
    /// It is bound, and is deleted, while its record says that all that was made is to stay.
    Forget,
}

/// A kind of claim, what happens to it, and how AWS is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) kind: Kind,
    pub(super) act: Act,
    /// `None`: as lax and as fast as the emulator is.
    pub(super) aws: Option<Strictness>,
    pub(super) store: StoreKind,
}

/// Which store stands for AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreKind {
    Emulator,
    SeaweedFs,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aws = if self.aws.is_some() { ", slow AWS" } else { "" };
        let store = if self.store == StoreKind::SeaweedFs { " on SeaweedFS" } else { "" };
        write!(f, "{:?} {:?}{aws}{store}", self.act, self.kind)
    }
}

impl Flow {
    pub(super) fn of(kind: Kind, act: Act) -> Self {
        Self { kind, act, aws: None, store: StoreKind::Emulator }
    }

    pub(super) fn on_seaweedfs(self) -> Self {
        Self { store: StoreKind::SeaweedFs, ..self }
    }

    pub(super) fn with(self, aws: Strictness) -> Self {
        Self { aws: Some(aws), ..self }
    }

    /// The flow whose calls are those of this one until the operator is killed. A slow AWS is asked again and
    /// again, how often is a matter of time; so the calls are those of a fast one.
    pub(super) fn undisturbed(self) -> Self {
        let act = if self.act == Act::Abandon { Act::Provide } else { self.act };
        Self { act, aws: None, ..self }
    }
}
