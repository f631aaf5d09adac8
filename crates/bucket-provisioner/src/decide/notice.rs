//! What the operator reports on ObjectBuckets: the condition, its reason, and a sentence with the remedy. Pure.

use k8s_openapi::jiff::Timestamp;

use crate::api::wire::annotation;
use crate::api::{Condition, ConditionStatus, ObjectBucket};
use crate::decide::action::Action;
use crate::decide::record::Stored;
use crate::decide::release::{self, Release, Retained, text};
use crate::decide::report::{REMOVED_SO_FAR, Severity};
use crate::decide::teardown::unproven_user;
use crate::error::Error;
use crate::reasons::orphaned as reason;
use crate::reasons::{DELETION_SCHEDULED, ORPHANED};
use crate::store::{ClaimId, Mode, ReclaimPolicy, Record};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    /// The type of the condition.
    condition: &'static str,
    /// The status of the condition.
    holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) severity: Severity,
}

impl Notice {
    /// Its claim does not exist, and an admin has to decide.
    fn orphaned(reason: &'static str, message: String) -> Self {
        Self { condition: ORPHANED, holds: true, reason, message, severity: Severity::Warning }
    }

    /// Its claim exists.
    fn in_use(reason: &'static str, message: String) -> Self {
        Self { condition: ORPHANED, holds: false, reason, message, severity: Severity::Normal }
    }

    /// Its bucket will be deleted, or is being deleted.
    fn deletion(reason: &'static str, message: String, severity: Severity) -> Self {
        Self { condition: DELETION_SCHEDULED, holds: true, reason, message, severity }
    }

    /// A problem, in the condition that the ObjectBucket has.
    fn problem(stored: &Stored, reason: &'static str, message: String) -> Self {
        match is_scheduled(stored) {
            true => Self::deletion(reason, message, Severity::Warning),
            false => Self::orphaned(reason, message),
        }
    }

    /// Whether an admin has to decide.
    pub(crate) fn is_orphan(&self) -> bool {
        self.condition == ORPHANED && self.holds
    }

    /// The conditions of an ObjectBucket with this notice, which replaces earlier ones; `None` if they already contain it.
    pub(crate) fn added_to(&self, current: &[Condition], now: &str) -> Option<Vec<Condition>> {
        let Self { condition, holds, reason, message, severity: _ } = self;
        let status = if *holds { ConditionStatus::True } else { ConditionStatus::False };
        let is_ours = |c: &&Condition| [ORPHANED, DELETION_SCHEDULED].contains(&c.type_.as_str());
        let was = current.iter().find(|c| c.type_ == *condition);
        let is_reported = was.is_some_and(|c| (c.status, c.reason.as_str(), &c.message) == (status, *reason, message));
        if is_reported && current.iter().filter(is_ours).count() == 1 {
            return None;
        }
        let since = was.filter(|was| was.status == status).and_then(|was| was.last_transition_time.clone());
        let added = Condition {
            type_: (*condition).to_owned(),
            status,
            reason: (*reason).to_owned(),
            message: message.clone(),
            observed_generation: None,
            last_transition_time: Some(since.unwrap_or_else(|| now.to_owned())),
        };
        Some(std::iter::once(added).chain(current.iter().filter(|c| !is_ours(c)).cloned()).collect())
    }
}

fn is_scheduled(stored: &Stored) -> bool {
    stored.release.as_ref().is_some_and(|release| release.delete_at().is_some())
}

/// Whether the annotation of an ObjectBucket was refused, as its last report shows.
pub(crate) fn is_refused(object: &ObjectBucket) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|c| [ORPHANED, DELETION_SCHEDULED].contains(&c.type_.as_str()) && c.reason == reason::ACTION_REFUSED)
}

/// Whether the ObjectBucket reports that its scheduled deletion, which has not begun, waits for other claims.
pub(crate) fn reports_bucket_in_use(object: &ObjectBucket) -> bool {
    if release::deletion_began(object) {
        return false;
    }
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == DELETION_SCHEDULED && condition.reason == reason::BUCKET_IN_USE)
}

/// Whether the ObjectBucket already reports when its bucket will be deleted.
pub(crate) fn reports_schedule(object: &ObjectBucket) -> bool {
    let at = release::delete_at(object).map(text).unwrap_or_default();
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| {
        let is_reported = match condition.reason.as_str() {
            reason::SCHEDULED => condition.message.contains(&at),
            reason::ACTION_REFUSED => true,
            _ => false,
        };
        is_reported && condition.type_ == DELETION_SCHEDULED
    })
}

/// The claim of the ObjectBucket does not exist, or not here. `present`: uid of the claim that has its name now.
pub(super) fn orphaned(stored: &Stored, present: Option<&str>, cluster: &str, from_elsewhere: bool) -> Notice {
    let record = &stored.record;
    let (claim, bucket, uid) = (&record.claim, &record.plan.bucket, &record.claim.uid);
    let kept = match &stored.release {
        Some(release) if release.access_is_gone() => {
            format!("bucket {bucket:?} is kept, and the access to it was deleted")
        }
        _ => format!("bucket {bucket:?} and the access to it are kept"),
    };
    let every = remedy(&[Action::Adopt, Action::Forget, Action::Revoke, Action::Remove]);
    let (reason, message) = match (from_elsewhere, present) {
        (true, _) => (
            reason::OTHER_CLUSTER,
            format!(
                "this ObjectBucket was created for claim {claim} in another cluster (the uid of namespace kube-system is {} there and {} here), which must no longer use the bucket when it is adopted here; {}",
                record.cluster.as_deref().unwrap_or_default(),
                cluster,
                remedy(&[Action::Adopt, Action::Forget])
            ),
        ),
        (false, None) => (
            reason::CLAIM_GONE,
            format!(
                "claim {claim} (uid {uid}) does not exist; {kept}; before adopt, restore the claim, or create it with spec.objectBucketName: {}; {every}",
                stored.name
            ),
        ),
        (false, Some(other)) => (
            reason::CLAIM_REPLACED,
            format!(
                "claim {claim} now has uid {other}, but this ObjectBucket was created for uid {uid}; {kept}; {every}"
            ),
        ),
    };
    Notice::orphaned(reason, message)
}

/// The claim was deleted, and the bucket will be.
pub(crate) fn scheduled(stored: &Stored, at: Timestamp) -> Notice {
    let Record { claim, plan, .. } = &stored.record;
    let message = format!(
        "claim {claim} was deleted; bucket {:?} is deleted with all its content at {}; until then the claim gets it back if it is created again with the annotation {}=yes; {}",
        plan.bucket,
        text(at),
        annotation::UNDO_DELETE,
        remedy(&[Action::Adopt, Action::Forget, Action::Remove])
    );
    Notice::deletion(reason::SCHEDULED, message, Severity::Normal)
}

/// The claim was deleted, and its bucket is kept until an admin decides.
pub(crate) fn retained(stored: &Stored, why: &Retained) -> Notice {
    let Record { claim, plan, .. } = &stored.record;
    let bucket = &plan.bucket;
    let problem = match why {
        Retained::NotEmpty if !stored.published() => format!(
            "claim {claim} was deleted; bucket {bucket:?} is kept, because it is not empty, and its keys were never published, so its content is not the claim's: before remove, empty it by hand"
        ),
        Retained::NotEmpty => format!(
            "claim {claim} was deleted; bucket {bucket:?} is kept, because it is not empty and may be deleted only while it is empty"
        ),
        Retained::ClaimVanished => format!(
            "claim {claim} was deleted without the operator, because its finalizer was removed; its access is deleted, and bucket {bucket:?} is kept"
        ),
        Retained::UserUnproven => format!(
            "claim {claim} was deleted; nothing proves that the recorded user {} is this claim's, so the user was left in place; bucket {bucket:?} is kept; delete the user by hand if it is the claim's",
            unproven_user(&stored.record)
        ),
        Retained::BucketConflict => format!(
            "claim {claim} was deleted; it named another bucket than this ObjectBucket, so bucket {bucket:?} was left in place"
        ),
        // Reported with its time.
        Retained::Scheduled(_) => format!("claim {claim} was deleted"),
    };
    let deletes = plan.mode == Mode::Created && stored.record.reclaim_policy == ReclaimPolicy::Delete;
    let actions: &[_] = match deletes {
        true => &[Action::Adopt, Action::Forget, Action::Remove],
        false => &[Action::Adopt, Action::Forget],
    };
    Notice::orphaned(why.reason(), format!("{problem}; {}", remedy(actions)))
}

pub(crate) fn purging(stored: &Stored, removed: u64) -> Notice {
    let bucket = &stored.record.plan.bucket;
    let message = format!("emptying bucket {bucket:?} before it is deleted; {REMOVED_SO_FAR}{removed}");
    match is_scheduled(stored) {
        true => Notice::deletion(reason::PURGING, message, Severity::Progress),
        false => Notice { severity: Severity::Progress, ..Notice::orphaned(reason::PURGING, message) },
    }
}

/// What the annotation requests, or what is due, is being done. `deletes`: also the bucket.
pub(crate) fn in_progress(stored: &Stored, deletes: bool) -> Notice {
    let bucket = &stored.record.plan.bucket;
    let requested = stored.action.is_some();
    let as_requested = if requested { ", as the annotation requests" } else { "" };
    let message = match deletes {
        true => format!("deleting bucket {bucket:?} and the access to it{as_requested}"),
        false => format!("deleting the access to bucket {bucket:?}{as_requested}; the bucket is kept"),
    };
    Notice::problem(stored, reason::IN_PROGRESS, message)
}

/// The claim was deleted, and others use its bucket.
pub(crate) fn bucket_in_use(stored: &Stored) -> Notice {
    let Record { claim, plan, .. } = &stored.record;
    let began = stored.release.as_ref().is_some_and(Release::is_final);
    let otherwise = match stored.action {
        Some(_) if !is_scheduled(stored) => "to keep it, remove the annotation".to_owned(),
        _ if began => remedy(&[Action::Forget]),
        _ => remedy(&[Action::Adopt, Action::Forget]),
    };
    let message = format!(
        "claim {claim} was deleted, and bucket {:?} is deleted with all its content when no other claim uses it; {otherwise}",
        plan.bucket
    );
    Notice { severity: Severity::Normal, ..Notice::problem(stored, reason::BUCKET_IN_USE, message) }
}

/// What was due failed.
pub(crate) fn failed(stored: &Stored, problem: &Error) -> Notice {
    match problem {
        Error::BucketInUse { unreadable: false, .. } => bucket_in_use(stored),
        Error::CrdDeleting { .. } => Notice::problem(stored, reason::CRD_DELETING, problem.to_string()),
        _ => Notice::problem(stored, reason::REMOVAL_FAILED, format!("the removal failed; retrying: {problem}")),
    }
}

/// The claim has adopted the ObjectBucket.
pub(crate) fn adopted(claim: &ClaimId) -> Notice {
    Notice::in_use(reason::ADOPTED, format!("claim {claim} (uid {}) has adopted this ObjectBucket", claim.uid))
}

/// The values that an admin can choose from.
fn remedy(actions: &[Action]) -> String {
    let means = |action: &Action| match action {
        Action::Remove => {
            "remove (delete the access, and the bucket with all its content unless its reclaimPolicy is Retain or the claim was never Bound)"
        }
        Action::Revoke => "revoke (delete the access, keep the bucket)",
        Action::Forget => "forget (delete only this ObjectBucket)",
        Action::Adopt => "adopt (give bucket and user to the claim that has this namespace and name now)",
    };
    let values: Vec<_> = actions.iter().map(means).collect();
    format!("{ANNOTATE}{}=VALUE; values: {}", annotation::ORPHAN, values.join(", "))
}

/// What precedes the annotation and its values in a message.
const ANNOTATE: &str = "annotate this ObjectBucket with ";

/// A message without the annotation and its values, for an admin who is asked for one.
pub(crate) fn without_values(message: &str) -> &str {
    message.split_once(&format!("; {ANNOTATE}")).map_or(message, |(problem, _)| problem)
}

pub(super) fn unknown_action(value: &str, orphaned: bool) -> Notice {
    let known = annotation::ORPHAN_ACTIONS.join(", ");
    let message = format!("annotation {} has the unknown value {value:?}; use one of: {known}", annotation::ORPHAN);
    match orphaned {
        true => Notice::orphaned(reason::UNKNOWN_ACTION, message),
        false => Notice::in_use(reason::UNKNOWN_ACTION, message),
    }
}

pub(super) fn no_effect(claim: &ClaimId) -> Notice {
    let message = format!(
        "annotation {} was removed, because claim {claim} exists and uses this ObjectBucket; delete the claim instead",
        annotation::ORPHAN
    );
    Notice::in_use(reason::CLAIM_EXISTS, message)
}

pub(super) fn forgotten_later(record: &Record) -> Notice {
    let (claim, bucket) = (&record.claim, &record.plan.bucket);
    let message = format!(
        "claim {claim} exists and uses this ObjectBucket; when the claim is deleted, bucket {bucket:?} and the access to it are kept"
    );
    Notice::in_use(reason::CLAIM_EXISTS, message)
}

/// Somebody has deleted the ObjectBucket of a claim that exists.
pub(super) fn deleted_in_use(record: &Record) -> Notice {
    let (claim, bucket) = (&record.claim, &record.plan.bucket);
    let message = format!(
        "this ObjectBucket was deleted, but claim {claim} exists and uses bucket {bucket:?}; the ObjectBucket is kept until the claim is deleted"
    );
    Notice { severity: Severity::Warning, ..Notice::in_use(reason::CLAIM_EXISTS, message) }
}

/// An admin has decided for adoption, and there is no claim yet.
pub(super) fn awaits_claim(stored: &Stored) -> Notice {
    let Record { claim, plan, .. } = &stored.record;
    let message = format!(
        "bucket {:?} is kept for claim {claim}, which does not exist yet: create it; it adopts this ObjectBucket, as the annotation requests",
        plan.bucket
    );
    Notice::orphaned(reason::AWAITS_CLAIM, message)
}

/// A claim asks for the bucket in time, and cannot have it yet.
pub(super) fn is_asked_for(stored: &Stored) -> Notice {
    let Record { claim, plan, .. } = &stored.record;
    let message = format!(
        "bucket {:?} is kept for claim {claim}, which was created again with the annotation {}: the status of the claim shows what it waits for",
        plan.bucket,
        annotation::UNDO_DELETE
    );
    Notice::orphaned(reason::AWAITS_CLAIM, message)
}

/// The report on an orphan that cannot be read.
pub(crate) fn damaged(problem: &str) -> Notice {
    let message = format!(
        "{problem}; to delete only this ObjectBucket, annotate it with {}={}",
        annotation::ORPHAN,
        annotation::ORPHAN_FORGET
    );
    Notice::orphaned(reason::RECORD_DAMAGED, message)
}

fn refused(stored: &Stored, why: &str) -> Notice {
    let message = format!("annotation {} was removed: {why}", annotation::ORPHAN);
    Notice::problem(stored, reason::ACTION_REFUSED, message)
}

pub(super) fn not_here(stored: &Stored) -> Notice {
    let why = format!(
        "this ObjectBucket was created in another cluster, which may still use the bucket, so nothing is deleted from here; {}",
        remedy(&[Action::Adopt, Action::Forget])
    );
    refused(stored, &why)
}

/// How to create a claim that is to adopt the ObjectBucket.
fn for_its_bucket(stored: &Stored) -> String {
    format!("with spec.objectBucketName: {}, so that it gets no new bucket", stored.name)
}

pub(super) fn no_claim(stored: &Stored) -> Notice {
    let claim = &stored.record.claim;
    let why = format!(
        "claim {claim} does not exist; restore it, or create it {}; then annotate this ObjectBucket again",
        for_its_bucket(stored)
    );
    refused(stored, &why)
}

pub(super) fn claim_is_leaving(stored: &Stored) -> Notice {
    let claim = &stored.record.claim;
    let why = format!(
        "claim {claim} is being deleted and cannot adopt this ObjectBucket; create the claim again {}, then annotate this ObjectBucket again",
        for_its_bucket(stored)
    );
    refused(stored, &why)
}

pub(super) fn claim_has_another(stored: &Stored, claim: &ClaimId, record: &str) -> Notice {
    let why = format!(
        "claim {claim} already has ObjectBucket {record:?}; to let it adopt this one instead, delete the claim (to keep its bucket, annotate {record:?} with {}={} before), create it again {}, then annotate this ObjectBucket again",
        annotation::ORPHAN,
        annotation::ORPHAN_FORGET,
        for_its_bucket(stored)
    );
    refused(stored, &why)
}

pub(super) fn deletion_began(stored: &Stored) -> Notice {
    let bucket = &stored.record.plan.bucket;
    let why = format!(
        "the deletion of bucket {bucket:?} has begun; to keep what is left of it, annotate this ObjectBucket with {}={}",
        annotation::ORPHAN,
        annotation::ORPHAN_FORGET
    );
    refused(stored, &why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::decide::release::{Release, Schedule};
    use crate::decide::testing::stored;

    #[test]
    fn a_notice_replaces_the_previous_one_and_no_others() {
        let foreign = Condition {
            type_: "Audited".into(),
            status: ConditionStatus::True,
            reason: "Yes".into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: None,
        };
        let planned = scheduled(&stored(), Timestamp::UNIX_EPOCH);
        let first = planned.added_to(std::slice::from_ref(&foreign), "t1").unwrap();
        assert_eq!(first.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["DeletionScheduled", "Audited"]);
        assert_eq!(planned.added_to(&first, "t2"), None);
        let second = adopted(&stored().record.claim).added_to(&first, "t2").unwrap();
        assert_eq!(second.iter().map(|c| c.type_.as_str()).collect::<Vec<_>>(), ["Orphaned", "Audited"]);
        assert_eq!(second[0].status, ConditionStatus::False);
    }

    #[test]
    fn messages_name_the_bucket_and_the_remedy() {
        insta::assert_snapshot!(scheduled(&stored(), Timestamp::UNIX_EPOCH).message, @r#"claim shop/photos was deleted; bucket "photos-f30e0389" is deleted with all its content at 1970-01-01T00:00:00Z; until then the claim gets it back if it is created again with the annotation objectbucket.io/undo-delete=yes; annotate this ObjectBucket with objectbucket.io/orphan=VALUE; values: adopt (give bucket and user to the claim that has this namespace and name now), forget (delete only this ObjectBucket), remove (delete the access, and the bucket with all its content unless its reclaimPolicy is Retain or the claim was never Bound)"#);
        let published = Stored { record: Record { credentials_published: true, ..stored().record }, ..stored() };
        insta::assert_snapshot!(retained(&published, &Retained::NotEmpty).message, @r#"claim shop/photos was deleted; bucket "photos-f30e0389" is kept, because it is not empty and may be deleted only while it is empty; annotate this ObjectBucket with objectbucket.io/orphan=VALUE; values: adopt (give bucket and user to the claim that has this namespace and name now), forget (delete only this ObjectBucket), remove (delete the access, and the bucket with all its content unless its reclaimPolicy is Retain or the claim was never Bound)"#);
        assert!(retained(&stored(), &Retained::NotEmpty).message.contains("before remove, empty it by hand"));
        insta::assert_snapshot!(without_values(&retained(&published, &Retained::NotEmpty).message), @r#"claim shop/photos was deleted; bucket "photos-f30e0389" is kept, because it is not empty and may be deleted only while it is empty"#);
    }

    #[test]
    fn problems_of_a_scheduled_deletion_are_in_its_condition() {
        let schedule = Schedule { at: Timestamp::UNIX_EPOCH, namespace_uid: None };
        let release = Release { at: Timestamp::UNIX_EPOCH, why: Retained::Scheduled(schedule), deleting: false };
        let late = Error::TimedOut(120);
        let of_deletion = failed(&Stored { release: Some(release), ..stored() }, &late);
        assert!(!of_deletion.is_orphan() && of_deletion.severity == Severity::Warning);
        assert!(failed(&stored(), &late).is_orphan());
        let crd = Error::CrdDeleting { crd: "objectbuckets.objectbucket.io" };
        assert_eq!(failed(&stored(), &crd).reason, "CRDDeleting");
    }
}
