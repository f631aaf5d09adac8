//! A kind of claim, and what happens to it while the operator is killed.

use std::fmt;

use crate::proxy::{Call, Verdict};

/// What kind of claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new bucket with a generated name.
    Generated,
    /// A new bucket with a name that the claim says.
    Named,
    /// Access to a bucket that exists.
    Brownfield,
    /// A new bucket that outlives its claim.
    Retain,
    /// A new bucket that outlives its claim if it is not empty.
    IfEmpty,
    /// A new bucket that is deleted a while after its claim.
    Later,
}

/// What happens to the claim while the operator is killed.
#[derive(Debug, Clone, Copy)]
pub enum Act {
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
    Withdraw(Spoil),
    /// The same, and another bucket is asked for.
    Edit(Spoil),
    /// It comes back from a backup, and an admin has it adopt what was made for it.
    Adopt,
    /// It was forced out, and an admin has its record undone.
    RemoveOrphan,
    /// It is bound, and is deleted, while its record says that all that was made is to stay.
    Forget,
    /// It was deleted, and the time comes at which its bucket is deleted.
    DeleteLater,
    /// It was deleted, and is created again to have its bucket back.
    Undo,
    /// It is bound, and goes without the operator, because somebody removes its finalizer.
    Vanish,
    /// It was bound and used, a snapshot of etcd from before sets the cluster back, and it is deleted.
    SetBack,
}

/// How the last call that makes something for a claim is done and answered as if it were refused for good.
#[derive(Debug, Clone, Copy)]
pub struct Spoil {
    /// What becomes of each call to the store.
    pub rule: fn(&Call) -> Verdict,
    /// The reason that the claim gives then. It has to be a terminal one, which is not tried again for minutes.
    pub reason: &'static str,
}

/// A kind of claim, and what happens to it.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// What kind of claim.
    pub kind: Kind,
    /// What happens to it.
    pub act: Act,
    /// More parameters of its class.
    pub parameters: &'static [(&'static str, &'static str)],
    /// It has no user of its own, and the owner's keys.
    pub shares_keys: bool,
    /// Only calls to the store are points. Those to Kubernetes are the same with every store.
    pub at_store_only: bool,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match self.act {
            Act::Withdraw(_) => "Withdraw".to_owned(),
            Act::Edit(_) => "Edit".to_owned(),
            act => format!("{act:?}"),
        };
        let keys = if self.shares_keys { " with the owner's keys" } else { "" };
        write!(f, "{act} {:?}{keys}", self.kind)
    }
}

impl Flow {
    /// A flow whose class has the store's usual parameters, killed at every call.
    pub const fn of(kind: Kind, act: Act) -> Self {
        Self { kind, act, parameters: &[], shares_keys: false, at_store_only: false }
    }

    /// The flow whose calls are those of this one until the operator is killed.
    pub(super) fn undisturbed(self) -> Self {
        let act = if matches!(self.act, Act::Abandon) { Act::Provide } else { self.act };
        Self { act, ..self }
    }

    /// Whether the claim ends bound, rather than gone.
    pub(super) fn ends_bound(&self) -> bool {
        match self.act {
            Act::Abandon | Act::Remove | Act::Withdraw(_) | Act::RemoveOrphan | Act::Forget => false,
            Act::DeleteLater | Act::Vanish | Act::SetBack => false,
            Act::Provide | Act::Recover | Act::Edit(_) | Act::Repair | Act::Rotate | Act::Adopt | Act::Undo => true,
        }
    }

    /// Whether the record outlives the claim.
    pub(super) fn keeps_record(&self) -> bool {
        match (self.act, self.kind) {
            (Act::Vanish | Act::SetBack, _) => true,
            (Act::DeleteLater, _) => false,
            (_, kind) => matches!(kind, Kind::IfEmpty | Kind::Later),
        }
    }

    /// The value of `onDelete` in its class.
    pub(super) fn on_delete(&self) -> Option<&'static str> {
        match self.kind {
            Kind::IfEmpty => Some("ifEmpty"),
            Kind::Later => Some("after:1h"),
            Kind::Generated | Kind::Named | Kind::Brownfield | Kind::Retain => None,
        }
    }
}
