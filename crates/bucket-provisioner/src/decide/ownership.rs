//! Is this claim ours, and what is due for it? Pure.

use crate::decide::claim::LabelOwner;
use crate::decide::class::ClassOwner;

/// What is known about a claim before any work on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnershipFacts {
    pub(crate) class: ClassOwner,
    pub(crate) label: LabelOwner,
    /// A record of this provisioner has the claim's uid.
    pub(crate) recorded: bool,
    /// The claim has the finalizer `objectbucket.io/finalizer`.
    pub(crate) finalizer: bool,
    /// The claim has a deletion timestamp.
    pub(crate) deleting: bool,
    /// The claim's phase is Bound.
    pub(crate) bound: bool,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredAction {
    /// The claim is not ours, or nothing is left to do. Nothing is written.
    Nothing,
    /// The claim belongs to nobody, because its class is missing. Only this is reported.
    ReportMissingClass,
    /// Create the bucket, or keep it usable.
    Bucket,
    /// Remove what was created.
    Removal,
}

/// Decides whose the claim is and what is due.
///
/// A record decides first: this provisioner wrote it for this uid, while the class may have been deleted or may name
/// another provisioner now. Then the class decides, because only admins write it; but a claim that another provisioner
/// has marked is not ours. All provisioners of the ecosystem use the same finalizer: the label, written together with
/// it, names the provisioner.
pub(crate) fn required_action(facts: OwnershipFacts) -> RequiredAction {
    let OwnershipFacts { class, label, recorded, finalizer, deleting, bound } = facts;
    let (ours, nobody_to_ask) = (is_ours(facts), has_no_class(class));
    match (ours, deleting) {
        (true, true) if finalizer || recorded => RequiredAction::Removal,
        (_, true) => RequiredAction::Nothing,
        (true, false) => RequiredAction::Bucket,
        (false, false) if nobody_to_ask && label == LabelOwner::None && !finalizer && !bound => {
            RequiredAction::ReportMissingClass
        }
        (false, false) => RequiredAction::Nothing,
    }
}

/// Whether the claim is this provisioner's.
pub(crate) fn is_ours(facts: OwnershipFacts) -> bool {
    let OwnershipFacts { class, label, recorded, finalizer, deleting, bound: _ } = facts;
    let marked_by_us = finalizer && label == LabelOwner::Ours;
    let marked_by_another = finalizer && label == LabelOwner::Foreign;
    recorded
        || class == ClassOwner::Ours && !marked_by_another
        || label == LabelOwner::Ours && has_no_class(class)
        // If the class names another provisioner now, nobody else removes our finalizer.
        || marked_by_us && deleting
}

fn has_no_class(class: ClassOwner) -> bool {
    matches!(class, ClassOwner::Missing | ClassOwner::Unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: OwnershipFacts = OwnershipFacts {
        class: ClassOwner::Ours,
        label: LabelOwner::None,
        recorded: false,
        finalizer: false,
        deleting: false,
        bound: false,
    };

    #[test]
    fn a_new_claim_of_our_class_gets_a_bucket() {
        assert_eq!(required_action(NEW), RequiredAction::Bucket);
    }

    #[test]
    fn a_claim_of_another_provisioner_is_left_untouched() {
        for label in [LabelOwner::None, LabelOwner::Foreign] {
            for (finalizer, deleting, bound) in [(false, false, false), (true, false, true), (true, true, true)] {
                let facts =
                    OwnershipFacts { class: ClassOwner::Foreign, label, recorded: false, finalizer, deleting, bound };
                assert_eq!(required_action(facts), RequiredAction::Nothing, "{facts:?}");
            }
        }
    }

    #[test]
    fn a_missing_class_is_reported_for_our_claims_only() {
        let orphan = OwnershipFacts { class: ClassOwner::Missing, ..NEW };
        assert_eq!(required_action(orphan), RequiredAction::ReportMissingClass);
        assert_eq!(
            required_action(OwnershipFacts { class: ClassOwner::Unnamed, ..NEW }),
            RequiredAction::ReportMissingClass
        );
        assert_eq!(required_action(OwnershipFacts { label: LabelOwner::Foreign, ..orphan }), RequiredAction::Nothing);
        assert_eq!(required_action(OwnershipFacts { finalizer: true, ..orphan }), RequiredAction::Nothing);
        assert_eq!(required_action(OwnershipFacts { bound: true, ..orphan }), RequiredAction::Nothing);
        assert_eq!(required_action(OwnershipFacts { deleting: true, ..orphan }), RequiredAction::Nothing);
    }

    #[test]
    fn a_recorded_claim_is_ours_without_its_class() {
        for class in [ClassOwner::Missing, ClassOwner::Foreign, ClassOwner::Unnamed] {
            let bound = OwnershipFacts { class, recorded: true, finalizer: true, bound: true, ..NEW };
            assert_eq!(required_action(bound), RequiredAction::Bucket);
            assert_eq!(required_action(OwnershipFacts { deleting: true, ..bound }), RequiredAction::Removal);
        }
    }

    #[test]
    fn a_marked_claim_can_be_deleted_after_its_class() {
        let marked = OwnershipFacts {
            class: ClassOwner::Missing,
            label: LabelOwner::Ours,
            finalizer: true,
            deleting: true,
            ..NEW
        };
        assert_eq!(required_action(marked), RequiredAction::Removal);
    }

    #[test]
    fn a_marked_claim_can_be_deleted_with_a_foreign_class() {
        let marked = OwnershipFacts {
            class: ClassOwner::Foreign,
            label: LabelOwner::Ours,
            finalizer: true,
            deleting: true,
            ..NEW
        };
        assert_eq!(required_action(marked), RequiredAction::Removal);
        assert_eq!(required_action(OwnershipFacts { deleting: false, ..marked }), RequiredAction::Nothing);
    }

    #[test]
    fn a_claim_marked_by_another_provisioner_is_not_ours() {
        let taken = OwnershipFacts { label: LabelOwner::Foreign, finalizer: true, bound: true, ..NEW };
        assert_eq!(required_action(taken), RequiredAction::Nothing);
        assert_eq!(required_action(OwnershipFacts { deleting: true, ..taken }), RequiredAction::Nothing);
    }

    #[test]
    fn a_recorded_claim_is_undone_without_its_finalizer() {
        assert_eq!(required_action(OwnershipFacts { recorded: true, deleting: true, ..NEW }), RequiredAction::Removal);
    }

    #[test]
    fn nothing_is_due_for_a_deleted_claim_without_finalizer() {
        assert_eq!(required_action(OwnershipFacts { deleting: true, ..NEW }), RequiredAction::Nothing);
    }
}
