//! All claims of this provisioner, read page by page. Only the fields that a row needs are kept.

use std::collections::HashMap;
use std::error::Error;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};

use super::row::{RecordFacts, Row, is_shown, is_unclear};
use super::scheduled::Scheduled;
use crate::api::{Guard, ObjectBucket};
use crate::cli::session::{self, Classes, Session};
use crate::decide::claim::Claim;
use crate::decide::keys::KeyNotes;
use crate::decide::{codec, metadata, record};
use crate::store::Provisioner;

/// How many unreadable claims are read once more for the class that they name. Tenants can write any number of them.
const UNCLEAR_MAX: usize = 100;

/// All claims, and what could not be read.
pub(crate) struct Seen {
    pub(crate) rows: Vec<Row>,
    pub(crate) scheduled: Vec<Scheduled>,
    pub(crate) unseen: Option<String>,
}

/// Reads all claims of this provisioner, in the order of a list.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn all<P: Provisioner>(session: &Session<P>) -> Result<Seen, Box<dyn Error>> {
    let label = session.label();
    let selector = format!("{}={label}", crate::api::wire::PROVISIONER_LABEL);
    let classes = session.classes().await?;
    let (records, scheduled) = records(session, &selector).await?;
    let (keys, unseen) = keys(session, &selector).await?;
    let now = Timestamp::now();
    let (mut rows, mut unclear) = (Vec::new(), Vec::new());
    let add = |claim: &Claim, class: Option<&str>, rows: &mut Vec<Row>| {
        let recorded = records.get(&claim.id.uid);
        let owner = classes.named(class).owner(&session.provisioner);
        if is_shown(claim, owner, recorded.is_some()) {
            rows.push(Row::new(claim, recorded, keys.get(&claim.id.uid), now));
        }
    };
    session::each(&session.claims(), None, "list ObjectBucketClaims", |guarded| {
        let claim = Claim::read(&guarded, &label);
        if is_unclear(&claim, records.contains_key(&claim.id.uid)) && unclear.len() < UNCLEAR_MAX {
            return unclear.push(claim);
        }
        let class = claim.spec().ok().map(|spec| spec.storage_class_name.clone());
        add(&claim, class.as_deref(), &mut rows);
    })
    .await?;
    for claim in unclear {
        let class = class_of_unreadable(session, &claim).await;
        add(&claim, class.as_deref(), &mut rows);
    }
    rows.sort_by(Row::before);
    Ok(Seen { rows, scheduled, unseen })
}

/// The class that a claim names.
pub(crate) async fn class_of<P: Provisioner>(session: &Session<P>, claim: &Claim) -> Option<String> {
    match claim.spec() {
        Ok(spec) => Some(spec.storage_class_name.clone()),
        Err(_) => class_of_unreadable(session, claim).await,
    }
}

/// Most claims that cannot be read still name a class.
async fn class_of_unreadable<P: Provisioner>(session: &Session<P>, claim: &Claim) -> Option<String> {
    let resource = ApiResource::erase::<crate::api::ObjectBucketClaim>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(session.client.clone(), &claim.id.namespace, &resource);
    let raw = api.get_opt(&claim.id.name).await.ok()??;
    raw.data.pointer("/spec/storageClassName")?.as_str().map(str::to_owned)
}

/// Whether `status` of this provisioner shows a claim.
pub(crate) fn shows<P>(session: &Session<P>, classes: &Classes, claim: &Claim, class: Option<&str>, own: bool) -> bool {
    is_shown(claim, classes.named(class).owner(&session.provisioner), own)
}

/// The ObjectBuckets of this provisioner by the uid of their claims, and the buckets that are scheduled for deletion.
async fn records<P: Provisioner>(
    session: &Session<P>,
    selector: &str,
) -> Result<(HashMap<String, RecordFacts>, Vec<Scheduled>), Box<dyn Error>> {
    let (mut all, mut scheduled) = (HashMap::new(), Vec::new());
    session::each(&session.records(), Some(selector), "list ObjectBuckets", |guard: Guard<ObjectBucket>| {
        let Ok(object) = guard.0 else { return };
        if !record::is_ours(&object, &session.provisioner) {
            return;
        }
        if let Some(uid) = record::claim_uid(&object) {
            all.insert(uid.to_owned(), facts(&object));
        }
        let is_chosen = |namespace: &String| session.namespace.as_ref().is_none_or(|chosen| chosen == namespace);
        scheduled.extend(Scheduled::read(&object).filter(|one| one.namespace.as_ref().is_none_or(is_chosen)));
    })
    .await?;
    Ok((all, scheduled))
}

/// The fields of an ObjectBucket that a row shows.
pub(crate) fn facts(object: &ObjectBucket) -> RecordFacts {
    RecordFacts {
        name: record::name(object),
        bucket: record::bucket(object).map(str::to_owned),
        class: object.spec.storage_class_name.clone(),
        rotation: codec::read(object).map(|stored| stored.record.plan.rotation).unwrap_or_default(),
    }
}

/// The annotations about keys by the uid of the claim, and what could not be read. Only metadata is read, no key.
async fn keys<P: Provisioner>(
    session: &Session<P>,
    selector: &str,
) -> Result<(HashMap<String, KeyNotes>, Option<String>), Box<dyn Error>> {
    let api: Api<Secret> = session.chosen();
    let mut all = HashMap::new();
    let listed = session::each_metadata(&api, Some(selector), |secret| {
        if let Some(uid) = metadata::controller(&secret) {
            all.insert(uid.to_owned(), KeyNotes::read(secret.annotations.as_ref()));
        }
    })
    .await;
    match listed {
        Ok(()) => Ok((all, None)),
        Err(error) if operator_runtime::kubernetes::answers::status_code(&error) == Some(403) => {
            let why = "you may not list Secrets, so the age of keys is not shown".to_owned();
            Ok((HashMap::new(), Some(why)))
        }
        Err(error) => Err(session::refused("list the Secrets of claims", &error).into()),
    }
}
