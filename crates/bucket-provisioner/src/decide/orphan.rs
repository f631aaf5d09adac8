//! ObjectBuckets without their claim, or from another cluster: what is due for them, and what an admin's annotation does.
//! Pure.
//!
//! With backups, clones and GitOps, an ObjectBucket can exist without its claim. This alone removes no data: that happens
//! only for a claim that is being deleted and has the finalizer, at the time that its class has set for that, or if an
//! admin requests it with an annotation of the ObjectBucket.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::decide::action::Action;
use crate::decide::notice::{self, Notice};
use crate::decide::record::Stored;
use crate::decide::release::{Release, Retained};
use crate::store::OnDelete;

/// The claim that has the recorded namespace and name now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PresentClaim {
    pub(crate) uid: String,
    pub(crate) deleting: bool,
    /// Name of another ObjectBucket that it already has.
    pub(crate) has_record: Option<String>,
    /// Its `spec.objectBucketName` is this ObjectBucket, so it was restored and waits for it.
    pub(crate) names_it: bool,
    /// It asks in time for the bucket, whose deletion is scheduled.
    pub(crate) undoes: bool,
}

/// What is known about an ObjectBucket.
#[derive(Debug)]
pub(crate) struct OrphanFacts<'a> {
    pub(crate) stored: &'a Stored,
    /// The admin's annotation.
    pub(crate) action: &'a Result<Option<Action>, String>,
    /// UID of this cluster.
    pub(crate) cluster: &'a str,
    /// The claim that has the recorded name now, read from the cluster.
    pub(crate) present: Option<&'a PresentClaim>,
    /// The last report is that an annotation was refused.
    pub(crate) refused: bool,
    /// The watch has shown that the claim was deleted, with its finalizer removed by somebody else.
    pub(crate) vanished: bool,
    /// The process knew of the scheduled deletion before this check.
    pub(crate) awaited: bool,
    pub(crate) now: Timestamp,
}

/// A deletion that is late by so much, and unknown until now, may come from a restored snapshot of the cluster, or from an
/// operator that was stopped: somebody may have decided otherwise meanwhile, or may want to.
const LATE: SignedDuration = SignedDuration::from_mins(10);
/// The longest time by which it is postponed.
const POSTPONED_MAX: SignedDuration = SignedDuration::from_hours(24);

/// What is due for an ObjectBucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Due {
    /// It has its claim, or everything is reported already.
    Nothing,
    /// Report this, and wait for an admin.
    Report(Notice),
    /// Report this, unless `None`, and check again at this time.
    Wait { notice: Option<Notice>, until: Timestamp },
    /// The bucket must not be deleted at its time: set another one.
    Postpone { until: Timestamp, because: &'static str },
    /// The annotation is refused: report why, and remove it. If it stayed, it might be applied much later, in a
    /// situation that the admin did not mean.
    Refuse(Notice),
    /// Remove the access, and the bucket if its reclaimPolicy is Delete.
    Remove,
    /// Remove the access.
    Revoke,
    /// Remove the access of a claim that vanished; bucket and ObjectBucket stay.
    RevokeVanished,
    /// The bucket's scheduled deletion is due.
    DeleteBucket,
    /// Delete only the ObjectBucket.
    Forget,
    /// The claim adopts it, in its own reconcile.
    Adopt,
}

/// Decides what is due for an ObjectBucket.
pub(crate) fn due(facts: &OrphanFacts<'_>) -> Due {
    let OrphanFacts { stored, action, cluster, present, .. } = *facts;
    let record = &stored.record;
    let from_elsewhere = record.cluster.as_ref().is_some_and(|recorded| recorded != cluster);
    let is_claims = !from_elsewhere && present.is_some_and(|claim| claim.uid == record.claim.uid);
    let action = match action {
        Ok(action) => *action,
        Err(_) if present.is_none() && leaves_access(facts, from_elsewhere) => return Due::RevokeVanished,
        Err(unknown) => return Due::Report(notice::unknown_action(unknown, !is_claims)),
    };
    match action {
        // A claim that is being deleted deletes it.
        None if is_claims && stored.deleted && !present.is_some_and(|claim| claim.deleting) => {
            Due::Report(notice::deleted_in_use(record))
        }
        None | Some(Action::Adopt) if is_claims => Due::Nothing,
        Some(Action::Forget) if is_claims => Due::Report(notice::forgotten_later(record)),
        Some(_) if is_claims => Due::Refuse(notice::no_effect(&record.claim)),
        Some(Action::Forget) => Due::Forget,
        Some(Action::Remove | Action::Revoke) if from_elsewhere => Due::Refuse(notice::not_here(stored)),
        Some(Action::Remove) => Due::Remove,
        Some(Action::Revoke) => Due::Revoke,
        // Its access is removed first. Then an admin may give the bucket to the next claim of the name.
        Some(Action::Adopt) if present.is_none() && leaves_access(facts, from_elsewhere) => Due::RevokeVanished,
        Some(Action::Adopt) => adoption(stored, present),
        None => without_annotation(facts, from_elsewhere),
    }
}

/// An admin wants the present claim to adopt the ObjectBucket. After the claim was deleted, the next one of its name may
/// come later.
fn adoption(stored: &Stored, present: Option<&PresentClaim>) -> Due {
    let claim = &stored.record.claim;
    let awaits = stored.release.as_ref().is_some_and(|release| !release.is_final());
    match present {
        _ if stored.release.as_ref().is_some_and(Release::is_final) => Due::Refuse(notice::deletion_began(stored)),
        None | Some(PresentClaim { deleting: true, .. }) if awaits => Due::Report(notice::awaits_claim(stored)),
        None => Due::Refuse(notice::no_claim(stored)),
        Some(PresentClaim { deleting: true, .. }) => Due::Refuse(notice::claim_is_leaving(stored)),
        Some(PresentClaim { has_record: Some(other), .. }) => {
            Due::Refuse(notice::claim_has_another(stored, claim, other))
        }
        Some(_) => Due::Adopt,
    }
}

/// Whether the access still works of a claim that was deleted without the operator.
fn leaves_access(facts: &OrphanFacts<'_>, from_elsewhere: bool) -> bool {
    let OrphanFacts { stored, vanished, .. } = *facts;
    !from_elsewhere
        && match &stored.release {
            None => vanished,
            Some(Release { why: Retained::ClaimVanished, deleting: true, .. }) => !stored.is_restored(),
            Some(_) => false,
        }
}

/// What is due without an annotation.
fn without_annotation(facts: &OrphanFacts<'_>, from_elsewhere: bool) -> Due {
    let OrphanFacts { stored, present, refused, awaited, now, .. } = *facts;
    let is_claimed = present.is_some_and(|claim| claim.names_it);
    match &stored.release {
        Some(Release { why: Retained::Scheduled(schedule), deleting, .. })
            if !from_elsewhere && !stored.is_restored() && (!is_claimed || !*deleting) =>
        {
            if *deleting {
                return Due::DeleteBucket;
            }
            let undoes = present.is_some_and(|claim| claim.undoes);
            if now >= schedule.at {
                let is_unknown = !awaited && now.duration_since(schedule.at) > LATE;
                let because = match (undoes || is_claimed, is_unknown) {
                    // If the claim were deleted later, its user would still have time to create it again.
                    (true, _) => "a claim waits for the bucket",
                    (false, true) => "no operator ran when it was due",
                    (false, false) => return Due::DeleteBucket,
                };
                return Due::Postpone { until: postponed(stored.record.plan.on_delete, now), because };
            }
            let notice = match present {
                _ if undoes => Some(notice::is_asked_for(stored)),
                _ if refused => None,
                Some(claim) if is_claimed => Some(notice::orphaned(stored, Some(&claim.uid), facts.cluster, false)),
                _ => Some(notice::scheduled(stored, schedule.at)),
            };
            Due::Wait { notice, until: schedule.at }
        }
        // Also if an annotation was refused meanwhile: whoever has the keys could use them for ever.
        _ if leaves_access(facts, from_elsewhere) => Due::RevokeVanished,
        _ if refused => Due::Nothing,
        Some(release) if !from_elsewhere && !is_claimed && release.delete_at().is_none() => {
            Due::Report(notice::retained(stored, &release.why))
        }
        _ => Due::Report(notice::orphaned(
            stored,
            present.map(|claim| claim.uid.as_str()),
            facts.cluster,
            from_elsewhere,
        )),
    }
}

/// When a bucket is deleted that could not be deleted at its time: after the time that its class sets, or a day.
fn postponed(on_delete: OnDelete, now: Timestamp) -> Timestamp {
    let window = match on_delete {
        OnDelete::After(time) => SignedDuration::try_from(time).unwrap_or(POSTPONED_MAX).min(POSTPONED_MAX),
        OnDelete::Purge | OnDelete::IfEmpty => POSTPONED_MAX,
    };
    now.checked_add(window).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::api::ObjectBucket;
    use crate::api::wire::annotation;
    use crate::decide::action::action;
    use crate::decide::release::Schedule;
    use crate::decide::testing::{record, stored};
    use crate::reasons::orphaned as reason;
    use crate::store::Record;

    const HERE: &str = "cluster-here";
    const EVERY: [Option<Action>; 5] =
        [None, Some(Action::Remove), Some(Action::Revoke), Some(Action::Forget), Some(Action::Adopt)];

    fn of(cluster: Option<&str>) -> Stored {
        Stored { record: Record { cluster: cluster.map(str::to_owned), ..record() }, ..stored() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn facts<'a>(stored: &'a Stored, action: &'a Result<Option<Action>, String>) -> OrphanFacts<'a> {
        OrphanFacts {
            stored,
            action,
            cluster: HERE,
            present: None,
            refused: false,
            vanished: false,
            awaited: true,
            now: at(50),
        }
    }

    /// The ObjectBucket of a claim that was deleted at 0.
    fn released(why: Retained) -> Stored {
        let release = Release { at: at(0), why, deleting: false };
        Stored { release: Some(release), created: Some(at(-9)), ..of(Some(HERE)) }
    }

    fn scheduled() -> Stored {
        released(Retained::Scheduled(Schedule { at: at(100), namespace_uid: Some("ns".into()) }))
    }

    fn present(uid: &str) -> PresentClaim {
        PresentClaim { uid: uid.into(), deleting: false, has_record: None, names_it: false, undoes: false }
    }

    fn decide(stored: &Stored, action: Option<Action>, present: Option<&PresentClaim>) -> Due {
        due(&OrphanFacts { present, ..facts(stored, &Ok(action)) })
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
    fn a_record_whose_claim_exists_is_left_to_its_claim() {
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
    fn a_claim_that_asks_in_time_holds_the_deletion() {
        let (silent, asks) = (present("new"), PresentClaim { undoes: true, ..present("new") });
        let late =
            |stored: &Stored, claim| due(&OrphanFacts { present: claim, now: at(500), ..facts(stored, &Ok(None)) });
        assert_eq!(late(&scheduled(), Some(&silent)), Due::DeleteBucket);
        let held = late(&scheduled(), Some(&asks));
        assert!(matches!(held, Due::Postpone { until, .. } if until > at(500)), "{held:?}");
        // Checked again at its time, also if nothing changes until then.
        let Due::Wait { notice: Some(notice), until } = decide(&scheduled(), None, Some(&asks)) else {
            panic!("no wait")
        };
        assert_eq!((notice.reason, until), (reason::AWAITS_CLAIM, at(100)));
        let mut begun = scheduled();
        begun.release.as_mut().unwrap().deleting = true;
        assert_eq!(late(&begun, Some(&asks)), Due::DeleteBucket);
    }

    #[test]
    fn a_deletion_that_nobody_knew_of_when_it_was_due_is_postponed() {
        let mut scheduled = scheduled();
        scheduled.record.plan.on_delete = OnDelete::After(std::time::Duration::from_secs(100));
        let look = |awaited, second| due(&OrphanFacts { awaited, now: at(second), ..facts(&scheduled, &Ok(None)) });
        assert_eq!(look(false, 200), Due::DeleteBucket, "the operator was away for a moment");
        assert_eq!(look(true, 9999), Due::DeleteBucket, "it fails since then");
        assert_eq!(
            look(false, 9999),
            Due::Postpone { until: at(9999 + 100), because: "no operator ran when it was due" }
        );
        let mut begun = scheduled;
        begun.release.as_mut().unwrap().deleting = true;
        assert_eq!(due(&OrphanFacts { awaited: false, now: at(9999), ..facts(&begun, &Ok(None)) }), Due::DeleteBucket);
    }

    #[test]
    fn the_access_of_a_vanished_claim_is_removed_later() {
        let mut vanished = released(Retained::ClaimVanished);
        assert!(is_report(&decide(&vanished, None, None), reason::CLAIM_VANISHED));
        vanished.release.as_mut().unwrap().deleting = true;
        assert_eq!(decide(&vanished, None, None), Due::RevokeVanished);
        assert_eq!(decide(&vanished, Some(Action::Adopt), Some(&present("new"))), Due::Adopt);
        assert_eq!(decide(&vanished, Some(Action::Adopt), None), Due::RevokeVanished, "the next claim may never come");
        assert!(matches!(decide(&of(Some(HERE)), None, None), Due::Report(_)));
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
    fn a_claim_adopts_only_if_not_deleted_and_without_a_record() {
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
        let (stored, action) = (of(Some(HERE)), Ok(None));
        assert_eq!(due(&OrphanFacts { refused: true, ..facts(&stored, &action) }), Due::Nothing);
    }

    #[test]
    fn an_unknown_annotation_is_reported_with_the_known_ones() {
        let mut object = ObjectBucket::default();
        object.metadata.annotations = Some([(annotation::ORPHAN.to_owned(), "delete".to_owned())].into());
        let action = action(&object);
        let due = due(&facts(&of(Some(HERE)), &action));
        let Due::Report(notice) = due else { panic!("{due:?}") };
        insta::assert_snapshot!(notice.message, @r#"annotation objectbucket.io/orphan has the unknown value "delete"; use one of: remove, revoke, forget, adopt"#);
    }

    #[test]
    fn a_bucket_is_deleted_at_its_time_and_not_before() {
        let (stored, action) = (scheduled(), Ok(None));
        let decide = |now| due(&OrphanFacts { now: at(now), ..facts(&stored, &action) });
        let Due::Wait { notice: Some(notice), until } = decide(99) else { panic!("{:?}", decide(99)) };
        assert_eq!((notice.reason, until), (reason::SCHEDULED, at(100)));
        assert_eq!(decide(100), Due::DeleteBucket);
        let begun = Release { deleting: true, ..stored.release.clone().unwrap() };
        let begun = Stored { release: Some(begun), ..stored };
        assert_eq!(decide_at(&begun, 99), Due::DeleteBucket, "what has begun is finished");
    }

    fn decide_at(stored: &Stored, now: i64) -> Due {
        due(&OrphanFacts { now: at(now), ..facts(stored, &Ok(None)) })
    }

    #[test]
    fn copies_backups_and_awaited_buckets_are_not_deleted() {
        let elsewhere = Stored { record: of(Some("elsewhere")).record, ..scheduled() };
        assert!(is_report(&decide_at(&elsewhere, 200), reason::OTHER_CLUSTER));
        let restored = Stored { created: Some(at(60)), ..scheduled() };
        assert!(is_report(&decide_at(&restored, 200), reason::CLAIM_GONE));
        let waiting = PresentClaim { names_it: true, ..present("restored") };
        let (stored, action) = (scheduled(), Ok(None));
        let decide = |now| due(&OrphanFacts { now: at(now), present: Some(&waiting), ..facts(&stored, &action) });
        let Due::Wait { notice: Some(notice), .. } = decide(99) else { panic!("{:?}", decide(99)) };
        assert_eq!(notice.reason, reason::CLAIM_REPLACED);
        assert!(matches!(decide(200), Due::Postpone { .. }), "{:?}", decide(200));
    }

    #[test]
    fn a_new_claim_does_not_keep_the_bucket_of_a_deleted_one() {
        let (stored, action, new) = (scheduled(), Ok(None), present("new"));
        let due = due(&OrphanFacts { now: at(100), present: Some(&new), ..facts(&stored, &action) });
        assert_eq!(due, Due::DeleteBucket);
    }

    #[test]
    fn an_admin_decides_about_the_bucket_of_a_deleted_claim() {
        for stored in [scheduled(), released(Retained::NotEmpty), released(Retained::ClaimVanished)] {
            assert_eq!(decide(&stored, Some(Action::Remove), None), Due::Remove);
            assert_eq!(decide(&stored, Some(Action::Forget), None), Due::Forget);
            // The claim may come later.
            let waits = decide(&stored, Some(Action::Adopt), None);
            assert!(is_report(&waits, reason::AWAITS_CLAIM), "{waits:?}");
            assert_eq!(decide(&stored, Some(Action::Adopt), Some(&present("new"))), Due::Adopt);
        }
        let begun = Release { deleting: true, ..scheduled().release.unwrap() };
        let begun = Stored { release: Some(begun), ..scheduled() };
        assert!(is_refusal(&decide(&begun, Some(Action::Adopt), Some(&present("new"))), reason::ACTION_REFUSED));
        assert_eq!(decide(&begun, Some(Action::Forget), None), Due::Forget, "what is left of it can be kept");
    }

    #[test]
    fn a_refused_annotation_does_not_stop_a_scheduled_deletion() {
        let (stored, action) = (scheduled(), Ok(None));
        let decide = |now| due(&OrphanFacts { refused: true, now: at(now), ..facts(&stored, &action) });
        assert_eq!(decide(99), Due::Wait { notice: None, until: at(100) });
        assert_eq!(decide(100), Due::DeleteBucket);
    }

    #[test]
    fn what_is_kept_for_an_admin_is_reported_with_its_reason() {
        for (why, reason) in [
            (Retained::NotEmpty, reason::BUCKET_NOT_EMPTY),
            (Retained::UserUnproven, reason::USER_UNPROVEN),
            (Retained::ClaimVanished, reason::CLAIM_VANISHED),
            (Retained::BucketConflict, reason::BUCKET_CONFLICT),
        ] {
            let due = decide(&released(why), None, None);
            assert!(is_report(&due, reason), "{due:?}");
        }
    }

    #[test]
    fn the_access_of_a_claim_that_vanished_here_is_removed_once() {
        let vanished = |stored: &Stored| due(&OrphanFacts { vanished: true, ..facts(stored, &Ok(None)) });
        assert_eq!(vanished(&of(Some(HERE))), Due::RevokeVanished);
        assert_eq!(vanished(&of(None)), Due::RevokeVanished);
        assert!(is_report(&vanished(&of(Some("elsewhere"))), reason::OTHER_CLUSTER));
        let (stored, adopt) = (of(Some(HERE)), Ok(Some(Action::Adopt)));
        let adopting = due(&OrphanFacts { vanished: true, ..facts(&stored, &adopt) });
        assert_eq!(adopting, Due::RevokeVanished, "it vanished while it adopted the ObjectBucket");
        let misspelt = Err("adpot".to_owned());
        assert_eq!(due(&OrphanFacts { vanished: true, ..facts(&stored, &misspelt) }), Due::RevokeVanished);
        let refused = due(&OrphanFacts { vanished: true, refused: true, ..facts(&stored, &Ok(None)) });
        assert_eq!(refused, Due::RevokeVanished, "what was refused before does not keep the access");
        assert!(is_report(&vanished(&released(Retained::ClaimVanished)), reason::CLAIM_VANISHED));
    }

    #[test]
    fn a_deleted_object_bucket_in_use_is_reported() {
        let claim = present(&record().claim.uid);
        let deleted = Stored { deleted: true, ..of(Some(HERE)) };
        assert!(is_report(&decide(&deleted, None, Some(&claim)), reason::CLAIM_EXISTS));
        let leaving = PresentClaim { deleting: true, ..claim };
        assert_eq!(decide(&deleted, None, Some(&leaving)), Due::Nothing);
    }
}
