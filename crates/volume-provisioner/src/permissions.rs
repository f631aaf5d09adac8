//! The permissions that a provisioner of volumes needs in a cluster, whatever its store is.

use operator_runtime::rbac::{self, rule};
use serde_json::Value;

/// The namespace, the ServiceAccount, and the roles and bindings that it needs. Instances with different identities have
/// leases of their own, so the rule for leases names none.
pub(crate) fn objects(account: &str, namespace: &str) -> Vec<Value> {
    let cluster_wide = [
        rule("", &["persistentvolumeclaims"], &["get", "list", "watch", "patch"]),
        rule("", &["persistentvolumes"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("storage.k8s.io", &["storageclasses"], &["get", "list", "watch"]),
        rule("", &["nodes"], &["get"]),
        rule("events.k8s.io", &["events"], &["create"]),
    ];
    let leases = rule("coordination.k8s.io", &["leases"], &["get", "list", "watch", "create", "update"]);
    rbac::objects(account, namespace, &cluster_wide, &[(namespace.to_owned(), vec![leases])])
}

#[cfg(test)]
mod tests {
    use super::objects;

    #[test]
    fn the_manifest_of_the_example_has_them() {
        let name = "hostpath-provisioner";
        let manifest = include_str!("../../../examples/hostpath-provisioner/rbac.yaml");
        let read = |document| serde_saphyr::from_str::<serde_json::Value>(document).unwrap_or_default();
        let shipped: Vec<_> = manifest.split("\n---\n").map(read).collect();
        assert_eq!(objects(name, name), shipped);
    }
}
