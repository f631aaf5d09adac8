//! The permissions that an operator needs in a cluster, whatever its store is.

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::commands::doctor::Rules;

const API: &str = "rbac.authorization.k8s.io";

/// For whom the permissions are.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Name of the ServiceAccount, and of the objects that give it permissions.
    pub(crate) account: String,
    /// Namespace in which the operator runs.
    pub(crate) namespace: String,
    /// Name of its lease.
    pub(crate) lease: String,
    /// Namespace of its lease.
    pub(crate) lease_namespace: String,
}

/// The namespace, the ServiceAccount, and the roles and bindings that it needs.
pub(crate) fn objects(subject: &Subject) -> [Value; 6] {
    let Subject { account, namespace, lease, lease_namespace } = subject;
    let cluster_wide = json!({ "name": account });
    let local = json!({ "name": account, "namespace": lease_namespace });
    let role = |kind: &str, metadata: &Value, rules: Value| json!({ "apiVersion": format!("{API}/v1"), "kind": kind, "metadata": metadata, "rules": rules });
    let binding = |kind: &str, metadata: &Value| {
        json!({
            "apiVersion": format!("{API}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": API, "kind": kind, "name": account },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
        })
    };
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": namespace },
        }),
        role("ClusterRole", &cluster_wide, everywhere()),
        binding("ClusterRole", &cluster_wide),
        role("Role", &local, of_the_lease(lease)),
        binding("Role", &local),
    ]
}

/// What an operator with a lease of this name needs.
pub(crate) fn rules(lease: &str) -> serde_json::Result<Rules> {
    Ok(Rules { everywhere: Vec::deserialize(everywhere())?, of_the_lease: Vec::deserialize(of_the_lease(lease))? })
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

fn everywhere() -> Value {
    let buckets = "objectbucket.io";
    // Its uid identifies the cluster: records say where they were made.
    let mut cluster = rule("", &["namespaces"], &["get"]);
    cluster["resourceNames"] = json!(["kube-system"]);
    json!([
        rule(buckets, &["objectbucketclaims"], &["get", "list", "watch", "patch"]),
        rule(buckets, &["objectbuckets"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(buckets, &["objectbucketclaims/status", "objectbuckets/status"], &["patch"]),
        // Owner references that block the owner's deletion; checked on clusters with
        // OwnerReferencesPermissionEnforcement, such as OpenShift.
        rule(buckets, &["objectbucketclaims/finalizers"], &["update"]),
        rule("storage.k8s.io", &["storageclasses"], &["get", "list", "watch"]),
        // The outputs of claims, in any namespace; and the Secrets that classes name.
        rule("", &["secrets", "configmaps"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("events.k8s.io", &["events"], &["create"]),
        cluster,
    ])
}

/// Kubernetes cannot limit `create` to a name; `list` and `watch` are limited to requests for this one object.
fn of_the_lease(name: &str) -> Value {
    let group = "coordination.k8s.io";
    let mut mine = rule(group, &["leases"], &["get", "list", "watch", "update"]);
    mine["resourceNames"] = json!([name]);
    json!([rule(group, &["leases"], &["create"]), mine])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runtime::lease;

    #[test]
    fn what_is_printed_is_what_the_manifest_has() {
        let manifest = include_str!("../../deploy/operator.yaml");
        let shipped: Vec<Value> =
            manifest.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect();
        let name = "aws-s3-provisioner".to_owned();
        let subject = Subject {
            account: name.clone(),
            namespace: name.clone(),
            lease: lease::name("aws-s3.io/bucket", None),
            lease_namespace: name,
        };
        for object in objects(&subject) {
            assert!(shipped.contains(&object), "deploy/operator.yaml has no such {}: {object:#}", object["kind"]);
        }
    }
}
