//! Claims: whether one exists, and all writes except its status.

use kube::api::Patch;
use serde_json::{Value, json};

use crate::api::wire;
use crate::decide::claim::{Claim, Guarded};
use crate::decide::record::Stored;
use crate::error::Error;
use crate::objects::deletion::ignore_not_found;
use crate::refusal::Refusal;
use crate::state::context::Context;
use crate::store::{ClaimId, Mode, Record, SharedFrom};
use operator_runtime::kubernetes::answers::{is_replaced, status_code};

/// Whether the claim has the finalizer and, if it needs one, the generated bucket name.
pub(crate) fn has_finalizer_and_name<P>(ctx: &Context<P>, claim: &Claim, record: &Record) -> bool {
    let lacks = writes_name(record) && lacks_name(ctx, claim, record).unwrap_or(false);
    claim.finalizer && !lacks
}

/// Adds finalizer, label and, for a generated name, `spec.bucketName`, in one write. Only the finalizer matters: some
/// CRDs refuse the name together with a prefix, and the name can always be computed from the claim.
///
/// The write is a compare-and-swap: the cache may show a claim that was deleted, and nothing must be created
/// for such a claim.
///
/// # Errors
/// A conflict if the claim was changed or deleted since it was read.
pub(crate) async fn add_finalizer<P>(ctx: &Context<P>, claim: &mut Claim, record: &Record) -> Result<(), Error> {
    let write_name = writes_name(record) && lacks_name(ctx, claim, record)?;
    let mut finalizers = claim.finalizers.clone();
    if !claim.finalizer {
        finalizers.push(wire::FINALIZER.to_owned());
    }
    // A list in a merge patch replaces the whole.
    let patch = json!({ "metadata": {
        "resourceVersion": claim.resource_version,
        "finalizers": finalizers,
        "labels": { wire::PROVISIONER_LABEL: ctx.label },
    }});
    let name = write_name.then_some(record.plan.bucket.as_str());
    let answer = write_with_name(ctx, claim, patch, name).await;
    let written = answer.map_err(Error::kubernetes("add the finalizer to the claim"))?;
    *claim = Claim::read(&written, &ctx.label);
    Ok(())
}

/// Whether the name of the bucket is written into the claim's spec before it is bound. One to which the store has appended
/// something would look as if the user had chosen it.
fn writes_name(record: &Record) -> bool {
    record.plan.mode == Mode::Created && record.plan.name_suffix.is_empty()
}

/// Whether to write the bucket's name into the claim's spec. A name that the user wrote is not changed, and a name that
/// the API server refused is not written again.
fn lacks_name<P>(ctx: &Context<P>, claim: &Claim, record: &Record) -> Result<bool, Error> {
    let lacks = match &claim.spec()?.bucket_name {
        None => true,
        // Written by an earlier attempt, before the prefix was edited.
        Some(name) => name.ends_with(&claim.id.uid) && *name != record.plan.bucket,
    };
    Ok(lacks && !ctx.memory.get(&claim.id, |m| m.name_refused))
}

/// Writes `spec.objectBucketName`, which users and other tools read as the sign of binding; with it, the name of a bucket
/// that existed before.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn link_record<P>(ctx: &Context<P>, claim: &mut Claim, stored: &Stored) -> Result<(), Error> {
    let spec = claim.spec()?;
    if spec.object_bucket_name.as_deref() == Some(&stored.name) {
        return Ok(());
    }
    let is_wrong = spec.object_bucket_name.as_deref().is_some_and(|name| !name.is_empty());
    let plan = &stored.record.plan;
    let name = (plan.name_suffix.is_empty() && lacks_name(ctx, claim, &stored.record)?).then_some(plan.bucket.as_str());
    // The uid guards against a claim of the same name that was created since.
    let patch = json!({ "metadata": { "uid": claim.id.uid }, "spec": { "objectBucketName": stored.name } });
    let mut answer = write_with_name(ctx, claim, patch.clone(), name).await;
    // Our CRD refuses another value, and accepts that it is removed.
    if is_wrong && answer.as_ref().is_err_and(is_invalid) {
        let none = json!({ "metadata": { "uid": claim.id.uid }, "spec": { "objectBucketName": null } });
        write(ctx, claim, &none).await.map_err(Error::kubernetes("remove the claim's objectBucketName"))?;
        answer = write_with_name(ctx, claim, patch, name).await;
    }
    let written = answer.map_err(Error::kubernetes("write the claim's objectBucketName"))?;
    *claim = Claim::read(&written, &ctx.label);
    Ok(())
}

/// Writes a patch together with `spec.bucketName`, or without it if the CRD refuses it, because nothing depends on it.
async fn write_with_name<P>(
    ctx: &Context<P>,
    claim: &Claim,
    patch: Value,
    name: Option<&str>,
) -> Result<Guarded, kube::Error> {
    let Some(name) = name else { return write(ctx, claim, &patch).await };
    let mut with_name = patch.clone();
    with_name["spec"]["bucketName"] = json!(name);
    match write(ctx, claim, &with_name).await {
        Err(error) if is_invalid(&error) => {
            ctx.memory.entry(&claim.id, |m| m.name_refused = true);
            write(ctx, claim, &patch).await
        }
        answer => answer,
    }
}

/// Whether the CRD refuses a value.
fn is_invalid(error: &kube::Error) -> bool {
    status_code(error) == Some(422) && !is_replaced(error)
}

/// Removes our finalizer from the claim; other finalizers stay.
///
/// # Errors
/// A conflict if the claim was changed since it was read.
pub(crate) async fn remove_finalizer<P>(ctx: &Context<P>, claim: &Claim) -> Result<(), Error> {
    let rest: Vec<_> = claim.finalizers.iter().filter(|f| *f != wire::FINALIZER).collect();
    // A status that this attempt has written was guarded by the version before.
    let version = ctx.memory.get(&claim.id, |m| m.version()).or_else(|| claim.resource_version.clone());
    let patch = json!({ "metadata": { "uid": claim.id.uid, "resourceVersion": version, "finalizers": rest }});
    ignore_not_found(write(ctx, claim, &patch).await).map_err(Error::kubernetes("remove the finalizer from the claim"))
}

async fn write<P>(ctx: &Context<P>, claim: &Claim, patch: &Value) -> Result<Guarded, kube::Error> {
    let params = ctx.field_manager.merges();
    let api = ctx.claims_in(&claim.id.namespace);
    let written = api.patch(&claim.id.name, &params, &Patch::Merge(patch)).await?;
    ctx.memory.wrote(&claim.id, kube::ResourceExt::resource_version(&written).as_deref());
    Ok(written)
}

/// Whether the claim no longer exists, read from the cluster. Another claim may have its name.
pub(crate) async fn is_gone<P>(ctx: &Context<P>, claim: &Claim) -> Result<bool, Error> {
    let found = ctx.claims_in(&claim.id.namespace).get_metadata_opt(&claim.id.name).await;
    let found = found.map_err(Error::kubernetes("read the claim"))?;
    Ok(found.is_none_or(|found| found.metadata.uid.as_ref() != Some(&claim.id.uid)))
}

/// Whether the claim has its latest spec. The watch may not have shown it yet.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn is_latest<P>(ctx: &Context<P>, claim: &Claim) -> Result<bool, Error> {
    let found = ctx.claims_in(&claim.id.namespace).get_metadata(&claim.id.name).await;
    let found = found.map_err(Error::kubernetes("read the claim"))?.metadata;
    Ok(found.uid.as_ref() == Some(&claim.id.uid) && found.generation == claim.generation)
}

/// Whether a claim exists and is being deleted. One that cannot be read counts as not.
pub(crate) async fn is_leaving<P>(ctx: &Context<P>, claim: &ClaimId) -> bool {
    match ctx.claims_in(&claim.namespace).get_metadata_opt(&claim.name).await {
        Ok(Some(found)) => {
            found.metadata.uid.as_ref() == Some(&claim.uid) && found.metadata.deletion_timestamp.is_some()
        }
        Ok(None) | Err(_) => false,
    }
}

/// Whether the claim whose bucket another one is about to share exists, and is not being deleted.
///
/// # Errors
/// It does not, or is; or Kubernetes refused.
pub(crate) async fn stays<P>(ctx: &Context<P>, namespace: &str, from: &SharedFrom) -> Result<(), Error> {
    let found = ctx.claims_in(namespace).get_metadata_opt(&from.name).await;
    let found = found.map_err(Error::kubernetes("read the claim whose bucket is shared"))?;
    let is_it = found.filter(|found| found.metadata.uid.as_ref() == from.uids.first());
    if is_it.is_some_and(|found| found.metadata.deletion_timestamp.is_none()) {
        return Ok(());
    }
    let problem = "is being deleted: name another claim".to_owned();
    Err(Refusal::BucketClaimNotShareable { name: from.name.clone(), problem }.into())
}

/// Reads the settings of a claim again, from the API server.
///
/// # Errors
/// Kubernetes refused, or the claim no longer exists.
pub(crate) async fn refresh_settings<P>(ctx: &Context<P>, claim: &mut Claim) -> Result<(), Error> {
    let read = ctx.claims_in(&claim.id.namespace).get(&claim.id.name).await;
    let read = Claim::read(&read.map_err(Error::kubernetes("read the claim"))?, &ctx.label);
    if read.id != claim.id {
        return Err(Error::OutOfStep("the claim was replaced"));
    }
    read.spec()?;
    claim.take_settings(&read);
    Ok(())
}
