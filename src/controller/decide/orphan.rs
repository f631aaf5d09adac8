//! Records whose claims are gone, or that come from another cluster: what is reported, and what an admin's annotation
//! does. Pure.
//!
//! With backups, clones and GitOps, a record can exist without its claim. This alone removes nothing: data and access are
//! removed only for a claim that is being deleted and has the finalizer, or if an admin requests it with an annotation of
//! the ObjectBucket.

use crate::api::ObjectBucket;
use crate::api::wire::annotation;
use crate::controller::reasons::orphaned as reason;
use crate::provisioner::{ClaimId, Record};

/// What an admin requests for an orphaned record: the value of its annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// Remove the access, and the bucket if its reclaimPolicy is Delete.
    Remove,
    /// Remove the access, keep the bucket.
    Revoke,
    /// Delete only the record; if its claim still exists, after that is deleted.
    Forget,
    /// Give the record to the claim that has the recorded namespace and name now.
    Adopt,
}

impl Action {
    /// The value of the annotation.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Remove => annotation::ORPHAN_REMOVE,
            Self::Revoke => annotation::ORPHAN_REVOKE,
            Self::Forget => annotation::ORPHAN_FORGET,
            Self::Adopt => annotation::ORPHAN_ADOPT,
        }
    }
}

/// Reads the annotation of an ObjectBucket.
///
/// # Errors
/// An unknown value.
pub(crate) fn action(object: &ObjectBucket) -> Result<Option<Action>, String> {
    let value = object.metadata.annotations.as_ref().and_then(|all| all.get(annotation::ORPHAN));
    Ok(Some(match value.map(String::as_str) {
        None => return Ok(None),
        Some(annotation::ORPHAN_REMOVE) => Action::Remove,
        Some(annotation::ORPHAN_REVOKE) => Action::Revoke,
        Some(annotation::ORPHAN_FORGET) => Action::Forget,
        Some(annotation::ORPHAN_ADOPT) => Action::Adopt,
        Some(unknown) => return Err(unknown.to_owned()),
    }))
}

/// The claim that has the recorded namespace and name now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresentClaim {
    pub(crate) uid: String,
    pub(crate) deleting: bool,
    /// Name of another ObjectBucket that it already has.
    pub(crate) has_record: Option<String>,
}

/// What is known about a record.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) record: &'a Record,
    /// The admin's annotation.
    pub(crate) action: &'a Result<Option<Action>, String>,
    /// UID of this cluster.
    pub(crate) cluster: &'a str,
    /// The claim that has the recorded name now, read from the cluster.
    pub(crate) present: Option<&'a PresentClaim>,
    /// The last report on the record says that an annotation could not be followed.
    pub(crate) refused: bool,
}

/// What is due for a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    /// It has its claim, or everything is reported already.
    Nothing,
    /// Report this, and wait for an admin.
    Report(Notice),
    /// The annotation cannot be followed: report why, and remove it. If it stayed, it might be followed much later, in a
    /// situation that the admin did not mean.
    Refuse(Notice),
    /// Remove the access, and the bucket if its reclaimPolicy is Delete.
    Remove,
    /// Remove the access.
    Revoke,
    /// Delete only the record.
    Forget,
    /// The claim adopts it, in its own reconcile.
    Adopt,
}

/// A report on a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The status of the condition `Orphaned`.
    pub(crate) orphaned: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Decides what is due for a record.
pub(crate) fn due(facts: &Facts<'_>) -> Due {
    let Facts { record, action, cluster, present, refused } = *facts;
    let from_elsewhere = record.cluster.as_ref().is_some_and(|recorded| recorded != cluster);
    let is_claims = !from_elsewhere && present.is_some_and(|claim| claim.uid == record.claim.uid);
    let action = match action {
        Ok(action) => *action,
        Err(unknown) => return Due::Report(unknown_action(unknown, !is_claims)),
    };
    match action {
        None | Some(Action::Adopt) if is_claims => Due::Nothing,
        Some(Action::Forget) if is_claims => Due::Report(forgotten_later(record)),
        Some(_) if is_claims => Due::Refuse(no_effect(&record.claim)),
        Some(Action::Forget) => Due::Forget,
        Some(Action::Remove | Action::Revoke) if from_elsewhere => Due::Refuse(not_here()),
        Some(Action::Remove) => Due::Remove,
        Some(Action::Revoke) => Due::Revoke,
        Some(Action::Adopt) => match present {
            None => Due::Refuse(no_claim(&record.claim)),
            Some(PresentClaim { deleting: true, .. }) => Due::Refuse(claim_is_leaving(&record.claim)),
            Some(PresentClaim { has_record: Some(other), .. }) => Due::Refuse(claim_has_another(&record.claim, other)),
            Some(_) => Due::Adopt,
        },
        None if refused => Due::Nothing,
        None => Due::Report(orphaned(facts, from_elsewhere)),
    }
}

fn orphaned(facts: &Facts<'_>, from_elsewhere: bool) -> Notice {
    let ClaimId { uid, .. } = &facts.record.claim;
    let (claim, bucket) = (&facts.record.claim, &facts.record.plan.bucket);
    let kept = format!("bucket {bucket:?} and the access to it are left as they are");
    let (reason, message) = match (from_elsewhere, facts.present) {
        (true, _) => (
            reason::OTHER_CLUSTER,
            format!(
                "this record was created for claim {claim} in another cluster (the uid of namespace kube-system is {} there and {} here), so the operator does nothing with it; {}",
                facts.record.cluster.as_deref().unwrap_or_default(),
                facts.cluster,
                remedy(&[Action::Adopt, Action::Forget])
            ),
        ),
        (false, None) => (
            reason::CLAIM_GONE,
            format!(
                "claim {claim} (uid {uid}) does not exist; {kept}; {}",
                remedy(&[Action::Remove, Action::Revoke, Action::Forget, Action::Adopt])
            ),
        ),
        (false, Some(other)) => (
            reason::CLAIM_REPLACED,
            format!(
                "claim {claim} now has uid {}, but this record was created for uid {uid}; {kept}; {}",
                other.uid,
                remedy(&[Action::Remove, Action::Revoke, Action::Forget, Action::Adopt])
            ),
        ),
    };
    Notice { orphaned: true, reason, message }
}

/// The values that an admin can choose from.
fn remedy(actions: &[Action]) -> String {
    let means = |action: &Action| match action {
        Action::Remove => "remove (delete the access, and the bucket unless its reclaimPolicy is Retain)",
        Action::Revoke => "revoke (delete the access, keep the bucket)",
        Action::Forget => "forget (delete only this record)",
        Action::Adopt => "adopt (give bucket and user to the claim that has this namespace and name now)",
    };
    let values: Vec<_> = actions.iter().map(means).collect();
    format!("annotate this ObjectBucket with {}=VALUE; values: {}", annotation::ORPHAN, values.join(", "))
}

fn unknown_action(value: &str, orphaned: bool) -> Notice {
    let known = annotation::ORPHAN_ACTIONS.join(", ");
    let message = format!("annotation {} has the unknown value {value:?}; use one of: {known}", annotation::ORPHAN);
    Notice { orphaned, reason: reason::UNKNOWN_ACTION, message }
}

fn no_effect(claim: &ClaimId) -> Notice {
    let message = format!(
        "annotation {} was removed, because claim {claim} exists and uses this record; delete the claim instead",
        annotation::ORPHAN
    );
    Notice { orphaned: false, reason: reason::CLAIM_EXISTS, message }
}

fn forgotten_later(record: &Record) -> Notice {
    let (claim, bucket) = (&record.claim, &record.plan.bucket);
    let message = format!(
        "claim {claim} exists and uses this record; when the claim is deleted, bucket {bucket:?} and the access to it stay as they are"
    );
    Notice { orphaned: false, reason: reason::CLAIM_EXISTS, message }
}

/// The report on an orphan that cannot be read.
pub(crate) fn damaged(problem: &str) -> Notice {
    let message = format!(
        "{problem}; to delete only this record, annotate it with {}={}",
        annotation::ORPHAN,
        annotation::ORPHAN_FORGET
    );
    Notice { orphaned: true, reason: reason::RECORD_DAMAGED, message }
}

fn refused(why: &str) -> Notice {
    let message = format!("annotation {} was removed: {why}", annotation::ORPHAN);
    Notice { orphaned: true, reason: reason::ACTION_REFUSED, message }
}

fn not_here() -> Notice {
    refused(&format!(
        "this record was created in another cluster, which may still use the bucket, so nothing is removed from here; {}",
        remedy(&[Action::Adopt, Action::Forget])
    ))
}

fn no_claim(claim: &ClaimId) -> Notice {
    refused(&format!("claim {claim} does not exist; restore or create it first, then annotate this ObjectBucket again"))
}

fn claim_is_leaving(claim: &ClaimId) -> Notice {
    refused(&format!(
        "claim {claim} is being deleted and cannot adopt this record; annotate this ObjectBucket again when a new claim of this name exists"
    ))
}

fn claim_has_another(claim: &ClaimId, record: &str) -> Notice {
    refused(&format!(
        "claim {claim} already has ObjectBucket {record:?}; delete the claim (this deletes its bucket, unless its reclaimPolicy is Retain), create it again, then annotate this ObjectBucket again"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::controller::decide::testing::record;

    const HERE: &str = "cluster-here";
    const EVERY: [Option<Action>; 5] =
        [None, Some(Action::Remove), Some(Action::Revoke), Some(Action::Forget), Some(Action::Adopt)];

    fn of(cluster: Option<&str>) -> Record {
        Record { cluster: cluster.map(str::to_owned), ..record() }
    }

    fn present(uid: &str) -> PresentClaim {
        PresentClaim { uid: uid.into(), deleting: false, has_record: None }
    }

    fn decide(record: &Record, action: Option<Action>, present: Option<&PresentClaim>) -> Due {
        due(&Facts { record, action: &Ok(action), cluster: HERE, present, refused: false })
    }

    fn is_report(due: &Due, reason: &str) -> bool {
        matches!(due, Due::Report(notice) if notice.reason == reason)
    }

    fn is_refusal(due: &Due, reason: &str) -> bool {
        matches!(due, Due::Refuse(notice) if notice.reason == reason)
    }

    #[test]
    fn without_an_annotation_an_orphan_is_only_reported() {
        let claim = present("another");
        for (cluster, present, reason) in [
            (Some(HERE), None, reason::CLAIM_GONE),
            (None, None, reason::CLAIM_GONE),
            (Some(HERE), Some(&claim), reason::CLAIM_REPLACED),
            (Some("elsewhere"), None, reason::OTHER_CLUSTER),
            (Some("elsewhere"), Some(&claim), reason::OTHER_CLUSTER),
        ] {
            let due = decide(&of(cluster), None, present);
            assert!(is_report(&due, reason), "{cluster:?} {present:?}: {due:?}");
        }
    }

    #[test]
    fn a_record_of_another_cluster_is_never_undone_from_here() {
        let same_uid = present(&record().claim.uid);
        for action in EVERY {
            for present in [None, Some(&same_uid)] {
                let due = decide(&of(Some("elsewhere")), action, present);
                assert!(!matches!(due, Due::Remove | Due::Revoke | Due::Nothing), "{action:?}: {due:?}");
            }
        }
        assert_eq!(decide(&of(Some("elsewhere")), Some(Action::Adopt), Some(&same_uid)), Due::Adopt);
    }

    #[test]
    fn a_record_whose_claim_exists_is_left_to_its_claim_whatever_the_annotation_says() {
        let claim = present(&record().claim.uid);
        for cluster in [Some(HERE), None] {
            for action in EVERY {
                let due = decide(&of(cluster), action, Some(&claim));
                let fits = match action {
                    None | Some(Action::Adopt) => due == Due::Nothing,
                    Some(Action::Forget) => is_report(&due, reason::CLAIM_EXISTS),
                    Some(Action::Remove | Action::Revoke) => is_refusal(&due, reason::CLAIM_EXISTS),
                };
                assert!(fits, "{action:?}: {due:?}");
            }
        }
    }

    #[test]
    fn an_annotation_is_followed() {
        let record = of(Some(HERE));
        assert_eq!(decide(&record, Some(Action::Remove), None), Due::Remove);
        assert_eq!(decide(&record, Some(Action::Revoke), None), Due::Revoke);
        assert_eq!(decide(&record, Some(Action::Forget), None), Due::Forget);
        assert_eq!(decide(&record, Some(Action::Adopt), Some(&present("new"))), Due::Adopt);
    }

    #[test]
    fn a_claim_adopts_a_record_only_if_it_is_not_deleted_and_has_none() {
        let record = of(Some(HERE));
        let adopt = |present| decide(&record, Some(Action::Adopt), present);
        assert!(is_refusal(&adopt(None), reason::ACTION_REFUSED));
        let leaving = PresentClaim { deleting: true, ..present("new") };
        assert!(is_refusal(&adopt(Some(&leaving)), reason::ACTION_REFUSED));
        let served = PresentClaim { has_record: Some("obc-shop-photos-new".into()), ..present("new") };
        assert!(is_refusal(&adopt(Some(&served)), reason::ACTION_REFUSED));
    }

    #[test]
    fn a_refusal_is_shown_until_the_next_annotation() {
        let record = of(Some(HERE));
        let due = due(&Facts { record: &record, action: &Ok(None), cluster: HERE, present: None, refused: true });
        assert_eq!(due, Due::Nothing);
    }

    #[test]
    fn an_unknown_annotation_is_reported_with_the_known_ones() {
        let mut object = ObjectBucket::default();
        object.metadata.annotations = Some([(annotation::ORPHAN.to_owned(), "delete".to_owned())].into());
        let action = action(&object);
        let due =
            due(&Facts { record: &of(Some(HERE)), action: &action, cluster: HERE, present: None, refused: false });
        let Due::Report(notice) = due else { panic!("{due:?}") };
        insta::assert_snapshot!(notice.message, @r#"annotation objectbucket.io/orphan has the unknown value "delete"; use one of: remove, revoke, forget, adopt"#);
    }
}
