//! The state of an attempt in the model, as in `reconcile/provide/attempt.rs`.

use super::memory::Memory;
use super::planner::{Setup, real_record_state};
use super::store::Verb;
use super::world::{BucketName, Claim, Key, Record, Review, Secret, Whose, World};

use crate::decide::plan::RecordState;
use crate::decide::steps::{self, Keys, KeysFound, Progress as Steps, ProvisionState, Upkeep};
use crate::decide::upkeep;
use crate::store::Mode;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) claim: Claim,
    pub(super) record: Option<Record>,
    /// The record of a previous claim, which this one adopts.
    pub(super) previous: Option<Record>,
    /// The record was lost, and the store has what it recorded.
    pub(super) recovers: bool,
    pub(super) is_new: bool,
    pub(super) secret: Option<Secret>,
    pub(super) keys: Keys<Key>,
    pub(super) steps: Steps,
    pub(super) upkeep: Upkeep,
    pub(super) doubted: bool,
    /// An earlier attempt may have created something.
    pub(super) continues: bool,
    /// Keys were issued in this attempt.
    pub(super) issued: bool,
    pub(super) verb: Option<Verb>,
    /// The next step deletes the record, because the store has created nothing.
    pub(super) withdraws: bool,
    /// The next step removes the notes on unused keys, because they are deleted.
    pub(super) forgets: bool,
    /// The next step notes that the store has applied a change of the access.
    pub(super) confirms: bool,
    /// A user has changed something that the attempt had read.
    pub(super) overtaken: bool,
}

/// How an attempt starts.
pub(super) enum Start {
    Work(Box<Work>),
    /// What an outdated plan created must be removed first.
    UndoFirst,
}

impl Work {
    /// Reads everything once.
    pub(super) fn begin(setup: &Setup, world: &World, memory: &Memory, claim: Claim, upkeep: Upkeep) -> Option<Start> {
        let mut work = Self {
            claim,
            record: None,
            previous: None,
            recovers: false,
            is_new: false,
            secret: world.secret,
            keys: Keys::None,
            steps: Steps::default(),
            upkeep: Upkeep::Nothing,
            doubted: false,
            continues: false,
            issued: false,
            verb: None,
            withdraws: false,
            forgets: false,
            confirms: false,
            overtaken: false,
        };
        match real_record_state(setup, claim, world.record)? {
            RecordState::Planned { .. } => {}
            RecordState::Stored { .. } => {
                work.record = world.record;
                work.continue_from_outputs(memory, upkeep);
            }
            RecordState::Outdated(_) => return Some(Start::UndoFirst),
            RecordState::Predecessor { .. } => work.previous = world.record,
            // The store is asked whether it has what the lost record recorded.
            RecordState::Lost { .. } => {
                let bucket = BucketName::of(claim.asks, claim.uid);
                let has_bucket = world.bucket(bucket) == Some(Whose::Claim(claim.uid));
                let has_user = world.users[usize::from(claim.uid)].as_ref().is_some_and(|user| !user.keys.is_empty());
                let proven = if setup.mode == Mode::Created { has_bucket } else { has_user };
                if !proven {
                    return None;
                }
                work.recovers = true;
            }
            RecordState::Damaged { .. } => unreachable!("nothing is damaged here"),
        }
        // Foreign outputs are found before anything is written. Restored ones are inherited with a record.
        let previous_owner = work.previous.is_some() || work.record.is_some_and(|record| record.names != record.uid);
        match world.secret {
            Some(Secret::Foreign) => return None,
            Some(Secret::Restored { .. }) if !previous_owner => return None,
            // A Secret of the previous claim: the garbage collector will delete it.
            Some(Secret::Mine { uid, .. }) if uid != claim.uid => return None,
            _ => {}
        }
        match world.config_map {
            Some(Whose::Foreign) => return None,
            Some(Whose::Nobody) if !previous_owner => return None,
            _ => {}
        }
        Some(Start::Work(Box::new(work)))
    }

    /// Derives from record and outputs how far an earlier attempt came.
    pub(super) fn continue_from_outputs(&mut self, memory: &Memory, upkeep: Upkeep) {
        let (claim, Some(record)) = (self.claim, self.record) else { return };
        self.continues = true;
        let inherits = record.adopt_requested || record.names != record.uid;
        let key = match self.secret {
            Some(Secret::Mine { uid, key, .. }) if uid == claim.uid => Some(key),
            Some(Secret::Restored { key }) if inherits => Some(key),
            _ => None,
        };
        let bound = record.credentials_published || record.status_is_bound;
        self.keys = steps::keys_so_far(KeysFound {
            in_secret: key,
            up_to_date: !matches!(self.secret, Some(Secret::Restored { .. })),
            outdated: false,
            pending_key: memory.pending_key,
            bound,
            ready: claim.ready,
        });
        let (asked, retiring, review) = match self.secret {
            Some(Secret::Mine { answers, retiring, review, .. }) => {
                (answers < claim.rotation, retiring.is_some(), review)
            }
            _ => (false, false, Review::No),
        };
        let facts = upkeep::UpkeepFacts {
            bound,
            by_us: true,
            adopting: record.adopt_requested,
            ready: claim.ready,
            waits_for_keys: memory.refused > 0,
            contradictory: false,
            doubtful: matches!(memory.refused, 2 | 4),
        };
        let due = upkeep::due_now(facts, || match upkeep {
            _ if record.changes => Upkeep::Check,
            Upkeep::Rotate if asked && !retiring && review == Review::No => Upkeep::Rotate,
            Upkeep::Retire if retiring || review == Review::Due => Upkeep::Retire,
            Upkeep::Check => Upkeep::Check,
            _ => Upkeep::Nothing,
        });
        self.upkeep = steps::upkeep_left(due, &self.keys);
    }

    /// Writes the claim's status, if nobody else has changed the claim.
    pub(super) fn update_status(
        &self,
        world: &mut World,
        memory: &mut Memory,
        change: impl FnOnce(&mut Claim),
    ) -> Option<()> {
        let known = self.claim.version.max(memory.written);
        world.claim.filter(|claim| claim.uid == self.claim.uid && claim.version == known)?;
        world.change_claim(change);
        memory.written = world.claim?.version;
        Some(())
    }

    /// The record, or the one that will be written.
    pub(super) fn record_so_far(&self) -> Record {
        self.record.unwrap_or(Record { credentials_published: self.recovers, ..Record::new(self.claim) })
    }

    /// The key in the claim's Secret.
    pub(super) fn present(&self) -> Option<Key> {
        match self.secret {
            Some(Secret::Mine { key, .. } | Secret::Restored { key }) => Some(key),
            _ => None,
        }
    }

    /// The input for the next decision.
    pub(super) fn state(&self, mode: Mode) -> ProvisionState {
        let record = self.record_so_far();
        let is_bound = self.record.is_some_and(|record| record.credentials_published || record.status_is_bound);
        ProvisionState {
            edited: is_bound && record.limited != self.claim.limited,
            finalizer_cached: self.claim.finalizer,
            recorded: self.record.is_some(),
            credentials_published: is_bound,
            record_complete: record.credentials_published,
            record_status_is_bound: record.status_is_bound,
            adopting: self.record.map_or(self.previous.is_some(), |record| record.adopt_requested),
            moving: false,
            mode,
            keys: self.keys.location(),
            progress: self.steps,
            upkeep: self.upkeep,
        }
    }
}
