//! StorageClasses.

use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;

use crate::state::Context;

/// Whether a class exists now.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn exists<P>(ctx: &Context<P>, name: &str) -> kube::Result<bool> {
    let found = Api::<StorageClass>::all(ctx.client.clone()).get_metadata_opt(name).await?;
    Ok(found.is_some())
}
