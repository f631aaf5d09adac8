//! What the operator needs of an API server. The one in memory and a real one are both held to it.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams};
use operator_runtime::kubernetes::answers::is_replaced;
use serde_json::{Value, json};

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

pub async fn a_write_of_another_version_or_object_is_refused(api: &Api<ConfigMap>) {
    let first = api.create(&PostParams::default(), &named("a", "x")).await.expect("created").metadata;
    let twice = api.create(&PostParams::default(), &named("a", "x")).await.expect_err("it exists");
    assert!(matches!(&twice, kube::Error::Api(status) if status.is_already_exists()), "{twice}");
    let version = json!({ "metadata": { "resourceVersion": first.resource_version }, "data": { "a": "2" } });
    let second = merge(api, "a", version.clone()).await.expect("nobody was faster").metadata;
    assert_eq!(merge(api, "a", version).await, Err(409));
    let of_another = json!({ "metadata": { "uid": "another", "resourceVersion": first.resource_version } });
    assert_eq!(merge(api, "a", of_another).await, Err(409));
    let patch = Patch::Merge(json!({ "metadata": { "uid": "another" } }));
    let refused = api.patch("a", &PatchParams::default(), &patch).await.expect_err("another");
    assert!(is_replaced(&refused), "{refused:?}");
    assert_eq!(merge(api, "b", json!({})).await, Err(404));
    let unchanged = merge(api, "a", json!({ "data": { "a": "2" } })).await.expect("patched").metadata;
    assert_eq!(unchanged.resource_version, second.resource_version);
    let preconditions = Preconditions { uid: Some("another".to_owned()), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    assert_eq!(status(&api.delete("a", &params).await.expect_err("another")), 409);
}

pub async fn a_finalizer_keeps_a_deleted_object(api: &Api<ConfigMap>) {
    api.create(&PostParams::default(), &named("a", "x")).await.expect("created");
    merge(api, "a", json!({ "metadata": { "finalizers": ["example.com/b", "example.com/c"] } }))
        .await
        .expect("patched");
    let kept = api.delete("a", &DeleteParams::default()).await.expect("deleted").left().expect("it is kept");
    assert!(kept.metadata.deletion_timestamp.is_some());
    assert_eq!(
        merge(api, "a", json!({ "metadata": { "finalizers": ["example.com/b", "example.com/c", "example.com/d"] } }))
            .await,
        Err(422)
    );
    merge(api, "a", json!({ "metadata": { "finalizers": ["example.com/b"] } })).await.expect("patched");
    assert!(api.get_opt("a").await.expect("an answer").is_some());
    merge(api, "a", json!({ "metadata": { "finalizers": [] } })).await.expect("patched");
    assert!(api.get_opt("a").await.expect("an answer").is_none());
}

pub async fn a_watch_shows_what_enters_and_leaves_its_selection(api: &Api<ConfigMap>) {
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &named(name, "x")).await.expect("created");
    }
    let page = api.list(&ListParams::default().labels("app=x").limit(2)).await.expect("a list");
    let next = page.metadata.continue_.expect("there is more");
    let rest = api.list(&ListParams::default().labels("app=x").limit(2).continue_token(&next)).await.expect("a list");
    assert_eq!((page.items.len(), rest.items.len()), (2, 1));
    let version = rest.metadata.resource_version.expect("a version");
    for label in ["y", "x", "x2"] {
        merge(api, "a", json!({ "metadata": { "labels": { "app": label } } })).await.expect("patched");
    }
    api.delete("b", &DeleteParams::default()).await.expect("deleted");
    let params = WatchParams { bookmarks: false, ..WatchParams::default().labels("app=x") };
    let events = api.watch(&params, &version).await.expect("a watch");
    let events: Vec<_> = events.take(4).try_collect().await.expect("events");
    let shown = events.into_iter().map(|event| match event {
        WatchEvent::Added(object) => ("added", object.metadata),
        WatchEvent::Modified(object) => ("modified", object.metadata),
        WatchEvent::Deleted(object) => ("deleted", object.metadata),
        other => panic!("{other:?}"),
    });
    let mut last = version.parse::<u64>().expect("a number");
    let shown: Vec<_> = shown
        .map(|(what, ObjectMeta { name, labels, resource_version, .. })| {
            let version = resource_version.and_then(|version| version.parse().ok()).expect("a version");
            assert!(version > last, "the version of the change");
            last = version;
            format!("{} {what} with {}", name.unwrap_or_default(), labels.unwrap_or_default()["app"])
        })
        .collect();
    assert_eq!(shown, ["a deleted with x", "a added with x", "a deleted with x", "b deleted with x"]);
}

pub async fn the_managed_fields_show_who_wrote_an_entry(api: &Api<ConfigMap>) {
    let manager = |name: &str| PatchParams { field_manager: Some(name.to_owned()), ..PatchParams::default() };
    api.create(&PostParams { field_manager: Some("first".to_owned()), ..PostParams::default() }, &named("a", "x"))
        .await
        .expect("created");
    let patch = Patch::Merge(json!({ "data": { "a": "1", "b": "2" } }));
    let patched = api.patch("a", &manager("second"), &patch).await.expect("patched");
    // The entries of `data`; those who wrote none are left out.
    let entries = |object: ConfigMap| -> BTreeMap<String, Vec<String>> {
        let managers = object.metadata.managed_fields.into_iter().flatten();
        let written = managers.map(|of| {
            let fields = of.fields_v1.map(|fields| fields.0).unwrap_or_default();
            let data = fields["f:data"].as_object().into_iter().flat_map(|data| data.keys());
            let entries = data.filter_map(|key| key.strip_prefix("f:").map(str::to_owned)).collect();
            (of.manager.unwrap_or_default(), entries)
        });
        written.filter(|(_, entries): &(_, Vec<_>)| !entries.is_empty()).collect()
    };
    assert_eq!(json!(entries(patched)), json!({ "first": ["a"], "second": ["b"] }));
    let patch = Patch::Merge(json!({ "data": { "a": "3", "b": null } }));
    let patched = api.patch("a", &manager("second"), &patch).await.expect("patched");
    assert_eq!(json!(entries(patched)), json!({ "second": ["a"] }));
}
