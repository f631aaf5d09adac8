//! What metrics say about now: the claims, their keys, and the workers.
//!
//! Users can write any class and any reason, so only classes count that exist and are this provisioner's, and only reasons
//! that it gives. Ten thousand claims are read for one text, so nothing of them is copied.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use k8s_openapi::jiff::Timestamp;

use crate::api::{ClaimPhase, Guard, ObjectBucketClaim, ObjectBucketClaimStatus};
use crate::decide::claim::provisioner_label;
use crate::decide::class::ClassOwner;
use crate::decide::metadata::has_finalizer;
use crate::metrics::Gauges;
use crate::reasons;
use crate::reconcile::orphans;
use crate::state::context::Context;
use crate::state::stores;
use crate::store::{CommonParameters, Provisioner};

/// Sets the gauges to what the caches show.
pub(super) fn set<P: Provisioner>(ctx: &Context<P>, gauges: &Gauges) {
    set_claims(ctx, gauges);
    set_key_ages(ctx, gauges);
    set_stores(ctx, gauges);
    for (reason, number) in ctx.orphans.count(|record| orphans::is_suspect(ctx, record)) {
        gauges.orphans.with([reason]).set(number as f64);
    }
    let (scheduled, next) = ctx.orphans.deletions();
    gauges.scheduled_deletions.set(scheduled as f64);
    gauges.next_scheduled_deletion.set(next.map_or(0.0, |at| at.as_second() as f64));
    let progress = ctx.memory.progress();
    gauges.purges.set(progress.purges as f64);
    gauges.purge_idle.set(progress.purge_idle.as_secs_f64());
    gauges.check_overdue.set(progress.check_late.as_secs_f64());
}

/// What a claim is counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Kind<'a> {
    class: &'a str,
    phase: &'static str,
    reason: &'static str,
    /// If namespaces are shown.
    namespace: Option<&'a str>,
}

fn set_claims<P: Provisioner>(ctx: &Context<P>, gauges: &Gauges) {
    let (claims, now) = (ctx.caches.claims.state(), Timestamp::now());
    let reasons: HashMap<_, _> =
        super::reasons::all().chain(P::REASONS.iter().copied()).map(|r| (r.name, r.name)).collect();
    let (mut classes, mut counts) = (HashMap::new(), HashMap::<_, f64>::new());
    let (mut unbound, mut deleted, mut keys) = (Oldest::default(), Oldest::default(), Oldest::default());
    for guarded in &claims {
        let Guard(Ok(claim)) = &**guarded else { continue };
        let name = claim.spec.storage_class_name.as_str();
        let owner = *classes.entry(name).or_insert_with(|| ctx.caches.class(name).owner(&ctx.options.provisioner_name));
        let Some(class) = counted_class(claim, name, owner, &ctx.label) else { continue };
        let metadata = &claim.metadata;
        let status = claim.status.as_ref();
        let phase = status.and_then(|status| status.phase);
        let remembered = || metadata.uid.as_deref().and_then(|uid| ctx.memory.reason(uid));
        let reason = reported_reason(status, remembered);
        let reason = reason.and_then(|reason| reasons.get(reason)).copied().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().filter(|_| ctx.options.shows_namespaces);
        *counts.entry(Kind { class, phase: phase.map_or("", phase_label), reason, namespace }).or_default() += 1.0;
        let Some(created) = metadata.creation_timestamp.as_ref().map(|time| time.0) else { continue };
        match &metadata.deletion_timestamp {
            Some(deletion) => deleted.saw((class, reason), deletion.0),
            None if phase == Some(ClaimPhase::Bound) => {
                let since = ctx.caches.key_since(metadata, created, now);
                since.into_iter().for_each(|since| keys.saw(class, since));
            }
            None if claim.spec.object_bucket_name.is_none() => unbound.saw((class, reason), created),
            None => {}
        }
    }
    for (Kind { class, phase, reason, namespace }, number) in counts {
        let namespace = namespace.map(|namespace| ("namespace", namespace));
        gauges.claims.with_more([class, phase, reason], namespace).set(number);
    }
    unbound.ages(now).for_each(|((class, reason), age)| {
        gauges.oldest_unbound.with([class, reason]).set(age);
    });
    deleted.ages(now).for_each(|((class, reason), age)| {
        gauges.oldest_deleted.with([class, reason]).set(age);
    });
    keys.ages(now).for_each(|(class, age)| {
        gauges.oldest_key.with([class]).set(age);
    });
}

/// The class by which a claim counts, if it does. A claim of ours whose class was deleted has none: it can contain any
/// name.
fn counted_class<'a>(claim: &ObjectBucketClaim, class: &'a str, owner: ClassOwner, label: &str) -> Option<&'a str> {
    let has_our_label = || provisioner_label(&claim.metadata).is_some_and(|is| is == label);
    match owner {
        ClassOwner::Ours => Some(class),
        ClassOwner::Missing if has_finalizer(&claim.metadata) && has_our_label() => Some(""),
        ClassOwner::Missing | ClassOwner::Foreign | ClassOwner::Unnamed => None,
    }
}

/// The reason in the claim's status. A CRD may prune conditions: then the one that was `remembered` when the status
/// was written.
fn reported_reason(
    status: Option<&ObjectBucketClaimStatus>,
    remembered: impl FnOnce() -> Option<&'static str>,
) -> Option<&str> {
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    let ready = conditions.find(|condition| condition.type_ == reasons::READY);
    match ready {
        Some(ready) => Some(&ready.reason),
        None => remembered(),
    }
}

fn phase_label(phase: ClaimPhase) -> &'static str {
    match phase {
        ClaimPhase::Pending => "Pending",
        ClaimPhase::Bound => "Bound",
        ClaimPhase::Released => "Released",
        ClaimPhase::Failed => "Failed",
    }
}

/// The earliest time of each kind.
#[derive(Debug)]
struct Oldest<K>(HashMap<K, Timestamp>);

impl<K> Default for Oldest<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + std::hash::Hash> Oldest<K> {
    fn saw(&mut self, kind: K, since: Timestamp) {
        match self.0.entry(kind) {
            Entry::Occupied(mut known) => *known.get_mut() = since.min(*known.get()),
            Entry::Vacant(new) => drop(new.insert(since)),
        }
    }

    fn ages(self, now: Timestamp) -> impl Iterator<Item = (K, f64)> {
        self.0.into_iter().map(move |(kind, since)| (kind, now.duration_since(since).as_secs_f64().max(0.0)))
    }
}

fn set_key_ages<P: Provisioner>(ctx: &Context<P>, gauges: &Gauges) {
    for class in ctx.caches.classes.all() {
        let Some(name) = class.metadata.name.as_deref().filter(|_| class.provisioner == ctx.options.provisioner_name)
        else {
            continue;
        };
        let written = class.parameters.clone().unwrap_or_default();
        let common = CommonParameters::parse(&written, P::BUCKET_NAMES, P::CAPABILITIES);
        if let Some(age) = common.ok().and_then(|common| common.rotate_keys_every()) {
            gauges.set_key_age(name, age);
        }
    }
}

fn set_stores<P>(ctx: &Context<P>, gauges: &Gauges) {
    gauges.workers.set(ctx.workers.limit() as f64);
    for load in ctx.workers.loads() {
        // Several owners can have buckets at one host.
        let host = [stores::host_of(&load.store)];
        let of = &gauges.of_stores;
        of.busy.with(host).inc_by(load.busy as f64);
        of.waiting.with(host).inc_by(load.waiting as f64);
        of.throttled.with(host).inc_by(load.throttled as f64);
        let silent = of.silent.with(host);
        silent.set(silent.get().max(f64::from(u8::from(load.is_silent))));
        let waited = load.waits_since.map_or(0.0, |since| since.elapsed().as_secs_f64());
        let oldest = of.oldest_waiting.with(host);
        oldest.set(oldest.get().max(waited));
        let limit = of.limit.with(host);
        let known = Some(limit.get()).filter(|known| *known > 0.0);
        limit.set(known.map_or(load.limit as f64, |known| known.min(load.limit as f64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Condition, ConditionStatus};

    #[test]
    fn a_claim_with_pruned_conditions_counts_by_its_last_reason() {
        let condition = |type_: &str| Condition {
            type_: type_.to_owned(),
            status: ConditionStatus::False,
            reason: "AccessDenied".to_owned(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: None,
        };
        let with = |conditions| ObjectBucketClaimStatus { conditions, ..ObjectBucketClaimStatus::default() };
        for (conditions, expected) in [
            (vec![condition(reasons::READY)], "AccessDenied"),
            (vec![condition("Other")], "QuotaExceeded"),
            (Vec::new(), "QuotaExceeded"),
        ] {
            assert_eq!(reported_reason(Some(&with(conditions)), || Some("QuotaExceeded")), Some(expected));
        }
        assert_eq!(reported_reason(None, || None), None);
    }
}
