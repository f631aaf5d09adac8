//! What is due for a claim.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::class::Class;
use crate::wire;

/// Who decides.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    /// `StorageClass.provisioner` of the classes that are served.
    pub(crate) provisioner: String,
    /// Whose volumes this instance keeps; empty if it is the only one.
    pub(crate) identity: String,
    /// The value of [`wire::HELD_BY`] on the claims that this instance provisions for.
    pub(crate) holder: String,
}

impl Who {
    pub(crate) fn new(provisioner: &str, identity: &str) -> Self {
        let holder = wire::holder(provisioner, identity);
        Self { provisioner: provisioner.to_owned(), identity: identity.to_owned(), holder }
    }
}

/// What is due for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing, or nothing of ours.
    Nothing,
    /// It names a class that does not exist.
    ReportMissingClass,
    /// It needs a volume.
    Provision,
    /// This instance holds it, and it needs no volume, or has one. What was begun for it becomes its volume, or is undone.
    Settle,
    /// Nobody holds it, but it still has our finalizer, because somebody has removed the annotation.
    Release,
}

pub(crate) fn due(claim: &PersistentVolumeClaim, class: Option<&Class>, who: &Who) -> Due {
    let is_wanted = claim.metadata.deletion_timestamp.is_none() && volume_of(claim).is_none();
    let is_held = match holder(claim) {
        Some(holder) if holder != who.holder => return Due::Nothing,
        holder => holder.is_some(),
    };
    let needs_volume = is_wanted
        && is_named(claim, &who.provisioner)
        && !class_of(claim).is_empty()
        && class.is_none_or(|class| class.provisioner == who.provisioner)
        && class.is_none_or(|class| !class.waits_for_pod || selected_node(claim).is_some());
    match (needs_volume, class) {
        (true, Some(_)) => Due::Provision,
        (true, None) => Due::ReportMissingClass,
        (false, _) if is_held => Due::Settle,
        (false, class) if !is_wanted && has_finalizer(claim) => {
            let is_ours = class.is_some_and(|class| class.provisioner == who.provisioner);
            if is_ours || is_named(claim, &who.provisioner) { Due::Release } else { Due::Nothing }
        }
        (false, _) => Due::Nothing,
    }
}

/// The name of a claim's class, empty if it has none.
pub(crate) fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let named = || claim.spec.as_ref()?.storage_class_name.as_deref();
    annotation(claim, wire::STORAGE_CLASS_BETA).or_else(named).unwrap_or_default()
}

/// The PersistentVolume that the claim names.
pub(crate) fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The node that the scheduler has selected.
pub(crate) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, wire::SELECTED_NODE)
}

/// Who provisions for the claim. Without the finalizer nobody does, whatever the annotation is.
pub(crate) fn holder(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, wire::HELD_BY).filter(|_| has_finalizer(claim))
}

/// Whether Kubernetes is about to bind it. What others write meanwhile is in its way.
pub(crate) fn is_being_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    volume_of(claim).is_some() && phase == Some("Pending") && claim.metadata.deletion_timestamp.is_none()
}

/// Whether Kubernetes has bound it to the PersistentVolume that has its name, which may be deleted by now. Users can
/// write the name, and only Kubernetes the phase.
pub(crate) fn was_bound(claim: &PersistentVolumeClaim) -> bool {
    let own = wire::volume_name(claim.metadata.uid.as_deref().unwrap_or_default());
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    volume_of(claim) == Some(&own) && matches!(phase, Some("Bound" | "Lost"))
}

pub(crate) fn has_finalizer(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == wire::CLAIM_FINALIZER)
}

/// Whether Kubernetes asks this provisioner for a volume.
pub(crate) fn is_named(claim: &PersistentVolumeClaim, provisioner: &str) -> bool {
    let named =
        annotation(claim, wire::STORAGE_PROVISIONER).or_else(|| annotation(claim, wire::STORAGE_PROVISIONER_BETA));
    named == Some(provisioner)
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, key: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    const NAME: &str = "example.com/hostpath";

    fn class(waits: bool) -> Class {
        let mode = if waits { "WaitForFirstConsumer" } else { "Immediate" };
        let class = json!({ "metadata": { "name": "disks" }, "provisioner": NAME, "volumeBindingMode": mode });
        Class::read(&serde_json::from_value(class).unwrap())
    }

    /// A claim that needs a volume, changed by these.
    fn claim(changes: &[(&str, Value)]) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": { "name": "data", "annotations": { wire::STORAGE_PROVISIONER: NAME } },
            "spec": { "storageClassName": "disks" },
        });
        for (pointer, value) in changes {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            claim.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value.clone();
        }
        serde_json::from_value(claim).unwrap()
    }

    fn held_by(holder: &str) -> [(&'static str, Value); 2] {
        [
            ("/metadata/annotations/volume.objectbucket.io~1held-by", json!(holder)),
            ("/metadata/finalizers", json!([wire::CLAIM_FINALIZER])),
        ]
    }

    fn due_of(changes: &[(&str, Value)]) -> Due {
        due(&claim(changes), Some(&class(false)), &Who::new(NAME, "here"))
    }

    const DELETED: &str = "/metadata/deletionTimestamp";

    fn deleted() -> (&'static str, Value) {
        (DELETED, json!("2024-01-01T00:00:00Z"))
    }

    #[test]
    fn a_claim_that_kubernetes_gives_us_gets_a_volume() {
        assert_eq!(due_of(&[]), Due::Provision);
        let beta = [("/metadata/annotations", json!({ wire::STORAGE_PROVISIONER_BETA: NAME }))];
        assert_eq!(due_of(&beta), Due::Provision);
        let other = [("/metadata/annotations", json!({ wire::STORAGE_PROVISIONER: "example.com/other" }))];
        assert_eq!(due_of(&other), Due::Nothing);
        assert_eq!(due_of(&[("/metadata/annotations", json!({}))]), Due::Nothing);
        assert_eq!(due_of(&[("/spec/volumeName", json!("pv"))]), Due::Nothing);
        assert_eq!(due_of(&[deleted()]), Due::Nothing);
    }

    #[test]
    fn a_claim_needs_our_class_and_a_node_if_it_waits_for_one() {
        let (claim, who) = (claim(&[]), Who::new(NAME, ""));
        assert_eq!(due(&claim, None, &who), Due::ReportMissingClass);
        let other = Class { provisioner: "example.com/other".into(), ..class(false) };
        assert_eq!(due(&claim, Some(&other), &who), Due::Nothing);
        assert_eq!(due(&claim, Some(&class(true)), &who), Due::Nothing);
        let mut selected = claim.clone();
        selected.metadata.annotations.get_or_insert_default().insert(wire::SELECTED_NODE.into(), "node-1".into());
        assert_eq!(due(&selected, Some(&class(true)), &who), Due::Provision);
        let without = self::claim(&[("/spec", json!({}))]);
        assert_eq!(due(&without, None, &who), Due::Nothing);
    }

    #[test]
    fn a_claim_that_another_instance_holds_is_left_alone() {
        let [held, finalizer] = held_by("example.com/hostpath there");
        assert_eq!(due_of(&[held.clone(), finalizer.clone()]), Due::Nothing);
        assert_eq!(due_of(&[held.clone(), finalizer, deleted()]), Due::Nothing);
        // Without the finalizer it is held by nobody: anybody can write an annotation.
        assert_eq!(due_of(&[held]), Due::Provision);
    }

    #[test]
    fn what_was_begun_is_settled_when_the_claim_no_longer_needs_it() {
        let [held, finalizer] = held_by("example.com/hostpath here");
        let ours = [held, finalizer];
        let with = |change: (&'static str, Value)| [&ours[..], &[change]].concat();
        assert_eq!(due_of(&ours), Due::Provision);
        assert_eq!(due_of(&with(deleted())), Due::Settle);
        assert_eq!(due_of(&with(("/spec/volumeName", json!("pv")))), Due::Settle);
        let waiting = due(&claim(&ours), Some(&class(true)), &Who::new(NAME, "here"));
        assert_eq!(waiting, Due::Settle, "its node was taken back");
        let other = ("/metadata/annotations/volume.kubernetes.io~1storage-provisioner", json!("example.com/other"));
        assert_eq!(due_of(&with(other)), Due::Settle, "it was given to another provisioner");
        // The class is not needed to find what was begun.
        assert_eq!(due(&claim(&with(deleted())), None, &Who::new(NAME, "here")), Due::Settle);
    }

    #[test]
    fn a_claim_was_bound_if_kubernetes_marked_it() {
        let bound = |volume: &str, phase: &str| {
            let status = ("/status", json!({ "phase": phase }));
            was_bound(&claim(&[("/metadata/uid", json!("1")), ("/spec/volumeName", json!(volume)), status]))
        };
        assert!(bound("pvc-1", "Bound") && bound("pvc-1", "Lost"));
        assert!(!bound("pvc-1", "Pending") && !bound("another", "Bound"));
    }

    #[test]
    fn a_finalizer_that_nobody_holds_keeps_no_claim() {
        let [_, finalizer] = held_by("");
        assert_eq!(due_of(&[finalizer.clone(), deleted()]), Due::Release);
        let bare = [("/metadata/annotations", json!({})), finalizer.clone(), deleted()];
        assert_eq!(due_of(&bare), Due::Release, "by its class");
        assert_eq!(due_of(&[finalizer]), Due::Provision);
    }
}
