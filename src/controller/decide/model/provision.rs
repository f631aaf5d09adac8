//! The steps towards a bucket, as effects on the world: what `flow/provide.rs` does with clients.

use super::memory::Memory;
use super::planner::{Setup, real_intent};
use super::store::{Kind, Progress, Verb};
use super::world::{BucketName, Claim, Key, Record, Review, Secret, Uid, Whose, World};

use crate::controller::decide::plan::Intent;
use crate::controller::decide::steps::{
    self, Keys, KeysFound, Progress as Steps, ProvisionState, ProvisionStep as Step, Recorded, Upkeep,
};
use crate::controller::decide::upkeep;
use crate::provisioner::Mode;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Work {
    pub(super) claim: Claim,
    pub(super) record: Option<Record>,
    /// The record of a former claim, which this one is to take over.
    pub(super) former: Option<Record>,
    /// The record was lost, and the store has what it said.
    pub(super) recovers: bool,
    pub(super) is_new: bool,
    pub(super) secret: Option<Secret>,
    pub(super) keys: Keys<Key>,
    pub(super) steps: Steps,
    pub(super) upkeep: Upkeep,
    pub(super) doubted: bool,
    /// An earlier attempt may have made something.
    pub(super) continues: bool,
    /// Keys were issued in this attempt.
    pub(super) issued: bool,
    pub(super) verb: Option<Verb>,
    /// The record is withdrawn: the store did nothing on the first call.
    pub(super) withdraws: bool,
    /// Keys that are not to be used are gone; the notes on them are to go, too.
    pub(super) forgets: bool,
    /// A user changed something after the look that the attempt began with.
    pub(super) overtaken: bool,
}

/// How an attempt begins.
pub(super) enum Begun {
    Work(Box<Work>),
    /// What a former plan made is to be undone first.
    UndoFirst,
}

impl Work {
    /// Looks at everything once.
    pub(super) fn begin(setup: &Setup, world: &World, memory: &Memory, claim: Claim, upkeep: Upkeep) -> Option<Begun> {
        let mut work = Self {
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
                work.take_up(world, memory, upkeep);
            }
            Intent::UndoFirst(_) => return Some(Begun::UndoFirst),
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
        Some(Begun::Work(Box::new(work)))
    }

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

/// Takes the next step of an attempt at a bucket.
pub(super) fn make(setup: &Setup, mut work: Work, world: &mut World, memory: &mut Memory, blind: bool) -> Option<Work> {
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
        return Some(work);
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
    Some(work)
}

/// The next call of a verb that makes, rotates or checks.
fn go_on(mut work: Work, mut verb: Verb, world: &mut World, memory: &mut Memory, blind: bool) -> Option<Work> {
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
    Some(work)
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
