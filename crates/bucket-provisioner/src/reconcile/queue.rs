//! Waiting for a worker. The queue serves stores and namespaces in turns, so that none of them blocks the others.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::FusedFuture as _;
use kube::runtime::reflector::ObjectRef;

use super::in_sync::due_while_in_sync;
use super::problem;
use crate::decide::claim::{Claim, Guarded};
use crate::decide::class::ClassLookup;
use crate::decide::keys;
use crate::decide::ownership::{self, OwnershipFacts, RequiredAction};
use crate::decide::plan;
use crate::decide::report::{self, ConditionSupport};
use crate::decide::steps::Upkeep;
use crate::error::Error;
use crate::state::context::Context;
use crate::state::stores;
use crate::store::Provisioner;
use operator_runtime::engine::{QueueKey, Slowed, Triggered, Urgency, Worker};

/// After this time, a claim may report what it waits for.
const PATIENCE: Duration = Duration::from_secs(10);
/// After this time more, a deleted claim reports that it waits for others.
const PATIENCE_WITH_OTHERS: Duration = Duration::from_secs(20);

/// Waits for a worker, which may take long, and then reads the claim again. `triggered`: it may have changed meanwhile. `None`
/// if there is nothing left to do, or the operator ends.
pub(crate) async fn worker<P: Provisioner>(
    ctx: &Context<P>,
    claim: Claim,
    guarded: &Guarded,
    triggered: &Triggered,
) -> Option<(Claim, Worker)> {
    let object = ObjectRef::from_obj(guarded);
    let mut claim = claim;
    let urgency = |claim: &Claim| {
        if ctx.memory.get(&claim.id, |m| m.is_purging()) {
            return Urgency::Purge;
        }
        let due = due_while_in_sync(ctx, claim).map(|(due, _)| due);
        urgency(due, || keys::are_requested(claim, &ctx.caches.key_notes(&claim.id)))
    };
    loop {
        let key = queue_key(ctx, &claim, urgency(&claim));
        let purges = key.urgency == Urgency::Purge;
        if purges {
            ctx.memory.entry(&claim.id, |m| m.set_purge_waits(true));
        }
        let mut entering = pin!(ctx.workers.enter(&key));
        let mut explaining = pin!(explain_wait(ctx, &object, &key).fuse());
        let worker = loop {
            // `entering` is always polled: a worker that was handed to this claim must not be left unused.
            tokio::select! {
                biased;
                worker = entering.as_mut() => break Some(worker?),
                () = triggered.again() => {}
                () = explaining.as_mut(), if !explaining.is_terminated() => continue,
            }
            claim = Claim::read(ctx.caches.claims.get(&object)?.as_ref(), &ctx.label);
            // The claim leaves its queue only if it now belongs to another queue.
            if queue_key(ctx, &claim, urgency(&claim)) != key {
                break None;
            }
            explaining.set(explain_wait(ctx, &object, &key).fuse());
        };
        if purges {
            ctx.memory.get(&claim.id, |m| m.set_purge_waits(false));
        }
        if let Some(worker) = worker {
            let claim = Claim::read(ctx.caches.claims.get(&object)?.as_ref(), &ctx.label);
            return (!ctx.memory.is_stale(&claim.id, claim.resource_version.as_deref())).then_some((claim, worker));
        }
    }
}

/// How urgent the work on a claim is. What is due for a bound claim without problems yields to claims whose users wait, unless
/// its user asks for it.
fn urgency(due_while_in_sync: Option<Upkeep>, requested: impl FnOnce() -> bool) -> Urgency {
    match due_while_in_sync {
        Some(Upkeep::Rotate) if requested() => Urgency::Wanted,
        Some(Upkeep::Check | Upkeep::Retire | Upkeep::RevokePrevious | Upkeep::Rotate) => Urgency::Check,
        Some(Upkeep::Nothing) | None => Urgency::Wanted,
    }
}

/// What is known about a claim before any work on it.
pub(crate) fn facts<P>(ctx: &Context<P>, claim: &Claim, class: &ClassLookup) -> OwnershipFacts {
    OwnershipFacts {
        class: class.owner(&ctx.options.provisioner_name),
        label: claim.label,
        recorded: ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster).is_some(),
        finalizer: claim.finalizer,
        deleting: claim.deleting,
        bound: claim.bound(),
    }
}

fn is_ready_though_deleted(claim: &Claim) -> bool {
    claim.deleting && claim.bound() && report::status_is_ready(claim, ConditionSupport::No)
}

/// Reports, if the wait is long, on a claim without a status that it waits for a store that does not answer, or limits calls;
/// and on a deleted claim that it is being removed.
async fn explain_wait<P: Provisioner>(ctx: &Context<P>, object: &ObjectRef<Guarded>, key: &QueueKey) {
    tokio::time::sleep(PATIENCE).await;
    let shown = || ctx.caches.claims.get(object).map(|shown| Claim::read(&shown, &ctx.label));
    let Some(claim) = shown() else { return };
    let slowed = match is_ready_though_deleted(&claim) {
        true => match ctx.workers.slowed(&key.store) {
            None => {
                tokio::time::sleep(PATIENCE_WITH_OTHERS).await;
                ctx.workers.slowed(&key.store)
            }
            slowed => slowed,
        },
        false if claim.bound() || !is_unreported(ctx, &claim) => return,
        false => Some(ctx.workers.until_slowed(&key.store).await),
    };
    // It may have been changed meanwhile.
    let Some(claim) = shown() else { return };
    // Boxed, so that a claim that waits for a worker needs little memory.
    Box::pin(report_wait(ctx, &claim, key, slowed)).await;
}

/// Whether nothing is reported yet about a claim that is not bound.
fn is_unreported<P>(ctx: &Context<P>, claim: &Claim) -> bool {
    claim.status.conditions.is_empty() && !ctx.memory.get(&claim.id, |m| m.last_status.is_some())
}

async fn report_wait<P: Provisioner>(ctx: &Context<P>, claim: &Claim, key: &QueueKey, slowed: Option<Slowed>) {
    let Ok(spec) = claim.spec() else { return };
    let class = ctx.caches.class(&spec.storage_class_name);
    if matches!(
        ownership::required_action(facts(ctx, claim, &class)),
        RequiredAction::Nothing | RequiredAction::ReportMissingClass
    ) {
        return;
    }
    let Ok(_turn) = ctx.wait_reports.acquire().await else { return };
    let store = stores::host_of(&key.store).to_owned();
    match slowed {
        Some(Slowed::Silent) => problem::report(ctx, claim, &Error::StoreSilent { store }).await,
        Some(Slowed::Limited) => problem::report(ctx, claim, &Error::StoreBusy { store }).await,
        None => problem::removing(ctx, claim).await,
    }
}

/// The queue in which a claim waits, by its record, or by the record that it would get.
fn queue_key<P: Provisioner>(ctx: &Context<P>, claim: &Claim, urgency: Urgency) -> QueueKey {
    let name = &ctx.options.provisioner_name;
    let recorded = ctx.caches.record(claim, name, &ctx.cluster).map(|stored| stored.record);
    let planned = || match ctx.caches.class(&claim.spec().ok()?.storage_class_name) {
        ClassLookup::Found(class) if class.provisioner == *name => {
            let creators = |name: &str| ctx.creator(&claim.id.namespace, name);
            plan::record(ctx.provisioner.as_ref(), claim, &class, (&ctx.cluster, &creators), None).ok()
        }
        _ => None,
    };
    let store = recorded.or_else(planned).map_or_else(|| Arc::from(""), |record| stores::store_of(&record));
    QueueKey { store, namespace: claim.id.namespace.as_str().into(), urgency }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upkeep_yields_to_claims_whose_users_wait() {
        for due in [Upkeep::Check, Upkeep::Retire, Upkeep::Rotate] {
            assert_eq!(urgency(Some(due), || false), Urgency::Check);
        }
        assert_eq!(urgency(Some(Upkeep::Rotate), || true), Urgency::Wanted, "its user asks for it");
        assert_eq!(urgency(None, || false), Urgency::Wanted);
    }
}
