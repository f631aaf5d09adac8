//! A kind of claim, and what happens to it while the operator is killed.

use std::fmt;

use crate::proxy::{Call, Verdict};

/// What kind of claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A new bucket with a generated name.
    Generated,
    /// A new bucket with the name in `spec.bucketName`.
    Named,
    /// Access to a bucket that exists.
    Brownfield,
    /// Access to the bucket that was created for another claim.
    Shared,
    /// A new bucket that outlives its claim.
    Retain,
    /// A new bucket that outlives its claim if it is not empty.
    IfEmpty,
    /// A new bucket that is deleted a while after its claim.
    Later,
}

/// What happens to the claim while the operator is killed.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// It is submitted.
    Provide,
    /// It is submitted, and is deleted before the operator is started again.
    Abandon,
    /// It is bound, and is deleted.
    Remove,
    /// It is bound, and its Secret is deleted: new keys are issued.
    Repair,
    /// It is bound, and its user requests new keys; the previous ones are deleted at once.
    Rotate,
    /// All was created for it except its Secret when the operator was killed once, and the operator is started again: new
    /// keys are issued.
    Recover,
    /// All was created for it, but the store answered with an error; it is not bound, and is deleted.
    Withdraw(Corruption),
    /// The same, and another bucket is asked for.
    Edit(Corruption),
    /// It is restored from a backup, and an admin's annotation has it adopt its bucket and user.
    Adopt,
    /// It is bound, and its user edits its settings.
    Configure(Edit),
    /// It was deleted by force, and an admin's annotation has its ObjectBucket cleaned up.
    RemoveOrphan,
    /// It is bound, and is deleted, while its ObjectBucket has the annotation `forget`: bucket and user are kept.
    Forget,
    /// It was deleted, and the time comes at which its bucket is deleted.
    DeleteLater,
    /// It was deleted, and is created again to have its bucket back.
    Undo,
    /// It is bound, and is deleted without the operator, because somebody removes its finalizer.
    Vanish,
    /// It was bound and used, a snapshot of etcd from before sets the cluster back, and it is deleted.
    SetBack,
}

/// An injected fault: the last call that creates something for a claim is done, and answered as if it were refused.
#[derive(Debug, Clone, Copy)]
pub struct Corruption {
    /// What becomes of each call to the store.
    pub rule: fn(&Call) -> Verdict,
    /// The reason of the claim's condition then. It has to be a terminal one, which is not retried for minutes.
    pub reason: &'static str,
}

/// An edit of `spec.additionalConfig`.
#[derive(Debug, Clone, Copy)]
pub struct Edit {
    /// The settings that the claim is submitted with.
    pub before: &'static [(&'static str, &'static str)],
    /// What they become.
    pub after: &'static [(&'static str, &'static str)],
}

/// A kind of claim, and what happens to it.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// What kind of claim.
    pub kind: Kind,
    /// What happens to it.
    pub step: Step,
    /// More parameters of its class.
    pub parameters: &'static [(&'static str, &'static str)],
    /// What the settings of its new bucket and of its user contain in the inventory when the claim is bound in the end.
    pub settings: &'static [&'static str],
    /// It has no user of its own: its keys are the provisioning credentials.
    pub shares_keys: bool,
    /// Its apps have access as a ServiceAccount, whose tokens have this audience: the claim names one, and its class has
    /// the parameters for that. What the store has for it counts as a user without keys.
    pub audience: Option<&'static str>,
    /// Only calls to the store are points. Those to Kubernetes are the same with every store.
    pub at_store_only: bool,
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let step = match self.step {
            Step::Withdraw(_) => "Withdraw".to_owned(),
            Step::Edit(_) => "Edit".to_owned(),
            Step::Configure(_) => "Configure".to_owned(),
            step => format!("{step:?}"),
        };
        let keys = match self.audience {
            Some(_) => " without keys",
            None if self.shares_keys => " with shared keys",
            None => "",
        };
        let settings = if self.settings.is_empty() { "" } else { " with settings" };
        write!(f, "{step} {:?}{keys}{settings}", self.kind)
    }
}

impl Flow {
    /// A flow whose class has the store's usual parameters, killed at every call.
    pub const fn of(kind: Kind, step: Step) -> Self {
        Self { kind, step, parameters: &[], settings: &[], shares_keys: false, audience: None, at_store_only: false }
    }

    /// The flow whose calls are those of this one until the operator is killed.
    pub(super) fn undisturbed(self) -> Self {
        let step = if matches!(self.step, Step::Abandon) { Step::Provide } else { self.step };
        Self { step, ..self }
    }

    /// Whether the bucket exists before the claim, and outlives it.
    pub(super) fn has_bucket_before(&self) -> bool {
        matches!(self.kind, Kind::Brownfield | Kind::Shared)
    }

    /// Whether the claim ends bound, rather than deleted.
    pub(super) fn ends_bound(&self) -> bool {
        match self.step {
            Step::Abandon | Step::Remove | Step::Withdraw(_) | Step::RemoveOrphan | Step::Forget => false,
            Step::DeleteLater | Step::Vanish | Step::SetBack => false,
            Step::Provide | Step::Recover | Step::Edit(_) | Step::Configure(_) | Step::Repair => true,
            Step::Rotate | Step::Adopt | Step::Undo => true,
        }
    }

    /// Whether the ObjectBucket outlives the claim.
    pub(super) fn keeps_record(&self) -> bool {
        match (self.step, self.kind) {
            (Step::Vanish | Step::SetBack, _) => true,
            (Step::DeleteLater, _) => false,
            (_, kind) => matches!(kind, Kind::IfEmpty | Kind::Later),
        }
    }

    /// The value of `onDelete` in its class.
    pub(super) fn on_delete(&self) -> Option<&'static str> {
        match self.kind {
            Kind::IfEmpty => Some("ifEmpty"),
            Kind::Later => Some("after:1h"),
            Kind::Generated | Kind::Named | Kind::Brownfield | Kind::Shared | Kind::Retain => None,
        }
    }
}
