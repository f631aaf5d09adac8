//! How many claims are not ready.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{ClaimPhase, ConditionStatus};
use crate::cli::output::{counted, listed};
use crate::cli::view::View;
use crate::decide::claim::{Claim, LabelOwner};
use crate::decide::class::ClassLookup;
use crate::reasons;
use crate::store::Finding;

const SEE: &str = "the command `status` shows them, and the command `reasons` explains each reason";

pub(super) fn examine(view: &View) -> Vec<Finding> {
    let (mut all, mut lost, mut missing_classes) = (0_usize, 0_usize, BTreeSet::new());
    // By the reason.
    let (mut waiting, mut outdated) = (BTreeMap::<String, usize>::new(), BTreeMap::<String, usize>::new());
    for claim in view.claims.iter().filter(|claim| view.is_shown(claim)) {
        // What is bound no longer needs its class.
        let is_served = matches!(claim.status.phase, Some(ClaimPhase::Bound | ClaimPhase::Released));
        if !is_served && !matches!(view.classes.named(claim.class()), ClassLookup::Found(_)) {
            lost += 1;
            missing_classes.insert(format!("{:?}", claim.class().unwrap_or_default()));
            continue;
        }
        all += 1;
        if let Some(reason) = waits_for(claim) {
            *waiting.entry(reason).or_default() += 1;
        } else if let Some(reason) = outdated_by(claim) {
            *outdated.entry(reason.to_owned()).or_default() += 1;
        }
    }
    let number: usize = waiting.values().sum();
    let about = Finding::about("phases");
    let mut findings = vec![if all == 0 {
        about.good("there are no claims of these classes")
    } else if number == 0 {
        about.good(match all {
            1 => "the only claim of these classes is ready".to_owned(),
            _ => format!("all {all} claims of these classes are ready"),
        })
    } else {
        let (all, are) = (counted(all, "claim", "claims"), if number == 1 { "is" } else { "are" });
        about
            .warning(format!("{number} of {all} of these classes {are} not ready: {}", super::by_reason(&waiting)))
            .with_remedy(SEE)
    }];
    if !outdated.is_empty() {
        let claims = counted(outdated.values().sum::<usize>(), "ready claim is", "ready claims are");
        let message = format!("{claims} not up to date: {}", super::by_reason(&outdated));
        findings.push(Finding::about("settings").warning(message).with_remedy(SEE));
    }
    if lost > 0 {
        let named: Vec<_> = missing_classes.into_iter().collect();
        let lost = counted(lost, "claim names a StorageClass that does", "claims name StorageClasses that do");
        let message = format!("{lost} not exist: {}", listed(&named, super::NAMED));
        let finding = Finding::about("classes").warning(message);
        findings.push(finding.with_remedy("create the classes, or correct spec.storageClassName in the claims"));
    }
    findings.extend(untouched(view));
    findings
}

/// The claims that no provisioner has touched, although their StorageClass exists: perhaps the name of the provisioner
/// in it has a typing error, which nothing else would report.
fn untouched(view: &View) -> Option<Finding> {
    let (mut names, mut classes) = (Vec::new(), BTreeSet::new());
    for claim in view.claims.iter().filter(|claim| claim.label == LabelOwner::None && !claim.finalizer) {
        if let ClassLookup::Found(class) = view.classes.named(claim.class())
            && class.provisioner != view.provisioner
            && claim.status.phase.is_none()
        {
            names.push(claim.id.to_string());
            classes.insert(format!("{:?} (provisioner {:?})", class.name, class.provisioner));
        }
    }
    let classes: Vec<_> = classes.into_iter().collect();
    let message = format!(
        "nothing has processed {}, of StorageClass {}",
        listed(&names, super::NAMED),
        listed(&classes, super::NAMED)
    );
    let remedy = "if it is the wrong class, correct spec.storageClassName in the claim; if the class was meant for this operator, recreate it with the provisioner of the operator";
    (!names.is_empty()).then(|| Finding::about("other provisioners").warning(message).with_remedy(remedy))
}

/// The reason of a claim that does not have what it or its class demands.
fn outdated_by(claim: &Claim) -> Option<&str> {
    Some(claim.unmet(reasons::UP_TO_DATE)?.reason.as_str())
}

/// The reason of a claim that is not ready. A claim whose bucket was deleted in the store stays Bound, and so does one
/// whose deletion no operator has noticed.
fn waits_for(claim: &Claim) -> Option<String> {
    let ready = claim.condition(reasons::READY);
    if claim.bound() && ready.is_none_or(|ready| ready.status != ConditionStatus::False) {
        return claim.deleting.then(|| "deleted".to_owned());
    }
    let reason = ready.map(|ready| ready.reason.clone()).filter(|reason| !reason.is_empty());
    let phase = || claim.status.phase.map_or_else(|| "no phase".to_owned(), |phase| format!("{phase:?}"));
    Some(reason.unwrap_or_else(phase))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::view::{Classes, Records};

    fn findings(claims: &[Value]) -> Vec<Finding> {
        let class = |name: &str, provisioner: &str| {
            serde_json::from_value(json!({ "metadata": { "name": name }, "provisioner": provisioner })).unwrap()
        };
        let claims = claims.iter().map(|claim| Claim::read(&serde_json::from_value(claim.clone()).unwrap(), "ours"));
        examine(&View {
            provisioner: "ours".to_owned(),
            classes: Classes::of([class("fast", "ours"), class("disks", "theirs")]),
            claims: claims.collect(),
            records: Records::default(),
        })
    }

    fn claim(class: &str, status: Value) -> Value {
        let labels = if class == "no more" { json!({ "bucket-provisioner": "ours" }) } else { json!({}) };
        json!({
            "apiVersion": "objectbucket.io/v1alpha1", "kind": "ObjectBucketClaim",
            "metadata": { "name": "a", "labels": labels }, "spec": { "storageClassName": class }, "status": status,
        })
    }

    #[test]
    fn claims_of_this_provisioner_that_are_not_ready_are_counted() {
        let ready = |status: &str, reason: &str| json!({ "type": "Ready", "status": status, "reason": reason });
        let denied = json!({ "phase": "Failed", "conditions": [ready("False", "AccessDenied")] });
        let claims = [
            claim("fast", json!({ "phase": "Bound" })),
            claim("fast", denied.clone()),
            claim("fast", denied),
            claim("fast", json!({ "phase": "Pending" })),
            claim("fast", json!(null)),
            claim("disks", json!({ "phase": "Failed" })),
            claim("fast", json!({ "phase": "Bound", "conditions": [ready("False", "BucketGone")] })),
            claim("gone", json!({ "phase": "Bound" })),
            claim("no more", json!({ "phase": "Released" })),
            claim("no more", json!({ "phase": "Bound" })),
        ];
        let found = findings(&claims);
        assert_eq!(
            found[0].message,
            "6 of 8 claims of these classes are not ready: 2 AccessDenied, 1 BucketGone, 1 Pending, 1 Released, 1 no phase"
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(findings(&claims[..1])[0].message, "the only claim of these classes is ready");
        let mut deleted = claims[0].clone();
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(findings(&[deleted])[0].message, "1 of 1 claim of these classes is not ready: 1 deleted");
    }

    #[test]
    fn claims_that_are_not_up_to_date_are_reported() {
        let conditions = json!([
            { "type": "Ready", "status": "True", "reason": "Bound" },
            { "type": "UpToDate", "status": "False", "reason": "EditIgnored" },
        ]);
        let found = findings(&[claim("fast", json!({ "phase": "Bound", "conditions": conditions }))]);
        assert_eq!(found[1].message, "1 ready claim is not up to date: 1 EditIgnored");
    }

    #[test]
    fn claims_that_no_provisioner_has_touched_are_reported() {
        let found = findings(&[claim("disks", json!(null)), claim("disks", json!({}))]);
        let expected = "nothing has processed /a, /a, of StorageClass \"disks\" (provisioner \"theirs\")";
        assert_eq!(found[1].message, expected);
        assert_eq!(findings(&[claim("disks", json!({ "phase": "Pending" }))]).len(), 1);
    }

    #[test]
    fn claims_whose_class_does_not_exist_are_reported() {
        let damaged = json!({ "metadata": { "name": "a" }, "spec": "damaged" });
        let found = findings(&[claim("gone", json!({})), damaged, claim("", json!({}))]);
        assert_eq!(found[1].message, "3 claims name StorageClasses that do not exist: \"\", \"gone\"");
        let found = findings(&[claim("gone", json!({}))]);
        assert_eq!(found[1].message, "1 claim names a StorageClass that does not exist: \"gone\"");
    }
}
