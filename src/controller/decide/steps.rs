//! What is to be done next for a claim that should have a bucket. Pure: decides from what was seen, has no client.
//!
//! An attempt looks at everything once, then asks for the next step, takes it, and asks again. That a crash
//! between any two steps loses and leaks nothing rests on their order, and the order is here and nowhere
//! else. Two interpreters take the steps: `flow/provide.rs` with clients, and `model/operator.rs` in the world of the
//! model. Both match all steps, so that a new one cannot be forgotten in one of them.

use crate::provisioner::Mode;

/// What is known of a claim that should have a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProvisionState {
    /// The claim carries our finalizer and, where its CRD takes it, the generated name, as far as the cache says.
    pub(crate) finalizer_cached: bool,
    pub(crate) recorded: Recorded,
    pub(crate) mode: Mode,
    pub(crate) keys: Keys,
    /// The record's spec holds all that is learnt after it was first written.
    pub(crate) record_complete: bool,
    /// The record's status says that it is bound.
    pub(crate) record_says_bound: bool,
    /// The claim takes the record over from a former one, and that is not finished.
    pub(crate) adopting: bool,
    pub(crate) progress: Progress,
    pub(crate) upkeep: Upkeep,
}

/// Which steps this attempt has taken that leave no other trace in its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// The API server said that the claim carries our finalizer.
    pub(crate) finalizer_confirmed: bool,
    /// The ConfigMap is as it should be.
    pub(crate) config_map_written: bool,
    /// The claim names its record.
    pub(crate) record_linked: bool,
    /// The claim says that it is bound.
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

    /// Leaves ConfigMap, claim and status as they are.
    pub(crate) fn leave_as_adopted(&mut self) {
        *self = Self { config_map_written: true, record_linked: true, status_written: true, ..*self };
    }
}

/// How far the record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Recorded {
    /// There is none.
    No,
    /// It is that of a former claim, and an admin gives it to this one.
    Former,
    /// It is written; the store may have been asked.
    Begun,
    /// It says that everything was made and handed over.
    HandedOver,
}

/// Where the claim's keys are, and whether they were seen to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Keys<C = ()> {
    /// None that can be used.
    None,
    /// Issued just now, and nowhere but in memory.
    Issued(C),
    /// Issued to take the place of keys that work; nowhere but in memory.
    Successor { keys: C, proven: bool },
    /// In the claim's Secret. `up_to_date`: the Secret is as it should be in every other way, too.
    InSecret { keys: C, up_to_date: bool, proven: bool },
}

impl<C> Keys<C> {
    /// The same without the keys themselves.
    pub(crate) fn location(&self) -> Keys {
        match *self {
            Self::None => Keys::None,
            Self::Issued(_) => Keys::Issued(()),
            Self::Successor { proven, .. } => Keys::Successor { keys: (), proven },
            Self::InSecret { up_to_date, proven, .. } => Keys::InSecret { keys: (), up_to_date, proven },
        }
    }

    /// The same once they are written into the claim's Secret.
    pub(crate) fn written(self) -> Self {
        match self {
            Self::None => Self::None,
            Self::Issued(keys) => Self::InSecret { keys, up_to_date: true, proven: false },
            Self::Successor { keys, .. } => Self::InSecret { keys, up_to_date: true, proven: true },
            Self::InSecret { keys, proven, .. } => Self::InSecret { keys, up_to_date: true, proven },
        }
    }

    /// Notes whether they were seen to work. Keys that are nowhere but in memory are not tried.
    pub(crate) fn set_proven(&mut self, now: bool) {
        if let Self::Successor { proven, .. } | Self::InSecret { proven, .. } = self {
            *proven = now;
        }
    }
}

/// What is known of keys at the beginning of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeysFound<C> {
    /// The keys in the claim's Secret, if they are what the operator wrote.
    pub(crate) in_secret: Option<C>,
    /// The Secret is as it should be in every other way, too.
    pub(crate) up_to_date: bool,
    /// They are not the owner's present ones.
    pub(crate) outdated: bool,
    /// Keys were refused for so long that others shall be tried.
    pub(crate) refused: bool,
    /// These are so new that it may have been the ones before.
    pub(crate) new: bool,
    /// Successors that were issued and wait in memory to be tried.
    pub(crate) successor: Option<C>,
    pub(crate) bound: bool,
    /// The claim says that it can be used, and so that the keys were seen to work.
    pub(crate) ready: bool,
}

/// Where the keys are at the beginning of an attempt. Keys in the claim's own Secret are the proof that the store
/// made all that is recorded, because they are written last.
pub(crate) fn keys_so_far<C>(found: KeysFound<C>) -> Keys<C> {
    match found {
        KeysFound { in_secret: None, .. } => Keys::None,
        // Refused are those that wait in memory, not those that are in use.
        KeysFound { bound: true, successor: Some(keys), .. } => Keys::Successor { keys, proven: false },
        KeysFound { outdated: true, .. } | KeysFound { refused: true, new: false, .. } => Keys::None,
        // A bound claim that is not ready may be so because of keys that were issued again.
        KeysFound { in_secret: Some(keys), up_to_date, bound, ready, .. } => {
            Keys::InSecret { keys, up_to_date, proven: bound && ready }
        }
    }
}

/// What is due for a claim that is bound and well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Upkeep {
    /// Nothing.
    Nothing,
    /// Its keys are to be replaced.
    Rotate,
    /// Keys that nobody has any more, or ever had, are to go.
    Retire,
    /// The store is to be asked whether all is as it was made.
    Check,
}

/// What upkeep is left to an attempt that begins with these keys.
///
/// Keys that are missing are issued, which leaves nothing to do: it replaces all keys there were, and a look right
/// after it would not show them. Successors that wait are the rotation that is due: another would have the former
/// keys deleted in their grace.
pub(crate) fn upkeep_left<C>(due: Upkeep, keys: &Keys<C>) -> Upkeep {
    match (due, keys) {
        (_, Keys::None) | (Upkeep::Rotate, Keys::Successor { .. }) => Upkeep::Nothing,
        (due, _) => due,
    }
}

/// The verb that makes what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Verb {
    Provision,
    Grant,
}

/// A step towards a bucket that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ProvisionStep {
    /// Put finalizer, label and name on the claim.
    AddFinalizer,
    /// Write the record.
    Record,
    /// Write into the record of a former claim that it is this one's.
    Adopt,
    /// Have the store make what is recorded, and issue keys.
    Execute(Verb),
    /// Write the keys into the claim's Secret.
    WriteSecret,
    /// Try the keys once.
    Probe,
    /// Write into the record that the bucket may be in use from now on, and in which account it is.
    MarkHandedOver,
    /// Write the ConfigMap, without which no app starts.
    WriteConfigMap,
    /// Write into the record's status that it is bound.
    MarkBound,
    /// Write the record's name into the claim.
    LinkRecord,
    /// Say on the claim that it is bound.
    UpdateStatus,
    /// Take the admin's word off the record.
    FinishAdoption,
    /// Have the store issue other keys beside the present ones.
    Rotate,
    /// Have the store delete the keys that nobody has any more, or ever had.
    Retire,
    /// Have the store compare what is there with what was made.
    Check,
    /// Nothing is left to do.
    Done,
}

/// The next step towards a bucket that can be used.
///
/// Nothing is made before the record says what will be, and nothing is recorded before the finalizer holds the
/// claim. Keys are in the Secret before they are tried, so that a crash does not lose them; successors of keys
/// that work are tried first, because apps go on reading the Secret meanwhile. Signs of binding come last, in the
/// order in which others rely on them; and that the bucket may be in use is recorded before an app can start, because
/// it decides whether the bucket outlives its claim.
///
/// An adopted record names its new claim before anything in the store does: whoever comes next knows both.
pub(crate) fn next_provision_step(state: &ProvisionState) -> ProvisionStep {
    use ProvisionStep as Step;

    match (state.recorded, state.progress.finalizer_confirmed) {
        // The cache may show a claim that is gone: nothing is begun for that.
        (Recorded::No | Recorded::Former, false) => return Step::AddFinalizer,
        (Recorded::No, true) => return Step::Record,
        (Recorded::Former, true) => return Step::Adopt,
        (_, false) if !state.finalizer_cached => return Step::AddFinalizer,
        _ => {}
    }
    match state.keys {
        // A bucket that was bound and that somebody deleted is not silently recreated, empty.
        Keys::None if state.recorded == Recorded::Begun && state.mode == Mode::Created => {
            Step::Execute(Verb::Provision)
        }
        Keys::None => Step::Execute(Verb::Grant),
        Keys::Issued(()) | Keys::Successor { proven: true, .. } | Keys::InSecret { up_to_date: false, .. } => {
            Step::WriteSecret
        }
        // What is lost is not reported as bound.
        Keys::InSecret { .. } if state.upkeep == Upkeep::Check => Step::Check,
        Keys::Successor { .. } | Keys::InSecret { proven: false, .. } => Step::Probe,
        Keys::InSecret { .. } if !state.record_complete => Step::MarkHandedOver,
        Keys::InSecret { .. } if !state.progress.config_map_written => Step::WriteConfigMap,
        Keys::InSecret { .. } if !state.record_says_bound => Step::MarkBound,
        Keys::InSecret { .. } if !state.progress.record_linked => Step::LinkRecord,
        Keys::InSecret { .. } if !state.progress.status_written => Step::UpdateStatus,
        Keys::InSecret { .. } if state.adopting => Step::FinishAdoption,
        Keys::InSecret { .. } => match state.upkeep {
            Upkeep::Nothing | Upkeep::Check => Step::Done,
            Upkeep::Rotate => Step::Rotate,
            Upkeep::Retire => Step::Retire,
        },
    }
}
