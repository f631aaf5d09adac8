//! Reads the details of one claim.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use serde::{Serialize, Serializer};

use super::row::{Attention, Row};
use super::scheduled::Scheduled;
use crate::api::{Condition, wire};
use crate::cli::disposition::{Disposition, Sharing, on_deletion, undecided};
use crate::cli::session::{self, Session, refused};
use crate::cli::view::{Classes, Records, View};
use crate::cli::{reasons, usage};
use crate::decide::claim::Claim;
use crate::decide::class::ClassLookup;
use crate::decide::keys::KeyNotes;
use crate::decide::record::Stored;
use crate::decide::{codec, keys, legacy, metadata, record, settings, teardown};
use crate::error::Error;
use crate::store::{Changes, ClaimId, Mode, PreviousAccess, Provisioner, Reason, Record, Settings, Usage};
use operator_runtime::kubernetes::answers::status_code;

/// Events that are shown, the latest.
const EVENTS: usize = 15;
/// Longest time for the store to report how much is in the bucket.
const STORE_TIME: Duration = Duration::from_secs(30);

/// A value, or why it is not known.
pub(crate) type Known<T> = Result<T, String>;

/// The names are documented in docs/command-line.md, so they stay.
fn known<T: Serialize, S: Serializer>(value: &Known<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Ok(value) => serializer.serialize_newtype_variant("Known", 0, "seen", value),
        Err(why) => serializer.serialize_newtype_variant("Known", 1, "unseen", why),
    }
}

/// All that is known about a claim.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClaimDetails {
    pub(crate) claim: Row,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) waits_for: Option<WaitsFor>,
    #[serde(serialize_with = "known")]
    pub(crate) record: Known<RecordDetails>,
    #[serde(serialize_with = "known")]
    pub(crate) keys: Known<Keys>,
    #[serde(serialize_with = "known")]
    pub(crate) usage: Known<Usage>,
    pub(crate) on_deletion: Vec<Disposition>,
    #[serde(serialize_with = "known")]
    pub(crate) events: Known<Vec<EventRow>>,
}

/// The reason of a claim that waits, as the table of reason codes explains it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitsFor {
    pub(crate) reason: String,
    pub(crate) meaning: &'static str,
    pub(crate) remedy: &'static str,
}

/// The contents of the ObjectBucket.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RecordDetails {
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) reclaim_policy: &'static str,
    pub(crate) mode: String,
    pub(crate) bucket: String,
    pub(crate) region: String,
    pub(crate) host: String,
    pub(crate) user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service_account: Option<String>,
    /// What the claim had before it was moved, and when that ends.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) previous_access: Vec<String>,
    pub(crate) account: Option<String>,
    pub(crate) owner_secret: Option<String>,
    pub(crate) owner_role: Option<String>,
    pub(crate) access_mode: &'static str,
    pub(crate) prefix: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
    /// Which of access and settings the store has not applied yet; in JSON, whether it is any of them.
    #[serde(rename = "isChanging", serialize_with = "is_any")]
    pub(crate) changes: Changes,
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

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventRow {
    pub(crate) at: Option<Time>,
    pub(crate) is_warning: bool,
    pub(crate) reason: String,
    pub(crate) note: String,
}

fn of_another(provisioner: &str, view: &View, claim: &Claim) -> String {
    let id = &claim.id;
    match view.classes.named(claim.class()) {
        ClassLookup::Found(class) if class.provisioner != provisioner => format!(
            "claim {id} belongs to another provisioner: its StorageClass {:?} names {:?}, not {provisioner:?}; if it is the wrong class, correct spec.storageClassName; if the class was meant for this operator, recreate the class",
            class.name, class.provisioner
        ),
        _ => {
            format!("claim {id} belongs to another provisioner than {provisioner}; set --provisioner-name to that one")
        }
    }
}

/// # Errors
/// Kubernetes refused, there is no such claim, or it belongs to another provisioner.
pub(crate) async fn of<P: Provisioner>(
    session: &Session<P>,
    namespace: &str,
    name: &str,
) -> Result<ClaimDetails, String> {
    let claim = session.find_claim(namespace, name).await?.map(|found| Claim::read(&found, &session.label()));
    let view = View {
        provisioner: session.provisioner.clone(),
        classes: Classes::read(session).await.map_err(refused("list StorageClasses"))?,
        claims: claim.into_iter().collect(),
        records: Records::read(session).await.map_err(refused("list ObjectBuckets"))?,
    };
    let Some(claim) = view.claims.first() else { return Err(absent(session, &view, namespace, name)) };
    if !view.is_shown(claim) {
        return Err(of_another(&session.provisioner, &view, claim));
    }
    let (notes, keys) = keys(session, claim).await;
    let row = Row::new(claim, view.record_of(claim), Some(&notes), Timestamp::now());
    let stored = view.record_of(claim).ok_or_else(|| "no ObjectBucket records this claim".to_owned());
    let mut stored = stored.and_then(|object| codec::read(object).map_err(|problem| problem.to_string()));
    let on_deletion = match &mut stored {
        Ok(stored) => match completed(session, &view, claim, stored.clone()) {
            Ok(completed) => {
                *stored = completed;
                on_deletion(stored, &sharing(session, &view, stored).await)
            }
            Err(problem) => undecided(stored, &problem.to_string()),
        },
        Err(_) => Vec::new(),
    };
    Ok(ClaimDetails {
        waits_for: waits_for::<P>(&row),
        conditions: claim.status.conditions.clone(),
        usage: match &stored {
            Ok(stored) => usage(session, &stored.record).await,
            Err(why) => Err(why.clone()),
        },
        on_deletion,
        record: stored.map(recorded),
        keys,
        events: events(session, claim).await,
        claim: row,
    })
}

/// An ObjectBucket of the Go provisioner as the operator completes it.
///
/// # Errors
/// Its class cannot be used.
fn completed<P: Provisioner>(
    session: &Session<P>,
    view: &View,
    claim: &Claim,
    stored: Stored,
) -> Result<Stored, Error> {
    let class = view.classes.named(Some(&stored.record.class_name));
    legacy::complete(&session.store, &session.provisioner, &class, claim, stored)
}

/// The problem of a claim that does not exist; its bucket may be scheduled for deletion.
fn absent<P>(session: &Session<P>, view: &View, namespace: &str, name: &str) -> String {
    let ours = view.records.all.iter().filter(|object| record::is_ours(object, &session.provisioner));
    let is_its = |one: &Scheduled| (one.namespace.as_deref(), one.name.as_deref()) == (Some(namespace), Some(name));
    let scheduled = ours.filter_map(Scheduled::read).rfind(is_its);
    scheduled.map_or_else(|| session::no_claim(namespace, name), |scheduled| scheduled.message())
}

/// The other ObjectBuckets that use the same bucket.
async fn sharing<P>(session: &Session<P>, view: &View, stored: &Stored) -> Vec<Sharing> {
    let others = view.records.all.iter().filter(|object| record::bucket(object) == Some(&stored.record.plan.bucket));
    let others = others.filter_map(|object| codec::read(object).ok()).filter(|other| other.name != stored.name);
    let mut sharing = Vec::new();
    for other in others.filter(|other| teardown::shares_bucket(stored, other, false)) {
        let ClaimId { namespace, name, uid } = &other.record.claim;
        let is_leaving = match other.record.plan.mode {
            // Without it, the message is that the bucket may be deleted.
            Mode::Created => session.find_claim(namespace, name).await.ok().flatten().is_some_and(|found| {
                let claim = Claim::read(&found, &session.label());
                claim.id.uid == *uid && claim.deleting
            }),
            Mode::Granted => false,
        };
        sharing.push(Sharing { stored: other, is_leaving });
    }
    sharing
}

fn is_any<S: Serializer>(changes: &Changes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bool(changes.any())
}

fn recorded(stored: Stored) -> RecordDetails {
    let previous_access = previous_access(&stored.record);
    let (by_us, is_handed_over) = (stored.by_us(), stored.published());
    let Record { account, class_name, reclaim_policy, plan, former_uids, .. } = stored.record;
    RecordDetails {
        name: stored.name,
        class: class_name,
        reclaim_policy: reclaim_policy.as_str(),
        mode: match (&plan.shared_from, plan.mode) {
            (Some(from), _) => format!("created for claim {}", from.name),
            (None, Mode::Created) => "created for this claim".to_owned(),
            (None, Mode::Granted) if !by_us => "created by the Go provisioner, or existed before the claim".to_owned(),
            (None, Mode::Granted) => "existed before the claim".to_owned(),
        },
        bucket: plan.bucket,
        region: plan.endpoint.region,
        host: plan.endpoint.url.unwrap_or(plan.endpoint.host),
        user: plan.user,
        service_account: plan.service_account.map(|account| account.name),
        previous_access,
        account,
        owner_secret: plan.owner.secret.map(|secret| secret.to_string()),
        owner_role: plan.owner.role.map(|role| role.name),
        access_mode: plan.access.mode.as_str(),
        settings: settings_of(&plan.settings),
        prefix: plan.access.prefix,
        changes: plan.changes,
        is_handed_over,
        former_claim_uids: former_uids,
    }
}

fn previous_access(record: &Record) -> Vec<String> {
    let one = |previous: &PreviousAccess| {
        let identity = previous.record(record).plan.identity().unwrap_or_else(|| "the provisioning keys".to_owned());
        match previous.ends_at {
            Some(ends_at) => format!("{identity}, until {}", keys::text(ends_at)),
            None => format!("{identity}, until apps have the new access"),
        }
    };
    record.previous_access.iter().map(one).collect()
}

fn settings_of(settings: &Settings) -> BTreeMap<String, String> {
    let all = settings.effective().into_iter();
    all.map(|(key, value)| (key.to_owned(), settings::shown(value))).collect()
}

/// The meaning of the reason of a claim that is not ready, and the remedy.
fn waits_for<P: Provisioner>(row: &Row) -> Option<WaitsFor> {
    let is_waiting = row.attention != Attention::None && !row.awaits_cleanup();
    let reason = row.reason.as_deref().filter(|_| is_waiting)?;
    let known = reasons::named::<P>(reason);
    let text = |text: fn(&Reason) -> &'static str| known.map(text).unwrap_or_default();
    Some(WaitsFor {
        reason: reason.to_owned(),
        meaning: text(|reason| reason.meaning),
        remedy: text(|reason| reason.remedy),
    })
}

/// The annotations about the claim's keys, and the ids of the keys. A Secret of that name that the claim does not own
/// is ignored.
async fn keys<P>(session: &Session<P>, claim: &Claim) -> (KeyNotes, Known<Keys>) {
    let unknown = |why: &str| (KeyNotes::default(), Err(why.to_owned()));
    let secret = match session.of::<Secret>(&claim.id.namespace).get_opt(&claim.id.name).await {
        Ok(Some(secret)) => secret,
        Ok(None) => return unknown("the claim has no Secret"),
        Err(error) if status_code(&error) == Some(403) => return unknown("you may not read its Secret"),
        Err(error) => return unknown(&refused("read the claim's Secret")(error)),
    };
    if metadata::controller(&secret.metadata) != Some(&claim.id.uid) {
        return unknown("the claim does not own the Secret of its name");
    }
    let notes = KeyNotes::read(secret.metadata.annotations.as_ref());
    let id = secret.data.as_ref().and_then(|data| data.get(wire::secret::ACCESS_KEY_ID));
    let present_id = id.map(|id| String::from_utf8_lossy(&id.0).into_owned());
    let former_id = notes.retiring.as_ref().map(|key| key.id.clone());
    let is_former_inactive = notes.retiring.as_ref().is_some_and(|key| key.inactive);
    (notes, Ok(Keys { present_id, former_id, is_former_inactive }))
}

async fn usage<P: Provisioner>(session: &Session<P>, record: &Record) -> Known<Usage> {
    match tokio::time::timeout(STORE_TIME, usage::usage(session, record)).await {
        Ok(Ok(usage)) => usage.ok_or_else(|| "this store does not report how much is in a bucket".to_owned()),
        Ok(Err(problem)) => Err(problem.why),
        Err(_elapsed) => Err("the store does not answer from here".to_owned()),
    }
}

async fn events<P>(session: &Session<P>, claim: &Claim) -> Known<Vec<EventRow>> {
    let about = format!("regarding.kind={},regarding.name={}", wire::CLAIM_KIND, claim.id.name);
    let params = ListParams::default().fields(&about).limit(500);
    let list = session.of::<Event>(&claim.id.namespace).list(&params).await.map_err(refused("list events"))?;
    let is_this = |event: &Event| {
        let regarding = event.regarding.as_ref().and_then(|regarding| regarding.uid.as_deref());
        regarding.is_none_or(|uid| uid == claim.id.uid)
    };
    let mut events: Vec<_> = list
        .into_iter()
        .filter(is_this)
        .map(|event| EventRow {
            at: event.event_time.map(|at| Time(at.0)).or(event.metadata.creation_timestamp),
            is_warning: event.type_.as_deref() == Some("Warning"),
            reason: event.reason.unwrap_or_default(),
            note: event.note.unwrap_or_default(),
        })
        .collect();
    events.sort_by(|one, other| one.at.cmp(&other.at));
    Ok(events.split_off(events.len().saturating_sub(EVENTS)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::status::render::render;
    use crate::cli::testing::Shelf;
    use crate::decide::testing::stored;
    use crate::store::{Access, AccessMode, Plan, RoleRef, SharedFrom};

    /// A bound claim with what is in its ObjectBucket, as text and as JSON.
    fn shown(change: impl FnOnce(&mut Plan)) -> (String, Value) {
        let mut stored = stored();
        change(&mut stored.record.plan);
        let details = details(json!({}), stored);
        let json = serde_json::to_value(&details).unwrap();
        (render(&details, Timestamp::UNIX_EPOCH), json["record"]["seen"].clone())
    }

    /// A bound claim with this in its metadata.
    fn details(metadata: Value, stored: Stored) -> ClaimDetails {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Bound", "message": "it is ready" });
        let mut claim = json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": { "name": "photos", "namespace": "shop", "uid": "f30e0389" },
            "spec": { "storageClassName": "fast", "bucketName": "photos-f30e0389" },
            "status": { "phase": "Bound", "conditions": [ready] },
        });
        claim["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let claim = Claim::read(&serde_json::from_value(claim).unwrap(), "ours");
        let row = Row::new(&claim, None, None, Timestamp::UNIX_EPOCH);
        ClaimDetails {
            waits_for: waits_for::<Shelf>(&row),
            claim: row,
            conditions: Vec::new(),
            record: Ok(recorded(stored)),
            keys: Err("the claim has no Secret".to_owned()),
            usage: Err("the store does not answer from here".to_owned()),
            on_deletion: Vec::new(),
            events: Ok(Vec::new()),
        }
    }

    #[test]
    fn a_deleted_claim_does_not_show_that_it_is_ready() {
        let page = |metadata: Value| render(&details(metadata, stored()), Timestamp::UNIX_EPOCH);
        let bound = page(json!({}));
        assert!(line(&bound, "Phase").unwrap().contains("Bound") && line(&bound, "Reason").is_none(), "{bound}");
        assert_eq!(line(&bound, "Message"), Some("it is ready"));
        let deleted = page(json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
        assert!(line(&deleted, "Phase").unwrap().contains("Bound, but deleted: no operator"), "{deleted}");
        assert_eq!((line(&deleted, "Message"), line(&deleted, "Meaning")), (None, None));
    }

    /// The text behind a heading.
    fn line<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
        let text = |line: &'a str| line.strip_prefix(heading)?.strip_prefix(':');
        page.lines().find_map(text).map(str::trim)
    }

    fn entries<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
        entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// The claim's own value takes precedence over that of its class.
    #[test]
    fn details_show_access_prefix_settings_and_lock() {
        let (page, json) = shown(|plan| {
            plan.access = Access::of_mode(AccessMode::WriteOnly).with_prefix("teams/shop/");
            plan.settings.of_class =
                entries([("expireAfter", "30d"), ("objectLock", "GOVERNANCE:30d"), ("tags", "team=shop")]);
            plan.settings.of_claim = entries([("expireAfter", "7d"), ("tags.app", "photos")]);
        });
        assert_eq!(line(&page, "Access"), Some("WriteOnly, only teams/shop/*"));
        let settings = "expireAfter=7d, objectLock=GOVERNANCE:30d, tags=team=shop, tags.app=photos";
        assert_eq!(line(&page, "Settings"), Some(settings));
        assert_eq!((&json["accessMode"], &json["prefix"]), (&json!("WriteOnly"), &json!("teams/shop/")));
        let settings = json!({
            "expireAfter": "7d", "objectLock": "GOVERNANCE:30d", "tags": "team=shop", "tags.app": "photos",
        });
        assert_eq!(json["settings"], settings);
        assert_eq!(json["isChanging"], false);
    }

    #[test]
    fn without_settings_only_the_access_is_shown() {
        let (page, json) = shown(|_| {});
        assert_eq!((line(&page, "Access"), line(&page, "Settings")), (Some("ReadWrite"), None));
        assert_eq!((&json["prefix"], &json["settings"]), (&Value::Null, &json!({})));
        assert_eq!((line(&page, "Assumed role"), &json["ownerRole"]), (None, &Value::Null));
    }

    #[test]
    fn a_change_that_the_store_lacks_is_marked() {
        let cases = [
            (Changes::ACCESS, "ReadOnly (not applied yet)", "expireAfter=7d"),
            (Changes::SETTINGS, "ReadOnly", "expireAfter=7d (not applied yet)"),
            (Changes::default(), "ReadOnly", "expireAfter=7d"),
        ];
        for (changes, access, settings) in cases {
            let (page, json) = shown(|plan| {
                plan.access.mode = AccessMode::ReadOnly;
                plan.settings.of_claim = entries([("expireAfter", "7d")]);
                plan.changes = changes;
            });
            assert_eq!((line(&page, "Access"), line(&page, "Settings")), (Some(access), Some(settings)));
            assert_eq!(json["isChanging"], json!(changes.any()));
        }
        let (page, _) = shown(|plan| plan.changes = Changes::SETTINGS);
        assert_eq!(line(&page, "Settings"), Some("none (not applied yet)"));
    }

    /// Rules can have 16 KiB.
    #[test]
    fn a_long_setting_is_cut() {
        let (page, json) = shown(|plan| plan.settings.of_class = entries([("bucketLifecycle", &"x".repeat(1000))]));
        let cut = json["settings"]["bucketLifecycle"].as_str().unwrap();
        assert!(cut.ends_with('…') && cut.chars().count() < 100, "{cut}");
        assert_eq!(line(&page, "Settings"), Some(&*format!("bucketLifecycle={cut}")));
    }

    #[test]
    fn the_role_and_the_claim_of_a_shared_bucket_are_named() {
        let role = "arn:aws:iam::123456789012:role/buckets";
        let (page, json) = shown(|plan| {
            plan.mode = Mode::Granted;
            plan.shared_from = Some(SharedFrom::new("loader", ["1".to_owned()]));
            plan.owner.role = Some(RoleRef::new(role).with_external_id("this-cluster"));
        });
        assert_eq!(line(&page, "Bucket"), Some("photos-f30e0389, created for claim loader"));
        assert_eq!((line(&page, "Assumed role"), &json["ownerRole"]), (Some(role), &json!(role)));
        assert!(!page.contains("this-cluster") && !json.to_string().contains("this-cluster"));
    }
}
