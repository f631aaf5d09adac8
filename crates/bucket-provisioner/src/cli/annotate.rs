//! The annotation `objectbucket.io/orphan` on an ObjectBucket, and how the operator reacts to it. A command never
//! changes anything in the store: it annotates the ObjectBucket, and the operator applies the action by its own rules.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use futures::stream::{self, StreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{ListParams, Patch};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::lease;
use super::session::{Session, refused};
use crate::api::{Condition, ConditionStatus, Guard, ObjectBucket, wire};
use crate::decide::action::{self, Action};
use crate::decide::claim::Claim;
use crate::decide::record;
use crate::reasons;
use crate::store::ClaimId;
use operator_runtime::kubernetes::answers::status_code;

/// Pause between two reads of the pending ObjectBuckets.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How many objects are read or annotated at the same time.
pub(crate) const AT_ONCE: usize = 16;
/// Clocks of this machine and of the operator's may differ by this.
const CLOCKS: SignedDuration = SignedDuration::from_secs(60);

impl ValueEnum for Action {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Remove, Self::Revoke, Self::Forget, Self::Adopt]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.word()).help(match self {
            Self::Remove => "Delete the access, and the bucket with all its content unless its reclaimPolicy is Retain or the claim was never Bound",
            Self::Revoke => "Delete the access and keep the bucket",
            Self::Forget => "Delete only the ObjectBucket",
            Self::Adopt => "Give bucket and user to the claim that now has the recorded namespace and name",
        }))
    }
}

/// The result of an action; the variants are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The operator has applied the action.
    Done,
    /// The ObjectBucket is annotated, and the command did not wait.
    Asked,
    /// Skipped.
    Left,
    /// The operator has not applied the action in time.
    Waiting,
    /// The action cannot be applied, or the operator refuses.
    Failed,
}

/// The problem if an ObjectBucket, or its claim, has changed since the plan was made.
pub(crate) const CHANGED: &str =
    "it or its claim has changed since the plan was made, so nothing was done; run the command again";

/// The annotation of one ObjectBucket.
#[derive(Debug, Clone)]
pub(crate) struct Annotation {
    pub(crate) action: Action,
    /// The recorded claim, or the one that adopts.
    pub(crate) claim: ClaimId,
    /// As it was read.
    pub(crate) object: ObjectBucket,
    /// The ObjectBucket is lost and must be created.
    pub(crate) is_new: bool,
}

impl AsRef<Self> for Annotation {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Annotation {
    pub(crate) fn record(&self) -> String {
        record::name(&self.object)
    }

    /// Reads the ObjectBucket again. Only its status may have changed since it was read: the operator reports there.
    ///
    /// # Errors
    /// Something else has changed, or Kubernetes refused; a sentence for the admin.
    pub(crate) async fn refresh<P>(&mut self, session: &Session<P>) -> Result<(), String> {
        let found = session.all::<Guard<ObjectBucket>>().get_opt(&self.record()).await;
        let found = found.map_err(refused("read the ObjectBucket"))?.and_then(|guard| guard.0.ok());
        let read = &self.object;
        let is_same = |found: &ObjectBucket| {
            found.spec == read.spec
                && found.metadata.uid == read.metadata.uid
                && found.metadata.annotations == read.metadata.annotations
        };
        self.object = found.filter(is_same).ok_or(CHANGED)?;
        Ok(())
    }

    /// Annotates the ObjectBucket, if it has not changed since it was read, or creates it with the annotation.
    ///
    /// # Errors
    /// It has changed or exists already, or Kubernetes refused; a sentence for the admin.
    pub(crate) async fn write<P>(&mut self, session: &Session<P>) -> Result<(), String> {
        let api: Api<ObjectBucket> = session.all();
        let (record, action) = (self.record(), self.action.word());
        let metadata = &mut self.object.metadata;
        if self.is_new {
            metadata.annotations.get_or_insert_default().insert(wire::annotation::ORPHAN.to_owned(), action.to_owned());
            let created = api.create(&session.field_manager.creates(), &self.object).await;
            self.object.metadata.uid = created
                .map_err(|error| match status_code(&error) {
                    Some(409) => format!(
                        "ObjectBucket {record:?} was created meanwhile, so nothing was done; run the command again"
                    ),
                    _ => refused("create the ObjectBucket")(error),
                })?
                .metadata
                .uid;
            return Ok(());
        }
        let patch = json!({ "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "annotations": { wire::annotation::ORPHAN: action },
        }});
        match api.patch(&record, &session.field_manager.merges(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => Err(CHANGED.to_owned()),
            Err(error) => Err(refused("annotate the ObjectBucket")(error)),
        }
    }

    /// How far the operator has applied the action, with its last report. After a failed read it is pending: the next
    /// read may succeed.
    async fn status<P>(&self, session: &Session<P>) -> (Outcome, String) {
        self.try_status(session).await.unwrap_or_else(|problem| (Outcome::Waiting, problem))
    }

    async fn try_status<P>(&self, session: &Session<P>) -> Result<(Outcome, String), String> {
        let found = session.all::<ObjectBucket>().get_opt(&self.record()).await;
        let found = found.map_err(refused("read the ObjectBucket"))?;
        let found = found.filter(|object| object.metadata.uid == self.object.metadata.uid);
        let object = match (found, self.action) {
            (None, Action::Adopt) => return Ok((Outcome::Failed, "the ObjectBucket no longer exists".to_owned())),
            (None, _) => return Ok((Outcome::Done, String::new())),
            (Some(object), Action::Adopt) => object,
            (Some(object), _) => return Ok(reported(&object)),
        };
        let found = session.find_claim(&self.claim.namespace, &self.claim.name).await?;
        let claim = found.map(|found| Claim::read(&found, &session.label()));
        let is_its = |claim: &Claim| record::claim_uid(&object) == Some(&claim.id.uid);
        let Some(claim) = claim.filter(is_its) else { return Ok(reported(&object)) };
        let ready = claim.condition(reasons::READY);
        Ok(match ready {
            // The operator has begun, and the claim reports what prevents the rest, such as a deleted bucket.
            Some(ready) if ready.status != ConditionStatus::True && ready.reason != reasons::ADOPTION_NEEDED => {
                (Outcome::Waiting, format!("the claim reports {}: {}", ready.reason, ready.message))
            }
            _ if action::action(&object) != Ok(None) => reported(&object),
            Some(ready) if ready.status == ConditionStatus::True => (Outcome::Done, String::new()),
            None if claim.bound() => (Outcome::Done, String::new()),
            _ => (Outcome::Waiting, "the claim does not report the adoption yet".to_owned()),
        })
    }

    /// What happens to the annotation when the command no longer waits.
    fn remains(&self) -> String {
        let (record, annotation) = (self.record(), wire::annotation::ORPHAN);
        format!(
            "unless the operator has applied the annotation, it stays, and is applied later; to remove it: `kubectl annotate ob {record} {annotation}-`"
        )
    }
}

/// Annotates ObjectBuckets with `write`, and waits until the operator has applied or refused all actions; without a
/// `timeout`, it does not wait. `report` gets the result of each. The operator may process only a few at a time, so each
/// result that is final restarts the time of the others. After an interrupt, as many as are annotated at the same time may
/// be annotated without a report.
///
/// # Errors
/// Those of `report`.
pub(crate) async fn apply<P, T: AsRef<Annotation>>(
    session: &Session<P>,
    all: Vec<T>,
    write: impl AsyncFn(&mut T) -> Result<(), String>,
    timeout: Option<Duration>,
    mut report: impl FnMut(&T, Outcome, String) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let (mut open, mut reported) = (Vec::new(), Ok(()));
    let written = stream::iter(all).map(async |mut one| {
        let done = write(&mut one).await;
        (one, done)
    });
    let mut written = pin!(written.buffered(AT_ONCE));
    while let Some((one, done)) = written.next().await {
        match done {
            Ok(()) if timeout.is_some() => open.push(one),
            Ok(()) => reported = reported.and(report(&one, Outcome::Asked, String::new())),
            Err(why) => reported = reported.and(report(&one, Outcome::Failed, why)),
        }
    }
    reported?;
    let timeout = timeout.unwrap_or_default();
    let mut end = Instant::now() + timeout;
    while !open.is_empty() {
        let reads = open.drain(..).map(async |one: T| (one.as_ref().status(session).await, one));
        let statuses: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        if statuses.iter().any(|((outcome, _), _)| *outcome != Outcome::Waiting) {
            end = Instant::now() + timeout;
        }
        let has_time = Instant::now() < end;
        for ((outcome, why), one) in statuses {
            match outcome {
                Outcome::Waiting if has_time => open.push(one),
                Outcome::Waiting => report(&one, outcome, format!("{why}; {}", one.as_ref().remains()))?,
                outcome => report(&one, outcome, why)?,
            }
        }
        if !open.is_empty() {
            sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// What the operator reports on an ObjectBucket. It has refused if it has removed the annotation.
fn reported(object: &ObjectBucket) -> (Outcome, String) {
    let ours =
        |condition: &&Condition| [reasons::ORPHANED, reasons::DELETION_SCHEDULED].contains(&condition.type_.as_str());
    let condition = object.status.iter().flat_map(|status| &status.conditions).find(ours);
    let report = condition.map(|condition| format!("{}: {}", condition.reason, condition.message));
    match (action::action(object), report) {
        (Ok(None), Some(report)) => (Outcome::Failed, format!("the operator refuses: {report}")),
        (_, Some(report)) => (Outcome::Waiting, report),
        (_, None) => (Outcome::Waiting, "the ObjectBucket has no condition of the operator yet".to_owned()),
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
pub(crate) async fn operator_status<P>(session: &Session<P>) -> OperatorStatus {
    let api: Api<Lease> = Api::all(session.client.clone());
    for name in &session.leases {
        match api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await {
            Ok(found) if found.iter().any(|found| lease::leads(found, Timestamp::now() - CLOCKS)) => {
                return OperatorStatus::Assumed;
            }
            Ok(_) => {}
            Err(error) if status_code(&error) == Some(403) => return OperatorStatus::Assumed,
            Err(error) => return OperatorStatus::Unknown(refused("check whether an operator serves")(error)),
        }
    }
    let (names, provisioner) = (session.leases.join(" or "), &session.provisioner);
    OperatorStatus::Absent(format!(
        "no operator holds the lease {names}: the actions are applied when one serves {provisioner}"
    ))
}
