//! How many claims are not bound.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;

use super::listed;
use crate::api::{ObjectBucketClaim, wire};
use crate::cli::session;
use crate::controller::Options;
use crate::store::Finding;

#[derive(Debug, Default)]
struct Count {
    all: usize,
    /// Reasons of the claims that are not bound.
    waiting: BTreeMap<String, usize>,
    /// Claims of classes that do not exist.
    lost: usize,
    missing_classes: BTreeSet<String>,
}

pub(super) async fn examine(client: &Client, options: &Options, classes: &[StorageClass]) -> Vec<Finding> {
    // Not typed: one that cannot be read must not hide the others.
    let kind = ApiResource::erase::<ObjectBucketClaim>(&());
    let api: Api<DynamicObject> = match &options.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let label = wire::provisioner_label(&options.provisioner_name);
    let mut count = Count::default();
    let add = |claim: DynamicObject| {
        let is_labelled = claim.labels().get(wire::PROVISIONER_LABEL) == Some(&label);
        count.add(&claim.data, is_labelled, &options.provisioner_name, classes);
    };
    match session::each_of(&api, None, add).await {
        Ok(()) => count.findings(),
        Err(error) => vec![super::unreadable("ObjectBucketClaims", &error)],
    }
}

impl Count {
    /// `is_labelled`: an operator with this provisioner has served it, so it no longer needs its class.
    fn add(&mut self, claim: &Value, is_labelled: bool, provisioner: &str, classes: &[StorageClass]) {
        let name = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
        let class = classes.iter().find(|class| class.name_any() == name);
        let status = &claim["status"];
        let phase = status["phase"].as_str().unwrap_or("no phase");
        match class {
            Some(class) if class.provisioner != provisioner => return,
            Some(_) => {}
            None if is_labelled && matches!(phase, "Bound" | "Released") => {}
            // It belongs to another provisioner, or to an unknown one.
            None if matches!(phase, "Bound" | "Released") => return,
            None => {
                self.lost += 1;
                self.missing_classes.insert(name.to_owned());
                return;
            }
        }
        self.all += 1;
        let conditions = status["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
        // A claim whose bucket was deleted in the store stays Bound.
        if phase == "Bound" && ready.is_none_or(|ready| ready["status"] != "False") {
            return;
        }
        let reason = ready.and_then(|ready| ready["reason"].as_str()).filter(|reason| !reason.is_empty());
        *self.waiting.entry(reason.unwrap_or(phase).to_owned()).or_default() += 1;
    }

    fn findings(&self) -> Vec<Finding> {
        let Self { all, waiting, lost, missing_classes } = self;
        let number: usize = waiting.values().sum();
        let mut findings = vec![if *all == 0 {
            Finding::about("phases").good("there are no claims of these classes")
        } else if number == 0 {
            Finding::about("phases").good(format!("all {all} claims of these classes are ready"))
        } else {
            let reasons =
                waiting.iter().map(|(reason, number)| format!("{number} {reason}")).collect::<Vec<_>>().join(", ");
            let message = format!("{number} of {all} claims of these classes are not ready: {reasons}");
            Finding::about("phases")
                .warning(message)
                .with_remedy("the command `status` shows them, and the command `reasons` explains each reason")
        }];
        if *lost > 0 {
            let named: Vec<_> = missing_classes.iter().map(|class| format!("{class:?}")).collect();
            let message = format!("{lost} claims name StorageClasses that do not exist: {}", listed(&named));
            findings.push(
                Finding::about("classes").warning(message).with_remedy("create the classes, or delete the claims"),
            );
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn count(claims: &[Value]) -> Vec<Finding> {
        let class = |name: &str, provisioner: &str| {
            serde_json::from_value(json!({ "metadata": { "name": name }, "provisioner": provisioner })).unwrap()
        };
        let classes = [class("fast", "ours"), class("disks", "theirs")];
        let mut count = Count::default();
        claims.iter().for_each(|claim| count.add(claim, claim["labelled"] == true, "ours", &classes));
        count.findings()
    }

    fn claim(class: &str, status: Value) -> Value {
        json!({ "spec": { "storageClassName": class }, "status": status })
    }

    #[test]
    fn claims_of_this_provisioner_that_are_not_ready_are_counted() {
        let denied = json!({ "phase": "Failed", "conditions": [{ "type": "Ready", "reason": "AccessDenied" }] });
        let without_bucket =
            json!({ "phase": "Bound", "conditions": [{ "type": "Ready", "status": "False", "reason": "BucketGone" }] });
        let claims = [
            claim("fast", json!({ "phase": "Bound" })),
            claim("fast", denied.clone()),
            claim("fast", denied),
            claim("fast", json!({ "phase": "Pending" })),
            claim("fast", json!(null)),
            claim("disks", json!({ "phase": "Failed" })),
            claim("fast", without_bucket),
            claim("no more", json!({ "phase": "Bound" })),
            json!({ "labelled": true, "spec": { "storageClassName": "no more" }, "status": { "phase": "Released" } }),
            json!({ "labelled": true, "spec": { "storageClassName": "no more" }, "status": { "phase": "Bound" } }),
        ];
        let findings = count(&claims);
        assert_eq!(
            findings[0].message,
            "6 of 8 claims of these classes are not ready: 2 AccessDenied, 1 BucketGone, 1 Pending, 1 Released, 1 no phase"
        );
        assert_eq!(findings.len(), 1);
        assert_eq!(count(&claims[..1])[0].message, "all 1 claims of these classes are ready");
    }

    #[test]
    fn claims_whose_class_does_not_exist_are_reported() {
        let findings = count(&[claim("gone", json!({})), json!({ "spec": "damaged" }), json!({})]);
        assert_eq!(findings[1].message, "3 claims name StorageClasses that do not exist: \"\", \"gone\"");
    }
}
