//! ObjectBuckets in the cluster: finding, writing and deleting the record of a claim.

use futures::future::try_join_all;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::api::{BucketPhase, Guard, ObjectBucket, wire};
use crate::controller::decide::claim::Claim;
use crate::controller::decide::lookup::{Candidate, Found};
use crate::controller::decide::metadata::FIELD_MANAGER;
use crate::controller::decide::orphan::Notice;
use crate::controller::decide::record::{Author, Stored};
use crate::controller::decide::report::Severity;
use crate::controller::decide::{codec, lookup, report};
use crate::controller::error::Error;
use crate::controller::objects::status::{self, patch_status};
use crate::controller::objects::{deletion, events};
use crate::controller::state::context::Context;
use crate::provisioner::Record;

/// Finds the claim's record, or says what there is instead.
///
/// # Errors
/// Kubernetes refused; and those of [`lookup::look_up`].
pub(crate) async fn find<P>(ctx: &Context<P>, claim: &Claim) -> Result<Found, Error> {
    let names = lookup::names(claim, ctx.caches.records.irregular(&claim.id));
    let candidates = read_all(ctx, names).await?;
    let has_rival = |object: &_| ctx.caches.has_rival(claim, object);
    lookup::look_up(
        claim,
        candidates,
        &lookup::Surroundings { cluster: &ctx.cluster, provisioner: &ctx.options.provisioner_name, has_rival },
    )
}

/// Reads the ObjectBuckets of these names from the cluster, because everything that is created or removed depends on
/// them.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read_all<P>(ctx: &Context<P>, names: Vec<String>) -> Result<Vec<Candidate>, Error> {
    try_join_all(names.into_iter().map(|name| read_candidate(ctx, name))).await
}

/// Reads one of them.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn read_candidate<P>(ctx: &Context<P>, name: String) -> Result<Candidate, Error> {
    let object = ctx.records().get_opt(&name).await.map_err(Error::kubernetes("read the ObjectBucket"))?;
    Ok(Candidate { name, object: object.map(|guard| guard.0.map_err(|invalid| invalid.error)) })
}

/// Writes a new record. Fails with a conflict if the name is no longer free.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn create<P>(ctx: &Context<P>, name: String, record: Record) -> Result<Stored, Error> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let created =
        ctx.record_writer().create(&params, &codec::to_object(&record, &name, &ctx.options.provisioner_name)).await;
    let created = created.map_err(Error::kubernetes("write the ObjectBucket"))?;
    ctx.caches.records.wrote(&created);
    let metadata = created.metadata;
    Ok(Stored {
        name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        author: Author::Us,
        record,
        says_bound: false,
        action: None,
    })
}

/// Writes what can change in a record: its claim, cluster and account, and whether it was handed over.
///
/// # Errors
/// Kubernetes refused, also because another record has the name now.
pub(crate) async fn change<P>(ctx: &Context<P>, stored: &mut Stored, record: Record) -> Result<(), Error> {
    let patch = codec::change(stored, &record);
    stored.resource_version = write(ctx, stored, &patch).await?;
    stored.record = record;
    Ok(())
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

/// Reports something on an ObjectBucket, as a condition, an event and a log line, unless the condition already says it.
///
/// # Errors
/// Kubernetes refused the condition.
pub(crate) async fn report<P>(ctx: &Context<P>, object: &ObjectBucket, notice: &Notice) -> Result<(), Error> {
    let current = object.status.clone().unwrap_or_default();
    let Some(conditions) = report::noticed(&current.conditions, notice, &status::now()) else { return Ok(()) };
    let name = object.metadata.name.clone().unwrap_or_default();
    let Notice { orphaned, reason, message } = notice;
    if *orphaned {
        tracing::warn!(reason, record = name, "{message}");
    } else {
        tracing::info!(reason, record = name, "{message}");
    }
    let patch = json!({ "metadata": { "uid": object.metadata.uid }, "status": { "conditions": conditions } });
    let answer = patch_status(&ctx.records(), &name, &patch).await;
    answer.map_err(Error::kubernetes("write the ObjectBucket's status"))?;
    let severity = if *orphaned { Severity::Warning } else { Severity::Normal };
    events::record_event(ctx, &name, object.metadata.uid.as_deref(), severity, reason, message).await;
    Ok(())
}

/// Removes the admin's annotation from a record, after it was followed or refused.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn remove_annotation<P>(ctx: &Context<P>, stored: &mut Stored) -> Result<(), Error> {
    let patch = json!({ "metadata": { "uid": stored.uid, "annotations": { wire::annotation::ORPHAN: null } } });
    stored.resource_version = write(ctx, stored, &patch).await?;
    stored.action = None;
    Ok(())
}

/// Gives a record to another claim: the decisive write of an adoption.
///
/// # Errors
/// As [`change`], and a conflict if the record was changed since it was read.
pub(crate) async fn hand_on<P>(ctx: &Context<P>, stored: &mut Stored, record: Record) -> Result<(), Error> {
    let mut patch = codec::change(stored, &record);
    patch["metadata"]["resourceVersion"] = json!(stored.resource_version);
    stored.resource_version = write(ctx, stored, &patch).await?;
    stored.record = record;
    Ok(())
}

async fn write<P>(ctx: &Context<P>, stored: &Stored, patch: &Value) -> Result<Option<String>, Error> {
    Ok(merge(ctx, &stored.name, patch).await?.metadata.resource_version)
}

async fn merge<P>(ctx: &Context<P>, name: &str, patch: &Value) -> Result<ObjectBucket, Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let written = ctx.record_writer().patch(name, &params, &Patch::Merge(patch)).await;
    let written = written.map_err(Error::kubernetes("write the ObjectBucket"))?;
    ctx.caches.records.wrote(&written);
    Ok(written)
}

/// Writes into the record's status that it is bound, for people and other tools.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn mark_bound<P>(ctx: &Context<P>, stored: &mut Stored) -> Result<(), Error> {
    let patch = json!({ "metadata": { "uid": stored.uid }, "status": { "phase": BucketPhase::Bound } });
    let answer = patch_status(&ctx.records(), &stored.name, &patch).await;
    answer.map_err(Error::kubernetes("write the ObjectBucket's status"))?;
    stored.says_bound = true;
    Ok(())
}

/// Deletes a record. Succeeds if it is already gone, or was reconstructed because there was none.
///
/// # Errors
/// Kubernetes refused, also because another record has the name now.
pub(crate) async fn delete(api: &Api<Guard<ObjectBucket>>, name: &str, uid: Option<&str>) -> Result<(), Error> {
    match uid {
        Some(uid) => deletion::delete(api, name, uid).await.map_err(Error::kubernetes("delete the ObjectBucket")),
        None => Ok(()),
    }
}
