//! What metrics say about now: the claims, and the workers.

use std::collections::{BTreeMap, HashMap};

use crate::api::{Guard, ObjectBucketClaimStatus};
use crate::controller::decide::class::ClassOwner;
use crate::controller::reasons;
use crate::controller::state::context::Context;
use crate::controller::state::stores;
use crate::observe::Gauges;
use crate::provisioner::Provisioner;

/// Sets the gauges to what the caches show.
pub(super) fn set<P: Provisioner>(ctx: &Context<P>, gauges: &Gauges) {
    for ((class, phase, reason), number) in claims(ctx) {
        gauges.claims.with([&class, &phase, reason]).set(number);
    }
    for load in ctx.workers.loads() {
        let host = [stores::host_of(&load.store)];
        // Several owners can have buckets at one host.
        gauges.workers_busy.with(host).inc_by(load.busy as f64);
        gauges.waiting.with(host).inc_by(load.waiting as f64);
        gauges.parked.with(host).inc_by(load.parked as f64);
        let silent = gauges.silent.with(host);
        silent.set(silent.get().max(f64::from(u8::from(load.is_silent))));
    }
}

/// How many claims there are, by class, phase and reason. Users can write any class and any reason, so only classes count
/// that exist and are this provisioner's, and only reasons that it gives.
fn claims<P: Provisioner>(ctx: &Context<P>) -> BTreeMap<(String, String, &'static str), f64> {
    let (mut all, mut are_ours) = (BTreeMap::new(), HashMap::new());
    for guarded in ctx.caches.claims.state() {
        let Guard(Ok(claim)) = &*guarded else { continue };
        let class = &claim.spec.storage_class_name;
        let is_ours = || ctx.caches.class(class).owner(&ctx.options.provisioner_name) == ClassOwner::Ours;
        if !*are_ours.entry(class.clone()).or_insert_with(is_ours) {
            continue;
        }
        let status = claim.status.as_ref();
        let phase = status.and_then(|status| status.phase).map(|phase| format!("{phase:?}")).unwrap_or_default();
        let reason = status.and_then(reason::<P>).unwrap_or_default();
        *all.entry((class.clone(), phase, reason)).or_insert(0.0) += 1.0;
    }
    all
}

/// The reason that a claim gives, if it is one of ours.
fn reason<P: Provisioner>(status: &ObjectBucketClaimStatus) -> Option<&'static str> {
    let ready = status.conditions.iter().find(|condition| condition.type_ == reasons::READY)?;
    let known = super::reasons().chain(P::REASONS.iter().copied());
    known.map(|reason| reason.name).find(|name| *name == ready.reason)
}
