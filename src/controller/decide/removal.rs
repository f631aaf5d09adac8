//! The way back: whether a bucket may go, and what is said in the end. Pure.

use super::record::Author;
use crate::controller::plan::Undo;
use crate::provisioner::{Fate, Mode, ReclaimPolicy, Record, Removed};

/// Whether another record names the bucket that `record` created, so that it may be in use there.
///
/// What the Go provisioner recorded as the host differs from what this operator does, and a bucket that was granted may
/// be in another account than the user: these are not taken for another bucket.
pub(crate) fn shares_bucket(record: &Record, (author, other): (Author, &Record)) -> bool {
    let (mine, theirs) = (&record.plan, &other.plan);
    let known_to_differ = |a: &Option<String>, b: &Option<String>| a.is_some() && b.is_some() && a != b;
    let same_store = author == Author::GoProvisioner
        || (&mine.endpoint.host, mine.endpoint.port) == (&theirs.endpoint.host, theirs.endpoint.port);
    let own_account = theirs.mode == Mode::Created && author == Author::Us;
    mine.bucket == theirs.bucket && same_store && !(own_account && known_to_differ(&record.account, &other.account))
}

/// What is said in the end: what was seen to be gone, and what was not. `gone_before`: an earlier attempt saw the
/// access go.
pub(crate) fn closing_message(record: &Record, undo: Undo, removed: &Removed, access_gone_before: bool) -> String {
    let name = &record.plan.bucket;
    let bucket = match (undo, &removed.bucket) {
        (_, Fate::Removed) => format!("bucket {name:?} is deleted with all that was in it"),
        (_, Fate::Missing) => format!("bucket {name:?} did not exist any more"),
        (_, Fate::Left(_)) => format!("bucket {name:?} is left in place"),
        (_, Fate::Kept) if record.plan.mode == Mode::Granted => {
            format!("bucket {name:?}, which existed before, is kept as it is")
        }
        (Undo::Revoke, Fate::Kept) if record.reclaim_policy == ReclaimPolicy::Retain => {
            format!("bucket {name:?} is kept by its reclaimPolicy Retain")
        }
        (Undo::Revoke, Fate::Kept) => format!("bucket {name:?} is kept"),
        (Undo::Delete, Fate::Kept) => format!("bucket {name:?} is left in place"),
    };
    let access = match (&record.plan.user, &removed.access) {
        (None, _) => "the claim had the owner's own keys, which go on working".to_owned(),
        (Some(_), Fate::Removed) => "the claim's access is deleted".to_owned(),
        (Some(_), Fate::Missing) if access_gone_before => "the claim's access is deleted".to_owned(),
        (Some(user), Fate::Missing) => format!("the claim's user {user:?} did not exist any more"),
        (Some(user), Fate::Left(_) | Fate::Kept) => {
            format!("the claim's user {user:?} is left in place, and its keys go on working")
        }
    };
    format!("{access}; {bucket}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::decide::testing::record;
    use crate::provisioner::{Endpoint, Plan};

    fn with(change: impl FnOnce(&mut Record)) -> Record {
        let mut record = record();
        change(&mut record);
        record
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
            assert!(shares_bucket(&created, (Author::Us, &granted(account))), "{account:?}");
        }
        let elsewhere = Endpoint { host: "another.example.com".into(), ..record().plan.endpoint };
        let elsewhere = Record { plan: Plan { endpoint: elsewhere, ..record().plan }, ..record() };
        assert!(!shares_bucket(&created, (Author::Us, &elsewhere)));
        assert!(shares_bucket(&created, (Author::GoProvisioner, &elsewhere)), "its hosts are spelt otherwise");
        assert!(!shares_bucket(&created, (Author::Us, &with(|r| r.account = Some("2".into())))), "tenants of a store");
        assert!(!shares_bucket(&created, (Author::Us, &with(|r| r.plan.bucket = "other".into()))));
    }

    #[test]
    fn what_is_said_in_the_end_is_what_was_seen() {
        let say = |access, bucket| closing_message(&record(), Undo::Delete, &Removed { access, bucket }, false);
        insta::assert_snapshot!(say(Fate::Removed, Fate::Removed), @r#"the claim's access is deleted; bucket "photos-f30e0389" is deleted with all that was in it"#);
        insta::assert_snapshot!(say(Fate::Missing, Fate::Missing), @r#"the claim's user "shop-photos-f30e0389" did not exist any more; bucket "photos-f30e0389" did not exist any more"#);
        insta::assert_snapshot!(say(Fate::Left("why".into()), Fate::Left("why".into())), @r#"the claim's user "shop-photos-f30e0389" is left in place, and its keys go on working; bucket "photos-f30e0389" is left in place"#);
        let revoked = Removed { access: Fate::Removed, bucket: Fate::Kept };
        insta::assert_snapshot!(closing_message(&record(), Undo::Revoke, &revoked, false), @r#"the claim's access is deleted; bucket "photos-f30e0389" is kept"#);
        let granted = with(|r| r.plan.mode = Mode::Granted);
        insta::assert_snapshot!(closing_message(&granted, Undo::Revoke, &revoked, false), @r#"the claim's access is deleted; bucket "photos-f30e0389", which existed before, is kept as it is"#);
        let shared = with(|r| r.plan.user = None);
        let kept = Removed { access: Fate::Kept, bucket: Fate::Removed };
        insta::assert_snapshot!(closing_message(&shared, Undo::Delete, &kept, false), @r#"the claim had the owner's own keys, which go on working; bucket "photos-f30e0389" is deleted with all that was in it"#);
    }
}
