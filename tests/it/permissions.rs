//! The operator under the ServiceAccount and the permissions that `deploy/` ships.

use bucket_provisioner::aws::PROVISIONER_NAME;
use bucket_provisioner::runtime::lease;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Config};
use serde::Deserialize as _;
use serde_json::json;

use crate::support::operator::Binary;
use crate::support::{PATIENCE, World, bucket_of, seen};

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
    let kubeconfig = kubeconfig(&world, &token(&world).await).await;
    // All namespaces and two of them, as deployed. Only the watch of the lease is quick enough for these times.
    let args = ["--leader-elect", "--lease-duration=10m", "--lease-renew-deadline=9m", "--lease-retry-period=5m"];
    let mut operator = Binary::start_with(&world, &kubeconfig, &args, &[]);
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let lease = lease::name(&world.provisioner, None);
    let holder = |lease: Option<&Lease>| lease?.spec.as_ref()?.holder_identity.clone().filter(|h| !h.is_empty());
    let first = seen(&leases, &lease, |lease| holder(lease).is_some()).await.expect("it leads");
    let standby = Binary::start_with(&world, &kubeconfig, &args, &[]);
    let stands_by = async {
        while !standby.log().contains("standing by") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, stands_by).await.expect("the second stands by");

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
    let is_next = |lease: Option<&Lease>| holder(lease).is_some_and(|next| Some(next) != holder(first.as_ref()));
    seen(&leases, &lease, is_next).await.expect("the second takes over");
    assert!(operator.log().contains("released the lease"), "{}", operator.log());
    for log in [operator.log(), standby.log()] {
        assert!(!log.contains("forbidden"), "{log}");
    }
}

/// A token of a ServiceAccount that has the shipped permissions and no others. As admin of the cluster, one would not
/// notice that a permission is missing.
async fn token(world: &World) -> String {
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
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    bindings.patch(&name, &apply, &Patch::Apply(&binding)).await.unwrap();
    lease_role(world, &name).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), &world.namespace);
    let account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "operator" } })).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [] } })).unwrap();
    let answer = accounts.create_token_request("operator", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// A kubeconfig with this token.
async fn kubeconfig(world: &World, token: &str) -> serde_json::Value {
    let cluster = Config::infer().await.unwrap();
    let authority = cluster.root_cert.as_ref().map(|certs| pem(certs));
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": {
            "server": cluster.cluster_url.to_string(),
            "certificate-authority-data": authority,
        }}],
        "users": [{ "name": "u", "user": { "token": token } }],
        // As a pod's service account, it says where the pod is, and so where the lease is.
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": world.namespace } }],
    })
}

/// The shipped Role for the lease, in the world's namespace and for the lease of its provisioner.
async fn lease_role(world: &World, name: &str) {
    let shipped_for = [lease::name(PROVISIONER_NAME, None)];
    let mut rules: Vec<PolicyRule> = Role::deserialize(shipped("Role")).unwrap().rules.unwrap();
    for rule in rules.iter_mut().filter(|rule| rule.resource_names.is_some()) {
        assert_eq!(rule.resource_names.as_deref(), Some(&shipped_for[..]), "the name that the operator derives");
        rule.resource_names = Some(vec![lease::name(&world.provisioner, None)]);
    }
    let apply = PatchParams::apply("tests").force();
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": { "name": name }, "rules": rules });
    let roles: Api<Role> = Api::namespaced(world.client.clone(), &world.namespace);
    roles.patch(name, &apply, &Patch::Apply(&role)).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": "operator", "namespace": world.namespace }],
    });
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), &world.namespace);
    bindings.patch(name, &apply, &Patch::Apply(&binding)).await.unwrap();
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
