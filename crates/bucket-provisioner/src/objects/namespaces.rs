//! Reading namespaces.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use crate::error::Error;
use crate::state::context::Context;

/// The uid of a namespace, which a later one of the same name does not have; `None` if it does not exist.
///
/// # Errors
/// Kubernetes refused.
pub(crate) async fn uid<P>(ctx: &Context<P>, name: &str) -> Result<Option<String>, Error> {
    let namespaces: Api<Namespace> = Api::all(ctx.client.clone());
    let found = namespaces.get_metadata_opt(name).await.map_err(Error::kubernetes("read the claim's namespace"))?;
    Ok(found.and_then(|namespace| namespace.metadata.uid))
}
