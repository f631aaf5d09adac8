//! Reads the details of one claim.

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use super::gather;
use super::row::{Attention, Row};
use super::scheduled::Scheduled;
use crate::api::{Condition, Guard, ObjectBucket, wire};
use crate::cli::disposition::{Disposition, on_deletion};
use crate::cli::output::At;
use crate::cli::session::{self, Session, refused};
use crate::cli::usage;
use crate::decide::claim::Claim;
use crate::decide::keys::KeyNotes;
use crate::decide::record::Stored;
use crate::decide::{codec, metadata, record, teardown};
use crate::store::{Mode, Provisioner, Record};
use operator_runtime::kubernetes::answers::status_code;

/// Events that are shown, the latest.
const EVENTS: usize = 15;
/// Longest time for the store to report how much is in the bucket.
const STORE_TIME: Duration = Duration::from_secs(30);

/// A value, or why it could not be read. The names in JSON are documented in docs/tools.md, so they stay.
#[derive(Debug, Clone, Serialize)]
pub(crate) enum Lookup<T> {
    #[serde(rename = "seen")]
    Value(T),
    #[serde(rename = "unseen")]
    Unavailable(String),
}

/// All that is known about a claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimDetails {
    pub(crate) claim: Row,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) waits_for: Option<WaitsFor>,
    pub(crate) record: Lookup<RecordDetails>,
    pub(crate) keys: Lookup<Keys>,
    pub(crate) usage: Lookup<Usage>,
    pub(crate) on_deletion: Vec<Disposition>,
    pub(crate) events: Lookup<Vec<EventRow>>,
}

/// The reason of a claim that waits, as the table of reason codes explains it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitsFor {
    pub(crate) reason: String,
    pub(crate) meaning: String,
    pub(crate) remedy: String,
}

/// The contents of the ObjectBucket.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordDetails {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) reclaim_policy: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) bucket: String,
    pub(crate) region: String,
    pub(crate) host: String,
    pub(crate) user: Option<String>,
    pub(crate) account: Option<String>,
    pub(crate) owner_secret: Option<String>,
    pub(crate) is_handed_over: bool,
    pub(crate) former_claim_uids: Vec<String>,
}

/// The claim's keys: ids only.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Keys {
    pub(crate) present_id: Option<String>,
    pub(crate) former_id: Option<String>,
    pub(crate) is_former_inactive: bool,
}

/// How much is in the bucket.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) is_complete: bool,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventRow {
    pub(crate) at: Option<At>,
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) note: String,
}

/// The message for a deleted claim whose bucket will be deleted later.
async fn deleted<P: Provisioner>(session: &Session<P>, namespace: &str, name: &str) -> Option<String> {
    let mut found = None;
    let records = session.records();
    let each = session::each(&records, None, "list ObjectBuckets", |guard: Guard<ObjectBucket>| {
        let ours = guard.0.ok().filter(|object| record::is_ours(object, &session.provisioner));
        let scheduled = ours.as_ref().and_then(Scheduled::read);
        let is_its = |one: &Scheduled| (one.namespace.as_deref(), one.name.as_deref()) == (Some(namespace), Some(name));
        found = scheduled.filter(is_its).or(found.take());
    });
    each.await.ok()?;
    Some(found?.message())
}

/// # Errors
/// Kubernetes refused, there is no such claim, or it belongs to another provisioner.
pub(crate) async fn of<P: Provisioner>(
    session: &Session<P>,
    namespace: &str,
    name: &str,
) -> Result<ClaimDetails, Box<dyn Error>> {
    let guarded = match session.claim(namespace, name).await {
        Ok(guarded) => guarded,
        Err(problem) => return Err(deleted(session, namespace, name).await.map_or(problem, Into::into)),
    };
    let claim = Claim::read(&guarded, &session.label());
    let records = Records::read(session, &claim).await?;
    let class = gather::class_of(session, &claim).await;
    if !gather::shows(session, &session.classes().await?, &claim, class.as_deref(), records.own.is_some()) {
        return Err(format!(
            "claim {namespace}/{name} belongs to another provisioner than {}; set --provisioner-name to that one",
            session.provisioner
        )
        .into());
    }
    let (notes, keys) = keys(session, &claim).await;
    let facts = records.own.as_ref().map(gather::facts);
    let row = Row::new(&claim, facts.as_ref(), Some(&notes), Timestamp::now());
    let stored = match &records.own {
        None => Err("no ObjectBucket records this claim".to_owned()),
        Some(object) => codec::read(object).map_err(|problem| problem.to_string()),
    };
    let usage = match &stored {
        Ok(stored) => usage(session, &stored.record).await,
        Err(why) => Lookup::Unavailable(why.clone()),
    };
    Ok(ClaimDetails {
        waits_for: waits_for::<P>(&row),
        conditions: claim.status.conditions.clone(),
        on_deletion: stored.as_ref().map(|s| on_deletion(s, &records.sharing(s))).unwrap_or_default(),
        record: stored.map_or_else(Lookup::Unavailable, |stored| Lookup::Value(recorded(&stored))),
        keys,
        usage,
        events: events(session, &claim).await,
        claim: row,
    })
}

/// The ObjectBucket of a claim, and those that may name its bucket.
struct Records {
    own: Option<ObjectBucket>,
    others: Vec<ObjectBucket>,
}

impl Records {
    /// Of all ObjectBuckets, keeps those with the claim's bucket.
    async fn read<P: Provisioner>(session: &Session<P>, claim: &Claim) -> Result<Self, Box<dyn Error>> {
        let (mut own, mut others) = (None, Vec::new());
        let named = claim.spec().ok().and_then(|spec| spec.bucket_name.clone());
        session::each(&session.records(), None, "list ObjectBuckets", |guard: Guard<ObjectBucket>| {
            let Ok(object) = guard.0 else { return };
            let bucket = record::bucket(&object).map(str::to_owned);
            let is_ours = record::is_ours(&object, &session.provisioner);
            if is_ours && record::claim_uid(&object) == Some(&claim.id.uid) {
                own = Some(object);
            } else if bucket.is_some() && bucket == named {
                others.push(object);
            }
        })
        .await?;
        Ok(Self { own, others })
    }

    /// Names of the other ObjectBuckets that use the same bucket.
    fn sharing(&self, stored: &Stored) -> Vec<String> {
        let others = self.others.iter().filter_map(|object| codec::read(object).ok());
        others.filter(|other| teardown::shares_bucket(stored, other, false)).map(|other| other.name).collect()
    }
}

fn recorded(stored: &Stored) -> RecordDetails {
    let Record { account, credentials_published, class_name, reclaim_policy, plan, former_uids, .. } =
        stored.record.clone();
    RecordDetails {
        name: stored.name.clone(),
        class: class_name,
        reclaim_policy: reclaim_policy.as_str(),
        mode: match plan.mode {
            Mode::Created => "created for this claim",
            Mode::Granted => "existed before the claim",
        },
        bucket: plan.bucket,
        region: plan.endpoint.region,
        host: plan.endpoint.url.unwrap_or(plan.endpoint.host),
        user: plan.user,
        account,
        owner_secret: plan.owner_secret.map(|secret| secret.to_string()),
        is_handed_over: credentials_published,
        former_claim_uids: former_uids,
    }
}

/// The meaning of the reason of a claim that is not ready, and the remedy.
fn waits_for<P: Provisioner>(row: &Row) -> Option<WaitsFor> {
    let reason = row.reason.as_deref().filter(|_| row.attention != Attention::None)?;
    let found = crate::reasons::all().chain(P::REASONS.iter().copied()).find(|known| known.name == reason);
    Some(WaitsFor {
        reason: reason.to_owned(),
        meaning: found.map_or_else(String::new, |known| known.meaning.to_owned()),
        remedy: found.map_or_else(String::new, |known| known.remedy.to_owned()),
    })
}

/// The annotations about the claim's keys, and the ids of the keys. A Secret of that name that the claim does not own
/// is ignored.
async fn keys<P: Provisioner>(session: &Session<P>, claim: &Claim) -> (KeyNotes, Lookup<Keys>) {
    let api: Api<Secret> = Api::namespaced(session.client.clone(), &claim.id.namespace);
    let unseen = |why: String| (KeyNotes::default(), Lookup::Unavailable(why));
    let secret = match api.get_opt(&claim.id.name).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return unseen("the claim has no Secret".to_owned()),
        Err(error) if status_code(&error) == Some(403) => return unseen("you may not read its Secret".to_owned()),
        Err(error) => return unseen(refused("read the claim's Secret", &error)),
    };
    if metadata::controller(&secret.metadata) != Some(&claim.id.uid) {
        return unseen("the claim does not own the Secret of its name".to_owned());
    }
    let notes = KeyNotes::read(secret.metadata.annotations.as_ref());
    let id = secret.data.as_ref().and_then(|data| data.get(wire::secret::ACCESS_KEY_ID));
    let present_id = id.map(|id| String::from_utf8_lossy(&id.0).into_owned());
    let former_id = notes.retiring.as_ref().map(|key| key.id.clone());
    let is_former_inactive = notes.retiring.as_ref().is_some_and(|key| key.inactive);
    (notes, Lookup::Value(Keys { present_id, former_id, is_former_inactive }))
}

async fn usage<P: Provisioner>(session: &Session<P>, record: &Record) -> Lookup<Usage> {
    match tokio::time::timeout(STORE_TIME, counted(session, record)).await {
        Ok(Ok(usage)) => Lookup::Value(usage),
        Ok(Err(why)) => Lookup::Unavailable(why),
        Err(_) => Lookup::Unavailable("the store does not answer from here".to_owned()),
    }
}

/// # Errors
/// Why the usage is not known.
async fn counted<P: Provisioner>(session: &Session<P>, record: &Record) -> Result<Usage, String> {
    let usage = usage::usage(session, record).await.map_err(|problem| problem.to_string())?;
    let usage = usage.ok_or("this store does not report how much is in a bucket")?;
    Ok(Usage { objects: usage.objects, bytes: usage.bytes, is_complete: usage.is_complete })
}

async fn events<P: Provisioner>(session: &Session<P>, claim: &Claim) -> Lookup<Vec<EventRow>> {
    let api: Api<Event> = Api::namespaced(session.client.clone(), &claim.id.namespace);
    let about = format!("regarding.kind={},regarding.name={}", wire::CLAIM_KIND, claim.id.name);
    let list = match api.list(&ListParams::default().fields(&about).limit(500)).await {
        Ok(list) => list.items,
        Err(error) => return Lookup::Unavailable(refused("list events", &error)),
    };
    let is_this = |event: &Event| {
        let regarding = event.regarding.as_ref().and_then(|regarding| regarding.uid.as_deref());
        regarding.is_none_or(|uid| uid == claim.id.uid)
    };
    let mut events: Vec<_> = list
        .into_iter()
        .filter(is_this)
        .map(|event| EventRow {
            at: event.event_time.map(|at| At(at.0)).or(event.metadata.creation_timestamp.map(|at| At(at.0))),
            is_warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.unwrap_or_default(),
            note: event.note.unwrap_or_default(),
        })
        .collect();
    events.sort_by_key(|event| event.at);
    Lookup::Value(events.split_off(events.len().saturating_sub(EVENTS)))
}
