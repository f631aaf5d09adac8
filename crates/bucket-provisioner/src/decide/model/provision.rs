//! The steps towards a bucket, as effects on the world: what `reconcile/provide/mod.rs` does with clients.

use super::memory::Memory;
use super::planner::Setup;
use super::store::{Kind, Outcome, Progress, Verb};
use super::work::Work;
use super::world::{Record, Review, Secret, Uid, Whose, World};

use crate::decide::steps::{self, Keys, ProvisionStep as Step, Upkeep};

/// Takes the next step of an attempt, or the next call of a verb. `None`: the attempt is over.
pub(super) fn advance(
    setup: &Setup,
    mut work: Work,
    world: &mut World,
    memory: &mut Memory,
    outcome: Outcome,
) -> Option<Work> {
    if let Some(verb) = work.verb.take() {
        return go_on(work, verb, world, memory, outcome);
    }
    if work.withdraws {
        world.record = world.record.filter(|record| record.uid != work.claim.uid);
        return None;
    }
    if std::mem::take(&mut work.forgets) {
        if let Some(Secret::Mine { uid, retiring, review, .. }) = &mut world.secret
            && *uid == work.claim.uid
        {
            (*retiring, *review) = (None, Review::No);
        }
        return Some(work);
    }
    if std::mem::take(&mut work.confirms) {
        work.change_record(world, |record| record.changes = false)?;
        return Some(work);
    }
    let step = steps::next_provision_step(&work.state(setup.mode));
    if let Step::Execute(which) = step {
        memory.executed = true;
        let kind = match which {
            steps::Verb::Provision => Kind::Provision,
            steps::Verb::Grant => Kind::Grant,
        };
        let verb = Verb::new(kind, work.record_so_far(), Vec::new());
        if verb.may_go_ahead() {
            work.verb = Some(verb);
            return Some(work);
        }
        return go_on(work, verb, world, memory, outcome);
    }
    work.take(step, world, memory, outcome)?;
    work.steps.note(step);
    Some(work)
}

impl Work {
    /// Takes one step. `None`: the attempt is over.
    fn take(&mut self, step: Step, world: &mut World, memory: &mut Memory, outcome: Outcome) -> Option<()> {
        let present = self.present().into_iter();
        match step {
            Step::AddFinalizer => self.add_finalizer(world, memory)?,
            Step::Record => self.write_record(world, memory)?,
            Step::Adopt => self.take_record_over(world, memory)?,
            Step::RecordEdit => {
                let limited = self.claim.limited;
                self.change_record(world, |record| (record.limited, record.changes) = (limited, true))?;
                self.upkeep = steps::upkeep_left(Upkeep::Check, &self.keys);
            }
            Step::Execute(_) => unreachable!("it takes several calls"),
            Step::WriteSecret => self.write_secret(world, memory)?,
            Step::Probe => self.probe(world, memory, outcome)?,
            Step::MarkCredentialsPublished => {
                self.change_record(world, |record| record.credentials_published = true)?
            }
            Step::WriteConfigMap => self.write_config_map(world)?,
            Step::MarkBound => self.change_record(world, |record| record.status_is_bound = true)?,
            Step::LinkRecord => self.link_record(world, memory)?,
            Step::UpdateStatus => self.report_bound(world, memory)?,
            Step::FinishAdoption => self.change_record(world, |record| record.adopt_requested = false)?,
            Step::Rotate => {
                memory.executed = true;
                self.verb = Some(Verb::new(Kind::Rotate, self.record_so_far(), present.collect()));
            }
            Step::Retire => self.verb = Some(Verb::new(Kind::Check, self.record_so_far(), present.collect())),
            Step::Check => {
                let retiring = match self.secret {
                    Some(Secret::Mine { retiring, .. }) => retiring,
                    _ => None,
                };
                let kept = present.chain(retiring).collect();
                self.verb = Some(Verb::new(Kind::Check, self.record_so_far(), kept));
            }
            Step::RevokePrevious => unreachable!("no claim is moved here"),
            Step::Done => {
                memory.refused = 0;
                return None;
            }
        }
        Some(())
    }

    fn add_finalizer(&mut self, world: &mut World, memory: &mut Memory) -> Option<()> {
        world.claim.filter(|claim| *claim == self.claim)?;
        world.change_claim(|claim| claim.finalizer = true);
        self.claim = world.claim?;
        memory.written = self.claim.version;
        Some(())
    }

    fn write_record(&mut self, world: &mut World, memory: &Memory) -> Option<()> {
        if world.record.is_some() {
            return None;
        }
        world.record = Some(self.record_so_far());
        self.record = world.record;
        self.is_new = !self.recovers;
        if self.recovers {
            self.continue_from_outputs(memory, Upkeep::Nothing);
        }
        Some(())
    }

    /// Fails if the record was changed since it was read.
    fn take_record_over(&mut self, world: &mut World, memory: &Memory) -> Option<()> {
        if world.record != self.previous {
            return None;
        }
        let previous = self.previous.take()?;
        // As if an admin had requested it: any later attempt finishes the adoption.
        let adopt_requested = previous.adopt_requested || previous.release.is_some();
        world.record = Some(Record {
            uid: self.claim.uid,
            credentials_published: true,
            adopt_requested,
            release: None,
            ..previous
        });
        self.record = world.record;
        self.continue_from_outputs(memory, Upkeep::Nothing);
        Some(())
    }

    /// Guarded by the record's uid.
    fn change_record(&mut self, world: &mut World, change: impl FnOnce(&mut Record)) -> Option<()> {
        let mut record = world.record.filter(|record| record.uid == self.claim.uid)?;
        change(&mut record);
        world.record = Some(record);
        self.record = world.record;
        Some(())
    }

    fn write_secret(&mut self, world: &mut World, memory: &mut Memory) -> Option<()> {
        let uid = self.claim.uid;
        let (key, retiring) = match self.keys {
            // A restored Secret becomes the claim's.
            Keys::Issued(key) | Keys::InSecret { keys: key, .. } => (key, None),
            Keys::Pending { keys, .. } => (keys, self.present()),
            Keys::None => return None,
        };
        // Created if there was none, patched by uid if it was the claim's own.
        let as_read = match (self.secret, world.secret) {
            (None, None) => true,
            (Some(Secret::Mine { .. }), Some(Secret::Mine { uid: now, .. })) => now == uid,
            (Some(Secret::Restored { .. }), now) => now == self.secret,
            _ => false,
        };
        if !as_read {
            return None;
        }
        let issued = matches!(self.keys, Keys::Issued(_));
        if matches!(self.keys, Keys::Pending { .. }) {
            memory.pending_key = None;
        } else if issued && matches!(memory.refused, 2 | 4) {
            memory.refused = 3;
        }
        let review = if self.continues && issued { Review::Later } else { Review::No };
        world.published.insert(self.record_so_far().names);
        world.secret = Some(Secret::Mine { uid, key, answers: self.claim.rotation, retiring, review });
        self.secret = world.secret;
        self.keys = self.keys.written();
        Some(())
    }

    fn probe(&mut self, world: &mut World, memory: &mut Memory, outcome: Outcome) -> Option<()> {
        let (Keys::Pending { keys: key, .. } | Keys::InSecret { keys: key, .. }) = self.keys else { return None };
        let Record { names: user, .. } = self.record_so_far();
        // Keys that worked once work everywhere.
        let blind = outcome == Outcome::Blind && !world.worked.contains(&key);
        if world.is_live(user, key) && world.bucket(self.record_so_far().bucket()).is_some() && !blind {
            world.worked.insert(key);
            self.keys.set_proven(true);
            memory.refused = 0;
            return Some(());
        }
        if std::mem::take(&mut self.doubted) {
            if world.hides(user, key) {
                world.harm = Some("keys are replaced that IAM has not shown yet");
            }
            self.keys = Keys::None;
            return Some(());
        }
        memory.refused = (memory.refused + 1).min(4);
        // So many tries take longer than the lag of IAM's reads.
        if matches!(memory.refused, 2 | 4) {
            world.time_passes();
        }
        if !matches!(self.keys, Keys::Pending { .. }) {
            self.update_status(world, memory, |claim| claim.ready = false)?;
        } else if memory.refused > 2 {
            (memory.pending_key, memory.refused) = (None, 0);
        }
        None
    }

    fn write_config_map(&self, world: &mut World) -> Option<()> {
        let record = self.record_so_far();
        let uid = self.claim.uid;
        match world.config_map {
            None => {}
            Some(Whose::Claim(owner)) if owner == uid => {}
            Some(Whose::Nobody) if record.names != uid => {}
            Some(_) => return None,
        }
        world.config_map = Some(Whose::Claim(uid));
        Some(())
    }

    fn link_record(&mut self, world: &mut World, memory: &mut Memory) -> Option<()> {
        if !self.claim.named {
            world.claim.filter(|claim| claim.uid == self.claim.uid)?;
            world.change_claim(|claim| claim.named = true);
            self.claim = world.claim?;
            memory.written = self.claim.version;
        }
        Some(())
    }

    fn report_bound(&self, world: &mut World, memory: &mut Memory) -> Option<()> {
        if self.claim.bound && self.claim.ready {
            return Some(());
        }
        if !self.overtaken && !usable(world, self.claim.uid) {
            world.harm = Some("a claim that cannot be used was reported as bound");
        }
        self.update_status(world, memory, |claim| (claim.bound, claim.ready) = (true, true))
    }
}

/// Makes the next call of a verb.
fn go_on(mut work: Work, mut verb: Verb, world: &mut World, memory: &mut Memory, outcome: Outcome) -> Option<Work> {
    let progress = verb.take(world, outcome);
    if matches!(progress, Progress::Issued(_)) && std::mem::replace(&mut work.issued, true) {
        world.harm = Some("keys were issued twice in one attempt");
    }
    match progress {
        Progress::GoesOn => work.verb = Some(verb),
        Progress::Issued(key) if verb.kind == Kind::Rotate => {
            memory.pending_key = Some(key);
            memory.refused = 0;
            work.upkeep = Upkeep::Nothing;
            work.keys = Keys::Pending { keys: key, proven: false };
        }
        Progress::Issued(key) => {
            memory.pending_key = None;
            work.keys = Keys::Issued(key);
        }
        Progress::KeysLost => {
            work.upkeep = Upkeep::Nothing;
            if let Keys::InSecret { keys, proven, .. } = &mut work.keys {
                let hidden = world.hides(work.record.map_or(work.claim.uid, |record| record.names), *keys);
                if memory.settled && !memory.executed {
                    if hidden {
                        world.harm = Some("keys are replaced that IAM has not shown yet");
                    }
                    work.keys = Keys::None;
                } else {
                    *proven = false;
                    work.doubted = !hidden;
                }
            }
        }
        Progress::Done => {
            work.forgets = work.upkeep == Upkeep::Retire;
            work.confirms = work.record.is_some_and(|record| record.changes);
            work.upkeep = Upkeep::Nothing;
        }
        Progress::Failed if work.is_new && !verb.touched => work.withdraws = true,
        Progress::Failed => return None,
    }
    Some(work)
}

/// Whether an app can use the bucket with the claim's outputs.
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
