//! Removal: whether a bucket may be deleted, the next step, and the closing message. Pure.

use crate::controller::decide::record::{Author, Stored};
use crate::provisioner::{Fate, Mode, ReclaimPolicy, Record, Removed};

/// How a claim is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Undo {
    /// The access is removed, the bucket is kept.
    Revoke,
    /// Access and bucket are removed.
    Delete,
}

/// Decides how a record is undone. `handed_over`: an app may have used the bucket.
///
/// A bucket that existed before is never deleted. Retain keeps a bucket because of what an app may have put into it; a
/// bucket that nobody could use is deleted, so that a failed claim leaves nothing behind.
pub(crate) fn undo(record: &Record, handed_over: bool) -> Undo {
    match (record.plan.mode, record.reclaim_policy) {
        (Mode::Granted, _) => Undo::Revoke,
        (Mode::Created, ReclaimPolicy::Delete) => Undo::Delete,
        (Mode::Created, ReclaimPolicy::Retain) if handed_over => Undo::Revoke,
        (Mode::Created, ReclaimPolicy::Retain) => Undo::Delete,
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
    /// Secret and ConfigMap of the claim are gone.
    pub(crate) outputs_gone: bool,
    pub(crate) purpose: Purpose,
}

/// The answer of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StoreProgress {
    /// It was not asked yet.
    NotAsked,
    /// Some is left.
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
    /// The claim is gone, and an admin requested it.
    Orphan,
}

/// A step of a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TeardownStep {
    /// Have the store undo what is recorded.
    Undo(Undo),
    /// Continue after others had their turn.
    Yield,
    /// Check the store again after a while.
    Settle,
    /// Delete Secret and ConfigMap.
    DeleteOutputs,
    /// Delete the record.
    DeleteRecord,
    /// Remove the finalizer from the claim.
    Release,
    /// Plan again.
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
        (Some(_), StoreProgress::Fully) => TeardownStep::DeleteRecord,
        (None, _) => match state.purpose {
            Purpose::Release => TeardownStep::Release,
            Purpose::Replan => TeardownStep::Replan,
            Purpose::Orphan => TeardownStep::Done,
        },
    }
}

/// Whether another record names the bucket of `record`, which may then be in use.
///
/// The Go provisioner recorded other hosts than this operator, and a granted bucket may be in another account than the
/// user: these differences do not count. A claim that asks for a new bucket of this name, and did not get it, does not
/// use it: otherwise anybody could block the deletion.
pub(crate) fn shares_bucket(record: &Stored, other: &Stored) -> bool {
    let by_go = |stored: &Stored| stored.author == Author::GoProvisioner;
    let waits_for_it = !by_go(other) && other.record.plan.mode == Mode::Created && !other.bound();
    let (mine, theirs) = (&record.record.plan, &other.record.plan);
    let same_store = by_go(record)
        || by_go(other)
        || (&mine.endpoint.host, mine.endpoint.port) == (&theirs.endpoint.host, theirs.endpoint.port);
    let known_to_differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let in_another_account =
        theirs.mode == Mode::Created && !by_go(other) && known_to_differ(&record.record.account, &other.record.account);
    mine.bucket == theirs.bucket && same_store && !waits_for_it && !in_another_account
}

/// The closing message: what was removed, and what was kept. `access_gone_before`: an earlier attempt removed the access.
pub(crate) fn closing_message(stored: &Stored, undo: Undo, removed: &Removed, access_gone_before: bool) -> String {
    let record = &stored.record;
    let name = &record.plan.bucket;
    let bucket = match (undo, &removed.bucket) {
        // Without its ObjectBucket, nothing is known about the bucket.
        (_, Fate::Kept) if record.plan.mode == Mode::Created && stored.is_reconstructed() => {
            format!("bucket {name:?}, if it still exists, is left in place")
        }
        (_, Fate::Removed) => format!("bucket {name:?} is deleted with all its content"),
        (_, Fate::Missing) => format!("bucket {name:?} no longer existed"),
        (_, Fate::Left(_)) => format!("bucket {name:?} is left in place"),
        (_, Fate::Kept) if record.plan.mode == Mode::Granted => {
            format!("bucket {name:?}, which existed before the claim, is kept")
        }
        (Undo::Revoke, Fate::Kept) if record.reclaim_policy == ReclaimPolicy::Retain => {
            format!("bucket {name:?} is kept, because its reclaimPolicy is Retain")
        }
        (Undo::Revoke, Fate::Kept) => format!("bucket {name:?} is kept"),
        (Undo::Delete, Fate::Kept) => format!("bucket {name:?} is left in place"),
    };
    let access = match (&record.plan.user, &removed.access) {
        (None, _) => "the claim had the owner's own keys, which still work".to_owned(),
        (Some(_), Fate::Removed) => "the claim's access is deleted".to_owned(),
        (Some(_), Fate::Missing) if access_gone_before => "the claim's access is deleted".to_owned(),
        (Some(user), Fate::Missing) => format!("the claim's user {user:?} no longer existed"),
        (Some(user), Fate::Left(_) | Fate::Kept) => {
            format!("the claim's user {user:?} is left in place, and its keys still work")
        }
    };
    format!("{access}; {bucket}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::decide::testing::{record, stored};
    use crate::provisioner::{Endpoint, Plan, Record};

    fn with(change: impl FnOnce(&mut Record)) -> Stored {
        let mut record = record();
        change(&mut record);
        Stored { record: Record { handed_over: true, ..record }, ..stored() }
    }

    #[test]
    fn a_bucket_is_shared_with_whoever_names_it_in_the_same_store() {
        let created = with(|r| r.account = Some("1".into()));
        let granted = |account: Option<&str>| {
            with(|r| {
                r.plan.mode = Mode::Granted;
                r.account = account.map(str::to_owned);
            })
        };
        for account in [None, Some("1"), Some("2")] {
            assert!(shares_bucket(&created, &granted(account)), "{account:?}");
        }
        let elsewhere = Endpoint { host: "another.example.com".into(), ..record().plan.endpoint };
        let elsewhere = with(|r| r.plan = Plan { endpoint: elsewhere, ..record().plan });
        assert!(!shares_bucket(&created, &elsewhere));
        let by_go = Stored { author: Author::GoProvisioner, ..elsewhere.clone() };
        assert!(
            shares_bucket(&created, &by_go) && shares_bucket(&by_go, &created),
            "its hosts are written differently"
        );
        assert!(!shares_bucket(&created, &with(|r| r.account = Some("2".into()))), "tenants of a store");
        assert!(!shares_bucket(&created, &with(|r| r.plan.bucket = "other".into())));
    }

    #[test]
    fn a_claim_that_asks_for_a_bucket_of_this_name_in_vain_does_not_use_it() {
        let waiting = Stored { record: record(), ..stored() };
        assert!(!shares_bucket(&with(|_| ()), &waiting));
        let says_bound = Stored { says_bound: true, ..waiting };
        assert!(shares_bucket(&with(|_| ()), &says_bound));
    }

    #[test]
    fn the_closing_message_says_what_was_seen() {
        let ours = with(|_| ());
        let say = |access, bucket| closing_message(&ours, Undo::Delete, &Removed { access, bucket }, false);
        insta::assert_snapshot!(say(Fate::Removed, Fate::Removed), @r#"the claim's access is deleted; bucket "photos-f30e0389" is deleted with all its content"#);
        insta::assert_snapshot!(say(Fate::Missing, Fate::Missing), @r#"the claim's user "shop-photos-f30e0389" no longer existed; bucket "photos-f30e0389" no longer existed"#);
        insta::assert_snapshot!(say(Fate::Left("why".into()), Fate::Left("why".into())), @r#"the claim's user "shop-photos-f30e0389" is left in place, and its keys still work; bucket "photos-f30e0389" is left in place"#);
        let revoked = Removed { access: Fate::Removed, bucket: Fate::Kept };
        insta::assert_snapshot!(closing_message(&ours, Undo::Revoke, &revoked, false), @r#"the claim's access is deleted; bucket "photos-f30e0389" is kept"#);
        let granted = with(|r| r.plan.mode = Mode::Granted);
        insta::assert_snapshot!(closing_message(&granted, Undo::Revoke, &revoked, false), @r#"the claim's access is deleted; bucket "photos-f30e0389", which existed before the claim, is kept"#);
        let shared = with(|r| r.plan.user = None);
        let kept = Removed { access: Fate::Kept, bucket: Fate::Removed };
        insta::assert_snapshot!(closing_message(&shared, Undo::Delete, &kept, false), @r#"the claim had the owner's own keys, which still work; bucket "photos-f30e0389" is deleted with all its content"#);
        let lost = Stored { uid: None, ..ours };
        insta::assert_snapshot!(closing_message(&lost, Undo::Revoke, &revoked, false), @r#"the claim's access is deleted; bucket "photos-f30e0389", if it still exists, is left in place"#);
    }

    fn recorded(mode: Mode, reclaim_policy: ReclaimPolicy) -> Record {
        Record { reclaim_policy, plan: Plan { mode, ..record().plan }, ..record() }
    }

    #[test]
    fn a_bucket_that_existed_before_is_never_deleted() {
        for policy in [ReclaimPolicy::Delete, ReclaimPolicy::Retain] {
            for handed_over in [true, false] {
                assert_eq!(undo(&recorded(Mode::Granted, policy), handed_over), Undo::Revoke);
            }
        }
    }

    #[test]
    fn retain_keeps_what_an_app_may_have_used_and_nothing_else() {
        assert_eq!(undo(&recorded(Mode::Created, ReclaimPolicy::Retain), true), Undo::Revoke);
        assert_eq!(undo(&recorded(Mode::Created, ReclaimPolicy::Retain), false), Undo::Delete);
        assert_eq!(undo(&recorded(Mode::Created, ReclaimPolicy::Delete), true), Undo::Delete);
    }
}
