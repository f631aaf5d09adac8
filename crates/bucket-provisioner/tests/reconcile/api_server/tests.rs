//! That it is as strict as the real one.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::ApiServer;
use crate::calls::Calls;

fn api(server: &ApiServer) -> Api<ConfigMap> {
    Api::namespaced(server.client(&Calls::default()), "shop")
}

fn named(name: &str, label: &str) -> ConfigMap {
    let object = json!({ "metadata": { "name": name, "labels": { "app": label } }, "data": { "a": "1" } });
    serde_json::from_value(object).expect("a ConfigMap")
}

async fn merge(api: &Api<ConfigMap>, name: &str, patch: Value) -> Result<ConfigMap, u16> {
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map_err(|error| status(&error))
}

fn status(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_of_another_version_or_object_is_refused() {
    let server = ApiServer::default();
    let api = api(&server);
    let first = api.create(&PostParams::default(), &named("a", "x")).await.expect("created").metadata;
    let twice = api.create(&PostParams::default(), &named("a", "x")).await.expect_err("it exists");
    assert!(matches!(&twice, kube::Error::Api(status) if status.is_already_exists()), "{twice}");
    let version = json!({ "metadata": { "resourceVersion": first.resource_version }, "data": { "a": "2" } });
    let second = merge(&api, "a", version.clone()).await.expect("nobody was faster").metadata;
    assert_eq!(merge(&api, "a", version).await, Err(409));
    assert_eq!(merge(&api, "a", json!({ "metadata": { "uid": "another" } })).await, Err(409));
    assert_eq!(merge(&api, "b", json!({})).await, Err(404));
    let unchanged = merge(&api, "a", json!({ "data": { "a": "2" } })).await.expect("patched").metadata;
    assert_eq!(unchanged.resource_version, second.resource_version);
    let preconditions = Preconditions { uid: Some("another".to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    assert_eq!(status(&api.delete("a", &params).await.expect_err("another")), 409);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_keeps_a_deleted_object() {
    let server = ApiServer::default();
    let api = api(&server);
    api.create(&PostParams::default(), &named("a", "x")).await.expect("created");
    merge(&api, "a", json!({ "metadata": { "finalizers": ["b", "c"] } })).await.expect("patched");
    let kept = api.delete("a", &DeleteParams::default()).await.expect("deleted").left().expect("it is kept");
    assert!(kept.metadata.deletion_timestamp.is_some());
    assert_eq!(merge(&api, "a", json!({ "metadata": { "finalizers": ["b", "c", "d"] } })).await, Err(422));
    merge(&api, "a", json!({ "metadata": { "finalizers": ["b"] } })).await.expect("patched");
    assert!(api.get_opt("a").await.expect("an answer").is_some());
    merge(&api, "a", json!({ "metadata": { "finalizers": [] } })).await.expect("patched");
    assert!(api.get_opt("a").await.expect("an answer").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_enters_and_leaves_its_selection() {
    let server = ApiServer::default();
    let api = api(&server);
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &named(name, "x")).await.expect("created");
    }
    let page = api.list(&ListParams::default().labels("app=x").limit(2)).await.expect("a list");
    let next = page.metadata.continue_.expect("there is more");
    let rest = api.list(&ListParams::default().labels("app=x").limit(2).continue_token(&next)).await.expect("a list");
    assert_eq!((page.items.len(), rest.items.len()), (2, 1));
    let version = rest.metadata.resource_version.expect("a version");
    for label in ["y", "x", "x2"] {
        merge(&api, "a", json!({ "metadata": { "labels": { "app": label } } })).await.expect("patched");
    }
    api.delete("b", &DeleteParams::default()).await.expect("deleted");
    let events = api.watch(&WatchParams::default().labels("app=x"), &version).await.expect("a watch");
    let events: Vec<_> = events.take(4).try_collect().await.expect("events");
    let shown = events.into_iter().map(|event| match event {
        WatchEvent::Added(object) => ("added", object.metadata.name),
        WatchEvent::Modified(object) => ("modified", object.metadata.name),
        WatchEvent::Deleted(object) => ("deleted", object.metadata.name),
        other => panic!("{other:?}"),
    });
    let shown: Vec<_> = shown.map(|(what, name)| format!("{} {what}", name.unwrap_or_default())).collect();
    assert_eq!(shown, ["a deleted", "a added", "a deleted", "b deleted"]);
}

#[tokio::test(start_paused = true)]
async fn the_managed_fields_show_who_wrote_an_entry() {
    let server = ApiServer::default();
    let api = api(&server);
    let manager = |name: &str| PatchParams { field_manager: Some(name.to_owned()), ..PatchParams::default() };
    api.create(&PostParams { field_manager: Some("first".to_owned()), ..PostParams::default() }, &named("a", "x"))
        .await
        .expect("created");
    let patch = Patch::Merge(json!({ "data": { "a": "1", "b": "2" } }));
    let patched = api.patch("a", &manager("second"), &patch).await.expect("patched");
    let entries = |object: ConfigMap| -> BTreeMap<String, Value> {
        let managers = object.metadata.managed_fields.into_iter().flatten();
        managers
            .map(|of| (of.manager.unwrap_or_default(), of.fields_v1.map(|fields| fields.0).unwrap_or_default()))
            .collect()
    };
    let wanted = json!({ "first": { "f:data": { "f:a": {} } }, "second": { "f:data": { "f:b": {} } } });
    assert_eq!(json!(entries(patched)), wanted);
    let patch = Patch::Merge(json!({ "data": { "a": "3", "b": null } }));
    let patched = api.patch("a", &manager("second"), &patch).await.expect("patched");
    assert_eq!(json!(entries(patched)), json!({ "second": { "f:data": { "f:a": {} } } }));
}
