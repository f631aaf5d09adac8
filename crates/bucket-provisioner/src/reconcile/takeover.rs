//! Claims that the Go provisioner bound. What it published stays as it is.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;

use super::in_sync::usual_upkeep;
use crate::decide::claim::Claim;
use crate::decide::legacy;
use crate::decide::record::Stored;
use crate::decide::steps::Upkeep;
use crate::error::Error;
use crate::objects::classes;
use crate::objects::outputs::Current;
use crate::state::context::Context;
use crate::store::Provisioner;

/// Completes a record of the Go provisioner from the class that it names; the claim may name another one by now.
///
/// # Errors
/// Kubernetes refused; those of [`legacy::complete`].
pub(crate) async fn complete<P: Provisioner>(ctx: &Context<P>, claim: &Claim, stored: Stored) -> Result<Stored, Error> {
    if stored.by_us() {
        return Ok(stored);
    }
    let class = classes::named(ctx, stored.record.class_name.clone()).await?;
    legacy::complete(ctx.provisioner.as_ref(), &ctx.options.provisioner_name, &class, claim, stored)
}

/// Whether ConfigMap, claim and status stay as they were published.
pub(super) fn leaves_published(stored: &Stored, is_ready: bool, config_map: &Current<ConfigMap>) -> bool {
    !stored.by_us() && !stored.is_being_adopted() && is_ready && matches!(config_map, Current::Owned(_))
}

/// The time until upkeep is due for a claim of the Go provisioner, which is never in sync, because its outputs differ
/// from those of this operator.
pub(crate) fn upkeep_in<P>(ctx: &Context<P>, claim: &Claim) -> Option<Duration> {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster)?;
    if claim.deleting || !claim.bound() || stored.by_us() {
        return None;
    }
    let notes = ctx.caches.key_notes(&claim.id).clamp(Some(&stored.record.plan), Timestamp::now());
    // Not at once, because the caches may be older than the attempt.
    match usual_upkeep(ctx, claim, &stored, &notes) {
        (Upkeep::Nothing, wait) => wait,
        _ => Some(Duration::from_secs(1)),
    }
}
