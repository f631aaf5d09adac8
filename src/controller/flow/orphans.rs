//! Records whose claims are gone, and records of other clusters: they are reported, and wait for an admin's word.
//!
//! The caches only say where to look. What a record says, and whether its claim is there, is asked of the cluster
//! itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use kube::{Resource as _, ResourceExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;

use super::find;
use crate::controller::backoff;
use crate::controller::claim::Claim;
use crate::controller::context::Context;
use crate::controller::decide::lookup::{self, Found};
use crate::controller::decide::orphan::{self, Due, Facts, Notice, Standing, reason};
use crate::controller::decide::record as codec;
use crate::controller::error::Error;
use crate::controller::objects::record;
use crate::controller::plan::{self, Undo};
use crate::controller::reconcile::{BUSY, Next};
use crate::controller::teardown;
use crate::provisioner::{ClaimId, Failure as _, Provisioner, Record};

/// Longest time that one look may take.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// How many records are looked at, or undone, at the same time.
const AT_ONCE: usize = 4;

/// Where there may be an orphan.
#[derive(Debug)]
pub(crate) enum Look {
    /// Anywhere: the claims were listed anew, and no event tells which are gone.
    Everywhere,
    /// In the record of this name, after a while.
    At { name: String, wait: Duration },
}

impl Look {
    pub(crate) fn now(name: String) -> Self {
        Self::At { name, wait: Duration::ZERO }
    }
}

/// Where the record of a claim may be that has gone, or has come in the place of another.
pub(crate) fn records_of<P>(ctx: &Context<P>, claim: &Claim) -> Vec<String> {
    lookup::names(claim, ctx.caches.records.irregular(&claim.id))
}

/// Looks after orphaned records, for as long as `looks` come.
pub(crate) async fn look_after<P: Provisioner>(
    ctx: &Context<P>,
    looks: UnboundedReceiver<Look>,
    again: UnboundedSender<Look>,
) {
    ctx.caches.filled().await;
    // Without the claims every record looks orphaned. It fails only when the operator ends.
    if ctx.caches.claims.wait_until_ready().await.is_err() {
        return;
    }
    let keeper = Keeper { ctx, said: Mutex::default(), failures: Mutex::default(), looking: Mutex::default() };
    let due = scheduler(requests(ctx, looks).boxed());
    due.for_each_concurrent(AT_ONCE, async |name: String| {
        if let Some(wait) = keeper.look(&name).await {
            // The other end is gone only when the operator ends.
            let _ = again.send(Look::At { name, wait });
        }
    })
    .await;
}

fn requests<P>(ctx: &Context<P>, looks: UnboundedReceiver<Look>) -> impl Stream<Item = ScheduleRequest<String>> {
    let looks = stream::unfold(looks, |mut looks| async { Some((looks.recv().await?, looks)) });
    looks.flat_map(|look| {
        let (names, wait) = match look {
            Look::Everywhere => (ctx.caches.records.names(), Duration::ZERO),
            Look::At { name, wait } => (vec![name], wait),
        };
        let run_at = Instant::now() + wait;
        let suspects = names.into_iter().filter(|name| is_suspect(ctx, name));
        stream::iter(suspects.map(|message| ScheduleRequest { message, run_at }).collect::<Vec<_>>())
    })
}

/// Whether the caches show a record of ours, and not its claim; or an admin's word on it.
fn is_suspect<P>(ctx: &Context<P>, name: &str) -> bool {
    let Some(object) = ctx.caches.records.object(name) else { return false };
    let (Some(uid), Some((namespace, claim))) = (codec::claim_uid(&object), codec::claim_name(&object)) else {
        return false;
    };
    let shown = ctx.caches.claims.get(&ObjectRef::new(claim).within(namespace));
    let here = codec::cluster_uid(&object).is_none_or(|cluster| cluster == ctx.cluster);
    let is_claims = here && shown.is_some_and(|shown| shown.meta().uid.as_deref() == Some(uid));
    codec::is_ours(&object, &ctx.label)
        && ctx.options.namespace.as_deref().is_none_or(|ours| ours == namespace)
        && (!is_claims || orphan::action(&object) != Ok(None))
}

/// Looks at records, one by its name.
struct Keeper<'a, P> {
    ctx: &'a Context<P>,
    /// What was said of a record last. A CRD may prune the condition that says so.
    said: Mutex<HashMap<String, Notice>>,
    /// Failures in a row.
    failures: Mutex<HashMap<String, u32>>,
    /// The records that are looked at now: two looks at one of them would both say what they see.
    looking: Mutex<HashSet<String>>,
}

impl<P: Provisioner> Keeper<'_, P> {
    /// Does what is due for a record. `Some`: another look after this time.
    async fn look(&self, name: &str) -> Option<Duration> {
        if !lock(&self.looking).insert(name.to_owned()) {
            return Some(BUSY);
        }
        let next = self.look_alone(name).await;
        lock(&self.looking).remove(name);
        next
    }

    async fn look_alone(&self, name: &str) -> Option<Duration> {
        let looked = tokio::time::timeout(TIME_LIMIT, self.attend(name)).await;
        let problem = match looked.unwrap_or(Err(Error::TimedOut(TIME_LIMIT.as_secs()))) {
            Ok(next) => {
                lock(&self.failures).remove(name);
                return match next {
                    Next::Rest => None,
                    Next::Now => Some(Duration::ZERO),
                    Next::After(wait) => Some(wait),
                };
            }
            Err(problem) => problem,
        };
        let failures = {
            let mut failures = lock(&self.failures);
            let count = failures.entry(name.to_owned()).or_default();
            *count = count.saturating_add(1);
            *count
        };
        tracing::warn!(reason = problem.reason(), record = name, failures, "orphaned ObjectBucket: {problem}");
        Some(backoff::delay(problem.class(), failures, &mut rand::rng()))
    }

    async fn attend(&self, name: &str) -> Result<Next, Error> {
        let ctx = self.ctx;
        let Some(object) = record::read(ctx, name).await? else {
            lock(&self.said).remove(name);
            return Ok(Next::Rest);
        };
        let stored = codec::read(&object)?;
        let standing = self.standing(&stored.record.claim, name).await?;
        let action = orphan::action(&object);
        let facts =
            Facts { record: &stored.record, action: &action, cluster: &ctx.cluster, standing: standing.as_ref() };
        match orphan::due(&facts) {
            Due::Nothing => Ok(Next::Rest),
            Due::Report(notice) => {
                self.say(&object, notice).await?;
                Ok(Next::Rest)
            }
            // Every change of the record wakes that claim, and so does its own appearance.
            Due::Adopt => Ok(Next::Rest),
            Due::Forget => {
                record::delete(&ctx.records(), &stored).await?;
                tracing::info!(
                    record = name,
                    bucket = stored.record.plan.bucket,
                    "the record is forgotten, as its annotation says; bucket and user stay"
                );
                Ok(Next::Rest)
            }
            Due::Remove => {
                // Nobody knows whether it was handed over, unless it says so: what is to be retained is.
                let undo = plan::undo(&stored.record, true);
                self.undo(&object, stored, undo).await
            }
            Due::Revoke => self.undo(&object, stored, Undo::Revoke).await,
        }
    }

    async fn undo(&self, object: &crate::api::ObjectBucket, stored: codec::Stored, undo: Undo) -> Result<Next, Error> {
        let claim = Claim::gone(stored.record.claim.clone());
        let Some(_busy) = self.ctx.memory.occupy(&claim.id) else { return Ok(Next::After(BUSY)) };
        self.say(object, in_progress(&stored.record, undo)).await?;
        match teardown::remove_orphan(self.ctx, &claim, stored, undo).await {
            Err(problem) if !problem.is_race() => {
                let message = format!("what is recorded could not be removed: {problem}");
                self.say(object, Notice { orphaned: true, reason: reason::REMOVAL_FAILED, message }).await?;
                Err(problem)
            }
            answer => answer,
        }
    }

    /// The claim that stands under the recorded name, asked of the cluster itself.
    async fn standing(&self, recorded: &ClaimId, record: &str) -> Result<Option<Standing>, Error> {
        let found = self.ctx.claims_in(&recorded.namespace).get_opt(&recorded.name).await;
        let Some(found) = found.map_err(Error::kubernetes("read the claim"))? else { return Ok(None) };
        let claim = Claim::read(&found, &self.ctx.label);
        let has_record = match claim.id.uid == recorded.uid {
            true => None,
            false => match find::record(self.ctx, &claim).await {
                Ok(Found::Mine(stored)) => Some(stored.name).filter(|name| name != record),
                _ => None,
            },
        };
        Ok(Some(Standing { uid: claim.id.uid, deleting: claim.deleting, has_record }))
    }

    async fn say(&self, object: &crate::api::ObjectBucket, notice: Notice) -> Result<(), Error> {
        let name = object.name_any();
        if lock(&self.said).get(&name) == Some(&notice) {
            return Ok(());
        }
        record::say(self.ctx, object, &notice).await?;
        lock(&self.said).insert(name, notice);
        Ok(())
    }
}

fn in_progress(record: &Record, undo: Undo) -> Notice {
    let bucket = &record.plan.bucket;
    let message = match undo {
        Undo::Delete => format!("deleting bucket {bucket:?} and the access to it, as the annotation says"),
        Undo::Revoke => format!("deleting the access to bucket {bucket:?}, as the annotation says; the bucket stays"),
    };
    Notice { orphaned: true, reason: reason::IN_PROGRESS, message }
}

// Every critical section is one look-up or assignment.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
