//! The steps of a removal, as effects on the world: what `reconcile/teardown.rs` does with clients.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::memory::{Memory, Removed};
use super::planner::{self, Setup, real_stored};
use super::store::{Kind, Outcome, Progress, Verb};
use super::world::{Claim, NO_CLAIM, Record, Release, Secret, Whose, World};

use crate::decide::backoff;
use crate::decide::orphan::Due;
use crate::decide::release::Retained;
use crate::decide::teardown::{self, Purpose, StoreProgress, TeardownState, TeardownStep, Undo};
use crate::store::{AccessRemoval, BucketRemoval, Removal as StoreRemoval};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Removal {
    pub(super) claim: Claim,
    pub(super) record: Option<Record>,
    pub(super) seen: TeardownState,
    pub(super) secret_gone: bool,
    pub(super) verb: Option<Verb>,
    /// Why the record outlives its claim.
    retain: Option<Release>,
    /// What the record does not say yet: that the removal has begun.
    mark: Option<Release>,
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
                let lost = Record { credentials_published: true, ..Record::new(claim) };
                // It is unknown whether to retain the bucket.
                seen.recorded = Some(Undo::Revoke);
                record = Some(lost);
            }
            // An earlier attempt has undone it.
            None if mine.is_some_and(|record| record.release.is_some()) => {}
            None => {
                seen.recorded = mine.map(|record| teardown::undo(&real_stored(setup, claim, &record)));
            }
        }
        Some(Self { claim, record, seen, secret_gone: false, verb: None, retain: None, mark: None })
    }

    /// What is due for a record whose claim no longer exists, if something is to be removed.
    pub(super) fn of_orphan(setup: &Setup, world: &World, record: Record, vanished: bool) -> Option<Self> {
        let (undo, retain) = match planner::real_due(setup, world, &record, vanished) {
            Due::DeleteBucket => (Undo::Delete, None),
            Due::RevokeVanished => (Undo::Revoke, Some(Release::Retained)),
            Due::Remove | Due::Revoke => unreachable!("no admin requests that here"),
            // That the time comes later only leaves out what could happen at once.
            Due::Postpone { .. } => return None,
            Due::Nothing | Due::Report(_) | Due::Wait { .. } | Due::Refuse(_) | Due::Forget | Due::Adopt => {
                return None;
            }
        };
        let seen = TeardownState {
            recorded: Some(undo),
            store: StoreProgress::NotAsked,
            settled: false,
            retained: false,
            outputs_gone: false,
            purpose: Purpose::Orphan,
        };
        let mark = match record.release {
            None => Some(Release::Vanished),
            Some(Release::Scheduled { deleting: false }) => Some(Release::Scheduled { deleting: true }),
            Some(_) => None,
        };
        let claim = Claim { uid: record.uid, asks: record.asks, ..NO_CLAIM };
        Some(Self { claim, record: Some(record), seen, secret_gone: false, verb: None, retain, mark })
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
    if let Some(mark) = removal.mark.take() {
        // Fails if the record was changed since it was read: a claim may have it now.
        if world.record != removal.record {
            return None;
        }
        removal.keep_record(world, Some(mark));
        return Some(removal);
    }
    let uid = removal.claim.uid;
    match teardown::next_teardown_step(&removal.seen) {
        TeardownStep::Undo(undo) => removal.undo(undo, world)?,
        // A later attempt continues.
        TeardownStep::Yield | TeardownStep::Settle => return None,
        TeardownStep::DeleteOutputs => removal.delete_output(world),
        TeardownStep::Retain => {
            if world.record != removal.record {
                return None;
            }
            removal.keep_record(world, removal.retain);
            removal.seen.recorded = None;
        }
        TeardownStep::DeleteRecord => {
            let is_orphan = removal.seen.purpose == Purpose::Orphan;
            if is_orphan && world.record.is_some_and(|record| record.uid != uid) {
                world.harm = Some("a record was deleted that another claim has");
            }
            world.record = world.record.filter(|record| record.uid != uid && !is_orphan);
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
                let since_change = if !memory.executed && memory.settled { Duration::MAX } else { Duration::ZERO };
                self.seen.settled = backoff::settles_in(verb.missing, since_change, LAG).is_none();
                if verb.not_empty && self.seen.purpose == Purpose::Replan {
                    // It waits until an admin has checked the bucket.
                    return None;
                }
                let bucket = if verb.not_empty { BucketRemoval::NotEmpty } else { BucketRemoval::Deleted };
                let removed = StoreRemoval { access: AccessRemoval::Deleted, bucket };
                let undo = self.seen.recorded?;
                let why = teardown::retained(undo, &removed, None, Timestamp::MIN);
                let retained = |why| match why {
                    Retained::Scheduled(_) => Release::Scheduled { deleting: false },
                    _ => Release::Retained,
                };
                self.retain = why.map(retained).or(self.retain);
                self.seen.retained = self.retain.is_some();
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
            Undo::DeleteAfter(_) => Kind::Revoke,
            Undo::Delete => Kind::Delete,
            Undo::DeleteIfEmpty => Kind::DeleteIfEmpty,
        };
        let present = match world.secret {
            Some(Secret::Mine { uid, key, .. }) if uid == self.claim.uid => Some(key),
            _ => None,
        };
        self.verb = Some(Verb::new(kind, self.record?, present.into_iter().collect()));
        Some(())
    }

    /// Writes why the record outlives its claim.
    fn keep_record(&mut self, world: &mut World, release: Option<Release>) {
        world.record = world.record.map(|record| Record { release, ..record });
        self.record = world.record;
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
