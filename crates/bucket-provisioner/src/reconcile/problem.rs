//! Reporting a problem on a claim, or that its removal takes long.

use std::time::Duration;

use kube::Resource as _;
use kube::runtime::reflector::ObjectRef;

use crate::api::ObjectBucket;
use crate::decide::claim::Claim;
use crate::decide::report::Report;
use crate::decide::{record, release};
use crate::error::Error;
use crate::objects::status;
use crate::reasons;
use crate::state::context::Context;
use crate::store::{Failure as _, Provisioner};

/// Longest time that a report may take.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Reports a problem on the claim; best effort, because the next attempt reports it again.
pub(crate) async fn report<P: Provisioner>(ctx: &Context<P>, claim: &Claim, problem: &Error) {
    let must_be_changed = reasons::must_change_claim::<P>(problem.reason()) && !will_pass(ctx, claim, problem);
    let is_moving = is_moving(ctx, claim);
    write(ctx, claim, |claim| Report::problem(claim, problem, must_be_changed, is_moving)).await;
}

fn is_moving<P>(ctx: &Context<P>, claim: &Claim) -> bool {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster);
    claim.bound() && !claim.deleting && stored.is_some_and(|stored| stored.record.is_moving())
}

/// Whether the store refuses a claim because of a bucket that a deleted claim still has.
fn will_pass<P>(ctx: &Context<P>, claim: &Claim, problem: &Error) -> bool {
    let own = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster);
    let asked = claim.spec().ok().and_then(|spec| spec.bucket_name.clone());
    let bucket = own.as_ref().map(|own| own.record.plan.bucket.clone()).or(asked);
    let (Error::Store(_), Some(bucket)) = (problem, bucket) else { return false };
    let others = ctx.caches.records.others_with_bucket(&bucket, own.as_ref().map_or("", |own| &own.name));
    let mut others = others.iter().filter_map(|name| ctx.caches.records.object(name));
    others.any(|other| release::is_released(&other) || is_deleting(ctx, &other))
}

/// Whether the claim of an ObjectBucket is being deleted.
fn is_deleting<P>(ctx: &Context<P>, record: &ObjectBucket) -> bool {
    let Some((namespace, name)) = record::claim_name(record) else { return false };
    let shown = ctx.caches.claims.get(&ObjectRef::new(name).within(namespace));
    shown.is_some_and(|shown| {
        let metadata = shown.meta();
        metadata.deletion_timestamp.is_some() && metadata.uid.as_deref() == record::claim_uid(record)
    })
}

/// Reports that a deleted claim is being removed; best effort.
pub(crate) async fn removing<P>(ctx: &Context<P>, claim: &Claim) {
    write(ctx, claim, Report::removing).await;
}

async fn write<P>(ctx: &Context<P>, claim: &Claim, report: impl Fn(&Claim) -> Report) {
    match tokio::time::timeout(TIME_LIMIT, update_status(ctx, claim, &report)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, claim = %claim.id, "cannot report on the claim: {}", report(claim).message);
        }
        Err(_elapsed) => {
            tracing::warn!(claim = %claim.id, "cannot report on the claim in time: {}", report(claim).message);
        }
    }
}

/// Writes the status. After a conflict, reads the claim again and retries once.
async fn update_status<P>(ctx: &Context<P>, claim: &Claim, report: &impl Fn(&Claim) -> Report) -> Result<(), Error> {
    match status::update_status(ctx, claim, &report(claim)).await {
        Err(error) if error.is_race() => {}
        answer => return answer,
    }
    let found = ctx.claims_in(&claim.id.namespace).get_opt(&claim.id.name).await;
    let found = found.map_err(Error::kubernetes("read the claim"))?;
    match found.map(|found| Claim::read(&found, &ctx.label)).filter(|found| found.id == claim.id) {
        Some(now) => {
            ctx.memory.wrote(&now.id, now.resource_version.as_deref());
            status::update_status(ctx, &now, &report(&now)).await
        }
        None => Ok(()),
    }
}
