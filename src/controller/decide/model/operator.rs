//! The operator in the model: the real planner, and effects on the model's world in place of calls.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::DeserializeGuard;

use super::store::{Kind, Progress, Verb};
use super::world::{Asks, BucketName, Claim, Key, Record, Review, Secret, Uid, Whose, World};
use crate::api::{ObjectBucketClaim, ObjectBucketClaimSpec, wire};
use crate::controller::decide::backoff;
use crate::controller::decide::claim::{Claim as RealClaim, LabelOwner};
use crate::controller::decide::class::{Class, ClassLookup, ClassOwner};
use crate::controller::decide::gate::{self, Due, Facts};
use crate::controller::decide::lookup::Found;
use crate::controller::decide::orphan::Action;
use crate::controller::decide::plan::{self, Intent, Surroundings};
use crate::controller::decide::record::{Author, Stored};
use crate::controller::decide::steps::{
    self, Keys, KeysFound, Progress as Steps, ProvisionState, ProvisionStep as Step, Recorded, Upkeep,
};
use crate::controller::decide::teardown::{self, Purpose, StoreProgress, TeardownState, TeardownStep, Undo};
use crate::controller::decide::upkeep;
use crate::controller::error::RecordProblem;
use crate::provisioner::{
    AppCredentials, ClaimId, Endpoint, Failure, FailureClass, Mode, OwnerSource, Plan, Probe, Provisioner,
    ReclaimPolicy, Removal as StoreRemoval, Request, Rotation, WantedBucket,
};

/// How a call goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    Done,
    /// It is done, and a read of IAM misses what was just made.
    Blind,
    /// It is done, and its answer is lost.
    Lost,
    /// It is not done.
    Refused,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Operator {
    /// The claim as the watch showed it last.
    pub(super) cache: Option<Claim>,
    /// What it showed before: a new process may be shown that again.
    pub(super) earlier: Option<Claim>,
    pub(super) memory: Memory,
    pub(super) attempt: Option<Attempt>,
}

/// What a process remembers, and a crash forgets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    about: Uid,
    /// Version of the claim after our last write of it.
    written: u8,
    /// The store was asked to make something, and that attempt has not succeeded.
    executed: bool,
    /// The process is older than the time that IAM's reads lag.
    pub(super) settled: bool,
    removed: Option<Removed>,
    successor: Option<Key>,
    /// How often keys were refused in a row: 2 and 4 stand for those numbers of `backoff::are_outdated`.
    refused: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Removed {
    AllButFinalizer,
    Everything,
}

impl Memory {
    pub(super) fn time_passes(&mut self) {
        self.settled = true;
        self.executed = false;
    }
}

/// One attempt, as in `provide.rs` and `teardown.rs`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Attempt {
    Provision(Box<Work>),
    TeardownState(Box<Removal>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Work {
    claim: Claim,
    record: Option<Record>,
    /// The record of a former claim, which this one is to take over.
    former: Option<Record>,
    /// The record was lost, and the store has what it said.
    recovers: bool,
    is_new: bool,
    secret: Option<Secret>,
    keys: Keys<Key>,
    steps: Steps,
    upkeep: Upkeep,
    doubted: bool,
    /// An earlier attempt may have made something.
    continues: bool,
    /// Keys were issued in this attempt.
    issued: bool,
    verb: Option<Verb>,
    /// The record is withdrawn: the store did nothing on the first call.
    withdraws: bool,
    /// Keys that are not to be used are gone; the notes on them are to go, too.
    forgets: bool,
    /// A user changed something after the look that the attempt began with.
    pub(super) overtaken: bool,
}

impl Work {
    /// What follows from the record and the outputs that were found.
    fn take_up(&mut self, world: &World, memory: &Memory, upkeep: Upkeep) {
        let (claim, Some(record)) = (self.claim, self.record) else { return };
        self.continues = true;
        let inherits = record.word || record.names != record.uid;
        let key = match self.secret {
            Some(Secret::Mine { uid, key, .. }) if uid == claim.uid => Some(key),
            Some(Secret::Restored { key }) if inherits => Some(key),
            _ => None,
        };
        let bound = record.handed_over || record.says_bound;
        self.keys = steps::keys_so_far(KeysFound {
            in_secret: key,
            up_to_date: !matches!(self.secret, Some(Secret::Restored { .. })),
            outdated: false,
            refused: matches!(memory.refused, 2 | 4),
            new: key.is_some_and(|key| world.hides(record.names, key)),
            successor: memory.successor,
            bound,
            ready: claim.ready,
        });
        let (asked, retiring, review) = match self.secret {
            Some(Secret::Mine { answers, retiring, review, .. }) => {
                (answers < claim.rotation, retiring.is_some(), review)
            }
            _ => (false, false, Review::No),
        };
        let facts = upkeep::Facts {
            bound,
            by_us: true,
            adopting: record.word,
            ready: claim.ready,
            waits_for_keys: memory.refused > 0,
        };
        let due = upkeep::due_now(facts, || match upkeep {
            Upkeep::Rotate if asked && !retiring && review == Review::No => Upkeep::Rotate,
            Upkeep::Retire if retiring || review == Review::Due => Upkeep::Retire,
            Upkeep::Check => Upkeep::Check,
            _ => Upkeep::Nothing,
        });
        self.upkeep = steps::upkeep_left(due, &self.keys);
    }

    /// Writes the claim's status, if the claim is as it was read or as the operator left it.
    fn tell(&self, world: &mut World, memory: &mut Memory, change: impl FnOnce(&mut Claim)) -> Option<()> {
        let known = self.claim.version.max(memory.written);
        world.claim.filter(|claim| claim.uid == self.claim.uid && claim.version == known)?;
        world.change_claim(change);
        memory.written = world.claim?.version;
        Some(())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Removal {
    claim: Claim,
    record: Option<Record>,
    seen: TeardownState,
    secret_gone: bool,
    verb: Option<Verb>,
}

/// What is the same in all states of one model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) mode: Mode,
    pub(super) reclaim_policy: ReclaimPolicy,
}

impl Operator {
    pub(super) fn new(cache: Option<Claim>) -> Self {
        Self { cache, earlier: cache, memory: Memory::default(), attempt: None }
    }

    /// Begins an attempt at the claim that the cache shows, if one is due.
    pub(super) fn begin(&mut self, setup: &Setup, world: &World, upkeep: Upkeep) -> bool {
        let Some(claim) = self.cache else { return false };
        if self.memory.about != claim.uid {
            self.memory = Memory { about: claim.uid, settled: self.memory.settled, ..Memory::default() };
        }
        if claim.version < self.memory.written {
            return false;
        }
        let mine = world.record.filter(|record| record.uid == claim.uid);
        let facts = Facts {
            class: ClassOwner::Ours,
            label: if claim.finalizer { LabelOwner::Ours } else { LabelOwner::None },
            recorded: mine.is_some(),
            finalizer: claim.finalizer,
            deleting: claim.deleting,
            bound: claim.bound,
        };
        self.attempt = match gate::due(facts) {
            Due::Nothing | Due::ReportMissingClass => None,
            Due::Bucket => self.look(setup, world, claim, upkeep),
            Due::Removal => self.look_back(setup, world, claim, mine, Purpose::Release),
        };
        self.attempt.is_some()
    }

    fn look(&self, setup: &Setup, world: &World, claim: Claim, upkeep: Upkeep) -> Option<Attempt> {
        let mut work = Work {
            claim,
            record: None,
            former: None,
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
            overtaken: false,
        };
        match real_intent(setup, claim, world.record)? {
            Intent::Record { .. } => {}
            Intent::Proceed(_) => {
                work.record = world.record;
                work.take_up(world, &self.memory, upkeep);
            }
            Intent::UndoFirst(_) => return self.look_back(setup, world, claim, world.record, Purpose::Replan),
            Intent::Adopt(_) => work.former = world.record,
            // The store is asked whether it has what the lost record said.
            Intent::Recover { .. } => {
                let bucket = BucketName::of(claim.asks, claim.uid);
                let has_bucket = world.bucket(bucket) == Some(Whose::Claim(claim.uid));
                let has_user = world.users[usize::from(claim.uid)].as_ref().is_some_and(|user| !user.keys.is_empty());
                let proven = if setup.mode == Mode::Created { has_bucket } else { has_user };
                if !proven {
                    return None;
                }
                work.recovers = true;
            }
            Intent::Restore { .. } => unreachable!("nothing is damaged here"),
        }
        // Outputs of others are found before anything is written. What was restored is inherited with a record.
        let heir = work.former.is_some() || work.record.is_some_and(|record| record.names != record.uid);
        match world.secret {
            Some(Secret::Foreign) => return None,
            Some(Secret::Restored { .. }) if !heir => return None,
            // A Secret of the claim before: the garbage collector comes for it.
            Some(Secret::Mine { uid, .. }) if uid != claim.uid => return None,
            _ => {}
        }
        match world.config_map {
            Some(Whose::Foreign) => return None,
            Some(Whose::Nobody) if !heir => return None,
            _ => {}
        }
        Some(Attempt::Provision(Box::new(work)))
    }

    fn look_back(
        &self,
        setup: &Setup,
        world: &World,
        claim: Claim,
        mine: Option<Record>,
        purpose: Purpose,
    ) -> Option<Attempt> {
        let mut seen = TeardownState {
            recorded: None,
            store: StoreProgress::NotAsked,
            settled: false,
            outputs_gone: false,
            purpose,
        };
        let mut record = mine;
        match self.memory.removed.filter(|_| purpose == Purpose::Release) {
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
        Some(Attempt::TeardownState(Box::new(Removal { claim, record, seen, secret_gone: false, verb: None })))
    }

    /// Takes the next step of the attempt: one call.
    pub(super) fn step(&mut self, setup: &Setup, world: &mut World, outcome: Outcome) {
        let Some(attempt) = self.attempt.take() else { return };
        let mut changed = world.clone();
        let mut memory = self.memory.clone();
        let next = match attempt {
            Attempt::Provision(work) => make(setup, *work, &mut changed, &mut memory, outcome == Outcome::Blind),
            Attempt::TeardownState(removal) => unmake(*removal, &mut changed, &mut memory, outcome == Outcome::Blind),
        };
        match outcome {
            Outcome::Done | Outcome::Blind => {
                (*world, self.memory, self.attempt) = (changed, memory, next);
            }
            // The attempt ends with an error; what is noted before a call stays noted.
            Outcome::Lost => {
                *world = changed;
                self.memory.executed |= memory.executed;
            }
            Outcome::Refused => self.memory.executed |= memory.executed,
        }
    }

    /// Whether the next call is a read of IAM, or a try of keys, that may miss what was just made.
    pub(super) fn may_be_blind(&self) -> bool {
        match &self.attempt {
            Some(Attempt::Provision(work)) => match &work.verb {
                Some(verb) => verb.may_be_blind(),
                None => {
                    matches!(work.keys, Keys::InSecret { proven: false, .. } | Keys::Successor { proven: false, .. })
                }
            },
            Some(Attempt::TeardownState(removal)) => removal.verb.as_ref().is_some_and(Verb::may_be_blind),
            None => false,
        }
    }

    pub(super) fn is_overtaken(&mut self) {
        if let Some(Attempt::Provision(work)) = &mut self.attempt {
            work.overtaken = true;
        }
    }
}

fn make(setup: &Setup, mut work: Work, world: &mut World, memory: &mut Memory, blind: bool) -> Option<Attempt> {
    if let Some(verb) = work.verb.take() {
        return go_on(work, verb, world, memory, blind);
    }
    let uid = work.claim.uid;
    if work.withdraws {
        world.record = world.record.filter(|record| record.uid != uid);
        return None;
    }
    if work.forgets {
        if let Some(Secret::Mine { uid: owner, retiring, review, .. }) = &mut world.secret
            && *owner == uid
        {
            (*retiring, *review) = (None, Review::No);
        }
        work.forgets = false;
        return Some(Attempt::Provision(Box::new(work)));
    }
    let new = Record { handed_over: work.recovers, ..Record::new(work.claim) };
    let record = work.record.unwrap_or(new);
    let (bucket, user) = (record.bucket(), record.names);
    let verb = |kind, kept| Some(Verb::new(kind, record, kept));
    let state = ProvisionState {
        finalizer_cached: work.claim.finalizer,
        recorded: match work.record {
            None if work.former.is_some() => Recorded::Former,
            None => Recorded::No,
            Some(record) if record.handed_over || record.says_bound => Recorded::HandedOver,
            Some(_) => Recorded::Begun,
        },
        record_complete: record.handed_over,
        record_says_bound: record.says_bound,
        adopting: record.word,
        mode: setup.mode,
        keys: work.keys.location(),
        progress: work.steps,
        upkeep: work.upkeep,
    };
    let present = match work.secret {
        Some(Secret::Mine { key, .. } | Secret::Restored { key }) => Some(key),
        _ => None,
    };
    let step = steps::next_provision_step(&state);
    match step {
        Step::AddFinalizer => {
            if world.claim != Some(work.claim) {
                return None;
            }
            world.change_claim(|claim| claim.finalizer = true);
            work.claim = world.claim?;
            memory.written = work.claim.version;
        }
        Step::Record => {
            if world.record.is_some() {
                return None;
            }
            world.record = Some(new);
            work.record = Some(new);
            work.is_new = !work.recovers;
            if work.recovers {
                work.take_up(world, memory, Upkeep::Nothing);
            }
        }
        Step::Adopt => {
            // It rests on all that was read.
            if world.record != work.former {
                return None;
            }
            let former = work.former.take()?;
            world.record = Some(Record { uid, handed_over: true, ..former });
            work.record = world.record;
            work.take_up(world, memory, Upkeep::Nothing);
        }
        Step::Execute(which) => {
            memory.executed = true;
            let kind = match which {
                steps::Verb::Provision => Kind::Provision,
                steps::Verb::Grant => Kind::Grant,
            };
            return go_on(work, Verb::new(kind, record, Vec::new()), world, memory, blind);
        }
        Step::WriteSecret => {
            let (key, answers, retiring) = match work.keys {
                Keys::Issued(key) => (key, work.claim.rotation, None),
                Keys::Successor { keys, .. } => (keys, work.claim.rotation, present),
                // What was restored becomes the claim's.
                Keys::InSecret { keys, .. } => (keys, work.claim.rotation, None),
                Keys::None => return None,
            };
            // Created where nothing stood, patched by uid where the claim's own stood.
            let as_read = match (work.secret, world.secret) {
                (None, None) => true,
                (Some(Secret::Mine { .. }), Some(Secret::Mine { uid: now, .. })) => now == uid,
                (Some(Secret::Restored { .. }), now) => now == work.secret,
                _ => false,
            };
            if !as_read {
                return None;
            }
            if matches!(work.keys, Keys::Successor { .. }) {
                memory.successor = None;
            } else if matches!(work.keys, Keys::Issued(_)) {
                memory.refused = match memory.refused {
                    2 | 4 => 3,
                    refused => refused,
                };
            }
            let issued = matches!(work.keys, Keys::Issued(_));
            let review = if work.continues && issued { Review::Later } else { Review::No };
            world.secret = Some(Secret::Mine { uid, key, answers, retiring, review });
            work.secret = world.secret;
            work.keys = work.keys.written();
        }
        Step::Probe => {
            let (Keys::Successor { keys: key, proven } | Keys::InSecret { keys: key, proven, .. }) = &mut work.keys
            else {
                return None;
            };
            // What worked once is known everywhere.
            let blind = blind && !world.worked.contains(key);
            if world.is_live(user, *key) && world.bucket(bucket).is_some() && !blind {
                world.worked.insert(*key);
                *proven = true;
                memory.refused = 0;
            } else if std::mem::take(&mut work.doubted) {
                if world.hides(user, *key) {
                    world.harm = Some("keys are replaced that IAM has not shown yet");
                }
                work.keys = Keys::None;
            } else {
                memory.refused = (memory.refused + 1).min(4);
                // So many tries take longer than IAM's reads lag.
                if matches!(memory.refused, 2 | 4) {
                    world.time_passes();
                }
                if !matches!(work.keys, Keys::Successor { .. }) {
                    work.tell(world, memory, |claim| claim.ready = false)?;
                } else if memory.refused > 2 {
                    (memory.successor, memory.refused) = (None, 0);
                }
                return None;
            }
        }
        Step::MarkHandedOver => {
            // Guarded by the record's uid.
            let same = world.record.filter(|record| record.uid == uid)?;
            world.record = Some(Record { handed_over: true, ..same });
            work.record = world.record;
        }
        Step::WriteConfigMap => {
            let inherits = record.names != uid;
            match world.config_map {
                None => {}
                Some(Whose::Claim(owner)) if owner == uid => {}
                Some(Whose::Nobody) if inherits => {}
                Some(_) => return None,
            }
            world.config_map = Some(Whose::Claim(uid));
        }
        Step::MarkBound => {
            // Guarded by the record's uid.
            let same = world.record.filter(|record| record.uid == uid)?;
            world.record = Some(Record { says_bound: true, ..same });
            work.record = world.record;
        }
        Step::FinishAdoption => {
            let same = world.record.filter(|record| record.uid == uid)?;
            world.record = Some(Record { word: false, ..same });
            work.record = world.record;
        }
        Step::LinkRecord if work.claim.named => {}
        Step::LinkRecord => {
            world.claim.filter(|claim| claim.uid == uid)?;
            world.change_claim(|claim| claim.named = true);
            work.claim = world.claim?;
            memory.written = work.claim.version;
        }
        Step::UpdateStatus => {
            let said = work.claim.bound && work.claim.ready;
            if !said && !work.overtaken && !usable(world, uid) {
                world.harm = Some("a claim was told to be bound that cannot be used");
            }
            if !said {
                work.tell(world, memory, |claim| (claim.bound, claim.ready) = (true, true))?;
            }
        }
        Step::Rotate => work.verb = verb(Kind::Rotate, present.into_iter().collect()),
        Step::Retire => work.verb = verb(Kind::Check, present.into_iter().collect()),
        Step::Check => {
            let retiring = match work.secret {
                Some(Secret::Mine { retiring, .. }) => retiring,
                _ => None,
            };
            work.verb = verb(Kind::Check, present.into_iter().chain(retiring).collect());
        }
        Step::Done => {
            memory.refused = 0;
            return None;
        }
    }
    work.steps.note(step);
    Some(Attempt::Provision(Box::new(work)))
}

/// The next call of a verb that makes, rotates or checks.
fn go_on(mut work: Work, mut verb: Verb, world: &mut World, memory: &mut Memory, blind: bool) -> Option<Attempt> {
    let progress = verb.advance(world, blind);
    if matches!(progress, Progress::Issued(_)) && std::mem::replace(&mut work.issued, true) {
        world.harm = Some("keys were issued twice in one attempt");
    }
    match progress {
        Progress::GoesOn => work.verb = Some(verb),
        Progress::Issued(key) if verb.kind == Kind::Rotate => {
            memory.successor = Some(key);
            memory.refused = 0;
            work.upkeep = Upkeep::Nothing;
            work.keys = Keys::Successor { keys: key, proven: false };
        }
        Progress::Issued(key) => {
            memory.successor = None;
            work.keys = Keys::Issued(key);
        }
        Progress::KeysLost => {
            work.upkeep = Upkeep::Nothing;
            if let Keys::InSecret { keys, proven, .. } = &mut work.keys {
                *proven = false;
                work.doubted = !world.hides(work.record.map_or(work.claim.uid, |record| record.names), *keys);
            }
        }
        Progress::Done => {
            work.forgets = work.upkeep == Upkeep::Retire;
            work.upkeep = Upkeep::Nothing;
        }
        Progress::Failed if work.is_new && !verb.touched => work.withdraws = true,
        Progress::Failed => return None,
    }
    Some(Attempt::Provision(Box::new(work)))
}

fn unmake(mut removal: Removal, world: &mut World, memory: &mut Memory, blind: bool) -> Option<Attempt> {
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
        return Some(Attempt::TeardownState(Box::new(removal)));
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
    Some(Attempt::TeardownState(Box::new(removal)))
}

/// Whether an app with the claim's outputs can work.
pub(super) fn usable(world: &World, uid: Uid) -> bool {
    let key = match world.secret {
        Some(Secret::Mine { uid: owner, key, .. }) if owner == uid => key,
        _ => return false,
    };
    world.record.filter(|record| record.uid == uid).is_some_and(|record| {
        world.is_live(record.names, key)
            && world.config_map == Some(Whose::Claim(uid))
            && world.bucket(record.bucket()).is_some()
    })
}

/// What the real planner says of a claim and the record that is found.
fn real_intent(setup: &Setup, claim: Claim, record: Option<Record>) -> Option<Intent> {
    let stored = |record: Record| {
        Box::new(Stored {
            name: NAME.into(),
            uid: None,
            resource_version: None,
            author: Author::Us,
            record: real_record(setup, claim, &record),
            says_bound: record.says_bound,
            action: record.word.then_some(Action::Adopt),
        })
    };
    let found = match record {
        Some(record) if record.uid == claim.uid => Found::Mine(stored(record)),
        Some(record) if record.word => Found::ToAdopt(stored(record)),
        Some(_) if claim.named => Found::Restored(RecordProblem::Former { record: NAME.into() }),
        None if claim.named => Found::Restored(RecordProblem::Missing { record: NAME.into() }),
        Some(_) | None => Found::None { free_name: NAME.into() },
    };
    let class = real_class(setup, claim.asks);
    let surroundings =
        Surroundings { provisioner: &Planner, provisioner_name: "model", cluster: CLUSTER, class: &class };
    plan::intent(&surroundings, &real_claim(claim, claim.asks), found).ok()
}

/// The record's default name, as the claim's namespace and name make it.
const NAME: &str = "obc--claim";
const CLUSTER: &str = "cluster";

fn real_record(setup: &Setup, claim: Claim, record: &Record) -> crate::provisioner::Record {
    let named_for = Claim { uid: record.names, ..claim };
    let planned = match real_class(setup, record.asks) {
        ClassLookup::Found(class) => plan::record(&Planner, &real_claim(named_for, record.asks), &class, CLUSTER, true)
            .expect("it can be planned"),
        _ => unreachable!("the class is there"),
    };
    let claim = ClaimId { uid: record.uid.to_string(), ..planned.claim.clone() };
    crate::provisioner::Record { claim, handed_over: record.handed_over, ..planned }
}

fn real_class(setup: &Setup, asks: Asks) -> ClassLookup {
    let brownfield = (asks == Asks::Class).then(|| ("bucketName".to_owned(), "chosen".to_owned()));
    assert_eq!(brownfield.is_some(), setup.mode == Mode::Granted);
    ClassLookup::Found(Class {
        name: "class".into(),
        provisioner: "model".into(),
        parameters: brownfield.into_iter().collect(),
        reclaim_policy: setup.reclaim_policy,
    })
}

fn real_claim(claim: Claim, asks: Asks) -> RealClaim {
    let spec = ObjectBucketClaimSpec {
        storage_class_name: "class".into(),
        object_bucket_name: claim.named.then(|| NAME.into()),
        bucket_name: (asks == Asks::Name).then(|| "chosen".into()),
        generate_bucket_name: match asks {
            Asks::Prefix => Some("first".into()),
            Asks::Edited => Some("second".into()),
            Asks::Name | Asks::Class => None,
        },
        ..Default::default()
    };
    let mut object = ObjectBucketClaim::new("claim", spec);
    object.metadata.uid = Some(claim.uid.to_string());
    object.metadata.finalizers = claim.finalizer.then(|| vec![wire::FINALIZER.to_owned()]);
    RealClaim::read(&DeserializeGuard(Ok(object)), "model")
}

/// Plans names; the verbs are in `store.rs`.
struct Planner;

#[derive(Debug, thiserror::Error)]
#[error("never")]
struct Never;

impl Failure for Never {
    fn reason(&self) -> &'static str {
        "Never"
    }

    fn class(&self) -> FailureClass {
        FailureClass::Terminal
    }
}

impl Provisioner for Planner {
    type Owner = ();
    type Error = Never;

    fn plan(&self, request: &Request<'_>) -> Result<Plan, Never> {
        let (bucket, mode) = match (&request.bucket, request.parameters.get("bucketName")) {
            (_, Some(name)) => (name.clone(), Mode::Granted),
            (WantedBucket::Named(name), None) => (name.clone(), Mode::Created),
            (WantedBucket::Generated { prefix }, None) => (format!("{prefix}-{}", request.claim.uid), Mode::Created),
            (WantedBucket::Unspecified, None) => return Err(Never),
        };
        Ok(Plan {
            bucket,
            mode,
            endpoint: Endpoint { host: "store".into(), port: 80, region: "here".into(), url: None },
            owner_secret: None,
            user: Some(format!("user-{}", request.claim.uid)),
            rotation: Rotation::default(),
            state: BTreeMap::new(),
        })
    }

    fn owner(&self, _: &crate::provisioner::Record, _: OwnerSource) -> Result<(), Never> {
        Ok(())
    }

    async fn provision(&self, _: &crate::provisioner::Record, (): &()) -> Result<AppCredentials, Never> {
        Err(Never)
    }

    async fn grant(&self, _: &crate::provisioner::Record, (): &()) -> Result<AppCredentials, Never> {
        Err(Never)
    }

    async fn probe(&self, _: &crate::provisioner::Record, _: &AppCredentials) -> Result<Probe, Never> {
        Err(Never)
    }

    async fn revoke(
        &self,
        _: &crate::provisioner::Record,
        (): &(),
        _: Option<&AppCredentials>,
    ) -> Result<StoreRemoval, Never> {
        Err(Never)
    }

    async fn delete(
        &self,
        _: &crate::provisioner::Record,
        (): &(),
        _: Option<&AppCredentials>,
    ) -> Result<StoreRemoval, Never> {
        Err(Never)
    }
}
