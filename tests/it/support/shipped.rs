//! The operators of all tests act as a ServiceAccount that has what `deploy/operator.yaml` ships, and nothing else: what it
//! does not allow fails there, whatever flow needs it.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::api_of;

/// The rules of a role that `deploy/operator.yaml` ships under the name of the program: those of the nth of its kind.
pub(crate) fn rules(kind: &str, nth: usize) -> Vec<Value> {
    rules_of_nth(kind, "aws-s3-provisioner", nth)
}

/// The rules of a role that `deploy/operator.yaml` ships.
pub(crate) fn rules_of(kind: &str, name: &str) -> Vec<Value> {
    rules_of_nth(kind, name, 0)
}

fn rules_of_nth(kind: &str, name: &str, nth: usize) -> Vec<Value> {
    let text = include_str!("../../../deploy/operator.yaml");
    let documents = text.split("\n---\n").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    let mut roles = documents.filter(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    let mut role = roles.nth(nth).unwrap_or_else(|| panic!("deploy/operator.yaml has no {kind} {name}"));
    serde_json::from_value(role["rules"].take()).unwrap()
}

/// A client that acts as the ServiceAccount, in the cluster of this configuration. `more`: rules beyond what is shipped.
pub(crate) async fn client(admin: &Client, config: &Config, more: &[Value]) -> Client {
    static TOKENS: Mutex<BTreeMap<String, String>> = Mutex::const_new(BTreeMap::new());
    let mut tokens = TOKENS.lock().await;
    let cluster = format!("{} {more:?}", config.cluster_url);
    if !tokens.contains_key(&cluster) {
        tokens.insert(cluster.clone(), token(admin, more).await);
    }
    let mut config = config.clone();
    config.auth_info = Default::default();
    config.auth_info.token = Some(tokens[&cluster].clone().into());
    Client::try_from(config).unwrap()
}

/// Each process has a ServiceAccount of its own, because others may have been built with other rules.
async fn token(admin: &Client, more: &[Value]) -> String {
    let name = format!("t-{:08x}-operators", rand::random::<u32>());
    let mut all = rules("ClusterRole", 0);
    all.extend_from_slice(more);
    // The shipped Role is for the lease of one provisioner; these have many.
    all.push(json!({
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "verbs": ["create", "get", "list", "watch", "update"],
    }));
    let api = "rbac.authorization.k8s.io";
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": name } }),
        json!({ "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": name }, "rules": all }),
        json!({
            "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": name },
            "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": name }],
        }),
    ] {
        apply(admin, &object).await;
    }
    token_of(admin, &name, &name).await
}

/// Applies an object as an admin does.
pub(crate) async fn apply(admin: &Client, object: &Value) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let params = PatchParams::apply("tests").force();
    api_of(admin, &object).patch(&object.name_any(), &params, &Patch::Apply(&object)).await.unwrap();
}

/// A token of a ServiceAccount.
pub(crate) async fn token_of(admin: &Client, namespace: &str, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let request = json!({ "spec": { "audiences": [], "expirationSeconds": 86_400 } });
    let request: TokenRequest = serde_json::from_value(request).unwrap();
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}
