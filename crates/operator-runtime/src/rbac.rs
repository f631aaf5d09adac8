//! The objects that give an operator its permissions.

use serde_json::{Value, json};

const API: &str = "rbac.authorization.k8s.io";

/// The rules of one namespace.
pub type Local = (String, Vec<Value>);

/// A rule: what may be done with objects of an API group.
#[must_use]
pub fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// The name of a program as the name of an object can be.
#[must_use]
pub fn name_of_program(program: &str) -> String {
    program.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

/// The namespace, the ServiceAccount `account`, and the roles and bindings that give it these rules. Namespaces of others
/// must exist.
#[must_use]
pub fn objects(account: &str, namespace: &str, cluster_wide: &[Value], local: &[Local]) -> Vec<Value> {
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account, "namespace": namespace },
        }),
    ];
    let mut grant = |kind: &str, metadata: Value, rules: &[Value]| {
        objects.push(json!({ "apiVersion": format!("{API}/v1"), "kind": kind, "metadata": metadata, "rules": rules }));
        objects.push(json!({
            "apiVersion": format!("{API}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": { "apiGroup": API, "kind": kind, "name": account },
            "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
        }));
    };
    grant("ClusterRole", json!({ "name": account }), cluster_wide);
    for (namespace, rules) in local {
        grant("Role", json!({ "name": account, "namespace": namespace }), rules);
    }
    objects
}
