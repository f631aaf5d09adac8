//! The identity of this cluster. Records and tags contain it, so that no cluster removes what belongs to another one.

use std::future::Future;
use std::time::Duration;

use futures::future::{Either, select};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use crate::api::wire::CLUSTER_NAMESPACE;
use operator_runtime::kubernetes::answers::status_code;

/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// UID of the namespace `kube-system`. Waits until it can be read; `None` if `shutdown` comes first.
pub(crate) async fn uid(client: &Client, shutdown: impl Future<Output = ()> + Unpin) -> Option<String> {
    let reading = std::pin::pin!(read(Api::all(client.clone())));
    match select(reading, shutdown).await {
        Either::Left((uid, _)) => Some(uid),
        Either::Right(_) => None,
    }
}

async fn read(namespaces: Api<Namespace>) -> String {
    let mut pause = Duration::from_millis(500);
    loop {
        match namespaces.get_metadata(CLUSTER_NAMESPACE).await {
            Ok(namespace) => match namespace.metadata.uid {
                Some(uid) => return uid,
                None => tracing::error!("namespace {CLUSTER_NAMESPACE} has no uid; retrying"),
            },
            Err(error) if status_code(&error) == Some(403) => tracing::error!(
                %error,
                "the operator may not read namespace {CLUSTER_NAMESPACE}, whose uid identifies the cluster; grant the permissions in deploy/; retrying"
            ),
            Err(error) => {
                tracing::warn!(%error, "cannot read namespace {CLUSTER_NAMESPACE}, whose uid identifies the cluster; retrying");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
