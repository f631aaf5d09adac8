//! One process of the operator in the model: the real decisions, and effects on the world instead of calls.

use super::memory::Memory;
use super::planner::Setup;
use super::provision;
use super::store::{Outcome, Verb};
use super::teardown::{self, Removal};
use super::work::{Start, Work};
use super::world::{Claim, Record, Uid, World};

use crate::decide::claim::LabelOwner;
use crate::decide::class::ClassOwner;
use crate::decide::ownership::{self, OwnershipFacts, RequiredAction};
use crate::decide::steps::{Keys, Upkeep};
use crate::decide::teardown::Purpose;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Operator {
    /// The claim in the cache.
    pub(super) cache: Option<Claim>,
    /// What the cache showed before: a new process may see it again.
    pub(super) earlier: Option<Claim>,
    pub(super) memory: Memory,
    pub(super) attempt: Option<Attempt>,
    /// What is removed for a record whose claim no longer exists, beside the attempt.
    pub(super) orphan: Option<Box<Removal>>,
}

/// One attempt, as in `provide.rs` and `teardown.rs`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Attempt {
    Provision(Box<Work>),
    Teardown(Box<Removal>),
}

impl Attempt {
    fn uid(&self) -> Uid {
        match self {
            Self::Provision(work) => work.claim.uid,
            Self::Teardown(removal) => removal.claim.uid,
        }
    }
}

impl Operator {
    pub(super) fn new(cache: Option<Claim>) -> Self {
        Self { cache, earlier: cache, memory: Memory::default(), attempt: None, orphan: None }
    }

    /// Starts an attempt for the claim in the cache, if one is due.
    pub(super) fn begin(&mut self, setup: &Setup, world: &World, upkeep: Upkeep) -> bool {
        let Some(claim) = self.cache else { return false };
        if self.memory.about != claim.uid {
            let Memory { settled, vanished, .. } = self.memory;
            self.memory = Memory { about: claim.uid, settled, vanished, ..Memory::default() };
        }
        let is_busy = self.orphan.as_ref().is_some_and(|removal| removal.claim.uid == claim.uid);
        if is_busy || claim.version < self.memory.written {
            return false;
        }
        let mine = world.record.filter(|record| record.uid == claim.uid);
        let facts = OwnershipFacts {
            class: ClassOwner::Ours,
            label: if claim.finalizer { LabelOwner::Ours } else { LabelOwner::None },
            recorded: mine.is_some(),
            finalizer: claim.finalizer,
            deleting: claim.deleting,
            bound: claim.bound,
        };
        self.attempt = match ownership::required_action(facts) {
            RequiredAction::Nothing | RequiredAction::ReportMissingClass => None,
            RequiredAction::Bucket => self.provide(setup, world, claim, upkeep),
            RequiredAction::Removal => self.undo(setup, world, claim, mine, Purpose::Release),
        };
        self.attempt.is_some()
    }

    /// The watch shows a claim from which somebody else has removed the finalizer.
    pub(super) fn sees_deletion(&mut self, world: &World) {
        let before = self.earlier.filter(|_| world.stripped);
        let gone = before.filter(|before| world.claim.is_none_or(|claim| claim.uid != before.uid));
        self.memory.vanished = gone.map(|claim| claim.uid).or(self.memory.vanished);
    }

    /// Starts to remove what is due for the record, if its claim no longer exists.
    pub(super) fn begin_orphan(&mut self, setup: &Setup, world: &World) -> bool {
        let gone = world.record.filter(|record| world.claim.is_none_or(|claim| claim.uid != record.uid));
        // What is one claim's is done by one at a time.
        let gone = gone.filter(|record| self.attempt.as_ref().is_none_or(|attempt| attempt.uid() != record.uid));
        self.orphan = gone.and_then(|record| {
            let vanished = self.memory.vanished == Some(record.uid);
            Removal::of_orphan(setup, world, record, vanished).map(Box::new)
        });
        self.orphan.is_some()
    }

    /// Takes the next step of that: one call.
    pub(super) fn step_orphan(&mut self, world: &mut World, outcome: Outcome) {
        let Some(removal) = self.orphan.take() else { return };
        let (mut changed, mut memory) = (world.clone(), self.memory.clone());
        let next = teardown::advance(*removal, &mut changed, &mut memory, outcome);
        match outcome {
            Outcome::Done | Outcome::Blind | Outcome::Ahead => {
                (*world, self.memory, self.orphan) = (changed, memory, next.map(Box::new));
            }
            Outcome::Lost => *world = changed,
            Outcome::Refused => {}
        }
    }

    fn provide(&self, setup: &Setup, world: &World, claim: Claim, upkeep: Upkeep) -> Option<Attempt> {
        match Work::begin(setup, world, &self.memory, claim, upkeep)? {
            Start::Work(work) => Some(Attempt::Provision(work)),
            Start::UndoFirst => self.undo(setup, world, claim, world.record, Purpose::Replan),
        }
    }

    fn undo(
        &self,
        setup: &Setup,
        world: &World,
        claim: Claim,
        mine: Option<Record>,
        purpose: Purpose,
    ) -> Option<Attempt> {
        let removal = Removal::begin(setup, world, &self.memory, claim, mine, purpose)?;
        Some(Attempt::Teardown(Box::new(removal)))
    }

    /// Takes the next step of the attempt: one call.
    pub(super) fn step(&mut self, setup: &Setup, world: &mut World, outcome: Outcome) {
        let Some(attempt) = self.attempt.take() else { return };
        let mut changed = world.clone();
        let mut memory = self.memory.clone();
        let next = match attempt {
            Attempt::Provision(work) => {
                let next = provision::advance(setup, *work, &mut changed, &mut memory, outcome);
                next.map(|work| Attempt::Provision(Box::new(work)))
            }
            Attempt::Teardown(removal) => {
                let next = teardown::advance(*removal, &mut changed, &mut memory, outcome);
                next.map(|removal| Attempt::Teardown(Box::new(removal)))
            }
        };
        match outcome {
            Outcome::Done | Outcome::Blind | Outcome::Ahead => {
                (*world, self.memory, self.attempt) = (changed, memory, next);
            }
            // The attempt ends with an error; the memory keeps what was noted before the call.
            Outcome::Lost => {
                *world = changed;
                self.memory.executed |= memory.executed;
            }
            Outcome::Refused => self.memory.executed |= memory.executed,
        }
    }

    /// Whether the next call is a read of IAM, or a try of keys, that may miss what was just created.
    pub(super) fn may_be_blind(&self) -> bool {
        match &self.attempt {
            Some(Attempt::Provision(work)) => match &work.verb {
                Some(verb) => verb.may_be_blind(),
                None => {
                    matches!(work.keys, Keys::InSecret { proven: false, .. } | Keys::Pending { proven: false, .. })
                }
            },
            Some(Attempt::Teardown(removal)) => removal.verb.as_ref().is_some_and(Verb::may_be_blind),
            None => false,
        }
    }

    /// Whether another call may be made before the next one.
    pub(super) fn may_go_ahead(&self) -> bool {
        match &self.attempt {
            Some(Attempt::Provision(work)) => work.verb.as_ref().is_some_and(Verb::may_go_ahead),
            Some(Attempt::Teardown(removal)) => removal.verb.as_ref().is_some_and(Verb::may_go_ahead),
            None => false,
        }
    }

    pub(super) fn is_overtaken(&mut self) {
        if let Some(Attempt::Provision(work)) = &mut self.attempt {
            work.overtaken = true;
        }
    }
}
