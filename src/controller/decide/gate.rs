//! Is this claim ours, and what is due? Pure: decides from facts, has no client.

use crate::controller::decide::claim::LabelOwner;
use crate::controller::decide::class::ClassOwner;

/// What is known of a claim before anything is done about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) class: ClassOwner,
    pub(crate) label: LabelOwner,
    /// A bucket record of this provisioner names the claim's uid.
    pub(crate) recorded: bool,
    /// `objectbucket.io/finalizer` is on the claim.
    pub(crate) finalizer: bool,
    /// The claim has a deletion timestamp.
    pub(crate) deleting: bool,
    /// The claim's phase says Bound.
    pub(crate) bound: bool,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Not ours, or nothing left to do: no write of any kind.
    Nothing,
    /// It belongs to nobody because its class cannot be found: say so on the claim, touch nothing else.
    ReportMissingClass,
    /// Make the bucket, or see that all is as it was made.
    Bucket,
    /// Undo what was made.
    Removal,
}

/// Decides whose the claim is and what is due.
///
/// A record is the authority: it was written by this provisioner for this uid, and its class may be gone
/// or may have been re-created for another provisioner since. Next comes the class, which only admins
/// write; but a claim that another provisioner took on is that one's until it lets go. The finalizer is
/// shared by all provisioners of the ecosystem: the label, written together with it, says whose it is.
pub(crate) fn due(facts: Facts) -> Due {
    let Facts { class, label, recorded, finalizer, deleting, bound } = facts;
    let nobody_to_ask = matches!(class, ClassOwner::Missing | ClassOwner::Unnamed);
    let marked_by_us = finalizer && label == LabelOwner::Ours;
    let marked_by_another = finalizer && label == LabelOwner::Foreign;
    let ours = recorded
        || class == ClassOwner::Ours && !marked_by_another
        || label == LabelOwner::Ours && nobody_to_ask
        // A class that changed hands leaves our finalizer behind, and nobody else takes it off.
        || marked_by_us && deleting;
    match (ours, deleting) {
        (true, true) if finalizer || recorded => Due::Removal,
        (_, true) => Due::Nothing,
        (true, false) => Due::Bucket,
        (false, false) if nobody_to_ask && label == LabelOwner::None && !finalizer && !bound => Due::ReportMissingClass,
        (false, false) => Due::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Facts = Facts {
        class: ClassOwner::Ours,
        label: LabelOwner::None,
        recorded: false,
        finalizer: false,
        deleting: false,
        bound: false,
    };

    #[test]
    fn a_new_claim_of_our_class_gets_a_bucket() {
        assert_eq!(due(NEW), Due::Bucket);
    }

    #[test]
    fn a_claim_of_another_provisioner_is_left_untouched_whatever_its_state() {
        for label in [LabelOwner::None, LabelOwner::Foreign] {
            for (finalizer, deleting, bound) in [(false, false, false), (true, false, true), (true, true, true)] {
                let facts = Facts { class: ClassOwner::Foreign, label, recorded: false, finalizer, deleting, bound };
                assert_eq!(due(facts), Due::Nothing, "{facts:?}");
            }
        }
    }

    #[test]
    fn a_claim_without_a_class_is_told_so_unless_another_provisioner_has_it() {
        let orphan = Facts { class: ClassOwner::Missing, ..NEW };
        assert_eq!(due(orphan), Due::ReportMissingClass);
        assert_eq!(due(Facts { class: ClassOwner::Unnamed, ..NEW }), Due::ReportMissingClass);
        assert_eq!(due(Facts { label: LabelOwner::Foreign, ..orphan }), Due::Nothing);
        assert_eq!(due(Facts { finalizer: true, ..orphan }), Due::Nothing);
        assert_eq!(due(Facts { bound: true, ..orphan }), Due::Nothing);
        assert_eq!(due(Facts { deleting: true, ..orphan }), Due::Nothing);
    }

    #[test]
    fn a_recorded_claim_is_ours_with_its_class_gone_or_given_to_another() {
        for class in [ClassOwner::Missing, ClassOwner::Foreign, ClassOwner::Unnamed] {
            let bound = Facts { class, recorded: true, finalizer: true, bound: true, ..NEW };
            assert_eq!(due(bound), Due::Bucket);
            assert_eq!(due(Facts { deleting: true, ..bound }), Due::Removal);
        }
    }

    #[test]
    fn a_claim_that_was_marked_but_never_recorded_can_go_after_its_class_went() {
        let marked =
            Facts { class: ClassOwner::Missing, label: LabelOwner::Ours, finalizer: true, deleting: true, ..NEW };
        assert_eq!(due(marked), Due::Removal);
    }

    #[test]
    fn a_claim_that_was_marked_can_go_though_its_class_is_anothers_now() {
        let marked =
            Facts { class: ClassOwner::Foreign, label: LabelOwner::Ours, finalizer: true, deleting: true, ..NEW };
        assert_eq!(due(marked), Due::Removal);
        assert_eq!(due(Facts { deleting: false, ..marked }), Due::Nothing);
    }

    #[test]
    fn a_claim_that_another_took_on_stays_that_ones_though_its_class_is_ours_now() {
        let taken = Facts { label: LabelOwner::Foreign, finalizer: true, bound: true, ..NEW };
        assert_eq!(due(taken), Due::Nothing);
        assert_eq!(due(Facts { deleting: true, ..taken }), Due::Nothing);
    }

    #[test]
    fn a_recorded_claim_is_undone_though_somebody_took_its_finalizer_off() {
        assert_eq!(due(Facts { recorded: true, deleting: true, ..NEW }), Due::Removal);
    }

    #[test]
    fn nothing_is_due_when_a_deleted_claim_does_not_carry_the_finalizer() {
        assert_eq!(due(Facts { deleting: true, ..NEW }), Due::Nothing);
    }
}
