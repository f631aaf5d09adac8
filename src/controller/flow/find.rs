//! Finds a claim's record, in the cluster itself.

use crate::controller::claim::Claim;
use crate::controller::context::Context;
use crate::controller::decide::lookup::{self, Found, Surroundings};
use crate::controller::error::Error;
use crate::controller::objects::record;

/// Finds the claim's record, or what stands in its place.
///
/// # Errors
/// Kubernetes refused, or as [`lookup::look_up`].
pub(crate) async fn record<P>(ctx: &Context<P>, claim: &Claim) -> Result<Found, Error> {
    let names = lookup::names(claim, ctx.caches.records.irregular(&claim.id));
    let candidates = record::read_all(ctx, names).await?;
    let has_rival = |object: &_| ctx.caches.has_rival(claim, object);
    lookup::look_up(
        claim,
        candidates,
        &Surroundings { cluster: &ctx.cluster, provisioner: &ctx.options.provisioner_name, has_rival },
    )
}
