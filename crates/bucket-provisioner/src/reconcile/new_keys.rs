//! The wait for new keys, which a store may know only after seconds. Between the attempts of a claim its keys are tried
//! often, without a worker: many claims wait for that at once, and others need the workers.

use std::time::Duration;

use kube::runtime::reflector::ObjectRef;
use secrecy::SecretString;
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use super::next::Next;
use super::{owner, step};
use crate::decide::claim::{Claim, Guarded};
use crate::decide::output_data;
use crate::objects::tokens::{self, Token};
use crate::state::context::Context;
use crate::state::memory::inputs;
use crate::state::stores;
use crate::store::{AppCredentials, Probe, ProbeCall, Provisioner, Record};
use operator_runtime::engine;
use operator_runtime::engine::clock::AttemptClock;

/// The time between two tries.
const INTERVAL: Duration = Duration::from_millis(400);
/// How long the store may take to answer one.
const LONGEST_TRY: Duration = Duration::from_secs(10);

/// If the claim waits for new keys, tries them until they work, or the wait is over. Returns when to continue.
pub(crate) async fn wait<P: Provisioner>(ctx: &Context<P>, claim: &Claim, guarded: &Guarded, next: Next) -> Next {
    if !matches!(next, Next::After(_)) {
        return next;
    }
    let Some(refused_for) = ctx.memory.get(&claim.id, |m| m.waits.tries_often()) else { return next };
    let Ok(_permit) = ctx.key_waits.try_acquire() else { return next };
    let Some(access) = Box::pin(access_of(ctx, claim)).await else { return next };
    let traced = step::attempt("wait for keys", &claim.id, &access.record.class_name);
    try_often(ctx, claim, guarded, &access, refused_for).instrument(traced).await
}

/// What is tried.
struct Access {
    record: Record,
    keys: AppCredentials,
    /// Of the claim's ServiceAccount, if the store accepts it.
    token: Option<SecretString>,
}

/// Tries the keys until they work, or the wait is over. Returns when to continue. `refused_for`: so far.
async fn try_often<P: Provisioner>(
    ctx: &Context<P>,
    claim: &Claim,
    guarded: &Guarded,
    access: &Access,
    refused_for: Duration,
) -> Next {
    let store = stores::store_of(&access.record);
    let first = Instant::now() + ctx.propagation.first_probe(&store).saturating_sub(refused_for);
    let key = ObjectRef::from_obj(guarded);
    loop {
        let shown = ctx.caches.claims.get(&key).map(|guarded| inputs(&Claim::read(&guarded, &ctx.label)));
        let remaining = shown.and_then(|inputs| ctx.memory.get(&claim.id, |m| m.waits.remaining(inputs)));
        let Some(remaining) = remaining.filter(|_| !ctx.workers.are_closed()) else { return Next::Now };
        let now = Instant::now();
        sleep_until(now + INTERVAL.min(remaining)).await;
        if remaining <= INTERVAL || now + INTERVAL < first {
            continue;
        }
        match try_once(ctx, access).await {
            Some(true) => {
                let refused_for = ctx.memory.get(&claim.id, |m| m.waits.seen_to_work(&access.keys.access_key_id));
                ctx.propagation.learn(&store, refused_for);
                return Next::Now;
            }
            Some(false) => {}
            // The next attempt reports the problem.
            None => return Next::After(remaining.saturating_sub(now.elapsed())),
        }
    }
}

/// The record and the keys that the claim waits for; `None` if they cannot be read now, or are not in its Secret yet.
async fn access_of<P>(ctx: &Context<P>, claim: &Claim) -> Option<Access> {
    if ctx.memory.get(&claim.id, |m| m.upkeep.pending_key()).is_some() {
        return None;
    }
    let stored = ctx.caches.record(claim, &ctx.options.provisioner_name, &ctx.cluster)?;
    let record = stored.record;
    // These are not new for long, and trying them needs the provisioning credentials.
    if record.plan.is_tried_with_owner() {
        return None;
    }
    if record.plan.service_account.is_some() {
        let token = match tokens::request(ctx, &record).await.ok()? {
            Some(Token::Issued(token)) => Some(token),
            Some(Token::Denied(_)) => return None,
            None => None,
        };
        return Some(Access { record, keys: AppCredentials::without_keys(), token });
    }
    let secret = ctx.secrets_in(&claim.id.namespace).get_opt(&claim.id.name).await.ok()??;
    Some(Access { record, keys: output_data::credentials(&secret)?, token: None })
}

/// Whether the keys work; `None` if the store gives no answer to that. It is not noted whether the store answers: attempts
/// do that, and give it more time.
async fn try_once<P: Provisioner>(ctx: &Context<P>, access: &Access) -> Option<bool> {
    let Access { record, keys, token } = access;
    let parameters = owner::parameters::<P>(record).ok()?;
    let call = ProbeCall::new(record, &parameters, keys).with_token(token.as_ref());
    let clock = AttemptClock::new(false, |_| {});
    let answer = engine::guarded(clock, LONGEST_TRY, Box::pin(ctx.provisioner.probe(&call))).await;
    Some(matches!(answer.ok()?.ok()?, Probe::Usable))
}
