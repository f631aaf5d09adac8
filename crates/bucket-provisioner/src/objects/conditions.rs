//! Finding out whether the CRD keeps the conditions of claims, and whether they have a status of their own.

use std::time::Duration;

use kube::Resource as _;
use kube::api::PatchParams;
use operator_runtime::kubernetes::answers::status_code;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::decide::claim::Claim;
use crate::decide::report::ConditionSupport;
use crate::objects::status::{now, patch_status};
use crate::reasons;
use crate::state::context::Context;

/// How long the answer may take, which other claims without conditions wait for.
const PATIENCE: Duration = Duration::from_secs(5);

/// When it is asked again after an admission webhook has refused dry runs, or has delayed them too long.
const PAUSE: Duration = Duration::from_secs(300);

/// Whether this claim shows something unknown about the CRD: it has no conditions, or has one that has not observed its
/// generation.
pub(crate) fn would_tell<P>(ctx: &Context<P>, claim: &Claim) -> bool {
    let lacks_conditions = claim.bound() && claim.status.conditions.is_empty();
    lacks_conditions && ctx.conditions.condition_support() == ConditionSupport::Unknown
        || ctx.conditions.may_be_behind(claim)
}

/// Finds out what the CRD keeps, if this claim would tell. A dry run: nothing is written.
pub(crate) async fn learn<P>(ctx: &Context<P>, claim: &Claim) {
    if !would_tell(ctx, claim) {
        return;
    }
    let mut not_before = ctx.conditions.asking.lock().await;
    let is_pausing = not_before.is_some_and(|at| Instant::now() < at);
    if is_pausing || !would_tell(ctx, claim) {
        return;
    }
    // With all that a CRD may require.
    let condition = json!({
        "type": reasons::READY, "status": "Unknown", "reason": "Unknown", "message": "", "lastTransitionTime": now(),
    });
    let metadata = json!({ "uid": claim.id.uid, "resourceVersion": claim.resource_version });
    let patch = json!({ "metadata": metadata, "status": { "conditions": [condition] } });
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let claims = ctx.claims_in(&claim.id.namespace);
    match timeout(PATIENCE, patch_status(&claims, &claim.id.name, &params, &patch)).await {
        Ok(Ok(would_be)) => {
            ctx.conditions.generation(claim.generation, would_be.meta().generation);
            let kept = would_be.0.is_ok_and(|claim| claim.status.is_some_and(|status| !status.conditions.is_empty()));
            ctx.conditions.written(kept);
        }
        // The claim has changed meanwhile, or is deleted.
        Ok(Err(error)) if matches!(status_code(&error), Some(404 | 409)) => {}
        // While it is unknown, a claim without conditions is taken as complete, and one that is behind is written.
        Ok(Err(error)) => {
            *not_before = Some(Instant::now() + PAUSE);
            tracing::debug!(%error, "cannot find out whether the CRD keeps conditions");
        }
        Err(_late) => {
            *not_before = Some(Instant::now() + PAUSE);
            tracing::debug!("the dry run that shows whether the CRD keeps conditions takes too long");
        }
    }
}
