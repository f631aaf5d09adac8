//! Records whose claims are gone: somebody took the finalizer off a claim by force. What was made for it is removed
//! from the record alone, as with any deleted claim.
//!
//! The caches only say where to look. Whether a claim is gone is asked of the cluster itself, right before
//! anything is undone.

use std::time::Duration;

use kube::core::DeserializeGuard;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::backoff;
use super::claim::Claim;
use super::context::Context;
use super::error::{self, Error};
use super::reconcile::{BUSY, Next};
use super::record::{self, Author, Stored};
use super::teardown;
use crate::api::wire;
use crate::provisioner::{ClaimId, Failure as _, Provisioner};

/// Longest time that one attempt may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Where there may be an orphan.
#[derive(Debug)]
pub(crate) enum Look {
    /// Anywhere: the claims were listed anew, and no event tells which are gone.
    Everywhere,
    /// In the record of this name, whose removal has failed this often.
    At { name: String, failures: u32 },
}

/// Looks for the record of a claim that is gone.
pub(crate) fn look_for(claim: &ClaimId) -> impl Iterator<Item = Look> + use<> {
    let (plain, unique) = record::names(claim);
    plain.into_iter().chain([unique]).map(|name| Look::At { name, failures: 0 })
}

/// Removes what proves to be orphaned, one record after the other.
pub(crate) async fn remove_all<P: Provisioner>(
    ctx: &Context<P>,
    mut looks: UnboundedReceiver<Look>,
    again: UnboundedSender<Look>,
) {
    ctx.caches.filled().await;
    while let Some(look) = looks.recv().await {
        let (name, failures) = match look {
            Look::Everywhere => {
                let suspects = ctx.caches.records.names().into_iter().filter(|name| is_suspect(ctx, name));
                suspects.for_each(|name| look_at_later(&again, name, 0));
                continue;
            }
            Look::At { name, failures } => (name, failures),
        };
        if !is_suspect(ctx, &name) {
            continue;
        }
        let removed = tokio::time::timeout(TIME_LIMIT, remove(ctx, &name)).await;
        let removed = removed.unwrap_or(Err(Error::TimedOut(TIME_LIMIT.as_secs())));
        let (wait, failures) = match removed {
            Ok(Next::Rest) => continue,
            Ok(Next::Now) => (Duration::ZERO, 0),
            Ok(Next::After(wait)) => (wait, 0),
            Err(problem) => {
                if failures == 0 {
                    tracing::warn!(reason = problem.reason(), record = name, "what is left of a claim: {problem}");
                }
                let failures = failures.saturating_add(1);
                (backoff::delay(problem.class(), failures, &mut rand::rng()), failures)
            }
        };
        let again = again.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            look_at_later(&again, name, failures);
        });
    }
}

fn look_at_later(looks: &UnboundedSender<Look>, name: String, failures: u32) {
    // The other end is gone only when the operator ends.
    let _ = looks.send(Look::At { name, failures });
}

/// Whether the caches show a record of ours, and not its claim.
fn is_suspect<P>(ctx: &Context<P>, name: &str) -> bool {
    let Some(object) = ctx.caches.records.get(None, name).and_then(|record| record.object()) else { return false };
    let (Some(uid), Some((namespace, claim))) = (record::claim_uid(&object), record::claim_name(&object)) else {
        return false;
    };
    let shown = ctx.caches.claims.get(&ObjectRef::new(claim).within(namespace));
    object.labels().get(wire::PROVISIONER_LABEL) == Some(&ctx.label)
        && ctx.options.namespace.as_deref().is_none_or(|ours| ours == namespace)
        && shown.is_none_or(|shown| shown.meta().uid.as_deref() != Some(uid))
}

async fn remove<P: Provisioner>(ctx: &Context<P>, name: &str) -> Result<Next, Error> {
    let found = ctx.records().get_opt(name).await.map_err(Error::kubernetes("read the ObjectBucket"))?;
    let Some(DeserializeGuard(Ok(object))) = found else { return Ok(Next::Rest) };
    let stored = record::read(&object)?;
    let claim = Claim::gone(stored.record.claim.clone());
    let Some(_busy) = ctx.memory.occupy(&claim.id) else { return Ok(Next::After(BUSY)) };
    if !teardown::is_gone(ctx, &claim).await? {
        return Ok(Next::Rest);
    }
    if stored.author == Author::GoProvisioner {
        left_by_go_provisioner(&stored);
        return Ok(Next::Rest);
    }
    tracing::info!(record = name, claim = %claim.id, "the claim is gone, its record is not: removing what was made");
    teardown::remove_orphan(ctx, &claim, stored).await
}

/// Its record does not say whether the bucket was created for the claim, and who knows for how long it has stood.
fn left_by_go_provisioner(stored: &Stored) {
    tracing::warn!(
        reason = error::LEFT_IN_PLACE,
        record = stored.name,
        bucket = stored.record.plan.bucket,
        "the claim of this record of the Go provisioner is gone; bucket, user and record are left in place: remove them by hand if nobody needs them"
    );
}
