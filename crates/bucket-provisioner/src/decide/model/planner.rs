//! Calls of the real planner, and the conversion between the world's small objects and the real ones.

use k8s_openapi::jiff::Timestamp;

use super::world::{Asks, Claim, NO_CLAIM, Record, Release, World};

use crate::api::{Guard, ObjectBucketClaim, ObjectBucketClaimSpec, wire};
use crate::decide::action::Action;
use crate::decide::claim::Claim as RealClaim;
use crate::decide::class::{Class, ClassLookup};
use crate::decide::lookup::Found;
use crate::decide::orphan::{self, Due, OrphanFacts, PresentClaim};
use crate::decide::plan::{self, RecordState, Surroundings};
use crate::decide::record::{Author, Stored};
use crate::decide::release::{Release as RealRelease, Retained, Schedule, UndoRequest};
use crate::decide::request::Labels;
use crate::decide::sharing::Creator;
use crate::error::{CannotUndo, RecordProblem};
use crate::store::{
    Access, AccessMode, AccessRemoval, AppCredentials, BucketRemoval, Call, Capabilities, Changes, ClaimId, Content,
    CreateError, Endpoint, Failure, FailureClass, Mode, Plan, Provisioner, ReclaimPolicy, Request,
};

/// What never changes in a scenario.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) mode: Mode,
    pub(super) reclaim_policy: ReclaimPolicy,
    /// The class parameter `onDelete`.
    pub(super) on_delete: Option<&'static str>,
}

/// A time long before and a time long after that of a scheduled deletion.
fn now(time_came: bool) -> Timestamp {
    if time_came { Timestamp::MAX } else { Timestamp::MIN }
}

/// That of a claim that was created in time, or later.
fn request(in_time: bool) -> UndoRequest<'static> {
    UndoRequest { namespace_uid: Some(NAMESPACE), class: CLASS, asked_at: now(!in_time) }
}

/// Uid of the claims' namespace.
const NAMESPACE: &str = "namespace";

/// What the real code decides for a record whose claim no longer exists.
pub(super) fn real_due(setup: &Setup, world: &World, record: &Record, vanished: bool) -> Due {
    let gone = Claim { uid: record.uid, ..world.claim.unwrap_or(NO_CLAIM) };
    let stored = real_stored(setup, gone, record);
    let action = Ok(stored.action);
    let present = world.claim.map(|claim| PresentClaim {
        uid: claim.uid.to_string(),
        deleting: claim.deleting,
        has_record: None,
        names_it: claim.named,
        undoes: claim.undo.is_some_and(|in_time| {
            stored.release.as_ref().is_some_and(|release| release.undo(&request(in_time), CLASS).is_ok())
        }),
    });
    let now = now(world.time_came);
    let facts = OrphanFacts {
        stored: &stored,
        action: &action,
        cluster: CLUSTER,
        present: present.as_ref(),
        refused: false,
        vanished,
        awaited: true,
        now,
    };
    orphan::due(&facts)
}

/// The answer of the real planner for a claim and its record.
pub(super) fn real_record_state(setup: &Setup, claim: Claim, record: Option<Record>) -> Option<RecordState> {
    let stored = |record: Record| {
        let stored = real_stored(setup, claim, &record);
        Box::new(Stored { claim_was_bound: claim.named || claim.bound, ..stored })
    };
    let found = match record {
        Some(record) if record.uid == claim.uid => Found::Owned(stored(record)),
        Some(record) if record.adopt_requested => Found::ToAdopt(stored(record)),
        Some(record) if claim.undo.is_some() => {
            let stored = stored(record);
            let request = request(claim.undo == Some(true));
            match stored.release.as_ref().map(|release| release.undo(&request, CLASS)) {
                Some(Ok(())) => Found::ToAdopt(stored),
                Some(Err(why)) => Found::NothingToUndo { why },
                None => Found::NothingToUndo { why: CannotUndo::NotScheduled },
            }
        }
        None if claim.undo.is_some() => Found::NothingToUndo { why: CannotUndo::NotScheduled },
        Some(_) if claim.named => Found::Restored(RecordProblem::Predecessor { record: NAME.into() }),
        None if claim.named => Found::Restored(RecordProblem::Missing { record: NAME.into() }),
        Some(_) | None => Found::None { free_name: NAME.into() },
    };
    let class = real_class(setup, claim.asks);
    let (class, labels) = (&class, &Labels::new());
    let surroundings = Surroundings {
        provisioner: &Planner,
        provisioner_name: "model",
        cluster: CLUSTER,
        class,
        labels,
        creators: &|_| Creator::Missing,
    };
    plan::record_state(&surroundings, &real_claim(claim, claim.asks), found).ok()
}

/// The record's default name.
const NAME: &str = "obc--claim";

const CLUSTER: &str = "cluster";

const CLASS: &str = "class";

/// The record in the cluster.
pub(super) fn real_stored(setup: &Setup, claim: Claim, record: &Record) -> Stored {
    Stored {
        name: NAME.into(),
        uid: Some(NAME.into()),
        resource_version: None,
        author: Author::Us,
        record: real_record(setup, claim, record),
        status_is_bound: record.status_is_bound,
        claim_was_bound: false,
        action: record.adopt_requested.then_some(Action::Adopt),
        release: record.release.map(real_release),
        created: Some(Timestamp::MIN),
        deleted: false,
        claim_ref: true,
        labelled: true,
    }
}

fn real_release(release: Release) -> RealRelease {
    let schedule = Schedule { at: Timestamp::UNIX_EPOCH, namespace_uid: Some(NAMESPACE.into()) };
    let (why, deleting) = match release {
        Release::Scheduled { deleting } => (Retained::Scheduled(schedule), deleting),
        Release::Vanished => (Retained::ClaimVanished, true),
        Release::Retained => (Retained::NotEmpty, false),
    };
    RealRelease { at: Timestamp::MIN, why, deleting }
}

pub(super) fn real_record(setup: &Setup, claim: Claim, record: &Record) -> crate::store::Record {
    let named_for = Claim { uid: record.names, ..claim };
    let planned = match real_class(setup, record.asks) {
        ClassLookup::Found(class) => plan::record(
            &Planner,
            &real_claim(named_for, record.asks),
            &class,
            (CLUSTER, &|_| Creator::Missing),
            Some(&Labels::new()),
        )
        .expect("it can be planned"),
        _ => unreachable!("the class is there"),
    };
    let claim = ClaimId { uid: record.uid.to_string(), ..planned.claim.clone() };
    let mode = if record.limited { AccessMode::ReadOnly } else { AccessMode::ReadWrite };
    let access = Access { mode, ..planned.plan.access.clone() };
    let changes = Changes { access: record.changes, ..Changes::default() };
    let plan = Plan { access, changes, ..planned.plan.clone() };
    crate::store::Record { claim, credentials_published: record.credentials_published, plan, ..planned }
}

fn real_class(setup: &Setup, asks: Asks) -> ClassLookup {
    let brownfield = (asks == Asks::Class).then(|| ("bucketName".to_owned(), "chosen".to_owned()));
    assert_eq!(brownfield.is_some(), setup.mode == Mode::Granted);
    let on_delete = setup.on_delete.map(|on_delete| ("onDelete".to_owned(), on_delete.to_owned()));
    ClassLookup::Found(Class {
        name: CLASS.into(),
        uid: None,
        provisioner: "model".into(),
        parameters: brownfield.into_iter().chain(on_delete).collect(),
        reclaim_policy: setup.reclaim_policy,
    })
}

fn real_claim(claim: Claim, asks: Asks) -> RealClaim {
    let spec = ObjectBucketClaimSpec {
        storage_class_name: CLASS.into(),
        object_bucket_name: claim.named.then(|| NAME.into()),
        bucket_name: (asks == Asks::Name).then(|| "chosen".into()),
        generate_bucket_name: match asks {
            Asks::Prefix => Some("first".into()),
            Asks::Edited => Some("second".into()),
            Asks::Name | Asks::Class => None,
        },
        additional_config: claim.limited.then(|| [("accessMode".to_owned(), "ReadOnly".to_owned())].into()),
    };
    let mut object = ObjectBucketClaim::new("claim", spec);
    object.metadata.uid = Some(claim.uid.to_string());
    object.metadata.finalizers = claim.finalizer.then(|| vec![wire::FINALIZER.to_owned()]);
    RealClaim::read(&Guard(Ok(object)), "model")
}

/// It only plans; the verbs are in `store.rs`.
pub(crate) struct Planner;

#[derive(Debug, thiserror::Error)]
#[error("never")]
pub(crate) struct Never;

impl Failure for Never {
    fn reason(&self) -> &'static str {
        "Never"
    }

    fn class(&self) -> FailureClass {
        FailureClass::Terminal
    }
}

impl Provisioner for Planner {
    type Parameters = ();
    type Owner = ();
    type Error = Never;

    const CAPABILITIES: Capabilities = Capabilities::NONE.with_access_modes();

    fn endpoint(&self, (): &()) -> Endpoint {
        Endpoint::new("store", 80).with_region("here")
    }

    /// Adds entries to ConfigMap and state that are named like the class.
    fn plan(&self, request: &Request<'_, ()>) -> Result<Plan, Never> {
        let (plan, name) = (request.plan(self.endpoint(request.parameters)), request.class_name);
        Ok(plan.with_output(name, "model").with_state(name, "model"))
    }

    async fn create_bucket(&self, _: &Call<'_, Self>) -> Result<(), CreateError<Never>> {
        Err(Never.into())
    }

    async fn grant(&self, _: &Call<'_, Self>) -> Result<AppCredentials, CreateError<Never>> {
        Err(Never.into())
    }

    async fn revoke(&self, _: &Call<'_, Self>) -> Result<AccessRemoval, Never> {
        Err(Never)
    }

    async fn delete_bucket(&self, _: &Call<'_, Self>, _: Content) -> Result<BucketRemoval, Never> {
        Err(Never)
    }
}
