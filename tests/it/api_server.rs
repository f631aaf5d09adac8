//! The API server of the cluster behaves as the one in memory of `crates/bucket-provisioner/tests/reconcile`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::support::World;

#[path = "../../crates/bucket-provisioner/tests/reconcile/api_server/contract.rs"]
mod contract;

async fn api() -> Api<ConfigMap> {
    let world = World::new().await;
    Api::namespaced(world.client.clone(), &world.namespace)
}

#[tokio::test]
async fn a_write_of_another_version_or_object_is_refused() {
    contract::a_write_of_another_version_or_object_is_refused(&api().await).await;
}

#[tokio::test]
async fn a_finalizer_keeps_a_deleted_object() {
    contract::a_finalizer_keeps_a_deleted_object(&api().await).await;
}

#[tokio::test]
async fn a_watch_shows_what_enters_and_leaves_its_selection() {
    contract::a_watch_shows_what_enters_and_leaves_its_selection(&api().await).await;
}

#[tokio::test]
async fn the_managed_fields_show_who_wrote_an_entry() {
    contract::the_managed_fields_show_who_wrote_an_entry(&api().await).await;
}
