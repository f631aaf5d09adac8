//! A scenario: what is provisioned, what can happen, and what must always hold.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use super::actions::{Action, OperatorAction, OtherAction, State};
use super::budget::Budget;
use super::memory::Memory;
use super::operator::{Attempt, Operator};
use super::planner::Setup;
use super::provision::usable;
use super::store::FOREIGN_BUCKET_DELETED;
use super::store::Outcome;
use super::world::{
    Asks, BucketName, Claim, Content, Issued, Key, NO_CLAIM, PREVIOUS, Record, Release, Secret, User, Whose, World,
    previous_record,
};
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use crate::decide::steps::Upkeep;
use crate::store::{Mode, ReclaimPolicy};

/// What was restored besides the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backup {
    pub(super) record: bool,
    pub(super) secret: bool,
}

/// What is provisioned, and what can happen.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) setup: Setup,
    pub(super) asks: Asks,
    pub(super) operators: usize,
    pub(super) budget: Budget,
    /// The largest number of actions in a history.
    pub(super) depth: usize,
    /// Reads of IAM may lag.
    pub(super) lag: bool,
    /// The claim is bound at the start.
    pub(super) bound: bool,
    /// The claim was restored from a backup at the start, together with this.
    pub(super) restored: Option<Backup>,
    /// The periodic check runs at the end. Most scenarios must end well without it.
    pub(super) hours_pass: bool,
    /// A cache of [`ends_well`](Self::ends_well).
    pub(super) ends: Arc<Mutex<HashMap<(World, Memory), bool>>>,
}

impl Scenario {
    pub(super) fn new(asks: Asks, budget: Budget) -> Self {
        let mode = if asks == Asks::Class { Mode::Granted } else { Mode::Created };
        let setup = Setup { mode, reclaim_policy: ReclaimPolicy::Delete, on_delete: None };
        Self {
            setup,
            asks,
            operators: 1,
            budget,
            depth: usize::MAX,
            lag: true,
            bound: false,
            restored: None,
            hours_pass: false,
            ends: Arc::default(),
        }
    }

    /// A new claim.
    fn created(&self) -> Claim {
        Claim { asks: self.asks, ..NO_CLAIM }
    }

    /// Whether records may be left without their claims.
    fn has_orphans(&self) -> bool {
        self.setup.on_delete.is_some() || self.budget.strips > 0
    }

    /// Explores everything; returns the number of states.
    pub(super) fn explore(self) -> usize {
        let finished = self
            .clone()
            .checker()
            .target_max_depth(self.depth)
            .threads(2)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        for property in self.properties() {
            match (property.expectation, finished.discovery(property.name)) {
                (Expectation::Sometimes, None) => panic!("never happens: {}", property.name),
                (Expectation::Always, Some(path)) => {
                    let state = path.last_state().clone();
                    panic!("not so: {}, after {:#?}: {state:#?}", property.name, path.into_actions());
                }
                _ => {}
            }
        }
        finished.unique_state_count()
    }

    /// Whether the scenario ends well if nothing else happens.
    fn ends_well(&self, state: &State) -> bool {
        let Some(operator) = state.operators.first() else { return true };
        let key = (state.world.clone(), operator.memory.clone());
        let known = self.ends.lock().unwrap().get(&key).copied();
        known.unwrap_or_else(|| {
            let well = self.is_well(&self.calmed(state));
            self.ends.lock().unwrap().insert(key, well);
            well
        })
    }

    /// The state after enough attempts without trouble.
    fn calmed(&self, state: &State) -> State {
        let mut state = state.clone();
        state.operators.truncate(1);
        self.settle(&mut state);
        if state.world.record.is_some_and(|record| record.release.is_some()) {
            state.world.time_came = true;
            self.settle(&mut state);
        }
        state
    }

    fn settle(&self, state: &mut State) {
        for _ in 0..8 {
            let before = state.world.clone();
            state.world.time_passes();
            for upkeep in [Upkeep::Nothing, Upkeep::Rotate, Upkeep::Retire, Upkeep::Check] {
                let State { world, operators, .. } = state;
                for operator in operators {
                    operator.cache = world.claim;
                    operator.memory.time_passes();
                    let due = upkeep != Upkeep::Check || self.hours_pass;
                    if operator.attempt.is_none() && due {
                        operator.begin(&self.setup, world, upkeep);
                    }
                    let mut steps = 0;
                    while operator.attempt.is_some() && steps < 100 {
                        operator.step(&self.setup, world, Outcome::Done);
                        steps += 1;
                    }
                    if operator.orphan.is_none() && self.has_orphans() {
                        operator.begin_orphan(&self.setup, world);
                    }
                    while operator.orphan.is_some() && steps < 200 {
                        operator.step_orphan(world, Outcome::Done);
                        steps += 1;
                    }
                }
            }
            if state.world == before {
                break;
            }
        }
    }

    /// Whether this is a good end: the claim is bound and usable, or deleted without a trace.
    fn is_well(&self, state: &State) -> bool {
        let world = &state.world;
        let in_the_way = world.secret == Some(Secret::Foreign)
            || world.config_map == Some(Whose::Foreign)
            || self.asks == Asks::Name && world.bucket(BucketName::Chosen) == Some(Whose::Foreign)
            || world.bucket_taken_away
            // A bucket that holds something is not deleted for another one.
            || world.record.is_some_and(|record| !record.credentials_published && world.full.contains(&record.bucket()));
        let Some(claim) = world.claim else {
            let release = world.record.and_then(|record| record.release);
            if matches!(release, Some(Release::Scheduled { .. } | Release::Vanished)) {
                return false;
            }
            // Bucket and user of a previous claim stay, with or without their record. So does all of a claim that was
            // deleted unseen: its record is reported.
            let previous =
                self.restored.is_some() && world.previous_is_there() || world.stripped && world.record.is_some();
            return previous || (0..world.born).all(|uid| world.leftover(uid).is_none());
        };
        if claim.undo.is_some() && world.record.is_none_or(|record| record.uid != claim.uid) {
            // There was nothing to undo: nothing is created in its place, and it waits.
            return !claim.deleting && !claim.bound && world.leftover(claim.uid).is_none();
        }
        if self.restored.is_some() && world.record.is_none_or(|record| record.uid != claim.uid) {
            // It waits for an admin, and nothing was created or removed meanwhile.
            let requested = world.record.is_some_and(|record| record.adopt_requested);
            return !requested && !claim.deleting && !claim.bound && world.leftover(claim.uid).is_none();
        }
        let previous = (0..world.born).filter(|uid| *uid != claim.uid).all(|uid| world.leftover(uid).is_none());
        let user = world.record.map_or(claim.uid, |record| record.names);
        let keys = world.users[usize::from(user)].as_ref().map_or(0, |user| user.keys.len());
        let adopt_requested = world.record.is_some_and(|record| record.adopt_requested);
        let is_limited = world.users[usize::from(user)].as_ref().is_some_and(|user| user.limited);
        let as_asked = is_limited == claim.limited && world.record.is_some_and(|record| !record.changes);
        let bound = as_asked
            && claim.bound
            && claim.ready
            && claim.named
            && usable(world, claim.uid)
            && keys == 1
            && !adopt_requested;
        previous && !claim.deleting && (in_the_way || bound)
    }
}

impl Model for Scenario {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let claim = self.created();
        let brownfield = (self.asks == Asks::Class).then_some((BucketName::Chosen, Whose::Foreign));
        let world = World {
            claim: Some(claim),
            born: 1,
            record: None,
            secret: None,
            config_map: None,
            buckets: brownfield.into_iter().collect(),
            users: [None, None],
            next_key: 0,
            worked: BTreeSet::new(),
            harm: None,
            bucket_taken_away: false,
            restored: None,
            kept: false,
            full: BTreeSet::new(),
            published: BTreeSet::new(),
            content: match (self.setup.reclaim_policy, self.setup.on_delete) {
                (ReclaimPolicy::Delete, None) => Content::Deleted,
                (ReclaimPolicy::Delete, Some(on_delete)) if on_delete.starts_with("after:") => Content::DeletedLater,
                _ => Content::Kept,
            },
            time_came: false,
            stripped: false,
        };
        if let Some(backup) = self.restored {
            return vec![self.restore(world, claim, backup)];
        }
        let new = State { world, operators: vec![Operator::new(Some(claim)); self.operators], left: self.budget };
        if !self.bound {
            return vec![new];
        }
        let world = self.calmed(&new).world;
        let operators = vec![Operator::new(world.claim); self.operators];
        vec![State { world, operators, left: self.budget }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (which, operator) in state.operators.iter().enumerate() {
            let possible =
                OperatorAction::possible(state, operator, self.lag, self.budget.rotations > 0, self.has_orphans());
            actions.extend(possible.into_iter().map(|action| Action::Operator(which, action)));
        }
        actions.push(Action::TimePasses);
        let scheduled = |record: Record| matches!(record.release, Some(Release::Scheduled { .. }));
        if !state.world.time_came && state.world.record.is_some_and(scheduled) {
            actions.push(Action::TimeComes);
        }
        actions.extend(OtherAction::possible(state, self.setup.mode).into_iter().map(Action::Other));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Operator(which, action) => action.apply(&self.setup, &mut state, which),
            Action::TimePasses => {
                state.world.time_passes();
                let idle = state.operators.iter_mut().filter(|operator| operator.attempt.is_none());
                idle.for_each(|operator| operator.memory.time_passes());
            }
            Action::TimeComes => state.world.time_came = true,
            Action::Other(action) => action.apply(&mut state, self.created()),
        }
        (state != *last).then_some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        // Refused keys are replaced again and again, without end.
        state.world.next_key <= MOST_KEYS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing is harmed", |scenario: &Scenario, state: &State| {
                // Two operators can harm each other's work, which is why there is a lease, but not that of others.
                state.world.harm.is_none_or(|harm| scenario.operators > 1 && harm != FOREIGN_BUCKET_DELETED)
            }),
            Property::always("what is foreign stays", |scenario: &Scenario, state: &State| {
                scenario.asks != Asks::Class || state.world.bucket(BucketName::Chosen) == Some(Whose::Foreign)
            }),
            Property::always("a user has two keys at most", |_, state: &State| {
                state.world.users.iter().flatten().all(|user| user.keys.len() <= 2)
            }),
            Property::always(
                "one operator deletes no key that works and is in use",
                |scenario: &Scenario, state: &State| {
                    let world = &state.world;
                    let (Some(claim), Some(Secret::Mine { uid, key, .. })) = (world.claim, world.secret) else {
                        return true;
                    };
                    scenario.operators > 1
                        || claim.deleting
                        || claim.uid != uid
                        || !world.worked.contains(&key)
                        || !world.record.is_some_and(|record| record.credentials_published && record.uid == uid)
                        || world.record.is_some_and(|record| world.is_live(record.names, key))
                },
            ),
            Property::always(
                "what was made for a previous claim stays until its record is adopted",
                |scenario: &Scenario, state: &State| {
                    let adopted = state.world.record.is_none_or(|record| record.uid != PREVIOUS);
                    scenario.restored.is_none() || adopted || state.world.previous_is_intact()
                },
            ),
            Property::always(
                "bound and usable, or gone without a trace, in the end",
                |scenario: &Scenario, state: &State| {
                    let is_idle = |operator: &Operator| operator.attempt.is_none() && operator.orphan.is_none();
                    let between = state.operators.iter().all(is_idle);
                    !between || scenario.ends_well(state) || scenario.operators > 1 && state.world.claim.is_none()
                },
            ),
            Property::always("a policy is that of its record, unless it changes", |_, state: &State| {
                let world = &state.world;
                let confirmed = world.record.filter(|record| record.credentials_published && !record.changes);
                let user = confirmed.and_then(|record| world.users[usize::from(record.names)].as_ref());
                user.is_none_or(|user| !user.policy || confirmed.is_some_and(|record| user.limited == record.limited))
            }),
            // A scenario in which nothing can happen proves nothing.
            Property::sometimes("a claim is bound", |scenario: &Scenario, state: &State| {
                let waits = scenario.restored.is_some() && scenario.budget.adoption_requests == 0;
                waits || state.world.claim.is_some_and(|claim| claim.bound)
            }),
            Property::sometimes("a record is adopted", |scenario: &Scenario, state: &State| {
                let adopted = |record: Record| record.uid != record.names && !record.adopt_requested;
                scenario.budget.adoption_requests + scenario.budget.undos == 0
                    || state.world.record.is_some_and(adopted)
            }),
            Property::sometimes("access is limited", |scenario: &Scenario, state: &State| {
                let mut users = state.world.users.iter().flatten();
                scenario.budget.limits == 0 || users.any(|user| user.limited)
            }),
            Property::sometimes("a claim no longer exists", |scenario: &Scenario, state: &State| {
                scenario.budget.deletions == 0 || state.world.claim.is_none()
            }),
            Property::sometimes(
                "a bucket outlives its claim with its content",
                |scenario: &Scenario, state: &State| {
                    let world = &state.world;
                    scenario.budget.contents == 0
                        || world.claim.is_none() && !world.full.is_empty() && world.record.is_some()
                },
            ),
            Property::sometimes("a removal is under way", |scenario: &Scenario, state: &State| {
                let teardown = |operator: &Operator| matches!(operator.attempt, Some(Attempt::Teardown(_)));
                scenario.budget.deletions + scenario.budget.edits == 0 || state.operators.iter().any(teardown)
            }),
        ]
    }
}

impl Scenario {
    /// The claim is restored with another uid; bucket and user still exist.
    fn restore(&self, mut world: World, claim: Claim, backup: Backup) -> State {
        let uid = PREVIOUS + 1;
        world.born = uid + 1;
        world.restored = Some(uid);
        world.claim = Some(Claim { uid, finalizer: true, named: true, ..claim });
        world.record = backup.record.then(|| previous_record(self.asks));
        world.secret = backup.secret.then_some(Secret::Restored { key: 0 });
        world.config_map = Some(Whose::Nobody);
        if self.asks != Asks::Class {
            world.put_bucket(BucketName::of(self.asks, PREVIOUS), Whose::Claim(PREVIOUS));
        }
        let keys = vec![Issued { key: 0, seen: true }];
        world.users[usize::from(PREVIOUS)] =
            Some(User { tag: PREVIOUS, seen: true, policy: true, limited: false, keys });
        world.next_key = 1;
        State { operators: vec![Operator::new(world.claim); self.operators], world, left: self.budget }
    }
}

/// The largest number of keys that are issued in a scenario.
const MOST_KEYS: Key = 5;
