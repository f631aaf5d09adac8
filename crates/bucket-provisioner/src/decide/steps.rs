//! The next step for a claim that should have a bucket. Pure.
//!
//! An attempt reads everything once, then asks for the next step, takes it, and asks again. The order of the steps
//! guarantees that a crash between any two of them loses and leaks nothing, and it is defined only here. Two interpreters
//! take the steps: `reconcile/provide/mod.rs` with clients, and `model/provision.rs` in the world of the model. Both match all
//! steps, so that a new one cannot be forgotten in one of them.

use crate::store::Mode;

/// What is known about a claim that should have a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProvisionState {
    /// The cache shows our finalizer on the claim and, if its CRD accepts it, the generated name.
    pub(crate) finalizer_cached: bool,
    /// The record is written; the store may have created something.
    pub(crate) recorded: bool,
    /// The record's credentials were published.
    pub(crate) credentials_published: bool,
    pub(crate) mode: Mode,
    pub(crate) keys: Keys,
    /// The claim asks for something else than the record has.
    pub(crate) edited: bool,
    /// The record's spec has everything that is learnt only after it was first written.
    pub(crate) record_complete: bool,
    /// The record's status shows that it is bound.
    pub(crate) record_status_is_bound: bool,
    /// The adoption of the record is not finished, or not even recorded.
    pub(crate) adopting: bool,
    /// The claim gets other access than its apps have.
    pub(crate) moving: bool,
    pub(crate) progress: Progress,
    pub(crate) upkeep: Upkeep,
}

/// The steps of this attempt that are not visible elsewhere in its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// The API server has confirmed our finalizer on the claim.
    pub(crate) finalizer_confirmed: bool,
    /// The ConfigMap is up to date.
    pub(crate) config_map_written: bool,
    /// The claim names its record.
    pub(crate) record_linked: bool,
    /// The claim's status shows that it is bound.
    pub(crate) status_written: bool,
}

impl Progress {
    /// Notes a step that was taken.
    pub(crate) fn note(&mut self, step: ProvisionStep) {
        match step {
            ProvisionStep::AddFinalizer => self.finalizer_confirmed = true,
            ProvisionStep::WriteConfigMap => self.config_map_written = true,
            ProvisionStep::LinkRecord => self.record_linked = true,
            ProvisionStep::UpdateStatus => self.status_written = true,
            _ => {}
        }
    }

    /// Skips the steps for ConfigMap, claim and status.
    pub(crate) fn leave_published(&mut self) {
        *self = Self { config_map_written: true, record_linked: true, status_written: true, ..*self };
    }
}

/// Where the claim's keys are, and whether they were seen to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Keys<C = ()> {
    /// None that can be used.
    None,
    /// Just issued, and only in memory.
    Issued(C),
    /// Issued to replace keys that work, and only in memory.
    Pending { keys: C, proven: bool },
    /// In the claim's Secret. `up_to_date`: nothing else in the Secret must be changed.
    InSecret { keys: C, up_to_date: bool, proven: bool },
}

impl<C> Keys<C> {
    /// The same without the keys themselves.
    pub(crate) fn location(&self) -> Keys {
        match *self {
            Self::None => Keys::None,
            Self::Issued(_) => Keys::Issued(()),
            Self::Pending { proven, .. } => Keys::Pending { keys: (), proven },
            Self::InSecret { up_to_date, proven, .. } => Keys::InSecret { keys: (), up_to_date, proven },
        }
    }

    /// The same, after they were written into the claim's Secret.
    pub(crate) fn written(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Issued(keys) => Self::InSecret { keys, up_to_date: true, proven: false },
            Self::Pending { keys, .. } => Self::InSecret { keys, up_to_date: true, proven: true },
            Self::InSecret { keys, proven, .. } => Self::InSecret { keys, up_to_date: true, proven },
        }
    }

    /// Notes whether they were seen to work. [`Keys::Issued`] are not tried before they are written.
    pub(crate) fn set_proven(&mut self, now: bool) {
        if let Self::Pending { proven, .. } | Self::InSecret { proven, .. } = self {
            *proven = now;
        }
    }
}

/// What is known about keys at the start of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeysFound<C> {
    /// The keys in the claim's Secret, if the operator wrote them.
    pub(crate) in_secret: Option<C>,
    /// Nothing else in the Secret must be changed.
    pub(crate) up_to_date: bool,
    /// They are shared keys, and the provisioning credentials have changed.
    pub(crate) outdated: bool,
    /// The pending key: issued, and not tried yet.
    pub(crate) pending_key: Option<C>,
    pub(crate) bound: bool,
    /// The claim's status shows that it can be used, so the keys were seen to work.
    pub(crate) ready: bool,
}

/// Where the keys are at the start of an attempt. Keys in the claim's Secret prove that the store has created everything
/// that is recorded, because they are written last.
pub(crate) fn keys_so_far<C>(found: KeysFound<C>) -> Keys<C> {
    match found {
        KeysFound { in_secret: None, .. } => Keys::None,
        // If keys were refused, it was this pending key, not the keys in use.
        KeysFound { bound: true, pending_key: Some(keys), .. } => Keys::Pending { keys, proven: false },
        KeysFound { outdated: true, .. } => Keys::None,
        // A bound claim may be not ready because it got new keys.
        KeysFound { in_secret: Some(keys), up_to_date, bound, ready, .. } => {
            Keys::InSecret { keys, up_to_date, proven: bound && ready }
        }
    }
}

/// The upkeep of a bound claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Upkeep {
    Nothing,
    /// Replace its keys.
    Rotate,
    /// Delete previous and lost keys.
    Retire,
    /// Revoke access that the claim had before it was moved.
    RevokePrevious,
    /// Check and repair bucket and user.
    Check,
}

/// What upkeep is left for an attempt that starts with these keys.
///
/// If keys are missing, new ones are issued, which replaces all others; the store would not show them yet. A pending
/// key is the one that is due; to issue another would delete the previous keys within their grace period.
pub(crate) fn upkeep_left<C>(due: Upkeep, keys: &Keys<C>) -> Upkeep {
    match (due, keys) {
        (_, Keys::None) | (Upkeep::Rotate, Keys::Pending { .. }) => Upkeep::Nothing,
        (due, _) => due,
    }
}

/// The verb that creates what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Provision,
    Grant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProvisionStep {
    /// Add finalizer, label and name to the claim.
    AddFinalizer,
    Record,
    /// Write this claim into the record of a previous one.
    Adopt,
    /// Write what was edited into the record, which a check applies then.
    RecordEdit,
    /// Have the store create what is recorded, and issue keys.
    Execute(Verb),
    /// Write the keys into the claim's Secret.
    WriteSecret,
    /// Try the keys once.
    Probe,
    /// Write into the record that the bucket may be in use from now on, and in which account it is.
    MarkCredentialsPublished,
    /// Write the ConfigMap, without which no app starts.
    WriteConfigMap,
    /// Write into the record's status that it is bound.
    MarkBound,
    /// Write the record's name into the claim.
    LinkRecord,
    /// Report on the claim that it is bound.
    UpdateStatus,
    /// Remove the admin's annotation from the record.
    FinishAdoption,
    /// Have the store issue new keys in addition to the present ones.
    Rotate,
    /// Have the store delete previous and lost keys.
    Retire,
    /// Have the store revoke access that the claim had before it was moved.
    RevokePrevious,
    /// Have the store check and repair bucket and user.
    Check,
    /// Nothing is left to do.
    Done,
}

/// The next step towards a bucket that can be used.
///
/// The order:
/// - The finalizer is on the claim before the record is written, and the record is written before the store creates
///   anything.
/// - Keys are in the Secret before they are tried, so that a crash does not lose them. A pending key is tried first,
///   because apps read the Secret meanwhile.
/// - That the bucket may be in use is recorded before an app can start, because it decides whether the bucket outlives its
///   claim.
/// - Signs of binding come last, in the order in which others rely on them.
/// - A claim that is moved keeps its keys until its new access works, and until the ConfigMap names it: pods that start
///   meanwhile have one of both.
/// - Other access is recorded before the store applies it, so that a crash leaves no policy that nobody knows of.
/// - An adopted record names its new claim before anything in the store does, because the record names the previous
///   one, too.
pub(crate) fn next_provision_step(state: &ProvisionState) -> ProvisionStep {
    use ProvisionStep as Step;

    match (state.recorded, state.progress.finalizer_confirmed) {
        // The cache may show a deleted claim, so the finalizer must be confirmed.
        (false, false) => return Step::AddFinalizer,
        (false, true) => return if state.adopting { Step::Adopt } else { Step::Record },
        (true, false) if !state.finalizer_cached => return Step::AddFinalizer,
        // A pending key is tried first, with the access that the store has.
        (true, _) if state.edited && !matches!(state.keys, Keys::Pending { .. }) => return Step::RecordEdit,
        (true, _) => {}
    }
    match state.keys {
        // Grant, not provision: a bound bucket that somebody deleted must not be silently recreated, empty.
        Keys::None if !state.credentials_published && state.mode == Mode::Created => Step::Execute(Verb::Provision),
        Keys::None => Step::Execute(Verb::Grant),
        Keys::Pending { proven: true, .. } if state.moving && !state.progress.config_map_written => {
            Step::WriteConfigMap
        }
        Keys::Issued(()) | Keys::Pending { proven: true, .. } | Keys::InSecret { up_to_date: false, .. } => {
            Step::WriteSecret
        }
        // Before all others, so that a lost bucket is not reported as bound.
        Keys::InSecret { .. } if state.upkeep == Upkeep::Check => Step::Check,
        Keys::Pending { .. } | Keys::InSecret { proven: false, .. } => Step::Probe,
        Keys::InSecret { .. } if !state.record_complete => Step::MarkCredentialsPublished,
        Keys::InSecret { .. } if !state.progress.config_map_written => Step::WriteConfigMap,
        Keys::InSecret { .. } if !state.record_status_is_bound => Step::MarkBound,
        Keys::InSecret { .. } if !state.progress.record_linked => Step::LinkRecord,
        Keys::InSecret { .. } if !state.progress.status_written => Step::UpdateStatus,
        Keys::InSecret { .. } if state.adopting => Step::FinishAdoption,
        Keys::InSecret { .. } => match state.upkeep {
            Upkeep::Nothing | Upkeep::Check => Step::Done,
            Upkeep::Rotate => Step::Rotate,
            Upkeep::Retire => Step::Retire,
            Upkeep::RevokePrevious => Step::RevokePrevious,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim with keys, whose access as a ServiceAccount was granted just now.
    const MOVING: ProvisionState = ProvisionState {
        finalizer_cached: true,
        recorded: true,
        credentials_published: true,
        mode: Mode::Created,
        keys: Keys::Pending { keys: (), proven: false },
        edited: false,
        record_complete: false,
        record_status_is_bound: true,
        adopting: true,
        moving: true,
        progress: Progress {
            finalizer_confirmed: false,
            config_map_written: false,
            record_linked: true,
            status_written: true,
        },
        upkeep: Upkeep::Nothing,
    };

    #[test]
    fn pods_that_start_during_a_move_have_access() {
        let mut state = MOVING;
        assert_eq!(next_provision_step(&state), ProvisionStep::Probe);
        state.keys.set_proven(true);
        assert_eq!(next_provision_step(&state), ProvisionStep::WriteConfigMap, "it still has keys, too");
        state.progress.config_map_written = true;
        assert_eq!(next_provision_step(&state), ProvisionStep::WriteSecret);
        state.keys = state.keys.written();
        assert_eq!(next_provision_step(&state), ProvisionStep::MarkCredentialsPublished, "the grace period begins");
        let rotated = ProvisionState { moving: false, keys: Keys::Pending { keys: (), proven: true }, ..MOVING };
        assert_eq!(next_provision_step(&rotated), ProvisionStep::WriteSecret);
    }
}
