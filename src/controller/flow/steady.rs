//! Bound claims that have not changed, and the upkeep that is due for them. Answered from caches and memory, without a
//! call.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::controller::decide::claim::{Claim, ignored};
use crate::controller::decide::keys::{self, KeyNotes};
use crate::controller::decide::record::{Author, Stored};
use crate::controller::decide::report;
use crate::controller::decide::steps::Upkeep;
use crate::controller::decide::upkeep::{self, Times};
use crate::controller::state::context::Context;

/// The upkeep that is due for a bound claim that has not changed, or the time until some is due; `None` for any other
/// claim.
pub(crate) fn due_while_steady<P>(ctx: &Context<P>, claim: &Claim) -> Option<(Upkeep, Option<Duration>)> {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster)?;
    let spec = claim.spec().ok()?;
    let is_steady = !claim.deleting
        && claim.finalizer
        && stored.says_bound
        && !stored.is_being_adopted()
        && spec.object_bucket_name.as_deref() == Some(&stored.name)
        && report::says_bound(claim, &ignored(spec, &stored.record), ctx.keeps(stored.author))
        && ctx.caches.outputs_are_up_to_date(&stored.record);
    if !is_steady {
        return None;
    }
    let notes = ctx.caches.key_notes(&claim.id).believed(&stored.record.plan.rotation, Timestamp::now());
    ctx.shares_present_keys(&stored.record, &notes).then(|| usual_upkeep(ctx, claim, &stored, &notes))
}

/// The upkeep that is due for a bound claim without problems, or the time until some is due, if known.
pub(crate) fn usual_upkeep<P>(
    ctx: &Context<P>,
    claim: &Claim,
    stored: &Stored,
    notes: &KeyNotes,
) -> (Upkeep, Option<Duration>) {
    let plan = &stored.record.plan;
    let by_us = stored.author == Author::Us;
    let keys = match plan.user {
        Some(_) => keys::due(notes, claim.rotation_request.as_deref(), &plan.rotation, Timestamp::now()),
        None => (Upkeep::Nothing, None),
    };
    // In one look-up, because every reconcile of a bound claim comes here.
    let times = ctx.memory.with(&claim.id, |m| Times {
        keys,
        failed: m.upkeep.failed_in(),
        unfinished: m.upkeep.is_unfinished(),
        replacement: m.upkeep.replacement_in(),
        key_search: m.upkeep.key_search_in(),
        // What the Go provisioner created looks different, and is not changed.
        check: m.upkeep.check_in(ctx.options.resync.filter(|_| by_us)),
        asked: m.upkeep.asks_again(claim.retry_request.as_deref()) && by_us,
    });
    upkeep::usual(&times)
}
