//! Finding out whether the CRD keeps the conditions of claims.

use std::time::Duration;

use kube::api::PatchParams;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::decide::claim::Claim;
use crate::decide::report::ConditionSupport;
use crate::objects::status::patch_status;
use crate::reasons;
use crate::state::context::Context;

/// How long the answer may take, which other claims without conditions wait for.
const PATIENCE: Duration = Duration::from_secs(5);

/// When it is asked again after an admission webhook has refused dry runs, or has delayed them too long.
const PAUSE: Duration = Duration::from_secs(300);

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
    let mut not_before = ctx.conditions.asking.lock().await;
    let is_pausing = not_before.is_some_and(|at| Instant::now() < at);
    if is_pausing || ctx.conditions.condition_support() != ConditionSupport::Unknown {
        return;
    }
    let condition = json!({ "type": reasons::READY, "status": "Unknown", "reason": "Unknown", "message": "" });
    let patch = json!({ "metadata": { "uid": claim.id.uid }, "status": { "conditions": [condition] } });
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let claims = ctx.claims_in(&claim.id.namespace);
    match timeout(PATIENCE, patch_status(&claims, &claim.id.name, &params, &patch)).await {
        Ok(Ok(would_be)) => {
            let kept = would_be.0.is_ok_and(|claim| claim.status.is_some_and(|status| !status.conditions.is_empty()));
            ctx.conditions.written(kept);
        }
        // While it is unknown, a claim without conditions is taken as complete.
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
