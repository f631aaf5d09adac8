//! What is to be done next for a claim. Pure: decides from what was seen, has no client.
//!
//! An attempt looks at everything once, then asks for the next step, takes it, and asks again. That a crash
//! between any two steps loses and leaks nothing rests on their order, and the order is here and nowhere
//! else. `model.rs` explores it.

use super::plan::Undo;
use crate::provisioner::Mode;

/// What is known of a claim that should have a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Making {
    /// The claim carries our finalizer and, where its CRD takes it, the generated name, as far as the cache says.
    pub(crate) taken_on: bool,
    /// The API server said so, in this attempt.
    pub(crate) held: bool,
    pub(crate) recorded: Recorded,
    pub(crate) mode: Mode,
    pub(crate) keys: Keys,
    /// The record's spec holds all that is learnt after it was first written.
    pub(crate) record_complete: bool,
    /// The record's status says that it is bound.
    pub(crate) record_says_bound: bool,
    /// The claim takes the record over from a former one, and that is not finished.
    pub(crate) adopting: bool,
    /// The ConfigMap is as it should be.
    pub(crate) published: bool,
    /// The claim names its record.
    pub(crate) named: bool,
    /// The claim says that it is bound.
    pub(crate) told: bool,
    pub(crate) upkeep: Upkeep,
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
    /// In the claim's Secret. `stands`: the Secret is as it should be in every other way, too.
    InSecret { keys: C, stands: bool, proven: bool },
}

impl<C> Keys<C> {
    /// The same without the keys themselves.
    pub(crate) fn whereabouts(&self) -> Keys {
        match *self {
            Self::None => Keys::None,
            Self::Issued(_) => Keys::Issued(()),
            Self::Successor { proven, .. } => Keys::Successor { keys: (), proven },
            Self::InSecret { stands, proven, .. } => Keys::InSecret { keys: (), stands, proven },
        }
    }
}

/// What is known of keys at the beginning of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeysFound {
    /// The claim's Secret holds keys, and they are what the operator wrote.
    pub(crate) in_secret: bool,
    /// The Secret is as it should be in every other way, too.
    pub(crate) stands: bool,
    /// They are not the owner's present ones.
    pub(crate) outdated: bool,
    /// Keys were refused for so long that others shall be tried.
    pub(crate) refused: bool,
    /// These are so new that it may have been the ones before.
    pub(crate) new: bool,
    /// Successors were issued and wait in memory to be tried.
    pub(crate) succeeded: bool,
    pub(crate) bound: bool,
    /// The claim says that it can be used, and so that the keys were seen to work.
    pub(crate) ready: bool,
}

/// Where the keys are at the beginning of an attempt. Keys in the claim's own Secret are the proof that the store
/// made all that is recorded, for they are written last.
pub(crate) fn keys_so_far(found: &KeysFound) -> Keys {
    match *found {
        KeysFound { in_secret: false, .. } => Keys::None,
        // Refused are those that wait in memory, not those that are in use.
        KeysFound { bound: true, succeeded: true, .. } => Keys::Successor { keys: (), proven: false },
        KeysFound { outdated: true, .. } | KeysFound { refused: true, new: false, .. } => Keys::None,
        // A bound claim that is not ready may be so because of keys that were issued anew.
        KeysFound { stands, bound, ready, .. } => Keys::InSecret { keys: (), stands, proven: bound && ready },
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
pub(crate) fn upkeep_left(due: Upkeep, keys: &Keys) -> Upkeep {
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
pub(crate) enum Make {
    /// Put finalizer, label and name on the claim.
    TakeOn,
    /// Write the record.
    Record,
    /// Write into the record of a former claim that it is this one's.
    Adopt,
    /// Have the store make what is recorded, and issue keys.
    Execute(Verb),
    /// Write the keys into the claim's Secret.
    HandKeys,
    /// Try the keys once.
    Probe,
    /// Write into the record that the bucket may be in use from now on, and in which account it is.
    MarkHandedOver,
    /// Write the ConfigMap, without which no app starts.
    Publish,
    /// Write into the record's status that it is bound.
    MarkBound,
    /// Write the record's name into the claim.
    Name,
    /// Say on the claim that it is bound.
    Tell,
    /// Take the admin's word off the record.
    FinishAdoption,
    /// Have the store issue other keys beside the present ones.
    Rotate,
    /// Have the store delete the keys that nobody has any more, or ever had.
    Retire,
    /// Have the store compare what is there with what was made.
    Check,
    /// Nothing is left to do.
    Rest,
}

/// The next step towards a bucket that can be used.
///
/// Nothing is made before the record says what will be, and nothing is recorded before the finalizer holds the
/// claim. Keys are in the Secret before they are tried, so that a crash does not lose them; successors of keys
/// that work are tried first, for apps go on reading the Secret meanwhile. Signs of binding come last, in the
/// order in which others rely on them; and that the bucket may be in use is recorded before an app can start, for it
/// decides whether the bucket outlives its claim.
///
/// An adopted record names its new claim before anything in the store does: whoever comes next knows both.
pub(crate) fn make(seen: &Making) -> Make {
    match (seen.recorded, seen.held) {
        // The cache may show a claim that is gone: nothing is begun for that.
        (Recorded::No | Recorded::Former, false) => return Make::TakeOn,
        (Recorded::No, true) => return Make::Record,
        (Recorded::Former, true) => return Make::Adopt,
        (_, false) if !seen.taken_on => return Make::TakeOn,
        _ => {}
    }
    match seen.keys {
        // A bucket that was bound and that somebody deleted is not silently made anew, empty.
        Keys::None if seen.recorded == Recorded::Begun && seen.mode == Mode::Created => Make::Execute(Verb::Provision),
        Keys::None => Make::Execute(Verb::Grant),
        Keys::Issued(()) | Keys::Successor { proven: true, .. } | Keys::InSecret { stands: false, .. } => {
            Make::HandKeys
        }
        // What is lost is not told as bound.
        Keys::InSecret { .. } if seen.upkeep == Upkeep::Check => Make::Check,
        Keys::Successor { .. } | Keys::InSecret { proven: false, .. } => Make::Probe,
        Keys::InSecret { .. } if !seen.record_complete => Make::MarkHandedOver,
        Keys::InSecret { .. } if !seen.published => Make::Publish,
        Keys::InSecret { .. } if !seen.record_says_bound => Make::MarkBound,
        Keys::InSecret { .. } if !seen.named => Make::Name,
        Keys::InSecret { .. } if !seen.told => Make::Tell,
        Keys::InSecret { .. } if seen.adopting => Make::FinishAdoption,
        Keys::InSecret { .. } => match seen.upkeep {
            Upkeep::Nothing | Upkeep::Check => Make::Rest,
            Upkeep::Rotate => Make::Rotate,
            Upkeep::Retire => Make::Retire,
        },
    }
}

/// What is known of a claim that should leave nothing behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Unmaking {
    /// How the record is to be undone; `None` if there is no record.
    pub(crate) recorded: Option<Undo>,
    pub(crate) store: Emptied,
    /// The store has had the time to show all that was made.
    pub(crate) settled: bool,
    /// Neither Secret nor ConfigMap of the claim is left.
    pub(crate) outputs_gone: bool,
    pub(crate) purpose: Purpose,
}

/// What the store said to the verb that undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Emptied {
    /// It was not asked yet.
    NotAsked,
    /// Some is left.
    Partly,
    /// Nothing is left.
    Fully,
}

/// Why a claim is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// It was deleted.
    Release,
    /// It, or its class, was edited before it was bound.
    Replan,
    /// It is gone, and what was made for it is not.
    Orphan,
}

/// A step towards nothing left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Unmake {
    /// Have the store undo what is recorded.
    Undo(Undo),
    /// Go on after others had their turn.
    Yield,
    /// Look again after a while.
    Settle,
    /// Delete Secret and ConfigMap.
    DeleteOutputs,
    /// Delete the record.
    DeleteRecord,
    /// Take the finalizer off the claim.
    Release,
    /// Plan anew.
    Replan,
    /// Nothing is left to do.
    Rest,
}

/// The next step towards nothing left behind: the way back, from the store to the claim's finalizer.
pub(crate) fn unmake(seen: &Unmaking) -> Unmake {
    match (seen.recorded, seen.store) {
        (Some(undo), Emptied::NotAsked) => Unmake::Undo(undo),
        (Some(_), Emptied::Partly) => Unmake::Yield,
        (Some(_), Emptied::Fully) if !seen.settled => Unmake::Settle,
        _ if !seen.outputs_gone => Unmake::DeleteOutputs,
        (Some(_), Emptied::Fully) => Unmake::DeleteRecord,
        (None, _) => match seen.purpose {
            Purpose::Release => Unmake::Release,
            Purpose::Replan => Unmake::Replan,
            Purpose::Orphan => Unmake::Rest,
        },
    }
}
