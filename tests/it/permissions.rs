//! The operator under the ServiceAccount and the permissions that `deploy/` ships.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Config};
use serde::Deserialize as _;
use serde_json::json;

use crate::support::operator::Binary;
use crate::support::{World, bucket_of};

/// The documents of `deploy/operator.yaml`, by kind.
fn shipped(kind: &str) -> serde_json::Value {
    let text = include_str!("../../deploy/operator.yaml");
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str::<serde_json::Value>(document).unwrap())
        .find(|document| document["kind"] == kind)
        .unwrap_or_else(|| panic!("deploy/operator.yaml has no {kind}"))
}

#[tokio::test]
async fn the_shipped_permissions_are_enough_for_a_whole_life() {
    let world = World::new().await;
    // The shipped role under this test's own name, bound to an account of its own: as admin of the
    // cluster nobody would notice a permission that is missing.
    let rules = ClusterRole::deserialize(shipped("ClusterRole")).unwrap().rules;
    let name = world.unique("operator");
    let apply = PatchParams::apply("tests").force();
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules });
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    roles.patch(&name, &apply, &Patch::Apply(&role)).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "operator", "namespace": world.namespace }],
    });
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.patch(&name, &apply, &Patch::Apply(&binding)).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "operator" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [] } })).unwrap();
    let token = accounts.create_token_request("operator", &PostParams::default(), &request).await.unwrap();

    let cluster = Config::infer().await.unwrap();
    let authority = cluster.root_cert.as_ref().map(|certs| pem(certs));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": {
            "server": cluster.cluster_url.to_string(),
            "certificate-authority-data": authority,
        }}],
        "users": [{ "name": "u", "user": { "token": token.status.unwrap().token } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    // All namespaces, as deployed.
    let mut operator = Binary::start_with(&world, &kubeconfig, &[], &[]);

    let class = world.class("greenfield").await;
    world.claim("photos", &class).await;
    let bucket = bucket_of(&world.wait_bound("photos").await);
    world.app("photos").await.put(&bucket, "a").await.unwrap();
    world.secrets().delete("photos", &Default::default()).await.unwrap();
    world.delete_claim("photos").await;
    world.wait_gone("photos").await;
    world.assert_no_objects("photos").await;
    assert!(!world.account.bucket_exists(&bucket).await);
    assert!(!world.events("photos").await.is_empty(), "it may write events");
    operator.terminate();
    operator.ended(std::time::Duration::from_secs(10)).await;
    assert!(!operator.log().contains("forbidden"), "{}", operator.log());
}

/// Certificates as `certificate-authority-data` has them: PEM in base64.
fn pem(certificates: &[Vec<u8>]) -> String {
    let base64 = |bytes: Vec<u8>| {
        let json = serde_json::to_value(k8s_openapi::ByteString(bytes)).unwrap();
        json.as_str().unwrap().to_owned()
    };
    let pem =
        |der: &Vec<u8>| format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", base64(der.clone()));
    base64(certificates.iter().map(pem).collect::<String>().into_bytes())
}
