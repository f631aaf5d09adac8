//! Finding ObjectBuckets in the cluster: that of a claim, and those that name a bucket.

use kube::ResourceExt as _;
use kube::api::ListParams;
use tokio::try_join;

use super::records::{candidate, read_all, read_candidate};
use crate::api::{Guard, ObjectBucket, wire};
use crate::decide::claim::Claim;
use crate::decide::lookup::{Candidate, Found};
use crate::decide::{action, lookup, record, release};
use crate::error::Error;
use crate::objects::namespaces;
use crate::state::context::Context;
use crate::state::unlabelled::ByBucket;

/// What the operator is about to do.
const LIST: &str = "list the ObjectBuckets";
/// Objects in one page of a list.
const PAGE: u32 = 500;

/// Finds the claim's record, or returns what there is instead.
///
/// # Errors
/// Kubernetes refused; and those of [`lookup::look_up`].
pub(crate) async fn find<P>(ctx: &Context<P>, claim: &Claim) -> Result<Found, Error> {
    let irregular = ctx.caches.records.irregular(&claim.id).into_iter().filter(|name| concerns(ctx, claim, name));
    let names = lookup::names(claim, irregular.collect());
    if let Some(free_name) = free_name_of_new(ctx, claim, &names) {
        return Ok(Found::None { free_name });
    }
    let (candidates, namespace) = try_join!(candidates(ctx, claim, names), async {
        match claim.undoes() {
            true => namespaces::uid(ctx, &claim.id.namespace).await,
            false => Ok(None),
        }
    })?;
    let has_rival = |object: &_| ctx.caches.has_rival(claim, object);
    let surroundings = lookup::Surroundings {
        cluster: &ctx.cluster,
        provisioner: &ctx.options.provisioner_name,
        has_rival,
        namespace_uid: namespace.as_deref(),
        asked_at: claim.asked_at(),
    };
    lookup::look_up(claim, candidates, &surroundings)
}

/// What has these names now. If one is the claim's, as the cache shows, the others do not matter.
async fn candidates<P>(ctx: &Context<P>, claim: &Claim, names: Vec<String>) -> Result<Vec<Candidate>, Error> {
    let is_owned = |object: &ObjectBucket| record::is_owned(object, claim, &ctx.cluster);
    let shown = names.iter().find(|name| ctx.caches.records.object(name).as_ref().is_some_and(is_owned));
    if let Some(name) = shown {
        let found = read_candidate(ctx, name.clone()).await?;
        if matches!(&found.object, Some(Ok(object)) if is_owned(object)) {
            return Ok(vec![found]);
        }
    }
    read_all(ctx, names).await
}

/// The name for the first record of a new claim, if the caches suffice for that. The finalizer is written before the first
/// record, so a claim without it has none. If the name is not free, as the cache does not show yet, the creation of
/// the record is refused, and the next attempt reads.
fn free_name_of_new<P>(ctx: &Context<P>, claim: &Claim, names: &[String]) -> Option<String> {
    let is_new = !claim.finalizer && !claim.deleting && !claim.was_bound() && !claim.undoes();
    let is_taken = |name: &String| ctx.caches.records.has(name);
    if !is_new || names.iter().any(is_taken) || ctx.memory.get(&claim.id, |m| m.record_refused) {
        return None;
    }
    record::names(&claim.id).0
}

/// Whether an ObjectBucket of this claim's namespace and name may become the claim's. There can be thousands of
/// previous claims that do not matter; every change of an ObjectBucket wakes the claim.
fn concerns<P>(ctx: &Context<P>, claim: &Claim, name: &str) -> bool {
    let Some(object) = ctx.caches.records.object(name) else { return true };
    record::claim_uid(&object).is_none_or(|uid| uid == claim.id.uid)
        || action::action(&object) != Ok(None)
        || claim.undoes() && release::is_released(&object)
}

/// The ObjectBuckets that name this bucket, but for one, listed now: the cache may be old, if its watch fails.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn with_bucket<P>(ctx: &Context<P>, bucket: &str, but: &str) -> Result<Vec<Candidate>, Error> {
    let labelled = ListParams::default().labels(&format!("{}={}", wire::BUCKET_LABEL, wire::bucket_label(bucket)));
    let listed = ctx.records().list(&labelled).await.map_err(Error::kubernetes(LIST))?;
    let mut found: Vec<_> = listed.items.into_iter().map(candidate).collect();
    let mut others = unlabelled_with(ctx, bucket).await?;
    // One whose label somebody has changed.
    others.extend(ctx.caches.records.others_with_bucket(bucket, but));
    others.sort_unstable();
    others.dedup();
    others.retain(|name| found.iter().all(|candidate| candidate.name != *name));
    found.extend(read_all(ctx, others).await?);
    found.retain(|candidate| candidate.name != but);
    Ok(found)
}

/// The names of the ObjectBuckets with this bucket and without the label for it.
async fn unlabelled_with<P>(ctx: &Context<P>, bucket: &str) -> Result<Vec<String>, Error> {
    let mut listing = ctx.unlabelled.list().await;
    if !listing.is_fresh() {
        let (mut all, mut next) = (ByBucket::new(), None::<String>);
        loop {
            let mut page = ListParams::default().labels(&format!("!{}", wire::BUCKET_LABEL)).limit(PAGE);
            page.continue_token = next;
            let page = ctx.records().list(&page).await.map_err(Error::kubernetes(LIST))?;
            for object in page.items {
                if let Some(bucket) = bucket_of(&object) {
                    all.entry(bucket.into()).or_default().push(object.name_any().into());
                }
            }
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
        listing.listed(all);
    }
    Ok(listing.with(bucket))
}

fn bucket_of(object: &Guard<ObjectBucket>) -> Option<&str> {
    match &object.0 {
        Ok(object) => record::bucket(object),
        Err(unreadable) => unreadable.bucket.as_deref(),
    }
}
