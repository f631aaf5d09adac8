//! Which ObjectBuckets are checked, and when. The caches only show which may be orphans.

use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::Resource as _;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::scheduler::ScheduleRequest;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

use super::released;
use crate::api::ObjectBucket;
use crate::decide::claim::Claim;
use crate::decide::{action, lookup, record, release};
use crate::state::context::Context;
use operator_runtime::engine;

/// When a record is checked that is deleted together with its claim: mostly it no longer exists by then.
const REMOVAL: Duration = Duration::from_secs(5);

/// Which records may be orphans.
#[derive(Debug)]
pub(crate) enum OrphanCheck {
    /// All: the claims were listed again, and no event shows which were deleted.
    Everywhere,
    /// The record of this name, to be checked after a while.
    At { name: String, wait: Duration },
}

impl OrphanCheck {
    pub(crate) fn now(name: String) -> Self {
        Self::At { name, wait: Duration::ZERO }
    }
}

/// The records that may be orphans because a claim was deleted, or has the name of a previous one.
pub(crate) fn of_claim<P>(ctx: &Context<P>, claim: &Claim) -> impl Iterator<Item = OrphanCheck> + use<P> {
    lookup::names(claim, ctx.caches.records.irregular(&claim.id)).into_iter().map(OrphanCheck::now)
}

/// When each of them is checked.
pub(super) fn requests<P>(
    ctx: &Context<P>,
    checks: UnboundedReceiver<OrphanCheck>,
) -> impl Stream<Item = ScheduleRequest<String>> {
    engine::received(checks).flat_map(|check| {
        let (names, wait) = match check {
            OrphanCheck::Everywhere => (ctx.caches.records.names(), Duration::ZERO),
            OrphanCheck::At { name, wait } => (vec![name], wait),
        };
        let (started, now) = (Instant::now(), Timestamp::now());
        let request = |message: String| {
            if !ctx.caches.records.has(&message) {
                // Nothing is remembered of it any more.
                return Some(ScheduleRequest { message, run_at: started });
            }
            let object = ctx.caches.records.object(&message).filter(|_| is_suspect(ctx, &message))?;
            let pause = released::time_to_check(&object, now);
            // An overdue one is checked first.
            if pause.is_some_and(|wait| !wait.is_zero()) {
                ctx.orphans.scheduled(&message, release::delete_at(&object));
            }
            let pause = pause.or_else(|| is_being_removed(ctx, &object).then_some(REMOVAL));
            // Both are times from now on.
            let run_at = started + wait.max(pause.unwrap_or_default());
            Some(ScheduleRequest { message, run_at })
        };
        stream::iter(names.into_iter().filter_map(request).collect::<Vec<_>>())
    })
}

/// Whether the record is deleted together with its claim, most likely by the claim's own attempt.
fn is_being_removed<P>(ctx: &Context<P>, object: &ObjectBucket) -> bool {
    let Some((namespace, name)) = record::claim_name(object) else { return false };
    let claim = ctx.caches.claims.get(&ObjectRef::new(name).within(namespace));
    let is_deleted = claim.is_some_and(|claim| claim.meta().deletion_timestamp.is_some());
    object.metadata.deletion_timestamp.is_some() && is_deleted
}

/// Whether a record is one of ours, and of a claim in a namespace that is served.
pub(super) fn is_served<P>(ctx: &Context<P>, object: &ObjectBucket) -> bool {
    let in_namespace = |served: &String| record::claim_name(object).is_some_and(|(namespace, _)| namespace == served);
    record::is_ours(object, &ctx.options.provisioner_name) && ctx.options.namespace.as_ref().is_none_or(in_namespace)
}

/// Whether the caches show a record of ours without its claim, with an admin's annotation, or deleted by somebody.
pub(crate) fn is_suspect<P>(ctx: &Context<P>, name: &str) -> bool {
    let Some(object) = ctx.caches.records.object(name) else { return false };
    let (Some(uid), Some((namespace, claim))) = (record::claim_uid(&object), record::claim_name(&object)) else {
        return false;
    };
    let shown = ctx.caches.claims.get(&ObjectRef::new(claim).within(namespace));
    let here = record::cluster_uid(&object).is_none_or(|cluster| cluster == ctx.cluster);
    let is_claims = here && shown.is_some_and(|shown| shown.meta().uid.as_deref() == Some(uid));
    is_served(ctx, &object)
        && (!is_claims || action::action(&object) != Ok(None) || object.metadata.deletion_timestamp.is_some())
}
