//! That it is as strict as the real one.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use super::{ApiServer, contract};
use crate::calls::Calls;

fn api() -> Api<ConfigMap> {
    Api::namespaced(ApiServer::default().client(&Calls::default()), "shop")
}

#[tokio::test(start_paused = true)]
async fn a_write_of_another_version_or_object_is_refused() {
    contract::a_write_of_another_version_or_object_is_refused(&api()).await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_a_deleted_object() {
    contract::a_finalizer_keeps_a_deleted_object(&api()).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_enters_and_leaves_its_selection() {
    contract::a_watch_shows_what_enters_and_leaves_its_selection(&api()).await;
}

#[tokio::test(start_paused = true)]
async fn the_managed_fields_show_who_wrote_an_entry() {
    contract::the_managed_fields_show_who_wrote_an_entry(&api()).await;
}
