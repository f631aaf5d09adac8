//! A ServiceAccount that has certain permissions and no others. As admin of the cluster, one would not notice that a
//! permission is missing.

use kube::Config;
use serde_json::{Value, json};

use crate::support::World;
use crate::support::shipped::{apply, token_of};

/// A ServiceAccount, and how an operator uses it.
pub(super) struct Account {
    /// As the API server calls it.
    pub(super) user: String,
    pub(super) kubeconfig: Value,
}

impl Account {
    /// Applies these objects, as an admin does with what the command `rbac` prints, and takes the ServiceAccount among
    /// them.
    pub(super) async fn of(world: &World, objects: &[Value]) -> Self {
        for object in objects {
            apply(&world.client, object).await;
        }
        let account = objects.iter().find(|object| object["kind"] == "ServiceAccount").expect("a ServiceAccount");
        let part = |key: &str| account["metadata"][key].as_str().unwrap();
        let (namespace, name) = (part("namespace"), part("name"));
        let token = token_of(&world.client, namespace, name).await;
        Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            kubeconfig: kubeconfig(&token, namespace).await,
        }
    }
}

/// A kubeconfig with a token. As in a pod, its namespace is that of the lease.
async fn kubeconfig(token: &str, namespace: &str) -> Value {
    let cluster = Config::infer().await.unwrap();
    let authority = cluster.root_cert.as_ref().map(|certs| pem(certs));
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": {
            "server": cluster.cluster_url.to_string(),
            "certificate-authority-data": authority,
        }}],
        "users": [{ "name": "u", "user": { "token": token } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": namespace } }],
    })
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
