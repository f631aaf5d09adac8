//! ObjectBuckets that outlive their claims: what is reported, and when their bucket is deleted.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::api::ObjectBucket;
use crate::decide::record::Stored;
use crate::decide::release::{self, Release};
use crate::decide::{action, notice};
use crate::error::Error;
use crate::objects::records;
use crate::state::context::Context;

/// Longest time until a scheduled deletion is checked again: the clock may have been set.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Reports on an ObjectBucket that its claim was deleted, and what happens to the bucket.
///
/// # Errors
/// Kubernetes refused.
pub(in crate::reconcile) async fn report<P>(ctx: &Context<P>, stored: &Stored, release: &Release) -> Result<(), Error> {
    let notice = match release.delete_at() {
        Some(at) => notice::scheduled(stored, at),
        None => notice::retained(stored, &release.why),
    };
    match records::read(ctx, &stored.name).await? {
        Some(object) => records::report(ctx, &object, &notice).await.map(drop),
        None => Ok(()),
    }
}

/// How long an ObjectBucket need not be checked: it already reports when its bucket is deleted, and no admin has
/// decided otherwise.
pub(super) fn time_to_check(object: &ObjectBucket, now: Timestamp) -> Option<Duration> {
    let at = release::delete_at(object)?;
    let waits = notice::reports_schedule(object) && action::action(object) == Ok(None);
    waits.then(|| time_until(at, now))
}

/// The time until `at`, but at most [`LONGEST`].
pub(super) fn time_until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default().min(LONGEST)
}
