//! An admin's word on an ObjectBucket, and what the operator answers. A command never changes anything in the store: it
//! annotates the ObjectBucket, and the operator does the rest by its own rules.

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

/// How often the operator's answer is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How many answers are looked for side by side.
const AT_ONCE: usize = 16;

/// The words, as flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Word {
    /// Delete the access, and the bucket unless its reclaimPolicy is Retain.
    Remove,
    /// Delete the access, keep the bucket.
    Revoke,
    /// Delete only the ObjectBucket.
    Forget,
    /// Give bucket and user to the claim that has the recorded namespace and name now.
    Adopt,
}

impl Word {
    pub(crate) fn action(self) -> Action {
        match self {
            Self::Remove => Action::Remove,
            Self::Revoke => Action::Revoke,
            Self::Forget => Action::Forget,
            Self::Adopt => Action::Adopt,
        }
    }
}

/// An ObjectBucket that has the word.
#[derive(Debug, Clone)]
pub(crate) struct PendingAnnotation {
    pub(crate) record: String,
    pub(crate) uid: Option<String>,
    pub(crate) action: Action,
    /// The recorded claim.
    pub(crate) claim: ClaimId,
}

impl PendingAnnotation {
    /// What becomes of the word if nobody waits for the answer any longer.
    fn stays(&self) -> String {
        let (record, annotation) = (&self.record, wire::annotation::ORPHAN);
        format!(
            "the annotation stays, and the operator follows it later; to take it off: `kubectl annotate ob {record} {annotation}-`"
        )
    }
}

/// What the operator answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// The operator does not do it, and says why.
    Refused(String),
    /// It is not done yet; what the operator said last.
    NotYet(String),
}

/// What was said if an ObjectBucket, or its claim, is not what the plan was made for.
pub(crate) const CHANGED: &str =
    "it or its claim has changed since the plan was made, so nothing was done; run the command again";

/// The ObjectBucket as it is now, if only its status has changed since it was read: the operator writes reports there.
///
/// # Errors
/// It has changed, or Kubernetes refused; a sentence for the admin.
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

/// Annotates an ObjectBucket, if nobody has changed it since it was read.
///
/// # Errors
/// Somebody has, or Kubernetes refused; a sentence for the admin.
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

/// Creates an ObjectBucket with the word on it.
///
/// # Errors
/// There is one of this name already, or Kubernetes refused; a sentence for the admin.
pub(crate) async fn create<P: Provisioner>(
    session: &Session<P>,
    mut object: ObjectBucket,
    action: Action,
) -> Result<Option<String>, String> {
    let api: Api<ObjectBucket> = Api::all(session.client.clone());
    let word = (wire::annotation::ORPHAN.to_owned(), action.word().to_owned());
    object.metadata.annotations.get_or_insert_default().extend([word]);
    let params = session.field_manager.creates();
    match api.create(&params, &object).await {
        Ok(created) => Ok(created.metadata.uid),
        Err(error) if status_code(&error) == Some(409) => {
            let name = record::name(&object);
            Err(format!("ObjectBucket {name:?} has appeared meanwhile, so nothing was done; run the command again"))
        }
        Err(error) => Err(refused("create the ObjectBucket", &error)),
    }
}

/// Waits until the operator has done what it was told, or says that it does not. `answered` hears the answer to each word, by
/// its index. The operator may work at a few at a time, so each answer gives the rest the same time again.
///
/// # Errors
/// Those of `answered`.
pub(crate) async fn wait<P: Provisioner>(
    session: &Session<P>,
    given: &[PendingAnnotation],
    patience: Duration,
    mut answered: impl FnMut(usize, Answer) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut end = Instant::now() + patience;
    let mut open: Vec<(usize, &PendingAnnotation)> = given.iter().enumerate().collect();
    while !open.is_empty() {
        let looks = open.drain(..).map(async |(index, given)| (index, given, answer(session, given).await));
        let answers: Vec<_> = stream::iter(looks).buffered(AT_ONCE).collect().await;
        if answers.iter().any(|(_, _, answer)| !matches!(answer, Answer::NotYet(_))) {
            end = Instant::now() + patience;
        }
        let goes_on = Instant::now() < end;
        for (index, given, answer) in answers {
            match answer {
                Answer::NotYet(_) if goes_on => open.push((index, given)),
                Answer::NotYet(why) => answered(index, Answer::NotYet(format!("{why}; {}", given.stays())))?,
                answer => answered(index, answer)?,
            }
        }
        if !open.is_empty() {
            sleep(LOOK).await;
        }
    }
    Ok(())
}

/// The answer to one word, as it is now. A failed look is no answer: the next one may succeed.
async fn answer<P: Provisioner>(session: &Session<P>, given: &PendingAnnotation) -> Answer {
    let answer = match given.action {
        Action::Adopt => adopted(session, given).await,
        Action::Remove | Action::Revoke | Action::Forget => gone(session, given).await,
    };
    answer.unwrap_or_else(|problem| Answer::NotYet(problem.to_string()))
}

async fn gone<P: Provisioner>(session: &Session<P>, given: &PendingAnnotation) -> Result<Answer, Box<dyn Error>> {
    Ok(match read(session, given).await? {
        None => Answer::Done,
        Some(object) => said(&object),
    })
}

async fn adopted<P: Provisioner>(session: &Session<P>, given: &PendingAnnotation) -> Result<Answer, Box<dyn Error>> {
    let Some(object) = read(session, given).await? else {
        return Ok(Answer::Refused("the ObjectBucket is gone".to_owned()));
    };
    let found = session.claims_in(&given.claim.namespace).get_opt(&given.claim.name).await;
    let Some(found) = found.map_err(|error| refused("read the claim", &error))? else { return Ok(said(&object)) };
    let claim = Claim::read(&found, &session.label());
    if record::claim_uid(&object) != Some(&claim.id.uid) || action::action(&object) != Ok(None) {
        return Ok(said(&object));
    }
    let ready = claim.status.conditions.iter().find(|condition| condition.type_ == reasons::READY);
    Ok(match ready {
        Some(ready) if ready.status == ConditionStatus::True => Answer::Done,
        Some(ready) => Answer::NotYet(format!("{}: {}", ready.reason, ready.message)),
        None if claim.bound() => Answer::Done,
        None => Answer::NotYet("the claim says nothing yet".to_owned()),
    })
}

async fn read<P: Provisioner>(
    session: &Session<P>,
    given: &PendingAnnotation,
) -> Result<Option<ObjectBucket>, Box<dyn Error>> {
    let api: Api<ObjectBucket> = Api::all(session.client.clone());
    let found = api.get_opt(&given.record).await.map_err(|error| refused("read the ObjectBucket", &error))?;
    Ok(found.filter(|object| object.metadata.uid == given.uid))
}

/// What the operator says on an ObjectBucket: it has refused if it has taken the word off.
fn said(object: &ObjectBucket) -> Answer {
    let ours =
        |condition: &&Condition| [reasons::ORPHANED, reasons::DELETION_SCHEDULED].contains(&condition.type_.as_str());
    let condition = object.status.iter().flat_map(|status| &status.conditions).find(ours);
    let says = condition.map(|condition| format!("{}: {}", condition.reason, condition.message));
    match (action::action(object), says) {
        (Ok(None), Some(says)) => Answer::Refused(says),
        (_, Some(says)) => Answer::NotYet(says),
        (_, None) => Answer::NotYet("the operator has said nothing yet".to_owned()),
    }
}

/// Whether an operator serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Service {
    /// One does, or the admin may not see whether one does.
    Assumed,
    /// Why that cannot be seen.
    Unknown(String),
    /// None does; a sentence.
    Nobody(String),
}

impl Service {
    /// What the admin has to know before anything is asked for.
    pub(crate) fn warning(&self) -> Option<&str> {
        match self {
            Self::Assumed => None,
            Self::Unknown(why) | Self::Nobody(why) => Some(why),
        }
    }
}

/// Looks whether an operator serves.
pub(crate) async fn service<P: Provisioner>(session: &Session<P>) -> Service {
    let api: Api<Lease> = Api::all(session.client.clone());
    let mut leases = Vec::new();
    for name in &session.leases {
        match api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await {
            Ok(found) => leases.extend(found.items),
            Err(error) if status_code(&error) == Some(403) => return Service::Assumed,
            Err(error) => return Service::Unknown(refused("see whether an operator serves", &error)),
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
        return Service::Assumed;
    }
    let (names, provisioner) = (session.leases.join(" or "), &session.provisioner);
    Service::Nobody(format!(
        "no operator holds the lease {names}: what is asked for is done when one serves {provisioner}"
    ))
}
