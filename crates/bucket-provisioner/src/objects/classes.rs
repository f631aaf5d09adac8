//! Reading StorageClasses.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::core::{ApiResource, DynamicObject};

use crate::api::object_name;
use crate::decide::claim::Claim;
use crate::decide::class::{Class, ClassLookup};
use crate::error::Error;
use crate::state::context::Context;

/// Finds the claim's class in the cache, or else in the cluster, because it may be newer than the cache.
pub(crate) async fn of_claim<P>(ctx: &Context<P>, claim: &Claim) -> Result<ClassLookup, Error> {
    let name = match claim.spec() {
        Ok(spec) => spec.storage_class_name.clone(),
        Err(_) => match class_name_of_unreadable(ctx, claim).await? {
            Some(name) => name,
            None => return Ok(ClassLookup::Unnamed),
        },
    };
    named(ctx, name).await
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

/// Most claims that do not parse still name a class, and the class names their provisioner.
async fn class_name_of_unreadable<P>(ctx: &Context<P>, claim: &Claim) -> Result<Option<String>, Error> {
    let resource = ApiResource::erase::<crate::api::ObjectBucketClaim>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client.clone(), &claim.id.namespace, &resource);
    let raw = api.get_opt(&claim.id.name).await.map_err(Error::kubernetes("read the claim"))?;
    let name = raw.as_ref().and_then(|raw| raw.data.pointer("/spec/storageClassName")?.as_str());
    Ok(name.filter(|name| !name.is_empty()).map(str::to_owned))
}
