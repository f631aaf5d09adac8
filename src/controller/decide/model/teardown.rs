//! The steps of a removal, as effects on the world: what `flow/teardown.rs` does with clients.

use std::time::Duration;

use super::memory::{Memory, Removed};
use super::planner::{Setup, real_stored};
use super::store::{Kind, Outcome, Progress, Verb};
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
    /// Finds what to undo.
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
            retained: false,
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
            // A claim that was bound has no record: it is reconstructed from claim and class.
            None if mine.is_none() && (claim.named || claim.bound) => {
                world.claim.filter(|now| now.uid == claim.uid)?;
                let lost = Record { handed_over: true, ..Record::new(claim) };
                // It is unknown whether to retain the bucket.
                seen.recorded = Some(Undo::Revoke);
                record = Some(lost);
            }
            None => {
                seen.recorded = mine.map(|record| teardown::undo(&real_stored(setup, claim, &record)));
            }
        }
        Some(Self { claim, record, seen, secret_gone: false, verb: None })
    }
}

/// How long IAM may not show what was created.
const LAG: Duration = Duration::from_secs(120);

/// Takes the next step of a removal: one call. `None`: the attempt is over.
pub(super) fn advance(
    mut removal: Removal,
    world: &mut World,
    memory: &mut Memory,
    outcome: Outcome,
) -> Option<Removal> {
    if let Some(verb) = removal.verb.take() {
        removal.go_on(verb, world, memory, outcome)?;
        return Some(removal);
    }
    let uid = removal.claim.uid;
    match teardown::next_teardown_step(&removal.seen) {
        TeardownStep::Undo(undo) => removal.undo(undo, world)?,
        // A later attempt continues.
        TeardownStep::Yield | TeardownStep::Settle => return None,
        TeardownStep::DeleteOutputs => removal.delete_output(world),
        TeardownStep::Retain | TeardownStep::DeleteRecord => {
            world.record = world.record.filter(|record| record.uid != uid);
            removal.seen.recorded = None;
        }
        TeardownStep::Release => {
            removal.release(world, memory);
            return None;
        }
        TeardownStep::Replan | TeardownStep::Done => return None,
    }
    Some(removal)
}

impl Removal {
    /// Makes the next call of a verb.
    fn go_on(&mut self, mut verb: Verb, world: &mut World, memory: &Memory, outcome: Outcome) -> Option<()> {
        match verb.take(world, outcome) {
            Progress::Failed => return None,
            Progress::Done => {
                self.seen.store = StoreProgress::Fully;
                let quiet = if !memory.executed && memory.settled { Duration::MAX } else { Duration::ZERO };
                self.seen.settled = backoff::settles_in(verb.missing, quiet, LAG).is_none();
            }
            _ => self.verb = Some(verb),
        }
        Some(())
    }

    fn undo(&mut self, undo: Undo, world: &mut World) -> Option<()> {
        let kind = match undo {
            Undo::Revoke => {
                world.kept = true;
                Kind::Revoke
            }
            Undo::Delete | Undo::DeleteIfEmpty | Undo::DeleteAfter(_) => Kind::Delete,
        };
        let present = match world.secret {
            Some(Secret::Mine { uid, key, .. }) if uid == self.claim.uid => Some(key),
            _ => None,
        };
        self.verb = Some(Verb::new(kind, self.record?, present.into_iter().collect()));
        Some(())
    }

    /// The Secret, then the ConfigMap; each is the claim's or inherited.
    fn delete_output(&mut self, world: &mut World) {
        let inherits = self.record.is_some_and(|record| record.adopt_requested || record.names != record.uid);
        if !std::mem::replace(&mut self.secret_gone, true) {
            let is_mine = matches!(world.secret, Some(Secret::Mine { uid, .. }) if uid == self.claim.uid);
            if is_mine || inherits && matches!(world.secret, Some(Secret::Restored { .. })) {
                world.secret = None;
            }
            return;
        }
        let is_mine = world.config_map == Some(Whose::Claim(self.claim.uid));
        if is_mine || inherits && world.config_map == Some(Whose::Nobody) {
            world.config_map = None;
        }
        self.seen.outputs_gone = true;
    }

    fn release(&self, world: &mut World, memory: &mut Memory) {
        memory.removed = Some(Removed::AllButFinalizer);
        if world.claim == Some(self.claim) {
            if let Some(left) = world.leftover(self.claim.uid) {
                world.harm = Some(match left {
                    "a user" => "a claim was released with its user left",
                    "a bucket" => "a claim was released with its bucket left",
                    _ => "a claim was released with something left in the cluster",
                });
            }
            world.claim = None;
        }
        if world.claim.is_none_or(|now| now.uid != self.claim.uid) {
            memory.removed = Some(Removed::Everything);
        }
    }
}
