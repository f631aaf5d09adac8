//! Finding out whether the CRD keeps the conditions of claims.

use kube::api::PatchParams;
use serde_json::json;

use crate::decide::claim::Claim;
use crate::decide::report::ConditionSupport;
use crate::objects::status::patch_status;
use crate::reasons;
use crate::state::context::Context;

/// Whether it is unknown if the CRD keeps conditions, and this claim has none.
pub(crate) fn would_tell<P>(ctx: &Context<P>, claim: &Claim) -> bool {
    claim.bound()
        && claim.status.conditions.is_empty()
        && ctx.conditions.condition_support() == ConditionSupport::Unknown
}

/// Finds out whether the CRD keeps conditions, if that is unknown and this claim has none. A dry run: nothing is written.
pub(crate) async fn learn<P>(ctx: &Context<P>, claim: &Claim) {
    if !would_tell(ctx, claim) {
        return;
    }
    let _turn = ctx.conditions.asking.lock().await;
    if ctx.conditions.condition_support() != ConditionSupport::Unknown {
        return;
    }
    let condition = json!({ "type": reasons::READY, "status": "Unknown", "reason": "Unknown", "message": "" });
    let patch = json!({ "metadata": { "uid": claim.id.uid }, "status": { "conditions": [condition] } });
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    match patch_status(&ctx.claims_in(&claim.id.namespace), &claim.id.name, &params, &patch).await {
        Ok(would_be) => {
            let kept = would_be.0.is_ok_and(|claim| claim.status.is_some_and(|status| !status.conditions.is_empty()));
            ctx.conditions.written(kept);
        }
        // While it is unknown, a claim without conditions is taken as complete.
        Err(error) => tracing::debug!(%error, "cannot find out whether the CRD keeps conditions"),
    }
}
