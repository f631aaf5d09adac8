//! What roles allow and what calls need, in one form, and how the two differ.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// One verb on one kind of object: what a rule allows, or what a call needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Permission {
    pub(super) verb: String,
    /// With its subresource, and with its group in front unless that is the core group.
    pub(super) resource: String,
    /// Of a rule: all namespaces if `None`.
    pub(super) namespace: Option<String>,
    /// Of a rule: all objects if `None`.
    pub(super) name: Option<String>,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (word, value) in [("named", &self.name), ("in namespace", &self.namespace)] {
            if let Some(value) = value {
                write!(f, " {word} {value}")?;
            }
        }
        Ok(())
    }
}

/// Group, resource and subresource as one string.
pub(super) fn resource(group: &str, resource: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{group}/{resource}") }
}

impl Permission {
    /// Whether this, of a rule, allows a call that needs `call`.
    fn allows(&self, call: &Self) -> bool {
        let limited = |limit: &Option<String>, to: &Option<String>| limit.is_none() || limit == to;
        (&self.verb, &self.resource) == (&call.verb, &call.resource)
            && limited(&self.namespace, &call.namespace)
            && limited(&self.name, &call.name)
    }
}

/// All that these Roles and ClusterRoles allow; other objects among them count for nothing.
pub(super) fn granted(objects: &[Value]) -> BTreeSet<Permission> {
    let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    roles.flat_map(granted_by).collect()
}

fn granted_by(role: &Value) -> Vec<Permission> {
    let namespace = role["metadata"]["namespace"].as_str();
    let mut all = Vec::new();
    for rule in role["rules"].as_array().unwrap() {
        let words = |key: &str| -> Vec<&str> {
            rule[key].as_array().into_iter().flatten().map(|word| word.as_str().unwrap()).collect()
        };
        let names = match words("resourceNames") {
            names if names.is_empty() => vec![None],
            names => names.into_iter().map(Some).collect(),
        };
        for group in words("apiGroups") {
            for kind in words("resources") {
                for verb in words("verbs") {
                    assert!(![group, kind, verb].contains(&"*"), "a rule for everything: {rule}");
                    all.extend(names.iter().map(|name| Permission {
                        verb: verb.to_owned(),
                        resource: resource(group, kind),
                        namespace: namespace.map(str::to_owned),
                        name: name.map(str::to_owned),
                    }));
                }
            }
        }
    }
    all
}

/// What is allowed and never used, and what is used and not allowed.
pub(super) fn differences(granted: &BTreeSet<Permission>, used: &BTreeSet<Permission>) -> Vec<String> {
    let unused = granted.iter().filter(|rule| !used.iter().any(|call| rule.allows(call)));
    let missing = used.iter().filter(|call| !granted.iter().any(|rule| rule.allows(call)));
    let unused = unused.map(|rule| format!("no call needs: {rule}"));
    unused.chain(missing.map(|call| format!("no rule allows: {call}"))).collect()
}

#[test]
fn a_difference_is_found_in_either_direction() {
    let role = |rules: Value| serde_json::json!({ "kind": "Role", "metadata": { "namespace": "a" }, "rules": rules });
    let rules = serde_json::json!([
        { "apiGroups": ["g"], "resources": ["things", "things/status"], "verbs": ["patch"] },
        { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get"] },
    ]);
    let granted = granted(&[role(rules), serde_json::json!({ "kind": "Namespace" })]);
    let call = |verb: &str, resource: &str, namespace: &str, name: &str| Permission {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
    };
    let mut used = BTreeSet::from([
        call("patch", "g/things", "a", "x"),
        call("patch", "g/things/status", "a", "x"),
        call("get", "secrets", "a", "one"),
    ]);
    assert_eq!(differences(&granted, &used), [""; 0]);
    used.remove(&call("patch", "g/things/status", "a", "x"));
    assert_eq!(differences(&granted, &used), ["no call needs: patch g/things/status in namespace a"]);
    for (verb, resource, namespace, name) in
        [("patch", "g/things", "b", "x"), ("get", "secrets", "a", "two"), ("delete", "g/things", "a", "x")]
    {
        let used = BTreeSet::from([call(verb, resource, namespace, name)]);
        let found = differences(&granted, &used);
        let problem = format!("no rule allows: {verb} {resource} named {name} in namespace {namespace}");
        assert!(found.contains(&problem), "{found:?}");
    }
}
