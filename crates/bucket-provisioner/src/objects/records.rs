//! ObjectBuckets in the cluster: reading, writing and deleting the record of a claim.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::Patch;
use serde_json::{Value, json};

use crate::api::{BucketPhase, Guard, ObjectBucket, wire};
use crate::decide::action::{self, Action};
use crate::decide::codec;
use crate::decide::lookup::Candidate;
use crate::decide::notice::Notice;
use crate::decide::record::{self, Author, Stored};
use crate::decide::release::{self, Release, Retained};
use crate::decide::report::Severity;
use crate::error::Error;
use crate::objects::status::{self, patch_status};
use crate::objects::{deletion, events};
use crate::state::context::Context;
use crate::store::Record;

/// How many are read at the same time.
const AT_ONCE: usize = 8;

/// Reads the ObjectBuckets of these names from the cluster, because everything that is created or removed depends on
/// them.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read_all<P>(ctx: &Context<P>, names: Vec<String>) -> Result<Vec<Candidate>, Error> {
    let reads = names.into_iter().map(|name| read_candidate(ctx, name));
    stream::iter(reads).buffered(AT_ONCE).try_collect().await
}

/// An ObjectBucket that was listed or read.
pub(super) fn candidate(object: Guard<ObjectBucket>) -> Candidate {
    Candidate { name: object.name_any(), object: Some(object.0.map_err(|invalid| invalid.error)) }
}

/// Reads one of them.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read_candidate<P>(ctx: &Context<P>, name: String) -> Result<Candidate, Error> {
    let object = ctx.records().get_opt(&name).await.map_err(Error::kubernetes("read the ObjectBucket"))?;
    Ok(object.map_or(Candidate { name, object: None }, candidate))
}

/// Writes a new record. Fails with a conflict if the name is no longer free.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn create<P>(ctx: &Context<P>, name: String, record: Record) -> Result<Stored, Error> {
    let params = ctx.field_manager.creates();
    let created =
        ctx.record_writer().create(&params, &codec::to_object(&record, &name, &ctx.options.provisioner_name)).await;
    let created = created.map_err(Error::kubernetes("write the ObjectBucket"))?;
    ctx.caches.records.wrote(&created);
    ctx.caches.records.wrote_claim_ref(record::has_claim_ref(&created));
    let metadata = created.metadata;
    Ok(Stored {
        name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        author: Author::Us,
        record,
        status_is_bound: false,
        claim_was_bound: false,
        action: None,
        release: None,
        created: metadata.creation_timestamp.map(|created| created.0),
        deleted: false,
        claim_ref: true,
        labelled: true,
    })
}

/// Writes what can change in a record: its claim, cluster and account, and whether its credentials were published.
///
/// # Errors
/// Kubernetes refused, also because another record has the name now.
pub(crate) async fn change<P>(ctx: &Context<P>, stored: &mut Stored, record: Record) -> Result<(), Error> {
    let patch = codec::change(stored, &record);
    write(ctx, stored, &patch).await?;
    stored.record = record;
    Ok(())
}

/// Writes what the keys of a claim may do, or that the store has applied that.
///
/// # Errors
/// Kubernetes refused, also because the ObjectBucket was changed since it was read.
pub(crate) async fn record_edit<P>(ctx: &Context<P>, stored: &mut Stored, record: Record) -> Result<(), Error> {
    let mut patch = codec::change(stored, &record);
    patch["metadata"]["resourceVersion"] = json!(stored.resource_version);
    write(ctx, stored, &patch).await.map(|()| stored.record = record)
}

/// Reads one ObjectBucket; `None` if it does not exist or cannot be read.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read<P>(ctx: &Context<P>, name: &str) -> Result<Option<ObjectBucket>, Error> {
    Ok(read_candidate(ctx, name.to_owned()).await?.object.and_then(Result::ok))
}

/// Writes a whole record into an existing ObjectBucket.
///
/// # Errors
/// Kubernetes refused, also because the ObjectBucket was changed since it was read.
pub(crate) async fn rewrite<P>(ctx: &Context<P>, object: &ObjectBucket, record: &Record) -> Result<Stored, Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let whole = codec::to_object(record, &name, &ctx.options.provisioner_name);
    let patch = json!({
        "metadata": {
            "uid": object.metadata.uid,
            "resourceVersion": object.metadata.resource_version,
            "labels": whole.metadata.labels,
        },
        "spec": whole.spec,
    });
    codec::read(&merge(ctx, &name, &patch).await?)
}

/// Reports something on an ObjectBucket, as a condition, an event and a log line, unless the condition exists already.
/// Returns the version of the ObjectBucket, if it was written.
///
/// # Errors
/// Kubernetes refused the condition.
pub(crate) async fn report<P>(
    ctx: &Context<P>,
    object: &ObjectBucket,
    notice: &Notice,
) -> Result<Option<String>, Error> {
    let current = object.status.clone().unwrap_or_default();
    let Some(conditions) = notice.added_to(&current.conditions, &status::now()) else { return Ok(None) };
    let name = object.metadata.name.clone().unwrap_or_default();
    let Notice { reason, message, severity, .. } = notice;
    if *severity == Severity::Warning {
        tracing::warn!(reason, record = name, "{message}");
    } else {
        tracing::info!(reason, record = name, "{message}");
    }
    let known = current.conditions.iter().any(|condition| condition.reason == *reason);
    let mut status = json!({ "conditions": conditions });
    if release::is_released(object) {
        status["phase"] = json!(BucketPhase::Released);
    }
    let mut patch = json!({ "metadata": { "uid": object.metadata.uid }, "status": status });
    if *severity == Severity::Progress {
        // What follows rests on the ObjectBucket as it was read: a claim may have got it since then.
        patch["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
    }
    let answer = patch_status(&ctx.records(), &name, &ctx.field_manager.merges(), &patch).await;
    let written = answer.map_err(Error::kubernetes("write the ObjectBucket's status"))?;
    // Of progress only the beginning is an event.
    if *severity != Severity::Progress || !known {
        events::record_event(ctx, &name, object.metadata.uid.as_deref(), *severity, reason, message).await;
    }
    Ok(written.resource_version())
}

/// Writes why an ObjectBucket outlives its claim, and removes an admin's annotation that was followed.
///
/// # Errors
/// Kubernetes refused; a conflict if the ObjectBucket was changed since it was read, because a claim may have adopted
/// it.
pub(crate) async fn release<P>(ctx: &Context<P>, stored: &mut Stored, release: Release) -> Result<(), Error> {
    let mut patch = codec::release(stored, Some(&release));
    patch["metadata"]["resourceVersion"] = json!(stored.resource_version);
    if release.access_is_gone() {
        patch["spec"]["additionalState"][wire::state::PREVIOUS_ACCESS] = json!(null);
        stored.record.previous_access.clear();
    }
    if stored.action.is_some() && !release.deleting {
        patch["metadata"]["annotations"] = json!({ wire::annotation::ORPHAN: null });
        stored.action = None;
    }
    write(ctx, stored, &patch).await?;
    stored.release = Some(release);
    Ok(())
}

/// Sets another time for the deletion of the bucket.
///
/// # Errors
/// As [`release`].
pub(crate) async fn postpone<P>(ctx: &Context<P>, stored: &mut Stored, until: Timestamp) -> Result<(), Error> {
    let Some(mut postponed) = stored.release.clone() else { return Ok(()) };
    if let Retained::Scheduled(schedule) = &mut postponed.why {
        schedule.at = until;
    }
    release(ctx, stored, postponed).await
}

/// Removes the admin's annotation from a record, after it was followed or refused.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn remove_annotation<P>(ctx: &Context<P>, stored: &mut Stored) -> Result<(), Error> {
    let patch = json!({ "metadata": { "uid": stored.uid, "annotations": { wire::annotation::ORPHAN: null } } });
    write(ctx, stored, &patch).await?;
    stored.action = None;
    Ok(())
}

/// Gives a record to another claim: the decisive write of an adoption.
///
/// # Errors
/// As [`change`], and a conflict if the record was changed since it was read.
pub(crate) async fn transfer<P>(ctx: &Context<P>, stored: &mut Stored, record: Record) -> Result<(), Error> {
    let mut patch = codec::change(stored, &record);
    patch["metadata"]["resourceVersion"] = json!(stored.resource_version);
    if stored.release.take().is_some() {
        let Value::Object(entries) = Release::write(None) else { unreachable!("an object is written") };
        patch["spec"]["additionalState"].as_object_mut().into_iter().for_each(|state| state.extend(entries.clone()));
        // As if an admin had requested it: any later attempt finishes the adoption.
        patch["metadata"]["annotations"] = json!({ wire::annotation::ORPHAN: wire::annotation::ORPHAN_ADOPT });
        stored.action = Some(Action::Adopt);
    }
    write(ctx, stored, &patch).await?;
    stored.record = record;
    Ok(())
}

async fn write<P>(ctx: &Context<P>, stored: &mut Stored, patch: &Value) -> Result<(), Error> {
    let written = merge(ctx, &stored.name, patch).await?;
    stored.claim_ref = record::has_claim_ref(&written);
    stored.resource_version = written.metadata.resource_version;
    Ok(())
}

async fn merge<P>(ctx: &Context<P>, name: &str, patch: &Value) -> Result<ObjectBucket, Error> {
    let params = ctx.field_manager.merges();
    let written = ctx.record_writer().patch(name, &params, &Patch::Merge(patch)).await;
    let written = written.map_err(Error::kubernetes("write the ObjectBucket"))?;
    ctx.caches.records.wrote(&written);
    if patch.pointer("/spec/claimRef").is_some() {
        ctx.caches.records.wrote_claim_ref(record::has_claim_ref(&written));
    }
    Ok(written)
}

/// Writes into the record's status that it is bound, for people and other tools.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn mark_bound<P>(ctx: &Context<P>, stored: &mut Stored) -> Result<(), Error> {
    let patch = json!({ "metadata": { "uid": stored.uid }, "status": { "phase": BucketPhase::Bound } });
    let answer = patch_status(&ctx.records(), &stored.name, &ctx.field_manager.merges(), &patch).await;
    answer.map_err(Error::kubernetes("write the ObjectBucket's status"))?;
    stored.status_is_bound = true;
    Ok(())
}

/// Deletes the record of a deleted claim, unless its spec has changed since it was read: a claim may have adopted it.
/// Succeeds if it no longer exists. Returns whether it does not.
///
/// # Errors
/// Kubernetes refused; a conflict if it was changed at this moment.
pub(crate) async fn delete_orphan<P>(ctx: &Context<P>, stored: &Stored) -> Result<bool, Error> {
    let (api, name) = (ctx.records(), &stored.name);
    let found = api.get_opt(name).await.map_err(Error::kubernetes("read the ObjectBucket"))?;
    let Some(found) = found else { return Ok(true) };
    let Ok(object) = found.0 else { return Ok(false) };
    let is_same = object.metadata.uid == stored.uid
        && record::claim_uid(&object) == Some(&stored.record.claim.uid)
        && action::action(&object).ok() == Some(stored.action);
    let (true, Some(uid)) = (is_same, stored.uid.as_deref()) else { return Ok(false) };
    let deleted = deletion::delete_version(&api, &ctx.field_manager, name, uid, object.metadata.resource_version).await;
    deleted.map(|()| true).map_err(Error::kubernetes("delete the ObjectBucket"))
}

/// Deletes a record. Succeeds if it no longer exists, or was reconstructed because there was none.
///
/// # Errors
/// Kubernetes refused, also because another record has the name now.
pub(crate) async fn delete<P>(ctx: &Context<P>, name: &str, uid: Option<&str>) -> Result<(), Error> {
    match uid {
        Some(uid) => deletion::delete(&ctx.records(), &ctx.field_manager, name, uid)
            .await
            .map_err(Error::kubernetes("delete the ObjectBucket")),
        None => Ok(()),
    }
}
