//! Removal: whether a bucket may be deleted, the next step, and the closing message. Pure.

use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::wire::annotation;
use crate::decide::record::Stored;
use crate::decide::release::{Release, Retained, Schedule, text};
use crate::store::names::is_generated_for;
use crate::store::{AccessRemoval, BucketRemoval, Mode, OnDelete, ReclaimPolicy, Record, Removal};

/// How a claim is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Undo {
    /// The access is removed, the bucket is kept.
    Revoke,
    /// Access and bucket are removed, the bucket with its content.
    Delete,
    /// Access and bucket are removed; a bucket that is not empty is kept.
    DeleteIfEmpty,
    /// The access is removed; the bucket is deleted after this time.
    DeleteAfter(Duration),
}

/// Decides how the claim of an ObjectBucket is undone.
///
/// A bucket that existed before is never deleted. What a bucket holds whose credentials were never published is not the
/// claim's, whatever its reclaimPolicy is; while it is empty, it is deleted, so that a failed claim leaves nothing behind.
pub(crate) fn undo(stored: &Stored) -> Undo {
    let Record { plan, reclaim_policy, .. } = &stored.record;
    match (plan.mode, reclaim_policy) {
        (Mode::Granted, _) => Undo::Revoke,
        // From claim and class, because there is no ObjectBucket: it is unknown whether to retain the bucket.
        (Mode::Created, _) if stored.is_reconstructed() => Undo::Revoke,
        (Mode::Created, _) if !stored.published() => Undo::DeleteIfEmpty,
        (Mode::Created, ReclaimPolicy::Retain) => Undo::Revoke,
        (Mode::Created, ReclaimPolicy::Delete) => match plan.on_delete {
            OnDelete::Purge => Undo::Delete,
            OnDelete::IfEmpty => Undo::DeleteIfEmpty,
            OnDelete::After(time) => Undo::DeleteAfter(time),
        },
    }
}

/// How an ObjectBucket without a claim is undone when an admin requests its removal, or it is due. What is not the
/// claim's is not emptied then either.
pub(crate) fn undo_now(stored: &Stored) -> Undo {
    match (stored.record.plan.mode, stored.record.reclaim_policy) {
        (Mode::Created, ReclaimPolicy::Delete) if !stored.published() => Undo::DeleteIfEmpty,
        (Mode::Created, ReclaimPolicy::Delete) => Undo::Delete,
        (Mode::Created, ReclaimPolicy::Retain) | (Mode::Granted, _) => Undo::Revoke,
    }
}

/// Why the ObjectBucket outlives its claim after it was undone in this way; `None` if it does not. `namespace_uid`: of the
/// claim. `now`: when the claim was undone.
pub(crate) fn retained(
    undo: Undo,
    removed: &Removal,
    namespace_uid: Option<String>,
    now: Timestamp,
) -> Option<Retained> {
    match (undo, removed) {
        (_, Removal { access: AccessRemoval::Unproven(_), .. }) => Some(Retained::UserUnproven),
        (Undo::DeleteAfter(time), _) => {
            let at = SignedDuration::try_from(time).ok().and_then(|time| now.checked_add(time).ok());
            Some(Retained::Scheduled(Schedule { at: at.unwrap_or(Timestamp::MAX), namespace_uid }))
        }
        (_, Removal { bucket: BucketRemoval::NotEmpty, .. }) => Some(Retained::NotEmpty),
        (Undo::Revoke | Undo::Delete | Undo::DeleteIfEmpty, _) => None,
    }
}

/// What is known about a claim that is being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TeardownState {
    /// How the record is to be undone; `None` if there is no record.
    pub(crate) recorded: Option<Undo>,
    pub(crate) store: StoreProgress,
    /// The store has had the time to show everything that was created.
    pub(crate) settled: bool,
    /// The ObjectBucket outlives its claim.
    pub(crate) retained: bool,
    /// Secret and ConfigMap of the claim no longer exist.
    pub(crate) outputs_gone: bool,
    pub(crate) purpose: Purpose,
}

/// The answer of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StoreProgress {
    /// It was not called yet.
    NotAsked,
    /// Something is left.
    Partly,
    /// Nothing is left.
    Fully,
}

/// Why a record is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// The claim was deleted.
    Release,
    /// The claim or its class was edited before binding.
    Replan,
    /// The claim no longer exists, and an admin requested it, or it was due.
    Orphan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TeardownStep {
    /// Have the store undo what is recorded.
    Undo(Undo),
    /// Continue after others in the queue.
    Yield,
    /// Check the store again after a while.
    Settle,
    /// Delete Secret and ConfigMap.
    DeleteOutputs,
    /// Write into the record why it outlives its claim.
    Retain,
    DeleteRecord,
    /// Remove the finalizer from the claim.
    Release,
    Replan,
    /// Nothing is left to do.
    Done,
}

/// The next step of a removal, from the store to the claim's finalizer.
pub(crate) fn next_teardown_step(state: &TeardownState) -> TeardownStep {
    match (state.recorded, state.store) {
        (Some(undo), StoreProgress::NotAsked) => TeardownStep::Undo(undo),
        (Some(_), StoreProgress::Partly) => TeardownStep::Yield,
        (Some(_), StoreProgress::Fully) if !state.settled => TeardownStep::Settle,
        _ if !state.outputs_gone => TeardownStep::DeleteOutputs,
        (Some(_), StoreProgress::Fully) if state.retained => TeardownStep::Retain,
        (Some(_), StoreProgress::Fully) => TeardownStep::DeleteRecord,
        (None, _) => match state.purpose {
            Purpose::Release => TeardownStep::Release,
            Purpose::Replan => TeardownStep::Replan,
            Purpose::Orphan => TeardownStep::Done,
        },
    }
}

/// Whether another record names the bucket of `record`, which may then be in use. `is_leaving`: the claim of the other one
/// is being deleted.
///
/// The Go provisioner recorded other hosts than this operator, and a granted bucket may be in another account than the
/// user: these differences do not count. A claim that asks for a new bucket of this name, and did not get it, does not
/// use it: otherwise anybody could block the deletion. Nor does a claim that is being deleted together with this bucket:
/// otherwise two claims would wait for each other.
pub(crate) fn shares_bucket(record: &Stored, other: &Stored, is_leaving: bool) -> bool {
    let by_go = |stored: &Stored| !stored.by_us();
    let waits_for_it = !by_go(other) && other.record.plan.mode == Mode::Created && !other.bound();
    let (mine, theirs) = (&record.record.plan, &other.record.plan);
    let same_store = by_go(record)
        || by_go(other)
        || (&mine.endpoint.host, mine.endpoint.port) == (&theirs.endpoint.host, theirs.endpoint.port);
    let known_to_differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let in_another_account =
        theirs.mode == Mode::Created && !by_go(other) && known_to_differ(&record.record.account, &other.record.account);
    // A bucket that is kept if it has content may be deleted with one that has the same rule, not with one that is
    // emptied.
    let leaves_with_it = match undo(other) {
        Undo::Delete => is_leaving,
        Undo::DeleteIfEmpty => is_leaving && undo(record) == Undo::DeleteIfEmpty,
        Undo::Revoke | Undo::DeleteAfter(_) => false,
    };
    // Its claim no longer exists, and its keys were deleted.
    let has_no_access =
        theirs.mode == Mode::Granted && other.release.as_ref().is_some_and(Release::access_is_gone) && !by_go(other);
    mine.bucket == theirs.bucket
        && !has_no_access
        && same_store
        && !waits_for_it
        && !in_another_account
        && !leaves_with_it
}

/// The closing message: what was removed, and what was kept.
pub(crate) fn closing_message(stored: &Stored, undo: Undo, removed: &Removal, retained: Option<&Retained>) -> String {
    let record = &stored.record;
    let name = &record.plan.bucket;
    let scheduled = match retained {
        Some(Retained::Scheduled(schedule)) => Some(format!(
            "bucket {name:?} is deleted with all its content at {}; to undo that, create the claim again before, with the annotation {}: \"yes\"",
            text(schedule.at),
            annotation::UNDO_DELETE
        )),
        _ => None,
    };
    let bucket = scheduled.unwrap_or_else(|| match (undo, &removed.bucket) {
        (_, BucketRemoval::NotEmpty) => format!("bucket {name:?} is kept, because it is not empty"),
        (_, BucketRemoval::Kept) if retained == Some(&Retained::BucketConflict) => {
            format!(
                "bucket {name:?} of ObjectBucket {:?} is left in place, because the claim names another one",
                stored.name
            )
        }
        // Without its ObjectBucket, nothing is known about the bucket.
        (_, BucketRemoval::Kept) if record.plan.mode == Mode::Created && stored.is_reconstructed() => {
            format!("bucket {name:?}, if it still exists, is left in place")
        }
        (_, BucketRemoval::Deleted) => format!("bucket {name:?} is deleted with all its content"),
        (_, BucketRemoval::NotFound) => format!("bucket {name:?} no longer existed"),
        (_, BucketRemoval::LeftInPlace(_)) => format!("bucket {name:?} is left in place"),
        (_, BucketRemoval::Kept) if record.plan.mode == Mode::Granted => match &record.plan.shared_from {
            Some(from) => format!(
                    "bucket {name:?} is left to ObjectBucketClaim {:?}, for which it was created; if that claim was deleted before, the bucket may be deleted now, by the rule of its class",
                    from.name
                ),
            None => format!("bucket {name:?}, which existed before the claim, is kept"),
        },
        (Undo::Revoke, BucketRemoval::Kept) if record.reclaim_policy == ReclaimPolicy::Retain => {
            format!("bucket {name:?} is kept, because its reclaimPolicy is Retain")
        }
        (Undo::Revoke | Undo::DeleteAfter(_), BucketRemoval::Kept) => format!("bucket {name:?} is kept"),
        (Undo::Delete | Undo::DeleteIfEmpty, BucketRemoval::Kept) => format!("bucket {name:?} is left in place"),
        // The last attempt deletes the rest.
        (_, BucketRemoval::Partial { .. }) => format!("bucket {name:?} is not deleted yet"),
    });
    let access = match (record.plan.identity(), &removed.access) {
        (None, _) => "the claim shared the provisioning keys, which still work".to_owned(),
        (Some(_), AccessRemoval::Deleted) => "the claim's access is deleted".to_owned(),
        // It was deleted with the claim.
        (Some(_), AccessRemoval::NotFound) if stored.release.is_some() => {
            "the claim's access was deleted before".to_owned()
        }
        (Some(identity), AccessRemoval::NotFound) if record.plan.service_account.is_some() => {
            format!("{identity} had no policy of the claim any more")
        }
        (Some(identity), AccessRemoval::NotFound) => format!("the claim's {identity} no longer existed"),
        (Some(identity), AccessRemoval::LeftInPlace(_)) if record.plan.service_account.is_some() => {
            format!("the claim's access is deleted, and {identity} is left in place")
        }
        (Some(identity), AccessRemoval::LeftInPlace(_) | AccessRemoval::NotIssued) => {
            format!("the claim's {identity} is left in place, and its keys still work")
        }
        (Some(_), AccessRemoval::Unproven(_)) => {
            format!("user {} is left in place, because nothing proves that it is the claim's", unproven_user(record))
        }
    };
    format!("{access}; {bucket}")
}

/// A user that may not be the claim's. If its name ends in the claim's uid, its keys were deactivated.
pub(crate) fn unproven_user(record: &Record) -> String {
    let user = record.plan.user.as_deref().unwrap_or_default();
    match record.uids().any(|uid| is_generated_for(user, uid)) {
        true => format!("{user:?} (whose keys are deactivated)"),
        false => format!("{user:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::record::Author;
    use crate::decide::testing::{record, stored};
    use crate::store::{Endpoint, Plan, Record};

    fn with(change: impl FnOnce(&mut Record)) -> Stored {
        let mut record = record();
        change(&mut record);
        Stored { record: Record { credentials_published: true, ..record }, ..stored() }
    }

    #[test]
    fn a_bucket_is_shared_by_records_of_the_same_store() {
        let created = with(|r| r.account = Some("1".into()));
        let granted = |account: Option<&str>| {
            with(|r| {
                r.plan.mode = Mode::Granted;
                r.account = account.map(str::to_owned);
            })
        };
        for account in [None, Some("1"), Some("2")] {
            assert!(shares_bucket(&created, &granted(account), false), "{account:?}");
        }
        let elsewhere = Endpoint { host: "another.example.com".into(), ..record().plan.endpoint };
        let elsewhere = with(|r| r.plan = Plan { endpoint: elsewhere, ..record().plan });
        assert!(!shares_bucket(&created, &elsewhere, false));
        let by_go = Stored { author: Author::GoProvisioner, ..elsewhere.clone() };
        assert!(
            shares_bucket(&created, &by_go, false) && shares_bucket(&by_go, &created, false),
            "its hosts are written differently"
        );
        assert!(!shares_bucket(&created, &with(|r| r.account = Some("2".into())), false), "tenants of a store");
        assert!(!shares_bucket(&created, &with(|r| r.plan.bucket = "other".into()), false));
    }

    #[test]
    fn a_claim_that_did_not_get_the_bucket_does_not_use_it() {
        let waiting = Stored { record: record(), ..stored() };
        assert!(!shares_bucket(&with(|_| ()), &waiting, false));
        let status_is_bound = Stored { status_is_bound: true, ..waiting };
        assert!(shares_bucket(&with(|_| ()), &status_is_bound, false));
    }

    #[test]
    fn the_closing_message_names_what_was_seen() {
        let ours = with(|_| ());
        let say = |access, bucket| closing_message(&ours, Undo::Delete, &Removal { access, bucket }, None);
        insta::assert_snapshot!(say(AccessRemoval::Deleted, BucketRemoval::Deleted), @r#"the claim's access is deleted; bucket "photos-f30e0389" is deleted with all its content"#);
        insta::assert_snapshot!(say(AccessRemoval::NotFound, BucketRemoval::NotFound), @r#"the claim's user "shop-photos-f30e0389" no longer existed; bucket "photos-f30e0389" no longer existed"#);
        insta::assert_snapshot!(say(AccessRemoval::LeftInPlace("why".into()), BucketRemoval::LeftInPlace("why".into())), @r#"the claim's user "shop-photos-f30e0389" is left in place, and its keys still work; bucket "photos-f30e0389" is left in place"#);
        let revoked = Removal::of_access(AccessRemoval::Deleted);
        insta::assert_snapshot!(closing_message(&ours, Undo::Revoke, &revoked, None), @r#"the claim's access is deleted; bucket "photos-f30e0389" is kept"#);
        let granted = with(|r| r.plan.mode = Mode::Granted);
        insta::assert_snapshot!(closing_message(&granted, Undo::Revoke, &revoked, None), @r#"the claim's access is deleted; bucket "photos-f30e0389", which existed before the claim, is kept"#);
        let shared = with(|r| r.plan.user = None);
        let kept = Removal { access: AccessRemoval::NotIssued, bucket: BucketRemoval::Deleted };
        insta::assert_snapshot!(closing_message(&shared, Undo::Delete, &kept, None), @r#"the claim shared the provisioning keys, which still work; bucket "photos-f30e0389" is deleted with all its content"#);
        let lost = Stored { uid: None, ..ours };
        insta::assert_snapshot!(closing_message(&lost, Undo::Revoke, &revoked, None), @r#"the claim's access is deleted; bucket "photos-f30e0389", if it still exists, is left in place"#);
    }

    #[test]
    fn claims_that_are_deleted_together_do_not_wait_for_each_other() {
        let (mine, other) = (with(|_| ()), with(|_| ()));
        assert!(shares_bucket(&mine, &other, false));
        assert!(!shares_bucket(&mine, &other, true));
        let careful = || with(|r| r.plan.on_delete = OnDelete::IfEmpty);
        assert!(!shares_bucket(&careful(), &careful(), true));
        assert!(shares_bucket(&mine, &careful(), true), "its content is kept");
        let retained = with(|r| r.reclaim_policy = ReclaimPolicy::Retain);
        assert!(shares_bucket(&mine, &retained, true), "it keeps the bucket, and waits for nobody");
    }

    fn recorded(mode: Mode, reclaim_policy: ReclaimPolicy, on_delete: OnDelete, published: bool) -> Stored {
        let plan = Plan { mode, on_delete, ..record().plan };
        Stored { record: Record { reclaim_policy, plan, credentials_published: published, ..record() }, ..stored() }
    }

    const WEEK: Duration = Duration::from_secs(7 * 86_400);
    const EVERY: [OnDelete; 3] = [OnDelete::Purge, OnDelete::IfEmpty, OnDelete::After(WEEK)];

    #[test]
    fn a_bucket_that_existed_before_is_never_deleted() {
        for policy in [ReclaimPolicy::Delete, ReclaimPolicy::Retain] {
            for published in [true, false] {
                for on_delete in EVERY {
                    let stored = recorded(Mode::Granted, policy, on_delete, published);
                    assert_eq!(undo(&stored), Undo::Revoke);
                    assert_eq!(undo_now(&stored), Undo::Revoke);
                }
            }
        }
    }

    #[test]
    fn what_was_never_published_is_deleted_only_while_it_is_empty() {
        for policy in [ReclaimPolicy::Delete, ReclaimPolicy::Retain] {
            for on_delete in EVERY {
                assert_eq!(undo(&recorded(Mode::Created, policy, on_delete, false)), Undo::DeleteIfEmpty);
            }
        }
        let claim_has =
            Stored { claim_was_bound: true, ..recorded(Mode::Created, ReclaimPolicy::Delete, OnDelete::Purge, false) };
        assert_eq!(undo(&claim_has), Undo::DeleteIfEmpty, "its user can write that");
        assert_eq!(undo_now(&claim_has), Undo::DeleteIfEmpty, "an admin does not know whose it is either");
        let published = recorded(Mode::Created, ReclaimPolicy::Delete, OnDelete::IfEmpty, true);
        assert_eq!(undo_now(&published), Undo::Delete);
    }

    #[test]
    fn what_was_published_is_undone_by_its_class() {
        let of = |policy, on_delete| undo(&recorded(Mode::Created, policy, on_delete, true));
        for on_delete in EVERY {
            assert_eq!(of(ReclaimPolicy::Retain, on_delete), Undo::Revoke);
        }
        assert_eq!(of(ReclaimPolicy::Delete, OnDelete::Purge), Undo::Delete);
        assert_eq!(of(ReclaimPolicy::Delete, OnDelete::IfEmpty), Undo::DeleteIfEmpty);
        assert_eq!(of(ReclaimPolicy::Delete, OnDelete::After(WEEK)), Undo::DeleteAfter(WEEK));
        let lost = Stored { uid: None, ..recorded(Mode::Created, ReclaimPolicy::Delete, OnDelete::Purge, true) };
        assert_eq!(undo(&lost), Undo::Revoke);
    }

    #[test]
    fn an_object_bucket_is_kept_while_a_decision_is_open() {
        let now = Timestamp::from_second(1_800_000_000).unwrap_or_default();
        let why = |undo, access, bucket| retained(undo, &Removal { access, bucket }, Some("ns".into()), now);
        assert_eq!(why(Undo::Delete, AccessRemoval::Deleted, BucketRemoval::Deleted), None);
        assert_eq!(why(Undo::Revoke, AccessRemoval::Deleted, BucketRemoval::Kept), None);
        assert_eq!(why(Undo::DeleteIfEmpty, AccessRemoval::Deleted, BucketRemoval::Deleted), None);
        assert_eq!(why(Undo::DeleteIfEmpty, AccessRemoval::Deleted, BucketRemoval::NotEmpty), Some(Retained::NotEmpty));
        let Some(Retained::Scheduled(schedule)) =
            why(Undo::DeleteAfter(WEEK), AccessRemoval::Deleted, BucketRemoval::Kept)
        else {
            panic!("it is not scheduled");
        };
        assert_eq!(
            (text(schedule.at).as_str(), schedule.namespace_uid.as_deref()),
            ("2027-01-22T08:00:00Z", Some("ns"))
        );
        let unproven = why(Undo::DeleteAfter(WEEK), AccessRemoval::Unproven("why".into()), BucketRemoval::Kept);
        assert_eq!(unproven, Some(Retained::UserUnproven), "nothing is deleted while an admin has to decide");
    }
}
