//! The steps back, as effects on the world: what `flow/teardown.rs` does with clients.

use std::time::Duration;

use super::memory::{Memory, Removed};
use super::planner::{Setup, real_record};
use super::store::{Kind, Progress, Verb};
use super::world::{Claim, Record, Secret, Whose, World};

use crate::controller::decide::backoff;
use crate::controller::decide::teardown::{self, Purpose, StoreProgress, TeardownState, TeardownStep, Undo};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Removal {
    pub(super) claim: Claim,
    pub(super) record: Option<Record>,
    pub(super) seen: TeardownState,
    pub(super) secret_gone: bool,
    pub(super) verb: Option<Verb>,
}

impl Removal {
    /// Looks at what there is to undo.
    pub(super) fn begin(
        setup: &Setup,
        world: &World,
        memory: &Memory,
        claim: Claim,
        mine: Option<Record>,
        purpose: Purpose,
    ) -> Option<Self> {
        let mut seen = TeardownState {
            recorded: None,
            store: StoreProgress::NotAsked,
            settled: false,
            outputs_gone: false,
            purpose,
        };
        let mut record = mine;
        match memory.removed.filter(|_| purpose == Purpose::Release) {
            Some(Removed::Everything) => return None,
            Some(Removed::AllButFinalizer) => {
                record = None;
                seen.outputs_gone = true;
            }
            // Nothing is recorded of what was bound once: it is looked for as claim and class would have it now.
            None if mine.is_none() && (claim.named || claim.bound) => {
                world.claim.filter(|now| now.uid == claim.uid)?;
                let lost = Record { handed_over: true, ..Record::new(claim) };
                // Nothing says whether the bucket was to be retained.
                seen.recorded = Some(Undo::Revoke);
                record = Some(lost);
            }
            None => {
                let secret_is_out = matches!(world.secret, Some(Secret::Mine { uid, .. }) if uid == claim.uid);
                let was_out = secret_is_out || claim.named || claim.bound;
                let handed_over = |record: &Record| record.handed_over || record.says_bound || was_out;
                seen.recorded =
                    mine.map(|record| teardown::undo(&real_record(setup, claim, &record), handed_over(&record)));
            }
        }
        Some(Self { claim, record, seen, secret_gone: false, verb: None })
    }
}

/// Takes the next step of a removal.
pub(super) fn unmake(mut removal: Removal, world: &mut World, memory: &mut Memory, blind: bool) -> Option<Removal> {
    let claim = removal.claim;
    if let Some(mut verb) = removal.verb.take() {
        match verb.advance(world, blind) {
            Progress::Failed => return None,
            Progress::Done => {
                removal.seen.store = StoreProgress::Fully;
                let bound = removal.record.is_some_and(|record| record.handed_over || record.says_bound);
                let quiet = if !memory.executed && memory.settled { Duration::MAX } else { Duration::ZERO };
                removal.seen.settled = backoff::settles_in(bound, verb.missing, quiet).is_none();
            }
            _ => removal.verb = Some(verb),
        }
        return Some(removal);
    }
    match teardown::next_teardown_step(&removal.seen) {
        TeardownStep::Undo(undo) => {
            let kind = match undo {
                Undo::Revoke => {
                    world.kept = true;
                    Kind::Revoke
                }
                Undo::Delete => Kind::Delete,
            };
            let present = match world.secret {
                Some(Secret::Mine { uid, key, .. }) if uid == claim.uid => Some(key),
                _ => None,
            };
            removal.verb = Some(Verb::new(kind, removal.record?, present.into_iter().collect()));
        }
        // Another attempt looks again when IAM has had its time.
        TeardownStep::Yield | TeardownStep::Settle => return None,
        TeardownStep::DeleteOutputs if !removal.secret_gone => {
            let inherits = removal.record.is_some_and(|record| record.word || record.names != record.uid);
            if matches!(world.secret, Some(Secret::Mine { uid, .. }) if uid == claim.uid)
                || inherits && matches!(world.secret, Some(Secret::Restored { .. }))
            {
                world.secret = None;
            }
            removal.secret_gone = true;
        }
        TeardownStep::DeleteOutputs => {
            let inherits = removal.record.is_some_and(|record| record.word || record.names != record.uid);
            if world.config_map == Some(Whose::Claim(claim.uid)) || inherits && world.config_map == Some(Whose::Nobody)
            {
                world.config_map = None;
            }
            removal.seen.outputs_gone = true;
        }
        TeardownStep::DeleteRecord => {
            if world.record.is_some_and(|record| record.uid == claim.uid) {
                world.record = None;
            }
            removal.seen.recorded = None;
        }
        TeardownStep::Release => {
            memory.removed = Some(Removed::AllButFinalizer);
            if world.claim == Some(claim) {
                if let Some(left) = world.leftover(claim.uid) {
                    world.harm = Some(match left {
                        "a user" => "a claim was let go with its user left",
                        "a bucket" => "a claim was let go with its bucket left",
                        _ => "a claim was let go with something left in the cluster",
                    });
                }
                world.claim = None;
                memory.removed = Some(Removed::Everything);
            } else if world.claim.is_none_or(|now| now.uid != claim.uid) {
                memory.removed = Some(Removed::Everything);
            }
            return None;
        }
        TeardownStep::Replan | TeardownStep::Done => return None,
    }
    Some(removal)
}
