//! Bound claims that have not changed, and the upkeep that is due for them. Answered from caches and memory, without a
//! call.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::api::ObjectBucketClaimSpec;
use crate::decide::claim::Claim;
use crate::decide::edit;
use crate::decide::ignored::{Ignored, ignored};
use crate::decide::keys::{self, KeyNotes};
use crate::decide::moving;
use crate::decide::output_metadata;
use crate::decide::record::Stored;
use crate::decide::report::{self, OtherConditions};
use crate::decide::settings::Rules;
use crate::decide::steps::Upkeep;
use crate::decide::upkeep::{self, Times};
use crate::state::context::Context;
use operator_runtime::engine::hash;

/// The upkeep that is due for a bound claim that has not changed, or the time until some is due; `None` for any other
/// claim.
pub(crate) fn due_while_in_sync<P>(ctx: &Context<P>, claim: &Claim) -> Option<(Upkeep, Option<Duration>)> {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster)?;
    let spec = claim.spec().ok()?;
    // What the Go provisioner wrote is not changed.
    let extra = output_metadata::digest_of_cached(claim.config()).filter(|_| stored.by_us());
    let is_in_sync = !claim.deleting
        && claim.finalizer
        && stored.status_is_bound
        && !ctx.caches.records.lacks_claim_ref(&stored)
        && !stored.is_being_adopted()
        && !stored.record.is_moving()
        && spec.object_bucket_name.as_deref() == Some(&stored.name)
        && ctx.caches.outputs_are_up_to_date(&stored.record, extra.as_deref());
    if !is_in_sync {
        return None;
    }
    let is_settled =
        claim.is_abridged(ctx.rules.has) && ctx.memory.get(&claim.id, |m| m.upkeep.is_settled(settled(claim, &stored)));
    let renamed = ctx.renamed_creator(&stored.record);
    let is_edited = || !is_settled && edit::of(claim, &stored.record, ctx.rules, None).is_some();
    if stored.by_us() && (renamed.is_some() || is_edited()) {
        return None;
    }
    let notes = ctx.caches.key_notes(&claim.id).clamp(Some(&stored.record.plan), Timestamp::now());
    let mut other_conditions = other_conditions(ctx, claim, spec, &stored, &notes);
    if is_settled {
        // The cache does not have what its message repeats.
        other_conditions.ignored = Ignored { edit: report::reported_edit(claim), ..Ignored::default() };
    }
    if !report::status_is_bound(claim, &other_conditions, ctx.condition_support(stored.author))
        || ctx.conditions.are_behind(claim)
    {
        return None;
    }
    ctx.shares_present_keys(&stored.record, &notes).then(|| usual_upkeep(ctx, claim, &stored, &notes))
}

/// What decides whether settings that are not cached whole can be applied.
pub(crate) fn settled(claim: &Claim, stored: &Stored) -> u64 {
    hash(&(claim.generation, stored.record.plan.settings.recorded().collect::<Vec<_>>()))
}

/// What a bound claim reports in addition to the condition Ready.
pub(crate) fn other_conditions<P>(
    ctx: &Context<P>,
    claim: &Claim,
    spec: &ObjectBucketClaimSpec,
    stored: &Stored,
    notes: &KeyNotes,
) -> OtherConditions {
    let record = &stored.record;
    // What the Go provisioner created is not changed.
    let rules = if stored.by_us() { ctx.rules } else { Rules::NONE };
    let keys = record.plan.user.as_ref().and_then(|_| {
        let failure = ctx.memory.get(&claim.id, |m| m.upkeep.key_failure.clone());
        match record.plan.service_account {
            Some(_) => moving::condition(claim, record, failure.as_deref()),
            None => keys::condition(claim, notes, failure.as_deref()),
        }
    });
    let mut ignored = ignored(claim, spec, record, rules);
    if !stored.by_us() {
        ignored.edit = ignored.edit.or_else(|| output_metadata::unwritten(claim.config()));
    }
    OtherConditions { ignored, keys }
}

/// The upkeep that is due for a bound claim without problems, or the time until some is due, if known.
pub(crate) fn usual_upkeep<P>(
    ctx: &Context<P>,
    claim: &Claim,
    stored: &Stored,
    notes: &KeyNotes,
) -> (Upkeep, Option<Duration>) {
    let by_us = stored.by_us();
    // In one look-up, because every reconcile of a bound claim comes here.
    let times = ctx.memory.entry(&claim.id, |m| Times {
        keys: keys::due_for(claim, notes, &stored.record.plan, Timestamp::now()),
        failed: m.upkeep.failed_in(),
        unfinished: m.upkeep.is_unfinished(),
        replacement: m.upkeep.replacement_in(),
        key_search: m.upkeep.key_search_in(),
        previous: moving::ends_in(&stored.record, Timestamp::now()),
        // What the Go provisioner created looks different, and is not changed.
        check: m.upkeep.check_in(ctx.options.resync.filter(|_| by_us)),
        changes: stored.record.plan.changes.any() && by_us,
        asked: m.upkeep.take_retry_request(claim.retry_request.as_deref()) && by_us,
    });
    upkeep::usual(&times)
}
