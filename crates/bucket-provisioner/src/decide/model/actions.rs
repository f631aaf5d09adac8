//! What can happen in a scenario: what operators do, and what users, admins and others do.

use super::budget::Budget;
use super::operator::Operator;
use super::planner::Setup;
use super::store::Outcome;
use super::world::{Asks, BucketName, Claim, Record, Secret, Whose, World, previous_record};
use crate::decide::steps::Upkeep;
use crate::store::Mode;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) world: World,
    pub(super) operators: Vec<Operator>,
    pub(super) left: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// One of the operators does something, or crashes.
    Operator(usize, OperatorAction),
    /// Reads of IAM show everything that was created, and processes grow older.
    TimePasses,
    /// The time of a scheduled deletion comes.
    TimeComes,
    /// Somebody does something.
    Other(OtherAction),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OperatorAction {
    Begin(Upkeep),
    Step(Outcome),
    BeginOrphan,
    StepOrphan(Outcome),
    Crash,
    /// The watch shows the present claim.
    Deliver,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OtherAction {
    Edit,
    Delete,
    CreateAgain,
    DeleteSecret,
    AskForRotation,
    AskForAccess,
    TakeBucketName,
    TakeSecretName,
    TakeConfigMapName,
    DeleteBucket,
    DeleteRecord,
    RequestAdoption,
    RestoreRecord,
    FillBucket,
    Rewind,
    CreateAgainToUndo,
    StripFinalizer,
}

impl OperatorAction {
    /// `lag`: reads of IAM may miss what was just created. `rotates`: keys may be replaced in this scenario. `orphans`: records
    /// may be left without their claims.
    pub(super) fn possible(state: &State, operator: &Operator, lag: bool, rotates: bool, orphans: bool) -> Vec<Self> {
        let left = &state.left;
        let is_idle = operator.attempt.is_none();
        let all = [
            (is_idle, Self::Begin(Upkeep::Nothing)),
            (is_idle, Self::Begin(Upkeep::Retire)),
            (is_idle && rotates, Self::Begin(Upkeep::Rotate)),
            (is_idle && left.checks > 0, Self::Begin(Upkeep::Check)),
            (!is_idle, Self::Step(Outcome::Done)),
            (!is_idle && lag && operator.may_be_blind(), Self::Step(Outcome::Blind)),
            (!is_idle && operator.may_go_ahead(), Self::Step(Outcome::Ahead)),
            (!is_idle && left.losses > 0, Self::Step(Outcome::Lost)),
            (!is_idle && left.refusals > 0, Self::Step(Outcome::Refused)),
            (operator.orphan.is_none() && orphans, Self::BeginOrphan),
            (operator.orphan.is_some(), Self::StepOrphan(Outcome::Done)),
            (operator.orphan.is_some() && left.losses > 0, Self::StepOrphan(Outcome::Lost)),
            (operator.orphan.is_some() && left.refusals > 0, Self::StepOrphan(Outcome::Refused)),
            (left.crashes > 0, Self::Crash),
            (operator.cache != state.world.claim, Self::Deliver),
        ];
        those_that_can(all)
    }

    pub(super) fn apply(self, setup: &Setup, state: &mut State, which: usize) {
        let State { world, operators, left } = state;
        let operator = &mut operators[which];
        match self {
            Self::Begin(upkeep) => {
                left.checks -= u8::from(upkeep == Upkeep::Check);
                operator.begin(setup, world, upkeep);
            }
            Self::Step(outcome) => {
                left.losses -= u8::from(outcome == Outcome::Lost);
                left.refusals -= u8::from(outcome == Outcome::Refused);
                operator.step(setup, world, outcome);
            }
            Self::BeginOrphan => drop(operator.begin_orphan(setup, world)),
            Self::StepOrphan(outcome) => {
                left.losses -= u8::from(outcome == Outcome::Lost);
                left.refusals -= u8::from(outcome == Outcome::Refused);
                operator.step_orphan(world, outcome);
            }
            Self::Crash => {
                left.crashes -= 1;
                // The first list of a new process may be older than what the previous process has seen.
                *operator = Operator::new(operator.earlier);
            }
            Self::Deliver => {
                operator.earlier = operator.cache;
                operator.cache = world.claim;
                operator.sees_deletion(world);
            }
        }
    }
}

impl OtherAction {
    pub(super) fn possible(state: &State, mode: Mode) -> Vec<Self> {
        let State { world, left, .. } = state;
        let claim = |is: fn(Claim) -> bool| world.claim.is_some_and(is);
        let credentials_published = world.record.is_some_and(|record| record.credentials_published);
        let is_others = world.record.is_some_and(|record| Some(record.uid) != world.claim.map(|claim| claim.uid));
        let all = [
            (left.edits > 0 && claim(|claim| claim.asks == Asks::Prefix && !claim.bound), Self::Edit),
            (left.deletions > 0 && claim(|claim| !claim.deleting), Self::Delete),
            (left.rotations > 0 && world.claim.is_some(), Self::AskForRotation),
            (left.limits > 0 && claim(|claim| !claim.deleting), Self::AskForAccess),
            (left.recreations > 0 && world.claim.is_none(), Self::CreateAgain),
            (left.deleted_secrets > 0 && matches!(world.secret, Some(Secret::Mine { .. })), Self::DeleteSecret),
            (left.rivals > 0 && world.bucket(BucketName::Chosen).is_none(), Self::TakeBucketName),
            (left.rivals > 0 && world.secret.is_none(), Self::TakeSecretName),
            (left.rivals > 0 && world.config_map.is_none(), Self::TakeConfigMapName),
            (left.adoption_requests > 0 && is_others, Self::RequestAdoption),
            (left.restored_records > 0 && world.record.is_none() && world.previous_is_there(), Self::RestoreRecord),
            (
                left.deleted_records > 0 && credentials_published && claim(|claim| claim.bound && !claim.deleting),
                Self::DeleteRecord,
            ),
            (left.contents > 0 && !world.buckets.is_empty() && world.full.is_empty(), Self::FillBucket),
            (left.rewinds > 0 && credentials_published && claim(|claim| !claim.deleting), Self::Rewind),
            (left.undos > 0 && world.claim.is_none(), Self::CreateAgainToUndo),
            (left.strips > 0 && claim(|claim| claim.finalizer && claim.bound), Self::StripFinalizer),
            (left.deleted_buckets > 0 && credentials_published && mode == Mode::Created, Self::DeleteBucket),
        ];
        those_that_can(all)
    }

    /// `created`: a new claim.
    pub(super) fn apply(self, state: &mut State, created: Claim) {
        let State { world, operators, left } = state;
        match self {
            Self::Edit => world.change_claim(|claim| claim.asks = Asks::Edited),
            Self::Delete => {
                world.change_claim(|claim| claim.deleting = true);
                // Without a finalizer, it is deleted at once.
                world.claim = world.claim.filter(|claim| claim.finalizer);
            }
            Self::CreateAgain => world.create_again(created),
            Self::AskForRotation => world.change_claim(|claim| claim.rotation += 1),
            Self::AskForAccess => world.change_claim(|claim| claim.limited = !claim.limited),
            Self::DeleteSecret => world.secret = None,
            Self::TakeBucketName => world.put_bucket(BucketName::Chosen, Whose::Foreign),
            Self::TakeSecretName => world.secret = Some(Secret::Foreign),
            Self::TakeConfigMapName => world.config_map = Some(Whose::Foreign),
            Self::DeleteBucket => {
                if let Some(record) = world.record {
                    world.drop_bucket(record.bucket());
                    world.bucket_taken_away = true;
                }
            }
            Self::DeleteRecord => world.record = None,
            Self::RequestAdoption => {
                world.record = world.record.map(|record| Record { adopt_requested: true, ..record })
            }
            Self::RestoreRecord => world.record = Some(previous_record(created.asks)),
            Self::FillBucket => world.full = world.buckets.first().map(|(name, _)| *name).into_iter().collect(),
            Self::Rewind => {
                world.rewind();
                // The API server ends all watches.
                operators.iter_mut().for_each(|operator| *operator = Operator::new(world.claim));
            }
            Self::CreateAgainToUndo => world.create_again(Claim { undo: Some(!world.time_came), ..created }),
            Self::StripFinalizer => {
                world.stripped = true;
                world.claim = None;
            }
        }
        *self.budget(left) -= 1;
        if self.overtakes() {
            operators.iter_mut().for_each(Operator::is_overtaken);
        }
    }

    /// The budget that limits this action.
    fn budget(self, left: &mut Budget) -> &mut u8 {
        match self {
            Self::Edit => &mut left.edits,
            Self::Delete => &mut left.deletions,
            Self::CreateAgain => &mut left.recreations,
            Self::DeleteSecret => &mut left.deleted_secrets,
            Self::AskForRotation => &mut left.rotations,
            Self::AskForAccess => &mut left.limits,
            Self::TakeBucketName | Self::TakeSecretName | Self::TakeConfigMapName => &mut left.rivals,
            Self::DeleteBucket => &mut left.deleted_buckets,
            Self::DeleteRecord => &mut left.deleted_records,
            Self::RequestAdoption => &mut left.adoption_requests,
            Self::RestoreRecord => &mut left.restored_records,
            Self::FillBucket => &mut left.contents,
            Self::Rewind => &mut left.rewinds,
            Self::CreateAgainToUndo => &mut left.undos,
            Self::StripFinalizer => &mut left.strips,
        }
    }

    /// Whether it changes something that an attempt may have read.
    fn overtakes(self) -> bool {
        matches!(
            self,
            Self::DeleteSecret
                | Self::TakeSecretName
                | Self::TakeConfigMapName
                | Self::DeleteBucket
                | Self::DeleteRecord
        )
    }
}

fn those_that_can<T, const N: usize>(all: [(bool, T); N]) -> Vec<T> {
    all.into_iter().filter_map(|(can, action)| can.then_some(action)).collect()
}
