//! Bound claims that are as they were left: whether one is, and what upkeep is due for it. Answered from caches and
//! memory, with no call and no write.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::controller::decide::claim::{Claim, ignored};
use crate::controller::decide::keys::{self, KeyNotes};
use crate::controller::decide::record::{Author, Stored};
use crate::controller::decide::report;
use crate::controller::decide::steps::Upkeep;
use crate::controller::decide::upkeep::{self, Times};
use crate::controller::state::context::Context;

/// What upkeep is due for a bound claim that is as it was left, and how long none is; `None` for any other claim.
pub(crate) fn due_while_steady<P>(ctx: &Context<P>, claim: &Claim) -> Option<(Upkeep, Option<Duration>)> {
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster)?;
    let spec = claim.spec().ok()?;
    let is_steady = !claim.deleting
        && claim.finalizer
        && stored.says_bound
        && !stored.is_being_adopted()
        && spec.object_bucket_name.as_deref() == Some(&stored.name)
        && report::says_bound(claim, &ignored(spec, &stored.record), ctx.keeps(stored.author))
        && ctx.caches.outputs_are_up_to_date(&claim.id);
    if !is_steady {
        return None;
    }
    let notes = ctx.caches.key_notes(&claim.id).believed(&stored.record.plan.rotation, Timestamp::now());
    ctx.shares_present_keys(&stored.record, &notes).then(|| usual_upkeep(ctx, claim, &stored, &notes))
}

/// What is due for a bound claim that is well; or how long nothing is, if that is known.
pub(crate) fn usual_upkeep<P>(
    ctx: &Context<P>,
    claim: &Claim,
    stored: &Stored,
    notes: &KeyNotes,
) -> (Upkeep, Option<Duration>) {
    let (memory, id, plan) = (&ctx.memory, &claim.id, &stored.record.plan);
    let by_us = stored.author == Author::Us;
    upkeep::usual(&Times {
        keys: match plan.user {
            Some(_) => keys::due(notes, claim.rotation_request.as_deref(), &plan.rotation, Timestamp::now()),
            None => (Upkeep::Nothing, None),
        },
        failed: memory.if_known(id, |m| m.upkeep.failed_in()),
        replacement: memory.if_known(id, |m| m.upkeep.replacement_in()),
        key_look: memory.if_known(id, |m| m.upkeep.key_look_in()),
        // What the Go provisioner made is of other shapes, and stays as it is.
        check: memory.with(id, |m| m.upkeep.check_in(ctx.options.resync.filter(|_| by_us))),
        asked: memory.with(id, |m| m.upkeep.asks_again(claim.retry_request.as_deref())) && by_us,
    })
}
