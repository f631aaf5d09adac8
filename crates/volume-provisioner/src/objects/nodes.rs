//! Nodes.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::PartialObjectMeta;

use crate::request::SelectedNode;
use crate::state::Context;

/// A node with its labels, `None` if it does not exist.
///
/// # Errors
/// Kubernetes did not answer, or refused.
pub(crate) async fn get<P>(ctx: &Context<P>, name: &str) -> kube::Result<Option<SelectedNode>> {
    // Users can write anything there, and it becomes a part of a path.
    if !name.chars().all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || "-.".contains(char)) {
        return Ok(None);
    }
    let found: Option<PartialObjectMeta<Node>> = Api::<Node>::all(ctx.client.clone()).get_metadata_opt(name).await?;
    Ok(found.map(|node| SelectedNode { name: name.to_owned(), labels: node.metadata.labels.unwrap_or_default() }))
}
