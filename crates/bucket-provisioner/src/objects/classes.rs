//! Reading StorageClasses.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;

use crate::api::object_name;
use crate::decide::claim::Claim;
use crate::decide::class::{Class, ClassLookup};
use crate::error::Error;
use crate::state::context::Context;

/// Finds the claim's class in the cache, or else in the cluster, because it may be newer than the cache.
pub(crate) async fn of_claim<P>(ctx: &Context<P>, claim: &Claim) -> Result<ClassLookup, Error> {
    match (claim.spec(), claim.class()) {
        (Err(_), None) => Ok(ClassLookup::Unnamed),
        (_, class) => named(ctx, class.unwrap_or_default().to_owned()).await,
    }
}

/// Finds the class of this name. What cannot be a name is none.
pub(crate) async fn named<P>(ctx: &Context<P>, name: String) -> Result<ClassLookup, Error> {
    if object_name(&name).is_none() {
        return Ok(ClassLookup::Missing { name });
    }
    if let found @ ClassLookup::Found(_) = ctx.caches.class(&name) {
        return Ok(found);
    }
    let api: Api<StorageClass> = Api::all(ctx.client.clone());
    let found = api.get_opt(&name).await.map_err(Error::kubernetes("read the StorageClass"))?;
    Ok(match found {
        Some(class) => ClassLookup::Found(Class::read(&class)),
        None => ClassLookup::Missing { name },
    })
}
