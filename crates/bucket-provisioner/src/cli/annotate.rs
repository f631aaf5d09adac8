//! The annotation `objectbucket.io/orphan` on an ObjectBucket, and how the operator reacts to it. A command never
//! changes anything in the store: it annotates the ObjectBucket, and the operator applies the action by its own rules.

use std::error::Error;
use std::time::Duration;

use clap::ValueEnum;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{ListParams, Patch};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Session;
use super::session::refused;
use crate::api::{Condition, ConditionStatus, ObjectBucket, wire};
use crate::decide::action::{self, Action};
use crate::decide::claim::Claim;
use crate::decide::record;
use crate::reasons;
use crate::store::{ClaimId, Provisioner};
use operator_runtime::kubernetes::answers::status_code;

/// Pause between two reads of the pending ObjectBuckets.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many ObjectBuckets are read at the same time.
const AT_ONCE: usize = 16;

/// The actions, as values of flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ActionArg {
    /// Delete the access, and the bucket unless its reclaimPolicy is Retain
    Remove,
    /// Delete the access and keep the bucket
    Revoke,
    /// Delete only the ObjectBucket
    Forget,
    /// Give bucket and user to the claim that now has the recorded namespace and name
    Adopt,
}

impl ActionArg {
    pub(crate) fn action(self) -> Action {
        match self {
            Self::Remove => Action::Remove,
            Self::Revoke => Action::Revoke,
            Self::Forget => Action::Forget,
            Self::Adopt => Action::Adopt,
        }
    }
}

/// An ObjectBucket with the annotation, which the operator has not processed yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingAnnotation {
    pub(crate) record: String,
    pub(crate) uid: Option<String>,
    pub(crate) action: Action,
    /// The recorded claim.
    pub(crate) claim: ClaimId,
}

impl PendingAnnotation {
    /// What happens to the annotation when the command no longer waits.
    fn remains(&self) -> String {
        let (record, annotation) = (&self.record, wire::annotation::ORPHAN);
        format!(
            "the annotation stays, and the operator applies it later; to remove it: `kubectl annotate ob {record} {annotation}-`"
        )
    }
}

/// How far the operator has applied an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActionStatus {
    Done,
    /// The operator refuses, with this reason.
    Refused(String),
    /// The action is not applied yet; the last report of the operator.
    Pending(String),
}

/// The problem if an ObjectBucket, or its claim, has changed since the plan was made.
pub(crate) const CHANGED: &str =
    "it or its claim has changed since the plan was made, so nothing was done; run the command again";

/// The current ObjectBucket, if only its status has changed since it was read: the operator reports there.
///
/// # Errors
/// Something else has changed, or Kubernetes refused; a sentence for the admin.
pub(crate) async fn fresh<P: Provisioner>(session: &Session<P>, read: &ObjectBucket) -> Result<ObjectBucket, String> {
    let found = session.records().get_opt(&record::name(read)).await;
    let found = found.map_err(|error| refused("read the ObjectBucket", &error))?.and_then(|guard| guard.0.ok());
    let is_same = |found: &ObjectBucket| {
        found.spec == read.spec
            && found.metadata.uid == read.metadata.uid
            && found.metadata.annotations == read.metadata.annotations
    };
    found.filter(is_same).ok_or_else(|| CHANGED.to_owned())
}

/// Annotates an ObjectBucket, if it has not changed since it was read.
///
/// # Errors
/// It has changed, or Kubernetes refused; a sentence for the admin.
pub(crate) async fn annotate<P: Provisioner>(
    session: &Session<P>,
    object: &ObjectBucket,
    action: Action,
) -> Result<(), String> {
    let api: Api<ObjectBucket> = Api::all(session.client.clone());
    let metadata = &object.metadata;
    let patch = json!({ "metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "annotations": { wire::annotation::ORPHAN: action.word() },
    }});
    let params = session.field_manager.merges();
    match api.patch(&record::name(object), &params, &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(error) if matches!(status_code(&error), Some(404 | 409)) => Err(CHANGED.to_owned()),
        Err(error) => Err(refused("annotate the ObjectBucket", &error)),
    }
}

/// Creates an ObjectBucket with the annotation.
///
/// # Errors
/// One with this name exists already, or Kubernetes refused; a sentence for the admin.
pub(crate) async fn create<P: Provisioner>(
    session: &Session<P>,
    mut object: ObjectBucket,
    action: Action,
) -> Result<Option<String>, String> {
    let api: Api<ObjectBucket> = Api::all(session.client.clone());
    let annotation = (wire::annotation::ORPHAN.to_owned(), action.word().to_owned());
    object.metadata.annotations.get_or_insert_default().extend([annotation]);
    let params = session.field_manager.creates();
    match api.create(&params, &object).await {
        Ok(created) => Ok(created.metadata.uid),
        Err(error) if status_code(&error) == Some(409) => {
            let name = record::name(&object);
            Err(format!("ObjectBucket {name:?} was created meanwhile, so nothing was done; run the command again"))
        }
        Err(error) => Err(refused("create the ObjectBucket", &error)),
    }
}

/// Waits until the operator has applied or refused all actions. `report` gets the status of each, with its index. The
/// operator may process only a few at a time, so each status that is final restarts the time of the others.
///
/// # Errors
/// Those of `report`.
pub(crate) async fn wait<P: Provisioner>(
    session: &Session<P>,
    annotated: &[PendingAnnotation],
    timeout: Duration,
    mut report: impl FnMut(usize, ActionStatus) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut end = Instant::now() + timeout;
    let mut open: Vec<(usize, &PendingAnnotation)> = annotated.iter().enumerate().collect();
    while !open.is_empty() {
        let reads = open.drain(..).map(async |(index, pending)| (index, pending, status(session, pending).await));
        let statuses: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        if statuses.iter().any(|(_, _, status)| !matches!(status, ActionStatus::Pending(_))) {
            end = Instant::now() + timeout;
        }
        let has_time = Instant::now() < end;
        for (index, pending, status) in statuses {
            match status {
                ActionStatus::Pending(_) if has_time => open.push((index, pending)),
                ActionStatus::Pending(why) => {
                    report(index, ActionStatus::Pending(format!("{why}; {}", pending.remains())))?;
                }
                status => report(index, status)?,
            }
        }
        if !open.is_empty() {
            sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// The current status of one action. After a failed read it is pending: the next read may succeed.
async fn status<P: Provisioner>(session: &Session<P>, pending: &PendingAnnotation) -> ActionStatus {
    let status = match pending.action {
        Action::Adopt => adopted(session, pending).await,
        Action::Remove | Action::Revoke | Action::Forget => deleted(session, pending).await,
    };
    status.unwrap_or_else(|problem| ActionStatus::Pending(problem.to_string()))
}

async fn deleted<P: Provisioner>(
    session: &Session<P>,
    pending: &PendingAnnotation,
) -> Result<ActionStatus, Box<dyn Error>> {
    Ok(match read(session, pending).await? {
        None => ActionStatus::Done,
        Some(object) => reported(&object),
    })
}

async fn adopted<P: Provisioner>(
    session: &Session<P>,
    pending: &PendingAnnotation,
) -> Result<ActionStatus, Box<dyn Error>> {
    let Some(object) = read(session, pending).await? else {
        return Ok(ActionStatus::Refused("the ObjectBucket no longer exists".to_owned()));
    };
    let found = session.claims_in(&pending.claim.namespace).get_opt(&pending.claim.name).await;
    let Some(found) = found.map_err(|error| refused("read the claim", &error))? else { return Ok(reported(&object)) };
    let claim = Claim::read(&found, &session.label());
    if record::claim_uid(&object) != Some(&claim.id.uid) || action::action(&object) != Ok(None) {
        return Ok(reported(&object));
    }
    let ready = claim.status.conditions.iter().find(|condition| condition.type_ == reasons::READY);
    Ok(match ready {
        Some(ready) if ready.status == ConditionStatus::True => ActionStatus::Done,
        Some(ready) => ActionStatus::Pending(format!("{}: {}", ready.reason, ready.message)),
        None if claim.bound() => ActionStatus::Done,
        None => ActionStatus::Pending("the claim has no condition Ready yet".to_owned()),
    })
}

async fn read<P: Provisioner>(
    session: &Session<P>,
    pending: &PendingAnnotation,
) -> Result<Option<ObjectBucket>, Box<dyn Error>> {
    let api: Api<ObjectBucket> = Api::all(session.client.clone());
    let found = api.get_opt(&pending.record).await.map_err(|error| refused("read the ObjectBucket", &error))?;
    Ok(found.filter(|object| object.metadata.uid == pending.uid))
}

/// What the operator reports on an ObjectBucket. It has refused if it has removed the annotation.
fn reported(object: &ObjectBucket) -> ActionStatus {
    let ours =
        |condition: &&Condition| [reasons::ORPHANED, reasons::DELETION_SCHEDULED].contains(&condition.type_.as_str());
    let condition = object.status.iter().flat_map(|status| &status.conditions).find(ours);
    let report = condition.map(|condition| format!("{}: {}", condition.reason, condition.message));
    match (action::action(object), report) {
        (Ok(None), Some(report)) => ActionStatus::Refused(report),
        (_, Some(report)) => ActionStatus::Pending(report),
        (_, None) => ActionStatus::Pending("the ObjectBucket has no condition of the operator yet".to_owned()),
    }
}

/// Whether an operator serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperatorStatus {
    /// One serves, or the admin may not list Leases.
    Assumed,
    /// The Leases cannot be listed; the reason.
    Unknown(String),
    /// None serves; a sentence.
    Absent(String),
}

impl OperatorStatus {
    /// What the admin has to know before anything is annotated.
    pub(crate) fn warning(&self) -> Option<&str> {
        match self {
            Self::Assumed => None,
            Self::Unknown(why) | Self::Absent(why) => Some(why),
        }
    }
}

/// Checks whether an operator holds one of the session's leases.
pub(crate) async fn operator_status<P: Provisioner>(session: &Session<P>) -> OperatorStatus {
    let api: Api<Lease> = Api::all(session.client.clone());
    let mut leases = Vec::new();
    for name in &session.leases {
        match api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await {
            Ok(found) => leases.extend(found.items),
            Err(error) if status_code(&error) == Some(403) => return OperatorStatus::Assumed,
            Err(error) => return OperatorStatus::Unknown(refused("check whether an operator serves", &error)),
        }
    }
    let is_held = leases.iter().filter_map(|lease| lease.spec.as_ref()).any(|spec| {
        let renewed = spec.renew_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
        let valid = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or_default()));
        // Clocks of this machine and of the operator's may differ.
        let slack = SignedDuration::from_secs(60);
        let has_holder = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
        has_holder && Timestamp::now().duration_since(renewed) < valid + slack
    });
    if is_held {
        return OperatorStatus::Assumed;
    }
    let (names, provisioner) = (session.leases.join(" or "), &session.provisioner);
    OperatorStatus::Absent(format!(
        "no operator holds the lease {names}: the actions are applied when one serves {provisioner}"
    ))
}
