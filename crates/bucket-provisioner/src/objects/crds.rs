//! The CustomResourceDefinitions of ObjectBucketClaims and ObjectBuckets: if one of them is deleted, Kubernetes deletes all
//! claims, perhaps by mistake.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use crate::api::wire::{self, annotation};
use crate::error::Error;
use crate::state::context::Context;
use crate::state::crds::Deleting;

/// Fails while one of the CRDs is being deleted, unless an admin has confirmed that what the claims had is deleted with
/// it. To be called before anything is removed from the store.
///
/// # Errors
/// [`Error::CrdDeleting`], and that the CRDs cannot be read.
pub(crate) async fn may_remove<P>(ctx: &Context<P>) -> Result<(), Error> {
    let mut request = ctx.crds.ask().await;
    let deleting = match request.known() {
        Some(known) => known,
        None => {
            let read = read(ctx).await?;
            request.answered(read);
            read
        }
    };
    deleting.map_or(Ok(()), |crd| Err(Error::CrdDeleting { crd }))
}

async fn read<P>(ctx: &Context<P>) -> Result<Deleting, Error> {
    let crds: Api<CustomResourceDefinition> = Api::all(ctx.client.clone());
    let (mut is_confirmed, mut are_claims_gone) = (false, false);
    for name in wire::CRDS {
        let found = crds.get_metadata_opt(name).await;
        let Some(crd) = found.map_err(Error::kubernetes("read the CustomResourceDefinition"))? else {
            are_claims_gone |= name == wire::CLAIM_CRD;
            continue;
        };
        let confirmed = crd.metadata.annotations.as_ref().and_then(|all| all.get(annotation::CONFIRM_DELETION));
        match (crd.metadata.deletion_timestamp, confirmed.map(String::as_str)) {
            (Some(_), Some("yes")) => is_confirmed = true,
            (Some(_), _) => return Ok(Some(name)),
            (None, _) => {}
        }
    }
    // Without the claims' CRD nothing should be removed: they were not deleted one by one. Unless an admin wants to
    // delete all, and the ObjectBuckets are the last.
    Ok((are_claims_gone && !is_confirmed).then_some(wire::CLAIM_CRD))
}
