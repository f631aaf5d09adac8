//! The permissions that an operator needs in a cluster, whatever its store is.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::api::wire::{CLUSTER_NAMESPACE, CRDS};
use operator_runtime::lease;
use operator_runtime::rbac::{Local, rule};

/// The operator that gets the permissions.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// Name of the ServiceAccount, and of its roles and bindings.
    pub(crate) account: String,
    /// Namespace in which the operator runs.
    pub(crate) namespace: String,
    /// Name of its lease.
    pub(crate) lease: String,
    /// Namespace of its lease.
    pub(crate) lease_namespace: String,
    /// Whether classes have `authentication: ServiceAccount`.
    pub(crate) keyless: bool,
    pub(crate) serves: Serves,
}

/// The claims that an operator serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Those of all namespaces, with Secrets with provisioning credentials in any of them.
    Everywhere,
    /// Those of one namespace.
    Namespace {
        /// The namespace.
        claims: String,
        /// The Secrets with provisioning credentials that its classes name. Those in the namespace itself can be left
        /// out.
        owners: Vec<OwnerSecrets>,
    },
}

/// Secrets with provisioning credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerSecrets {
    pub(crate) namespace: String,
    /// Name of the only one; all of the namespace if `None`.
    pub(crate) name: Option<String>,
}

/// The operator's namespace, its ServiceAccount, and the roles and bindings. Other namespaces must exist already.
pub(crate) fn objects(subject: &Subject) -> Vec<Value> {
    let Subject { account, namespace, lease, lease_namespace, keyless, serves } = subject;
    let tokens = || keyless.then(tokens).into_iter().flatten();
    let mut roles = vec![(lease_namespace.clone(), of_the_lease(lease))];
    add(&mut roles, lease::CLUSTER_NAMESPACE, of_the_lease(&lease::cluster_name(lease)));
    let cluster_wide = match serves {
        Serves::Everywhere => everywhere().into_iter().chain(tokens()).collect(),
        Serves::Namespace { claims, owners } => {
            add_roles(&mut roles, claims, owners);
            add(&mut roles, claims, tokens().collect());
            of_no_namespace()
        }
    };
    operator_runtime::rbac::objects(account, namespace, &cluster_wide, &roles)
}

/// The namespace of events about cluster-scoped objects, such as ObjectBuckets.
const DEFAULT_NAMESPACE: &str = "default";

fn add_roles(roles: &mut Vec<Local>, claims: &str, owners: &[OwnerSecrets]) {
    add(roles, claims, of_the_claims(claims));
    for owner in owners.iter().filter(|owner| owner.namespace != claims) {
        let mut secrets = rule("", &["secrets"], &["get", "list", "watch"]);
        if let Some(name) = &owner.name {
            secrets["resourceNames"] = json!([name]);
        }
        add(roles, &owner.namespace, vec![secrets]);
    }
    if claims != DEFAULT_NAMESPACE {
        add(roles, DEFAULT_NAMESPACE, vec![events()]);
    }
}

/// Adds rules to the one Role that a namespace has.
fn add(roles: &mut Vec<Local>, namespace: &str, rules: Vec<Value>) {
    match roles.iter_mut().find(|(of, _)| of == namespace) {
        Some((_, present)) => present.extend(rules),
        None => roles.push((namespace.to_owned(), rules)),
    }
}

/// All that an operator for all namespaces needs, besides its lease.
fn everywhere() -> Vec<Value> {
    vec![
        claims(),
        records(),
        status(&["objectbucketclaims/status", "objectbuckets/status"]),
        finalizers(),
        classes(),
        outputs(),
        events(),
        rule("", &["namespaces"], &["get"]),
        crds(),
    ]
}

/// The cluster-scoped permissions that an operator for one namespace needs.
fn of_no_namespace() -> Vec<Value> {
    vec![records(), status(&["objectbuckets/status"]), classes(), namespace(CLUSTER_NAMESPACE), crds()]
}

/// What an operator for one namespace needs in the namespace of the claims.
fn of_the_claims(name: &str) -> Vec<Value> {
    vec![claims(), status(&["objectbucketclaims/status"]), finalizers(), outputs(), events(), namespace(name)]
}

/// Kubernetes cannot limit `create` to a name; `list` and `watch` are limited to requests for this one object.
fn of_the_lease(name: &str) -> Vec<Value> {
    let group = "coordination.k8s.io";
    let mut own = rule(group, &["leases"], &["get", "list", "watch", "update"]);
    own["resourceNames"] = json!([name]);
    vec![rule(group, &["leases"], &["create"]), own]
}

/// The permissions that an operator for all namespaces needs.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) everywhere: Vec<PolicyRule>,
    /// In the namespace of the Lease.
    pub(crate) of_the_lease: Vec<PolicyRule>,
    /// In the namespace of the Lease for all installations.
    pub(crate) of_the_cluster_lease: Vec<PolicyRule>,
}

/// What an operator with a lease of this name needs.
pub(crate) fn rules(lease: &str) -> serde_json::Result<Rules> {
    let read = |rules: Vec<Value>| Vec::deserialize(Value::Array(rules));
    let of_all = of_the_lease(&lease::cluster_name(lease));
    Ok(Rules {
        everywhere: read(everywhere())?,
        of_the_lease: read(of_the_lease(lease))?,
        of_the_cluster_lease: read(of_all)?,
    })
}

const BUCKETS: &str = "objectbucket.io";

fn claims() -> Value {
    rule(BUCKETS, &["objectbucketclaims"], &["get", "list", "watch", "patch"])
}

fn records() -> Value {
    rule(BUCKETS, &["objectbuckets"], &["get", "list", "watch", "create", "patch", "delete"])
}

fn status(resources: &[&str]) -> Value {
    rule(BUCKETS, resources, &["patch"])
}

/// Owner references that block the owner's deletion; checked on clusters with OwnerReferencesPermissionEnforcement,
/// such as OpenShift.
fn finalizers() -> Value {
    rule(BUCKETS, &["objectbucketclaims/finalizers"], &["update"])
}

fn classes() -> Value {
    rule("storage.k8s.io", &["storageclasses"], &["get", "list", "watch"])
}

/// The outputs of claims, and the Secrets that classes name.
fn outputs() -> Value {
    rule("", &["secrets", "configmaps"], &["get", "list", "watch", "create", "patch", "delete"])
}

/// Of the ServiceAccounts of claims: a token proves that their access works, and a watch wakes a claim whose ServiceAccount does
/// not exist yet. Whoever may write Secrets can obtain such tokens as well.
fn tokens() -> [Value; 2] {
    [rule("", &["serviceaccounts/token"], &["create"]), rule("", &["serviceaccounts"], &["list", "watch"])]
}

fn events() -> Value {
    rule("events.k8s.io", &["events"], &["create"])
}

/// The uid of `kube-system` identifies the cluster: ObjectBuckets record where they were created. The uid of a claim's
/// namespace shows later whether a claim is in the same namespace.
fn namespace(name: &str) -> Value {
    let mut namespace = rule("", &["namespaces"], &["get"]);
    namespace["resourceNames"] = json!([name]);
    namespace
}

/// While one of them is being deleted, nothing is deleted at the store.
fn crds() -> Value {
    let mut crds = rule("apiextensions.k8s.io", &["customresourcedefinitions"], &["get"]);
    crds["resourceNames"] = json!(CRDS);
    crds
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use operator_runtime::lease;

    /// Without labels, and with rules in any order: neither changes a permission.
    fn comparable(mut object: Value) -> Value {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("labels");
        metadata.remove("annotations");
        if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
            rules.sort_by_key(|rule| [&rule["resources"], &rule["verbs"]].map(Value::to_string));
        }
        object
    }

    fn subject(serves: Serves) -> Subject {
        let name = "aws-s3-provisioner".to_owned();
        Subject {
            account: name.clone(),
            namespace: name.clone(),
            lease: lease::name("aws-s3.io/bucket", None),
            lease_namespace: name,
            keyless: false,
            serves,
        }
    }

    #[test]
    fn the_manifest_has_what_is_printed() {
        let manifest = include_str!("../../../../deploy/operator.yaml");
        let documents = manifest.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap());
        let shipped: Vec<Value> = documents.map(comparable).collect();
        for object in objects(&subject(Serves::Everywhere)).into_iter().map(comparable) {
            assert!(shipped.contains(&object), "deploy/operator.yaml has no such {}: {object:#}", object["kind"]);
        }
    }

    #[test]
    fn tokens_are_requested_where_claims_are() {
        let everywhere = Subject { keyless: true, ..subject(Serves::Everywhere) };
        let claims = Serves::Namespace { claims: "team".to_owned(), owners: Vec::new() };
        let one = Subject { keyless: true, ..subject(claims) };
        for (subject, kind, namespace) in [(everywhere, "ClusterRole", Value::Null), (one, "Role", Value::from("team"))]
        {
            let has_tokens = |object: &&Value| {
                object["rules"].to_string().contains(r#"["serviceaccounts/token"],"verbs":["create"]"#)
            };
            let objects = objects(&subject);
            let found: Vec<_> = objects.iter().filter(has_tokens).collect();
            let [found] = found[..] else { panic!("{found:?}") };
            assert_eq!((&found["kind"], &found["metadata"]["namespace"]), (&Value::from(kind), &namespace));
        }
    }

    /// The namespaces of the Roles, with the resources of each.
    fn roles(claims: &str, owners: &[(&str, Option<&str>)]) -> Vec<(String, String)> {
        let owners = owners.iter().map(|(namespace, name)| OwnerSecrets {
            namespace: (*namespace).to_owned(),
            name: name.map(str::to_owned),
        });
        let serves = Serves::Namespace { claims: claims.to_owned(), owners: owners.collect() };
        let roles = objects(&subject(serves)).into_iter().filter(|object| object["kind"] == "Role");
        roles
            .map(|role| {
                let resources = role["rules"].as_array().unwrap().iter().map(|rule| {
                    let names = rule["resourceNames"].as_array().into_iter().flatten().map(|name| format!("={name}"));
                    format!("{}{}", rule["resources"], names.collect::<String>())
                });
                (role["metadata"]["namespace"].as_str().unwrap().to_owned(), resources.collect::<Vec<_>>().join(" "))
            })
            .collect()
    }

    #[test]
    fn an_operator_has_one_role_in_each_namespace_that_it_uses() {
        let lease = r#"["leases"] ["leases"]="aws-s3.io.bucket""#;
        let of_claims = |namespace: &str| {
            format!(
                r#"["objectbucketclaims"] ["objectbucketclaims/status"] ["objectbucketclaims/finalizers"] ["secrets","configmaps"] ["events"] ["namespaces"]={namespace:?}"#
            )
        };
        let of = |namespace: &str, rules: &str| (namespace.to_owned(), rules.to_owned());
        let of_cluster = || of("kube-system", r#"["leases"] ["leases"]="cluster.aws-s3.io.bucket""#);
        let apart = roles("team", &[("vault", Some("owner")), ("vault", Some("other")), ("safe", None)]);
        assert_eq!(
            apart,
            [
                of("aws-s3-provisioner", lease),
                of_cluster(),
                of("team", &of_claims("team")),
                of("vault", r#"["secrets"]="owner" ["secrets"]="other""#),
                of("safe", r#"["secrets"]"#),
                of("default", r#"["events"]"#),
            ]
        );
        let together = roles("aws-s3-provisioner", &[("aws-s3-provisioner", Some("owner")), ("default", None)]);
        assert_eq!(
            together,
            [
                of("aws-s3-provisioner", &format!("{lease} {}", of_claims("aws-s3-provisioner"))),
                of_cluster(),
                of("default", r#"["secrets"] ["events"]"#),
            ]
        );
        let alone = [of("aws-s3-provisioner", lease), of_cluster(), of("default", &of_claims("default"))];
        assert_eq!(roles("default", &[]), alone);
    }
}
