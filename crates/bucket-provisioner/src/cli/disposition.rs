//! What the deletion of a claim would delete and keep, and why. Pure.

use std::fmt;

use serde::Serialize;

use crate::decide::action::Action;
use crate::decide::record::Stored;
use crate::decide::release::text;
use crate::decide::teardown::{self, Undo};
use crate::store::{Mode, Record};

/// Whether a bucket, or the access to it, is deleted or kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disposition {
    /// Such as `bucket "photos"`.
    pub(crate) what: String,
    pub(crate) is_deleted: bool,
    pub(crate) why: String,
}

impl fmt::Display for Disposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_deleted { "deletes" } else { "keeps" };
        write!(f, "{verb} {}: {}", self.what, self.why)
    }
}

impl Disposition {
    pub(crate) fn deleted(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), is_deleted: true, why: why.into() }
    }

    pub(crate) fn kept(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), is_deleted: false, why: why.into() }
    }
}

/// Another ObjectBucket of the same bucket.
#[derive(Debug)]
pub(crate) struct Sharing {
    pub(crate) stored: Stored,
    /// Its claim is being deleted.
    pub(crate) is_leaving: bool,
}

impl Sharing {
    /// When its bucket is deleted, if no other claim uses it; `None` if an admin or a class keeps it.
    fn deletes(&self) -> Option<String> {
        let Stored { release, action, .. } = &self.stored;
        let at_once = || Some("at once".to_owned());
        match (action, release) {
            (Some(Action::Remove), _) => at_once(),
            (None, Some(release)) => Some(format!("at {} or, if that has passed, at once", text(release.delete_at()?))),
            (None, None) if self.is_leaving && teardown::undo(&self.stored) == Undo::Delete => at_once(),
            _ => None,
        }
    }
}

/// What happens to bucket and access if the claim is deleted. `stored`: [completed](crate::decide::legacy::complete) if it is of
/// the Go provisioner. `sharing`: the other ObjectBuckets that name its bucket.
pub(crate) fn on_deletion(stored: &Stored, sharing: &[Sharing]) -> Vec<Disposition> {
    let record = &stored.record;
    let bucket = format!("bucket {:?}", record.plan.bucket);
    if stored.action == Some(Action::Forget) {
        let why = "the ObjectBucket is annotated with forget: only the ObjectBucket is deleted";
        return vec![Disposition::kept(bucket, why), Disposition::kept("the access to it", why)];
    }
    let with_content = format!("{bucket} with all its content");
    let of_bucket = match teardown::undo(stored) {
        Undo::Revoke if record.plan.mode == Mode::Granted && !stored.by_us() => Disposition::kept(
            bucket,
            "nothing proves that the Go provisioner created it for this claim: its name was not generated for the claim, or its StorageClass names it, no longer exists or is of another provisioner (the operator decides when the claim is deleted: if the class can be used then, it may delete the bucket)",
        ),
        Undo::Revoke if record.plan.mode == Mode::Granted => match &record.plan.shared_from {
            Some(from) => of_shared(bucket, &from.name, sharing),
            None => Disposition::kept(bucket, "it existed before the claim (its class names it)"),
        },
        Undo::Revoke => Disposition::kept(bucket, "its reclaimPolicy is Retain"),
        Undo::Delete | Undo::DeleteAfter(_) if !sharing.is_empty() => {
            let names = names(sharing);
            let why = format!("only after these ObjectBuckets, which also name it, are deleted: {names}");
            Disposition::deleted(with_content, why)
        }
        Undo::Delete if !stored.by_us() => Disposition::deleted(
            with_content,
            "its reclaimPolicy is Delete, and the Go provisioner generated its name for this claim (if it has tags, it is kept)",
        ),
        Undo::Delete => Disposition::deleted(with_content, "its reclaimPolicy is Delete"),
        Undo::DeleteAfter(_) => {
            let why = format!("later (onDelete is {}); until then the deletion can be undone", record.plan.on_delete);
            Disposition::deleted(with_content, why)
        }
        Undo::DeleteIfEmpty if stored.published() => {
            Disposition::deleted(bucket, "only if it is empty (onDelete is ifEmpty)")
        }
        Undo::DeleteIfEmpty => Disposition::deleted(bucket, "only if it is empty, because no app has had keys for it"),
    };
    vec![of_bucket, of_access(record)]
}

/// What happens to the bucket that was created for another claim.
fn of_shared(bucket: String, creator: &str, sharing: &[Sharing]) -> Disposition {
    let (creators, others): (Vec<&Sharing>, Vec<&Sharing>) =
        sharing.iter().partition(|sharing| sharing.stored.record.plan.mode == Mode::Created);
    let created = format!("it was created for ObjectBucketClaim {creator:?}");
    match creators.into_iter().find_map(Sharing::deletes) {
        Some(when) if others.is_empty() => {
            let why = format!("{when}: {created}, which was deleted, and no other claim uses it");
            Disposition::deleted(format!("{bucket} with all its content"), why)
        }
        Some(_) => {
            let names = names(others);
            let why =
                format!("{created}, which was deleted; it is deleted with the last of these ObjectBuckets: {names}");
            Disposition::kept(bucket, why)
        }
        None => {
            let why =
                format!("{created}; if that one was deleted before, it may be deleted then, by the rule of its class");
            Disposition::kept(bucket, why)
        }
    }
}

fn names<'a>(sharing: impl IntoIterator<Item = &'a Sharing>) -> String {
    sharing.into_iter().map(|sharing| sharing.stored.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// What happens to bucket and access if an admin applies the action `remove` to the ObjectBucket.
pub(crate) fn on_removal(stored: &Stored) -> Vec<Disposition> {
    match teardown::undo_now(stored) {
        Undo::Delete if stored.by_us() => {
            let what = format!("bucket {:?} with all its content", stored.record.plan.bucket);
            vec![Disposition::deleted(what, "its reclaimPolicy is Delete"), of_access(&stored.record)]
        }
        _ if !stored.by_us() => {
            let bucket = format!("bucket {:?}", stored.record.plan.bucket);
            let why = "its claim no longer exists, so nothing proves that the Go provisioner created it";
            vec![Disposition::kept(bucket, why), of_access(&stored.record)]
        }
        _ => on_deletion(stored, &[]),
    }
}

/// What happens if the claim is deleted while the class of an ObjectBucket of the Go provisioner cannot be used.
pub(crate) fn undecided(stored: &Stored, problem: &str) -> Vec<Disposition> {
    let bucket = format!("bucket {:?} with all its content, or only the access to it", stored.record.plan.bucket);
    vec![Disposition::deleted(bucket, format!("when its StorageClass can be used; until then, nothing ({problem})"))]
}

fn of_access(record: &Record) -> Disposition {
    match (&record.plan.user, &record.plan.service_account) {
        (Some(role), Some(account)) => Disposition::deleted(
            format!("the access of ServiceAccount {:?} to the bucket, by role {role:?}", account.name),
            "it was created for the claim",
        ),
        (Some(user), None) => {
            Disposition::deleted(format!("user {user:?} with its keys"), "it was created for the claim")
        }
        (None, _) => {
            Disposition::kept("the provisioning credentials", "the claim uses them (createBucketUser is \"no\")")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::decide::release::{Release, Retained, Schedule};
    use crate::decide::testing::{record, stored};
    use crate::store::{OnDelete, Plan, ReclaimPolicy, SharedFrom};

    fn of(stored: Stored) -> Sharing {
        Sharing { stored, is_leaving: false }
    }

    fn dispositions(change: impl FnOnce(&mut Record), sharing: &[&str]) -> Vec<(bool, String)> {
        let mut record = Record { credentials_published: true, ..record() };
        change(&mut record);
        let sharing: Vec<_> = sharing.iter().map(|name| of(Stored { name: (*name).to_owned(), ..stored() })).collect();
        let dispositions = on_deletion(&Stored { record, ..stored() }, &sharing);
        dispositions.into_iter().map(|disposition| (disposition.is_deleted, disposition.why)).collect()
    }

    #[test]
    fn the_bucket_is_deleted_or_kept_as_the_operator_decides() {
        let deleted = dispositions(|_| (), &[]);
        assert!(deleted[0] == (true, "its reclaimPolicy is Delete".into()) && deleted[1].0, "{deleted:?}");
        let retained = dispositions(|record| record.reclaim_policy = ReclaimPolicy::Retain, &[]);
        assert!(!retained[0].0 && retained[0].1.contains("Retain") && retained[1].0, "{retained:?}");
        let granted = dispositions(|record| record.plan.mode = Mode::Granted, &[]);
        assert!(!granted[0].0 && granted[0].1.contains("existed before"), "{granted:?}");
        let shared = dispositions(|_| (), &["obc-a-b"]);
        assert!(shared[0].0 && shared[0].1.contains("obc-a-b"), "{shared:?}");
        let owners = dispositions(|record| record.plan = Plan { user: None, ..record.plan.clone() }, &[]);
        assert!(owners[0].0 && !owners[1].0, "{owners:?}");
    }

    #[test]
    fn the_last_claim_that_shares_a_bucket_deletes_it() {
        let at = k8s_openapi::jiff::Timestamp::UNIX_EPOCH;
        let why = Retained::Scheduled(Schedule { at, namespace_uid: None });
        let creator = Stored { release: Some(Release { at, why, deleting: false }), ..stored() };
        let shares = |record: Record| Record {
            plan: Plan {
                mode: Mode::Granted,
                shared_from: Some(SharedFrom::new("reports", [])),
                ..record.plan.clone()
            },
            ..record
        };
        let of_bucket =
            |sharing: &[Sharing]| on_deletion(&Stored { record: shares(record()), ..stored() }, sharing).swap_remove(0);
        let last = of_bucket(&[of(creator.clone())]);
        assert!(last.is_deleted && last.why.starts_with("at 1970-01-01T00:00:00Z or"), "{last}");
        let other = Stored { name: "obc-other".into(), record: shares(record()), ..stored() };
        let not_last = of_bucket(&[of(creator.clone()), of(other)]);
        assert!(!not_last.is_deleted && not_last.why.contains("obc-other"), "{not_last}");
        let purged = Stored { release: None, record: Record { credentials_published: true, ..record() }, ..creator };
        let leaving = of_bucket(&[Sharing { is_leaving: true, ..of(purged.clone()) }]);
        assert!(leaving.is_deleted && leaving.why.starts_with("at once"), "{leaving}");
        let exists = of_bucket(&[of(purged)]);
        assert!(!exists.is_deleted && exists.why.starts_with("it was created for"), "{exists}");
    }

    #[test]
    fn the_time_and_condition_of_the_deletion_are_shown() {
        let later = dispositions(|record| record.plan.on_delete = OnDelete::After(Duration::from_secs(604_800)), &[]);
        assert!(later[0].0 && later[0].1.contains("after:7d"), "{later:?}");
        let if_empty = dispositions(|record| record.plan.on_delete = OnDelete::IfEmpty, &[]);
        assert!(if_empty[0].1.contains("ifEmpty"), "{if_empty:?}");
        let unpublished = dispositions(|record| record.credentials_published = false, &[]);
        assert!(unpublished[0].1.contains("only if it is empty, because no app"), "{unpublished:?}");
        let by_an_admin = |credentials_published| {
            let plan = Plan { on_delete: OnDelete::IfEmpty, ..record().plan };
            on_removal(&Stored { record: Record { credentials_published, plan, ..record() }, ..stored() })
                .swap_remove(0)
        };
        assert!(by_an_admin(true).what.contains("with all its content"));
        assert!(by_an_admin(false).why.contains("only if it is empty, because no app"));
    }

    #[test]
    fn a_forgotten_bucket_is_kept() {
        let stored = Stored { action: Some(Action::Forget), ..stored() };
        assert!(on_deletion(&stored, &[]).iter().all(|disposition| !disposition.is_deleted));
    }
}
