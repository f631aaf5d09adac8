//! Writing the status of claims and ObjectBuckets.

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::ObjectBucketClaimStatus;
use crate::decide::claim::Claim;
use crate::decide::class::ClassOwner;
use crate::decide::report::{
    ConditionSupport, KeysCondition, OtherConditions, Report, Severity, outdated, same, same_ready,
};
use crate::error::Error;
use crate::objects::events::{event, record_event};
use crate::reasons;
use crate::state::context::Context;
use crate::state::memory::{LastStatus, StatusChange};
use operator_runtime::kubernetes::answers::status_code;

/// Reports on a claim, as status, event and log line, each only if it is new.
///
/// # Errors
/// Kubernetes refused the status; a conflict if somebody else has changed the claim. A failed event is only logged.
pub(crate) async fn update_status<P>(ctx: &Context<P>, claim: &Claim, report: &Report) -> Result<(), Error> {
    if claim.is_gone() {
        return Ok(());
    }
    let next = report.status(&claim.status, ctx.conditions.observed(claim), &now());
    let ignored = report
        .other_conditions
        .as_ref()
        .and_then(|other_conditions| outdated(&other_conditions.ignored))
        .unwrap_or_default()
        .1;
    let keys = report
        .other_conditions
        .as_ref()
        .and_then(|other_conditions| other_conditions.keys.as_ref())
        .map_or("", |keys| &keys.message);
    let new = LastStatus::new(report.reason, &format!("{}{ignored}{keys}", report.message));
    let change = ctx.memory.get(&claim.id, |m| new.change_from(m.last_status.as_ref()));
    // If conditions are missing that were written, the CRD prunes them; all CRDs keep the phase. The status of an
    // unreadable claim is unknown.
    let has_phase = claim.status.phase == next.phase || claim.spec().is_err();
    // If the CRD keeps conditions, somebody changed or removed this one; or another operator wrote it, and the cache did not
    // show that before.
    let overwritten = ctx.conditions.condition_support() == ConditionSupport::Yes && !same_ready(&claim.status, &next);
    let says_so = change == StatusChange::None && !overwritten && has_phase || same(&claim.status, &next);
    if says_so && ctx.conditions.are_behind(claim) {
        // `kubectl wait` and others wait for that.
        write(ctx, claim, &next).await?;
    } else if !says_so {
        if report.severity == Severity::Warning {
            tracing::warn!(reason = report.reason, "{}", report.message);
        } else {
            tracing::info!(reason = report.reason, "{}", report.message);
        }
        let had_generation = ctx.conditions.observed(claim).is_some();
        if !write(ctx, claim, &next).await? {
            return Ok(());
        }
        // This write has shown that each raises it.
        if had_generation && ctx.conditions.observed(claim).is_none() {
            write(ctx, claim, &report.status(&claim.status, None, &now())).await?;
        }
        count(ctx, claim, report);
        publish_events(ctx, claim, report, change).await;
    }
    ctx.memory.entry(&claim.id, |m| m.last_status = Some(new));
    Ok(())
}

/// Writes a claim's status. False if the claim no longer exists.
async fn write<P>(ctx: &Context<P>, claim: &Claim, next: &ObjectBucketClaimStatus) -> Result<bool, Error> {
    // The cache may be outdated, and another claim may have the name now. The resource version guards against both; the
    // API server does not compare the uid in a write of the status.
    let version = ctx.memory.get(&claim.id, |m| m.version()).or_else(|| claim.resource_version.clone());
    let patch = json!({ "metadata": { "uid": claim.id.uid, "resourceVersion": version }, "status": next });
    match patch_status(&ctx.claims_in(&claim.id.namespace), &claim.id.name, &ctx.field_manager.merges(), &patch).await {
        Ok(written) => {
            ctx.memory.wrote(&claim.id, written.meta().resource_version.as_deref());
            // A write that changes nothing raises nothing.
            let changed = written.meta().resource_version != version;
            if changed && version == claim.resource_version {
                ctx.conditions.generation(claim.generation, written.meta().generation);
            }
            if let Ok(written) = &written.0 {
                ctx.conditions.written(written.status.as_ref().is_some_and(|status| !status.conditions.is_empty()));
            }
            Ok(true)
        }
        Err(error) if status_code(&error) == Some(404) => Ok(false),
        Err(error) => Err(Error::kubernetes("write the claim's status")(error)),
    }
}

/// Counts how long a claim took to become Bound for the first time.
fn count<P>(ctx: &Context<P>, claim: &Claim, report: &Report) {
    let Some(created) = claim.created.as_ref().filter(|_| report.reason == reasons::BOUND && !claim.bound()) else {
        return;
    };
    // Users can write any class until the claim is bound.
    let is_ours = |class: &&str| ctx.caches.class(class).owner(&ctx.options.provisioner_name) == ClassOwner::Ours;
    let class = claim.spec().ok().map(|spec| spec.storage_class_name.as_str()).filter(is_ours).unwrap_or_default();
    let took = Timestamp::now().duration_since(created.0).as_secs_f64();
    ctx.options.observer.metrics().to_bound.with([class]).observe(took.max(0.0));
}

async fn publish_events<P>(ctx: &Context<P>, claim: &Claim, report: &Report, change: StatusChange) {
    let Report { severity, reason, message, other_conditions, .. } = report;
    // A bound claim that only reports an ignored edit does not become bound again.
    let bound_before = claim.bound() && *reason == reasons::BOUND;
    let further_progress = *severity == Severity::Progress && change == StatusChange::Message;
    // It begins with each claim, and ends in a moment.
    let is_news = *reason != reasons::PROVISIONING;
    if is_news && !bound_before && !further_progress {
        event(ctx, &claim.id, *severity, reason, message).await;
    }
    if let Some(name) = &report.damaged_record {
        let uid = ctx.caches.records.object(name).and_then(|object| object.metadata.uid);
        record_event(ctx, name, uid.as_deref(), *severity, reason, message).await;
    }
    let Some(OtherConditions { ignored, keys }) = other_conditions else { return };
    let warnings = [
        ignored.edit.as_deref().map(|note| (reasons::EDIT_IGNORED, note)),
        ignored.config.as_deref().map(|note| (reasons::CONFIG_IGNORED, note)),
        keys.as_ref().and_then(KeysCondition::warning),
    ];
    for (reason, note) in warnings.into_iter().flatten() {
        event(ctx, &claim.id, Severity::Warning, reason, note).await;
    }
}

/// Writes a status, and returns the new object. For CRDs without a status subresource the API server answers with 404:
/// then the status is written as an ordinary field.
pub(crate) async fn patch_status<K>(
    api: &Api<K>,
    name: &str,
    params: &PatchParams,
    patch: &Value,
) -> Result<K, kube::Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    match api.patch_status(name, params, &Patch::Merge(patch)).await {
        Err(error) if status_code(&error) == Some(404) => api.patch(name, params, &Patch::Merge(patch)).await,
        answer => answer,
    }
}

/// The time, in the format of conditions.
pub(crate) fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
