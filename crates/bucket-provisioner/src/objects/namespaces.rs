//! Reading namespaces.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;

use crate::decide::claim::Claim;
use crate::decide::class::ClassLookup;
use crate::decide::request::Labels;
use crate::error::Error;
use crate::refusal::Refusal;
use crate::state::context::Context;
use crate::store::namespaces::SELECTOR;

/// The labels of the claim's namespace, if it needs some to use the class; otherwise none are read.
///
/// # Errors
/// Kubernetes refused; or the namespace does not exist: a selector such as `!team` would match one without labels.
pub(crate) async fn labels<P>(ctx: &Context<P>, claim: &Claim, class: &ClassLookup) -> Result<Labels, Error> {
    let namespace = &claim.id.namespace;
    match class {
        ClassLookup::Found(class) if class.parameters.contains_key(SELECTOR) => match metadata(ctx, namespace).await? {
            Some(found) => Ok(found.metadata.labels.unwrap_or_default()),
            None => {
                let (class, namespace) = (class.name.clone(), namespace.clone());
                Err(Refusal::NamespaceNotAllowed { class, namespace }.into())
            }
        },
        _ => Ok(Labels::new()),
    }
}

/// The uid of a namespace, which a later one of the same name does not have; `None` if it does not exist.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn uid<P>(ctx: &Context<P>, name: &str) -> Result<Option<String>, Error> {
    Ok(metadata(ctx, name).await?.and_then(|namespace| namespace.metadata.uid))
}

async fn metadata<P>(ctx: &Context<P>, name: &str) -> Result<Option<PartialObjectMeta<Namespace>>, Error> {
    let namespaces: Api<Namespace> = Api::all(ctx.client.clone());
    namespaces.get_metadata_opt(name).await.map_err(Error::kubernetes("read the claim's namespace"))
}
